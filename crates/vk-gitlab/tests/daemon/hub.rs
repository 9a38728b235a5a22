//! A hub's client API, as far as one daemon needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use vk_hub_proto::limit::OUTPUT_ANSWER_BYTES;

use crate::server::{Reply, Seen, Watched, serve};

/// What scripts that fail exit with.
pub(crate) const SCRIPT_EXIT_CODE: i32 = 3;

/// What stands in the hub.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) seen: Vec<Seen>,
    /// Envelopes that fit.
    pub(crate) fits: u32,
    pub(crate) revision: u64,
    /// Those that were granted and neither given back nor used for a job.
    pub(crate) reservations: BTreeSet<String>,
    pub(crate) jobs: BTreeMap<String, Job>,
    /// A submission is taken and answered 503, and the next one of the same job has another body.
    pub(crate) conflicts: bool,
    /// Jobs wait until a node takes them.
    pub(crate) queues: bool,
    /// Every request is refused with 401; how many were.
    pub(crate) unauthorized: bool,
    pub(crate) refused: usize,
    /// What its clock says then; none where the server's own is to speak.
    pub(crate) date: Option<&'static str>,
    /// Jobs end by themselves.
    pub(crate) at_once: Option<AtOnce>,
    next: u64,
}

/// Each job ends as soon as the hub has it, and is forgotten once it is settled: for more jobs than
/// are looked at one by one. What came is not kept either.
#[derive(Debug)]
pub(crate) struct AtOnce {
    /// What the job of this number in GitLab says, and the class of its failure.
    pub(crate) end: fn(u64) -> (Vec<u8>, Option<&'static str>),
    /// How often each job came, by its number in GitLab.
    pub(crate) came: BTreeMap<u64, u32>,
    /// Jobs that were settled.
    pub(crate) settled: BTreeSet<u64>,
}

/// A job the hub was given.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) submission: Value,
    pub(crate) revision: u64,
    pub(crate) state: &'static str,
    pub(crate) output: Vec<u8>,
    pub(crate) failure: Option<&'static str>,
    pub(crate) settled: bool,
}

impl Job {
    /// Its number in GitLab.
    fn number(&self) -> u64 {
        self.submission["spec"]["job"]["id"].as_u64().unwrap()
    }
}

impl State {
    fn id(&mut self) -> String {
        self.next += 1;
        format!("{:032x}", self.next)
    }

    /// Ends every job that runs, with this output.
    pub(crate) fn finish_all(&mut self, output: &str) {
        for job in self.jobs.values_mut().filter(|job| job.state != "finished") {
            job.output = output.as_bytes().to_vec();
            job.state = "finished";
            job.revision += 1;
        }
    }

    /// Ends every job that runs with a failure of this class.
    pub(crate) fn fail_all(&mut self, class: &'static str) {
        for job in self.jobs.values_mut().filter(|job| job.state != "finished") {
            job.failure = Some(class);
        }
        self.finish_all("");
    }

    /// Ends a job that has just come, where jobs end by themselves. Whoever gave it is told that it
    /// runs, and learns of the end as of any other.
    fn end_at_once(&mut self, id: &str) {
        let (Some(at_once), Some(job)) = (&mut self.at_once, self.jobs.get_mut(id)) else {
            return;
        };
        let number = job.number();
        *at_once.came.entry(number).or_default() += 1;
        (job.output, job.failure) = (at_once.end)(number);
        job.state = "finished";
        job.revision += 1;
    }

    fn settle(&mut self, id: &str) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.settled = true;
        }
        if let Some(at_once) = &mut self.at_once
            && let Some(job) = self.jobs.remove(id)
        {
            at_once.settled.insert(job.number());
        }
    }

    /// A node takes every job that waits.
    pub(crate) fn accept_all(&mut self) {
        for job in self.jobs.values_mut().filter(|job| job.state == "queued") {
            job.state = "running";
            job.revision += 1;
        }
    }

    /// Whether a job has been looked at since it was submitted.
    pub(crate) fn follows(&self) -> bool {
        let mut seen = self.seen.iter();
        seen.any(|seen| seen.method == "GET" && seen.path.starts_with("/v1/jobs/"))
    }

    pub(crate) fn running(&self) -> usize {
        self.jobs
            .values()
            .filter(|job| job.state == "running")
            .count()
    }
}

pub(crate) type Hub = Arc<Watched<State>>;

/// One in which jobs end by themselves, and so many envelopes fit.
#[allow(
    dead_code,
    reason = "for many jobs through the built daemon (tests/soak)"
)]
pub(crate) fn at_once(fits: u32, end: fn(u64) -> (Vec<u8>, Option<&'static str>)) -> Hub {
    let at_once = AtOnce {
        end,
        came: BTreeMap::new(),
        settled: BTreeSet::new(),
    };
    Watched::new(State {
        fits,
        revision: 1,
        at_once: Some(at_once),
        ..State::default()
    })
}

/// One in which jobs wait until they are taken, and so many envelopes fit.
#[allow(dead_code, reason = "for the built daemon (tests/soak)")]
pub(crate) fn queueing(fits: u32) -> Hub {
    Watched::new(State {
        fits,
        revision: 1,
        queues: true,
        ..State::default()
    })
}

/// Starts one with room; its port.
pub(crate) async fn start() -> (Hub, u16) {
    let hub = Watched::new(State {
        fits: 8,
        revision: 1,
        ..State::default()
    });
    let inner = Arc::clone(&hub);
    let port = serve(None, move |seen| answer(Arc::clone(&inner), seen)).await;
    (hub, port)
}

pub(crate) async fn answer(hub: Hub, seen: Seen) -> Reply {
    if hub.look(|state| state.at_once.is_none()) {
        hub.change(|state| state.seen.push(seen.clone()));
    }
    if hub.look(|state| state.unauthorized) {
        hub.change(|state| state.refused += 1);
        let reply = Reply::json(401, &json!({ "error": "no", "code": "unauthorized" }));
        return match hub.look(|state| state.date) {
            Some(date) => reply.with("date", date),
            None => reply,
        };
    }
    let path = seen.path.split('?').next().unwrap().to_owned();
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    match (seen.method.as_str(), &parts[..]) {
        ("POST", ["capacity"]) => capacity(&hub, &seen).await,
        ("POST", ["reservations"]) => hub.change(|state| {
            let id = state.id();
            state.reservations.insert(id.clone());
            Reply::json(201, &grant(&id, &seen.json()))
        }),
        ("POST", ["reservations", id, "renew"]) => Reply::json(200, &grant(id, &seen.json())),
        ("DELETE", ["reservations", id]) => {
            hub.change(|state| state.reservations.remove(*id));
            Reply::status(204)
        }
        ("POST", ["jobs"]) => hub.change(|state| {
            let submission = seen.json();
            let asked = submission["request_id"].clone();
            let mut jobs = state.jobs.iter();
            if let Some((id, job)) = jobs.find(|(_, job)| job.submission["request_id"] == asked) {
                return match state.conflicts {
                    true => Reply::json(409, &conflict(id)),
                    false => Reply::json(201, &view(id, job)),
                };
            }
            let id = state.id();
            if let Some(used) = submission["reservation"].as_str() {
                state.reservations.remove(used);
            }
            let job = Job {
                submission,
                revision: 1,
                state: if state.queues { "queued" } else { "running" },
                failure: None,
                output: Vec::new(),
                settled: false,
            };
            let view = view(&id, &job);
            state.jobs.insert(id.clone(), job);
            state.end_at_once(&id);
            match state.conflicts {
                true => Reply::json(503, &json!({ "error": "busy", "code": "unavailable" })),
                false => Reply::json(201, &view),
            }
        }),
        ("GET", ["jobs", id]) => job_view(&hub, id, &seen).await,
        ("GET", ["jobs", id, "output"]) => output(&hub, id, &seen).await,
        ("POST", ["jobs", id, "settle"]) => hub.change(|state| {
            state.settle(id);
            Reply::status(204)
        }),
        ("POST", ["jobs", id, "cancel"]) => hub.change(|state| {
            state.finish_all("");
            Reply::json(202, &view(id, &state.jobs[*id]))
        }),
        other => panic!("{other:?}"),
    }
}

fn conflict(job: &str) -> Value {
    json!({ "error": "this request_id came before with another body", "code": "conflict", "job": job })
}

fn grant(id: &str, asked: &Value) -> Value {
    json!({ "reservation": id, "node": format!("{:032x}", 1), "lease_secs": asked["lease_secs"],
        "envelope": { "mem_mib": 4096, "cpus": 2, "disk_bytes": 1 << 30 } })
}

async fn capacity(hub: &Hub, seen: &Seen) -> Reply {
    let after = seen.json()["after"].as_u64();
    let now = hub.found(|state| {
        after
            .is_none_or(|after| state.revision > after)
            .then_some((state.revision, state.fits))
    });
    let held = tokio::time::timeout(Duration::from_secs(60), now).await;
    let (revision, fits) = held.unwrap_or((after.unwrap_or(0), 0));
    Reply::json(200, &json!({ "revision": revision, "fits": fits }))
}

fn view(id: &str, job: &Job) -> Value {
    let mut view = json!({ "id": id, "revision": job.revision, "state": job.state,
        "node": format!("{:032x}", 1), "output_len": job.output.len() });
    if job.state == "finished" {
        view["result"] = json!({ "output_len": job.output.len() });
        if let Some(class) = job.failure {
            view["result"]["failure"] = class.into();
            if class == "script" {
                view["result"]["exit_code"] = SCRIPT_EXIT_CODE.into();
            }
        }
    }
    view
}

fn query(seen: &Seen, name: &str) -> Option<u64> {
    let (_, query) = seen.path.split_once('?')?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    value.parse().ok()
}

async fn job_view(hub: &Hub, id: &str, seen: &Seen) -> Reply {
    let after = query(seen, "after");
    let wait = Duration::from_secs(query(seen, "wait").unwrap_or(0));
    let changed = hub.found(|state| {
        let job = &state.jobs[id];
        after.is_none_or(|after| job.revision > after).then_some(())
    });
    let _ = tokio::time::timeout(wait, changed).await;
    hub.look(|state| Reply::json(200, &view(id, &state.jobs[id])))
}

async fn output(hub: &Hub, id: &str, seen: &Seen) -> Reply {
    let offset = usize::try_from(query(seen, "offset").unwrap()).unwrap();
    let wait = Duration::from_secs(query(seen, "wait").unwrap_or(0));
    let more = hub.found(|state| {
        let job = &state.jobs[id];
        (job.output.len() > offset || job.state == "finished").then_some(())
    });
    let _ = tokio::time::timeout(wait, more).await;
    hub.look(|state| {
        let job = &state.jobs[id];
        if offset > job.output.len() {
            return Reply::status(416).with("vk-output-length", job.output.len());
        }
        let end = job.output.len().min(offset + OUTPUT_ANSWER_BYTES);
        let complete = job.state == "finished" && end == job.output.len();
        Reply {
            body: job.output[offset..end].to_vec(),
            ..Reply::status(200)
        }
        .with("vk-output-offset", offset)
        .with("vk-output-length", job.output.len())
        .with("vk-output-complete", complete)
    })
}
