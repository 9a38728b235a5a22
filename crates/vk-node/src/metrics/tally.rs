//! What jobs tell of themselves, counted once: what a job tells are totals, what is counted is by
//! how much they grew.

use std::collections::BTreeMap;
use std::sync::Arc;

use vk_hub_proto::JobId;
use vk_node_core::Record;

use super::{Metrics, OfResult, word};
use crate::job::wire::Progress;

/// The last that was counted of each job.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    /// None for a job of an earlier life of the daemon, until it tells where it stands: that was
    /// counted then.
    jobs: BTreeMap<JobId, Option<Progress>>,
}

impl Tally {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Tally {
        let jobs = BTreeMap::new();
        Tally { metrics, jobs }
    }

    /// A job that was here before this daemon.
    pub(crate) fn earlier(&mut self, job: JobId) {
        self.jobs.insert(job, None);
    }

    /// A step's records.
    pub(crate) fn records(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Started(started) => {
                    self.jobs.insert(started.job, Some(Progress::default()));
                }
                Record::Finished { result, .. } => {
                    let result = result.failure.as_ref().map_or_else(success, word);
                    let of = OfResult { result };
                    self.metrics.results.get_or_create(&of).inc();
                }
                Record::Recorded { job } => {
                    self.jobs.remove(job);
                }
                _ => {}
            }
        }
    }

    /// A job told how it stands.
    pub(crate) fn progress(&mut self, job: JobId, now: &Progress) {
        let Some(known) = self.jobs.get_mut(&job) else {
            return;
        };
        let Some(before) = known.replace(now.clone()) else {
            return;
        };
        let metrics = &self.metrics;
        let grown = now.output_len.saturating_sub(before.output_len);
        metrics.output.inc_by(grown);
        if let Some(ms) = now.boot_ms.filter(|_| now.boots > before.boots) {
            // Two boots between two looks are rare, and then of about the same time.
            #[allow(clippy::cast_precision_loss, reason = "a boot is shorter than 2^52 ms")]
            let seconds = ms as f64 / 1000.0;
            for _ in before.boots..now.boots {
                metrics.boots.observe(seconds);
            }
        }
        let (caches, were) = (now.caches, before.caches);
        for (result, now, before) in [
            ("hit", caches.hits, were.hits),
            ("miss", caches.misses, were.misses),
            ("error", caches.errors, were.errors),
        ] {
            add(&metrics.cache, result, now, before);
        }
        let (pulls, were) = (now.image_pulls, before.image_pulls);
        add(&metrics.pulls, "ok", pulls.done, were.done);
        add(&metrics.pulls, "failed", pulls.failed, were.failed);
    }
}

fn success() -> String {
    "success".to_owned()
}

fn add(
    family: &prometheus_client::metrics::family::Family<
        OfResult,
        prometheus_client::metrics::counter::Counter,
    >,
    result: &str,
    now: u32,
    before: u32,
) {
    let result = result.to_owned();
    let grown = now.saturating_sub(before);
    family
        .get_or_create(&OfResult { result })
        .inc_by(grown.into());
}
