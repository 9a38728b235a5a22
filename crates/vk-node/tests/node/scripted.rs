//! Jobs that do what their script's lines say, in processes of this test program.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, watch};
use vk_hub_proto::JobId;
use vk_hub_proto::dispatch::{GuestSize, HubJobMessage};
use vk_hub_proto::job::{FailureClass, JobResult, JobSpec, JobUsage, Step};
use vk_hub_proto::node_session::HubMessage;
use vk_node::job::process::{self, Assignment, Order, RunError, Runner, Running};
use vk_node::job::spawn::JobProgram;
use vk_node::job::wire::Progress;
use vk_node_core::Stop;

use crate::gate;

/// A token that must be nowhere but in the start message's file.
pub const TOKEN: &str = "t0ken-of-this-job";
pub const REGISTRY_TOKEN: &str = "t0ken-for-its-registry";

/// The program of scripted jobs.
pub fn program() -> JobProgram {
    let passed = [
        ("VK_TEST_BOOT_ID", "VK_TEST_BOOT_ID"),
        ("VK_TEST_JOB_WIRE_VERSIONS", "VK_TEST_WIRE_VERSIONS"),
    ];
    let passed = passed
        .into_iter()
        .filter_map(|(from, to)| Some((to.into(), std::env::var_os(from)?)));
    let arguments = ["--exact", "scripted::job_process", "--nocapture"];
    JobProgram {
        program: std::env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).to_vec(),
        environment: passed.collect(),
    }
}

/// No test: what [`program`] starts.
#[test]
fn job_process() {
    let dir = std::env::args().next_back().map(PathBuf::from);
    let is_job = |dir: &PathBuf| dir.join("plan.json").exists();
    if let Some(dir) = dir.filter(is_job) {
        process::run(&dir, || Ok(Box::new(Scripted))).unwrap();
    }
}

/// A start message with this script.
pub fn start(number: u8, script: &[String]) -> HubJobMessage {
    let json = include_str!("../../../vk-hub-proto/tests/golden/start_without_reservation.json");
    let HubMessage::Job(HubJobMessage::Start {
        envelope, mut spec, ..
    }) = serde_json::from_str(json).unwrap()
    else {
        panic!("not a start")
    };
    let JobSpec::GitlabCi(job) = &mut spec;
    job.job.id = number.into();
    job.token = vk_hub_proto::Secret::from(TOKEN);
    let step = serde_json::json!({
        "name": "script", "script": script, "timeout_secs": 60, "when": "on_success",
        "allow_failure": false
    });
    job.steps = vec![serde_json::from_value::<Step>(step).unwrap()];
    HubJobMessage::Start {
        job: JobId::from_bytes([number; 16]),
        reservation: None,
        envelope,
        spec,
        registry: None,
    }
}

struct Scripted;

impl Runner for Scripted {
    fn run(
        self: Box<Self>,
        job: Assignment,
        orders: mpsc::Receiver<Order>,
        progress: watch::Sender<Progress>,
    ) -> Running {
        Box::pin(run(job, orders, progress))
    }
}

async fn run(
    job: Assignment,
    mut orders: mpsc::Receiver<Order>,
    progress: watch::Sender<Progress>,
) -> Result<JobResult, RunError> {
    let mut failure = loop {
        match orders.recv().await {
            Some(Order::Grant) => break None,
            Some(Order::Deny(_)) => break Some(FailureClass::System),
            Some(Order::Stop(how)) => break Some(stopped(how)),
            None => std::future::pending().await,
        }
    };
    let mut exit_code = None;
    let mut usage = None;
    let lines = job.spec.steps.iter().flat_map(|step| step.script.clone());
    for line in lines {
        if failure.is_some() {
            break;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "say" => say(&job.dir, &progress, rest),
            "registry" => {
                let token = job.registry.clone().unwrap();
                assert_eq!(token.token.expose(), REGISTRY_TOKEN);
                let left = token.expires_at - std::time::Instant::now();
                let of = token.cache_repository.unwrap();
                say(
                    &job.dir,
                    &progress,
                    &format!("{of} {}", left.as_secs() / 7_000),
                );
            }
            "pid" => say(&job.dir, &progress, &std::process::id().to_string()),
            "leave" => {
                // As a git of a job's: in a group of its own.
                let mut left = tokio::process::Command::new("sleep");
                let left = left.arg("600").process_group(0).spawn().unwrap();
                say(&job.dir, &progress, &left.id().unwrap().to_string());
            }
            "broken" => return Err("the scripted job is broken".into()),
            "boot" => progress.send_modify(|progress| {
                progress.boot_ms = Some(41);
                progress.boots += 1;
                progress.caches.misses += 1;
                progress.vmm = Some("scripted".to_owned());
                progress.guest = Some(GuestSize {
                    cpus: 2,
                    mem_mib: 512,
                });
                progress.stage = Some("step_script".to_owned());
            }),
            "gate" => {
                let path = rest.to_owned();
                let passing = tokio::task::spawn_blocking(move || gate::pass(&path));
                failure = pass(passing, &mut orders).await;
            }
            "used" => {
                usage = Some(JobUsage {
                    peak_mem_bytes: Some(rest.parse::<u64>().unwrap() << 20),
                    ..JobUsage::default()
                });
            }
            "exit" => {
                exit_code = Some(rest.parse().unwrap());
                failure = Some(FailureClass::Script);
            }
            other => panic!("{other}"),
        }
    }
    let output_len = std::fs::metadata(job.dir.join("output")).map_or(0, |of| of.len());
    let result = JobResult {
        failure,
        exit_code,
        message: None,
        output_len,
        artifacts: Vec::new(),
        usage,
    };
    vk_node::durable::write_private(&job.dir.join("result.json"), &serde_json::to_vec(&result)?)?;
    Ok(result)
}

async fn pass(
    mut passing: tokio::task::JoinHandle<()>,
    orders: &mut mpsc::Receiver<Order>,
) -> Option<FailureClass> {
    loop {
        tokio::select! {
            _ = &mut passing => return None,
            Some(order) = orders.recv() => match order {
                Order::Grant => {}
                Order::Deny(_) => return Some(FailureClass::System),
                Order::Stop(how) => return Some(stopped(how)),
            },
        }
    }
}

fn stopped(how: Stop) -> FailureClass {
    match how {
        Stop::Interrupt => FailureClass::Interrupted,
        Stop::Graceful | Stop::Immediate => FailureClass::Canceled,
    }
}

fn say(dir: &Path, progress: &watch::Sender<Progress>, text: &str) {
    let mut output = OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("output"))
        .unwrap();
    output.write_all(format!("{text}\n").as_bytes()).unwrap();
    let len = output.metadata().unwrap().len();
    progress.send_modify(|progress| progress.output_len = len);
}
