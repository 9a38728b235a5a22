//! One job's record, as it stands in the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vk_hub_proto::client::Placement;
use vk_hub_proto::job::JobSpec;
use vk_hub_proto::secret::expose;
use vk_hub_proto::{JobId, RequestId, ReservationId, Secret};

use super::StateFileError;
use crate::WithoutReservation;
use crate::job::{Closing, Ended, JobRecord, Phase, Record, SafePoint, Taken, WhyGivenUp};

/// A record's fields, flat.
#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    gitlab_job: u64,
    #[serde(serialize_with = "expose")]
    job_token: Secret,
    request_id: RequestId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<ReservationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    without_reservation: Option<WithoutReservation>,
    place_within_secs: u32,
    placement: Placement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hub_job: Option<JobId>,
    phase: Phase,
    #[serde(default, skip_serializing_if = "is_false")]
    committed: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    abandoned: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    refused: bool,
    #[serde(default)]
    trace_offset: u64,
    #[serde(default)]
    trace_crc: u32,
    #[serde(default)]
    failure_reasons: Vec<String>,
    #[serde(default)]
    debug_trace: bool,
    timestamps: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    preamble: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suffix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closing: Option<Closing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_up: Option<WhyGivenUp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delivered: Option<bool>,
    #[serde(default)]
    taken_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_ends: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Box<JobSpec>>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

impl Entry {
    /// A record as the file holds it.
    pub(super) fn of(job: &JobRecord) -> Entry {
        let phase = job.phase();
        let taken = job.taken.clone();
        Entry {
            gitlab_job: taken.gitlab_job,
            job_token: taken.job_token,
            request_id: taken.request_id,
            reservation: taken.reservation,
            without_reservation: taken.without_reservation,
            place_within_secs: taken.place_within_secs,
            placement: taken.placement,
            hub_job: job.hub_job,
            phase,
            committed: job.committed,
            abandoned: job.abandoned,
            refused: job.refused,
            trace_offset: job.patched.offset,
            trace_crc: job.patched.crc,
            failure_reasons: taken.failure_reasons,
            debug_trace: taken.debug_trace,
            timestamps: taken.timestamps,
            preamble: taken.preamble,
            suffix: job.suffix.clone(),
            closing: job.closing,
            ended: job.ended.clone(),
            given_up: job.given_up,
            delivered: job.reported,
            taken_at: taken.taken_at,
            token_ends: taken.token_ends,
            spec: taken.spec,
            unknown: taken.unknown,
        }
    }

    /// The record the file holds, if it fits together.
    pub(super) fn record(self) -> Result<JobRecord, StateFileError> {
        let gitlab_job = self.gitlab_job;
        let mut job = None;
        for record in self.records() {
            job = JobRecord::add(job, record)
                .map_err(|why| StateFileError::Record { gitlab_job, why })?;
        }
        job.ok_or_else(|| StateFileError::Record {
            gitlab_job,
            why: "it is empty".to_owned(),
        })
    }

    /// The records that lead to what the file says.
    fn records(self) -> Vec<Record> {
        let committed = self.committed || self.phase == Phase::Committed;
        let abandoned = self.abandoned || self.phase == Phase::Abandoned;
        let patched = SafePoint {
            offset: self.trace_offset,
            crc: self.trace_crc,
        };
        let mut records = vec![Record::Taken(Box::new(Taken {
            gitlab_job: self.gitlab_job,
            job_token: self.job_token,
            request_id: self.request_id,
            reservation: self.reservation,
            without_reservation: self.without_reservation,
            place_within_secs: self.place_within_secs,
            placement: self.placement,
            spec: self.spec,
            preamble: self.preamble,
            failure_reasons: self.failure_reasons,
            debug_trace: self.debug_trace,
            timestamps: self.timestamps,
            taken_at: self.taken_at,
            token_ends: self.token_ends,
            unknown: self.unknown,
        }))];
        records.extend(self.hub_job.map(|hub_job| Record::Submitted { hub_job }));
        records.extend(self.refused.then_some(Record::Refused));
        records.extend(abandoned.then_some(Record::Abandoned));
        records.extend(committed.then_some(Record::Committed));
        records.push(Record::Patched(patched));
        records.extend(self.ended.map(Record::Ended));
        records.extend(self.suffix.map(|text| Record::Suffix { text }));
        records.extend(self.closing.map(Record::Closing));
        records.extend(self.given_up.map(|why| Record::GivenUp { why }));
        let delivered = self.delivered;
        records.extend(delivered.map(|delivered| Record::Reported { delivered }));
        records
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(flag: &bool) -> bool {
    !flag
}
