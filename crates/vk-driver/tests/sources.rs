//! Jobs with repositories, in a guest that is a process: hooks, flags, submodules, LFS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

mod support;

use serde_json::{Value, json};
use support::{Node, Served, Started, add, git, read, served, spec_of, variable};
use vk_hub_proto::job::FailureClass;

fn hook(job: &mut Value, name: &str, script: &[&str]) {
    add(job, "hooks", json!({ "name": name, "script": script }));
}

/// SPEC-58
#[tokio::test]
async fn hooks_run_in_the_guest_before_and_after_the_checkout() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let mut job = spec_of(&served, &["cat $CI_PROJECT_DIR/after"]);
    let before = [
        "test ! -e $CI_PROJECT_DIR/run.sh && echo no tree yet",
        "echo FROM_HOOK=told >> $GITLAB_ENV",
    ];
    hook(&mut job, "pre_get_sources_script", &before);
    let after = ["./run.sh", "echo $FROM_HOOK > after"];
    hook(&mut job, "post_get_sources_script", &after);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let lines = ran.lines();
    let place = |line: &str| {
        let found = lines.iter().position(|one| one.contains(line));
        found.unwrap_or_else(|| panic!("no {line:?} in {}", ran.output))
    };
    let order = [
        place("no tree yet"),
        place("Fetching changes with git depth set to 20..."),
        place("Checking out"),
        place("the program ran"),
    ];
    assert!(order.is_sorted(), "{}", ran.output);
    assert!(ran.has("told"), "{}", ran.output);
}

#[tokio::test]
async fn a_hook_that_fails_fails_the_job_and_another_attempt_runs_it_again() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let mut job = spec_of(&served, &["./run.sh"]);
    add(&mut job, "variables", variable("GET_SOURCES_ATTEMPTS", "2"));
    let script = ["test -e /tmp/again || { mkdir -p /tmp; touch /tmp/again; exit 7; }"];
    hook(&mut job, "pre_get_sources_script", &script);
    let ran = node.run(node.process(), job.clone()).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has("the program ran"), "{}", ran.output);
    job["variables"] = json!([variable("GIT_STRATEGY", "fetch")]);
    let ran = node.run(node.process(), job).await;
    assert_ne!(ran.result.failure, None);
    assert!(!ran.output.contains("the program ran"), "{}", ran.output);
}

/// STAGE-11
#[tokio::test]
async fn what_a_hook_left_in_the_project_is_cleaned_unless_the_job_says_not_to() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    for (flags, strategy, kept) in [
        ("", "fetch", false),
        ("-ffdx", "fetch", false),
        ("none", "fetch", true),
        ("none", "clone", false),
    ] {
        let mut job = spec_of(
            &served,
            &["test -e left && echo kept || echo cleaned", "./run.sh"],
        );
        job["variables"] = json!([
            variable("GIT_STRATEGY", strategy),
            variable("GIT_CLEAN_FLAGS", flags),
        ]);
        let script = ["mkdir -p $CI_PROJECT_DIR && touch $CI_PROJECT_DIR/left"];
        hook(&mut job, "pre_get_sources_script", &script);
        let ran = node.run(node.process(), job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        let expected = if kept { "kept" } else { "cleaned" };
        assert!(ran.has(expected), "{flags} {strategy}: {}", ran.output);
    }
}

/// STAGE-11
#[tokio::test]
async fn flags_that_are_none_of_gits_fail_the_job() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let mut job = spec_of(&served, &["echo not reached"]);
    add(
        &mut job,
        "variables",
        variable("GIT_CLEAN_FLAGS", "-ffdx --bogus"),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::ExternalDependency),
        "{}",
        ran.output
    );
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("bogus"), "{message}");
    let mut job = spec_of(&served, &["echo not reached"]);
    let flags = variable("GIT_FETCH_EXTRA_FLAGS", "--upload-pack=id");
    add(&mut job, "variables", flags);
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, Some(FailureClass::Configuration));
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("--upload-pack=id"), "{message}");
}

/// As gitlab-runner has it where `custom_build_dir` is on.
#[tokio::test]
async fn a_job_says_where_its_project_lies() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let script = [
        "pwd",
        "echo $CI_PROJECT_DIR $RUNNER_TEMP_PROJECT_DIR",
        "./run.sh",
    ];
    let mut job = spec_of(&served, &script);
    let path = variable("GIT_CLONE_PATH", "$CI_BUILDS_DIR/go/src/$CI_JOB_NAME_SLUG");
    add(&mut job, "variables", path);
    add(&mut job, "variables", variable("CI_JOB_NAME_SLUG", "hello"));
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let dir = "/builds/go/src/hello";
    for line in [dir, &format!("{dir} {dir}.tmp"), "the program ran"] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
    let mut job = spec_of(&served, &["echo not reached"]);
    add(
        &mut job,
        "variables",
        variable("GIT_CLONE_PATH", "/builds/../outside"),
    );
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, Some(FailureClass::Configuration));
    let message = ran.result.message.clone().unwrap();
    let expected = "the GIT_CLONE_PATH=\"/builds/../outside\" has to be within \"/builds\"";
    assert!(message.contains(expected), "{message}");
}

/// A commit of what is served that has it as its own submodule; its first commit, that is.
fn with_submodule(served: &Served) -> String {
    let work = served.dir.path().join("work");
    let modules = "[submodule \"lib\"]\n\tpath = deps/lib\n\turl = ../p.git\n";
    std::fs::write(work.join(".gitmodules"), modules).unwrap();
    git(&work, &["add", ".gitmodules"]);
    let info = format!("160000,{},deps/lib", served.sha);
    git(&work, &["update-index", "--add", "--cacheinfo", &info]);
    git(&work, &["commit", "-q", "-m", "two"]);
    git(&work, &["push", "-q", "../g/p.git", "HEAD:refs/heads/main"]);
    git(&work, &["rev-parse", "HEAD"])
}

/// STAGE-09
#[tokio::test]
async fn submodules_are_in_the_guest_and_said_as_git_says_them() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let sha = with_submodule(&served);
    let script = [
        "cd deps/lib && ./run.sh && cat .git",
        "grep -r the-token /builds || echo no token",
    ];
    let mut job = spec_of(&served, &script);
    job["sources"]["sha"] = json!(sha);
    add(
        &mut job,
        "variables",
        variable("GIT_SUBMODULE_STRATEGY", "recursive"),
    );
    let ran = node.run(node.process(), job.clone()).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    for line in [
        "\x1b[32;1mUpdating/initializing submodules recursively with git depth set to 20...\x1b[0;m",
        &format!(
            "Submodule 'lib' ({}) registered for path 'deps/lib'",
            served.url
        ),
        &format!("Submodule path 'deps/lib': checked out '{}'", served.sha),
        "\x1b[32;1mUpdated submodules\x1b[0;m",
        "the program ran",
        "gitdir: ../../.git/modules/lib",
        "no token",
    ] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
    job["variables"] = json!([variable("GIT_STRATEGY", "fetch")]);
    job["steps"][0]["script"] = json!(["ls deps/lib | wc -l"]);
    let ran = node.run(node.process(), job).await;
    assert!(ran.has("0"), "{}", ran.output);
    assert!(ran.has("\x1b[32;1mSkipping Git submodules setup\x1b[0;m"));
}

/// As gitlab-runner's `git lfs pull` leaves them.
#[tokio::test]
async fn files_of_lfs_are_in_the_guest_unless_the_job_wants_pointers() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let content = "behind a pointer\n";
    let oid = vk_oci::Digest::of(content.as_bytes()).hex();
    let size = content.len();
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n");
    let work = served.dir.path().join("work");
    std::fs::write(work.join(".gitattributes"), "*.bin filter=lfs -text\n").unwrap();
    std::fs::write(work.join("big.bin"), pointer).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "large"]);
    git(&work, &["push", "-q", "../g/p.git", "HEAD:refs/heads/main"]);
    let objects = served.dir.path().join("g/p.git/lfs/objects");
    std::fs::create_dir_all(&objects).unwrap();
    std::fs::write(objects.join(&oid), content).unwrap();
    let script = ["cat big.bin", "grep -r the-token /builds || echo no token"];
    let mut job = spec_of(&served, &script);
    job["sources"]["sha"] = json!(git(&work, &["rev-parse", "HEAD"]));
    let ran = node.run(node.process(), job.clone()).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    let said = format!("Downloading LFS objects: 100% (1/1), {size} B");
    for line in ["behind a pointer", &said, "no token"] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
    add(&mut job, "variables", variable("GIT_LFS_SKIP_SMUDGE", "1"));
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has(&format!("oid sha256:{oid}")), "{}", ran.output);
}

/// STAGE-10
#[tokio::test]
async fn a_job_that_wants_no_checkout_has_the_repository_alone() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let sha = with_submodule(&served);
    let script = [
        "echo all of it: $(ls -A)",
        "cat .git/HEAD .git/refs/remotes/origin/main",
    ];
    let mut job = spec_of(&served, &script);
    job["sources"]["sha"] = json!(sha);
    for (name, value) in [
        ("GIT_CHECKOUT", "false"),
        ("GIT_SUBMODULE_STRATEGY", "normal"),
    ] {
        add(&mut job, "variables", variable(name, value));
    }
    let ran = node.run(node.process(), job.clone()).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    for line in [
        "\x1b[32;1mSkipping Git checkout\x1b[0;m",
        "all of it: .git",
        // Nothing was ever checked out.
        "ref: refs/heads/none",
        &sha,
    ] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
    assert!(!ran.output.contains("Checking out"), "{}", ran.output);
    assert!(!ran.output.contains("Submodule path"), "{}", ran.output);
    job["variables"][1] = variable("GIT_CHECKOUT", "true");
    let ran = node.run(node.process(), job).await;
    assert!(ran.output.contains("Checking out"), "{}", ran.output);
    assert!(ran.output.contains("Submodule path"), "{}", ran.output);
}

/// Neither runs hooks, for both are around a checkout.
#[tokio::test]
async fn strategies_without_a_repository_leave_an_empty_directory_and_run_no_hooks() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let script = ["pwd", "echo $CI_PROJECT_DIR in $(ls -A | wc -l)"];
    let empty = "Skipping Git repository setup and creating an empty build directory";
    for (strategy, dir, said) in [
        ("none", "/builds/g/p", "Skipping Git repository setup"),
        ("empty", "/builds/g/p-empty", empty),
    ] {
        let mut job = spec_of(&served, &script);
        job["variables"] = json!([variable("GIT_STRATEGY", strategy)]);
        hook(&mut job, "pre_get_sources_script", &["echo a hook ran"]);
        hook(&mut job, "post_get_sources_script", &["echo a hook ran"]);
        let ran = node.run(node.process(), job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        for line in [
            &format!("\x1b[32;1m{said}\x1b[0;m"),
            dir,
            &format!("{dir} in 0"),
        ] {
            assert!(ran.has(line), "no {line:?} in {}", ran.output);
        }
        assert!(!ran.has("a hook ran"), "{}", ran.output);
    }
}

/// STAGE-08
#[tokio::test]
async fn a_jobs_depth_is_said_and_0_is_all_of_the_history() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let sha = with_submodule(&served);
    for (depth, flags, said, shallow) in [
        (0, "", "Fetching changes...", false),
        (1, "", "Fetching changes with git depth set to 1...", true),
        (0, "--depth 1", "Fetching changes...", true),
        (
            0,
            "--shallow-since=2001-01-01",
            "Fetching changes...",
            false,
        ),
    ] {
        let script = ["test -e .git/shallow && echo cut short || echo all of it"];
        let mut job = spec_of(&served, &script);
        job["sources"]["sha"] = json!(sha);
        job["sources"]["depth"] = json!(depth);
        add(
            &mut job,
            "variables",
            variable("GIT_FETCH_EXTRA_FLAGS", flags),
        );
        let ran = node.run(node.process(), job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        let said = format!("\x1b[32;1m{said}\x1b[0;m");
        let found = if shallow { "cut short" } else { "all of it" };
        assert!(
            ran.has(&said) && ran.has(found),
            "{depth} {flags}: {}",
            ran.output
        );
    }
}

/// STAGE-33
#[tokio::test]
async fn a_fetch_that_fails_is_tried_again_as_often_as_the_job_says() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let bare = served.dir.path().join("g/p.git");
    let away = served.dir.path().join("away");
    std::fs::rename(&bare, &away).unwrap();
    let mut job = spec_of(&served, &["./run.sh"]);
    for (name, value) in [
        ("GET_SOURCES_ATTEMPTS", "5"),
        ("FF_USE_EXPONENTIAL_BACKOFF_STAGE_RETRY", "false"),
    ] {
        add(&mut job, "variables", variable(name, value));
    }
    let dir = node.job_dir();
    let output = dir.join("output");
    let mut started = Started::new(node.context(node.process(), job, dir));
    // The section's begin and end.
    let failed_once = |_: &vk_driver::JobState| read(&output).matches(":get_sources").count() >= 2;
    let failed = started.state.wait_for(failed_once);
    let failed = tokio::time::timeout(std::time::Duration::from_secs(120), failed).await;
    drop(failed.expect("it fails in time").unwrap());
    std::fs::rename(&away, &bare).unwrap();
    let ran = started.end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has("the program ran"), "{}", ran.output);
    assert!(
        ran.output.contains("WARNING: Retrying..."),
        "{}",
        ran.output
    );
    // Between the first and the second, as gitlab-runner has it.
    let cleared = ran.stages();
    let cleared = cleared.iter().filter(|stage| *stage == "clear_worktree");
    assert_eq!(cleared.count(), 1, "{}", ran.output);
}

#[tokio::test]
async fn two_jobs_of_a_project_share_its_mirror_at_the_same_time() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let job = || {
        Started::new(node.context(
            node.process(),
            spec_of(&served, &["./run.sh"]),
            node.job_dir(),
        ))
    };
    let (one, other) = (job(), job());
    let (one, other) = tokio::join!(one.end(), other.end());
    for ran in [one, other] {
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        assert!(ran.has("the program ran"), "{}", ran.output);
    }
}

/// A pack of a few kilobytes that would be more than the job's disk: it is the repository's, and
/// nothing of it is written.
#[tokio::test]
async fn a_repository_of_more_bytes_than_the_jobs_disk_is_refused() {
    let Some(node) = Node::new("sources") else {
        return;
    };
    let served = served();
    let work = served.dir.path().join("work");
    for n in 0..17 {
        std::fs::write(work.join(format!("zeros-{n}")), vec![0; 1 << 20]).unwrap();
    }
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "large"]);
    git(&work, &["push", "-q", "../g/p.git", "HEAD:refs/heads/main"]);
    let mut job = spec_of(&served, &["echo not reached"]);
    job["sources"]["sha"] = json!(git(&work, &["rev-parse", "HEAD"]));
    let mut context = node.context(node.process(), job, node.job_dir());
    context.plan.disk_bytes = 16 << 20;
    let ran = Started::new(context).end().await;
    let class = Some(FailureClass::ExternalDependency);
    assert_eq!(ran.result.failure, class, "{}", ran.output);
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains("more than 16777216 bytes"), "{message}");
    assert!(!ran.stages().contains(&"step_script".to_owned()));
}
