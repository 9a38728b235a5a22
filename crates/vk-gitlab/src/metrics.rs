//! Numbers for operators, in the OpenMetrics text form.
//!
//! What is counted is counted where it happens ([`Meter`]); what stands is asked of the loop when
//! somebody looks ([`Snapshot`]). Every label comes from the configuration, from this program's own
//! words or from HTTP's statuses; projects are named only where an operator wants it, and no more than
//! [`PROJECTS`] of them.

mod serve;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use gitlab_runner_api::response::JobInfo;
use gitlab_runner_api::{Endpoint, Observer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::state::Written;

pub use serve::serve;
pub use vk_exporter::{Listen, ListenError};

/// Projects named at most; those that come later are `other`.
const PROJECTS: usize = 200;
/// Seconds a job waited in GitLab's queue.
const QUEUE_SECONDS: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRunner {
    runner: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProject {
    runner: String,
    project: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    runner: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEndpoint {
    endpoint: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStatus {
    endpoint: &'static str,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfHubStatus {
    request: &'static str,
    status: String,
}

type Number = Gauge<f64, AtomicU64>;

/// How a runner stands at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunnerNow {
    /// Its name.
    pub name: String,
    /// Its state, in the words of the session with the hub.
    pub state: &'static str,
    /// Its jobs by phase.
    pub jobs: Vec<(&'static str, u64)>,
    /// Job requests open at GitLab.
    pub requests: u64,
    /// Bytes of its jobs' traces that GitLab does not have yet.
    pub trace_lag: u64,
    /// Ended jobs whose final state GitLab does not have yet.
    pub undelivered: u64,
    /// Seconds since GitLab last answered a job request; none before the first answer.
    pub since_poll: Option<u64>,
    /// Whether its state file could be written last time.
    pub stores: bool,
}

/// How the daemon stands at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Its runners.
    pub runners: Vec<RunnerNow>,
}

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    project_labels: bool,
    projects: Mutex<BTreeSet<String>>,
    taken: Family<OfProject, Counter>,
    queue_seconds: Family<OfRunner, Histogram, fn() -> Histogram>,
    queue_size: Family<OfRunner, Number>,
    queue_depth: Family<OfRunner, Number>,
    project_jobs: Family<OfRunner, Number>,
    requests: Family<OfStatus, Counter>,
    hub_requests: Family<OfHubStatus, Counter>,
    rate_limited: Family<OfEndpoint, Counter>,
    requests_lost: Family<OfRunner, Counter>,
    never_delivered: Family<OfRunner, Counter>,
    jobs: Family<OfState, Gauge>,
    states: Family<OfState, Gauge>,
    open_requests: Family<OfRunner, Gauge>,
    trace_lag: Family<OfRunner, Gauge>,
    undelivered: Family<OfRunner, Gauge>,
    since_poll: Family<OfRunner, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// Nothing counted yet but what the state files have cost.
    #[must_use]
    pub fn new(
        (version, revision): (&str, &str),
        project_labels: bool,
        written: &Written,
    ) -> Arc<Metrics> {
        let histogram: fn() -> Histogram = || Histogram::new(QUEUE_SECONDS);
        let mut metrics = Metrics {
            registry: Registry::with_prefix("vk_gitlab"),
            project_labels,
            projects: Mutex::default(),
            taken: Family::default(),
            queue_seconds: Family::new_with_constructor(histogram),
            queue_size: Family::default(),
            queue_depth: Family::default(),
            project_jobs: Family::default(),
            requests: Family::default(),
            hub_requests: Family::default(),
            rate_limited: Family::default(),
            requests_lost: Family::default(),
            never_delivered: Family::default(),
            jobs: Family::default(),
            states: Family::default(),
            open_requests: Family::default(),
            trace_lag: Family::default(),
            undelivered: Family::default(),
            since_poll: Family::default(),
        };
        metrics.register(version, revision);
        metrics.register_costs(written);
        Arc::new(metrics)
    }

    fn register(&mut self, version: &str, revision: &str) {
        let build = [("version", version), ("revision", revision)];
        let build = build.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let all = &mut self.registry;
        all.register("build", "What this program is", Info::new(build.to_vec()));
        all.register("jobs_taken", "Jobs GitLab handed over", self.taken.clone());
        all.register_with_unit(
            "job_queue",
            "How long a job waited in GitLab's queue before it was handed over",
            Unit::Seconds,
            self.queue_seconds.clone(),
        );
        all.register(
            "queue_size",
            "GitLab's queue for the runner, when it last handed a job over",
            self.queue_size.clone(),
        );
        all.register(
            "queue_depth",
            "How deep in GitLab's queue the last job stood",
            self.queue_depth.clone(),
        );
        all.register(
            "project_running_jobs",
            "Jobs of the last job's project on instance runners",
            self.project_jobs.clone(),
        );
        all.register(
            "requests",
            "GitLab's answers by endpoint and status, those that were tried again among them",
            self.requests.clone(),
        );
        all.register(
            "rate_limited",
            "GitLab's answers with status 429",
            self.rate_limited.clone(),
        );
        all.register(
            "job_requests_lost",
            "Job requests that got no whole answer: a job may be lost with each",
            self.requests_lost.clone(),
        );
        all.register(
            "outcomes_undelivered",
            "Final states that GitLab will never have",
            self.never_delivered.clone(),
        );
        all.register("jobs", "Jobs by how far they are", self.jobs.clone());
        all.register(
            "runner_state",
            "1 for the state the runner is in",
            self.states.clone(),
        );
        all.register(
            "open_job_requests",
            "Job requests open at GitLab",
            self.open_requests.clone(),
        );
        all.register_with_unit(
            "trace_lag",
            "Output the hub has and GitLab's traces have not",
            Unit::Bytes,
            self.trace_lag.clone(),
        );
        all.register(
            "outcomes_pending",
            "Ended jobs whose final state GitLab does not have yet",
            self.undelivered.clone(),
        );
        all.register_with_unit(
            "since_last_poll",
            "Since GitLab last answered a job request",
            Unit::Seconds,
            self.since_poll.clone(),
        );
    }

    fn register_costs(&mut self, written: &Written) {
        let all = &mut self.registry;
        all.register(
            "hub_requests",
            "Signed requests to the hub by what they asked for and the answer's status",
            self.hub_requests.clone(),
        );
        all.register(
            "state_writes",
            "State files replaced",
            written.files.clone(),
        );
        all.register(
            "state_syncs",
            "Syncs of state files and of their directory",
            written.syncs.clone(),
        );
    }

    /// Who is told of the hub's answers.
    #[must_use]
    pub fn hub_observer(self: &Arc<Metrics>) -> vk_hub_client::Observer {
        let metrics = Arc::clone(self);
        vk_hub_client::Observer::new(move |asked, status| {
            let (request, status) = (asked.name(), status_label(status));
            let of = OfHubStatus { request, status };
            metrics.hub_requests.get_or_create(&of).inc();
        })
    }

    /// Who is told of GitLab's answers.
    #[must_use]
    pub fn observer(self: &Arc<Metrics>) -> Observer {
        let metrics = Arc::clone(self);
        Observer::new(move |endpoint, status| metrics.answered(endpoint, status))
    }

    fn answered(&self, endpoint: Endpoint, status: Option<u16>) {
        let endpoint = endpoint.name();
        let status = status_label(status);
        if status == "429" {
            self.rate_limited
                .get_or_create(&OfEndpoint { endpoint })
                .inc();
        }
        self.requests
            .get_or_create(&OfStatus { endpoint, status })
            .inc();
    }

    /// A project's label, where projects have labels.
    fn project(&self, name: &str) -> Option<String> {
        if !self.project_labels {
            return None;
        }
        let mut known = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(name) {
            if known.len() >= PROJECTS {
                return Some("other".to_owned());
            }
            known.insert(name.to_owned());
        }
        Some(name.to_owned())
    }

    /// The text, with how things stand now.
    ///
    /// # Errors
    /// None that is known of: the text goes to memory.
    pub fn text(&self, now: &Snapshot) -> Result<String, fmt::Error> {
        // One at a time: what stands is set anew each time.
        let _one = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        self.jobs.clear();
        self.states.clear();
        for family in [
            &self.open_requests,
            &self.trace_lag,
            &self.undelivered,
            &self.since_poll,
        ] {
            family.clear();
        }
        for runner in &now.runners {
            self.stands(runner);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn stands(&self, now: &RunnerNow) {
        let runner = OfRunner {
            runner: now.name.clone(),
        };
        let of = |state| OfState {
            runner: now.name.clone(),
            state,
        };
        for (phase, jobs) in &now.jobs {
            self.jobs.get_or_create(&of(phase)).set(signed(*jobs));
        }
        self.states.get_or_create(&of(now.state)).set(1);
        let numbers = [
            (&self.open_requests, Some(now.requests)),
            (&self.trace_lag, Some(now.trace_lag)),
            (&self.undelivered, Some(now.undelivered)),
            (&self.since_poll, now.since_poll),
        ];
        for (family, number) in numbers {
            if let Some(number) = number {
                family.get_or_create(&runner).set(signed(number));
            }
        }
    }
}

fn status_label(status: Option<u16>) -> String {
    match status {
        Some(status @ 100..=599) => status.to_string(),
        Some(_) => "other".to_owned(),
        None => "none".to_owned(),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What counts for one runner.
#[derive(Clone, Debug)]
pub struct Meter {
    metrics: Arc<Metrics>,
    runner: String,
}

impl Meter {
    /// A runner's meter.
    #[must_use]
    pub const fn new(metrics: Arc<Metrics>, runner: String) -> Meter {
        Meter { metrics, runner }
    }

    fn runner(&self) -> OfRunner {
        OfRunner {
            runner: self.runner.clone(),
        }
    }

    /// GitLab handed a job over (SPEC-20).
    #[allow(clippy::cast_precision_loss, reason = "queues are shorter than 2^52")]
    pub(crate) fn taken(&self, job: &JobInfo) {
        let (metrics, runner) = (&self.metrics, self.runner());
        let of = OfProject {
            runner: self.runner.clone(),
            project: metrics.project(&job.project_full_path),
        };
        metrics.taken.get_or_create(&of).inc();
        if job.time_in_queue_seconds.is_finite() {
            let seconds = job.time_in_queue_seconds.max(0.0);
            metrics
                .queue_seconds
                .get_or_create(&runner)
                .observe(seconds);
        }
        metrics
            .queue_size
            .get_or_create(&runner)
            .set(job.queue_size as f64);
        metrics
            .queue_depth
            .get_or_create(&runner)
            .set(job.queue_depth as f64);
        // GitLab says `+Inf` where there are many (SPEC-78).
        if let Ok(jobs) = job
            .project_jobs_running_on_instance_runners_count
            .parse::<f64>()
        {
            metrics.project_jobs.get_or_create(&runner).set(jobs);
        }
    }

    /// A job may be lost with its request (ADM-38).
    pub(crate) fn request_lost(&self) {
        self.metrics
            .requests_lost
            .get_or_create(&self.runner())
            .inc();
    }

    /// GitLab will never have a job's final state (GL-59).
    pub(crate) fn never_delivered(&self) {
        self.metrics
            .never_delivered
            .get_or_create(&self.runner())
            .inc();
    }
}

#[cfg(test)]
mod tests;
