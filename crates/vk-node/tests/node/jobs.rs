//! Job processes as the daemon finds, starts and follows them.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use vk_hub_proto::JobId;
use vk_hub_proto::job::FailureClass;
use vk_node::job::attend::{Attendant, News, Orders};
use vk_node::job::directory::{JobDir, Plan};
use vk_node::job::spawn::{Spawned, spawn};
use vk_node_core::io::RunPlan;
use vk_node_core::{By, JobEvent, Stop};

use crate::gate::Gate;
use crate::scripted::{TOKEN, program, start};

struct Bench {
    dir: TempDir,
    job: JobDir,
}

struct Followed {
    orders: watch::Sender<Orders>,
    news: mpsc::Receiver<News>,
    events: std::collections::VecDeque<JobEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let job = JobId::from_bytes([7; 16]);
        let job = JobDir::new(job, dir.path().join(job.to_string()));
        Bench { dir, job }
    }

    fn gate(&self, name: &str) -> Gate {
        Gate::new(self.dir.path(), name)
    }

    fn create(&self, script: &[&str]) {
        let script: Vec<_> = script.iter().map(|&line| line.to_owned()).collect();
        let json = serde_json::to_vec(&start(7, &script)).unwrap();
        self.job.create(&json).unwrap();
    }

    fn spawn(&self) -> Spawned {
        let plan = Plan {
            v: 1,
            job: self.job.job(),
            run: RunPlan {
                slot: 0,
                project_slot: 0,
                cpus: 1,
                mem_mib: 512,
                disk_bytes: 1 << 30,
                warnings: Vec::new(),
            },
            settings: serde_json::Value::Null,
            past_runs: Some(self.dir.path().join("history")),
        };
        spawn(&self.job, &plan, &program()).unwrap()
    }

    fn follow(&self, orders: Orders, spawned: Option<Spawned>) -> Followed {
        let (send, read) = watch::channel(orders);
        let (tell, news) = mpsc::channel(16);
        let attendant = Attendant::new(self.job.clone(), read, tell);
        Followed {
            orders: send,
            news,
            events: std::collections::VecDeque::new(),
            task: tokio::spawn(attendant.follow(spawned)),
        }
    }
}

impl Followed {
    /// The next event that is not of stages and guests.
    async fn next(&mut self) -> JobEvent {
        loop {
            match self.events.pop_front() {
                Some(JobEvent::Stage { .. } | JobEvent::Guest(_)) => {}
                Some(event) => return event,
                None => {
                    let next = tokio::time::timeout(Duration::from_secs(60), self.news.recv());
                    self.events.extend(next.await.unwrap().unwrap().events);
                }
            }
        }
    }

    /// Waits until the output has this many bytes.
    async fn output(&mut self, len: u64) {
        loop {
            match self.next().await {
                JobEvent::Alive { output_len: has } | JobEvent::Output { len: has } => {
                    if has >= len {
                        return;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    async fn result(&mut self) -> (Option<FailureClass>, u64) {
        loop {
            match self.next().await {
                JobEvent::Result(result) => return (result.failure, result.output_len),
                JobEvent::Alive { .. } | JobEvent::Output { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

const GRANTED: Orders = Orders {
    granted: true,
    denied: None,
    stop: None,
};

/// How long the output of a process that is gone is, and how it ended.
fn ended(event: &JobEvent) -> (u64, By) {
    match event {
        JobEvent::Ended { output_len, death } => (*output_len, death.by),
        other => panic!("{other:?}"),
    }
}

/// The pid a job said as its first line.
fn pid(job: &JobDir) -> Pid {
    let said = std::fs::read_to_string(job.output()).unwrap();
    let first = said.lines().next().unwrap();
    Pid::from_raw(first.parse().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_result_once_it_has_what_it_asked_for() {
    let bench = Bench::new();
    bench.create(&["say hello", "exit 3"]);
    let spawned = bench.spawn();
    assert!(matches!(spawned, Spawned::Started(_)));
    let mut job = bench.follow(Orders::default(), Some(spawned));
    assert_eq!(job.next().await, JobEvent::Alive { output_len: 0 });
    assert!(bench.job.began());
    job.orders.send_modify(|orders| orders.granted = true);
    assert_eq!(job.result().await, (Some(FailureClass::Script), 6));
    job.task.await.unwrap();
    assert!(matches!(bench.spawn(), Spawned::Before));
    // Found again, by another daemon: over.
    let mut again = bench.follow(GRANTED, None);
    assert_eq!(again.result().await, (Some(FailureClass::Script), 6));
    assert_eq!(std::fs::read(bench.job.output()).unwrap(), b"hello\n");
}

/// FAIL-34, FAIL-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_goes_on_while_nobody_follows_it_and_is_found_again() {
    let bench = Bench::new();
    let (first, second) = (bench.gate("1"), bench.gate("2"));
    bench.create(&[
        "say one",
        &first.line(),
        "say two",
        &second.line(),
        "say three",
    ]);
    let spawned = bench.spawn();
    let mut job = bench.follow(GRANTED, Some(spawned));
    job.output(4).await;
    let standing = first.reached();
    job.task.abort();
    standing.open();
    let standing = second.reached();
    let mut again = bench.follow(GRANTED, None);
    assert_eq!(again.next().await, JobEvent::Alive { output_len: 8 });
    assert!(matches!(bench.spawn(), Spawned::Before));
    standing.open();
    assert_eq!(again.result().await, (None, 14));
}

/// FAIL-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_job_process_has_ended_and_never_runs_again() {
    let bench = Bench::new();
    let gate = bench.gate("1");
    bench.create(&["pid", &gate.line(), "say more"]);
    let spawned = bench.spawn();
    let mut job = bench.follow(GRANTED, Some(spawned));
    let standing = gate.reached();
    kill_process(pid(&bench.job), Signal::KILL).unwrap();
    let output_len = bench.job.output_len();
    loop {
        let event = job.next().await;
        if !matches!(event, JobEvent::Alive { .. } | JobEvent::Output { .. }) {
            let by = By::Signal { signal: 9 };
            break assert_eq!(ended(&event), (output_len, by));
        }
    }
    drop(standing);
    assert!(matches!(bench.spawn(), Spawned::Before));
    let mut again = bench.follow(GRANTED, None);
    // Whose child it was not saw nothing of its end.
    assert_eq!(ended(&again.next().await), (output_len, By::Unseen));
}

/// DISP-41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_process_never_began_is_told_from_one_that_died() {
    let bench = Bench::new();
    bench.create(&[]);
    let mut job = bench.follow(GRANTED, None);
    assert_eq!(job.next().await, JobEvent::NotStarted);
    bench.job.mark_began().unwrap();
    let mut job = bench.follow(GRANTED, None);
    assert_eq!(ended(&job.next().await), (0, By::Unseen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_given_while_nobody_listens_is_told_when_somebody_does() {
    let bench = Bench::new();
    let gate = bench.gate("1");
    bench.create(&[&gate.line(), "say never"]);
    let spawned = bench.spawn();
    let job = bench.follow(GRANTED, Some(spawned));
    let _standing = gate.reached();
    job.task.abort();
    let orders = Orders {
        stop: Some(Stop::Immediate),
        ..GRANTED
    };
    let mut again = bench.follow(orders, None);
    assert_eq!(again.result().await, (Some(FailureClass::Canceled), 0));
}

/// FAIL-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stops_interrupts_its_jobs() {
    let bench = Bench::new();
    let gate = bench.gate("1");
    bench.create(&["pid", &gate.line(), "say never"]);
    let spawned = bench.spawn();
    let mut job = bench.follow(GRANTED, Some(spawned));
    let _standing = gate.reached();
    kill_process(pid(&bench.job), Signal::TERM).unwrap();
    assert_eq!(job.result().await.0, Some(FailureClass::Interrupted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_be_run_ends_with_the_reason_in_its_trace() {
    let bench = Bench::new();
    bench.create(&["say begun", "broken"]);
    let spawned = bench.spawn();
    let mut job = bench.follow(GRANTED, Some(spawned));
    let (failure, len) = job.result().await;
    let output = std::fs::read_to_string(bench.job.output()).unwrap();
    assert_eq!(
        (failure, len),
        (Some(FailureClass::System), output.len() as u64)
    );
    assert!(output.starts_with("begun\n") && output.contains("the scripted job is broken"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_a_job_processs_arguments_or_environment_and_it_has_a_session_of_its_own() {
    let bench = Bench::new();
    let gate = bench.gate("1");
    bench.create(&["pid", &gate.line()]);
    let spawned = bench.spawn();
    let job = bench.follow(GRANTED, Some(spawned));
    let standing = gate.reached();
    let pid = pid(&bench.job);
    let proc = Path::new("/proc").join(pid.to_string());
    let shown = |name: &str| {
        let bytes = std::fs::read(proc.join(name)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(
        std::fs::read_to_string(bench.job.path().join("start.json"))
            .unwrap()
            .contains(TOKEN)
    );
    assert!(!shown("cmdline").contains(TOKEN) && !shown("environ").contains(TOKEN));
    assert!(
        !std::fs::read_to_string(bench.job.path().join("plan.json"))
            .unwrap()
            .contains(TOKEN)
    );
    assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid);
    // What it starts inherits neither its lock nor its socket.
    for fd in ["0", "1"] {
        let target = std::fs::read_link(proc.join("fd").join(fd)).unwrap();
        assert_eq!(target, Path::new("/dev/null"));
    }
    standing.open();
    drop(job);
}
