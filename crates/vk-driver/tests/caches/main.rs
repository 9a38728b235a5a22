//! Caches of whole jobs, at a real registry.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may"
)]
#![cfg(feature = "process-vmm")]

mod hostile;
mod kept;
mod machine;
mod registry;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
mod token;
mod trouble;

use serde_json::{Value, json};
use support::{Node, Ran, Started, add, spec};
use vk_driver::{Caches, JobContext};

use registry::Registry;

/// A node whose caches are at a registry of its own.
pub(crate) struct Bench {
    node: Node,
    registry: Registry,
}

impl Bench {
    pub(crate) fn new() -> Option<Bench> {
        Bench::at(Registry::open()?)
    }

    pub(crate) fn at(registry: Registry) -> Option<Bench> {
        let node = Node::new("caches")?;
        Some(Bench { node, registry })
    }

    /// What a job runs with on it.
    pub(crate) fn context(&self, job: Value) -> JobContext {
        let process = self.node.process();
        let mut context = self.node.context(process, job, self.node.job_dir());
        context.caches = Caches {
            repo: Some(format!("{}/vk", self.registry.host)),
            ..Caches::default()
        };
        context
    }

    /// Runs a job to its end.
    pub(crate) async fn run(&self, job: Value) -> Ran {
        Started::new(self.context(job)).end().await
    }

    /// Runs a job that shall succeed.
    pub(crate) async fn good(&self, job: Value) -> Ran {
        let ran = self.run(job).await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        ran
    }
}

/// A cache of the directory `deps`.
pub(crate) fn cache(key: &str) -> Value {
    json!({
        "key": key, "untracked": false, "paths": ["deps/"], "policy": "pull-push",
        "when": "on_success"
    })
}

/// A job with one cache.
pub(crate) fn cached(script: &[&str], cache: Value) -> Value {
    let mut job = spec(script);
    add(&mut job, "caches", cache);
    job
}

/// Whether a line says all of this.
pub(crate) fn says(ran: &Ran, parts: &[&str]) -> bool {
    let has = |line: &&str| parts.iter().all(|part| line.contains(part));
    ran.lines().iter().any(has)
}

#[track_caller]
pub(crate) fn assert_says(ran: &Ran, parts: &[&str]) {
    assert!(says(ran, parts), "{parts:?} in {}", ran.output);
}
