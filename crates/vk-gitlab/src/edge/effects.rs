//! Doing what the cores ask for.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gitlab_runner_api::response::JobRequestOutcome;
use vk_gitlab_core::acquire::{self, LaneId};
use vk_gitlab_core::job::{self, CallId, Span};
use vk_gitlab_core::{NewJob, WithoutReservation};
use vk_hub_client::api::Client as HubClient;
use vk_hub_proto::client::{CancelRequest, CapacityRequest, RenewRequest, ReservationRequest};
use vk_hub_proto::{JobId, RequestId, ReservationId, Secret};

use super::calls::Event;
use super::daemon::{Daemon, drawn};
use super::expiry::Verified;
use super::fetched::part;
use super::runner::runner_index;
use super::{gitlab, hub};
use crate::log_lines;

/// How long a job waits for the number of its runner.
const LATE_VERIFY: Duration = Duration::from_secs(5);

/// The loop, doing effects.
pub(super) struct Effects<'a>(pub(super) &'a mut Daemon);

impl Effects<'_> {
    /// Runs a request beside the loop; its event comes back.
    fn beside(&self, work: impl Future<Output = Event> + Send + 'static) {
        let events = self.0.events.clone();
        tokio::spawn(async move {
            let event = work.await;
            // The loop ended meanwhile.
            let _ = events.send(event);
        });
    }

    fn hub(&self) -> Arc<HubClient> {
        Arc::clone(&self.0.hub)
    }

    pub(super) fn acquire(&mut self, index: usize, effect: acquire::Effect) {
        match effect {
            acquire::Effect::DrawRequestIds { count } => {
                let ids = (0..count).map(|_| request_id()).collect();
                self.0.acquire_input(index, acquire::Input::RequestIds(ids));
            }
            acquire::Effect::Verify => self.verify(index),
            acquire::Effect::AskCapacity { after, wait_secs } => {
                self.capacity(index, after, wait_secs);
            }
            acquire::Effect::Reserve {
                lane,
                request_id,
                lease_secs,
                wait_secs,
            } => {
                self.reserve(index, lane, (request_id, lease_secs, wait_secs));
            }
            acquire::Effect::Renew {
                lane,
                reservation,
                lease_secs,
            } => {
                let (client, seat) = (self.hub(), self.0.seat(index));
                self.beside(async move {
                    let renewed = client.renew(reservation, RenewRequest { lease_secs }).await;
                    let answer = renewed.map_err(|error| hub::failure(&error));
                    Event::Acquire(
                        seat,
                        acquire::Input::RenewAnswer {
                            lane,
                            reservation,
                            answer,
                        },
                    )
                });
            }
            acquire::Effect::Release { reservation } => {
                let (client, seat) = (self.hub(), self.0.seat(index));
                self.beside(async move {
                    let released = client.release(reservation).await;
                    let answer = released.map_err(|error| hub::failure(&error));
                    Event::Acquire(
                        seat,
                        acquire::Input::ReleaseAnswer {
                            reservation,
                            answer,
                        },
                    )
                });
            }
            acquire::Effect::RequestJob {
                lane, last_update, ..
            } => {
                self.request_job(index, lane, last_update);
            }
            acquire::Effect::TakeSlot { lane } => {
                let taken = self.0.slots.take(runner_index(index));
                self.0
                    .acquire_input(index, acquire::Input::SlotAnswer { lane, taken });
                self.0.slots_changed();
            }
            acquire::Effect::ReturnSlot => {
                self.0.slots.give_back();
                self.0.slots_changed();
            }
            acquire::Effect::WantSlot => {
                self.0.slots.want(runner_index(index));
                self.0.slots_changed();
            }
            acquire::Effect::PassSlot => {
                self.0.slots.pass(runner_index(index));
                self.0.slots_changed();
            }
            acquire::Effect::TakeJob { job, reservation } => self.take_job(index, job, reservation),
            acquire::Effect::State(state) => self.runner_says(index, &format!("{state:?}")),
            acquire::Effect::Note(note) => self.runner_notes(index, &note),
            acquire::Effect::Drained => self.0.runner_drained(index),
        }
    }

    fn runner_says(&self, index: usize, state: &str) {
        if let Some(runner) = self.0.runners.get(index) {
            tracing::info!(runner = runner.config.name, state, "runner");
        }
        self.0.standing.changed();
    }

    fn runner_notes(&self, index: usize, note: &acquire::Note) {
        if let Some(runner) = self.0.runners.get(index) {
            if matches!(note, acquire::Note::RequestLost { .. }) {
                runner.meter.request_lost();
            }
            let pool = &runner.config.placement.pool;
            tracing::warn!(runner = runner.config.name, %pool, "{note}");
        }
    }

    fn verify(&self, index: usize) {
        let Some(runner) = self.0.runners.get(index) else {
            return;
        };
        let (client, events) = (Arc::clone(&runner.client), self.0.events.clone());
        let (seat, bare) = (self.0.seat(index), runner.bare.clone());
        self.beside(async move {
            let (answer, verified) = gitlab::verified(client.verify().await);
            if let Some(mut verified) = verified {
                if let Some(bare) = bare {
                    verified.needs_certificate = gitlab::needs_certificate(&bare.verify().await);
                }
                let _ = events.send(Event::Verified(seat, verified));
            }
            Event::Acquire(seat, acquire::Input::VerifyAnswer(answer))
        });
    }

    fn capacity(&self, index: usize, after: Option<u64>, wait_secs: u32) {
        let Some(runner) = self.0.runners.get(index) else {
            return;
        };
        let placement = runner.config.placement.clone();
        let (client, seat) = (self.hub(), self.0.seat(index));
        self.beside(async move {
            let asked = client
                .capacity(&CapacityRequest {
                    placement,
                    after,
                    wait_secs,
                })
                .await;
            let answer = asked.map_err(|error| hub::failure(&error));
            Event::Acquire(seat, acquire::Input::CapacityAnswer(answer))
        });
    }

    fn reserve(&self, index: usize, lane: LaneId, ask: (RequestId, u32, u32)) {
        let Some(runner) = self.0.runners.get(index) else {
            return;
        };
        let placement = runner.config.placement.clone();
        let (request_id, lease_secs, wait_secs) = ask;
        let request = ReservationRequest {
            request_id,
            placement,
            lease_secs,
            wait_secs,
        };
        let (client, seat) = (self.hub(), self.0.seat(index));
        self.beside(async move {
            let answer = client
                .reserve(&request)
                .await
                .map_err(|error| hub::failure(&error));
            Event::Acquire(seat, acquire::Input::ReserveAnswer { lane, answer })
        });
    }

    fn request_job(&self, index: usize, lane: LaneId, last_update: Option<String>) {
        let Some(runner) = self.0.runners.get(index) else {
            return;
        };
        let client = Arc::clone(&runner.client);
        let mut translation = runner.translation.clone();
        let (seat, events) = (self.0.seat(index), self.0.events.clone());
        let (name, meter) = (runner.config.name.clone(), runner.meter.clone());
        self.beside(async move {
            let outcome = client.request_job(last_update.as_deref()).await;
            let request_id = request_id();
            if let JobRequestOutcome::Job(job, _) = &outcome {
                meter.taken(&job.job_info);
                tracing::info!(
                    runner = name,
                    gitlab_job = job.id,
                    %request_id,
                    gitlab_runner = job.runner_info.uuid,
                    queue_secs = job.job_info.time_in_queue_seconds,
                    "GitLab handed a job over"
                );
            }
            if let JobRequestOutcome::Undecodable(bad, _) = &outcome {
                tracing::warn!(
                    runner = name,
                    gitlab_job = bad.job.as_ref().map(|(id, _)| id),
                    request_id = bad.job.as_ref().map(|_| request_id.to_string()),
                    why = bad.why,
                    "GitLab handed over a job that cannot be read: it is failed if its number and token are known, else lost"
                );
            }
            if translation.id == 0 && matches!(outcome, JobRequestOutcome::Job(..)) {
                match late_verify(&client).await {
                    Some((id, verified)) => {
                        translation.id = id;
                        let _ = events.send(Event::Verified(seat, verified));
                    }
                    None => tracing::warn!(
                        runner = name,
                        "GitLab's number of this runner is not known: the job is told 0"
                    ),
                }
            }
            let answer = gitlab::requested(outcome, &translation, request_id);
            Event::Acquire(seat, acquire::Input::JobAnswer { lane, answer })
        });
    }

    fn take_job(
        &mut self,
        index: usize,
        job: Box<NewJob>,
        reservation: Result<ReservationId, WithoutReservation>,
    ) {
        let Some(runner) = self.0.runners.get(index) else {
            return;
        };
        let placement = runner.config.placement.clone();
        match self.0.open_job(index, Vec::new()) {
            Ok(key) => {
                self.0.job_input(
                    key,
                    job::Input::Take {
                        job,
                        placement,
                        reservation,
                    },
                );
                self.0.tell_removed(key);
            }
            // A core without records cannot but open.
            Err(error) => tracing::error!(%error, "a job could not be taken"),
        }
    }

    pub(super) fn job(&mut self, key: u64, effect: job::Effect) {
        match effect {
            job::Effect::Submit { call, submission } => {
                let client = self.hub();
                self.beside(async move {
                    let view = client.submit(&submission).await;
                    let view = view.map_err(|error| hub::failure(&error));
                    Event::Job(key, job::Input::SubmitAnswer(call, view))
                });
            }
            job::Effect::View {
                call,
                hub_job,
                after,
                wait_secs,
            } => {
                let client = self.hub();
                self.beside(async move {
                    let view = client.turn(hub_job, after, wait_secs).await;
                    let view = view.map_err(|error| hub::failure(&error));
                    Event::Job(key, job::Input::ViewAnswer(call, view))
                });
            }
            job::Effect::Fetch {
                call,
                hub_job,
                offset,
                max_bytes,
                wait_secs,
            } => {
                self.fetch(key, (call, hub_job), (offset, max_bytes), wait_secs);
            }
            job::Effect::Sum { call, span, crc } => {
                let input = match self.span(key, span) {
                    Some(bytes) => job::Input::SumAnswer(call, continued(crc, &bytes)),
                    None => job::Input::NotHeld(call),
                };
                self.0.job_input(key, input);
            }
            job::Effect::Cancel {
                call,
                hub_job,
                mode,
            } => {
                let client = self.hub();
                self.beside(async move {
                    let view = client.cancel(hub_job, CancelRequest { mode }).await;
                    let view = view.map_err(|error| hub::failure(&error));
                    Event::Job(key, job::Input::CancelAnswer(call, view))
                });
            }
            job::Effect::Settle { call, hub_job } => {
                let client = self.hub();
                self.beside(async move {
                    let settled = client.settle(hub_job).await;
                    let settled = settled.map_err(|error| hub::failure(&error));
                    Event::Job(key, job::Input::SettleAnswer(call, settled))
                });
            }
            job::Effect::Release { reservation } => self.give_back(reservation),
            job::Effect::RenderSuffix {
                call,
                lines,
                timestamps,
            } => {
                let text = log_lines::render(&lines, timestamps, SystemTime::now());
                self.0.job_input(key, job::Input::SuffixAnswer(call, text));
            }
            job::Effect::Update { call, update } => self.update(key, call, &update),
            job::Effect::Patch {
                call,
                offset,
                span,
                crc,
            } => {
                self.patch(key, call, (offset, span), crc);
            }
            job::Effect::Over => self.over(key),
            job::Effect::Removed => {
                self.0.jobs.remove(&key);
            }
            job::Effect::Note(note) => self.job_notes(key, &note),
        }
    }

    /// A job's slot is free: once, although a core says so again where that could not be kept.
    fn over(&mut self, key: u64) {
        let Some(job) = self.0.jobs.get_mut(&key) else {
            return;
        };
        let index = job.runner;
        if !std::mem::replace(&mut job.over, true) {
            self.0.acquire_input(index, acquire::Input::JobOver);
        }
    }

    /// The correlation lines of a job (FLOW-23).
    fn job_notes(&self, key: u64, note: &job::Note) {
        let Some(edge) = self.0.jobs.get(&key) else {
            return;
        };
        let Some(names) = edge.names else {
            return;
        };
        let Some(runner) = self.0.runners.get(edge.runner) else {
            return;
        };
        if matches!(note, job::Note::Undelivered { .. }) {
            runner.meter.never_delivered();
        }
        let runner = &runner.config.name;
        let hub_job = names.hub_job.map(|job| job.to_string());
        let (gitlab_job, request_id, what) = (names.gitlab_job, names.request_id, note.name());
        if note.is_wrong() {
            tracing::warn!(runner, gitlab_job, %request_id, hub_job, note = what, "{note}");
        } else {
            tracing::info!(runner, gitlab_job, %request_id, hub_job, note = what, "{note}");
        }
    }

    fn fetch(
        &mut self,
        key: u64,
        (call, hub_job): (CallId, JobId),
        (offset, max_bytes): (u64, u64),
        wait_secs: u32,
    ) {
        if let Some(job) = self.0.jobs.get_mut(&key) {
            job.fetched.asked(call, offset);
        }
        let client = self.hub();
        self.beside(async move {
            let read = client.output(hub_job, offset, wait_secs).await;
            let answer = hub::output(read, max_bytes);
            Event::Fetched { key, call, answer }
        });
    }

    /// Gives a reservation back, as often as it takes while its lease may last (ERR-21).
    fn give_back(&self, reservation: ReservationId) {
        let client = self.hub();
        tokio::spawn(async move {
            let mut pauses = vk_hub_client::Redial::up_to(Duration::from_secs(30));
            for _ in 0..20 {
                match client.release(reservation).await {
                    Err(error) if error.is_retryable() => {
                        tokio::time::sleep(pauses.pause()).await;
                    }
                    _ => return,
                }
            }
        });
    }

    /// The client of a job's runner, GitLab's number of the job, and its token.
    fn target(&self, key: u64) -> Option<(Arc<gitlab_runner_api::Client>, u64, Secret, bool)> {
        let edge = self.0.jobs.get(&key)?;
        let record = edge.core.record()?;
        let client = Arc::clone(&self.0.runners.get(edge.runner)?.client);
        let taken = &record.taken;
        Some((
            client,
            taken.gitlab_job,
            record.job_token().clone(),
            taken.debug_trace,
        ))
    }

    fn update(&self, key: u64, call: CallId, update: &job::Update) {
        let Some((client, job, token, _)) = self.target(key) else {
            return;
        };
        let update = gitlab::update(update);
        self.beside(async move {
            let answer = gitlab::answer(&client.update_job(job, &token, &update).await);
            Event::Job(key, job::Input::UpdateAnswer(call, answer))
        });
    }

    fn patch(&mut self, key: u64, call: CallId, (offset, span): (u64, Span), crc: Option<u32>) {
        let Some((client, job, token, debug)) = self.target(key) else {
            return;
        };
        let Some(bytes) = self.span(key, span) else {
            return self.0.job_input(key, job::Input::NotHeld(call));
        };
        let crc = crc.map(|crc| continued(crc, &bytes));
        self.beside(async move {
            let outcome = client.patch_trace(job, &token, debug, offset, bytes).await;
            let answer = gitlab::answer(&outcome);
            Event::Job(key, job::Input::PatchAnswer { call, answer, crc })
        });
    }

    /// The bytes of a part of the trace: the core names only what the edge holds.
    fn span(&self, key: u64, span: Span) -> Option<Vec<u8>> {
        if span.is_empty() {
            return Some(Vec::new());
        }
        let edge = self.0.jobs.get(&key)?;
        let record = edge.core.record()?;
        let part = match span {
            Span::Preamble { from, len } => part(record.preamble().as_bytes(), from, len),
            Span::Suffix { from, len } => part(record.suffix().as_bytes(), from, len),
            Span::Output { from, len } => edge.fetched.part(from, len),
        };
        if part.is_none() {
            tracing::error!(
                gitlab_job = record.taken.gitlab_job,
                request_id = %record.taken.request_id,
                ?span,
                "bytes of a trace are not held, and are read again: a fault of this program"
            );
        }
        part.map(<[u8]>::to_vec)
    }
}

/// A runner whose number no verify has brought asks once more, with the first job in hand: that job
/// waits for it, but not long (SPEC-80).
async fn late_verify(client: &gitlab_runner_api::Client) -> Option<(u64, Verified)> {
    let verify = tokio::time::timeout(LATE_VERIFY, client.verify());
    let (_, verified) = gitlab::verified(verify.await.ok()?);
    let verified = verified?;
    Some((verified.id?, verified))
}

fn request_id() -> RequestId {
    let number = u128::from(drawn()) << 64 | u128::from(drawn());
    RequestId::from_bytes(number.to_be_bytes())
}

/// A CRC-32 carried on over more bytes (GL-72).
fn continued(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}
