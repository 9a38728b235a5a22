//! One story, told with a party that dies at one point.

use std::fmt;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::account;
use super::census::Census;
use super::kept::Kept;
use super::point::{Point, Victim};
use super::story::{House, Story};
use super::strike::end_the_agent;
use crate::fleet::{Fleet, Party};

/// How long a story may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// How long GitLab has heard nothing of a job when it is looked whether anybody has it.
const SILENCE: Duration = Duration::from_secs(20);
/// Ticks of a job in a real VM, ten a second, where nobody outside can let it go on.
pub(super) const TICKS: u32 = 20;
pub(super) const TICK: Duration = Duration::from_millis(40);

/// What came of it.
pub(crate) struct Told {
    pub(super) ended: String,
    pub(super) ran: usize,
    pub(super) orphan: bool,
    /// Processes that the job was seen to have.
    processes: usize,
    took: Duration,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orphan = if self.orphan { " (orphan)" } else { "" };
        let (ended, ran, ms) = (&self.ended, self.ran, self.took.as_millis());
        let all = self.processes;
        write!(
            f,
            "died; {ended}{orphan}, ran {ran}, {ms} ms, {all} processes gone"
        )
    }
}

/// A story as it goes.
pub(super) struct Tale<'a> {
    pub(super) fleet: &'a mut Fleet,
    pub(super) point: Point,
    pub(super) story: Story,
    pub(super) house: House,
    pub(super) pipeline: u64,
    pub(super) job: u64,
    /// Where the victim is to die is said.
    armed: bool,
    /// It died there.
    pub(super) fired: bool,
    /// Since when the job is handed out and GitLab has heard nothing.
    unheard: Option<Instant>,
    /// Daemons that died or were ended.
    pub(super) daemons: usize,
    /// What happens in mid-job happened.
    pub(super) acted: bool,
    /// Somebody watches the job's log.
    watching: Option<UnixStream>,
    /// A party that stays down for now.
    pub(super) down: Option<Party>,
    /// The outputs of jobs' processes.
    pub(super) kept: Kept,
    /// What the job was seen to have on its host.
    pub(super) census: Census,
    begun: Instant,
}

/// Tells it in a fleet of this kind; none where the point was not reached.
pub(crate) fn tell(fleet: &mut Fleet, house: House, point: Point, story: Story) -> Option<Told> {
    let kept = Kept::begin(fleet);
    let mut tale = Tale {
        fleet,
        point,
        story,
        house,
        pipeline: 0,
        job: 0,
        armed: false,
        fired: false,
        unheard: None,
        daemons: 0,
        acted: false,
        watching: None,
        down: None,
        kept,
        census: Census::default(),
        begun: Instant::now(),
    };
    tale.before();
    tale.trigger();
    let (job, orphan) = tale.until_it_ends();
    // A party may still come to its point afterwards.
    while !tale.fired && tale.begun.elapsed() < PATIENCE {
        tale.look();
        std::thread::sleep(TICK);
    }
    let fired = tale.fired;
    tale.disarm();
    tale.all_up();
    account::check(&mut tale, &job, orphan);
    fired.then(|| Told {
        ended: account::how(&job),
        ran: account::ran(&tale).0,
        orphan,
        processes: tale.census.len(),
        took: tale.begun.elapsed(),
    })
}

impl Tale<'_> {
    /// The place of a file that says where a program dies, written whole.
    fn say(&self, whose: &str, text: &str) {
        let file = self.fleet.kill_file(whose);
        let new = file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    }

    /// Says where the victim is to die.
    pub(super) fn arm(&mut self) {
        if !self.is_inside() {
            self.say(self.point.victim.counts(), &self.point.told());
        }
        self.armed = true;
    }

    /// Has another one die, to get somewhere.
    pub(super) fn also(&self, whose: &str, at: &str) {
        self.say(whose, at);
    }

    pub(super) const fn is_armed(&self) -> bool {
        self.armed
    }

    fn disarm(&self) {
        for whose in ["hub", "node", "daemon", "job"] {
            // Whoever died removed it.
            let _ = fs::remove_file(self.fleet.kill_file(whose));
        }
    }

    /// The party whose boundary it is, where it is one of the fleet's.
    pub(super) const fn party(&self) -> Option<Party> {
        match self.point.victim {
            Victim::Hub => Some(Party::Hub),
            Victim::Node | Victim::Session => Some(Party::Node),
            Victim::Daemon => Some(Party::Daemon),
            Victim::Job | Victim::Machine | Victim::Agent => None,
        }
    }

    pub(super) fn trigger(&mut self) {
        // The daemon has something to say before the node's output.
        let response = json!({ "hooks": [{ "name": "other", "script": [] }] });
        let mut job = json!({ "name": "job", "script": self.script(), "response": response });
        if self.point.victim.counts() == "job" {
            // It comes to all its stages.
            job["after_script"] = json!(self.after_script());
            job["artifacts"] = json!({ "paths": ["file"] });
        }
        if matches!(self.story, Story::Granted | Story::Denied) {
            job["variables"] = json!({ "MICROVM_MEM": "4G" });
        }
        // Of two projects that wait for approval the hub keeps the one it heard of last.
        let other = self.story == Story::Unapproved && self.fleet.lab.pipelines() % 2 == 1;
        let project = if other { "lab/other" } else { "lab/project" };
        let (pipeline, jobs) = self.fleet.lab.trigger_in(project, &json!([job]));
        (self.pipeline, self.job) = (pipeline, jobs[0]);
        if matches!(self.story, Story::Canceled | Story::Canceling) {
            // GitLab hears more often of a job whose log somebody watches.
            self.watching = Some(self.fleet.lab.watch(self.job));
        }
    }

    /// What the job does: it leaves marks outside of itself, and waits in its middle. The process
    /// stand-in for VMs lets it see the host's files by way of its first process.
    fn script(&self) -> Vec<String> {
        if self.house == House::Machines {
            return vec![
                "echo begin".to_owned(),
                self.ticks("script"),
                "echo job $CI_JOB_ID is at its end".to_owned(),
            ];
        }
        let marks = self.fleet.path("marks");
        fs::create_dir_all(&marks).unwrap();
        let at = format!("/proc/1/root{}", marks.display());
        vec![
            format!("echo begin >> {at}/$CI_JOB_ID"),
            format!("while [ ! -e {at}/$CI_JOB_ID.go ]; do echo in the middle; sleep 0.1; done"),
            format!("echo end >> {at}/$CI_JOB_ID"),
            "echo job $CI_JOB_ID is at its end".to_owned(),
        ]
    }

    fn after_script(&self) -> Vec<String> {
        vec![self.ticks("after_script")]
    }

    /// A job without a hand outside of its guest waits for a time, and may end its guest.
    fn ticks(&self, part: &str) -> String {
        let ends = if self.is_inside() && self.point.variant == part {
            format!(
                "[ $i != {} ] || {{ {}; }}; ",
                self.point.nth,
                end_the_agent()
            )
        } else {
            String::new()
        };
        let ticks = if part == "script" { TICKS } else { TICKS / 4 };
        format!(
            "i=0; while [ $i -lt {ticks} ]; do echo in the middle $i; {ends}i=$((i+1)); sleep 0.1; done"
        )
    }

    /// Whether a line of the job's output ends so.
    pub(super) fn has_said(&self, line: &str) -> bool {
        let outputs = self.kept.outputs();
        let mut lines = outputs.iter().flat_map(|output| output.lines());
        lines.any(|one| one.ends_with(line))
    }

    /// Whether the job is in its middle.
    fn has_begun(&self) -> bool {
        match self.house {
            House::Machines => self.has_said(" in the middle 2"),
            _ => self.mark("").exists(),
        }
    }

    pub(super) fn mark(&self, suffix: &str) -> PathBuf {
        self.fleet.path(&format!("marks/{}{suffix}", self.job))
    }

    /// Lets the job go on to its end.
    pub(super) fn go_on(&self) {
        if self.house != House::Machines {
            fs::write(self.mark(".go"), "").unwrap();
        }
    }

    /// Waits for the job's end, or until it is certain that nobody has it; the job as the lab tells
    /// it.
    fn until_it_ends(&mut self) -> (Value, bool) {
        loop {
            self.look();
            if !self.acted && self.has_begun() {
                self.acted = true;
                // It is kept before the job goes on.
                self.kept.look();
                self.count();
                self.in_the_middle();
            }
            let job = self.fleet.lab.jobs(self.pipeline).remove(0);
            if !job["finished_ms"].is_null() {
                return (job, false);
            }
            if self.is_orphan(&job) {
                return (job, true);
            }
            self.look_for_the_lost(&job);
            let patient = self.begun.elapsed() < PATIENCE;
            assert!(patient, "no end: {job} {:#?}", self.kept.ends());
            std::thread::sleep(TICK);
        }
    }

    /// A 201 whose record was not durable when the daemon died, or whose answer never arrived:
    /// GitLab heard nothing of the job, and the daemon, started again, knows nothing of it.
    fn is_orphan(&self, job: &Value) -> bool {
        if self.point.victim != Victim::Daemon || !self.fired {
            return false;
        }
        // What is handed out later is the next life's.
        let handed_out = job["started_ms"].as_u64().unwrap_or(u64::MAX);
        job["calls"] == 0 && handed_out < self.fleet.daemon_since_ms() && !self.is_kept()
    }

    /// Whether the daemon's file has the job.
    fn is_kept(&self) -> bool {
        let name = format!("\"gitlab_job\":{},", self.job);
        self.fleet.daemon_state().contains(&name)
    }

    /// GitLab's answer may go to the connection of a daemon that is dead already, when the next one
    /// lives: that one, which never had the job, is ended to prove it.
    fn look_for_the_lost(&mut self, job: &Value) {
        if job["handed_out"] != 1 || job["calls"] != 0 {
            return;
        }
        let since = *self.unheard.get_or_insert_with(Instant::now);
        let is_meant = self.point.victim == Victim::Daemon && self.fired;
        if !is_meant || since.elapsed() < SILENCE {
            return;
        }
        if !self.is_kept() && !self.fleet.daemon_names(self.job) {
            self.fleet.restart(Party::Daemon);
            self.daemons += 1;
        }
    }

    /// Starts again who died.
    pub(super) fn look(&mut self) {
        let file = self.fleet.kill_file(self.point.victim.counts());
        if self.armed && !self.fired && !file.exists() {
            self.fired = !self.point.victim.is_struck() || self.strike();
        }
        for party in [Party::Hub, Party::Node, Party::Daemon] {
            if self.down == Some(party) {
                continue;
            }
            if self.fleet.has_ended(party) {
                self.daemons += usize::from(party == Party::Daemon);
                self.died(party);
            }
        }
        self.beside();
    }

    /// Starts again whoever a story left down.
    fn all_up(&mut self) {
        if let Some(party) = self.down.take() {
            self.fleet.restart(party);
        }
        self.until("the node is there", |tale| tale.fleet.node_is_there());
    }
}
