//! What travels: sessions in order, requests with their losses.

use vk_gitlab_core::HubFailure;
use vk_gitlab_core::acquire::{self, RequestOutcome, VerifyAnswer};
use vk_gitlab_core::job::{self, GitLabAnswer, OutputRead};
use vk_hub_core::{Answer, Input, SessionHandle};
use vk_hub_proto::node_session::{HubMessage, NodeMessage};
use vk_node_core::Input as NodeInput;

use crate::breakage::Breakage;
use crate::call::{GitLabAsk, HubAsker};
use crate::daemon::no_answer;
use crate::event::{Event, JobAnswer};
use crate::fault::Fault;
use crate::world::World;

/// One node's session with the hub.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) node: usize,
    node_life: u32,
    hub_life: u32,
    at_hub: bool,
    at_node: bool,
    to_hub_after: u64,
    to_node_after: u64,
}

impl Session {
    pub(crate) const fn is_open(&self) -> bool {
        self.at_hub && self.at_node
    }
}

impl World {
    /// A node dials; it comes back later where that fails.
    pub(crate) fn dial(&mut self, index: usize, life: u32) {
        let Some(node) = self.nodes.get(index) else {
            return;
        };
        if node.life != life || node.core.is_none() || node.session.is_some() {
            return;
        }
        if self.hub.core.is_none() || node.away_until > self.now {
            let at =
                self.now.max(node.away_until.min(self.now + 30_000)) + self.rng.between(1000, 5000);
            self.queue.add(at, Event::Dial(index, life));
            return;
        }
        self.next_session += 1;
        let number = self.next_session;
        let session = Session {
            node: index,
            node_life: life,
            hub_life: self.hub.life,
            at_hub: true,
            at_node: true,
            to_hub_after: self.now,
            to_node_after: self.now,
        };
        self.sessions.insert(number, session);
        if let Some(node) = self.nodes.get_mut(index) {
            node.session = Some(number);
        }
        let node = self.node_id(index);
        let session = SessionHandle(number);
        self.hub_input(
            Input::SessionOpened {
                session,
                node,
                version: 3,
            },
            None,
        );
        self.send_to_hub(index, number, World::inventory(index));
        self.node_input(
            index,
            NodeInput::SessionOpened {
                session: number,
                version: 3,
            },
        );
        self.queue.add(self.now + 1, Event::Beat(index, life));
    }

    pub(crate) fn send_to_hub(&mut self, index: usize, session: u64, message: NodeMessage) {
        let delay = self.rng.between(1, 30);
        let Some(open) = self.sessions.get_mut(&session) else {
            return;
        };
        if !open.at_node || open.node != index || self.broken.contains(&session) {
            return;
        }
        open.to_hub_after = open.to_hub_after.max(self.now + delay);
        self.queue
            .add(open.to_hub_after, Event::ToHub(session, Box::new(message)));
    }

    pub(crate) fn send_to_node(&mut self, session: u64, message: Option<HubMessage>) {
        let delay = self.rng.between(1, 30);
        let (Some(open), Some(message)) = (self.sessions.get_mut(&session), message) else {
            return;
        };
        if !open.at_hub || self.broken.contains(&session) {
            return;
        }
        open.to_node_after = open.to_node_after.max(self.now + delay);
        let (index, at) = (open.node, open.to_node_after);
        self.may_come_again(index, &message);
        self.queue
            .add(at, Event::ToNode(session, Box::new(message)));
    }

    pub(crate) fn arrives_at_hub(&mut self, session: u64, message: NodeMessage) {
        let open = self.sessions.get(&session);
        if open.is_some_and(|open| open.at_hub && open.hub_life == self.hub.life) {
            self.hub_message(session, message);
        }
    }

    pub(crate) fn arrives_at_node(&mut self, session: u64, message: HubMessage) {
        let Some(open) = self.sessions.get(&session) else {
            return;
        };
        let index = open.node;
        if open.at_node
            && self
                .nodes
                .get(index)
                .is_some_and(|node| node.life == open.node_life)
        {
            self.node_message(index, message);
        }
    }

    /// The connection is gone; each side learns of it in its own time.
    pub(crate) fn session_broken(&mut self, session: u64) {
        if self.sessions.contains_key(&session) {
            let (hub, node) = (self.rng.between(1, 12_000), self.rng.between(1, 12_000));
            self.queue.add(self.now + hub, Event::EndAtHub(session));
            self.queue.add(self.now + node, Event::EndAtNode(session));
            // Nothing sent from here on arrives.
            self.broken.insert(session);
        }
    }

    pub(crate) fn end_at_hub(&mut self, session: u64) {
        let Some(open) = self.sessions.get_mut(&session) else {
            return;
        };
        if !std::mem::replace(&mut open.at_hub, false) {
            return;
        }
        if open.hub_life == self.hub.life {
            if self.breakage == Some(Breakage::DoubleStart) {
                self.start_elsewhere(session);
            }
            self.hub_input(
                Input::SessionClosed {
                    session: SessionHandle(session),
                },
                None,
            );
        }
        self.forget_session(session);
    }

    pub(crate) fn end_at_node(&mut self, session: u64) {
        let Some(open) = self.sessions.get_mut(&session) else {
            return;
        };
        if !std::mem::replace(&mut open.at_node, false) {
            return;
        }
        let (index, life) = (open.node, open.node_life);
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        if node.life == life {
            node.session = None;
            self.node_input(index, NodeInput::SessionLost);
            let at = self.now + self.rng.between(500, 3000);
            let life = self.nodes.get(index).map_or(life, |node| node.life);
            self.queue.add(at, Event::Dial(index, life));
        }
        self.forget_session(session);
    }

    fn forget_session(&mut self, session: u64) {
        if self
            .sessions
            .get(&session)
            .is_some_and(|open| !open.at_hub && !open.at_node)
        {
            self.sessions.remove(&session);
            self.broken.remove(&session);
        }
    }

    /// A node's session is cut, and the node cannot come back before a while.
    pub(crate) fn cut(&mut self, index: usize, away_ms: u64) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        if let Some(session) = node.session {
            // Not before: a node that was kept away would never have one to cut.
            node.away_until = node.away_until.max(now + away_ms);
            let long = away_ms > 300_000;
            self.faults.count(if long {
                Fault::NodePartitioned
            } else {
                Fault::SessionCut
            });
            self.session_broken(session);
        } else if self.pushed < self.plan.most_jobs && now < 4 * self.plan.busy_ms {
            // There is none to cut now; there will be.
            self.queue.add(now + 900, Event::Cut(index, away_ms));
        }
    }

    /// The daemon died: its requests' connections break.
    pub(crate) fn hub_hung_up(&mut self) {
        let life = self.daemon.life;
        let dead = |call: &u64| {
            self.hub_calls
                .get(call)
                .is_none_or(|call| call.life != life)
        };
        let gone: Vec<_> = self
            .hub
            .waiting
            .iter()
            .filter(|(_, call)| dead(call))
            .map(|(to, _)| *to)
            .collect();
        for to in gone {
            self.hub.waiting.remove(&to);
            self.hub_input(Input::HungUp { to }, None);
        }
        self.hub_calls.retain(|_, call| call.life == life);
    }

    /// The hub's answer, or the lack of one, reaches the core that asked.
    pub(crate) fn hub_answers(&mut self, number: u64, answered: Option<(Answer, Vec<u8>)>) {
        let Some(call) = self.hub_calls.remove(&number) else {
            return;
        };
        if let Some(to) = self
            .hub
            .waiting
            .iter()
            .find(|(_, of)| **of == number)
            .map(|(to, _)| *to)
        {
            self.hub.waiting.remove(&to);
            self.hub_input(Input::HungUp { to }, None);
        }
        if call.life != self.daemon.life || !self.daemon.is_up() {
            return;
        }
        let answered = match answered {
            None => Err(no_answer()),
            Some((Answer::Refused(refusal), _)) => Err(HubFailure {
                retry_after: refusal
                    .error
                    .retry_after_secs
                    .map(|secs| std::time::Duration::from_secs(secs.into())),
                job: refusal.error.job,
                ..HubFailure::coded(refusal.error.code, refusal.status, refusal.error.error)
            }),
            Some(answered) => Ok(answered),
        };
        self.tell_asker(call.asker, answered);
    }

    fn tell_asker(&mut self, asker: HubAsker, answered: Result<(Answer, Vec<u8>), HubFailure>) {
        let view = |answered: Result<(Answer, Vec<u8>), HubFailure>| match answered {
            Ok((Answer::Submitted(view) | Answer::View(view) | Answer::CancelTaken(view), _)) => {
                Ok(view)
            }
            Ok(_) => Err(no_answer()),
            Err(failure) => Err(failure),
        };
        let grant = |answered: Result<(Answer, Vec<u8>), HubFailure>| match answered {
            Ok((Answer::Granted(grant) | Answer::Renewed(grant), _)) => Ok(grant),
            Ok(_) => Err(no_answer()),
            Err(failure) => Err(failure),
        };
        match asker {
            HubAsker::Capacity => {
                let answer = match answered {
                    Ok((Answer::Capacity(capacity), _)) => Ok(capacity),
                    Ok(_) => Err(no_answer()),
                    Err(failure) => Err(failure),
                };
                self.acquire_input(acquire::Input::CapacityAnswer(answer));
            }
            HubAsker::Reserve(lane) => {
                let answer = grant(answered);
                self.acquire_input(acquire::Input::ReserveAnswer { lane, answer });
            }
            HubAsker::Renew(lane, reservation) => {
                let answer = grant(answered);
                self.acquire_input(acquire::Input::RenewAnswer {
                    lane,
                    reservation,
                    answer,
                });
            }
            HubAsker::Release(reservation) => {
                let answer = answered.map(|_| ());
                self.acquire_input(acquire::Input::ReleaseAnswer {
                    reservation,
                    answer,
                });
            }
            HubAsker::JobRelease => {}
            HubAsker::Submit(key, call) => {
                self.job_input(key, job::Input::SubmitAnswer(call, view(answered)));
            }
            HubAsker::View(key, call) => {
                self.job_input(key, job::Input::ViewAnswer(call, view(answered)));
            }
            HubAsker::Cancel(key, call) => {
                self.job_input(key, job::Input::CancelAnswer(call, view(answered)));
            }
            HubAsker::Settle(key, call) => {
                self.job_input(key, job::Input::SettleAnswer(call, answered.map(|_| ())));
            }
            HubAsker::Fetch(key, call, offset, max) => {
                self.fetched(key, call, (offset, max), answered)
            }
        }
    }

    fn fetched(
        &mut self,
        key: u64,
        call: job::CallId,
        (offset, max): (u64, u64),
        answered: Result<(Answer, Vec<u8>), HubFailure>,
    ) {
        let read = match answered {
            Ok((Answer::Output(output), mut bytes)) => {
                let cut = bytes.len() as u64 > max;
                bytes.truncate(usize::try_from(max).unwrap_or(usize::MAX));
                let len = bytes.len() as u64;
                self.set_fetched(key, offset, bytes);
                Ok(OutputRead {
                    len,
                    total: output.length,
                    complete: output.complete && !cut,
                })
            }
            Ok((Answer::PastEnd { length }, _)) => Ok(OutputRead {
                len: 0,
                total: length,
                complete: false,
            }),
            Ok(_) => Err(no_answer()),
            Err(failure) => Err(failure),
        };
        self.job_input(key, job::Input::FetchAnswer(call, read));
    }

    /// A daemon's request arrives at GitLab.
    pub(crate) fn at_gitlab(&mut self, number: u64) {
        let Some(call) = self.gitlab_calls.get(&number).cloned() else {
            return;
        };
        let lost = self.faulty && self.rng.one_in(80);
        if lost {
            self.faults.count(Fault::GitLabRequestLost);
        }
        let at = self.now + self.rng.between(1, 80);
        match call.ask {
            GitLabAsk::Verify => {
                let answer = GitLabAnswer {
                    status: Some(200),
                    ..GitLabAnswer::default()
                };
                self.queue.add(at, Event::FromGitLab(number, Some(answer)));
            }
            GitLabAsk::Job(..) if lost => {
                self.queue
                    .add(at, Event::JobFromGitLab(number, JobAnswer::Lost(false)));
            }
            GitLabAsk::Job(..) => self.job_request(number),
            GitLabAsk::Update(..) | GitLabAsk::Patch { .. } if lost => {
                self.queue
                    .add(self.now + 30_000, Event::FromGitLab(number, None));
            }
            GitLabAsk::Update(_, _, job, update) => {
                let answer = self
                    .refused()
                    .unwrap_or_else(|| self.gitlab.update(job, &update));
                self.answer_job_call(number, answer);
            }
            GitLabAsk::Patch {
                job, offset, bytes, ..
            } => {
                let answer = self
                    .refused()
                    .unwrap_or_else(|| self.gitlab.patch(job, offset, &bytes));
                self.forget_some(job);
                self.answer_job_call(number, answer);
            }
        }
    }

    /// Now and then GitLab loses the end of a trace, or all of it (GL-50).
    fn forget_some(&mut self, job: u64) {
        if self.faulty && self.rng.one_in(150) {
            let size = self.gitlab.jobs.get(&job).map_or(0, |job| job.trace.len());
            let keep = self.rng.between(0, size as u64);
            self.faults.count(Fault::TraceForgotten);
            self.gitlab.forget(job, keep);
        }
    }

    fn refused(&mut self) -> Option<GitLabAnswer> {
        if !self.faulty || !self.rng.one_in(40) {
            return None;
        }
        self.faults.count(Fault::GitLabRefuses);
        let status = [500, 502, 503, 429, 409].get(self.rng.below(5)).copied();
        Some(GitLabAnswer {
            status,
            ..GitLabAnswer::default()
        })
    }

    fn answer_job_call(&mut self, number: u64, answer: GitLabAnswer) {
        let at = self.now + self.rng.between(1, 80);
        if self.faulty && self.rng.one_in(60) {
            self.faults.count(Fault::GitLabAnswerLost);
            self.queue.add(at + 30_000, Event::FromGitLab(number, None));
        } else {
            self.queue.add(at, Event::FromGitLab(number, Some(answer)));
        }
    }

    fn job_request(&mut self, number: u64) {
        match self.gitlab.hand_out() {
            Some(script) => self.hand_out(number, script.gitlab_job),
            None => {
                self.held_requests.push(number);
                self.queue.add(self.now + 50_000, Event::HoldOver(number));
            }
        }
    }

    /// A held job request is answered 204: a job turned pending, or its time is over.
    pub(crate) fn hold_over(&mut self, number: u64) {
        let Some(place) = self.held_requests.iter().position(|held| *held == number) else {
            return;
        };
        self.held_requests.remove(place);
        let at = self.now + self.rng.between(1, 80);
        self.queue
            .add(at, Event::JobFromGitLab(number, JobAnswer::Status(204)));
    }

    fn hand_out(&mut self, number: u64, job: u64) {
        let life = self.gitlab_calls.get(&number).map_or(0, |call| call.life);
        self.handed_to.insert(job, life);
        if self.faulty && self.rng.one_in(50) {
            self.faults.count(Fault::GitLabAnswerLost);
            self.answer_lost.insert(job);
            self.queue.add(
                self.now + 60_000,
                Event::JobFromGitLab(number, JobAnswer::Lost(true)),
            );
            return;
        }
        let at = self.now + self.rng.between(1, 80);
        self.queue
            .add(at, Event::JobFromGitLab(number, JobAnswer::Job(job)));
    }

    /// GitLab's answer to a job request reaches the daemon.
    pub(crate) fn job_from_gitlab(&mut self, number: u64, answer: JobAnswer) {
        let Some(call) = self.gitlab_calls.remove(&number) else {
            return;
        };
        if call.life != self.daemon.life || !self.daemon.is_up() {
            return;
        }
        let GitLabAsk::Job(lane) = call.ask else {
            return;
        };
        let outcome = match answer {
            JobAnswer::Job(job) => match self.translated(job) {
                Some(job) => RequestOutcome::Job(Box::new(job)),
                None => return,
            },
            JobAnswer::Status(status) => RequestOutcome::Status {
                status,
                retry_after: None,
            },
            JobAnswer::Lost(sent) => RequestOutcome::Failed {
                why: "the connection was cut".into(),
                sent,
            },
        };
        self.job_answer(lane, outcome);
    }

    /// GitLab's answer to another request reaches the daemon.
    pub(crate) fn gitlab_answers(&mut self, number: u64, answer: Option<GitLabAnswer>) {
        let Some(call) = self.gitlab_calls.remove(&number) else {
            return;
        };
        if call.life != self.daemon.life || !self.daemon.is_up() {
            return;
        }
        let answer = answer.unwrap_or_default();
        self.note_told_over(&call.ask, &answer);
        match call.ask {
            GitLabAsk::Verify => {
                self.acquire_input(acquire::Input::VerifyAnswer(VerifyAnswer::Taken));
            }
            GitLabAsk::Update(key, call, ..) => {
                self.job_input(key, job::Input::UpdateAnswer(call, answer));
            }
            GitLabAsk::Patch { key, call, crc, .. } => {
                self.job_input(key, job::Input::PatchAnswer { call, answer, crc });
            }
            GitLabAsk::Job(..) => {}
        }
    }
}
