//! The jobs: given to GitLab a batch after another for each runner, and looked at as they end.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::Size;
use crate::hub::SCRIPT_EXIT_CODE;
use crate::lab::Lab;

/// Jobs of a pipeline at most.
const BATCH: usize = 25;
/// How long no job may end.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often a runner's pipelines are looked at.
const APART: Duration = Duration::from_secs(4);
/// What the daemon says first of a job whose response has something that it leaves out.
const PREAMBLE: &str = "\x1b[0;33mWARNING: hook \"other\" is unknown and was left out\x1b[0;m\n";

/// What a job says, by its number in GitLab, and the class of its failure.
pub(crate) fn end(job: u64) -> (Vec<u8>, Option<&'static str>) {
    let length = match job {
        job if job.is_multiple_of(1_009) => 2_500_000,
        job if job.is_multiple_of(101) => 300_000,
        job => 64 + job * 7_919 % 6_000,
    };
    let mut text = String::new();
    while (text.len() as u64) < length {
        text += &format!("job {job} at {} of {length}\n", text.len());
    }
    (text.into_bytes(), fails(job).then_some("script"))
}

/// Whether its script fails.
const fn fails(job: u64) -> bool {
    job.is_multiple_of(8)
}

/// How GitLab has a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It is not over.
    Open,
    /// As it must have it.
    Ended,
    /// Handed out in an answer that was lost.
    Orphan,
}

struct Pipeline {
    id: u64,
    jobs: Vec<u64>,
}

/// One runner's jobs.
struct Line {
    number: usize,
    /// Jobs that GitLab does not have yet.
    left: usize,
    open: VecDeque<Pipeline>,
    looked: Instant,
}

/// All of them.
pub(crate) struct Feed {
    size: Size,
    lines: Vec<Line>,
    /// Jobs that ended as they must.
    pub(crate) ended: BTreeSet<u64>,
    /// Jobs that nobody has.
    pub(crate) orphans: BTreeSet<u64>,
    moved: Instant,
}

impl Feed {
    pub(crate) fn new(size: Size) -> Feed {
        let looked = Instant::now();
        let line = |number| Line {
            number,
            left: size.jobs,
            open: VecDeque::new(),
            looked: looked.checked_sub(APART).unwrap_or(looked),
        };
        Feed {
            size,
            lines: (0..size.runners).map(line).collect(),
            ended: BTreeSet::new(),
            orphans: BTreeSet::new(),
            moved: Instant::now(),
        }
    }

    /// Jobs that are over.
    pub(crate) fn over(&self) -> usize {
        self.ended.len() + self.orphans.len()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over() == self.size.all()
    }

    /// Jobs that end as failed.
    pub(crate) fn failing(&self) -> usize {
        self.ended.iter().filter(|job| fails(**job)).count()
    }

    /// Looks at the jobs, and gives runners more of them.
    pub(crate) fn go_on(&mut self, lab: &Lab) {
        let before = self.over();
        // Each runner has several.
        let batch = BATCH.min(self.size.jobs.div_ceil(3));
        let apart = if self.size.warms_up {
            APART
        } else {
            Duration::ZERO
        };
        for line in &mut self.lines {
            if line.looked.elapsed() < apart {
                continue;
            }
            line.looked = Instant::now();
            while let Some(over) = line.open.front().and_then(|first| first.over(lab)) {
                line.open.pop_front();
                for (job, stand) in over {
                    let list = match stand {
                        Stand::Orphan => &mut self.orphans,
                        Stand::Open | Stand::Ended => &mut self.ended,
                    };
                    assert!(list.insert(job), "job {job} is there twice");
                }
            }
            line.fill(lab, batch);
        }
        if self.over() > before {
            self.moved = Instant::now();
        }
        let stuck = || self.stuck(lab);
        assert!(self.moved.elapsed() < PATIENCE, "stuck: {:#?}", stuck());
    }

    /// Jobs that are not over and were handed out.
    fn stuck(&self, lab: &Lab) -> Vec<Value> {
        let open = self.lines.iter().flat_map(|line| &line.open);
        let jobs = open.flat_map(|pipeline| lab.jobs(pipeline.id));
        let stuck = jobs.filter(|job| job["status"] == "running" && job["hand_out_lost"] != true);
        stuck.take(5).collect()
    }
}

impl Line {
    /// Keeps a pipeline waiting behind the one that runs.
    fn fill(&mut self, lab: &Lab, batch: usize) {
        while self.left > 0 && self.open.back().is_none_or(|last| last.has_begun(lab)) {
            let count = self.left.min(batch);
            let jobs: Vec<Value> = (0..count).map(|at| self.job(at)).collect();
            let (id, jobs) = lab.trigger(&jobs);
            self.open.push_back(Pipeline { id, jobs });
            self.left -= count;
        }
    }

    fn job(&self, at: usize) -> Value {
        let mut job = json!({
            "name": format!("job {at}"), "script": ["true"],
            "tags": [format!("r{}", self.number)], "variables": { "FF_TIMESTAMPS": "false" },
        });
        if is_warned_of(at) {
            job["response"] = json!({ "hooks": [{ "name": "other", "script": [] }] });
        }
        job
    }
}

/// Whether the daemon warns of this one of a pipeline's jobs.
const fn is_warned_of(at: usize) -> bool {
    at.is_multiple_of(3)
}

impl Pipeline {
    fn has_begun(&self, lab: &Lab) -> bool {
        let jobs = lab.jobs(self.id);
        jobs.iter().any(|job| job["status"] != "pending")
    }

    /// Its jobs, once all of them are over.
    fn over(&self, lab: &Lab) -> Option<Vec<(u64, Stand)>> {
        let jobs = lab.jobs(self.id);
        let numbers = jobs.iter().map(|job| job["id"].as_u64().unwrap());
        assert!(numbers.eq(self.jobs.iter().copied()), "{jobs:?}");
        let stands = jobs.iter().enumerate();
        let stands = stands.map(|(at, job)| (self.jobs[at], stand(at, job)));
        let stands: Vec<_> = stands.collect();
        let is_open = stands.iter().any(|(_, stand)| *stand == Stand::Open);
        (!is_open).then_some(stands)
    }
}

/// How GitLab has a job, which is the only way in which it may.
fn stand(at: usize, job: &Value) -> Stand {
    match job["status"].as_str().unwrap() {
        "running" if job["hand_out_lost"] == true => Stand::Orphan,
        "pending" | "running" => Stand::Open,
        _ => {
            check(at, job);
            Stand::Ended
        }
    }
}

fn check(at: usize, job: &Value) {
    let (output, failure) = end(job["id"].as_u64().unwrap());
    let how = ["status", "failure_reason", "exit_code"].map(|name| job[name].clone());
    let expected = match failure {
        None => [json!("success"), Value::Null, Value::Null],
        Some(_) => [
            json!("failed"),
            json!("script_failure"),
            json!(SCRIPT_EXIT_CODE),
        ],
    };
    assert_eq!(how, expected, "{job}");
    assert_eq!(job["handed_out"], 1, "{job}");
    let preamble = if is_warned_of(at) { PREAMBLE } else { "" };
    let trace = [preamble.as_bytes(), &output].concat();
    let summed = ["trace_size", "trace_crc32", "trace_sha256"].map(|name| job[name].clone());
    let sha256 = digest(&SHA256, &trace);
    let sha256: String = sha256.as_ref().iter().map(hex).collect();
    let crc32 = format!("{:08x}", crc32fast::hash(&trace));
    assert_eq!(
        summed,
        [json!(trace.len()), json!(crc32), json!(sha256)],
        "{job}"
    );
}

fn hex(byte: &u8) -> String {
    format!("{byte:02x}")
}
