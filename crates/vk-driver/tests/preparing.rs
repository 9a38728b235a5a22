//! How a job's guest comes to be: its starts, and as whom and where its scripts run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

#[path = "support/image.rs"]
mod image;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use image::layer;
use serde_json::{Value, json};
use support::{Node, Started, add, spec, variable};
use vk_hub_proto::job::{ArtifactState, FailureClass};
use vk_vm::{Accelerator, Machine, StartError, Starting, Vmm};

/// Starts VMs, but the first few.
#[derive(Debug)]
struct Failing {
    vmm: Arc<dyn Vmm>,
    failures: usize,
    with: fn() -> StartError,
    asked: AtomicUsize,
    /// Entries of the job's directory as each start found them.
    found: Mutex<Vec<Vec<String>>>,
}

impl Failing {
    fn new(vmm: Arc<dyn Vmm>, failures: usize, with: fn() -> StartError) -> Arc<Failing> {
        Arc::new(Failing {
            vmm,
            failures,
            with,
            asked: AtomicUsize::new(0),
            found: Mutex::default(),
        })
    }
}

impl Failing {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Vmm for Failing {
    fn name(&self) -> &'static str {
        self.vmm.name()
    }

    fn accelerator(&self) -> Accelerator {
        self.vmm.accelerator()
    }

    fn start(&self, machine: Machine) -> Starting<'_> {
        let work = std::fs::read_dir(machine.directory.parent().unwrap()).unwrap();
        let names = work.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let of_attempts = names.filter(|name| name.starts_with("vm-") || name.starts_with("scr"));
        self.found.lock().unwrap().push(of_attempts.collect());
        if self.asked.fetch_add(1, Ordering::Relaxed) < self.failures {
            std::fs::create_dir(&machine.directory).unwrap();
            let with = self.with;
            return Box::pin(async move { Err(with()) });
        }
        self.vmm.start(machine)
    }
}

fn too_slow() -> StartError {
    StartError::BootTimeout {
        limit: Duration::from_secs(90),
        console: "Kernel panic".to_owned(),
    }
}

fn not_installed() -> StartError {
    StartError::NoProgram {
        program: "qemu-system-x86_64".to_owned(),
        hint: "package qemu-system-x86",
    }
}

/// What may pass is tried again, three times in all and 3 s apart, as gitlab-runner does; what the
/// node lacks is not.
#[tokio::test]
async fn a_vm_that_does_not_start_is_tried_again_where_that_may_help() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let begin = |vmm: &Arc<Failing>| {
        let vmm = Arc::clone(vmm) as Arc<dyn Vmm>;
        Started::new(node.context(vmm, spec(&["echo it runs"]), node.job_dir()))
    };
    let once = Failing::new(node.process(), 1, too_slow);
    let always = Failing::new(node.process(), usize::MAX, too_slow);
    let lacking = Failing::new(node.process(), 1, not_installed);
    let jobs = [&once, &always, &lacking].map(begin);
    let [good, bad, at_once] = jobs;
    let (good, bad, at_once) = tokio::join!(good.end(), bad.end(), at_once.end());
    assert_eq!(good.result.failure, None, "{}", good.output);
    assert!(good.has("it runs"), "{}", good.output);
    assert_eq!(once.asked(), 2);
    let said = "\x1b[31;1mERROR: Preparation failed: no agent within 90 s";
    assert!(good.output.contains(said), "{}", good.output);
    assert!(
        good.output.contains("Will be retried in 3s ..."),
        "{}",
        good.output
    );
    assert_eq!(good.stages()[..2], ["prepare_executor", "prepare_executor"]);
    // The failed one's disk and directory are gone before the next.
    assert_eq!(*once.found.lock().unwrap(), [["scratch-1"], ["scratch-2"]]);
    for (ran, vmm, tries) in [(&bad, &always, 3), (&at_once, &lacking, 1)] {
        assert_eq!(
            ran.result.failure,
            Some(FailureClass::System),
            "{}",
            ran.output
        );
        assert_eq!(vmm.asked(), tries, "{}", ran.output);
        let retried = ran.output.matches("Will be retried").count();
        assert_eq!(retried + 1, tries, "{}", ran.output);
    }
    let message = at_once.result.message.clone().unwrap();
    assert!(message.contains("package qemu-system-x86"), "{message}");
}

/// A job's wish for a user, and who it is to be: by the home that `/etc/passwd` gives that user.
struct User {
    by_variable: Option<&'static str>,
    by_image_of_the_job: Option<&'static str>,
    home: Result<&'static str, &'static str>,
}

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nimage:x:0:0::/home/image:/bin/sh\n\
                      job:x:0:0::/home/job:/bin/sh\nvariable:x:0:0::/home/variable:/bin/sh\n";

/// The scripts' user is the job's `MICROVM_USER`, else its `image: docker: user`, else the image's.
#[tokio::test]
async fn scripts_run_as_the_user_that_the_job_or_its_image_names() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let passwd = layer(&[("etc/passwd", PASSWD), ("etc/group", "root:x:0:\n")]);
    let config = json!({ "User": "image", "WorkingDir": "/srv/of the image" });
    node.image("users:1", &config, &[node.busybox(), passwd]);
    let row = |by_variable, by_image_of_the_job, home| User {
        by_variable,
        by_image_of_the_job,
        home,
    };
    let rows = [
        row(None, None, Ok("/home/image")),
        row(None, Some("job"), Ok("/home/job")),
        row(None, Some("$NAMED"), Ok("/home/job")),
        row(None, Some("0:0"), Ok("/root")),
        row(Some("variable"), Some("job"), Ok("/home/variable")),
        row(Some("${NAMED}:root"), None, Ok("/home/job")),
        // An empty value is none.
        row(Some(""), Some("job"), Ok("/home/job")),
        row(Some("nobody-here"), None, Err("no user nobody-here")),
        row(None, Some("job:strangers"), Err("no group strangers")),
    ];
    for of in rows {
        let mut job = spec(&[
            "echo home $HOME",
            "echo from $OLDPWD",
            "touch $CI_PROJECT_DIR/x",
        ]);
        job["image"] = json!({ "name": "users:1" });
        if let Some(user) = of.by_image_of_the_job {
            job["image"]["user"] = json!(user);
        }
        if let Some(user) = of.by_variable {
            add(&mut job, "variables", variable("MICROVM_USER", user));
        }
        add(&mut job, "variables", variable("NAMED", "job"));
        let ran = node.run(node.process(), job).await;
        match of.home {
            Ok(home) => {
                assert_eq!(ran.result.failure, None, "{}", ran.output);
                assert!(ran.has(&format!("home {home}")), "{home}: {}", ran.output);
                assert!(ran.has("from /srv/of the image"), "{}", ran.output);
            }
            Err(why) => check_refused(&ran, why),
        }
    }
}

fn check_refused(ran: &support::Ran, why: &str) {
    let class = Some(FailureClass::Configuration);
    assert_eq!(ran.result.failure, class, "{}", ran.output);
    let message = ran.result.message.clone().unwrap();
    assert!(message.contains(why), "{message}");
    assert_eq!(ran.result.exit_code, None);
}

#[tokio::test]
async fn an_image_without_a_shell_is_named_as_the_mistake() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    // What only looks like one does not count.
    node.image(
        "bare:1",
        &Value::Null,
        &[layer(&[("bin/sh", "no program"), ("etc/x", "")])],
    );
    let mut job = spec(&["true"]);
    job["image"]["name"] = json!("bare:1");
    let ran = node.run(node.process(), job).await;
    check_refused(&ran, "shell not found");
}

/// SPEC-36: what the node adds is there as scripts use it, and of two of a name the last counts.
#[tokio::test]
async fn variables_of_the_node_are_there_and_of_two_of_a_name_the_last() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let mut job = spec(&[
        "echo image $CI_JOB_IMAGE twice $TWICE",
        "cat \"$CI_SERVER_TLS_CA_FILE\"",
        "env | grep -c ^TWICE=",
    ]);
    job["server_ca_pem"] = json!("the authority's certificate\n");
    for value in ["first", "second"] {
        add(&mut job, "variables", variable("TWICE", value));
    }
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    for line in [
        "image busybox:latest twice second",
        "the authority's certificate",
        "1",
    ] {
        assert!(ran.has(line), "no {line:?} in {}", ran.output);
    }
}

/// A few bytes that name a large variable thousands of times would fill the host.
#[tokio::test]
async fn variables_that_grow_without_end_in_each_other_are_named_as_the_mistake() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let mut job = spec(&["true"]);
    add(
        &mut job,
        "variables",
        variable("LARGE", &"x".repeat(100_000)),
    );
    add(
        &mut job,
        "variables",
        variable("MANY", &"$LARGE".repeat(20_000)),
    );
    let ran = node.run(node.process(), job).await;
    check_refused(
        &ran,
        "more than 4 MiB once they are put into each other, from MANY on",
    );

    let mut job = spec(&["true"]);
    add(
        &mut job,
        "variables",
        variable("LARGE", &"x".repeat(400_000)),
    );
    job["image"]["platform"] = json!("$LARGE".repeat(1000));
    let ran = node.run(node.process(), job).await;
    check_refused(
        &ran,
        "the image's platform of the job: its variables make it longer",
    );
}

/// STAGE-24: a result is kept and shown where a job's log is not.
#[tokio::test]
async fn what_is_masked_in_a_jobs_log_is_masked_in_its_result() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let mistakes: [fn(&mut Value); 4] = [
        |job| job["image"]["name"] = json!("dockerfile:$SECRET"),
        |job| job["image"]["name"] = json!("no such/$SECRET"),
        |job| add(job, "variables", variable("MICROVM_USER", "$SECRET")),
        |job| add(job, "variables", variable("GIT_CLONE_PATH", "/x/$SECRET")),
    ];
    for (mistake, secret) in mistakes.iter().flat_map(|one| {
        let secrets = ["hunter2hunter2", "hunter2\"hunter2", "hunter2'\"hunter2"];
        secrets.map(|secret| (one, secret))
    }) {
        let mut job = spec(&["true"]);
        let mut secret = variable("SECRET", secret);
        secret["masked"] = json!(true);
        add(&mut job, "variables", secret);
        mistake(&mut job);
        let ran = node.run(node.process(), job).await;
        check_refused(&ran, "[MASKED]");
        let told = format!("{:?} {}", ran.result, ran.output);
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// What a job asks for too much of, or does to itself, is no failure of the node's.
#[tokio::test]
async fn a_jobs_own_mistakes_are_not_told_as_failures_of_the_node() {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let artifact = |path: &str| {
        json!({
            "name": "x", "untracked": false, "paths": [path], "when": "always",
            "artifact_type": "archive", "format": "zip"
        })
    };
    let mut long_user = spec(&["true"]);
    add(
        &mut long_user,
        "variables",
        variable("MICROVM_USER", &"u".repeat(200_000)),
    );
    let mut long_path = spec(&["true"]);
    add(&mut long_path, "artifacts", artifact(&"p".repeat(100_000)));
    let mut no_tree = spec(&["rm -r \"$CI_PROJECT_DIR\""]);
    add(&mut no_tree, "artifacts", artifact("a"));
    let mut long_name = spec(&["true"]);
    let name = format!("/builds/{}", "a".repeat(300));
    add(
        &mut long_name,
        "variables",
        variable("GIT_CLONE_PATH", &name),
    );
    for (job, class, why) in [
        (long_user, FailureClass::Configuration, "user"),
        (long_path, FailureClass::Configuration, "path"),
        (no_tree, FailureClass::ExternalDependency, "No such file"),
        (
            long_name,
            FailureClass::Configuration,
            "longer than 251 bytes",
        ),
    ] {
        let ran = node.run(node.process(), job).await;
        assert_eq!(ran.result.failure, Some(class), "{}", ran.output);
        let message = ran.result.message.clone().unwrap();
        assert!(message.contains(why), "{message}");
        for artifact in &ran.result.artifacts {
            assert_eq!(artifact.state, ArtifactState::Failed);
        }
    }
}

/// STAGE-35: as many as the kernel gives no command; `kill` at what watches over the script.
#[tokio::test]
async fn variables_beyond_a_commands_room_and_a_script_that_kills_its_watcher_end_as_the_scripts_do()
 {
    let Some(node) = Node::new("preparing") else {
        return;
    };
    let mut job = spec(&["env | grep -c ^MANY_", "echo ${#MANY_29}"]);
    for n in 0..30 {
        add(
            &mut job,
            "variables",
            variable(&format!("MANY_{n}"), &"x".repeat(120_000)),
        );
    }
    let ran = node.run(node.process(), job).await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    assert!(ran.has("15") && ran.has("120000"), "{}", ran.output);
    let warning = "commands of its scripts do not have MANY_15, MANY_16, MANY_17 and 12 more";
    assert!(ran.output.contains(warning), "{}", ran.output);

    let ran = node
        .run(node.process(), spec(&["kill -KILL $PPID; sleep 300"]))
        .await;
    assert_eq!(
        ran.result.failure,
        Some(FailureClass::Script),
        "{}",
        ran.output
    );
    assert_eq!(ran.result.exit_code, Some(137));
}
