//! Clients' requests: who may ask what of which job, and the simple answers.

use vk_hub_proto::JobId;
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::job::Job;
use crate::request::Asker;
use crate::submit::Submit;
use crate::wait::{Wait, no_such_job};
use crate::{Answer, Principal, Refusal, Request};

impl Fleet {
    pub(crate) fn on_request(&mut self, now: Now, asker: Asker, request: Request, out: &mut Out) {
        let Asker { to, by } = asker;
        match request {
            Request::Capacity(request) => self.on_capacity(now, to, &request, out),
            Request::Reserve {
                request,
                digest,
                fresh,
            } => self.on_reserve(now, asker, &request, digest, fresh, out),
            Request::Renew {
                reservation,
                request,
            } => self.on_renew(now, asker, reservation, request, out),
            Request::Release { reservation } => self.on_release(asker, reservation, out),
            Request::Submit {
                submission,
                digest,
                spec_bytes,
                fresh,
            } => {
                let asked = Submit {
                    submission: *submission,
                    digest,
                    spec_bytes,
                    fresh,
                };
                let answer = self.submit(now, by, asked, out);
                self.answer(to, answer.unwrap_or_else(Answer::Refused), out);
            }
            Request::View {
                job,
                after,
                wait_secs,
            } => {
                let asked = (job, after, Wait::View(job));
                self.on_view(now, asker, asked, wait_secs, out);
            }
            Request::Turn {
                job,
                after,
                wait_secs,
            } => {
                let asked = (job, after, Wait::Turn(job, after.unwrap_or(0)));
                self.on_view(now, asker, asked, wait_secs, out);
            }
            Request::Output {
                job,
                offset,
                wait_secs,
            } => self.on_read(now, asker, job, offset, wait_secs, out),
            Request::Cancel { job, mode } => {
                let owned = self.owned(by, job).map(|_| ());
                let answer = owned.map(|()| self.cancel(now, job, mode, out));
                self.answer(to, answer.unwrap_or_else(Answer::Refused), out);
            }
            Request::Settle { job } => {
                let owned = self.owned(by, job).map(|_| ());
                let answer = owned.and_then(|()| self.settle(job, out));
                self.answer(to, answer.unwrap_or_else(Answer::Refused), out);
            }
        }
    }

    /// A job of this principal's; to others it does not exist (STATE-12, ERR-12).
    fn owned(&self, by: Principal, job: JobId) -> Result<&Job, Refusal> {
        self.jobs
            .get(&job)
            .filter(|found| found.made_by.owner == by)
            .ok_or_else(|| no_such_job(job))
    }

    fn on_view(
        &mut self,
        now: Now,
        asker: Asker,
        (job, after, wait): (JobId, Option<u64>, Wait),
        wait_secs: u32,
        out: &mut Out,
    ) {
        let Asker { to, by } = asker;
        let known = match self.owned(by, job) {
            Err(refusal) => return self.refuse(to, refusal, out),
            Ok(found) => after.is_some_and(|after| !found.has_news(wait, after)),
        };
        if known && self.hold(now, to, wait, wait_secs) {
            if let Some(found) = self.jobs.get_mut(&job) {
                found.viewers.insert(to);
            }
            return;
        }
        let answer = self.view_answer(job);
        self.answer(to, answer, out);
    }

    fn on_read(
        &mut self,
        now: Now,
        asker: Asker,
        job: JobId,
        offset: u64,
        wait_secs: u32,
        out: &mut Out,
    ) {
        let Asker { to, by } = asker;
        let at_end = match self.owned(by, job) {
            Err(refusal) => return self.refuse(to, refusal, out),
            Ok(found) => !found.phase.is_finished() && offset == found.output.durable(),
        };
        if at_end && self.hold(now, to, Wait::Output(job, offset), wait_secs) {
            if let Some(found) = self.jobs.get_mut(&job) {
                found.readers.insert(to);
            }
            return;
        }
        let answer = self.output_answer(job, offset);
        self.answer(to, answer, out);
    }

    /// Answers who waits for a job's output (API-15).
    pub(crate) fn wake_readers(&mut self, job: JobId, out: &mut Out) {
        let Some(found) = self.jobs.get_mut(&job) else {
            return;
        };
        for to in std::mem::take(&mut found.readers) {
            let Some(Wait::Output(_, offset)) = self.waits.get(&to).copied() else {
                continue;
            };
            let answer = self.output_answer(job, offset);
            self.answer(to, answer, out);
        }
    }
}
