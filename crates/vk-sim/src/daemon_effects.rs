//! What the daemon's cores ask for, done by its edge in the simulation.

use vk_gitlab_core::acquire::{self, LaneId};
use vk_gitlab_core::job::{self, Span};
use vk_gitlab_core::{NewJob, WithoutReservation};
use vk_hub_core::{Digest, Request};
use vk_hub_proto::client::{CapacityRequest, RenewRequest, ReservationGrant, ReservationRequest};
use vk_hub_proto::hex::Hex;
use vk_hub_proto::{JobId, RequestId, ReservationId};

use crate::breakage::Breakage;
use crate::bytes;
use crate::call::{GitLabAsk, GitLabCall, HubAsker, HubCall};
use crate::daemon::RUNNER;
use crate::event::Event;
use crate::world::{ENVELOPE, World};

impl World {
    pub(crate) fn acquire_effect(&mut self, effect: acquire::Effect) {
        match effect {
            acquire::Effect::DrawRequestIds { count } => {
                let ids = (0..count)
                    .map(|_| RequestId::from_bytes(self.rng.id()))
                    .collect();
                self.acquire_input(acquire::Input::RequestIds(ids));
            }
            acquire::Effect::Verify => self.ask_gitlab(GitLabAsk::Verify),
            acquire::Effect::AskCapacity { after, wait_secs } => {
                let placement = self.placement();
                let request = Request::Capacity(CapacityRequest {
                    placement,
                    after,
                    wait_secs,
                });
                self.ask_hub(HubAsker::Capacity, request);
            }
            acquire::Effect::Reserve {
                lane,
                request_id,
                lease_secs,
                wait_secs,
            } => {
                self.reserve(lane, request_id, lease_secs, wait_secs);
            }
            acquire::Effect::Renew {
                lane,
                reservation,
                lease_secs,
            } => {
                let request = RenewRequest { lease_secs };
                let request = Request::Renew {
                    reservation,
                    request,
                };
                self.ask_hub(HubAsker::Renew(lane, reservation), request);
            }
            acquire::Effect::Release { reservation } => {
                self.ask_hub(
                    HubAsker::Release(reservation),
                    Request::Release { reservation },
                );
            }
            acquire::Effect::RequestJob {
                lane, reservation, ..
            } => {
                self.check_request(reservation);
                self.check_approved();
                self.ask_gitlab(GitLabAsk::Job(lane));
            }
            acquire::Effect::TakeSlot { lane } => {
                let taken = self.daemon.slots.take(RUNNER);
                self.acquire_input(acquire::Input::SlotAnswer { lane, taken });
                self.slots_changed();
            }
            acquire::Effect::ReturnSlot => {
                self.daemon.slots.give_back();
                self.slots_changed();
            }
            acquire::Effect::WantSlot => {
                self.daemon.slots.want(RUNNER);
                self.slots_changed();
            }
            acquire::Effect::PassSlot => {
                self.daemon.slots.pass(RUNNER);
                self.slots_changed();
            }
            acquire::Effect::TakeJob { job, reservation } => self.take_job(job, reservation),
            acquire::Effect::State(_) | acquire::Effect::Note(_) | acquire::Effect::Drained => {}
        }
    }

    fn reserve(&mut self, lane: LaneId, request_id: RequestId, lease_secs: u32, wait_secs: u32) {
        if self.breakage == Some(Breakage::NoReservation) {
            // The breakage "201 without a reservation": the core is told of a grant nobody gave.
            let grant = ReservationGrant {
                reservation: ReservationId::from_bytes(self.rng.id()),
                node: self.node_id(0),
                envelope: ENVELOPE,
                lease_secs,
            };
            self.acquire_input(acquire::Input::ReserveAnswer {
                lane,
                answer: Ok(grant),
            });
            return;
        }
        let placement = self.placement();
        let request = ReservationRequest {
            request_id,
            placement,
            lease_secs,
            wait_secs,
        };
        let digest = digest(&serde_json::to_vec(&request).unwrap_or_default());
        let fresh = ReservationId::from_bytes(self.rng.id());
        self.ask_hub(
            HubAsker::Reserve(lane),
            Request::Reserve {
                request,
                digest,
                fresh,
            },
        );
    }

    fn take_job(
        &mut self,
        job: Box<NewJob>,
        reservation: Result<ReservationId, WithoutReservation>,
    ) {
        self.check_take(job.gitlab_job, reservation);
        let key = self.daemon.next_key;
        self.daemon.next_key += 1;
        let gitlab_job = job.gitlab_job;
        self.preambles
            .insert(gitlab_job, job.preamble.clone().into_bytes());
        self.job_open(key, Vec::new());
        if let Some(edge) = self.daemon.jobs.get_mut(&key) {
            edge.gitlab_job = gitlab_job;
        }
        let placement = self.placement();
        self.job_input(
            key,
            job::Input::Take {
                job,
                placement,
                reservation,
            },
        );
    }

    pub(crate) fn job_effect(&mut self, key: u64, effect: job::Effect) {
        let Some(gitlab_job) = self.daemon.jobs.get(&key).map(|edge| edge.gitlab_job) else {
            return;
        };
        match effect {
            job::Effect::Submit {
                call,
                mut submission,
            } => {
                if self.breakage == Some(Breakage::LongWait) {
                    submission.place_within_secs *= 10;
                }
                let digest = digest(&serde_json::to_vec(&submission).unwrap_or_default());
                let spec_bytes = serde_json::to_vec(&submission.spec).map_or(0, |json| json.len());
                let fresh = JobId::from_bytes(self.rng.id());
                let request = Request::Submit {
                    submission,
                    digest,
                    spec_bytes,
                    fresh,
                };
                self.ask_hub(HubAsker::Submit(key, call), request);
            }
            job::Effect::View {
                call,
                hub_job,
                after,
                wait_secs,
            } => {
                let request = Request::View {
                    job: hub_job,
                    after,
                    wait_secs,
                };
                self.ask_hub(HubAsker::View(key, call), request);
            }
            job::Effect::Fetch {
                call,
                hub_job,
                offset,
                max_bytes,
                wait_secs,
            } => {
                self.set_fetched(key, offset, Vec::new());
                let request = Request::Output {
                    job: hub_job,
                    offset,
                    wait_secs,
                };
                self.ask_hub(HubAsker::Fetch(key, call, offset, max_bytes), request);
            }
            job::Effect::Sum { call, span, crc } => {
                let crc = self.span(key, span).map(|bytes| continued(crc, &bytes));
                if let Some(crc) = crc {
                    self.job_input(key, job::Input::SumAnswer(call, crc));
                }
            }
            job::Effect::Cancel {
                call,
                hub_job,
                mode,
            } => {
                let request = Request::Cancel { job: hub_job, mode };
                self.ask_hub(HubAsker::Cancel(key, call), request);
            }
            job::Effect::Settle { call, hub_job } => {
                self.ask_hub(
                    HubAsker::Settle(key, call),
                    Request::Settle { job: hub_job },
                );
            }
            job::Effect::Release { reservation } => {
                self.ask_hub(HubAsker::JobRelease, Request::Release { reservation });
            }
            job::Effect::RenderSuffix { call, lines, .. } => {
                let text = lines.iter().map(|line| format!("{line}\n")).collect();
                self.job_input(key, job::Input::SuffixAnswer(call, text));
            }
            job::Effect::Update { call, update } => {
                self.check_write(gitlab_job);
                self.ask_gitlab(GitLabAsk::Update(key, call, gitlab_job, update));
            }
            job::Effect::Patch {
                call,
                offset,
                span,
                crc,
            } => {
                self.check_write(gitlab_job);
                let Some(bytes) = self.span(key, span) else {
                    return;
                };
                let crc = crc.map(|crc| continued(crc, &bytes));
                let job = gitlab_job;
                self.ask_gitlab(GitLabAsk::Patch {
                    key,
                    call,
                    job,
                    offset,
                    bytes,
                    crc,
                });
            }
            job::Effect::Over => self.acquire_input(acquire::Input::JobOver),
            job::Effect::Removed => {
                self.daemon.jobs.remove(&key);
            }
            job::Effect::Note(_) => {}
        }
    }

    pub(crate) fn set_fetched(&mut self, key: u64, from: u64, bytes: Vec<u8>) {
        if let Some(edge) = self.daemon.jobs.get_mut(&key) {
            edge.fetched = (from, bytes);
        }
    }

    /// The bytes of a part of the trace.
    fn span(&mut self, key: u64, span: Span) -> Option<Vec<u8>> {
        let edge = self.daemon.jobs.get(&key)?;
        let empty = Vec::new();
        let (bytes, from, len) = match span {
            Span::Preamble { from, len } => (
                self.preambles.get(&edge.gitlab_job).unwrap_or(&empty),
                from,
                len,
            ),
            Span::Output { from, len } => {
                let (start, bytes) = &edge.fetched;
                (bytes, from.checked_sub(*start).unwrap_or(u64::MAX), len)
            }
            Span::Suffix { from, len } => (
                self.suffixes.get(&edge.gitlab_job).unwrap_or(&empty),
                from,
                len,
            ),
        };
        let part = bytes::part(bytes, from, len);
        if part.len() as u64 != len {
            self.violation(format!("{span:?} is not held by the daemon's edge"));
            return None;
        }
        Some(part)
    }

    fn ask_hub(&mut self, asker: HubAsker, request: Request) {
        self.next_call += 1;
        let call = HubCall {
            life: self.daemon.life,
            asker,
            request,
        };
        self.hub_calls.insert(self.next_call, call);
        let at = self.now + self.rng.between(1, 40);
        self.queue.add(at, Event::AtHub(self.next_call));
    }

    pub(crate) fn ask_gitlab(&mut self, ask: GitLabAsk) {
        self.next_call += 1;
        self.gitlab_calls.insert(
            self.next_call,
            GitLabCall {
                life: self.daemon.life,
                ask,
            },
        );
        let at = self.now + self.rng.between(1, 80);
        self.queue.add(at, Event::AtGitLab(self.next_call));
    }
}

/// A CRC-32 carried on over more bytes.
fn continued(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// Enough of a digest to tell bodies apart.
fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    for (seed, part) in digest.chunks_exact_mut(4).enumerate() {
        let mut hasher = crc32fast::Hasher::new_with_initial(u32::try_from(seed).unwrap_or(0));
        hasher.update(bytes);
        part.copy_from_slice(&hasher.finalize().to_be_bytes());
    }
    Hex(digest)
}
