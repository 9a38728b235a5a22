//! Disks that are full: each party's state directory in turn is a small file system of its own, in a
//! mount namespace that the test makes for itself.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::lab::Lab;
use crate::program::{eventually, run};

/// Says to a test that it runs in the namespace.
const INSIDE: &str = "VK_TEST_INSIDE";
/// Longer than any pause between two requests of a runner that asks.
const A_WHILE: Duration = Duration::from_secs(6);
/// Room on the small file systems, in MiB.
const ROOM: u64 = 64;

/// Runs this test again where it may mount; whether this is there.
pub(crate) fn may_mount(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount"]);
    inside.arg(std::env::current_exe().unwrap());
    inside.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    let ended = inside.env(INSIDE, "1").status().unwrap();
    assert!(ended.success(), "{test} in its namespace: {ended}");
    false
}

/// A directory on a file system of its own.
pub(crate) struct Small {
    path: PathBuf,
}

impl Small {
    /// Moves a directory there.
    fn of(path: PathBuf) -> Self {
        Self::with_room(path, ROOM)
    }

    /// The same, where there is more room: so many MiB.
    pub(crate) fn with_room(path: PathBuf, room: u64) -> Self {
        let before = path.with_extension("before");
        fs::rename(&path, &before).unwrap();
        fs::create_dir(&path).unwrap();
        let options = format!("mode=700,size={room}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "none"]);
        run(mount.arg(&path));
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(before.join(".")).arg(&path);
        run(&mut copy);
        Self { path }
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.filler()).unwrap();
        for size in [1 << 20, 4096, 1] {
            let part = vec![0; size];
            while file.write_all(&part).is_ok() {}
        }
        assert!(is_full(&self.path), "there is room yet");
    }

    /// Gives the room back.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
        assert!(!is_full(&self.path), "it is full yet");
    }
}

fn is_full(dir: &Path) -> bool {
    let probe = dir.join("probe");
    let full = fs::write(&probe, "x").is_err();
    fs::remove_file(probe).unwrap();
    full
}

fn hello(fleet: &Fleet, lab: &Lab) {
    let job = lab.trigger(&json!({ "name": "hello", "script": ["echo hello"] }));
    let (ended, trace) = lab.ended_as(job, "success");
    assert!(trace.contains("Job succeeded"), "{trace}");
    assert_eq!(ended["handed_out"], 1);
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}

/// Ticks of a job under way, ten a second.
const TICKS: usize = 60;
/// Bytes of a tick beside its number: no file system hides a full disk behind a block half used.
const PADDING: usize = 1000;

/// A job that prints for a while, under way.
fn ticking(fleet: &Fleet, lab: &Lab) -> u64 {
    let padding = "x".repeat(PADDING);
    let script = format!(
        "i=0; while [ $i -lt {TICKS} ]; do echo tick $i. {padding}; i=$((i+1)); sleep 0.1; done"
    );
    let job = lab.trigger(&json!({ "name": "ticks", "script": [script] }));
    eventually("the job ticks", || {
        let outputs = fleet.outputs();
        let ticks = |text: &String| text.contains(" tick 3.");
        outputs.iter().any(ticks).then_some(())
    });
    job
}

/// A job that says nothing in its middle, until it is told to: by a file of the host's, which the
/// process stand-in for VMs shows to it.
struct Silent {
    job: u64,
    go_on: PathBuf,
}

impl Silent {
    /// One in its middle.
    fn begin(fleet: &Fleet, lab: &Lab) -> Self {
        let go_on = fleet.path("go-on");
        let script = [
            "echo it is silent".to_owned(),
            format!(
                "while [ ! -e /proc/1/root{} ]; do sleep 0.1; done",
                go_on.display()
            ),
            "echo it lives on".to_owned(),
        ];
        let job = lab.trigger(&json!({ "name": "silent", "script": script }));
        eventually("the job is silent", || {
            let outputs = fleet.outputs();
            // The line that tells what is waited for is behind it.
            let waits = |text: &String| text.contains("while [ ! -e");
            outputs.iter().any(waits).then_some(())
        });
        Self { job, go_on }
    }

    /// Lets it go on to its end.
    fn ends(&self, lab: &Lab) {
        fs::write(&self.go_on, "").unwrap();
        let (ended, trace) = lab.ended_as(self.job, "success");
        assert_eq!(ended["handed_out"], 1);
        let said = |line: &str| line.ends_with(" it lives on");
        assert_eq!(
            trace.lines().filter(|line| said(line)).count(),
            1,
            "{trace}"
        );
    }
}

/// Every tick stands there once, in order; how many.
fn ticks(trace: &str) -> usize {
    let said = trace
        .lines()
        .filter(|line| !line.contains("while"))
        .filter_map(|line| Some(line.split_once(" tick ")?.1.split_once('.')?.0.to_owned()));
    let said: Vec<String> = said.collect();
    let wanted: Vec<String> = (0..said.len()).map(|number| number.to_string()).collect();
    assert_eq!(said, wanted);
    said.len()
}

/// Whether the daemon's runner has no room to ask GitLab under.
fn waits_for_room(fleet: &mut Fleet) -> bool {
    let log = fleet.log(Party::Daemon);
    let state = log.lines().rfind(|line| line.contains("state="));
    state.is_some_and(|state| state.contains("WaitingCapacity"))
}

/// STATE-22
#[test]
fn a_daemon_without_room_fails_what_it_cannot_record_takes_no_more_and_goes_on_with_room() {
    let Some(root) = test_root("a daemon's full disk") else {
        return;
    };
    if !may_mount(
        "full::a_daemon_without_room_fails_what_it_cannot_record_takes_no_more_and_goes_on_with_room",
    ) {
        return;
    }
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    fleet.stop(Party::Daemon);
    let small = Small::of(fleet.path("daemon"));
    fleet.restart(Party::Daemon);
    hello(&fleet, &lab);

    small.fill();
    let job = lab.trigger(&json!({ "name": "unrecorded", "script": ["echo never"] }));
    let (ended, trace) = lab.ended_as(job, "failed");
    println!("{trace}");
    assert_eq!(ended["failure_reason"], "runner_system_failure");
    assert!(trace.contains("cannot write its state"), "{trace}");
    assert_eq!(fleet.hub_jobs().len(), 1, "it was not submitted");
    fleet.says(Party::Daemon, "state file cannot be written");
    let waits = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    std::thread::sleep(A_WHILE);
    assert_eq!(lab.job(waits)["status"], "pending", "no job is taken");
    small.empty();
    lab.ended_as(waits, "success");

    let under_way = ticking(&fleet, &lab);
    small.fill();
    fleet.says_again(Party::Daemon, "state file cannot be written", 2);
    small.empty();
    let (ended, trace) = lab.ended_as(under_way, "success");
    assert_eq!(ended["handed_out"], 1);
    assert_eq!(ticks(&trace), TICKS);
    hello(&fleet, &lab);
}

#[test]
fn a_node_without_room_takes_no_job_ends_what_cannot_go_on_and_takes_jobs_with_room() {
    let Some(root) = test_root("a node's full disk") else {
        return;
    };
    if !may_mount(
        "full::a_node_without_room_takes_no_job_ends_what_cannot_go_on_and_takes_jobs_with_room",
    ) {
        return;
    }
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    fleet.edit("gitlab.toml", "disk = \"1G\"", "disk = \"16M\"");
    fleet.edit("vk.toml", "disk_budget = \"8G\"", "");
    fleet.restart(Party::Daemon);
    fleet.stop(Party::Node);
    let small = Small::of(fleet.path("node"));
    fleet.restart(Party::Node);
    hello(&fleet, &lab);

    let silent = Silent::begin(&fleet, &lab);
    let under_way = ticking(&fleet, &lab);
    small.fill();
    let (ended, trace) = lab.ended_as(under_way, "failed");
    assert_eq!(ended["failure_reason"], "runner_system_failure", "{trace}");
    assert!(ticks(&trace) > 3, "{trace}");
    let last = trace.lines().last().unwrap();
    println!("{last}");
    assert!(last.contains("No space left on device"), "{last}");
    // Some may come under reservations from before the hub hears of it: each ends with the reason.
    let mut reserved = 0;
    while !waits_for_room(&mut fleet) {
        reserved += 1;
        assert!(reserved < 30, "jobs are taken all the time");
        let job = lab.trigger(&json!({ "name": "reserved", "script": ["echo never"] }));
        let (ended, trace) = lab.ended_as(job, "failed");
        assert_ne!(ended["failure_reason"], "script_failure", "{trace}");
        assert!(trace.contains("ERROR: Job failed"), "{trace}");
    }
    println!("{reserved} jobs came before the hub knew");
    let waits = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    std::thread::sleep(A_WHILE);
    assert_eq!(lab.job(waits)["status"], "pending", "no job is taken");
    assert_eq!(lab.job(silent.job)["status"], "running", "others live on");
    small.empty();
    lab.ended_as(waits, "success");
    silent.ends(&lab);
    hello(&fleet, &lab);
}

#[test]
fn a_hub_without_room_refuses_and_loses_nothing_and_goes_on_with_room() {
    let Some(root) = test_root("a hub's full disk") else {
        return;
    };
    if !may_mount("full::a_hub_without_room_refuses_and_loses_nothing_and_goes_on_with_room") {
        return;
    }
    let mut fleet = Fleet::start(&root, Guests::Processes);
    let lab = Lab::of(&fleet, &root);
    fleet.stop(Party::Hub);
    let small = Small::of(fleet.path("hub"));
    fleet.restart(Party::Hub);
    fleet.node_is_ready();
    hello(&fleet, &lab);

    let under_way = ticking(&fleet, &lab);
    small.fill();
    fleet.says(Party::Hub, "the hub's store failed");
    let waits = lab.trigger(&json!({ "name": "waits", "script": ["echo after all"] }));
    std::thread::sleep(A_WHILE);
    assert!(lab.job(waits)["finished_ms"].is_null());
    small.empty();
    let (ended, trace) = lab.ended_as(under_way, "success");
    assert_eq!(ended["handed_out"], 1);
    assert_eq!(ticks(&trace), TICKS);
    lab.ended_as(waits, "success");
    hello(&fleet, &lab);
}
