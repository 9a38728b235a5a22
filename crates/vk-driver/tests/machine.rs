//! Whole jobs in real microVMs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]

#[path = "support/image.rs"]
mod image;
mod support;

use serde_json::json;
use support::{
    Node, SECRET, SOURCES_SCRIPT, Started, add, check_sources, git, served, spec, spec_of, step,
};
use vk_driver::{Control, Stop};
use vk_hub_proto::job::{ArtifactState, FailureClass};

/// STAGE-07, STAGE-12, STAGE-24, ART-02
#[tokio::test]
async fn a_job_runs_in_a_microvm_and_leaves_its_artifacts() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let mut job = spec(&[
        "echo hello $SECRET",
        "uname -r > kernel",
        "id -u",
        "hostname",
        "stat -c '%a %u %n' /builds /builds/g /builds/g/p",
    ]);
    let artifact = json!({
        "name": "k", "untracked": false, "paths": ["kernel"], "when": "always",
        "artifact_type": "archive", "format": "raw"
    });
    add(&mut job, "artifacts", artifact);
    let ran = node.run(node.qemu().await, job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has("hello [MASKED]") && ran.has("0"), "{}", ran.output);
    assert!(
        ran.has("runner-vk-project-3-concurrent-2"),
        "{}",
        ran.output
    );
    // Without a repository there is no disk that brings these.
    for dir in ["/builds", "/builds/g", "/builds/g/p"] {
        assert!(ran.has(&format!("777 0 {dir}")), "{dir}\n{}", ran.output);
    }
    assert_eq!(ran.result.artifacts[0].state, ArtifactState::Uploaded);
    let kernel = std::fs::read_to_string(node.dir.path().join("artifacts/7/k")).unwrap();
    let booted = ran
        .output
        .lines()
        .find(|line| line.contains("Booted a VM"))
        .unwrap();
    assert!(booted.contains(kernel.trim()), "{booted} {kernel}");
    let usage = ran.result.usage.unwrap();
    assert!(usage.cpu_ms.unwrap() > 100 && usage.peak_mem_bytes.unwrap() > 64 << 20);
    assert_eq!((usage.cpus, usage.mem_mib), (Some(1), Some(256)));
}

/// STAGE-31, STAGE-35: while a job runs, and after it, nothing on the host shows its secret.
#[tokio::test]
async fn a_masked_value_is_nowhere_on_the_host_and_a_cancel_is_quick() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let mut job = spec(&["echo begun", "sleep 1000"]);
    add(
        &mut job,
        "steps",
        step("after_script", &["echo status $CI_JOB_STATUS"]),
    );
    let context = node.context(node.qemu().await, job, node.job_dir());
    let mut started = Started::new(context);
    started.says(" 01O begun").await;
    let needle = SECRET.as_bytes();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        for file in ["environ", "cmdline"] {
            // Processes come and go, and others' are not ours to read.
            let text = std::fs::read(entry.path().join(file)).unwrap_or_default();
            let found = text.windows(needle.len()).any(|part| part == needle);
            assert!(!found, "{} of {}", file, entry.path().display());
        }
    }
    let told = std::time::Instant::now();
    started
        .control
        .send(Control::Stop(Stop::Graceful))
        .await
        .unwrap();
    started.says("script canceled externally (UI, API)").await;
    let took = told.elapsed();
    assert!(
        took < std::time::Duration::from_secs(10),
        "it took {took:?}"
    );
    let ran = started.end().await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::Canceled),
        "{}",
        ran.output
    );
    assert!(ran.has("status canceled"), "{}", ran.output);
    let mut left = vec![node.dir.path().to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_none_or(|ending| ending != "erofs") {
            let text = std::fs::read(&path).unwrap();
            let found = text.windows(needle.len()).any(|part| part == needle);
            assert!(!found, "{}", path.display());
        }
    }
}

/// STAGE-06, STAGE-07, SPEC-22
#[tokio::test]
async fn the_sources_are_in_the_machine_as_the_repository_has_them() {
    let Some(node) = Node::new("machine") else {
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
    let ran = node.run(node.qemu().await, job).await;
    check_sources(&ran, &served);
    assert!(ran.has("before"), "{}", ran.output);
    let names = ran
        .lines()
        .iter()
        .filter(|line| **line == "of the repository")
        .count();
    assert_eq!(names, 3, "{}", ran.output);
}

/// STAGE-06: the second job's disk has what differs from the first one's, and the guest sees no more
/// of that than in a tree made anew.
#[tokio::test]
async fn the_next_job_of_a_project_has_its_own_tree_over_that_of_the_one_before() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let files = image::layer(&[("builds/of-the-image", "of the image\n")]);
    node.image("builds:1", &json!({}), &[node.busybox(), files]);
    let mut served = served();
    let script = [
        "cat /builds/of-the-image",
        "echo tree $(ls) end",
        "for file in $(ls); do test -f $file && echo $file: $(cat $file); done",
        "rm -r /builds/of-the-image run.sh && mkdir run.sh && touch run.sh/mine && echo changed",
    ];
    let qemu = node.qemu().await;
    let run = async |served: &support::Served| {
        let mut job = spec_of(served, &script);
        job["image"]["name"] = json!("builds:1");
        let ran = node.run(qemu.clone(), job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        assert!(ran.has("of the image"), "{}", ran.output);
        assert!(ran.has("changed"), "{}", ran.output);
        ran
    };
    let first = run(&served).await;
    assert!(first.has("tree link run.sh sub end"), "{}", first.output);
    let work = served.dir.path().join("work");
    std::fs::remove_dir_all(work.join("sub")).unwrap();
    std::fs::remove_file(work.join("link")).unwrap();
    std::fs::write(work.join("link"), "a file now\n").unwrap();
    std::fs::write(work.join("new"), "new\n").unwrap();
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-q", "-m", "two"]);
    git(&work, &["push", "-q", "../g/p.git", "main"]);
    served.sha = git(&work, &["rev-parse", "HEAD"]);
    let second = run(&served).await;
    for line in ["tree link new run.sh end", "link: a file now", "new: new"] {
        assert!(second.has(line), "no {line:?} in {}", second.output);
    }
    assert!(
        second.output.contains("run.sh: #!/bin/sh"),
        "{}",
        second.output
    );
    // And it is that way, not a tree made anew.
    let trees = node.dir.path().join("mirrors/trees");
    let bases = std::fs::read_dir(&trees).unwrap().filter_map(|entry| {
        let dir = entry.unwrap().path();
        std::fs::read_dir(dir).ok()
    });
    let names = bases.flatten().map(|entry| entry.unwrap().file_name());
    let count = names.filter(|name| name.to_string_lossy().starts_with("base-"));
    assert_eq!(count.count(), 1);
    let told = walk(&trees, "whole");
    assert!(
        told.iter().all(|text| text.trim_end().ends_with(" 1")),
        "{told:?}"
    );
}

/// Contents of the files of this name two levels below a directory.
fn walk(dir: &std::path::Path, name: &str) -> Vec<String> {
    let below = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    below
        .filter_map(|path| std::fs::read_to_string(path.join(name)).ok())
        .collect()
}

/// An image's user and directory: its scripts have that user's rights, and may change the project.
#[tokio::test]
async fn an_image_with_a_user_of_its_own_runs_scripts_as_that_user() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let passwd = "root:x:0:0::/root:/bin/sh\nbuild:x:1000:1001::/srv:/bin/sh\n";
    let group = "root:x:0:\nbuild:x:1001:\nextra:x:77:build\n";
    let files = image::layer(&[("etc/passwd", passwd), ("etc/group", group)]);
    let config = json!({ "User": "build", "WorkingDir": "/opt/of the image" });
    node.image("users:1", &config, &[node.busybox(), files]);
    let served = served();
    let mut job = spec_of(
        &served,
        &[
            "echo as $(id -u) $(id -g) $(id -G) home $HOME from $OLDPWD",
            "touch here && rm here && echo more >> sub/file && cat sub/file && rm -r sub",
            "cat \"$FILE\"",
            "touch /etc/x || echo /etc is not its own",
        ],
    );
    let file = json!({
        "key": "FILE", "value": "of the file variable", "public": true, "file": true,
        "masked": false, "raw": true
    });
    add(&mut job, "variables", file);
    job["image"]["name"] = json!("users:1");
    let ran = node.run(node.qemu().await, job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    for line in [
        "as 1000 1001 1001 77 home /srv from /opt/of the image",
        "more",
        "of the file variable",
        "/etc is not its own",
    ] {
        assert!(ran.output.contains(line), "no {line:?} in {}", ran.output);
    }
}

/// STAGE-31
#[tokio::test]
async fn a_cancel_while_the_vm_boots_ends_it_at_once_and_leaves_nothing() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let context = node.context(
        node.qemu().await,
        spec(&["echo not reached"]),
        node.job_dir(),
    );
    let mut started = Started::new(context);
    let boots = |state: &vk_driver::JobState| state.activity.as_deref() == Some("booting");
    started.state.wait_for(boots).await.unwrap();
    started
        .control
        .send(Control::Stop(Stop::Graceful))
        .await
        .unwrap();
    let ran = started.end().await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::Canceled),
        "{}",
        ran.output
    );
    assert_eq!(ran.stages(), ["prepare_executor"]);
    assert_eq!(
        ran.output.matches("section_end").count(),
        1,
        "{}",
        ran.output
    );
}

/// FAIL-32, DISP-62: what the guest's kernel killed is said in the trace, and a guest that its kernel
/// gave up in the result's message; of that one nothing was left to be read.
#[tokio::test]
async fn a_guest_that_runs_out_of_memory_is_said_to() {
    let Some(node) = Node::new("machine") else {
        return;
    };
    let mut job = spec(&["tail /dev/zero || echo killed with $?"]);
    let last = "echo 1 > /proc/sys/vm/panic_on_oom && echo now; tail /dev/zero";
    add(&mut job, "steps", step("more", &[last]));
    let ran = node.run(node.qemu().await, job).await;
    assert!(ran.has("killed with 137"), "{}", ran.output);
    let warning = "WARNING: the VM ran out of memory (256 MiB): its kernel killed 1 process(es)";
    assert!(ran.output.contains(warning), "{}", ran.output);
    assert!(ran.has("now"), "{}", ran.output);
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::System),
        "{}",
        ran.output
    );
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("ran out of memory"), "{message}");
    let usage = ran.result.usage.unwrap();
    assert_eq!((usage.cpu_ms, usage.peak_mem_bytes), (None, None));
    assert_eq!((usage.cpus, usage.mem_mib), (Some(1), Some(256)));
}
