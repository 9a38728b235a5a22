//! `vk image …` as people and scripts call it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> PathBuf {
    match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    }
}

fn image(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(vk());
    command
        .arg("image")
        .args(arguments)
        .arg("--state-dir")
        .arg(state);
    command
}

fn run(state: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    told(&image(state, arguments).output().unwrap())
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A tar of one empty file.
fn tar() -> Vec<u8> {
    let mut header = vec![0u8; 512];
    header[..4].copy_from_slice(b"file");
    header[100..107].copy_from_slice(b"0000644");
    for field in [108, 116] {
        header[field..field + 7].copy_from_slice(b"0000000");
    }
    for field in [124, 136] {
        header[field..field + 11].copy_from_slice(b"00000000000");
    }
    header[148..156].fill(b' ');
    header[156] = b'0';
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.resize(512 + 1024, 0);
    header
}

#[test]
fn an_image_is_imported_listed_inspected_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("root.tar");
    std::fs::write(&file, tar()).unwrap();
    let (code, digest, _) = run(dir.path(), &["import", file.to_str().unwrap(), "tools:1"]);
    assert_eq!(code, Some(0));
    assert!(
        digest.starts_with("sha256:") && digest.len() == 72,
        "only the digest is printed: {digest}"
    );
    let (code, listed, _) = run(dir.path(), &["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 2), "{listed}");
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["NAME", "DIGEST", "SIZE", "IN-USE"]
    );
    assert_eq!(
        lines[1].split_whitespace().collect::<Vec<_>>(),
        ["tools:1", &digest[7..19], "8KiB", "no"]
    );
    let (_, json, _) = run(dir.path(), &["list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["record"]["digest"], digest.trim());
    let (_, one, _) = run(dir.path(), &["inspect", "tools:1"]);
    let one: serde_json::Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["names"][0], "docker.io/library/tools:1");
    assert!(Path::new(one["disk"].as_str().unwrap()).is_file());
    assert_eq!(
        run(dir.path(), &["rm", "tools:1"]),
        (Some(0), String::new(), String::new())
    );
    assert_eq!(run(dir.path(), &["list"]).1.lines().count(), 1);
}

#[test]
fn standard_input_is_imported_as_a_dash() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = image(dir.path(), &["import", "-", "piped"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&tar()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(run(dir.path(), &["list"]).1.contains("piped:latest"));
}

#[test]
fn errors_go_to_stderr_with_what_to_do_and_end_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "no archive").unwrap();
    for (arguments, says) in [
        (&["inspect", "absent:1"][..], "vk image pull absent:1"),
        (&["rm", "absent:1"], "no such image"),
        (&["import", text.to_str().unwrap(), "a"], "no tar archive"),
        (&["import", dir.path().to_str().unwrap(), "a"], "tar -C DIR"),
        (
            &["import", text.to_str().unwrap(), "Bad Name"],
            "bad image name",
        ),
        (&["pull", "a b"], "bad image name"),
        (&["pull", "--policy", "never", "absent"], "no such image"),
    ] {
        let (code, stdout, stderr) = run(dir.path(), arguments);
        assert_eq!(
            (code, stdout.as_str()),
            (Some(1), ""),
            "{arguments:?}: {stderr}"
        );
        assert!(
            stderr.starts_with("vk: ") && stderr.contains(says),
            "{arguments:?}: {stderr}"
        );
    }
    assert_eq!(
        run(dir.path(), &["pull"]).0,
        Some(2),
        "a wrong call ends with 2"
    );
    let (code, _, stderr) = run(&text, &["list"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("--state-dir"), "{stderr}");
}
