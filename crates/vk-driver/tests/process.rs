//! Whole jobs in a guest that is a process: everything but the machine is real.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

mod support;

use serde_json::json;
use support::{
    Node, SOURCES_SCRIPT, Started, add, check_sources, read, served, spec, spec_of, step, variable,
};
use vk_driver::{Control, Stop};
use vk_hub_proto::job::{ArtifactState, FailureClass};

/// STAGE-01, STAGE-02, STAGE-05, STAGE-30, STAGE-39
#[tokio::test]
async fn a_job_succeeds_with_gitlab_runners_trace() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&[
        "echo hello $SECRET",
        "echo $CI_PROJECT_DIR $CI_CONCURRENT_ID",
    ]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo $CI_JOB_STATUS"]),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let lines = ran.lines();
    assert_eq!(lines[0], "\x1b[0KRunning with vk 0.1 (test)\x1b[0;m");
    let from = lines
        .iter()
        .position(|line| line.contains("Preparing environment"))
        .unwrap();
    assert_eq!(
        lines[from..],
        [
            "\x1b[0K\x1b[36;1mPreparing environment\x1b[0;m\x1b[0;m",
            "Running on runner-vk-project-3-concurrent-2 via n1...",
            "\x1b[0K\x1b[36;1mGetting source from Git repository\x1b[0;m\x1b[0;m",
            "\x1b[32;1mSkipping Git repository setup\x1b[0;m",
            "\x1b[32;1mSkipping Git checkout\x1b[0;m",
            "\x1b[32;1mSkipping Git submodules setup\x1b[0;m",
            "\x1b[0K\x1b[36;1mExecuting \"step_script\" stage of the job script\x1b[0;m\x1b[0;m",
            "\x1b[32;1m$ echo hello $SECRET\x1b[0;m",
            "hello [MASKED]",
            "\x1b[32;1m$ echo $CI_PROJECT_DIR $CI_CONCURRENT_ID\x1b[0;m",
            "/builds/g/p 2",
            "\x1b[0K\x1b[36;1mRunning after_script\x1b[0;m\x1b[0;m",
            "\x1b[32;1mRunning after script...\x1b[0;m",
            "\x1b[32;1m$ echo $CI_JOB_STATUS\x1b[0;m",
            "success",
            "\x1b[0K\x1b[36;1mCleaning up project directory and file based variables\
             \x1b[0;m\x1b[0;m",
            "\x1b[32;1mJob succeeded\x1b[0;m",
        ]
    );
    assert_eq!(ran.output.matches("section_start").count(), 6);
    assert_eq!(ran.output.matches("section_end").count(), 6);
    let usage = ran.result.usage.unwrap();
    assert!(usage.wall_ms > 0 && usage.peak_mem_bytes.unwrap() > 0);
}

/// STAGE-36, STAGE-37
#[tokio::test]
async fn a_failing_script_ends_the_job_with_its_exit_code() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["exit 42"]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo $CI_JOB_STATUS", "exit 3"]),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, Some(FailureClass::Script));
    assert_eq!(ran.result.exit_code, Some(42));
    assert!(ran.has("failed"), "{}", ran.output);
    let ignored = "\x1b[0;33mWARNING: after_script failed, but job will continue unaffected: \
                   exit code 3\x1b[0;m";
    assert!(ran.has(ignored), "{}", ran.output);
    assert_eq!(
        ran.lines().last(),
        Some(&"\x1b[31;1mERROR: Job failed: exit code 42\x1b[0;m")
    );
}

/// STAGE-35
#[tokio::test]
async fn a_variable_of_400_kib_arrives_whole_and_hinders_nothing() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["printf %s \"$HUGE\" | wc -c", "wc -c < $HUGE_FILE"]);
    let huge = "x'y\n".repeat(100 << 10);
    add(&mut job, "variables", variable("HUGE", &huge));
    let mut file = variable("HUGE_FILE", &huge);
    file["file"] = json!(true);
    add(&mut job, "variables", file);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert_eq!(
        ran.lines().iter().filter(|line| **line == "409600").count(),
        2
    );
}

/// ART-02, ART-03, ART-13, ART-15
#[tokio::test]
async fn artifacts_go_out_and_come_into_a_later_job() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let artifact = |name: &str, paths: &[&str], when: &str| {
        json!({
            "name": name, "untracked": false, "paths": paths, "when": when,
            "artifact_type": "archive", "format": "zip"
        })
    };
    let mut job = spec(&[
        "mkdir out",
        "echo content > out/a",
        "ln -s a out/l",
        "chmod 700 out/a",
    ]);
    add(
        &mut job,
        "artifacts",
        artifact("of-$CI_JOB_STATUS", &["${HOME:+out}/"], "on_success"),
    );
    add(
        &mut job,
        "artifacts",
        artifact("none", &["nothing/*"], "always"),
    );
    add(
        &mut job,
        "artifacts",
        artifact("failed", &["out"], "on_failure"),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let states: Vec<_> = ran.result.artifacts.iter().map(|one| one.state).collect();
    let skipped = ArtifactState::Skipped;
    assert_eq!(states, [ArtifactState::Uploaded, skipped, skipped]);
    assert!(
        ran.has("out/: found 3 matching artifact files and directories\x1b[0;m "),
        "{}",
        ran.output
    );
    assert!(
        ran.has("\x1b[31;1mERROR: No files to upload                         \x1b[0;m "),
        "{}",
        ran.output
    );
    let mut later = spec(&["cat out/l", "[ -x out/a ] && echo executable"]);
    later["job"]["id"] = json!(8);
    add(
        &mut later,
        "dependencies",
        json!({
            "id": 7, "token": "token-of-job-7", "name": "build",
            "artifacts_file": { "filename": "of-success.zip", "size": 1 }
        }),
    );
    let ran = node.run(node.process(), later).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(
        ran.has("content") && ran.has("executable"),
        "{}",
        ran.output
    );
}

/// As gitlab-runner 19.4.0 lists and heeds them.
#[tokio::test]
async fn feature_flags_are_listed_and_heeded() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo one\necho two"]);
    for (flag, value) in [
        ("FF_SCRIPT_SECTIONS", "1"),
        ("FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY", "false"),
    ] {
        add(&mut job, "variables", variable(flag, value));
    }
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let listed = "\x1b[0K  feature flags: FF_SCRIPT_SECTIONS:true, \
                  FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY:false\x1b[0;m";
    assert!(ran.has(listed), "{}", ran.output);
    let section = ":section_script_step_0[hide_duration=true,collapsed=true]\r\x1b[0K\
                   \x1b[32;1m$ echo one\n";
    assert!(ran.output.contains(section), "{}", ran.output);
}

/// ART-12, ART-24
#[tokio::test]
async fn artifacts_that_do_not_arrive_fail_the_job() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo content > a"]);
    let artifact = json!({
        "name": "x", "untracked": false, "paths": ["a"], "when": "on_success",
        "artifact_type": "archive", "format": "zip"
    });
    add(&mut job, "artifacts", artifact);
    let mut context = node.context(node.process(), job, node.job_dir());
    context.artifacts = vk_driver::ArtifactsAt::GitLab;
    let ran = Started::new(context).end().await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::ExternalDependency),
        "{}",
        ran.output
    );
    assert_eq!(ran.result.artifacts[0].state, ArtifactState::Failed);
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("http://127.0.0.1:9"), "{message}");
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_an_external_dependency() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo not reached"]);
    job["variables"] = json!([variable("GIT_STRATEGY", "fetch")]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo not reached"]),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::ExternalDependency),
        "{}",
        ran.output
    );
    let message = ran.result.message.clone().unwrap();
    assert!(
        message.contains("git cannot fetch the repository"),
        "{message}"
    );
    assert!(!ran.output.contains("not reached"), "{}", ran.output);
}

/// STAGE-31
#[tokio::test]
async fn a_graceful_cancel_ends_the_script_and_runs_after_script() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo begun", "trap '' TERM; sleep 1000"]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo status $CI_JOB_STATUS"]),
    );
    let mut started = Started::new(node.context(node.process(), job, node.job_dir()));
    started.says(" 01O begun").await;
    let told = std::time::Instant::now();
    started
        .control
        .send(Control::Stop(Stop::Graceful))
        .await
        .unwrap();
    started.says("script canceled externally (UI, API)").await;
    let took = told.elapsed();
    assert!(took < std::time::Duration::from_secs(6), "it took {took:?}");
    let ran = started.end().await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::Canceled),
        "{}",
        ran.output
    );
    assert!(ran.has("status canceled"), "{}", ran.output);
}

/// STAGE-31
#[tokio::test]
async fn an_immediate_cancel_runs_nothing_more() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo begun", "sleep 1000"]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo status $CI_JOB_STATUS"]),
    );
    let mut started = Started::new(node.context(node.process(), job, node.job_dir()));
    started.says(" 01O begun").await;
    started
        .control
        .send(Control::Stop(Stop::Immediate))
        .await
        .unwrap();
    let ran = started.end().await;
    assert_eq!(ran.result.failure, Some(FailureClass::Canceled));
    assert!(!ran.output.contains("after_script"), "{}", ran.output);
    assert!(ran.output.contains("section_end"), "{}", ran.output);
    assert_eq!(
        ran.lines().last(),
        Some(&"\x1b[31;1mERROR: Job failed: canceled\x1b[0;m")
    );
}

/// STAGE-32
#[tokio::test]
async fn the_jobs_timeout_ends_it_and_the_scripts_only_the_script() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["sleep 1000"]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo status $CI_JOB_STATUS"]),
    );
    let mut scripts = job.clone();
    add(
        &mut scripts,
        "variables",
        variable("RUNNER_SCRIPT_TIMEOUT", "1s"),
    );
    let ran = node.run(node.process(), scripts).await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::Timeout),
        "{}",
        ran.output
    );
    assert!(ran.has("status timedout"), "{}", ran.output);
    job["timeout_secs"] = json!(4);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, Some(FailureClass::Timeout));
    assert!(!ran.output.contains("status timedout"), "{}", ran.output);
    assert!(
        ran.output.contains("RUNNER_SCRIPT_TIMEOUT"),
        "{}",
        ran.output
    );
}

#[tokio::test]
async fn what_this_node_cannot_do_is_a_configuration_error() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut served = spec(&["echo not reached"]);
    add(&mut served, "services", json!({ "name": "postgres:16" }));
    let of_image = |name: &str| {
        let mut job = spec(&["echo not reached"]);
        job["image"] = json!({ "name": name });
        job
    };
    for (job, named) in [
        (served, "postgres:16"),
        (of_image("dockerfile:Dockerfile"), "builds no images"),
        (of_image("compose:app"), "builds no images"),
        (of_image("registry.vk/tool"), "its own registry's host"),
    ] {
        let ran = node.run(node.process(), job).await;
        assert_eq!(
            ran.result.failure,
            Some(FailureClass::Configuration),
            "{}",
            ran.output
        );
        let message = ran.result.message.clone().unwrap();
        assert!(message.contains(named), "{message}");
        assert_eq!(ran.stages(), ["prepare_executor"]);
    }
}

#[tokio::test]
async fn caches_that_are_not_kept_are_named() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["true"]);
    let cache = json!({
        "key": "deps-main", "untracked": false, "paths": ["deps"], "policy": "pull-push",
        "when": "on_success"
    });
    add(&mut job, "caches", cache);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let named = ran.output.matches("deps-main").count();
    assert_eq!(named, 2, "{}", ran.output);
}

/// FAIL-33
#[tokio::test]
async fn an_image_that_is_not_there_is_named() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["true"]);
    job["image"]["name"] = json!("no-such:1");
    let ran = node.run(node.process(), job).await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::ImagePull),
        "{}",
        ran.output
    );
    assert!(
        ran.result
            .message
            .unwrap()
            .contains("no such image: no-such:1")
    );
}

/// ADM-34, DISP-62
#[tokio::test]
async fn a_job_waits_for_its_admission_and_ends_where_it_is_denied() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let context = node.context(node.process(), spec(&["echo not reached"]), node.job_dir());
    let mut started = Started::waiting(context);
    started.says("Waiting for room on the node").await;
    let denied = Control::Deny {
        short: "memory".to_owned(),
    };
    started.control.send(denied).await.unwrap();
    let ran = started.end().await;
    assert_eq!(ran.result.failure, Some(FailureClass::System));
    assert!(
        ran.result
            .message
            .clone()
            .unwrap()
            .contains("memory is short")
    );
    let usage = ran.result.usage.unwrap();
    assert_eq!((usage.cpus, usage.mem_mib), (None, None));
    assert_eq!((usage.cpu_ms, usage.peak_mem_bytes), (None, None));
}

/// FAIL-34
#[tokio::test]
async fn a_job_whose_process_died_ends_interrupted_and_never_runs_twice() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let dir = node.job_dir();
    let mark = "{\"record\":\"stage_started\",\"stage\":\"step_script\",\"attempt\":1}\n";
    std::fs::write(dir.join("stages.jsonl"), mark).unwrap();
    std::fs::write(dir.join("output"), "what it said\n").unwrap();
    let context = node.context(node.process(), spec(&["echo not reached"]), dir.clone());
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, Some(FailureClass::Interrupted));
    assert!(ran.output.starts_with("what it said\n"), "{}", ran.output);
    assert!(!ran.output.contains("not reached"));
    let again = node.context(node.process(), spec(&["echo not reached"]), dir.clone());
    let output = read(&dir.join("output"));
    let ran_again = Started::new(again).end().await;
    assert_eq!(ran_again.result, ran.result);
    assert_eq!(read(&dir.join("output")), output);
}

/// STAGE-06, STAGE-07, SPEC-22
#[tokio::test]
async fn the_sources_are_in_the_process_as_the_repository_has_them() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let served = served();
    let mut job = spec_of(&served, &SOURCES_SCRIPT);
    let hook = |name: &str, line: &str| json!({ "name": name, "script": [line] });
    add(
        &mut job,
        "hooks",
        hook("pre_get_sources_script", "echo before"),
    );
    add(
        &mut job,
        "hooks",
        hook("post_get_sources_script", "cat sub/file"),
    );
    let ran = node.run(node.process(), job).await;
    check_sources(&ran, &served);
    assert!(ran.has("before"), "{}", ran.output);
    let names = ran
        .lines()
        .iter()
        .filter(|line| **line == "of the repository")
        .count();
    assert_eq!(names, 3, "{}", ran.output);
}

#[tokio::test]
async fn an_entrypoint_runs_the_shell_and_sees_the_variables() {
    let Some(node) = Node::new("process") else {
        return;
    };
    let mut job = spec(&["echo in the script $FROM_ENTRY $CI_PROJECT_NAME"]);
    add(&mut job, "variables", variable("CI_PROJECT_NAME", "p"));
    let entry = "echo entry $CI_PROJECT_NAME; export FROM_ENTRY=yes; exec \"$@\"";
    job["image"]["entrypoint"] = json!(["/bin/sh", "-c", entry, "entry"]);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(
        ran.has("entry p") && ran.has("in the script yes p"),
        "{}",
        ran.output
    );
}
