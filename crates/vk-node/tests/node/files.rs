//! The files that daemon and job processes of different releases read of each other, byte for byte as
//! release 0.1 has them: what is written now is compared with them, and they are read. A form that is
//! changed gets files of its own beside these, which stay readable.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use vk_hub_proto::client::CancelMode;
use vk_hub_proto::dispatch::GuestSize;
use vk_hub_proto::job::{FailureClass, JobResult, JobUsage};
use vk_hub_proto::node_session::{Acquisition, CommandOutcome, DesiredState, VersionRange};
use vk_hub_proto::{CommandId, JobId};
use vk_node::job::directory::{JobDir, Plan};
use vk_node::job::wire::{CacheCounts, FromJob, Progress, PullCounts, ToJob};
use vk_node::journal::Journal;
use vk_node::past_runs::PastRuns;
use vk_node::view::read_past;
use vk_node_core::io::{ClosingLine, DeadEnd, Project, RunPlan, Standing, StartedJob};
use vk_node_core::ledger::{Amount, Resource};
use vk_node_core::{By, Death, Record, Stop};

use crate::scripted::start;

const PLAN: &str = include_str!("../golden/0.1/plan.json");
const STATE: &str = include_str!("../golden/0.1/state.json");
const SOCKET: &str = include_str!("../golden/0.1/socket.jsonl");
const JOURNAL: &[u8] = include_bytes!("../golden/0.1/journal");
const HISTORY: &str = include_str!("../golden/0.1/history.jsonl");
const PAST_RUNS: &str = include_str!("../golden/0.1/past-runs");

fn job() -> JobId {
    JobId::from_bytes([7; 16])
}

/// That a value is written as the release had it, and read from that, with a field of a later one too.
fn pinned<T>(pinned: &str, value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let pinned = pinned.trim_end();
    assert_eq!(serde_json::to_string(value).unwrap(), pinned);
    assert_eq!(serde_json::from_str::<T>(pinned).unwrap(), *value);
    let later = format!(r#"{{"of_a_later_release":[{{}}],{}"#, &pinned[1..]);
    assert_eq!(serde_json::from_str::<T>(&later).unwrap(), *value);
}

fn run() -> RunPlan {
    RunPlan {
        slot: 1,
        project_slot: 0,
        cpus: 2,
        mem_mib: 4096,
        disk_bytes: 1 << 30,
        warnings: vec!["MICROVM_CPUS is cut to 2".to_owned()],
    }
}

fn result() -> JobResult {
    JobResult {
        failure: Some(FailureClass::Script),
        exit_code: Some(3),
        message: Some("exit code 3".to_owned()),
        output_len: 60,
        artifacts: Vec::new(),
        usage: Some(JobUsage {
            wall_ms: 1200,
            cpu_ms: Some(900),
            peak_mem_bytes: Some(1 << 28),
            cpus: Some(2),
            mem_mib: Some(4096),
        }),
    }
}

fn progress() -> Progress {
    Progress {
        stage: Some("step_script".to_owned()),
        attempt: 1,
        activity: Some("pulls".to_owned()),
        guest: Some(GuestSize {
            cpus: 2,
            mem_mib: 4096,
        }),
        boot_ms: Some(412),
        boots: 1,
        caches: CacheCounts {
            hits: 1,
            misses: 2,
            errors: 3,
        },
        image_pulls: PullCounts { done: 1, failed: 0 },
        vmm: Some("qemu".to_owned()),
        accelerator: Some("kvm".to_owned()),
        output_len: 60,
        result: Some(result()),
    }
}

/// DISP-41
#[test]
fn a_jobs_plan_is_that_of_the_release() {
    let plan = Plan {
        v: 1,
        job: job(),
        run: run(),
        settings: serde_json::json!({"vmm": "qemu"}),
        past_runs: Some("/var/lib/vk/past-runs".into()),
    };
    pinned(PLAN, &plan);
    let dir = tempfile::tempdir().unwrap();
    let place = JobDir::new(job(), dir.path().join("job"));
    place.create(b"{}").unwrap();
    fs::write(place.path().join("plan.json"), PLAN).unwrap();
    assert_eq!(place.plan().unwrap(), plan);
    // One that means something else is not run by guess: the job ends, and its log says with what.
    let other = PLAN.replacen("\"v\":1", "\"v\":2", 1);
    fs::write(place.path().join("plan.json"), other).unwrap();
    let error = place.plan().unwrap_err().to_string();
    assert!(error.contains("of another version"), "{error}");
}

#[test]
fn how_a_job_stood_and_its_result_are_those_of_the_release() {
    pinned(STATE, &progress());
    let dir = tempfile::tempdir().unwrap();
    let place = JobDir::new(job(), dir.path().join("job"));
    place.create(b"{}").unwrap();
    fs::write(place.path().join("state.json"), STATE).unwrap();
    assert_eq!(place.left_state(), Some(progress()));
    // The result alone has the form of the hub's protocol, which has a golden of its own.
    let json = serde_json::to_vec(&result()).unwrap();
    fs::write(place.path().join("result.json"), json).unwrap();
    assert_eq!(place.result().unwrap(), Some(result()));
    // A job's process of before it said more began, too.
    fs::write(place.path().join("began"), "1\n").unwrap();
    assert!(place.began());
}

/// What daemon and process say to each other.
#[test]
fn frames_are_those_of_the_release() {
    let versions = VersionRange { min: 1, max: 1 };
    let said = [
        ToJob::Subscribe { versions },
        ToJob::Grant,
        ToJob::Deny {
            short: Resource::Disk,
        },
        ToJob::Stop {
            how: Stop::Graceful,
        },
        ToJob::Stop {
            how: Stop::Immediate,
        },
        ToJob::Stop {
            how: Stop::Interrupt,
        },
    ];
    let told = [
        FromJob::Subscribed { version: 1 },
        FromJob::Refused { versions },
        FromJob::State(Box::new(progress())),
    ];
    let mut lines = SOCKET.lines();
    for message in &said {
        pinned(lines.next().unwrap(), message);
    }
    for message in &told {
        pinned(lines.next().unwrap(), message);
    }
    assert_eq!(lines.next(), None);
}

/// Every kind of record there is.
fn records() -> Vec<Record> {
    let amount = Amount {
        mem_mib: 4096,
        disk_bytes: 1 << 30,
    };
    let started = StartedJob {
        job: job(),
        gitlab_id: 41,
        project: Project {
            server: "https://gitlab.example.com".to_owned(),
            id: 3,
        },
        plan: run(),
        granted: amount,
        asked: amount,
    };
    let line = |end| Record::Closing {
        job: job(),
        line: ClosingLine {
            own_len: 20,
            at: 20,
            end,
        },
    };
    let by = By::Signal { signal: 9 };
    let death = Death {
        by,
        oom_kills: 1,
        ..Death::default()
    };
    let why = "no program".to_owned();
    let commanded = |n, outcome, standing| Record::Commanded {
        id: CommandId::from_bytes([n; 16]),
        outcome,
        standing,
    };
    let refused = CommandOutcome::Refused {
        reason: "the node is quarantined: release it first".to_owned(),
    };
    let drained = Standing {
        draining: true,
        ..Standing::default()
    };
    let maintained = Standing {
        maintenance: true,
        ..drained
    };
    let desired = DesiredState {
        generation: 2,
        ceiling: Some(4),
        acquisition: Acquisition::Stop,
    };
    vec![
        Record::Desired(desired),
        commanded(1, CommandOutcome::Done, drained),
        commanded(2, refused, maintained),
        Record::Started(Box::new(started)),
        Record::Granted { job: job() },
        Record::Denied {
            job: job(),
            short: Resource::Memory,
        },
        Record::Cancelled {
            job: job(),
            mode: CancelMode::Graceful,
        },
        line(DeadEnd::NotSpawned { why }),
        line(DeadEnd::Died { death }),
        Record::Finished {
            job: job(),
            result: result(),
        },
        Record::Recorded { job: job() },
        Record::Dropped { job: job() },
    ]
}

fn journal(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn written(records: &[Record]) -> Vec<u8> {
    let (_dir, path) = journal(b"");
    let (mut journal, _) = Journal::open(&path).unwrap();
    journal.append(records).unwrap();
    drop(journal);
    fs::read(path).unwrap()
}

/// DISP-41
#[test]
fn a_journal_is_that_of_the_release() {
    use strum::VariantNames as _;
    use vk_step::Variant as _;
    let records = records();
    for variant in Record::VARIANTS {
        let has = records.iter().any(|record| record.variant() == *variant);
        assert!(has, "no record of kind {variant} is pinned");
    }
    let now = written(&records);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&now), text(JOURNAL));
    assert!(now == JOURNAL);
    let (_dir, path) = journal(JOURNAL);
    assert_eq!(Journal::open(&path).unwrap().1, records);
}

/// DISP-41
#[test]
fn a_record_of_a_later_release_is_read_where_its_kind_is_known_and_else_refused() {
    // What was kept of a death before more was known of it.
    let (job, standing) = (job(), r#"{"draining":true,"quarantined":false}"#);
    let before = [
        format!(
            r#"{{"record":"closing","job":"{job}","line":{{"own_len":1,"at":1,"end":{{"end":"died"}}}}}}"#
        ),
        format!(
            r#"{{"record":"commanded","id":"{job}","outcome":{{"state":"done"}},"standing":{standing}}}"#
        ),
        format!(r#"{{"record":"granted","job":"{job}","of_a_later_release":1}}"#),
    ];
    for json in before {
        serde_json::from_str::<Record>(&json).unwrap();
    }
    let frame = Later {
        record: "paused",
        job,
    };
    let bytes = [JOURNAL, &frame.frame(JOURNAL.len())].concat();
    let (_dir, path) = journal(&bytes);
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("unknown variant `paused`") && error.contains("later release"),
        "{error}"
    );
    // Nothing of it is lost for the release that knows it.
    assert_eq!(fs::read(path).unwrap(), bytes);
}

#[derive(Serialize)]
struct Later {
    record: &'static str,
    job: JobId,
}

impl Later {
    /// As the journal's module says.
    fn frame(&self, synced: usize) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap();
        let len = u32::try_from(json.len()).unwrap().to_le_bytes();
        let synced = u64::try_from(synced).unwrap().to_le_bytes();
        let sum = crc32fast::hash(&[&len[..], &synced, &json].concat());
        [b"VKJ1", &len[..], &synced, &sum.to_le_bytes(), &json].concat()
    }
}

/// Past jobs, and what past runs used.
#[test]
fn what_is_shown_and_set_aside_is_read_from_the_releases_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.jsonl");
    fs::write(&file, HISTORY).unwrap();
    let past = read_past(&file);
    assert_eq!(past.len(), 1);
    assert_eq!(past[0].progress, progress());
    pinned(HISTORY, &past[0]);

    let vk_hub_proto::dispatch::HubJobMessage::Start { spec, .. } = start(7, &[]) else {
        panic!("a start")
    };
    let vk_hub_proto::job::JobSpec::GitlabCi(ci_job) = spec;
    let runs = PastRuns::in_dir(dir.path().join("runs")).of(&ci_job);
    runs.add(4096, &result()).unwrap();
    let of_job = only(&only(&dir.path().join("runs")));
    fs::write(of_job, PAST_RUNS).unwrap();
    let read = runs.read();
    let of: Vec<_> = read.iter().map(|run| (run.peak_mib, run.mem_mib)).collect();
    assert_eq!(of, [(256, 4096), (300, 4096)]);
}

fn only(dir: &Path) -> PathBuf {
    let mut entries = fs::read_dir(dir).unwrap();
    entries.next().unwrap().unwrap().path()
}
