//! A hub's client API, as far as one daemon needs it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Reply, Seen, Watched, serve};

/// What stands in the hub.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) seen: Vec<Seen>,
    /// Envelopes that fit.
    pub(crate) fits: u32,
    pub(crate) revision: u64,
    pub(crate) reservations: BTreeMap<String, bool>,
    pub(crate) jobs: BTreeMap<String, Job>,
    /// Jobs wait until a node takes them.
    pub(crate) queues: bool,
    next: u64,
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

async fn answer(hub: Hub, seen: Seen) -> Reply {
    hub.change(|state| state.seen.push(seen.clone()));
    let path = seen.path.split('?').next().unwrap().to_owned();
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    match (seen.method.as_str(), &parts[..]) {
        ("POST", ["capacity"]) => capacity(&hub, &seen).await,
        ("POST", ["reservations"]) => hub.change(|state| {
            let id = state.id();
            state.reservations.insert(id.clone(), true);
            Reply::json(201, &grant(&id, &seen.json()))
        }),
        ("POST", ["reservations", id, "renew"]) => Reply::json(200, &grant(id, &seen.json())),
        ("DELETE", ["reservations", id]) => {
            hub.change(|state| state.reservations.insert((*id).to_owned(), false));
            Reply::status(204)
        }
        ("POST", ["jobs"]) => hub.change(|state| {
            let asked = seen.json()["request_id"].clone();
            let mut jobs = state.jobs.iter();
            if let Some((id, job)) = jobs.find(|(_, job)| job.submission["request_id"] == asked) {
                return Reply::json(201, &view(id, job));
            }
            let id = state.id();
            let job = Job {
                submission: seen.json(),
                revision: 1,
                state: if state.queues { "queued" } else { "running" },
                failure: None,
                output: Vec::new(),
                settled: false,
            };
            let view = view(&id, &job);
            state.jobs.insert(id, job);
            Reply::json(201, &view)
        }),
        ("GET", ["jobs", id]) => job_view(&hub, id, &seen).await,
        ("GET", ["jobs", id, "output"]) => output(&hub, id, &seen).await,
        ("POST", ["jobs", id, "settle"]) => hub.change(|state| {
            state.jobs.get_mut(*id).unwrap().settled = true;
            Reply::status(204)
        }),
        ("POST", ["jobs", id, "cancel"]) => hub.change(|state| {
            state.finish_all("");
            Reply::json(202, &view(id, &state.jobs[*id]))
        }),
        other => panic!("{other:?}"),
    }
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
        Reply {
            body: job.output[offset..].to_vec(),
            ..Reply::status(200)
        }
        .with("vk-output-offset", offset)
        .with("vk-output-length", job.output.len())
        .with("vk-output-complete", job.state == "finished")
    })
}
