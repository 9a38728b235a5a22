//! `vk job run` told to do what it cannot: no VM is started, and the reason is said.

use crate::job::{Host, spec, test_root};

/// What `vk` exits with where the job was not begun.
const NOT_BEGUN: Option<i32> = Some(2);

#[test]
fn a_spec_that_is_none_or_too_long_is_not_begun() {
    let Some(root) = test_root("bad specs") else {
        return;
    };
    let host = Host::new(root);
    let long = spec("busybox", &"x".repeat(600 << 10), "none").to_string();
    for (text, says) in [("{ no JSON", "spec"), (long.as_str(), "524288 bytes")] {
        let (ran, output) = host.attempt(text, &["--accelerator", "tcg"]);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), NOT_BEGUN, "{said}");
        assert!(said.contains(says), "no {says:?} in {said}");
        assert_eq!(output, "");
    }
}

#[test]
fn an_image_that_is_nowhere_fails_the_job_and_is_named() {
    let Some(root) = test_root("no such image") else {
        return;
    };
    let host = Host::new(root);
    let spec = spec("nowhere/to-be-found:1", "true", "none").to_string();
    let never = ["--accelerator", "tcg", "--pull-policy", "never"];
    let (ran, output) = host.attempt(&spec, &never);
    assert!(
        !ran.status.success() && ran.status.code() != NOT_BEGUN,
        "{output}"
    );
    assert!(output.contains("nowhere/to-be-found:1"), "{output}");
    assert!(!output.contains("Booted a VM"), "{output}");
    assert!(output.contains("ERROR: Job failed"), "{output}");
}
