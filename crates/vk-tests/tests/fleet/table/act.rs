//! What a story does beside its job.

use std::process::Command;

use serde_json::json;

use super::story::Story;
use super::tell::{PATIENCE, Tale};
use crate::fleet::Party;
use crate::program::{kill, run};
use crate::settings::call_gitlab_otherwise;

impl Tale<'_> {
    /// Before the job is there.
    pub(super) fn before(&mut self) {
        match self.story {
            // These arm in mid-job.
            Story::Started | Story::Full | Story::Drained => {}
            Story::Ahead => self.also("daemon", "job.Record.Patched:before:1"),
            Story::Unkept => {
                self.arm();
                self.also("node", "Record.Started:before:1");
            }
            Story::Unplaced => {
                self.arm();
                self.also("hub", "Record.JobSubmitted:before:1");
            }
            Story::Refused => {
                self.arm();
                let fault = json!({
                    "cmd": "inject", "on": "request", "action": { "status": 503 },
                    "retry_after": 1,
                });
                self.fleet.lab.ask(&fault);
            }
            Story::Idle => {
                self.arm();
                self.until("it dies", |tale| tale.fired);
            }
            Story::Judged => {
                // A daemon that lost its hub often redials late; a new one does not.
                self.fleet.restart(Party::Daemon);
                self.until("the daemon is there", |tale| tale.fleet.daemon_is_there());
                self.arm();
            }
            Story::Removed => {
                self.arm();
                self.operate();
                self.until("the node gives up", |tale| tale.down == Some(Party::Node));
                self.until("it dies", |tale| tale.fired);
                self.fleet.join_node_again();
                self.down = None;
                self.fleet.restart(Party::Node);
                self.fleet.wait_for_node();
            }
            Story::Renamed => {
                self.until("the server is known", |tale| tale.fleet.is_server_known());
                self.arm();
                self.operate();
                self.fleet.stop(Party::Daemon);
                call_gitlab_otherwise(&self.fleet.path(""));
                self.look();
                self.until("the hub is there", |tale| {
                    tale.fleet.enrolled("relays").is_some()
                });
                self.fleet.join_daemon_again();
                self.fleet.restart(Party::Daemon);
            }
            // The hub keeps one settled job: this one's end forgets that one.
            Story::Forgotten => {
                self.trigger();
                self.go_on();
                self.until("the first job ends", |tale| {
                    !tale.fleet.lab.jobs(tale.pipeline)[0]["finished_ms"].is_null()
                });
                self.until("the first job goes", |tale| {
                    !tale.fleet.daemon_state().contains("gitlab_job")
                });
                self.kept.forget();
                self.arm();
            }
            Story::Left => {
                self.arm();
                // It may just be asking GitLab, and then ends without.
                for _ in 0..100 {
                    self.fleet.running(Party::Daemon).terminate();
                    let before = self.daemons;
                    self.until("the daemon ends", |tale| tale.daemons > before);
                    if self.fired {
                        break;
                    }
                    let polls = self.polls();
                    self.until("the daemon asks GitLab", |tale| tale.polls() > polls + 1);
                }
            }
            _ => self.arm(),
        }
    }

    /// Waits until something is so.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{}: not: {what}", self.point);
            self.look();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// The job is in its middle.
    pub(super) fn in_the_middle(&mut self) {
        match self.story {
            Story::Started => {
                self.arm();
                let party = self.party().unwrap();
                self.fleet.restart(party);
                self.daemons += usize::from(party == Party::Daemon);
                self.until("it dies", |tale| tale.fired);
                self.go_on();
            }
            Story::Canceled | Story::Canceling => {
                let force = self.story == Story::Canceled;
                let cancel = json!({ "cmd": "cancel", "job": self.job, "force": force });
                self.fleet.lab.ask(&cancel);
            }
            Story::Orphaned => {
                for (pid, _) in self.fleet.job_processes() {
                    kill(pid);
                }
            }
            Story::NodeBack => {
                self.fleet.restart(Party::Node);
                self.go_on();
            }
            Story::Drained => {
                self.arm();
                self.fleet.running(Party::Daemon).terminate();
                // What comes before the end of the job.
                if self.point.variant == "PassSlot" {
                    self.until("it dies", |tale| tale.fired);
                }
                self.go_on();
            }
            Story::Full => {
                self.arm();
                self.fill_the_disk();
                self.go_on();
            }
            Story::Judged => {
                self.judge();
                self.go_on();
            }
            Story::Pools | Story::Ceiling => {
                self.operate();
                self.go_on();
            }
            _ => self.go_on(),
        }
    }

    /// The operator's command, until it was done: a hub that dies of it is asked again.
    fn operate(&mut self) {
        let of = if self.story == Story::Renamed {
            "relays"
        } else {
            "nodes"
        };
        for attempt in 1..1000 {
            let enrolled = self.fleet.enrolled(of);
            let one = enrolled.as_ref().and_then(|all| all.first().cloned());
            let removes = matches!(self.story, Story::Removed | Story::Renamed);
            if removes && enrolled.is_some_and(|all| all.is_empty()) {
                return;
            }
            // Another one each time, so that there is something to keep.
            let number = (1000 * self.job + attempt).to_string();
            let pool = format!("default,pool-{number}");
            let one = one.unwrap_or_default();
            let arguments = match self.story {
                Story::Pools => [of, "pools", &one, &pool].to_vec(),
                Story::Ceiling => [of, "ceiling", &one, &number].to_vec(),
                _ => [of, "remove", &one].to_vec(),
            };
            if !one.is_empty() && self.commanded(&arguments) {
                return;
            }
            self.look();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("the operator's command was never done");
    }

    fn commanded(&self, arguments: &[&str]) -> bool {
        let mut command = self.fleet.hub_command(arguments);
        command.output().unwrap().status.success()
    }

    /// The operator rejects GitLab's server and approves of it again.
    fn judge(&mut self) {
        for word in ["reject", "approve"] {
            self.until(word, |tale| tale.commanded(&["gitlab", word, "s1"]));
        }
    }

    /// Job requests that GitLab answered.
    fn polls(&self) -> u64 {
        let status = self.fleet.lab.ask(&json!({ "cmd": "status" }));
        status["runner"]["requests"].as_u64().unwrap_or_default()
    }

    /// No file of the hub may grow any more, but for a few more lines of its log.
    fn fill_the_disk(&mut self) {
        let log = std::fs::metadata(self.fleet.path("hub.log")).unwrap().len();
        let hub = self.fleet.running(Party::Hub).pid().to_string();
        let limit = format!("--fsize={}:unlimited", log + 2048);
        run(Command::new("prlimit").args(["--pid", &hub, &limit]));
    }

    /// A party ended, of a kill or because it was told to.
    pub(super) fn died(&mut self, party: Party) {
        match (self.story, party) {
            (Story::Unplaced, Party::Hub) => {
                // Until the job is given up.
                self.fleet.stop(party);
                self.down = Some(party);
            }
            (Story::Ahead, Party::Daemon) if !self.is_armed() => {
                self.arm();
                self.fleet.restart(party);
            }
            // Its hub knows it no more: it joins anew.
            (Story::Removed, Party::Node) => {
                self.fleet.stop(party);
                self.down = Some(party);
            }
            _ => self.fleet.restart(party),
        }
    }

    /// What goes on all the time.
    pub(super) fn beside(&mut self) {
        let given_up = self.story == Story::Unplaced
            && self.down == Some(Party::Hub)
            && self.pipeline != 0
            && !self.fleet.lab.jobs(self.pipeline)[0]["finished_ms"].is_null();
        if given_up {
            self.down = None;
            self.fleet.restart(Party::Hub);
        }
    }
}
