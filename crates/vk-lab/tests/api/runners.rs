//! Sections 1 and 2.1–2.5: calls about runners, and what is no call at all.

use serde_json::json;

use crate::lab::Lab;

#[test]
fn every_answer_about_a_runner_is_the_pages() {
    let lab = Lab::start();
    let token = lab.token.clone();
    let rows = [
        (
            "POST",
            "/runners/verify",
            json!({"token": token, "system_id": "s_1"}),
            200,
        ),
        ("POST", "/runners/verify", json!({"token": token}), 200),
        (
            "POST",
            "/runners/verify",
            json!({"token": "glrt-wrong"}),
            403,
        ),
        ("POST", "/runners/verify", json!({"system_id": "s_1"}), 400),
        ("POST", "/runners/verify", json!({"token": ""}), 400),
        ("POST", "/runners", json!({"token": "registration"}), 410),
        ("GET", "/runners/router/discovery", json!({}), 501),
        ("DELETE", "/runners/managers", json!({"token": token}), 400),
        (
            "DELETE",
            "/runners/managers",
            json!({"token": token, "system_id": "nope"}),
            404,
        ),
        (
            "DELETE",
            "/runners/managers",
            json!({"token": token, "system_id": "s_1"}),
            204,
        ),
        (
            "DELETE",
            "/runners/managers",
            json!({"token": "x", "system_id": "s_1"}),
            403,
        ),
        (
            "POST",
            "/runners/reset_authentication_token",
            json!({"token": "x"}),
            403,
        ),
        ("DELETE", "/runners", json!({"token": "x"}), 403),
        ("GET", "/nope", json!({}), 404),
        ("POST", "/jobs/1/artifacts/authorize", json!({}), 403),
    ];
    for (method, path, body, status) in rows {
        let answer = lab.call(method, &format!("/api/v4{path}"), &[], body.to_string());
        assert_eq!(
            answer.status,
            status,
            "{method} {path} {body}: {}",
            answer.text()
        );
    }
}

#[test]
fn verify_answers_id_token_and_expiry() {
    let lab = Lab::start();
    let answer = lab.post("/runners/verify", &json!({"token": lab.token}));
    let want = json!({"id": 1, "token": lab.token, "token_expires_at": null});
    assert_eq!(answer.json(), want);
}

#[test]
fn the_body_of_a_refusal_is_the_pages() {
    let lab = Lab::start();
    let missing = lab.post("/runners/verify", &json!({}));
    assert_eq!(missing.json(), json!({"error": "token is missing"}));
    let wrong = lab.post("/runners/verify", &json!({"token": "x"}));
    assert_eq!(wrong.json(), json!({"message": "403 Forbidden"}));
}

#[test]
fn a_reset_token_takes_the_old_ones_place_at_once() {
    let lab = Lab::start();
    let answer = lab.post(
        "/runners/reset_authentication_token",
        &json!({"token": lab.token}),
    );
    assert_eq!(answer.status, 201);
    let new = answer.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(
        lab.post("/runners/verify", &json!({"token": lab.token}))
            .status,
        403
    );
    assert_eq!(
        lab.post("/runners/verify", &json!({"token": new})).status,
        200
    );
}

#[test]
fn an_expired_token_is_as_good_as_unknown() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "runner", "token_expires_in_secs": 60}));
    let answer = lab.post("/runners/verify", &json!({"token": lab.token}));
    assert!(
        answer.json()["token_expires_at"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    lab.admin(&json!({"cmd": "advance", "secs": 61}));
    assert_eq!(
        lab.post("/runners/verify", &json!({"token": lab.token}))
            .status,
        403
    );
    assert_eq!(lab.request("").status, 403);
}

#[test]
fn the_runners_token_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::start();
    for path in [lab.dir.path().join("token"), lab.admin_socket().to_owned()] {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
}
