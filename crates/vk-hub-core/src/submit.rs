//! Submissions: judged, remembered, made into jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use vk_hub_proto::client::JobSubmission;
use vk_hub_proto::limit::SPEC_BYTES;
use vk_hub_proto::{JobId, ReservationId};
use vk_step::Now;

use crate::fleet::{Fleet, Out};
use crate::job::Placing;
use crate::memory::Remembered;
use crate::request::RequestKey;
use crate::reservation::{ReservationPhase, no_such_reservation};
use crate::seek::other_body;
use crate::timers::Timer;
use crate::{Answer, Digest, JobSummary, Principal, Record, Refusal};

/// A submission and what the edge knows of it.
#[derive(Debug)]
pub(crate) struct Submit {
    pub(crate) submission: JobSubmission,
    pub(crate) digest: Digest,
    pub(crate) spec_bytes: usize,
    pub(crate) fresh: JobId,
}

impl Fleet {
    pub(crate) fn submit(
        &mut self,
        now: Now,
        by: Principal,
        asked: Submit,
        out: &mut Out,
    ) -> Result<Answer, Refusal> {
        let Submit {
            submission,
            digest,
            spec_bytes,
            fresh,
        } = asked;
        let key = RequestKey {
            owner: by,
            request: submission.request_id,
        };
        if let Some(answer) = self.repeated_submission(key, digest) {
            return answer;
        }
        judge(&submission, spec_bytes)?;
        self.judge_server(by, &submission.spec)?;
        self.judge_approval(now, key, digest, &submission.spec, out)?;
        if self.unfinished >= self.settings.unfinished_jobs {
            let why = "the hub has as many unfinished jobs as it takes";
            return Err(Refusal::unavailable(why));
        }
        if self.jobs.contains_key(&fresh) {
            return Err(Refusal::unavailable("the job ID drawn is taken: try again"));
        }
        let reservation = self.usable(by, &submission)?;
        let revision = self.clock.next_revision();
        self.keep(
            Record::JobSubmitted {
                job: fresh,
                owner: by,
                request: submission.request_id,
                digest,
                revision,
                at_ms: self.clock.served_ms(now),
                placement: submission.placement.clone(),
                summary: JobSummary::of(&submission.spec),
            },
            out,
        );
        self.arm_clock(now);
        let answer = self
            .jobs
            .get(&fresh)
            .map(|job| Answer::Submitted(job.first_view(fresh)));
        self.place(now, fresh, submission, reservation, out);
        answer.ok_or_else(|| Refusal::unavailable("the job was not made: try again"))
    }

    /// The answer to a submission that was seen before (API-46 to API-48).
    fn repeated_submission(
        &self,
        key: RequestKey,
        digest: Digest,
    ) -> Option<Result<Answer, Refusal>> {
        let (first, outcome) = self.memory.get(key)?;
        if first != digest {
            return Some(Err(match outcome {
                Remembered::Job(id) if self.jobs.contains_key(id) => other_body().of_job(*id),
                Remembered::Job(_) | Remembered::Refused(_) | Remembered::Forgotten => other_body(),
            }));
        }
        Some(match outcome {
            Remembered::Refused(refusal) => Err(refusal.clone()),
            Remembered::Forgotten => Err(Refusal::job_forgotten(
                "the job this request made has left the history",
            )),
            Remembered::Job(id) => match self.jobs.get(id) {
                Some(job) => Ok(Answer::Submitted(job.first_view(*id))),
                None => Err(Refusal::job_forgotten("the job this request made is gone")),
            },
        })
    }

    /// The reservation to start on: this principal's, held, its node in touch. Another's is none
    /// of this principal's business (API-74); any other counts as gone (API-28, DISP-84).
    fn usable(
        &self,
        by: Principal,
        submission: &JobSubmission,
    ) -> Result<Option<ReservationId>, Refusal> {
        let Some(id) = submission.reservation else {
            return Ok(None);
        };
        let Some(found) = self.reservations.get(&id) else {
            return Ok(None);
        };
        if found.owner != by {
            return Err(no_such_reservation(id));
        }
        Ok((found.phase == ReservationPhase::Held).then_some(id))
    }

    /// Sends the job to its reservation's node, or lets it wait for one (API-27, API-28).
    fn place(
        &mut self,
        now: Now,
        id: JobId,
        submission: JobSubmission,
        reservation: Option<ReservationId>,
        out: &mut Out,
    ) {
        let within = Duration::from_secs(u64::from(submission.place_within_secs));
        let class = self.class_of(&submission.placement);
        let turn = self.turn();
        if let Some(job) = self.jobs.get_mut(&id) {
            job.placing = Some(Placing {
                spec: Arc::new(submission.spec),
                class,
                turn,
                until: now.after(within),
                reservation: None,
                refused: BTreeMap::new(),
                last_refusal: None,
            });
        }
        if let Some(reservation) = reservation {
            let node = self.reservations.get(&reservation).map(|one| one.node);
            let in_touch = node.filter(|node| {
                let node = self.nodes.get(node);
                node.is_some_and(|node| node.touch().is_some())
            });
            if let Some(node) = in_touch {
                return self.start(now, id, node, Some(reservation), out);
            }
            // Its node returns it with the next `held`.
            self.give_back(reservation, out);
        }
        self.queue(id);
    }

    /// The job waits for a node, in its turn.
    pub(crate) fn queue(&mut self, id: JobId) {
        let Some(placing) = self.jobs.get(&id).and_then(|job| job.placing.as_ref()) else {
            return;
        };
        let class_id = placing.class;
        self.timers.set(Timer::Place(id), placing.until);
        if let Some(class) = self.classes.get_mut(class_id) {
            class.jobs.insert((placing.turn, id));
            self.woken.insert(class_id);
        }
    }

    /// The job no longer waits for a node.
    pub(crate) fn unqueue(&mut self, id: JobId) {
        self.timers.clear(Timer::Place(id));
        let Some(placing) = self.jobs.get(&id).and_then(|job| job.placing.as_ref()) else {
            return;
        };
        if let Some(class) = self.classes.get_mut(placing.class) {
            class.jobs.remove(&(placing.turn, id));
        }
    }
}

/// ERR-03, ERR-05, ERR-16
fn judge(submission: &JobSubmission, spec_bytes: usize) -> Result<(), Refusal> {
    if spec_bytes > SPEC_BYTES {
        return Err(Refusal::too_large(format!(
            "the spec has {spec_bytes} bytes, at most {SPEC_BYTES} are taken"
        )));
    }
    submission
        .validate()
        .map_err(|why| Refusal::invalid(why.to_string()))
}
