//! Options for executors of an image: upstream's table of what is read of them, and what is said of
//! those that nobody supports.

#![allow(clippy::unwrap_used, reason = "a test may")]

use gitlab_runner_api::response::Image;

struct Row {
    /// `executor_opts` as GitLab sends it.
    options: &'static str,
    platform: &'static str,
    docker_user: &'static str,
    kubernetes_user: &'static str,
    /// What is said of it, a line each; empty where everything is supported.
    unsupported: &'static [&'static str],
}

const DOCKER: &str = r#"Unsupported "image" options [foobar] for "docker executor"; supported options are [platform user]"#;
const KUBERNETES: &str = r#"Unsupported "image" options [foobar] for "kubernetes executor"; supported options are [user]"#;
const K8S: &str = r#"Unsupported "image" options [k8s] for "executor_opts"; supported options are [docker kubernetes]"#;
const DOCKERS: &str = r#"Unsupported "image" options [dockers] for "executor_opts"; supported options are [docker kubernetes]"#;

const fn row(options: &'static str) -> Row {
    Row {
        options,
        platform: "",
        docker_user: "",
        kubernetes_user: "",
        unsupported: &[],
    }
}

const ROWS: [Row; 13] = [
    row("{}"),
    row(r#"{"docker":{}}"#),
    Row {
        docker_user: "ubuntu",
        ..row(r#"{"docker":{"user":"ubuntu"}}"#)
    },
    Row {
        platform: "amd64",
        ..row(r#"{"docker":{"platform":"amd64"}}"#)
    },
    Row {
        platform: "arm64",
        docker_user: "ubuntu",
        ..row(r#"{"docker":{"platform":"arm64","user":"ubuntu"}}"#)
    },
    Row {
        unsupported: &[DOCKER],
        ..row(r#"{"docker":{"foobar":1234}}"#)
    },
    row(r#"{"kubernetes":{}}"#),
    Row {
        kubernetes_user: "1000",
        ..row(r#"{"kubernetes":{"user":"1000"}}"#)
    },
    Row {
        kubernetes_user: "1000",
        ..row(r#"{"kubernetes":{"user":1000}}"#)
    },
    Row {
        unsupported: &[KUBERNETES],
        ..row(r#"{"kubernetes":{"foobar":1234}}"#)
    },
    Row {
        unsupported: &[K8S],
        ..row(r#"{"k8s":{}}"#)
    },
    Row {
        platform: "amd64",
        unsupported: &[K8S, DOCKER],
        ..row(r#"{"k8s":{},"docker":{"platform":"amd64","foobar":1234}}"#)
    },
    Row {
        kubernetes_user: "1000",
        unsupported: &[DOCKERS, KUBERNETES],
        ..row(r#"{"dockers":{},"kubernetes":{"user":"1000","foobar":1234}}"#)
    },
];

/// PORT-07, SPEC-70
#[test]
fn options_are_read_and_unsupported_ones_named_as_upstream_does() {
    for row in &ROWS {
        let json = format!(r#"{{"executor_opts":{}}}"#, row.options);
        let options = serde_json::from_str::<Image>(&json).unwrap().executor_opts;
        assert_eq!(
            (
                options.docker.platform.as_str(),
                options.docker.user.as_str(),
                options.kubernetes.user.as_str()
            ),
            (row.platform, row.docker_user, row.kubernetes_user),
            "{}",
            row.options
        );
        let said = options.check().err().map(|error| error.to_string());
        let said = said.unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines, row.unsupported, "{}", row.options);
    }
}
