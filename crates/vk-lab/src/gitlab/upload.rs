//! Artifacts going up and down (sections 2.9 and 2.10): who may, and what is kept.

use super::artifact::{self, Artifact, Stored};
use super::job::Job;
use super::ledger::Channel;
use super::limits::JobRate;
use super::reply::Reply;
use super::state::Gitlab;

impl Gitlab {
    /// Authentication of an upload, before its first byte and once more after its last.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn authorize_upload(
        &mut self,
        id: u64,
        token: &str,
        begun: u64,
        lost: bool,
        now: u64,
    ) -> Result<(), Reply> {
        self.note_call(id, Channel::Transfer, begun, None);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.counts.transfers += 1;
        }
        self.throttle_job(id, token, JobRate::Other, 2, now)?;
        self.upload_allowed(id, token, lost, now)?;
        if !self.settings.artifacts_enabled {
            return Err(Reply::message(405, "405 Method Not Allowed"));
        }
        Ok(())
    }

    fn upload_allowed(&mut self, id: u64, token: &str, lost: bool, now: u64) -> Result<(), Reply> {
        let allowed = self.authorize(id, token, false, now);
        if allowed.is_err() {
            self.note_end(id, Channel::Transfer, None, lost);
        }
        allowed
    }

    /// Takes an upload whose bytes have all come. Whether its file is to be kept.
    pub fn finish_upload(
        &mut self,
        id: u64,
        token: &str,
        format: &str,
        upload: Artifact,
        lost: bool,
        now: u64,
    ) -> (Reply, bool) {
        if let Err(reply) = self.upload_allowed(id, token, lost, now) {
            return (reply, false);
        }
        match artifact::format_of(&upload.kind) {
            None => {
                return (
                    Reply::invalid("artifact_type does not have a valid value"),
                    false,
                );
            }
            Some(right) if right != format => {
                return (
                    Reply::message(400, "400 Bad request - Invalid format"),
                    false,
                );
            }
            Some(_) => {}
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return (Reply::forbidden(None), false);
        };
        match artifact::judge(&job.artifacts, &upload) {
            Stored::Same => (Reply::digits(201), false),
            Stored::Different => {
                let text = "400 Bad request - another artifact of the same type already exists";
                (Reply::message(400, text), false)
            }
            Stored::New => {
                job.counts.bytes_in += upload.size;
                job.artifacts.push(upload);
                (Reply::digits(201), true)
            }
        }
    }

    /// The archive of job `id` for whoever shows `token`.
    ///
    /// # Errors
    ///
    /// 401 for a token of no running job, 403 for another project's job, 404 without an archive.
    pub fn download(&mut self, id: u64, token: &str, now: u64) -> Result<Artifact, Reply> {
        let Some(asking) = self.running_job_of(token, now).map(|job| job.id) else {
            return Err(Reply::message(401, "401 Unauthorized"));
        };
        self.throttle_job(asking, token, JobRate::Other, 1, now)?;
        if let Some(job) = self.jobs.get_mut(&asking) {
            job.counts.transfers += 1;
        }
        let asking = self
            .jobs
            .get(&asking)
            .ok_or_else(|| Reply::forbidden(None))?;
        let project = |job: &Job| self.project_of(job).map(|project| project.id);
        let job = self
            .jobs
            .get(&id)
            .filter(|job| project(job) == project(asking));
        let Some(job) = job else {
            return Err(Reply::forbidden(None));
        };
        let archive = job
            .artifacts
            .iter()
            .find(|artifact| artifact.kind == "archive");
        archive
            .filter(|_| !job.erased)
            .cloned()
            .ok_or_else(|| Reply::message(404, "404 Not Found"))
    }
}
