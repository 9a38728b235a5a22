//! `TestVerifyRunner`, and the same against a GitLab of old.

use gitlab_runner_api::{BaseUrl, VerifyOutcome};
use serde_json::json;

use super::gitlab::{Answer, GitLab, Request, answer};

const EXPIRES: &str = "2684-10-16T13:25:59Z";

/// Whether the request is a verify of this token, as every GitLab demands it.
fn token(request: &Request) -> String {
    assert_eq!(request.method, "POST");
    assert_eq!(request.path, "/api/v4/runners/verify");
    assert!(request.header("x-request-id").is_some());
    let token = request.header("runner-token").unwrap().to_owned();
    assert_eq!(request.json()["token"], json!(token));
    token
}

fn modern(request: &Request) -> Answer {
    match token(request).as_str() {
        token @ ("valid" | "glrt-valid") => answer("200 OK")
            .json(&json!({"id": 54321, "token": token, "token_expires_at": EXPIRES}).to_string()),
        "invalid" => answer("403 Forbidden"),
        _ => answer("400 Bad Request"),
    }
}

fn legacy(request: &Request) -> Answer {
    match token(request).as_str() {
        "valid" | "glrt-valid" => answer("200 OK").body("plain/text", ""),
        "invalid" => answer("403 Forbidden"),
        _ => answer("400 Bad Request"),
    }
}

/// What is known of the token: its runner and its end, that it is refused, or the status that says
/// nothing of it.
type Known = Result<(u64, Option<&'static str>), Option<u16>>;

const REFUSED: Known = Err(Some(403));

/// GL-01, PORT-12
#[tokio::test]
async fn a_token_is_taken_refused_or_not_known() {
    let rows: [(&str, Known, Known); 4] = [
        ("valid", Ok((54321, Some(EXPIRES))), Ok((0, None))),
        ("glrt-valid", Ok((54321, Some(EXPIRES))), Ok((0, None))),
        ("invalid", REFUSED, REFUSED),
        ("other", Err(Some(400)), Err(Some(400))),
    ];
    for (token, of_modern, of_legacy) in rows {
        for (which, gitlab, expected) in [
            ("modern", GitLab::new(modern), of_modern),
            ("legacy", GitLab::new(legacy), of_legacy),
        ] {
            let outcome = gitlab.client(token).verify().await;
            let known = match &outcome {
                VerifyOutcome::Taken(verified) => {
                    Ok((verified.id, verified.token_expires_at.as_deref()))
                }
                VerifyOutcome::Refused => REFUSED,
                VerifyOutcome::Unavailable(outcome) => Err(outcome.status),
            };
            assert_eq!(known, expected, "{which} {token}");
            // A 400 says nothing of the token, a 403 that it is refused.
            let refused = outcome == VerifyOutcome::Refused;
            assert_eq!(refused, token == "invalid", "{which} {token}");
            assert_eq!(gitlab.requests().len(), 1, "{which} {token}: not repeated");
        }
    }
    assert!(
        "broken".parse::<BaseUrl>().is_err(),
        "no client is made of it"
    );
}
