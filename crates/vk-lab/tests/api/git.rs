//! Git over smart HTTP.

use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::lab::{Lab, git};

fn client(lab: &Lab, arguments: &[&str]) -> Output {
    Command::new("git")
        .current_dir(lab.dir.path())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn the_pipelines_ref_is_there_at_the_201_and_is_fetched_with_the_jobs_token() {
    let lab = Lab::start();
    let sha = git(&lab.project(), &["rev-parse", "HEAD"]);
    lab.trigger(&crate::lab::hello());
    // What comes after the trigger is not what the pipeline runs on.
    std::fs::write(lab.project().join("README"), "later\n").unwrap();
    git(&lab.project(), &["commit", "--quiet", "-am", "later"]);
    let job = lab.take();
    assert_eq!(job["git_info"]["sha"], sha);
    let clone = lab.dir.path().join("clone");
    std::fs::create_dir(&clone).unwrap();
    git(&clone, &["init", "--quiet"]);
    let url = job["git_info"]["repo_url"].as_str().unwrap();
    for depth in ["--depth=20", "--depth=1"] {
        git(
            &clone,
            &[
                "fetch",
                "--quiet",
                depth,
                url,
                job["git_info"]["refspecs"][0].as_str().unwrap(),
            ],
        );
    }
    assert_eq!(git(&clone, &["rev-parse", "refs/pipelines/1"]), sha);
    git(&clone, &["checkout", "--quiet", &sha]);
    assert_eq!(
        std::fs::read_to_string(clone.join("README")).unwrap(),
        "hello\n"
    );
}

#[test]
fn the_given_repository_is_never_written_to() {
    let lab = Lab::start();
    let before = git(&lab.project(), &["for-each-ref"]);
    lab.running();
    assert_eq!(git(&lab.project(), &["for-each-ref"]), before);
}

#[test]
fn a_token_opens_the_repository_only_while_its_job_runs() {
    let lab = Lab::start();
    let (id, token) = lab.running();
    let path = "/acme/web.git/info/refs?service=git-upload-pack";
    let get = |user: &str, token: &str| {
        let basic = format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
        lab.call("GET", path, &[("Authorization", basic.as_str())], "")
    };
    let good = get("gitlab-ci-token", &token);
    assert_eq!(good.status, 200);
    let kind = Some("application/x-git-upload-pack-advertisement");
    assert_eq!(good.header("Content-Type"), kind);
    assert_eq!(get("someone", &token).status, 401);
    assert_eq!(get("gitlab-ci-token", "glcbt-wrong").status, 401);
    let none = lab.call("GET", path, &[], "");
    assert_eq!(
        (none.status, none.header("WWW-Authenticate")),
        (401, Some("Basic realm=\"GitLab\""))
    );
    lab.finish(id, &token, "success");
    assert_eq!(get("gitlab-ci-token", &token).status, 401);
}

#[test]
fn nothing_else_is_served_and_nothing_is_taken() {
    let lab = Lab::start();
    let (_, token) = lab.running();
    let basic = format!(
        "Basic {}",
        STANDARD.encode(format!("gitlab-ci-token:{token}"))
    );
    let rows = [
        (
            "GET",
            "/acme/web.git/info/refs?service=git-receive-pack",
            403,
        ),
        ("POST", "/acme/web.git/git-receive-pack", 403),
        (
            "GET",
            "/acme/other.git/info/refs?service=git-upload-pack",
            404,
        ),
        ("GET", "/acme/web.git/info/refs", 404),
        ("GET", "/acme/web.git/config", 404),
        ("GET", "/acme/web.git/../../token", 404),
        ("GET", "/", 404),
    ];
    for (method, path, status) in rows {
        let answer = lab.call(method, path, &[("Authorization", basic.as_str())], "");
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let url = format!("http://gitlab-ci-token:{token}@{}/acme/web.git", lab.addr);
    let push = client(&lab, &["-C", "web", "push", &url, "HEAD:refs/heads/evil"]);
    assert!(!push.status.success());
}

#[test]
fn a_tag_is_run_as_a_tag_and_an_unknown_ref_is_an_error() {
    let lab = Lab::start();
    git(&lab.project(), &["tag", "v1"]);
    let mut pipeline = crate::lab::hello();
    pipeline["ref"] = "v1".into();
    lab.trigger(&pipeline);
    let job = lab.take();
    assert_eq!(job["git_info"]["ref_type"], "tag");
    assert_eq!(job["git_info"]["refspecs"][1], "+refs/tags/v1:refs/tags/v1");
    pipeline["ref"] = "nope".into();
    let answer = lab.try_admin(&json!({"cmd": "trigger", "pipeline": pipeline}));
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no branch or tag")
    );
}

#[test]
fn a_pipelines_ref_comes_late_or_never() {
    let lab = Lab::start();
    lab.admin(&json!({"cmd": "hide_ref", "secs": 60}));
    lab.trigger(&crate::lab::hello());
    let job = lab.take();
    let url = job["git_info"]["repo_url"].as_str().unwrap();
    let seen = |name: &str| {
        let out = client(&lab, &["ls-remote", url, name]);
        assert!(out.status.success());
        !out.stdout.is_empty()
    };
    assert!(!seen("refs/pipelines/1") && seen("refs/heads/main"));
    let out = client(&lab, &["init", "--quiet", "clone"]);
    assert!(out.status.success());
    let spec = job["git_info"]["refspecs"][0].as_str().unwrap();
    let fetch = || client(&lab, &["-C", "clone", "fetch", "--quiet", url, spec]);
    let out = fetch();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("couldn't find remote ref"),
        "{said}"
    );
    lab.admin(&json!({"cmd": "advance", "secs": 60}));
    assert!(seen("refs/pipelines/1") && fetch().status.success());
    lab.admin(&json!({"cmd": "hide_ref", "pipeline": 1}));
    lab.admin(&json!({"cmd": "advance", "secs": 600}));
    assert!(!seen("refs/pipelines/1"), "never");
    let none = lab.try_admin(&json!({"cmd": "hide_ref", "pipeline": 9}));
    assert_eq!(none["error"]["code"], "not_found");
}

#[test]
fn git_calls_fail_and_then_come() {
    let lab = Lab::start();
    lab.trigger(&crate::lab::hello());
    let job = lab.take();
    let url = job["git_info"]["repo_url"].as_str().unwrap();
    // The first call comes without credentials and is answered 401; a later one whose connection
    // just closes is sent again by the client itself.
    for (skip, action) in [
        (0, json!({"status": 502})),
        (0, json!("drop")),
        (1, json!("truncate")),
        (0, json!("lose_answer")),
        (0, json!({"stall_ms": 50})),
    ] {
        let fault = json!({"cmd": "inject", "on": "git", "action": action, "skip": skip});
        lab.admin(&fault);
        assert!(
            !client(&lab, &["ls-remote", url]).status.success(),
            "{action}"
        );
        assert!(
            client(&lab, &["ls-remote", url]).status.success(),
            "{action}"
        );
    }
}

#[test]
fn a_job_reads_another_project_where_that_lets_it() {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(dir.path().join("lib"), "x\n").unwrap();
    git(dir.path(), &["add", "lib"]);
    git(dir.path(), &["commit", "--quiet", "-m", "first"]);
    let other = format!("acme/lib={}", dir.path().display());
    let lab = Lab::with(&["--project", &other], None);
    lab.trigger(&json!({"project": "acme/web", "jobs": [{"name": "a", "script": ["x"]}]}));
    let job = lab.take();
    let url = job["git_info"]["repo_url"]
        .as_str()
        .unwrap()
        .replace("acme/web", "acme/lib");
    assert!(!client(&lab, &["ls-remote", &url]).status.success());
    lab.admin(&json!({"cmd": "let_read", "project": "acme/lib", "reader": "acme/web"}));
    assert!(client(&lab, &["ls-remote", &url]).status.success());
    let none = lab.try_admin(&json!({"cmd": "let_read", "project": "acme/lib", "reader": "nope"}));
    assert_eq!(none["error"]["code"], "not_found");
}

#[test]
fn lfs_objects_come_down_for_a_running_job_of_the_project() {
    let lab = Lab::start();
    let oid = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let place = lab.project().join(".git/lfs/objects/2c/f2");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join(oid), "hello").unwrap();
    let (_, token) = lab.running();
    let basic = format!(
        "Basic {}",
        STANDARD.encode(format!("gitlab-ci-token:{token}"))
    );
    let headers = [
        ("Authorization", basic.as_str()),
        ("Content-Type", "application/vnd.git-lfs+json"),
    ];
    let missing = "0".repeat(64);
    let body = json!({"operation": "download", "transfers": ["basic"], "objects": [
        {"oid": oid, "size": 5}, {"oid": missing, "size": 5}, {"oid": "../../HEAD", "size": 5}]});
    let batch = |headers: &[(&str, &str)], body: &serde_json::Value| {
        let path = "/acme/web.git/info/lfs/objects/batch";
        lab.call("POST", path, headers, body.to_string())
    };
    let answer = batch(&headers, &body);
    assert_eq!(
        answer.header("Content-Type"),
        Some("application/vnd.git-lfs+json")
    );
    let objects = answer.json()["objects"].clone();
    assert_eq!(
        (&objects[1]["error"]["code"], &objects[2]["error"]["code"]),
        (&json!(404), &json!(404))
    );
    let download = &objects[0]["actions"]["download"];
    assert_eq!(download["header"]["Authorization"], basic);
    let href = download["href"].as_str().unwrap();
    let path = href.strip_prefix(&format!("http://{}", lab.addr)).unwrap();
    assert_eq!(lab.call("GET", path, &headers, "").text(), "hello");
    assert_eq!(lab.call("GET", path, &[], "").status, 401);
    assert_eq!(batch(&[], &body).status, 401);
    let up = json!({"operation": "upload", "objects": []});
    assert_eq!(batch(&headers, &up).status, 403);
}
