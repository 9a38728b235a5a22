//! The daemon from its start to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{interval, timeout};
use vk_hub_client::TlsError;
use vk_hub_client::enrolment::Enrolment;
use vk_hub_client::session::SessionError;
use vk_hub_proto::node_session::{Admission, Versions};
use vk_hub_proto::{Incarnation, NodeId};
use vk_kill::KillPoints;
use vk_node_core::Config as CoreConfig;

use super::actor::{Actor, ActorError, Message, Parts};
use super::disk::Disk;
use super::sweep;
use crate::admin;
use crate::config::Config;
use crate::host;
use crate::job::spawn::JobProgram;
use crate::journal::{Journal, JournalError};
use crate::metrics::{self, Metrics};
use crate::own_runner::{self, Places};
use crate::past_runs::PastRuns;
use crate::session::{Link, keep};
use crate::state_dir::{StateDir, StateLock};

/// Messages that may wait for the core.
const QUEUE: usize = 4096;
/// How often the ledger's budgets are measured.
const MEASURE: Duration = Duration::from_secs(10);
/// How long an orderly end may take.
const CLOSING: Duration = Duration::from_secs(5);

/// What a daemon runs with.
pub struct Setup {
    /// Its configuration.
    pub config: Config,
    /// Its state directory.
    pub state: StateDir,
    /// The proof that nobody else works there.
    pub lock: StateLock,
    /// Who it is, and where its hub.
    pub enrolment: Enrolment<NodeId>,
    /// What its job processes are.
    pub program: JobProgram,
    /// What it leaves for them, without secrets, in the program's own form.
    pub settings: serde_json::Value,
    /// What it says of itself.
    pub versions: Versions,
    /// Where a test has it die.
    pub kill: KillPoints,
}

/// A daemon that could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The core.
    #[error(transparent)]
    Actor(#[from] ActorError),
    /// The hub does not want this node.
    #[error("the hub refuses this node for good: join again with --replace, or ask its operator")]
    Refused(#[source] SessionError),
    /// The CA.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refused something.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// No randomness.
    #[error("the system gives no randomness")]
    NoRandomness,
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> DaemonError {
    move |source| DaemonError::System { what, source }
}

/// Runs the daemon until a SIGTERM or SIGINT, or until the hub refuses it for good. Jobs run on
/// (FAIL-34). A second signal ends the process at once.
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(setup: Setup) -> Result<(), DaemonError> {
    let Setup {
        config,
        state,
        lock,
        enrolment,
        program,
        settings,
        versions,
        kill,
    } = setup;
    let mut terminate = signal(SignalKind::terminate()).map_err(system("wait for signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("wait for signals"))?;
    let (journal, records) = Journal::open(&state.journal())?;
    sweep::sweep(&state, &sweep::known(&records));
    let listener = admin::listener(&state).map_err(system("listen for operators"))?;
    let mut incarnation = [0; 16];
    aws_lc_rs::rand::fill(&mut incarnation).map_err(|_| DaemonError::NoRandomness)?;

    let (own, inbox) = mpsc::channel(QUEUE);
    let (tell, told) = mpsc::channel(QUEUE);
    // Kept, so that the actor outlives a session that was refused and the refusal is what is told.
    let kept = tell.clone();
    let (admission, shown) = watch::channel(EMPTY);
    let who = (
        versions.vk.clone(),
        enrolment.id.to_string(),
        enrolment.hub.to_string(),
    );
    let places = Places::of_host();
    let parts = Parts {
        core: core_config(&config, &state, &places),
        state: state.clone(),
        program,
        settings,
        past_runs: config
            .schedule
            .from_history
            .then(|| PastRuns::in_dir(state.past_runs())),
        kill,
        image_cache_idle: config.schedule.image_cache_idle,
        disk: Disk::start(journal, state.clone()).map_err(system("start the journal's thread"))?,
        told,
        admission,
        metrics: Metrics::new(&who.0),
        who,
    };
    let metrics = Arc::clone(&parts.metrics);
    let actor = Actor::open(parts, records, state.history(), (own.clone(), inbox))?;
    if let Some(listen) = &config.metrics {
        let served = metrics::serve(listen, metrics, state.clone(), own.clone()).await;
        served.map_err(system("serve metrics where metrics.listen says"))?;
    }
    let link = Link {
        dialer: enrolment.dialer()?,
        key: enrolment.key,
        node: enrolment.id,
        incarnation: Incarnation::from_bytes(incarnation),
        config: config.clone(),
        state: state.clone(),
        versions,
        admission: shown,
        told: tell,
    };

    let (hang_up, hung_up) = oneshot::channel();
    let session = tokio::spawn(keep(link, hung_up));
    let mut actor = tokio::spawn(actor.run());
    let measuring = tokio::spawn(measure(config, state, places, own.clone()));
    let operators = tokio::spawn(answer(listener, own.clone()));
    tracing::info!("the node runs");
    let mut session = session;
    let ended = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        refused = &mut session => match refused {
            Ok(Err(refused)) => Err(DaemonError::Refused(refused)),
            _ => Ok(()),
        },
        ended = &mut actor => {
            session.abort();
            return match ended {
                Ok(ended) => Ok(ended?),
                Err(error) => Err(system("go on")(io::Error::other(error))),
            };
        }
    };
    measuring.abort();
    operators.abort();
    let closing = async {
        // Either may have ended by itself.
        let _ = hang_up.send(());
        let _ = own.send(Message::Stop).await;
        let _ = (&mut actor).await;
        if !session.is_finished() {
            let _ = session.await;
        }
    };
    tokio::select! {
        closed = timeout(CLOSING, closing) => if closed.is_err() {
            tracing::warn!("the node ends before all was closed");
        },
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(kept);
    drop(lock);
    ended
}

const EMPTY: Admission = Admission {
    committed_mib: 0,
    budget_mib: None,
    running: 0,
    waiting: 0,
};

fn core_config(config: &Config, state: &StateDir, places: &Places) -> CoreConfig {
    let own_runner = own_runner::found(config, places);
    if let Some(found) = &own_runner {
        tracing::warn!("no job of the hub's is taken: {found}");
    }
    CoreConfig {
        budgets: host::budgets(&config.schedule, state),
        sizes: config.vm.sizes,
        max_concurrency: config.schedule.max_concurrency,
        wait_timeout: config.schedule.wait_timeout,
        own_runner,
        ..CoreConfig::default()
    }
}

/// Looks again and again at what changes on a host.
async fn measure(config: Config, state: StateDir, places: Places, to: mpsc::Sender<Message>) {
    let mut ticks = interval(MEASURE);
    let mut last = None;
    let mut own_runner = own_runner::found(&config, &places);
    loop {
        ticks.tick().await;
        let (config, state, places) = (config.clone(), state.clone(), places.clone());
        let measuring = tokio::task::spawn_blocking(move || {
            let found = own_runner::found(&config, &places);
            (host::budgets(&config.schedule, &state), found)
        });
        let Ok((budgets, found)) = measuring.await else {
            return;
        };
        if own_runner != found {
            own_runner.clone_from(&found);
            if to.send(Message::OwnRunner(found)).await.is_err() {
                return;
            }
        }
        if last.replace(budgets) != Some(budgets)
            && to.send(Message::Budgets(budgets)).await.is_err()
        {
            return;
        }
    }
}

async fn answer(listener: tokio::net::UnixListener, to: mpsc::Sender<Message>) {
    admin::serve(listener, move |call| {
        let to = to.clone();
        async move {
            let (reply, answered) = oneshot::channel();
            let gone = || "the node is ending".to_owned();
            let asked = to.send(Message::Call(call, reply)).await;
            asked.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())?
        }
    })
    .await;
}
