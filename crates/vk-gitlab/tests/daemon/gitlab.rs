//! GitLab's side of the runner API, as far as one daemon needs it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::server::{Reply, Seen, Watched, serve};

/// What stands in GitLab.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) seen: Vec<Seen>,
    /// Jobs that wait.
    pub(crate) queue: VecDeque<Value>,
    /// Answers to verifies; the last stays.
    pub(crate) verify: VecDeque<Reply>,
    /// Answers to job requests before the queue is looked at.
    pub(crate) requests: VecDeque<Reply>,
    /// Tokens whose job requests are refused.
    pub(crate) refused: Vec<String>,
    /// What each job was told to be, in order.
    pub(crate) states: BTreeMap<u64, Vec<Value>>,
    pub(crate) traces: BTreeMap<u64, Vec<u8>>,
    /// The word in `Job-Status`.
    pub(crate) job_status: BTreeMap<u64, &'static str>,
    /// Patches that bring bytes, and whether they are refused.
    pub(crate) patches: usize,
    pub(crate) no_traces: bool,
    /// Final states are answered with 403 and no word: the job's token has ended.
    pub(crate) no_ends: bool,
    /// A patch that brings bytes is answered with 403 and no word: the trace is too large.
    pub(crate) too_large: bool,
    /// Job requests that are being held.
    pub(crate) open: usize,
    /// Held requests are to end without a job.
    pub(crate) no_job: usize,
}

impl State {
    /// How often this was asked for.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen.iter().filter(|seen| seen.what() == what).count()
    }

    fn refuses(&self, seen: &Seen) -> bool {
        let token = seen.json()["token"].clone();
        self.refused.iter().any(|refused| token == *refused)
    }

    pub(crate) fn verifies(&self) -> usize {
        self.count(VERIFY)
    }

    pub(crate) fn is_over(&self, job: u64) -> bool {
        let states = self.states.get(&job).into_iter().flatten();
        states.into_iter().any(|one| one["state"] != "running")
    }
}

pub(crate) const VERIFY: &str = "POST /api/v4/runners/verify";
pub(crate) const REQUEST: &str = "POST /api/v4/jobs/request";

pub(crate) type GitLab = Arc<Watched<State>>;

/// What a GitLab says of a token it takes.
pub(crate) fn taken(id: u64) -> Reply {
    Reply::json(
        200,
        &json!({ "id": id, "token": "t", "token_expires_at": null }),
    )
}

/// A job of one script line.
pub(crate) fn job(id: u64) -> Value {
    json!({
        "id": id, "token": format!("glcbt-{id}"),
        "job_info": {"name": "test", "stage": "test", "project_id": 5, "project_name": "web",
            "project_full_path": "acme/web", "time_in_queue_seconds": 2.5},
        "git_info": {"repo_url": "https://gitlab.example.com/acme/web.git", "ref": "main",
            "sha": "abcdef", "ref_type": "branch"},
        "runner_info": {"timeout": 3600},
        "steps": [{"name": "script", "script": ["true"], "timeout": 3600, "when": "on_success"}],
        "image": {"name": "busybox"},
        "features": {"failure_reasons": ["script_failure", "runner_system_failure"]}
    })
}

/// Starts one; its port.
pub(crate) async fn start(tls: Option<TlsAcceptor>) -> (GitLab, u16) {
    let gitlab = Watched::new(State::default());
    let inner = Arc::clone(&gitlab);
    let port = serve(tls, move |seen| answer(Arc::clone(&inner), seen)).await;
    (gitlab, port)
}

async fn answer(gitlab: GitLab, seen: Seen) -> Reply {
    gitlab.change(|state| state.seen.push(seen.clone()));
    match seen.what().as_str() {
        VERIFY => gitlab.change(|state| match state.verify.len() {
            0 => taken(7),
            1 => state.verify[0].clone(),
            _ => state.verify.pop_front().unwrap(),
        }),
        REQUEST if gitlab.look(|state| state.refuses(&seen)) => Reply::status(403),
        REQUEST => request(&gitlab).await,
        _ => of_job(&gitlab, &seen),
    }
}

/// Held until there is a job, as Workhorse holds it.
async fn request(gitlab: &GitLab) -> Reply {
    if let Some(reply) = gitlab.change(|state| state.requests.pop_front()) {
        return reply;
    }
    gitlab.change(|state| state.open += 1);
    let reply = gitlab
        .found(|state| {
            if state.no_job > 0 {
                state.no_job -= 1;
                return Some(Reply::status(204));
            }
            let job = state.queue.pop_front()?;
            Some(Reply::json(201, &job))
        })
        .await;
    gitlab.change(|state| state.open -= 1);
    reply
}

fn of_job(gitlab: &GitLab, seen: &Seen) -> Reply {
    let rest = seen.path.strip_prefix("/api/v4/jobs/").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let job: u64 = digits.parse().unwrap();
    let expected = format!("glcbt-{job}");
    let in_body = seen.json()["token"] == expected;
    let in_header = seen.headers.get("job-token") == Some(&expected);
    if !in_body && !in_header {
        return Reply::status(403);
    }
    gitlab.change(|state| {
        let word = *state.job_status.entry(job).or_insert("running");
        if seen.method == "PUT" {
            state.states.entry(job).or_default().push(seen.json());
            if state.no_ends && seen.json()["state"] != "running" {
                return Reply::status(403);
            }
            return Reply::status(200).with("Job-Status", word);
        }
        state.patches += usize::from(!seen.body.is_empty());
        if state.too_large && !seen.body.is_empty() {
            return Reply::status(403);
        }
        if state.no_traces && !seen.body.is_empty() {
            return Reply::status(409).with("Job-Status", word);
        }
        let trace = state.traces.entry(job).or_default();
        let start: usize = seen.headers["content-range"]
            .split('-')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        if start != trace.len() {
            let range = format!("0-{}", trace.len());
            return Reply::status(416)
                .with("Range", range)
                .with("Job-Status", word);
        }
        trace.extend_from_slice(&seen.body);
        let range = format!("0-{}", trace.len());
        Reply::status(202)
            .with("Range", range)
            .with("Job-Status", word)
            .with("X-GitLab-Trace-Update-Interval", 1)
    })
}
