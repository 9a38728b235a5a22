//! What an operator does to the daemon's program: signals, another configuration, a look at it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{answers, eventually};

fn signal(fleet: &mut Fleet, signal: Signal) {
    let pid = fleet.running(Party::Daemon).child.id();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn says(fleet: &mut Fleet, text: &str) {
    eventually(text, || {
        let log = fleet.running(Party::Daemon).log();
        log.contains(text).then_some(())
    });
}

/// Changes the daemon's configuration, and has it read.
fn configure(fleet: &mut Fleet, text: &str) {
    says(fleet, "the daemon is up");
    fs::write(fleet.path("gitlab.toml"), text).unwrap();
    signal(fleet, Signal::HUP);
}

fn look(fleet: &Fleet, path: &str) -> String {
    let mut stream = UnixStream::connect(fleet.path("metrics")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// STATE-16, CFG-09, GL-75
#[test]
fn sigterm_waits_for_the_job_that_runs_and_the_program_ends_well() {
    let Some(root) = test_root("a fleet that an operator stops") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    let text = fs::read_to_string(fleet.path("gitlab.toml")).unwrap();
    configure(&mut fleet, &format!("shutdown_timeout = 80\n{text}"));
    says(&mut fleet, "the configuration was read again");
    let (pipeline, job) = fleet.trigger(&["echo begun", "sleep 4", "echo to the end"]);
    eventually("the job runs", || {
        let outputs = fleet.outputs();
        outputs
            .iter()
            .any(|output| output.contains("begun"))
            .then_some(())
    });
    signal(&mut fleet, Signal::TERM);
    says(&mut fleet, "draining");
    let status = eventually("the daemon ends", || {
        fleet.running(Party::Daemon).child.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
    let ended = fleet.lab.jobs(pipeline).remove(0);
    assert_eq!(ended["status"], "success");
    let trace = fleet.trace(job);
    assert!(trace.contains("to the end"), "{trace}");
}

#[test]
fn sighup_brings_runners_and_takes_them_and_metrics_tell_of_it() {
    let Some(root) = test_root("a fleet that an operator reloads") else {
        return;
    };
    let mut fleet = Fleet::start(&root);
    let text = fs::read_to_string(fleet.path("gitlab.toml")).unwrap();
    let listen = format!(
        "[metrics]\nlisten = \"unix:{}\"\n",
        fleet.path("metrics").display()
    );
    let text = text.replace("[[runners]]", &format!("{listen}[[runners]]"));
    fs::write(fleet.path("gitlab.toml"), &text).unwrap();
    fleet.restart(Party::Daemon);
    let metrics = fleet.path("metrics");
    answers(fleet.running(Party::Daemon), &metrics);
    assert!(look(&fleet, "/health").starts_with("HTTP/1.1 200 OK"));
    let tokens = fleet.path("tokens");
    fs::create_dir(&tokens).unwrap();
    let add = json!({ "cmd": "add_runners", "count": 1, "tags": [], "token_dir": tokens });
    let added = fleet.lab.ask(&add);
    let token = added["runners"][0]["token_file"].as_str().unwrap();
    let two = format!(
        "[[runners]]\nname = \"two\"\ntoken_file = \"{token}\"\n\
         [runners.envelope]\nmem = \"512M\"\ncpus = 1\ndisk = \"1G\"\n"
    );
    configure(&mut fleet, &format!("{text}{two}"));
    says(&mut fleet, "runner added");
    configure(
        &mut fleet,
        &text.replace("concurrent = 2", "concurrent = 0"),
    );
    says(&mut fleet, "the old ones stay in force");
    eventually("both runners ask", || {
        let text = look(&fleet, "/metrics");
        let asks = |name| {
            text.contains(&format!(
                "vk_gitlab_since_last_poll_seconds{{runner=\"{name}\"}}"
            ))
        };
        (asks("one") && asks("two")).then_some(())
    });
    configure(&mut fleet, &text);
    says(&mut fleet, "runner removed");
    let (pipeline, _) = fleet.trigger(&["true"]);
    assert_eq!(fleet.ended(pipeline)["status"], "success");
    let text = look(&fleet, "/metrics");
    assert!(
        text.contains("vk_gitlab_jobs_taken_total{runner=\"one\",project=\"\"} 1"),
        "{text}"
    );
    fleet.assert_nothing_is_left();
}
