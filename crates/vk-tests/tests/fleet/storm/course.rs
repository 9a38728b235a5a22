//! The course of a storm: the daemon dies and is started again, jobs come, wait and go.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::draw::{self, Way};
use super::job::{self, Job, Stands};
use super::{Aim, Life, Size, Storm, watch};
use crate::fleet::Party;

/// How long a moment may be waited for before jobs are moved on towards it.
const PUSH: Duration = Duration::from_millis(400);
/// So many times, before another moment is drawn instead.
const PUSHES: u32 = 8;
/// How long nothing has happened when jobs are looked for that nobody has.
const QUIET: Duration = Duration::from_secs(20);
/// How long nothing at all may happen: no death, no end, no job begun.
const PATIENCE: Duration = Duration::from_secs(180);

impl Storm {
    fn count(&self, is_so: impl Fn(&Stands) -> bool) -> usize {
        self.jobs.values().filter(|job| is_so(&job.stands)).count()
    }

    pub(super) fn is_over(&self) -> bool {
        let ended = self.count(|stands| matches!(stands, Stands::Ended(_)));
        let all = self.jobs.values().all(Job::is_over);
        let is_done = ended >= self.size.jobs && self.kills >= self.size.kills;
        all && is_done && self.watch.held.is_empty()
    }

    pub(super) fn tick(&mut self) {
        job::keep_outputs(&self.fleet, &mut self.outputs);
        self.watch.look(&self.fleet, &mut self.jobs);
        self.deaths();
        self.trigger();
        let active = self.jobs.values().filter(|job| !job.is_over());
        for id in active.map(|job| job.id).collect::<Vec<_>>() {
            self.step(id);
        }
        if self.kills < self.size.kills {
            self.aim();
        }
        self.assert_moving();
    }

    /// Starts the daemon again where it died.
    fn deaths(&mut self) {
        for party in [Party::Hub, Party::Node] {
            assert!(!self.fleet.has_ended(party), "{party:?} ended");
        }
        if !self.fleet.has_ended(Party::Daemon) {
            return;
        }
        let status = self.fleet.running(Party::Daemon).child.try_wait().unwrap();
        let is_killed = status.is_some_and(|status| status.signal() == Some(9));
        let fired = !self.fleet.kill_file("daemon").exists();
        let aim = self.aim.take();
        assert!(
            is_killed && fired,
            "the daemon ended by itself: {status:?}, {aim:?}"
        );
        self.kills += 1;
        self.boundaries.insert(aim.unwrap().point.to_string());
        self.bury();
        if self.kills < self.size.kills {
            self.arm(false);
        }
        self.restart();
    }

    /// Notes what a daemon that is dead has kept.
    fn bury(&mut self) {
        self.watch.look(&self.fleet, &mut self.jobs);
        let held = self.watch.held.clone();
        for id in &held {
            let job = self.jobs.get_mut(id).unwrap();
            let now = self.fleet.lab.jobs(job.pipeline).remove(0);
            job.late_deaths += usize::from(!now["finished_ms"].is_null());
        }
        self.lives.last_mut().unwrap().held = Some(held);
    }

    fn restart(&mut self) {
        self.lives.push(Life::begins());
        self.fleet.restart(Party::Daemon);
    }

    /// Says where the daemon dies next.
    fn arm(&mut self, runs: bool) {
        let (point, nth) = self.draw.moment(&self.points, runs);
        let file = self.fleet.kill_file("daemon");
        let new = file.with_extension("new");
        fs::write(&new, format!("{point}:{nth}")).unwrap();
        fs::rename(&new, &file).unwrap();
        self.aim = Some(Aim {
            point,
            nth,
            since: Instant::now(),
            pushes: 0,
        });
    }

    /// Has jobs move on where the moment does not come, and draws another one in the end.
    fn aim(&mut self) {
        let Some(aim) = self.aim else {
            return self.arm(true);
        };
        if aim.since.elapsed() < PUSH {
            return;
        }
        let way = draw::way_to(aim.point.variant);
        if aim.pushes == if way.is_some() { 4 * PUSHES } else { PUSHES } {
            // It may die there just now: then that is seen first.
            if self.fleet.kill_file("daemon").exists() {
                self.redrawn += 1;
                println!("not come to: {}:{}", aim.point, aim.nth);
                self.arm(true);
            }
            return;
        }
        self.aim = Some(Aim {
            since: Instant::now(),
            pushes: aim.pushes + 1,
            ..aim
        });
        self.push(way);
    }

    /// A job that is held goes on, or one is brought: of this way where it can be chosen.
    fn push(&mut self, way: Option<Way>) {
        let held = |job: &&mut Job| matches!(job.stands, Stands::Held(_));
        let mut held: Vec<_> = self.jobs.values_mut().filter(held).collect();
        held.sort_by_key(|job| Some(job.way) != way);
        if let Some(job) = held.first_mut() {
            job.let_go(&self.fleet);
        }
        let is_queued = self.jobs.values().any(|job| job.stands == Stands::Queued);
        if !is_queued && self.active() < self.size.at_once {
            self.another(way);
        }
    }

    fn active(&self) -> usize {
        self.jobs.values().filter(|job| !job.is_over()).count()
    }

    /// Brings jobs, as many as go with the deaths so far.
    fn trigger(&mut self) {
        let Size {
            jobs,
            kills,
            at_once,
        } = self.size;
        let due = at_once + jobs * self.kills / kills;
        while self.active() < at_once {
            let all = self.count(|stands| *stands != Stands::Orphan);
            if all >= due.min(jobs) {
                return;
            }
            self.another(None);
        }
    }

    fn another(&mut self, way: Option<Way>) {
        let patience = self.size.at_once * self.size.kills / self.size.jobs;
        let patience = u64::try_from(patience).unwrap();
        let way = way.unwrap_or_else(|| self.draw.way());
        let job = Job::trigger(&self.fleet, &mut self.draw, way, patience);
        self.jobs.insert(job.id, job);
    }

    /// Looks how a job stands, and lets it go on where it has waited long enough.
    fn step(&mut self, id: u64) {
        let is_orphan_now = |storm: &Self, now: &Value| storm.is_orphan(id, now);
        let job = &self.jobs[&id];
        let now = self.fleet.lab.jobs(job.pipeline).remove(0);
        let stands = if !now["finished_ms"].is_null() {
            Some(Stands::Ended(now))
        } else if is_orphan_now(self, &now) {
            Some(Stands::Orphan)
        } else if job.stands == Stands::Queued && self.is_in_the_middle(job) {
            Some(Stands::Held(self.kills))
        } else {
            None
        };
        let (kills, ending) = (self.kills, self.kills >= self.size.kills);
        let job = self.jobs.get_mut(&id).unwrap();
        if let Some(stands) = stands {
            job.now_stands(stands);
        }
        match job.stands {
            Stands::Held(since) if ending || kills >= since + job.patience => {
                job.let_go(&self.fleet);
            }
            _ => {}
        }
    }

    /// Its script runs, and everything is known of it that is asked for later.
    fn is_in_the_middle(&self, job: &Job) -> bool {
        let is_known = job.output(&self.fleet).is_some() && job.token(&self.fleet).is_some();
        is_known && job.ran(&self.fleet).0 > 0
    }

    /// GitLab handed it to a daemon that is dead and had not kept it, and never heard of it.
    fn is_orphan(&self, id: u64, now: &Value) -> bool {
        let Some(handed_out) = now["started_ms"].as_u64() else {
            return false;
        };
        let life = self.lives.iter().rfind(|life| life.from_ms <= handed_out);
        let held = life.and_then(|life| life.held.as_ref());
        now["calls"] == 0
            && self.jobs[&id].preamble.is_none()
            && held.is_some_and(|held| !held.contains(&id))
    }

    /// An answer may go to the connection of a daemon that is dead already, when the next one lives:
    /// that one, which never had it, is ended to prove it.
    fn look_for_the_lost(&mut self) {
        let log = self.fleet.path("daemon.log");
        let is_lost = |job: &Job| {
            let now = self.fleet.lab.jobs(job.pipeline).remove(0);
            let is_unheard = now["handed_out"] == 1 && now["calls"] == 0;
            is_unheard && job.preamble.is_none() && !watch::is_named(&log, job.id)
        };
        let mut active = self.jobs.values().filter(|job| !job.is_over()).peekable();
        if active.peek().is_some() && active.all(is_lost) {
            self.fleet.stop(Party::Daemon);
            self.bury();
            self.restart();
        }
    }

    fn assert_moving(&mut self) {
        let is_new = |stands: &Stands| *stands == Stands::Queued;
        let now = (self.kills, self.count(is_new), self.active());
        if self.moved.0 != now {
            self.moved = (now, Instant::now());
        }
        let stuck = self.moved.1.elapsed();
        if stuck > QUIET && self.kills >= self.size.kills {
            self.look_for_the_lost();
        }
        if stuck > PATIENCE {
            let active = self.jobs.values().filter(|job| !job.is_over());
            let jobs: Vec<_> = active
                .map(|job| {
                    (
                        job.id,
                        job.way,
                        &job.stands,
                        self.fleet.lab.jobs(job.pipeline),
                    )
                })
                .collect();
            panic!("nothing happens: {:?}: {jobs:#?}", self.aim);
        }
    }
}
