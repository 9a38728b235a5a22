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
