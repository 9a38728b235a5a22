//! Whose state directories commands touch, and which they make.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program: as staged for a whole test run, else as built beside this test.
fn vk() -> PathBuf {
    match std::env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("bin/vk"),
        None => PathBuf::from(env!("CARGO_BIN_EXE_vk")),
    }
}

fn run(arguments: &[&str], state: &Path, home: &Path) -> (Option<i32>, String) {
    let config = home.join("vk.toml");
    std::fs::write(&config, "").unwrap();
    let ran = Command::new(vk())
        .args(arguments)
        .arg("--state-dir")
        .arg(state)
        .env("VK_CONFIG", config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    (ran.status.code(), said)
}

#[test]
fn commands_that_look_make_no_state_and_say_what_does() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    for command in ["status", "jobs", "drain", "undrain"] {
        let (code, said) = run(&["node", command], &state, dir.path());
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.contains("vk node join"), "{command}: {said}");
        assert!(!state.exists(), "{command}");
    }
    // As an operator makes it before a join: nothing comes into it.
    std::fs::create_dir(&state).unwrap();
    let (code, said) = run(&["node", "status"], &state, dir.path());
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn a_state_directory_of_another_user_is_refused_with_whom_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let of_root = PathBuf::from("/usr");
    let own = dir.path().join("state");
    std::fs::create_dir(&own).unwrap();
    let state = match std::os::unix::fs::chown(&own, Some(12_345), Some(12_345)) {
        Ok(()) => own,
        // Whoever may give nothing away is not root.
        Err(_) => of_root,
    };
    let before = std::fs::read_dir(&state).unwrap().count();
    let file = dir.path().join("image.tar");
    std::fs::write(&file, [0; 1024]).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["node", "run"][..],
        &["image", "import", file, "a"],
        &["image", "pull", "example.invalid/a"],
        &["image", "list"],
    ] {
        let (code, said) = run(arguments, &state, dir.path());
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        let remedy = format!("sudo -u vk vk {}", arguments[0]);
        assert!(said.contains(&remedy), "{arguments:?}: {said}");
        let after = std::fs::read_dir(&state).unwrap().count();
        assert_eq!(before, after, "{arguments:?}");
    }
}
