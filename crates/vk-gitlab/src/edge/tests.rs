//! The loop and its state files, without anybody around them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use vk_gitlab_core::{NewJob, Work, acquire, job};
use vk_hub_client::{Dialer, Key, Signer, Trust, api};
use vk_hub_proto::job::FailureClass;
use vk_hub_proto::{RelayId, RequestId, ReservationId};
use vk_kill::KillPoints;

use super::calls::Event;
use super::daemon::{Daemon, EVENTS, Effect, Ended};
use super::reload::Word;
use super::step::{Owner, Step};
use crate::config::Config;
use crate::operator::Operator;
use crate::session::Line;
use crate::state::StateDir;

const RELAY: RelayId = RelayId::from_bytes([1; 16]);
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

struct Bench {
    dir: tempfile::TempDir,
    daemon: Daemon,
    _operator: Operator,
}

impl Bench {
    fn new(runners: &[&str]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut text =
            format!("concurrent = 9\nstate_dir = 'state'\n[gitlab]\nurl = '{NOWHERE}'\n");
        for runner in runners {
            text += &format!("[[runners]]\nname = '{runner}'\ntoken = 'glrt-t1_{runner}'\n");
        }
        let path = dir.path().join("config.toml");
        fs::write(&path, text).unwrap();
        let config = Config::read(&path).unwrap().0;
        let state = StateDir::open(&config.state_dir).unwrap();
        let mut operator = Operator::new(path, config, state, RELAY, "r_abcdefghijkl".to_owned());
        let dialer = Dialer::new(NOWHERE.parse().unwrap(), &Trust::Pem(Vec::new())).unwrap();
        let key = Key::generate().unwrap();
        let hub = Arc::new(api::Client::new(dialer, Signer { relay: RELAY, key }));
        let line = Line {
            about: operator.about(),
            changed: Arc::default(),
            told: mpsc::channel(1).1,
        };
        let (settings, kill) = (
            operator.settings().unwrap(),
            KillPoints::from_env().unwrap(),
        );
        let daemon = Daemon::open(RELAY, hub, NOWHERE.to_owned(), settings, line, kill).unwrap();
        Bench {
            dir,
            daemon,
            _operator: operator,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("state").join(name)
    }

    /// A job that a runner is handed over: one that it cannot run.
    fn new_job(gitlab_job: u8) -> Box<NewJob> {
        Box::new(NewJob {
            gitlab_job: gitlab_job.into(),
            token: format!("glcbt-{gitlab_job}").into(),
            request_id: RequestId::from_bytes([gitlab_job; 16]),
            work: Work::Refuse {
                class: FailureClass::Configuration,
                lines: vec!["ERROR: no such thing".to_owned()],
            },
            spec_bytes: 0,
            preamble: String::new(),
            failure_reasons: Vec::new(),
            debug_trace: false,
            timestamps: false,
            taken_at: 0,
            token_ends: None,
        })
    }

    /// What its core is told then.
    fn taking(&self, runner: usize, gitlab_job: u8) -> job::Input {
        job::Input::Take {
            job: Bench::new_job(gitlab_job),
            placement: self.daemon.runners[runner].config.placement.clone(),
            reservation: Ok(ReservationId::from_bytes([gitlab_job; 16])),
        }
    }

    /// A runner is handed a job over, which is to be kept.
    fn take(&mut self, runner: usize, gitlab_job: u8) -> u64 {
        let key = self.daemon.open_job(runner, Vec::new()).unwrap();
        let taking = self.taking(runner, gitlab_job);
        self.daemon.job_input(key, taking);
        key
    }

    /// Writes what was gathered, and goes on with it.
    async fn write(&mut self) {
        assert!(self.daemon.write_gathered(), "something is to be written");
        loop {
            let event = timeout(Duration::from_secs(60), self.daemon.event());
            match event.await.unwrap() {
                Some(Event::Written(written)) => return self.daemon.written(&written),
                // Nobody answers what kept jobs ask for meanwhile.
                Some(_) => {}
                None => panic!("a write"),
            }
        }
    }

    fn holds(&self, runner: &str, job: u64) -> bool {
        let text = fs::read_to_string(self.path(&format!("{runner}.json"))).unwrap_or_default();
        text.contains(&format!("glcbt-{job}"))
    }
}

/// STATE-22
#[tokio::test]
async fn a_state_file_that_cannot_be_written_is_nothing_to_the_jobs_of_other_runners() {
    let mut bench = Bench::new(&["a", "b", "c"]);
    fs::create_dir(bench.path(".b.json.new")).unwrap();
    let [of_a, of_b, of_c] = [(0, 1), (1, 2), (2, 3)].map(|(runner, job)| bench.take(runner, job));
    bench.write().await;
    let holds = [("a", 1), ("b", 2), ("c", 3)].map(|(runner, job)| bench.holds(runner, job));
    assert_eq!(holds, [true, false, true]);
    let jobs = &bench.daemon.jobs;
    let lines = |key: u64| {
        let record = jobs[&key].core.record().unwrap();
        record.ended.as_ref().unwrap().lines.join("\n")
    };
    for (key, kept) in [(of_a, true), (of_b, false), (of_c, true)] {
        assert_eq!(jobs[&key].kept, kept, "{key}");
        assert_eq!(jobs[&key].core.kept().is_some(), kept, "{key}");
        assert!(lines(key).contains("no such thing"), "{}", lines(key));
    }
    let failed = bench
        .daemon
        .runners
        .iter()
        .map(|runner| runner.store_failed);
    assert_eq!(failed.collect::<Vec<_>>(), [false, true, false]);
}

/// FLOW-13, GL-75
#[tokio::test]
async fn what_waits_for_its_pace_is_kept_although_a_second_word_ends_the_daemon_at_once() {
    let mut bench = Bench::new(&["ci"]);
    // So many writes were made of late that the next is far from due.
    for _ in 0..10_000 {
        bench.daemon.pace.begins(Instant::now());
    }
    bench.take(0, 1);
    let (say, words) = mpsc::channel(2);
    for _ in 0..2 {
        say.try_send(Word::Stop).unwrap();
    }
    let Bench {
        dir,
        daemon,
        _operator,
    } = bench;
    let ended = timeout(Duration::from_secs(60), daemon.run(words)).await;
    assert_eq!(ended.unwrap(), Ended::JobsLeft(1));
    let text = fs::read_to_string(dir.path().join("state/ci.json")).unwrap();
    assert!(text.contains("glcbt-1"), "{text}");
}

/// GL-75
#[tokio::test]
async fn a_job_that_was_handed_over_as_the_second_word_came_is_kept() {
    let mut bench = Bench::new(&["ci"]);
    let key = bench.daemon.open_job(0, Vec::new()).unwrap();
    bench.take(0, 1);
    let taking = bench.taking(0, 2);
    assert!(bench.daemon.events.send(Event::Job(key, taking)).is_ok());
    bench.daemon.keep_what_waits().await;
    assert!(bench.holds("ci", 1) && bench.holds("ci", 2));
}

/// FLOW-13, GL-75
#[tokio::test]
async fn a_second_job_that_waits_for_the_first_to_be_kept_is_kept_as_the_second_word_comes() {
    let mut bench = Bench::new(&["ci"]);
    bench.take(0, 1);
    // What another lane's 201 makes: it comes after the first job's record.
    let job = acquire::Effect::TakeJob {
        job: Bench::new_job(2),
        reservation: Ok(ReservationId::from_bytes([2; 16])),
    };
    let effects = [job, acquire::Effect::Drained].map(|effect| Effect::Acquire(0, effect));
    bench.daemon.gather(Step {
        owner: Owner::Runner(0),
        kept: None,
        records: Vec::new(),
        effects: effects.to_vec(),
    });
    bench.daemon.keep_what_waits().await;
    assert!(bench.holds("ci", 1) && bench.holds("ci", 2));
    assert!(!bench.daemon.runners[0].drained, "nothing else is done");
}

/// GL-75
#[tokio::test]
async fn a_job_that_is_handed_over_during_the_last_write_is_kept() {
    for first in [true, false] {
        let mut bench = Bench::new(&["ci"]);
        let key = bench.daemon.open_job(0, Vec::new()).unwrap();
        if first {
            bench.take(0, 1);
        }
        // As many as are taken before the last write begins.
        for _ in 0..EVENTS {
            assert!(bench.daemon.events.send(Event::WriteAgain(0)).is_ok());
        }
        let taking = bench.taking(0, 2);
        assert!(bench.daemon.events.send(Event::Job(key, taking)).is_ok());
        bench.daemon.keep_what_waits().await;
        assert_eq!((bench.holds("ci", 1), bench.holds("ci", 2)), (first, true));
    }
}

/// What a write costs does not go with the jobs that are held: what has not changed is not serialised
/// again.
#[tokio::test]
async fn a_write_renders_only_the_job_that_changed() {
    let mut bench = Bench::new(&["ci"]);
    let keys: Vec<u64> = (1..=100).map(|job| bench.take(0, job)).collect();
    bench.write().await;
    // The closing lines of each are rendered and kept by then or with the next write.
    while bench.daemon.write_gathered() {
        let event = bench.daemon.event().await;
        if let Some(Event::Written(written)) = event {
            bench.daemon.written(&written);
        }
    }
    let texts = |bench: &Bench| -> Vec<Option<Arc<str>>> {
        let jobs = keys.iter().map(|key| &bench.daemon.jobs[key]);
        jobs.map(|job| job.rendered.clone()).collect()
    };
    let before = texts(&bench);
    assert!(before.iter().all(Option::is_some));
    // A record of one of them is to be kept anew.
    bench.daemon.jobs.get_mut(&keys[41]).unwrap().rendered = None;
    bench.take(0, 101);
    bench.write().await;
    let after = texts(&bench);
    let same = before.iter().zip(&after).map(|(before, after)| {
        let (Some(before), Some(after)) = (before, after) else {
            return false;
        };
        Arc::ptr_eq(before, after)
    });
    assert_eq!(same.filter(|same| !same).count(), 1);
    assert!(bench.holds("ci", 101));
}
