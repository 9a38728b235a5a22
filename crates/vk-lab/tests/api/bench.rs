//! Section 10's bench mode: what each job cost, many runners, and memory that stays bounded.

use serde_json::json;

use crate::lab::{Lab, hello};
use crate::raw::{receive, send};

#[test]
fn each_jobs_calls_bytes_and_waits_are_counted() {
    let lab = Lab::start();
    lab.request("");
    lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"], "tags": ["other"]}]}));
    let ids = lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"], "tags": ["mine"]}]}));
    lab.request("");
    lab.request("");
    lab.admin(&json!({"cmd": "advance", "secs": 7}));
    lab.admin(&json!({"cmd": "runner", "tags": ["mine"]}));
    let job = lab.take();
    let (id, token) = (job["id"].as_u64().unwrap(), job["token"].as_str().unwrap());
    assert_eq!(id, ids[0]);
    lab.patch(id, token, "0-4", "hello");
    lab.admin(&json!({"cmd": "advance", "secs": 30}));
    lab.patch(id, token, "5-5", "");
    let counts = lab.job(id)["counts"].clone();
    assert_eq!(counts["empty_before"], 2, "{counts}");
    let waited = counts["pick_up_ms"].as_u64().unwrap();
    assert!((7_000..20_000).contains(&waited), "{waited}");
    assert_eq!(
        (&counts["patches"], &counts["bytes_in"]),
        (&json!(2), &json!(5))
    );
    let gap = counts["longest_gap_ms"].as_u64().unwrap();
    assert!((30_000..50_000).contains(&gap), "{gap}");
    let sent = json!({"token": token, "state": "success"});
    lab.put(id, &sent);
    let counts = lab.job(id)["counts"].clone();
    assert_eq!(
        (&counts["updates"], &counts["transfers"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(counts["bytes_in"], 5 + sent.to_string().len());
    let totals = lab.admin(&json!({"cmd": "totals"}))["totals"].clone();
    assert_eq!(totals["jobs"], json!({"pending": 1, "success": 1}));
    assert_eq!(
        (&totals["handed_out"], &totals["trace_bytes"]),
        (&json!(1), &json!(5))
    );
    assert_eq!(totals["pick_up_ms_p99"], waited);
}

#[test]
fn a_held_request_that_ends_in_vain_is_a_204_before_the_201() {
    let lab = Lab::with(&["--long-poll-ns", "1000000"], None);
    lab.trigger(&json!({"jobs": [{"name": "a", "script": ["x"], "tags": ["mine"]}]}));
    let value = lab.request("");
    let value = value.header("X-GitLab-Last-Update").unwrap();
    for _ in 0..2 {
        let held = lab.request(value);
        assert_eq!(
            (held.status, held.header("X-GitLab-Last-Update")),
            (204, None)
        );
    }
    lab.admin(&json!({"cmd": "runner", "tags": ["mine"]}));
    let id = lab.take()["id"].as_u64().unwrap();
    assert_eq!(lab.job(id)["counts"]["empty_before"], 3);
}

#[test]
fn runners_have_tokens_of_their_own_and_are_woken_apart() {
    let lab = Lab::with(&["--tag", "none", "--long-poll-ns", "50000000000"], None);
    lab.admin(&json!({"cmd": "runner", "run_untagged": false}));
    let dir = lab.dir.path().join("tokens");
    std::fs::create_dir(&dir).unwrap();
    let add = json!({"cmd": "add_runners", "count": 3, "tags": ["t"], "token_dir": dir});
    let added = lab.admin(&add)["runners"].clone();
    let mut tokens = Vec::new();
    for runner in added.as_array().unwrap() {
        let path = runner["token_file"].as_str().unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        tokens.push(std::fs::read_to_string(path).unwrap().trim().to_owned());
    }
    assert!(!added.to_string().contains(&tokens[0]), "no token is said");
    let ask =
        |token: &str, seen: &str| json!({"token": token, "system_id": "s", "last_update": seen});
    let values: Vec<String> = tokens
        .iter()
        .map(|token| {
            let answer = lab.post("/jobs/request", &ask(token, ""));
            answer.header("X-GitLab-Last-Update").unwrap().to_owned()
        })
        .collect();
    let third = added[2]["id"].as_u64().unwrap();
    lab.admin(&json!({"cmd": "runner", "id": third, "paused": true}));
    // A held request of each; a job wakes those that may run it.
    let kind = [("Content-Type", "application/json")];
    let mut held: Vec<_> = tokens
        .iter()
        .zip(&values)
        .take(2)
        .map(|(token, value)| {
            let body = ask(token, value).to_string();
            send(
                lab.addr,
                "POST",
                "/api/v4/jobs/request",
                &kind,
                body.as_bytes(),
            )
        })
        .collect();
    lab.trigger(&hello());
    for stream in &mut held {
        assert_eq!(receive(stream).unwrap().status, 204);
    }
    let got: Vec<u16> = tokens
        .iter()
        .map(|token| lab.post("/jobs/request", &ask(token, "")).status)
        .collect();
    assert_eq!(got, [201, 204, 204], "one job, one runner");
    let of = lab.job(1)["runner"].clone();
    assert_eq!(of, added[0]["id"]);
    let shown = lab.admin(&json!({"cmd": "status"}));
    assert_eq!(shown["runners"].as_array().unwrap().len(), 4);
    assert!(
        tokens
            .iter()
            .all(|token| !shown.to_string().contains(token))
    );
    let again = lab.try_admin(&add);
    assert_eq!(again["ok"], true, "new ids, new files: {again}");
    let bad = lab.try_admin(&json!({"cmd": "add_runners", "count": 0, "token_dir": dir}));
    assert_eq!(bad["error"]["code"], "invalid");
}

#[test]
fn traces_of_ended_jobs_are_summed_up_dropped_and_still_judged() {
    let lab = Lab::with(
        &[],
        Some("[DEPLOY]\nvalue = 's3cret-value'\nmasked = true\n"),
    );
    lab.admin(&json!({"cmd": "set", "sum_ended_traces": true}));
    let want = lab.dir.path().join("want");
    std::fs::write(&want, "hello").unwrap();
    let crc = format!("{:08x}", crc32fast::hash(b"hello"));
    let expect = |id: u64| json!({"cmd": "expect", "job": id, "trace_file": want});
    // Said before the end, and after it.
    for (sent, early, kind) in [
        ("hello", true, None),
        ("hello", false, None),
        ("hallo", true, Some("bytes_changed")),
        ("hallo", false, Some("bytes_changed")),
        ("hell", true, Some("bytes_missing")),
        ("hell", false, Some("bytes_missing")),
        ("hello!", false, Some("bytes_changed")),
    ] {
        let before = lab.broken().len();
        let (id, token) = lab.running();
        if early {
            lab.admin(&expect(id));
        }
        lab.patch(id, &token, "0-1", sent);
        assert_eq!(lab.trace(id), sent, "kept while it runs");
        lab.finish(id, &token, "success");
        if !early {
            lab.admin(&expect(id));
        }
        assert_eq!(lab.trace(id), "", "dropped");
        let job = lab.job(id);
        assert_eq!(job["trace_size"], sent.len());
        assert_eq!(job["trace_sha256"].as_str().unwrap().len(), 64);
        if sent == "hello" {
            assert_eq!(job["trace_crc32"], crc);
        }
        let broken = lab.broken();
        assert_eq!(
            broken.get(before).map(String::as_str),
            kind,
            "{sent} early {early}"
        );
    }
    let (id, token) = lab.running();
    lab.patch(id, &token, "0-1", "a s3cret-value");
    lab.finish(id, &token, "success");
    let late = json!({"cmd": "expect", "job": id, "contains": ["a"]});
    assert_eq!(lab.try_admin(&late)["error"]["code"], "conflict");
    assert_eq!(lab.broken().last().unwrap(), "secret_in_trace");
}

#[test]
fn a_long_job_token_is_taken_everywhere() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "set", "job_token_bytes": 1_500}));
    let (id, token) = lab.running();
    assert_eq!(token.len(), 1_500);
    assert_eq!(lab.patch(id, &token, "0-0", "x").status, 202);
    assert_eq!(lab.finish(id, &token, "success").status, 200);
}

/// More held requests than a usual shell's limit of descriptors would let it have.
#[test]
fn held_requests_are_not_bounded_by_the_shells_descriptors() {
    let lab = Lab::narrow(128, &["--long-poll-ns", "50000000000"]);
    lab.admin(&json!({"cmd": "set", "rate_limits": {"request": 0}}));
    let value = lab
        .request("")
        .header("X-GitLab-Last-Update")
        .unwrap()
        .to_owned();
    let kind = [("Content-Type", "application/json")];
    let body = lab.ask(&value).to_string();
    let path = "/api/v4/jobs/request";
    let mut held: Vec<_> = (0..500)
        .map(|_| send(lab.addr, "POST", path, &kind, body.as_bytes()))
        .collect();
    // An answer after all of those were sent: they are taken in order.
    assert_eq!(lab.request("").status, 204);
    lab.trigger(&hello());
    let statuses: Vec<u16> = held
        .iter_mut()
        .map(|stream| receive(stream).unwrap().status)
        .collect();
    assert!(
        statuses
            .iter()
            .all(|status| *status == 204 || *status == 201)
    );
    let jobs = statuses.iter().filter(|status| **status == 201).count();
    assert!(jobs <= 1, "one came too late to be held, at most");
}
