//! A runner under test: the core, a clock, and the effects not looked at yet.

use std::time::Duration;

use vk_hub_proto::client::{Capacity, Envelope, ErrorCode, Placement, ReservationGrant};
use vk_hub_proto::{NodeId, RequestId, ReservationId};
use vk_step::{Core, Now};

use crate::acquire::{
    Acquire, Config, Effect, Input, LaneId, RequestAnswer, RequestOutcome, Session, VerifyAnswer,
};
use crate::{HubFailure, NewJob, Work};

pub(super) const LANE: LaneId = LaneId(0);

pub(super) struct Runner {
    pub(super) core: Acquire,
    pub(super) now: Now,
    effects: Vec<Effect>,
    ids: u8,
}

pub(super) fn config() -> Config {
    Config {
        placement: placement(),
        limit: 0,
        request_concurrency: 1,
        lease_secs: 90,
        check_interval: Duration::from_secs(3),
        strict_check_interval: false,
        unhealthy_requests_limit: 3,
        unhealthy_interval: Duration::from_secs(3600),
        session: Session::NotNeeded,
        jobs: 0,
        seed: 11,
    }
}

pub(super) fn placement() -> Placement {
    Placement {
        pool: "default".parse().expect("a name"),
        labels: Vec::new(),
        envelope: envelope(),
    }
}

fn envelope() -> Envelope {
    Envelope {
        mem_mib: 4096,
        cpus: 2,
        disk_bytes: 1 << 30,
    }
}

pub(super) fn reservation(n: u8) -> ReservationId {
    ReservationId::from_bytes([n; 16])
}

pub(super) fn request_id(n: u8) -> RequestId {
    RequestId::from_bytes([n; 16])
}

pub(super) fn grant(n: u8, lease_secs: u32) -> ReservationGrant {
    ReservationGrant {
        reservation: reservation(n),
        node: NodeId::from_bytes([1; 16]),
        envelope: envelope(),
        lease_secs,
    }
}

pub(super) fn job(id: u64) -> Box<NewJob> {
    Box::new(NewJob {
        gitlab_job: id,
        token: "glcbt-token".into(),
        request_id: request_id(200),
        work: Work::Refuse {
            class: vk_hub_proto::job::FailureClass::Configuration,
            lines: Vec::new(),
        },
        spec_bytes: 0,
        preamble: String::new(),
        failure_reasons: Vec::new(),
        debug_trace: false,
        timestamps: true,
        taken_at: 0,
        token_ends: None,
    })
}

pub(super) fn gone() -> HubFailure {
    HubFailure::coded(ErrorCode::ReservationGone, 410, "gone")
}

pub(super) fn no_capacity(secs: Option<u64>) -> HubFailure {
    HubFailure {
        retry_after: secs.map(Duration::from_secs),
        ..HubFailure::coded(ErrorCode::NoCapacity, 503, "no room")
    }
}

impl Runner {
    /// A runner as it is opened.
    pub(super) fn opened(config: Config) -> Runner {
        let now = Now::from_millis(1_000_000);
        let (core, effects) = Acquire::open(config, now, []).expect("opens");
        Runner {
            core,
            now,
            effects,
            ids: 100,
        }
    }

    /// A runner whose token is taken, that has IDs and a free slot.
    pub(super) fn ready(config: Config) -> Runner {
        let mut runner = Runner::opened(config);
        runner.feed_ids();
        runner.give(Input::VerifyAnswer(VerifyAnswer::Taken));
        runner.give(Input::SlotFree(true));
        runner
    }

    /// A runner that holds a reservation for 90 s and has its first request open.
    pub(super) fn requesting() -> Runner {
        Runner::requesting_with(config())
    }

    pub(super) fn requesting_with(config: Config) -> Runner {
        let mut runner = Runner::ready(config);
        runner.reserve(1);
        runner.take_slot();
        runner.expect_request();
        runner
    }

    pub(super) fn give(&mut self, input: Input) {
        let step = self.core.handle(self.now, input);
        self.effects.extend(step.effects);
        assert!(
            self.core.next_deadline().is_none_or(|at| at > self.now),
            "a deadline that has passed is no deadline"
        );
    }

    /// Lets time pass, with every deadline on the way.
    pub(super) fn pass(&mut self, by: Duration) {
        let end = self.now.after(by);
        while let Some(at) = self.core.next_deadline().filter(|at| *at <= end) {
            self.now = at;
            self.give(Input::Timeout);
        }
        self.now = end;
    }

    pub(super) fn pass_secs(&mut self, secs: u64) {
        self.pass(Duration::from_secs(secs));
    }

    /// The effects since the last look, but those of the log and the session.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        let all = std::mem::take(&mut self.effects);
        all.into_iter()
            .filter(|effect| !matches!(effect, Effect::Note(_) | Effect::State(_)))
            .collect()
    }

    /// All effects since the last look.
    pub(super) fn all_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn feed_ids(&mut self) {
        let ids = (0..8)
            .map(|n| request_id(self.ids.wrapping_add(n)))
            .collect();
        self.ids = self.ids.wrapping_add(8);
        self.give(Input::RequestIds(ids));
    }

    pub(super) fn capacity(&mut self, revision: u64, fits: u32) {
        self.give(Input::CapacityAnswer(Ok(Capacity {
            revision,
            fits,
            no_nodes: false,
        })));
    }

    /// From an open capacity poll to a held reservation.
    pub(super) fn reserve(&mut self, n: u8) {
        let asked = self.effects();
        assert!(
            asked
                .iter()
                .any(|effect| matches!(effect, Effect::AskCapacity { .. })),
            "{asked:?}"
        );
        self.capacity(7, 1);
        assert!(matches!(self.effects()[..], [Effect::Reserve { .. }]));
        self.give(Input::ReserveAnswer {
            lane: LANE,
            answer: Ok(grant(n, 90)),
        });
    }

    pub(super) fn take_slot(&mut self) {
        let effects = self.effects();
        assert_eq!(effects, [Effect::TakeSlot { lane: LANE }]);
        self.give(Input::SlotAnswer {
            lane: LANE,
            taken: true,
        });
    }

    /// The request that went out just now: its `last_update`.
    pub(super) fn expect_request(&mut self) -> Option<String> {
        match &self.effects()[..] {
            [Effect::RequestJob { last_update, .. }] => last_update.clone(),
            other => panic!("no request: {other:?}"),
        }
    }

    pub(super) fn answer(&mut self, outcome: RequestOutcome, last_update: Option<&str>) {
        self.give(Input::JobAnswer {
            lane: LANE,
            answer: RequestAnswer {
                last_update: last_update.map(str::to_owned),
                outcome,
            },
        });
    }

    pub(super) fn answer_status(&mut self, status: u16, retry_after: Option<u64>) {
        let outcome = RequestOutcome::Status {
            status,
            retry_after: retry_after.map(Duration::from_secs),
        };
        self.answer(outcome, None);
    }

    /// A 204 of the kind Workhorse gives, or of the kind Rails does.
    pub(super) fn no_job(&mut self, last_update: Option<&str>) {
        let outcome = RequestOutcome::Status {
            status: 204,
            retry_after: None,
        };
        self.answer(outcome, last_update);
    }

    pub(super) fn renewed(&mut self, n: u8, lease_secs: u32) {
        self.give(Input::RenewAnswer {
            lane: LANE,
            reservation: reservation(n),
            answer: Ok(grant(n, lease_secs)),
        });
    }

    pub(super) fn not_renewed(&mut self, n: u8, failure: HubFailure) {
        self.give(Input::RenewAnswer {
            lane: LANE,
            reservation: reservation(n),
            answer: Err(failure),
        });
    }

    /// After a 204: the renewal, the slot, the request.
    pub(super) fn ask_again(&mut self, n: u8) -> Option<String> {
        let effects = self.effects();
        assert!(
            effects.contains(&renew(n)),
            "renewed before it is asked on again: {effects:?}"
        );
        self.renewed(n, 90);
        self.take_slot();
        self.expect_request()
    }
}

pub(super) fn renew(n: u8) -> Effect {
    Effect::Renew {
        lane: LANE,
        reservation: reservation(n),
        lease_secs: 90,
    }
}

pub(super) fn release(n: u8) -> Effect {
    Effect::Release {
        reservation: reservation(n),
    }
}
