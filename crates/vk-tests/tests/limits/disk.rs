//! The disk of a job's machine: full inside, and without room for it on the host.

use std::process::Command;

use serde_json::json;

use crate::fleet::{Fleet, Guests, Party, test_root};
use crate::full::{Small, may_mount};
use crate::lab::Lab;
use crate::program::{eventually, run};

/// Takes all the room there is, but for what the file system keeps to itself.
const FILL: &str = "dd if=/dev/zero of=/full bs=1M; dd if=/dev/zero of=/full-too bs=1";

/// MiB that a directory takes.
fn taken(path: &std::path::Path) -> u64 {
    let said = run(Command::new("du").args(["-sm"]).arg(path));
    said.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_job_that_fills_its_disk_is_told_so_by_its_own_tools_and_nobody_else_is() {
    let Some(root) = test_root("a job's full disk") else {
        return;
    };
    let mut fleet = Fleet::start(&root, Guests::Machines);
    let lab = Lab::of(&fleet, &root);
    fleet.edit("gitlab.toml", "disk = \"1G\"", "disk = \"64M\"");
    fleet.restart(Party::Daemon);
    let other = lab.trigger(&json!({
        "name": "other",
        "script": ["i=0; while [ $i -lt 40 ]; do echo tick $i > tick; cat tick; i=$((i+1)); sleep 0.1; done"],
    }));
    let fills = lab.trigger(&json!({
        "name": "fills",
        "script": [FILL, "echo the script is at its end"],
        "after_script": ["echo more > /more || echo it is full yet", "df /"],
        "artifacts": { "paths": ["file"], "when": "always" },
    }));
    let (ended, trace) = lab.ended_as(fills, "failed");
    println!("{trace}");
    assert_eq!(ended["failure_reason"], "script_failure", "{trace}");
    assert!(trace.contains("No space left on device"), "{trace}");
    assert!(trace.contains("it is full yet"), "{trace}");
    let (_, trace) = lab.ended_as(other, "success");
    assert!(trace.contains(" tick 39\n"), "{trace}");
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}

#[test]
fn a_machine_without_room_on_its_host_ends_and_says_so_and_the_next_one_runs() {
    let Some(root) = test_root("a machine's host without room") else {
        return;
    };
    if !may_mount("disk::a_machine_without_room_on_its_host_ends_and_says_so_and_the_next_one_runs")
    {
        return;
    }
    let mut fleet = Fleet::start(&root, Guests::Machines);
    let lab = Lab::of(&fleet, &root);
    fleet.stop(Party::Node);
    let room = taken(&fleet.path("node")) + 160;
    let small = Small::with_room(fleet.path("node"), room);
    fleet.edit("vk.toml", "disk_budget = \"8G\"\n", "");
    fleet.restart(Party::Node);
    fleet.edit("gitlab.toml", "disk = \"1G\"", "disk = \"64M\"");
    fleet.restart(Party::Daemon);
    fleet.node_is_ready();
    // It says nothing more: its output is on the same disk.
    let writes = "i=0; while [ $i -lt 600 ]; do dd if=/dev/zero of=/large-$i bs=64k count=1 2> /dev/null; \
                  sync; i=$((i+1)); sleep 0.1; done";
    let job = lab.trigger(&json!({
        "name": "writes",
        "script": ["echo it writes", writes, "echo it goes on"],
    }));
    eventually("the job writes", || {
        let outputs = fleet.outputs();
        let begun = |text: &String| text.lines().any(|line| line.ends_with(" it writes"));
        outputs.iter().any(begun).then_some(())
    });
    small.fill();
    let (ended, trace) = lab.ended_as(job, "failed");
    println!("{trace}");
    assert_eq!(ended["failure_reason"], "runner_system_failure", "{trace}");
    assert!(trace.contains("its disk cannot grow"), "{trace}");
    small.empty();
    let next = lab.trigger(&json!({ "name": "next", "script": ["echo hello"] }));
    lab.ended_as(next, "success");
    lab.assert_honest();
    fleet.assert_nothing_is_left();
}
