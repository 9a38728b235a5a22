//! `vk job run` as a program: what it says, what it leaves, how it ends.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> Command {
    Command::new(match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    })
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A job of busybox without a repository.
fn spec(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("spec.json");
    let text = format!(
        r#"{{
        "kind": "gitlab_ci", "server_url": "http://127.0.0.1:9",
        "job": {{ "id": 7, "name": "hello", "stage": "test", "pipeline_id": 1, "project_id": 3,
            "project_name": "p", "project_path": "g/p", "namespace_id": 1, "root_namespace_id": 1,
            "user_id": 1, "runner_id": 0 }},
        "token": "token-of-the-job", "timeout_secs": 300,
        "sources": {{ "repo_url": "http://127.0.0.1:9/g/p.git", "object_format": "sha1",
            "ref": "main", "ref_type": "branch", "before_sha": "", "depth": 0,
            "sha": "1111111111111111111111111111111111111111", "allow_fetch": true }},
        "image": {{ "name": "busybox:latest" }},
        "variables": [{{ "key": "GIT_STRATEGY", "value": "none", "public": true, "file": false,
            "masked": false, "raw": false }}],
        "steps": [{{ "name": "script", "script": ["{script}"], "timeout_secs": 0,
            "when": "on_success", "allow_failure": false }}],
        "trace": {{ "sections": true, "limit_bytes": 0 }} }}"#
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_cannot_be_begun_ends_with_2_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let run = |spec: &Path| {
        let mut command = vk();
        command
            .args(["job", "run"])
            .arg(spec)
            .arg("--out")
            .arg(&out);
        command
            .arg("--state-dir")
            .arg(dir.path().join("state"))
            .arg("--bundle")
            .arg("/nowhere");
        command.output().unwrap()
    };
    let missing = run(&dir.path().join("missing.json"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        said(&missing).contains("cannot read the job spec"),
        "{}",
        said(&missing)
    );
    let broken = dir.path().join("broken.json");
    std::fs::write(&broken, "{\"kind\":\"other\"}").unwrap();
    let ran = run(&broken);
    assert_eq!(ran.status.code(), Some(2));
    assert!(said(&ran).contains("is no job spec"), "{}", said(&ran));
    let large = dir.path().join("large.json");
    std::fs::write(&large, vec![b' '; (512 << 10) + 1]).unwrap();
    let ran = run(&large);
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        said(&ran).contains("more than 524288 bytes"),
        "{}",
        said(&ran)
    );
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("result.json"), "{}").unwrap();
    let ran = run(&spec(dir.path(), "true"));
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        said(&ran).contains("another job's result.json"),
        "{}",
        said(&ran)
    );
}

#[test]
fn sizes_that_no_vm_has_are_bad_arguments() {
    let dir = tempfile::tempdir().unwrap();
    for (option, value) in [("--memory", "1"), ("--cpus", "0"), ("--cpus", "256")] {
        let mut command = vk();
        command.args(["job", "run", option, value, "--out"]);
        let ran = command
            .arg(dir.path().join("out"))
            .arg(spec(dir.path(), "true"));
        let ran = ran.output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{option}");
        assert!(said(&ran).contains(option), "{}", said(&ran));
    }
}

#[test]
fn a_job_that_runs_leaves_its_trace_and_its_result() {
    let Some(root) = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from) else {
        println!("job_command needs the built programs: VK_TEST_ROOT is not set");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let program = root.join("bin-process/vk");
    let import = Command::new(&program)
        .args(["image", "--state-dir"])
        .arg(&state)
        .arg("import")
        .arg(root.join("images/busybox.tar"))
        .arg("busybox:latest")
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", said(&import));
    for (number, (script, code, says)) in [
        ("echo said this", 0, "said this"),
        ("exit 7", 1, "Job failed: exit code 7"),
    ]
    .into_iter()
    .enumerate()
    {
        let out = dir.path().join(format!("out-{number}"));
        let ran = Command::new(&program)
            .args(["job", "run", "--follow"])
            .arg(spec(dir.path(), script))
            .arg("--out")
            .arg(&out)
            .arg("--state-dir")
            .arg(&state)
            .arg("--process-vmm")
            .arg(root.join("bin/vk-agent"))
            .env("VK_ALLOW_PROCESS_VMM", "for-tests")
            .output()
            .unwrap();
        let output = std::fs::read(out.join("output")).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{}", said(&ran));
        assert_eq!(ran.stdout, output, "the trace was not shown as it is");
        assert!(String::from_utf8(output).unwrap().contains(says));
        assert!(out.join("result.json").exists());
    }
}
