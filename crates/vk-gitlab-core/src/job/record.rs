//! What is kept of a job: the sum of its records.

use vk_hub_proto::client::JobSubmission;
use vk_hub_proto::{JobId, Secret};

use super::{Closing, Ended, Record, SafePoint, Taken, WhyGivenUp};

/// How far a job is, in the state file's words (STATE-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// GitLab handed it over; the hub is not known to have it.
    Taken,
    /// The hub has it.
    Submitted,
    /// GitLab was told that a node took it.
    Committed,
    /// GitLab is done with it.
    Reported,
    /// It is being failed, or has been, while the hub may have it.
    Abandoned,
}

/// A job as its records leave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// What came with it.
    pub taken: Taken,
    /// The hub's ID for it.
    pub hub_job: Option<JobId>,
    /// Whether the hub refused it, and holds nothing of it.
    pub refused: bool,
    /// Whether it was given up before the hub answered.
    pub abandoned: bool,
    /// Whether GitLab was told that a node took it.
    pub committed: bool,
    /// The trace GitLab has, as last kept.
    pub patched: SafePoint,
    /// How it ended.
    pub ended: Option<Ended>,
    /// The daemon's closing lines.
    pub suffix: Option<String>,
    /// Where they may stand in GitLab's trace, once they were sent.
    pub closing: Option<Closing>,
    /// Why nothing more is written to GitLab.
    pub given_up: Option<WhyGivenUp>,
    /// Whether the final state reached GitLab; none before that is known.
    pub reported: Option<bool>,
}

impl JobRecord {
    fn new(taken: Taken) -> JobRecord {
        JobRecord {
            taken,
            hub_job: None,
            refused: false,
            abandoned: false,
            committed: false,
            patched: SafePoint::default(),
            ended: None,
            suffix: None,
            closing: None,
            given_up: None,
            reported: None,
        }
    }

    /// Adds a record to what came before; nothing is left once it was removed.
    ///
    /// # Errors
    /// A record that cannot stand there: why.
    pub fn add(so_far: Option<JobRecord>, record: Record) -> Result<Option<JobRecord>, String> {
        let mut job = match (so_far, record) {
            (None, Record::Taken(taken)) => return Ok(Some(JobRecord::new(*taken))),
            (None, _) => return Err("no job was taken".to_owned()),
            (Some(_), Record::Removed) => return Ok(None),
            (Some(mut job), record) => {
                job.apply(record)?;
                job
            }
        };
        if job.hub_job.is_some() || job.refused {
            job.taken.spec = None;
        }
        Ok(Some(job))
    }

    fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Taken(taken) if taken.request_id != self.taken.request_id => {
                return Err("another job was taken before".to_owned());
            }
            Record::Taken(_) | Record::Removed => {}
            Record::Submitted { .. } if self.refused => {
                return Err("the hub refused the job before".to_owned());
            }
            Record::Submitted { hub_job } => self.hub_job = Some(hub_job),
            Record::Committed => self.committed = true,
            Record::Patched(point) => self.patched = point,
            Record::Ended(ended) => self.ended = Some(ended),
            Record::Suffix { .. } if self.ended.is_none() => {
                return Err("closing lines of a job that has not ended".to_owned());
            }
            Record::Suffix { text } => self.suffix = Some(text),
            Record::Closing(_) if self.suffix.is_none() => {
                return Err("a place for closing lines that are not known".to_owned());
            }
            Record::Closing(closing) => self.closing = Some(closing),
            Record::Refused if self.hub_job.is_some() => {
                return Err("the hub took the job before".to_owned());
            }
            Record::Refused => self.refused = true,
            Record::Abandoned => self.abandoned = true,
            Record::GivenUp { why } => self.given_up = Some(why),
            Record::Reported { delivered } => self.reported = Some(delivered),
        }
        Ok(())
    }

    /// The records that leave a job as this one is.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Taken(Box::new(self.taken.clone()))];
        records.extend(self.hub_job.map(|hub_job| Record::Submitted { hub_job }));
        records.extend(self.refused.then_some(Record::Refused));
        records.extend(self.abandoned.then_some(Record::Abandoned));
        records.extend(self.committed.then_some(Record::Committed));
        if self.patched != SafePoint::default() {
            records.push(Record::Patched(self.patched));
        }
        records.extend(self.ended.clone().map(Record::Ended));
        let suffix = self.suffix.clone();
        records.extend(suffix.map(|text| Record::Suffix { text }));
        records.extend(self.closing.map(Record::Closing));
        records.extend(self.given_up.map(|why| Record::GivenUp { why }));
        let reported = self.reported;
        records.extend(reported.map(|delivered| Record::Reported { delivered }));
        records
    }

    /// How far the job is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.abandoned && self.hub_job.is_none() && !self.refused {
            Phase::Abandoned
        } else if self.is_over() {
            Phase::Reported
        } else if self.committed {
            Phase::Committed
        } else if self.hub_job.is_some() {
            Phase::Submitted
        } else {
            Phase::Taken
        }
    }

    /// Whether GitLab is done with it: it takes no slot any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.given_up.is_some() || self.reported.is_some()
    }

    /// The job token.
    #[must_use]
    pub fn job_token(&self) -> &Secret {
        &self.taken.job_token
    }

    /// The daemon's opening lines.
    #[must_use]
    pub fn preamble(&self) -> &str {
        &self.taken.preamble
    }

    /// The daemon's closing lines, once they are known.
    #[must_use]
    pub fn suffix(&self) -> &str {
        self.suffix.as_deref().unwrap_or_default()
    }

    /// The submission, the same each time (STATE-20); none once the spec is dropped.
    #[must_use]
    pub fn submission(&self) -> Option<JobSubmission> {
        let spec = self.taken.spec.as_deref()?.clone();
        Some(JobSubmission {
            request_id: self.taken.request_id,
            placement: self.taken.placement.clone(),
            reservation: self.taken.reservation,
            place_within_secs: self.taken.place_within_secs,
            spec,
        })
    }
}
