//! Cancelling (section 6): gracefully where the manager can, at once where it cannot.

use super::job::Status;
use super::state::{Gitlab, NotFound};

impl Gitlab {
    /// Cancels a job; `force` also ends one that is already being cancelled.
    ///
    /// # Errors
    ///
    /// There is no such job.
    pub fn cancel(&mut self, id: u64, force: bool, now: u64) -> Result<Status, NotFound> {
        let job = self.jobs.get(&id).ok_or(NotFound::Job(id))?;
        let graceful = self.can_cancel_gracefully(id);
        let (asked, ended) = (job.canceled_ms.unwrap_or(now), job.status.is_final());
        match job.status {
            Status::Running if graceful && !force => self.set_canceling(id, now),
            Status::Canceling if !force => {}
            status if status.is_final() => {}
            _ => self.finish(id, Status::Canceled, None, now),
        }
        if let Some(job) = self.jobs.get_mut(&id).filter(|_| !ended) {
            job.canceled_ms = Some(asked);
        }
        self.job(id).map(|job| job.status).ok_or(NotFound::Job(id))
    }

    fn set_canceling(&mut self, id: u64, now: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.status = Status::Canceling;
            job.updated_ms = now;
        }
    }

    fn can_cancel_gracefully(&self, id: u64) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        let runner = self
            .runners
            .iter()
            .find(|runner| Some(runner.id) == job.runner);
        let manager = runner
            .zip(job.manager.as_ref())
            .and_then(|(r, m)| r.managers.get(m));
        manager.is_some_and(|manager| manager.info.has("cancel_gracefully"))
    }
}
