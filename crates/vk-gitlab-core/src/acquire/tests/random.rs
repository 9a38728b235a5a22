//! Under any inputs in any order: no request without a live reservation.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use vk_hub_proto::client::{Capacity, ErrorCode, ReservationGrant};
use vk_hub_proto::relay_session::ServerStatus;
use vk_hub_proto::{RequestId, ReservationId};
use vk_step::{Core, Now};

use super::runner::{config, grant, job};
use crate::HubFailure;
use crate::acquire::{
    Acquire, Config, Effect, Input, LaneId, RequestAnswer, RequestOutcome, Session, VerifyAnswer,
};

/// What the world outside knows: which leases live, which requests are open.
#[derive(Default)]
struct Model {
    /// When each reservation request ID was first sent.
    asked: BTreeMap<RequestId, Now>,
    reserving: BTreeMap<LaneId, RequestId>,
    /// Leases, counted as the contract says.
    leases: BTreeMap<ReservationId, Now>,
    renewing: BTreeMap<(LaneId, ReservationId), Now>,
    open: BTreeMap<LaneId, ReservationId>,
    wants_slot: Vec<LaneId>,
    releasing: Vec<ReservationId>,
    slots: i64,
    capacity_open: bool,
    verify_open: bool,
    ids_wanted: u32,
    next: u64,
    approved: bool,
    session_needed: bool,
    stopped: bool,
    requests: u32,
}

impl Model {
    fn effects(&mut self, now: Now, lanes: u32, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::DrawRequestIds { count } => self.ids_wanted = count,
                Effect::Verify => {
                    assert!(!self.verify_open);
                    self.verify_open = true;
                }
                Effect::AskCapacity { .. } => {
                    assert!(!self.capacity_open, "one poll at a time");
                    self.capacity_open = true;
                }
                Effect::Reserve {
                    lane, request_id, ..
                } => {
                    self.asked.entry(request_id).or_insert(now);
                    assert!(self.reserving.insert(lane, request_id).is_none());
                }
                Effect::Renew {
                    lane, reservation, ..
                } => {
                    let until = self
                        .leases
                        .get(&reservation)
                        .expect("a reservation of ours");
                    assert!(*until > now, "a lapsed lease is not renewed (ADM-28)");
                    assert!(self.renewing.insert((lane, reservation), now).is_none());
                }
                Effect::Release { reservation } => {
                    self.leases.remove(&reservation);
                    self.releasing.push(reservation);
                }
                Effect::RequestJob {
                    lane, reservation, ..
                } => self.request(now, lane, reservation),
                Effect::TakeSlot { lane } => self.wants_slot.push(lane),
                Effect::ReturnSlot => {
                    self.slots += 1;
                }
                Effect::TakeJob { reservation, .. } => {
                    if let Ok(id) = reservation {
                        let until = self.leases.remove(&id).expect("alive (ADM-28)");
                        assert!(until > now, "a job is not handed on under a lapsed lease");
                    }
                }
                Effect::Drained => assert!(self.open.is_empty()),
                Effect::WantSlot | Effect::PassSlot | Effect::State(_) | Effect::Note(_) => {}
            }
        }
        assert!(self.open.len() <= lanes as usize);
    }

    /// ADM-07, ADM-39: the invariant this crate is for.
    fn request(&mut self, now: Now, lane: LaneId, reservation: ReservationId) {
        let until = *self.leases.get(&reservation).expect("a held reservation");
        assert!(
            now.until(until) >= Duration::from_secs(60),
            "lease too short"
        );
        assert!(
            self.open.values().all(|other| *other != reservation),
            "one request a reservation"
        );
        assert!(self.open.insert(lane, reservation).is_none());
        let approved = self.approved || !self.session_needed;
        assert!(approved && !self.stopped, "asked behind a shut gate");
        self.requests += 1;
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn id(n: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}

fn failure(n: u8) -> HubFailure {
    match n % 6 {
        0 => HubFailure::transport("cut"),
        1 => HubFailure::coded(ErrorCode::NoCapacity, 503, "full"),
        2 => HubFailure::coded(ErrorCode::ReservationGone, 410, "gone"),
        3 => HubFailure::coded(ErrorCode::Unauthorized, 401, "who"),
        4 => HubFailure::coded(ErrorCode::Internal, 500, "oops"),
        _ => HubFailure::coded(ErrorCode::Unavailable, 503, "busy"),
    }
}

fn outcome(n: u8, model: &mut Model) -> RequestOutcome {
    match n % 12 {
        0..=2 => RequestOutcome::Job(job(model.fresh())),
        3 => RequestOutcome::Failed {
            why: String::new(),
            sent: n > 99,
        },
        4 => RequestOutcome::Undecodable { why: String::new() },
        5 => status(409),
        6 => status(429),
        7 => status(500 + u16::from(n % 5)),
        8 if n > 200 => status(403),
        _ => status(204),
    }
}

fn status(status: u16) -> RequestOutcome {
    RequestOutcome::Status {
        status,
        retry_after: status.is_multiple_of(2).then_some(Duration::from_secs(20)),
    }
}

/// An input that may come now, chosen by the numbers; none where that kind cannot.
fn input(kind: u8, n: u8, model: &mut Model, now: Now) -> Option<Input> {
    let nth = |len: usize| usize::from(n) % len.max(1);
    Some(match kind % 14 {
        0..=1 => Input::Timeout,
        2 => {
            let count = std::mem::take(&mut model.ids_wanted);
            if count == 0 {
                return None;
            }
            Input::RequestIds(
                (0..count)
                    .map(|_| RequestId::from_bytes(id(model.fresh())))
                    .collect(),
            )
        }
        3 if std::mem::take(&mut model.verify_open) => Input::VerifyAnswer(match n % 8 {
            0 => VerifyAnswer::Unavailable { retry_after: None },
            1 if n > 200 => VerifyAnswer::Refused,
            _ => VerifyAnswer::Taken,
        }),
        4 => {
            model.approved = !n.is_multiple_of(4);
            Input::Server(if model.approved {
                ServerStatus::Approved
            } else {
                ServerStatus::Pending
            })
        }
        5 => Input::SlotFree(!n.is_multiple_of(5)),
        6 => {
            if model.wants_slot.is_empty() {
                return None;
            }
            let lane = model.wants_slot.remove(nth(model.wants_slot.len()));
            let taken = !n.is_multiple_of(6);
            model.slots -= i64::from(taken);
            Input::SlotAnswer { lane, taken }
        }
        7 if std::mem::take(&mut model.capacity_open) => {
            Input::CapacityAnswer(if n.is_multiple_of(5) {
                Err(failure(n))
            } else {
                Ok(Capacity {
                    revision: n.into(),
                    fits: u32::from(n % 4),
                    no_nodes: n.is_multiple_of(8),
                })
            })
        }
        8..=9 => {
            let (lane, request) = model
                .reserving
                .iter()
                .nth(nth(model.reserving.len()))
                .map(|(lane, request)| (*lane, *request))?;
            model.reserving.remove(&lane);
            Input::ReserveAnswer {
                lane,
                answer: if n.is_multiple_of(5) {
                    Err(failure(n))
                } else {
                    let lease = [90, 90, 90, 61, 45][usize::from(n % 5)];
                    let reservation = ReservationId::from_bytes(*request.as_bytes());
                    let until = model.asked[&request].after(Duration::from_secs(lease.into()));
                    model.leases.insert(reservation, until);
                    Ok(ReservationGrant {
                        reservation,
                        ..grant(0, lease)
                    })
                },
            }
        }
        10 => {
            let ((lane, reservation), sent) = model
                .renewing
                .iter()
                .nth(nth(model.renewing.len()))
                .map(|(key, sent)| (*key, *sent))?;
            model.renewing.remove(&(lane, reservation));
            renewal(n, lane, reservation, sent, model, now)
        }
        11 => {
            let reservation = model.releasing.pop()?;
            Input::ReleaseAnswer {
                reservation,
                answer: if n.is_multiple_of(3) {
                    Err(failure(n))
                } else {
                    Ok(())
                },
            }
        }
        12 => {
            let lane = *model.open.keys().nth(nth(model.open.len()))?;
            model.open.remove(&lane);
            Input::JobAnswer {
                lane,
                answer: RequestAnswer {
                    last_update: n.is_multiple_of(2).then(|| n.to_string()),
                    outcome: outcome(n, model),
                },
            }
        }
        13 if n < 2 => {
            model.stopped = true;
            Input::Drain
        }
        _ => return None,
    })
}

fn renewal(
    n: u8,
    lane: LaneId,
    reservation: ReservationId,
    sent: Now,
    model: &mut Model,
    now: Now,
) -> Input {
    let answer = if n.is_multiple_of(4) {
        let failure = failure(n);
        if failure.code == Some(ErrorCode::ReservationGone) {
            model.leases.remove(&reservation);
        }
        Err(failure)
    } else {
        // A lease believed lapsed is not revived by a late answer.
        if model
            .leases
            .get(&reservation)
            .is_some_and(|until| *until > now)
        {
            let until = sent.after(Duration::from_secs(90));
            model.leases.insert(reservation, until);
        }
        Ok(ReservationGrant {
            reservation,
            ..grant(0, 90)
        })
    };
    Input::RenewAnswer {
        lane,
        reservation,
        answer,
    }
}

fn run(settings: Config, script: &[(u8, u8, u32)]) -> Model {
    let lanes = settings.request_concurrency;
    let mut now = Now::from_millis(0);
    let mut model = Model {
        session_needed: settings.session == Session::Required,
        ..Model::default()
    };
    let (mut core, effects) = Acquire::open(settings, now, []).expect("opens");
    model.effects(now, lanes, effects);
    for (kind, n, wait) in script {
        now = now.after(Duration::from_millis(u64::from(*wait)));
        if let Some(input) = input(*kind, *n, &mut model, now) {
            let step = core.handle(now, input);
            model.effects(now, lanes, step.effects);
            assert!(core.next_deadline().is_none_or(|at| at > now));
        }
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// ADM-07, ADM-28, ADM-39
    #[test]
    fn a_request_starts_only_under_a_reservation_that_outlasts_it(
        lanes in 1u32..4,
        session in prop_oneof![Just(Session::Required), Just(Session::NotNeeded)],
        script in proptest::collection::vec((any::<u8>(), any::<u8>(), prop_oneof![
            4 => 0u32..2_000,
            2 => 2_000u32..40_000,
            1 => 40_000u32..100_000,
        ]), 0..400),
    ) {
        let settings = Config { request_concurrency: lanes, session, ..config() };
        run(settings, &script);
    }
}

/// The random runs reach what they are to judge.
#[test]
fn random_inputs_do_send_requests() {
    let mut state = 1u64;
    let script: Vec<(u8, u8, u32)> = (0..20_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bytes = state.to_be_bytes();
            // Neither drains nor refused tokens, which end a run.
            let n = bytes[1].clamp(2, 199);
            (bytes[0], n, u32::from(bytes[2]) * 4)
        })
        .collect();
    let settings = Config {
        session: Session::NotNeeded,
        unhealthy_interval: Duration::from_secs(5),
        ..config()
    };
    let mut script = script;
    for (kind, _, _) in &mut script {
        if *kind % 14 == 4 {
            *kind = 0;
        }
    }
    let requests = run(settings, &script).requests;
    assert!(requests > 100, "{requests}");
}
