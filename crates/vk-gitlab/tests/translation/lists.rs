//! What is left out or bent, and what is said of it.

use serde_json::{Value, json};

use super::fixture::{spec, translated, with};

/// SPEC-45, SPEC-57, SPEC-74
#[test]
fn what_is_unknown_is_left_out_with_a_warning_that_names_it() {
    let port = |number: i64| json!([{"number": number}, {"number": 81}]);
    let whole = |number: u16| json!([{"number": number, "protocol": "http"}]);
    let rows: [(&str, Value, &str, Value, &str); 8] = [
        (
            "/image/pull_policy",
            json!(["sometimes", "never"]),
            "/image/pull_policy",
            json!(["never"]),
            "pull policy \"sometimes\" is unknown and was left out",
        ),
        (
            "/services/0/pull_policy",
            json!(["sometimes"]),
            "/services/0/pull_policy",
            Value::Null,
            "pull policy \"sometimes\" is unknown and was left out",
        ),
        (
            "/image/ports",
            port(0),
            "/image/ports",
            whole(81),
            "port 0 is none and was left out",
        ),
        (
            "/image/ports",
            port(-1),
            "/image/ports",
            whole(81),
            "port -1 is none and was left out",
        ),
        (
            "/services/1/ports",
            port(65_536),
            "/services/1/ports",
            whole(81),
            "port 65536 is none and was left out",
        ),
        (
            "/artifacts/0/artifact_format",
            json!("rar"),
            "/artifacts/0/format",
            json!("zip"),
            "artifact format \"rar\" is unknown; zip is used",
        ),
        (
            "/hooks",
            json!([{"name": "other", "script": ["x"]}]),
            "/hooks",
            Value::Null,
            "hook \"other\" is unknown and was left out",
        ),
        (
            "/hooks",
            json!([{"name": "post_get_sources_script", "script": ["a"]}, {"name": ""}]),
            "/hooks",
            json!([{"name": "post_get_sources_script", "script": ["a"]}]),
            "hook \"\" is unknown and was left out",
        ),
    ];
    for (from, value, to, left, warning) in rows {
        let row = format!("{from} = {value}");
        let mut response = with(from, value);
        response["cache"] = json!([]);
        let spec = spec(&response);
        assert_eq!(spec.pointer(to).unwrap_or(&Value::Null), &left, "{row}");
        assert_eq!(translated(&response).warnings, [warning], "{row}");
    }
}

/// SPEC-02, SPEC-05, SPEC-45
#[test]
fn an_artifact_of_which_nothing_is_said_has_every_default() {
    let artifact = spec(&with("/artifacts", json!([{}])))["artifacts"][0].clone();
    let expected = json!({"name": "artifacts", "untracked": false, "paths": [],
        "when": "on_success", "artifact_type": "archive", "format": "zip", "expire_in": ""});
    assert_eq!(artifact, expected);
}
