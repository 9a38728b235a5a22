//! Refs of pipelines that are not there yet, or never: what a slow or failed storage does.

use super::job::Job;
use super::state::{Gitlab, NotFound};

/// How long a pipeline's ref is hidden.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hidden {
    /// Until so long after the first of its jobs was handed out.
    Secs(u64),
    /// For good.
    Always,
}

impl Gitlab {
    /// Hides the ref of a pipeline, or of the next one that is made: for so many seconds from its
    /// first job's 201, or for good.
    ///
    /// # Errors
    ///
    /// There is no such pipeline.
    pub fn hide_ref(
        &mut self,
        pipeline: Option<u64>,
        secs: Option<u64>,
        now: u64,
    ) -> Result<(), NotFound> {
        let id = pipeline.unwrap_or(self.next_pipeline);
        if pipeline.is_some() && !self.pipelines.contains_key(&id) {
            return Err(NotFound::Pipeline(id));
        }
        // What is over is forgotten, so that the list stays short.
        let over: Vec<u64> = self.hidden.keys().copied().collect();
        for known in over {
            if !self.is_hidden(known, now) && self.pipelines.contains_key(&known) {
                self.hidden.remove(&known);
            }
        }
        self.hidden
            .insert(id, secs.map_or(Hidden::Always, Hidden::Secs));
        Ok(())
    }

    /// The refs that nobody may see now.
    pub fn hidden_refs(&self, now: u64) -> Vec<String> {
        let hidden = self.hidden.keys().filter(|id| self.is_hidden(**id, now));
        hidden.map(|id| format!("refs/pipelines/{id}")).collect()
    }

    fn is_hidden(&self, pipeline: u64, now: u64) -> bool {
        let jobs = self.pipelines.get(&pipeline).into_iter();
        let jobs = jobs
            .flat_map(|line| &line.jobs)
            .filter_map(|id| self.jobs.get(id));
        let first: Option<u64> = jobs.filter_map(|job: &Job| job.started_ms).min();
        match self.hidden.get(&pipeline) {
            None => false,
            Some(Hidden::Always) => true,
            Some(Hidden::Secs(secs)) => {
                let until = |at: u64| at.saturating_add(secs.saturating_mul(1_000));
                first.is_none_or(|at| now < until(at))
            }
        }
    }
}
