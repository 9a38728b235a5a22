//! The task that owns the fleet core.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use vk_hub_core::{
    Answer, Config, Effect, FromNode, Input, Record, RequestHandle, SessionHandle, Settings,
};
use vk_hub_proto::dispatch::Chunk;
use vk_hub_proto::node_session::HubMessage;
use vk_hub_proto::relay_session::HubRelayMessage;
use vk_kill::KillPoints;
use vk_step::{Core as _, Now, OpenError, Variant as _};

use super::disk::{Batch, Disk, DiskError, Opened, Piece};
use super::handle::{FleetHandle, Message, Reply};
use crate::store::Store;
use crate::tokens::Tokens;

/// Messages that may wait for the core.
const QUEUE: usize = 4096;
/// Steps taken in a row before the disk gets them.
const STEPS: usize = 256;
/// How long after a failed write the disk is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// A fleet that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The records.
    #[error("the hub's records do not fit together")]
    Records(#[from] OpenError),
}

/// Opens the store anew: after a failed write nothing in memory counts.
pub type OpenStore = Box<dyn Fn() -> Result<Box<dyn Store>, DiskError> + Send>;

/// The fleet's task.
pub struct Fleet {
    core: vk_hub_core::Fleet,
    settings: Settings,
    open: OpenStore,
    outputs: PathBuf,
    disk: Disk,
    tokens: Tokens,
    kill: KillPoints,
    origin: Instant,
    inbox: mpsc::Receiver<Message>,
    waiting: BTreeMap<RequestHandle, oneshot::Sender<Reply>>,
    sessions: BTreeMap<SessionHandle, Outbox>,
    gathering: VecDeque<Step>,
    /// Steps that the disk has; none while it is idle.
    writing: Option<VecDeque<Step>>,
}

/// Where a session's messages go.
enum Outbox {
    Node(mpsc::Sender<HubMessage>),
    Relay(mpsc::Sender<HubRelayMessage>),
}

/// A step that waits for the disk.
struct Step {
    records: Vec<Record>,
    effects: Vec<(Effect, Vec<u8>)>,
}

impl Step {
    fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter().map(|(effect, _)| effect)
    }

    fn wants_disk(&self) -> bool {
        let output = |(effect, _): &(Effect, Vec<u8>)| {
            matches!(
                effect,
                Effect::StoreOutput { .. }
                    | Effect::DropOutput { .. }
                    | Effect::RetainOutputs { .. }
            )
        };
        !self.records.is_empty() || self.effects.iter().any(output)
    }
}

impl Fleet {
    /// Opens the fleet from what is on the disk.
    ///
    /// # Errors
    /// The disk cannot be read, or its records do not fit together.
    pub fn open(
        settings: Settings,
        open: OpenStore,
        outputs: PathBuf,
        kill: KillPoints,
    ) -> Result<(Fleet, FleetHandle), FleetError> {
        let opened = Opened::open(open()?, outputs.clone())?;
        let origin = Instant::now();
        let (core, effects) = open_core(&settings, origin, &opened)?;
        let (sender, inbox) = mpsc::channel(QUEUE);
        let mut fleet = Fleet {
            core,
            settings,
            open,
            outputs,
            disk: opened.disk,
            tokens: Tokens::default(),
            kill,
            origin,
            inbox,
            waiting: BTreeMap::new(),
            sessions: BTreeMap::new(),
            gathering: VecDeque::new(),
            writing: None,
        };
        fleet.gather(Vec::new(), effects, None);
        Ok((fleet, FleetHandle::new(sender)))
    }

    /// Makes the tokens that jobs' starts are to carry; without it they carry none.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Tokens) -> Fleet {
        self.tokens = tokens;
        self
    }

    /// Runs until every handle is gone.
    ///
    /// # Errors
    /// What is on the disk cannot be opened again after a failed write.
    pub async fn run(mut self) -> Result<(), FleetError> {
        loop {
            self.flush()?;
            let deadline = self.core.next_deadline().and_then(|at| self.moment(at));
            let sleep = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                done = self.disk.done.recv() => self.written(done.unwrap_or(Err(DiskError::Gone))).await?,
                message = self.inbox.recv() => match message {
                    Some(message) => self.take_all(message),
                    None => return Ok(()),
                },
                () = sleep => self.input(Input::Timeout, None),
            }
        }
    }

    fn now(&self) -> Now {
        now(self.origin)
    }

    /// None where it lies beyond what a clock can say.
    fn moment(&self, at: Now) -> Option<Instant> {
        self.origin
            .checked_add(Duration::from_millis(at.as_millis()))
    }

    /// Takes a message and those already behind it.
    fn take_all(&mut self, message: Message) {
        self.take(message);
        for _ in 0..STEPS {
            match self.inbox.try_recv() {
                Ok(message) => self.take(message),
                Err(_) => return,
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Request {
                to,
                by,
                request,
                reply,
            } => {
                self.waiting.insert(to, reply);
                self.input(Input::Request { to, by, request }, None);
            }
            Message::Operator { to, request, reply } => {
                self.waiting.insert(to, reply);
                self.input(Input::Operator { to, request }, None);
            }
            Message::HungUp { to } => {
                if self.waiting.remove(&to).is_some() {
                    self.input(Input::HungUp { to }, None);
                }
            }
            Message::Opened {
                session,
                node,
                version,
                outbox,
            } => {
                self.sessions.insert(session, Outbox::Node(outbox));
                self.input(
                    Input::SessionOpened {
                        session,
                        node,
                        version,
                    },
                    None,
                );
            }
            Message::Closed { session } => {
                self.sessions.remove(&session);
                self.input(Input::SessionClosed { session }, None);
            }
            Message::Alive { session } => self.input(Input::Alive { session }, None),
            Message::Node { session, message } => {
                if let Some((message, chunk)) = FromNode::read(*message) {
                    self.input(Input::Node { session, message }, chunk);
                }
            }
            Message::RelayOpened {
                session,
                relay,
                outbox,
            } => {
                self.sessions.insert(session, Outbox::Relay(outbox));
                self.input(Input::RelayOpened { session, relay }, None);
            }
            Message::Relay { session, message } => {
                self.input(Input::Relay { session, message }, None);
            }
            Message::Look(look) => look(&self.core),
        }
    }

    fn input(&mut self, input: Input, chunk: Option<Chunk>) {
        let step = self.core.handle(self.now(), input);
        self.gather(step.records, step.effects, chunk);
    }

    fn gather(&mut self, records: Vec<Record>, effects: Vec<Effect>, chunk: Option<Chunk>) {
        if records.is_empty() && effects.is_empty() {
            return;
        }
        let mut bytes = chunk.map(Chunk::into_bytes).unwrap_or_default();
        let effects = effects.into_iter().map(|effect| {
            let bytes = match &effect {
                Effect::StoreOutput { skip, len, .. } => stored(&mut bytes, *skip, *len),
                _ => Vec::new(),
            };
            (effect, bytes)
        });
        let step = Step {
            records,
            effects: effects.collect(),
        };
        let free = self.writing.is_none() && self.gathering.is_empty() && !step.wants_disk();
        if free {
            self.before(&step);
            self.release(step);
        } else {
            self.gathering.push_back(step);
        }
    }

    /// The boundaries of a step that needs no disk.
    fn before(&self, step: &Step) {
        self.kill.before(&step.records, step.effects());
        self.kill.synced(&step.records, step.effects());
    }

    /// Gives the disk what was gathered, where it is idle.
    fn flush(&mut self) -> Result<(), FleetError> {
        if self.writing.is_some() || self.gathering.is_empty() {
            return Ok(());
        }
        let mut steps = std::mem::take(&mut self.gathering);
        let mut batch = Batch::default();
        for step in &mut steps {
            self.kill.before(&step.records, step.effects());
            batch.records.extend(step.records.iter().cloned());
            batch
                .output
                .extend(step.effects.iter_mut().filter_map(piece));
        }
        self.writing = Some(steps);
        Ok(self.disk.write(batch)?)
    }

    /// A batch is durable, or will never be.
    async fn written(
        &mut self,
        synced: Result<Vec<(vk_hub_proto::JobId, u64)>, DiskError>,
    ) -> Result<(), FleetError> {
        match synced {
            Ok(lengths) => {
                for step in self.writing.take().unwrap_or_default() {
                    self.kill.synced(&step.records, step.effects());
                    self.release(step);
                }
                if !lengths.is_empty() {
                    self.input(Input::OutputSynced { lengths }, None);
                }
                Ok(())
            }
            Err(error) => self.store_failed(&error).await,
        }
    }

    fn release(&mut self, step: Step) {
        if step.effects.is_empty() {
            self.kill.after_records(&step.records);
        }
        for (number, (effect, _)) in step.effects.into_iter().enumerate() {
            let kill = self.kill.clone();
            let released = effect.variant();
            self.act(effect);
            kill.after_effect(released);
            if number == 0 {
                kill.after_records(&step.records);
            }
        }
    }

    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Answer { to, answer } => self.answer(to, answer),
            Effect::StoreOutput { .. }
            | Effect::DropOutput { .. }
            | Effect::RetainOutputs { .. } => {}
            Effect::Stopped { why } => tracing::error!(why, "the fleet promises nothing any more"),
            Effect::Close { session, .. } | Effect::CloseRelay { session, .. } => {
                self.send(&effect);
                // Its connection sends what is in the box and ends.
                self.sessions.remove(&session);
            }
            _ => self.send(&effect),
        }
    }

    fn send(&mut self, effect: &Effect) {
        let (session, taken) = if let Some((session, mut message)) = effect.message() {
            let Some(Outbox::Node(outbox)) = self.sessions.get(&session) else {
                return;
            };
            self.tokens.put(effect, &mut message);
            (session, outbox.try_send(message).is_ok())
        } else if let Some((session, message)) = effect.relay_message() {
            let Some(Outbox::Relay(outbox)) = self.sessions.get(&session) else {
                return;
            };
            (session, outbox.try_send(message).is_ok())
        } else {
            return;
        };
        if !taken {
            tracing::warn!(
                session = session.0,
                "a session does not take its messages: ended"
            );
            self.sessions.remove(&session);
        }
    }

    fn answer(&mut self, to: RequestHandle, answer: Answer) {
        let Some(reply) = self.waiting.remove(&to) else {
            return;
        };
        let Answer::Output(read) = answer else {
            // The client hung up meanwhile.
            let _ = reply.send(Reply {
                answer,
                bytes: Vec::new(),
            });
            return;
        };
        let bytes = self.disk.read(read.job, read.offset, read.len);
        tokio::spawn(async move {
            match bytes.await {
                Ok(Ok(bytes)) => {
                    let _ = reply.send(Reply { answer, bytes });
                }
                // Dropping the reply makes the answer a 500: asked again it may do better.
                Ok(Err(error)) => tracing::error!(job = %read.job, %error, "output cannot be read"),
                Err(_) => {}
            }
        });
    }

    /// A write failed: nothing that waited for it happens, and the core is opened anew from what is
    /// durable.
    async fn store_failed(&mut self, error: &DiskError) -> Result<(), FleetError> {
        let why = chain(error);
        tracing::error!(
            error = why,
            "the hub's store failed: everything unsaved is dropped"
        );
        self.gathering.clear();
        self.writing = None;
        let step = self.core.handle(self.now(), Input::StoreFailed { why });
        // Nothing of it can be kept: its effects wait for no disk.
        let effects = step.effects.into_iter().map(|effect| (effect, Vec::new()));
        let step = Step {
            records: Vec::new(),
            effects: effects.collect(),
        };
        self.before(&step);
        self.release(step);
        // Whether what these wait for was kept is not known: they are told nothing.
        self.waiting.clear();
        self.sessions.clear();
        loop {
            if !self.refuse_for(TRY_AGAIN).await {
                return Ok(());
            }
            match self.reopen() {
                Ok(()) => return Ok(()),
                Err(FleetError::Disk(error)) => {
                    tracing::error!(error = chain(&error), "the hub's store still fails");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the stopped core refuse whatever comes, so that nobody waits for an answer; false once
    /// every handle is gone.
    async fn refuse_for(&mut self, time: Duration) -> bool {
        let end = tokio::time::sleep(time);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return true,
                message = self.inbox.recv() => match message {
                    Some(message) => self.take_all(message),
                    None => return false,
                },
            }
        }
    }

    fn reopen(&mut self) -> Result<(), FleetError> {
        let opened = Opened::open((self.open)()?, self.outputs.clone())?;
        let (core, effects) = open_core(&self.settings, self.origin, &opened)?;
        self.core = core;
        self.disk = opened.disk;
        // The stopped core answered and closed what it knew.
        self.gathering.clear();
        self.waiting.clear();
        self.sessions.clear();
        self.gather(Vec::new(), effects, None);
        tracing::info!("the hub's store works again");
        Ok(())
    }
}

fn open_core(
    settings: &Settings,
    origin: Instant,
    opened: &Opened,
) -> Result<(vk_hub_core::Fleet, Vec<Effect>), OpenError> {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let config = Config {
        settings: settings.clone(),
        wall_secs: wall.as_secs(),
        outputs: opened.outputs.clone(),
    };
    vk_hub_core::Fleet::open(config, now(origin), opened.records.clone())
}

fn now(origin: Instant) -> Now {
    let since = origin.elapsed().as_millis();
    Now::from_millis(u64::try_from(since).unwrap_or(u64::MAX))
}

/// The part of a chunk that is to be stored.
fn stored(bytes: &mut Vec<u8>, skip: u32, len: u32) -> Vec<u8> {
    let (skip, len) = (skip as usize, len as usize);
    if skip == 0 && len == bytes.len() {
        return std::mem::take(bytes);
    }
    bytes.iter().skip(skip).take(len).copied().collect()
}

fn piece((effect, bytes): &mut (Effect, Vec<u8>)) -> Option<Piece> {
    match effect {
        Effect::StoreOutput { job, offset, .. } => Some(Piece::Append {
            job: *job,
            offset: *offset,
            bytes: std::mem::take(bytes),
        }),
        Effect::DropOutput { job } => Some(Piece::Drop(*job)),
        Effect::RetainOutputs { jobs } => Some(Piece::Retain(jobs.clone())),
        _ => None,
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
