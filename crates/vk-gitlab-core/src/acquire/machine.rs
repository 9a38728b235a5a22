//! The machine: inputs change what is known, and what is known says what is to be done.

use std::collections::VecDeque;
use std::mem;

use vk_hub_proto::RequestId;
use vk_hub_proto::relay_session::{LastAnswer, RelayRunnerState, RunnerBeat};
use vk_step::{Core, Now, OpenError};

use super::capacity::CapacityPoll;
use super::gates::{Gate, Gates};
use super::health::Health;
use super::lane::Lane;
use super::last_update::LastUpdate;
use super::releases::Releases;
use super::request::Pace;
use super::verify::Verify;
use super::{Config, Effect, Input, LaneId, Note, Record, Step};
use crate::Spread;

/// Lanes at most.
const MOST_LANES: u32 = 64;
/// Request IDs kept at most.
const MOST_IDS: usize = 64;

/// Asks GitLab for one runner's jobs.
#[derive(Clone, Debug)]
pub struct Acquire {
    pub(super) config: Config,
    pub(super) spread: Spread,
    pub(super) request_ids: VecDeque<RequestId>,
    request_ids_asked: bool,
    pub(super) gates: Gates,
    pub(super) verify: Verify,
    pub(super) health: Health,
    pub(super) last_update: LastUpdate,
    pub(super) capacity: CapacityPoll,
    pub(super) lanes: Vec<Lane>,
    pub(super) releases: Releases,
    pub(super) pace: Pace,
    pub(super) slot_free: bool,
    slot_wanted: bool,
    pub(super) jobs: u32,
    pub(super) last_answer: Option<(u16, Now)>,
    state: RelayRunnerState,
    drained: bool,
    deadline: Option<Now>,
}

impl Core for Acquire {
    type Config = Config;
    type Input = Input;
    type Record = Record;
    type Effect = Effect;

    fn open(
        config: Config,
        now: Now,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(Acquire, Vec<Effect>), OpenError> {
        if let Some(record) = records.into_iter().next() {
            match record {}
        }
        let lanes = config.request_concurrency.clamp(1, MOST_LANES);
        let mut core = Acquire {
            spread: Spread::new(config.seed),
            request_ids: VecDeque::new(),
            request_ids_asked: false,
            gates: Gates::new(config.session),
            verify: Verify::new(now),
            health: Health::new(config.unhealthy_requests_limit, config.unhealthy_interval),
            last_update: LastUpdate::new(now),
            capacity: CapacityPoll::new(),
            lanes: (0..lanes).map(|_| Lane::idle()).collect(),
            releases: Releases::default(),
            pace: Pace::default(),
            slot_free: false,
            slot_wanted: false,
            jobs: config.jobs,
            last_answer: None,
            state: RelayRunnerState::Other,
            drained: false,
            deadline: None,
            config,
        };
        let mut step = Step::none();
        core.advance(now, &mut step);
        Ok((core, step.effects))
    }

    fn handle(&mut self, now: Now, input: Input) -> Step {
        let mut step = Step::none();
        self.take(now, input, &mut step);
        self.advance(now, &mut step);
        step
    }

    fn next_deadline(&self) -> Option<Now> {
        self.deadline
    }

    fn timeout() -> Input {
        Input::Timeout
    }
}

impl Acquire {
    /// What a heartbeat says of this runner (SESS-06).
    #[must_use]
    pub fn beat(&self, now: Now, name: String) -> RunnerBeat {
        RunnerBeat {
            name,
            state: self.state,
            requests: count(self.lanes.iter().filter(|lane| lane.is_requesting())),
            jobs: self.jobs,
            last_answer: self.last_answer.map(|(status, at)| LastAnswer {
                status,
                age_secs: now.since(at).as_secs(),
            }),
        }
    }

    /// Whether GitLab takes the runner's token; none before its first answer (SESS-05).
    #[must_use]
    pub fn token_accepted(&self) -> Option<bool> {
        self.verify.token_taken()
    }

    fn take(&mut self, now: Now, input: Input, step: &mut Step) {
        match input {
            Input::Timeout => {}
            Input::RequestIds(ids) => {
                self.request_ids_asked = false;
                self.request_ids.extend(ids);
                self.request_ids.truncate(MOST_IDS);
            }
            Input::VerifyAnswer(answer) => {
                self.verify.answered(now, answer, &mut self.spread, step);
            }
            Input::Server(status) => self.gates.server(status),
            Input::RelayRefused => self.gates.relay_refused(),
            Input::SlotFree(free) => self.slot_free = free,
            Input::SlotAnswer { lane, taken } => self.slot_answered(now, lane, taken, step),
            Input::CapacityAnswer(answer) => {
                let fits = self.capacity.answered(now, answer, &mut self.spread, step);
                self.start_reserving(now, fits);
            }
            Input::ReserveAnswer { lane, answer } => self.reserved(now, lane, answer, step),
            Input::RenewAnswer {
                lane,
                reservation,
                answer,
            } => self.renewed(now, lane, reservation, answer, step),
            Input::ReleaseAnswer {
                reservation,
                answer,
            } => self
                .releases
                .answered(now, reservation, &answer, &mut self.spread),
            Input::JobAnswer { lane, answer } => self.job_answered(now, lane, answer, step),
            Input::JobOver => {
                self.jobs = self.jobs.saturating_sub(1);
                step.effect(Effect::ReturnSlot);
            }
            Input::StoreFailed { why } => {
                if !mem::replace(&mut self.gates.store_failed, true) {
                    step.effect(Effect::Note(Note::StoreFailed { why }));
                }
            }
            Input::StoreWorks => {
                if mem::take(&mut self.gates.store_failed) {
                    step.effect(Effect::Note(Note::StoreWorks));
                }
            }
            Input::Drain => self.gates.draining = true,
        }
    }

    /// Derives everything that is to be done, in the order of ADM-30.
    fn advance(&mut self, now: Now, step: &mut Step) {
        self.verify.advance(now, self.is_silent(), step);
        self.draw_request_ids(step);
        for index in 0..self.lanes.len() {
            self.advance_lane(now, index, step);
        }
        if self.startable(now) > 0 && self.slot_free && !self.request_ids.is_empty() {
            self.capacity.advance(now, step);
        }
        self.advance_slot_wish(now, step);
        self.releases.advance(now, step);
        self.tell_state(step);
        self.tell_drained(step);
        self.deadline = self.deadlines(now).into_iter().flatten().min();
    }

    /// Whether a request may be sent, room aside.
    pub(super) fn gate(&self, now: Now) -> Gate {
        if !self.gates.are_open() || !self.verify.lets_ask() {
            return Gate::Shut;
        }
        match self.health.paused_until(now) {
            Some(end) => Gate::Until(end),
            None => Gate::Open,
        }
    }

    /// Lanes that may look for room now: gate open, and the runner's own `limit` not reached.
    pub(super) fn startable(&self, now: Now) -> u32 {
        if self.gate(now) != Gate::Open {
            return 0;
        }
        let idle = count(
            self.lanes
                .iter()
                .filter(|lane| matches!(lane, Lane::Idle { not_before } if *not_before <= now)),
        );
        let busy = count(self.lanes.iter().filter(|lane| lane.is_busy()));
        match self.config.limit {
            0 => idle,
            limit => idle.min(limit.saturating_sub(self.jobs.saturating_add(busy))),
        }
    }

    /// Whether GitLab should hear of a runner that would take jobs but asks for none (ADM-36).
    fn is_silent(&self) -> bool {
        self.gates.approved() && !self.gates.draining && !self.health.is_unhealthy()
    }

    fn draw_request_ids(&mut self, step: &mut Step) {
        let wanted = self.lanes.len();
        if self.request_ids_asked || self.gates.draining || self.request_ids.len() >= wanted {
            return;
        }
        self.request_ids_asked = true;
        let missing = wanted.saturating_mul(2).min(MOST_IDS) - self.request_ids.len();
        step.effect(Effect::DrawRequestIds {
            count: u32::try_from(missing).unwrap_or(MOST_LANES),
        });
    }

    /// Waits for a slot where only that is missing, and lets one go that cannot be used now, so
    /// that another runner gets it.
    fn advance_slot_wish(&mut self, now: Now, step: &mut Step) {
        let startable = self.startable(now) > 0;
        if startable && !self.slot_free && !self.slot_wanted {
            self.slot_wanted = true;
            step.effect(Effect::WantSlot);
            return;
        }
        let on_the_way = self
            .lanes
            .iter()
            .any(|lane| lane.is_busy() && !lane.is_requesting());
        let looks_for_room = startable && !(self.slot_free && self.capacity.is_zero());
        if self.slot_wanted && !on_the_way && !looks_for_room {
            self.slot_wanted = false;
            step.effect(Effect::PassSlot);
        }
    }

    /// A slot was taken or refused: the wish is answered.
    pub(super) fn slot_wish_ends(&mut self) {
        self.slot_wanted = false;
    }

    fn tell_state(&mut self, step: &mut Step) {
        let state = self.derive_state();
        if mem::replace(&mut self.state, state) != state {
            step.effect(Effect::State(state));
        }
    }

    fn derive_state(&self) -> RelayRunnerState {
        if self.verify.token_taken() == Some(false) {
            RelayRunnerState::TokenRefused
        } else if !self.gates.approved() {
            RelayRunnerState::ServerPending
        } else if self.health.is_unhealthy() || self.verify.is_failing() {
            RelayRunnerState::Unhealthy
        } else if self.lanes.iter().any(Lane::is_busy) {
            RelayRunnerState::Polling
        } else if self.capacity.is_zero() || !self.slot_free || self.is_at_limit() {
            RelayRunnerState::WaitingCapacity
        } else {
            RelayRunnerState::Polling
        }
    }

    fn is_at_limit(&self) -> bool {
        self.config.limit != 0 && self.jobs >= self.config.limit
    }

    fn tell_drained(&mut self, step: &mut Step) {
        let open = self.lanes.iter().any(|lane| match lane {
            Lane::Idle { .. } => false,
            Lane::Reserving(reserving) => reserving.asked,
            Lane::Holding(_) | Lane::TakingSlot(_) | Lane::Requesting(_) => true,
        });
        if self.gates.draining && !self.drained && !open && !self.releases.unanswered() {
            self.drained = true;
            step.effect(Effect::Drained);
        }
    }

    /// Every moment at which something may become due; those that have passed wait for an input.
    fn deadlines(&self, now: Now) -> Vec<Option<Now>> {
        let mut all = vec![
            self.verify.due(self.is_silent()),
            self.health.paused_until(now),
            self.capacity.due(),
            self.releases.due(),
        ];
        all.extend(self.lanes.iter().flat_map(Lane::deadlines));
        all.retain(|at| at.is_some_and(|at| at > now));
        all
    }

    /// The lane of this number, where there is one.
    pub(super) fn index(&self, lane: LaneId) -> Option<usize> {
        usize::try_from(lane.0)
            .ok()
            .filter(|index| *index < self.lanes.len())
    }
}

/// The number of a lane.
pub(super) fn lane_id(index: usize) -> LaneId {
    LaneId(u32::try_from(index).unwrap_or(MOST_LANES))
}

/// How many there are; never more than [`MOST_LANES`].
fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(MOST_LANES)
}
