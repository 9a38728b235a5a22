//! A fleet on a bench: one machine, its records, a clock, and words for what tests say often.

use std::collections::BTreeMap;
use std::time::Duration;

use vk_hub_core::{
    Answer, Approve, Config, Effect, Fleet, FromNode, FromRelay, Input, OperatorRequest, Principal,
    ProjectNumber, Record, Request, RequestHandle, ServerNumber, SessionHandle, Settings,
};
use vk_hub_proto::client::{
    CancelMode, Capacity, CapacityRequest, JobState, JobSubmission, JobView, RenewRequest,
    ReservationGrant, ReservationRequest,
};
use vk_hub_proto::dispatch::{
    HeldJob, HeldReservation, LeaseState, OfferReply, RefusalReason, RunState,
};
use vk_hub_proto::job::{FailureClass, JobResult};
use vk_hub_proto::relay_session::{RelayReport, ServerStatus};
use vk_hub_proto::{JobId, ReservationId};
use vk_step::{Core, Now};

mod expected;
mod sample;

pub(crate) use expected::*;
pub(crate) use sample::*;

pub(crate) struct Bench {
    pub(crate) fleet: Fleet,
    pub(crate) now: Now,
    pub(crate) records: Vec<Record>,
    pub(crate) settings: Settings,
    pub(crate) wall_secs: u64,
    pub(crate) outputs: BTreeMap<JobId, u64>,
    next: u64,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Bench {
        let mut settings = Settings {
            approve: Approve::All,
            ..Settings::default()
        };
        change(&mut settings);
        let config = Config {
            settings: settings.clone(),
            wall_secs: 1_000,
            outputs: BTreeMap::new(),
        };
        let (fleet, effects) = Fleet::open(config, Now::ZERO, Vec::new()).unwrap();
        assert_eq!(effects, [Effect::RetainOutputs { jobs: Vec::new() }]);
        Bench {
            fleet,
            now: Now::ZERO,
            records: Vec::new(),
            settings,
            wall_secs: 1_000,
            outputs: BTreeMap::new(),
            next: 100,
        }
    }

    /// A fleet with node 1 in pool `ci`, connected, with room for so many envelopes.
    pub(crate) fn with_node(room: u64) -> (Bench, SessionHandle) {
        let mut bench = Bench::new();
        bench.add_node(1);
        let session = bench.connect(1, room);
        (bench, session)
    }

    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let step = self.fleet.handle(self.now, input);
        self.records.extend(step.records);
        assert_eq!(self.fleet.check(), Ok(()));
        step.effects
    }

    /// Lets time pass, deadline by deadline.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Effect> {
        let end = self.now.after(time);
        let mut effects = Vec::new();
        for _ in 0..10_000 {
            let Some(at) = self.fleet.next_deadline().filter(|at| *at <= end) else {
                self.now = end;
                return effects;
            };
            self.now = self.now.max(at);
            effects.extend(self.step(Input::Timeout));
        }
        panic!("deadlines never end: {:?}", self.fleet.next_deadline());
    }

    pub(crate) fn pass_secs(&mut self, secs: u64) -> Vec<Effect> {
        self.pass(Duration::from_secs(secs))
    }

    /// Lets time pass while something of this session arrives each second.
    pub(crate) fn stay(&mut self, session: SessionHandle, secs: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..secs {
            effects.extend(self.pass_secs(1));
            effects.extend(self.step(Input::Alive { session }));
        }
        effects
    }

    pub(crate) fn handle(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A request, its handle and its effects.
    pub(crate) fn send(&mut self, by: Principal, request: Request) -> (RequestHandle, Vec<Effect>) {
        let to = RequestHandle(self.handle());
        let effects = self.step(Input::Request { to, by, request });
        (to, effects)
    }

    /// A request that is answered at once.
    pub(crate) fn ask(&mut self, request: Request) -> Answer {
        self.ask_as(1, request)
    }

    pub(crate) fn ask_as(&mut self, by: u8, request: Request) -> Answer {
        let (to, effects) = self.send(relay(by), request);
        answer(&effects, to).expect("an answer at once")
    }

    pub(crate) fn operate(&mut self, request: OperatorRequest) -> (Answer, Vec<Effect>) {
        let to = RequestHandle(self.handle());
        let effects = self.step(Input::Operator { to, request });
        (answer(&effects, to).expect("an answer at once"), effects)
    }

    pub(crate) fn add_node(&mut self, n: u8) {
        let (done, _) = self.operate(OperatorRequest::AddNode {
            node: node(n),
            pools: vec!["ci".parse().unwrap()],
        });
        assert_eq!(done, Answer::Done);
    }

    pub(crate) fn open(&mut self, n: u8, version: u32) -> (SessionHandle, Vec<Effect>) {
        let session = SessionHandle(self.handle());
        let effects = self.step(Input::SessionOpened {
            session,
            node: node(n),
            version,
        });
        (session, effects)
    }

    /// A session up to, but without, `held`.
    pub(crate) fn greet(&mut self, n: u8, room: u64) -> SessionHandle {
        let (session, _) = self.open(n, 3);
        self.from(session, FromNode::Inventory(Box::new(inventory(4, &[]))));
        self.from(session, FromNode::Report(Box::new(ready())));
        self.beat(session, room);
        session
    }

    pub(crate) fn connect(&mut self, n: u8, room: u64) -> SessionHandle {
        let session = self.greet(n, room);
        self.held(session, Vec::new(), Vec::new());
        session
    }

    /// A session whose node holds these reservations.
    pub(crate) fn connect_with(
        &mut self,
        n: u8,
        room: u64,
        reservations: Vec<HeldReservation>,
    ) -> SessionHandle {
        let session = self.greet(n, room);
        self.held(session, reservations, Vec::new());
        session
    }

    pub(crate) fn from(&mut self, session: SessionHandle, message: FromNode) -> Vec<Effect> {
        self.step(Input::Node { session, message })
    }

    pub(crate) fn beat(&mut self, session: SessionHandle, room: u64) -> Vec<Effect> {
        self.from(session, FromNode::Heartbeat(Box::new(heartbeat(room))))
    }

    pub(crate) fn held(
        &mut self,
        session: SessionHandle,
        reservations: Vec<HeldReservation>,
        jobs: Vec<HeldJob>,
    ) -> Vec<Effect> {
        self.from(session, FromNode::Held { reservations, jobs })
    }

    /// A relay's session, without a report.
    pub(crate) fn open_relay(&mut self, n: u8) -> (SessionHandle, Vec<Effect>) {
        let session = SessionHandle(self.handle());
        let relay = relay_id(n);
        let effects = self.step(Input::RelayOpened { session, relay });
        (session, effects)
    }

    /// A relay reports; how its server stands, as it is told.
    pub(crate) fn reports(
        &mut self,
        session: SessionHandle,
        report: RelayReport,
    ) -> Option<ServerStatus> {
        let message = FromRelay::Report(Box::new(report));
        let effects = self.step(Input::Relay { session, message });
        server_status(&effects, session)
    }

    /// What an operator decides of `s<n>`; the effects.
    pub(crate) fn decides(&mut self, server: u32, approved: bool) -> Vec<Effect> {
        let (done, effects) = self.operate(OperatorRequest::DecideServer {
            server: ServerNumber(server),
            approved,
            all_projects: None,
        });
        assert_eq!(done, Answer::Done);
        effects
    }

    pub(crate) fn decides_project(&mut self, project: u32, approved: bool) {
        let (done, _) = self.operate(OperatorRequest::DecideProject {
            project: ProjectNumber(project),
            approved,
        });
        assert_eq!(done, Answer::Done);
    }

    pub(crate) fn close(&mut self, session: SessionHandle) -> Vec<Effect> {
        self.step(Input::SessionClosed { session })
    }

    pub(crate) fn job_is(&mut self, session: SessionHandle, n: u8, state: RunState) -> Vec<Effect> {
        self.from(session, FromNode::Job { job: job(n), state })
    }

    pub(crate) fn ends(&mut self, session: SessionHandle, n: u8, result: JobResult) -> Vec<Effect> {
        let result = Box::new(result);
        self.from(
            session,
            FromNode::Result {
                job: job(n),
                result,
            },
        )
    }

    pub(crate) fn writes(
        &mut self,
        session: SessionHandle,
        n: u8,
        offset: u64,
        len: u32,
    ) -> Vec<Effect> {
        let job = job(n);
        self.from(session, FromNode::Output { job, offset, len })
    }

    pub(crate) fn synced(&mut self, n: u8, length: u64) -> Vec<Effect> {
        self.outputs.insert(job(n), length);
        self.step(Input::OutputSynced {
            lengths: vec![(job(n), length)],
        })
    }

    pub(crate) fn capacity(
        &mut self,
        after: Option<u64>,
        wait_secs: u32,
    ) -> (RequestHandle, Vec<Effect>) {
        let request = CapacityRequest {
            placement: placement(),
            after,
            wait_secs,
        };
        self.send(relay(1), Request::Capacity(request))
    }

    pub(crate) fn capacity_now(&mut self) -> Capacity {
        let (to, effects) = self.capacity(None, 0);
        match answer(&effects, to) {
            Some(Answer::Capacity(capacity)) => capacity,
            other => panic!("no capacity: {other:?}"),
        }
    }

    pub(crate) fn reserve_request(n: u8, wait_secs: u32) -> Request {
        Request::Reserve {
            request: ReservationRequest {
                request_id: request_id(n),
                placement: placement(),
                lease_secs: 90,
                wait_secs,
            },
            digest: digest(n),
            fresh: reservation(n),
        }
    }

    pub(crate) fn reserve(&mut self, n: u8, wait_secs: u32) -> (RequestHandle, Vec<Effect>) {
        self.send(relay(1), Bench::reserve_request(n, wait_secs))
    }

    pub(crate) fn accepts(&mut self, session: SessionHandle, id: ReservationId) -> Vec<Effect> {
        let reply = OfferReply::Accepted { lease_secs: 90 };
        self.from(
            session,
            FromNode::OfferReply {
                reservation: id,
                reply,
            },
        )
    }

    pub(crate) fn refuses(
        &mut self,
        session: SessionHandle,
        id: ReservationId,
        reason: RefusalReason,
    ) -> Vec<Effect> {
        let reply = OfferReply::Refused {
            reason,
            message: None,
        };
        self.from(
            session,
            FromNode::OfferReply {
                reservation: id,
                reply,
            },
        )
    }

    /// Reserves on the node of this session, which accepts.
    pub(crate) fn reserved(&mut self, session: SessionHandle, n: u8) -> ReservationGrant {
        let (to, _) = self.reserve(n, 0);
        let effects = self.accepts(session, reservation(n));
        match answer(&effects, to) {
            Some(Answer::Granted(grant)) => grant,
            other => panic!("no grant: {other:?}"),
        }
    }

    pub(crate) fn lease_is(
        &mut self,
        session: SessionHandle,
        id: ReservationId,
        state: LeaseState,
    ) -> Vec<Effect> {
        self.from(
            session,
            FromNode::Lease {
                reservation: id,
                state,
            },
        )
    }

    pub(crate) fn renew(&mut self, id: ReservationId) -> (RequestHandle, Vec<Effect>) {
        let request = RenewRequest { lease_secs: 90 };
        self.send(
            relay(1),
            Request::Renew {
                reservation: id,
                request,
            },
        )
    }

    pub(crate) fn submit_request(n: u8, submission: JobSubmission) -> Request {
        Request::Submit {
            submission: Box::new(submission),
            digest: digest(n),
            spec_bytes: 1_000,
            fresh: job(n),
        }
    }

    /// Submits job `n`; its effects.
    pub(crate) fn submit(&mut self, n: u8, on: Option<ReservationId>) -> Vec<Effect> {
        let (to, effects) = self.send(relay(1), Bench::submit_request(n, submission(n, on)));
        assert!(
            matches!(answer(&effects, to), Some(Answer::Submitted(_))),
            "{effects:?}"
        );
        effects
    }

    /// Job `n`, started without a reservation and accepted by the node of this session.
    pub(crate) fn running(&mut self, session: SessionHandle, n: u8) {
        let effects = self.submit(n, None);
        assert!(effects.contains(&start(session, n, None)), "{effects:?}");
        self.job_is(session, n, RunState::Accepted);
        assert_eq!(self.view(n).state, JobState::Running);
    }

    pub(crate) fn view(&self, n: u8) -> JobView {
        self.fleet.job(job(n)).expect("the job").view
    }

    pub(crate) fn failure(&self, n: u8) -> Option<FailureClass> {
        self.view(n).result.expect("a result").failure
    }

    pub(crate) fn watch(
        &mut self,
        n: u8,
        after: u64,
        wait_secs: u32,
    ) -> (RequestHandle, Vec<Effect>) {
        let request = Request::View {
            job: job(n),
            after: Some(after),
            wait_secs,
        };
        self.send(relay(1), request)
    }

    pub(crate) fn read(
        &mut self,
        n: u8,
        offset: u64,
        wait_secs: u32,
    ) -> (RequestHandle, Vec<Effect>) {
        let request = Request::Output {
            job: job(n),
            offset,
            wait_secs,
        };
        self.send(relay(1), request)
    }

    pub(crate) fn cancel(&mut self, n: u8, mode: CancelMode) -> (Answer, Vec<Effect>) {
        let (to, effects) = self.send(relay(1), Request::Cancel { job: job(n), mode });
        (answer(&effects, to).expect("an answer at once"), effects)
    }

    pub(crate) fn settle(&mut self, n: u8) -> (Answer, Vec<Effect>) {
        let (to, effects) = self.send(relay(1), Request::Settle { job: job(n) });
        (answer(&effects, to).expect("an answer at once"), effects)
    }

    /// The hub dies and is started again from its records; nothing else survives. Its effects.
    pub(crate) fn restart(&mut self) -> Vec<Effect> {
        self.restart_from(self.records.clone())
    }

    pub(crate) fn restart_from(&mut self, records: Vec<Record>) -> Vec<Effect> {
        let config = Config {
            settings: self.settings.clone(),
            wall_secs: self.wall_secs,
            outputs: self.outputs.clone(),
        };
        let (fleet, effects) = Fleet::open(config, self.now, records.clone()).unwrap();
        self.fleet = fleet;
        self.records = records;
        effects
    }
}
