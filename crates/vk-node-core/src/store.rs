//! A journal that cannot be written, and what is made up for when it can again.

use crate::NodeCore;
use crate::core::Out;
use crate::io::{Effect, Record};
use crate::jobs::Cancel;

impl NodeCore {
    /// Keeps what could not be kept, and goes on where the core stopped deciding.
    pub(crate) fn store_works(&mut self, out: &mut Out) {
        if self.store_failed.take().is_none() {
            return;
        }
        let jobs: Vec<_> = self.jobs.keys().copied().collect();
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if let Some(Cancel { mode, kept: false }) = job.cancel {
                job.cancel = Some(Cancel { mode, kept: true });
                out.record(Record::Cancelled { job: id, mode });
            }
            if let Some(result) = job.unkept.take() {
                self.finish(id, result, out);
            } else {
                self.close_if_known(id, out);
            }
        }
        for id in &self.removing {
            out.effect(Effect::Remove { job: *id });
        }
        self.grant_waiting(out);
    }
}
