//! A running VM: its agent, its processes, its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};
use vk_guest_proto::{Hello, Volume};

use crate::channel::{Guest, connect};
use crate::death::{Cause, Death, Lifeline};
use crate::launching::{Channel, Launching};
use crate::machine::Accelerator;
use crate::qemu::{Qmp, want_of_room};
use crate::start_error::StartError;
use crate::supervise::{IS_ENDED, POWERS_OFF, RUNS, supervise};
use crate::usage::{HostUsage, of_tree};

/// How long QEMU may take to end when told so.
const QUIT: Duration = Duration::from_secs(3);

/// A VM whose agent has said hello.
///
/// Dropping it ends every process of it at once; [`Vm::stop`] does so in order.
pub struct Vm {
    guest: Guest,
    boot: Boot,
    parts: Launching,
    volumes: BTreeMap<String, Volume>,
    qmp: Option<PathBuf>,
    /// Who listens there meanwhile: QEMU speaks with one at a time.
    listening: Option<AbortHandle>,
    lifeline: Lifeline,
    stopping: Arc<AtomicU8>,
}

/// How a VM came up.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The VMM's name.
    pub vmm: &'static str,
    /// What the guest runs on.
    pub accelerator: Accelerator,
    /// From the VMM's start to the agent's hello.
    pub to_hello: Duration,
    /// What the agent said of itself.
    pub hello: Hello,
}

/// How a VM was stopped.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// What its processes used on the host, read before the stop; `None` when it was dead already
    /// (DISP-62).
    pub usage: Option<HostUsage>,
    /// Its end.
    pub death: Arc<Death>,
}

/// A VM that boots: what is waited for, and what is known of it.
pub(crate) struct Awaited {
    pub(crate) channel: Channel,
    pub(crate) vmm: &'static str,
    pub(crate) accelerator: Accelerator,
    pub(crate) started: Instant,
    pub(crate) limit: Duration,
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// QEMU's control socket.
    pub(crate) qmp: Option<PathBuf>,
}

impl Vm {
    /// Waits for the agent's hello. When there is none, everything is ended.
    pub(crate) async fn come_up(parts: Launching, awaited: Awaited) -> Result<Self, StartError> {
        let mut parts = parts;
        let (announce, lifeline) = Lifeline::new();
        let (ended, end) = watch::channel(None);
        let (no_room, room) = oneshot::channel();
        let stopping = Arc::new(AtomicU8::new(RUNS));
        parts.tasks.spawn(supervise(
            parts.programs.clone(),
            end,
            Arc::clone(&parts.console),
            room,
            Arc::clone(&stopping),
            announce,
        ));
        let Awaited {
            channel,
            vmm,
            accelerator,
            started,
            limit,
            volumes,
            qmp,
        } = awaited;
        let Channel { expected, control } = channel;
        let hello = async {
            tokio::select! {
                connection = control => match connection {
                    Ok(connection) => {
                        connect(connection, &lifeline, ended).await.map_err(StartError::Agent)
                    }
                    Err(_) => Err(StartError::Died(lifeline.death().await)),
                },
                death = lifeline.death() => Err(StartError::Died(death)),
            }
        };
        let deadline = tokio::time::Instant::from_std(started + limit);
        let outcome = match timeout_at(deadline, hello).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StartError::BootTimeout {
                limit,
                console: parts.console.tail(),
            }),
        };
        match outcome {
            Ok((hello, control)) => {
                let boot = Boot {
                    vmm,
                    accelerator,
                    to_hello: started.elapsed(),
                    hello,
                };
                let guest = Guest::new(control, expected, lifeline.clone());
                let listening = qmp.clone().map(|socket| {
                    parts.tasks.spawn(async move {
                        // Nobody asks any more where the VM ended.
                        let _ = no_room.send(want_of_room(&socket).await);
                    })
                });
                Ok(Self {
                    guest,
                    boot,
                    parts,
                    volumes,
                    qmp,
                    listening,
                    lifeline,
                    stopping,
                })
            }
            Err(error) => {
                // That the rest cannot be seen to end is less than why it was ended.
                let _ = parts.holder.end().await;
                Err(error)
            }
        }
    }

    /// The VM's agent.
    #[must_use]
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// How it came up.
    #[must_use]
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// How the guest finds the machine's disk of this role: what its mounts are told.
    #[must_use]
    pub fn volume(&self, role: &str) -> Option<&Volume> {
        self.volumes.get(role)
    }

    /// The process at the root of all the VM's processes.
    #[must_use]
    pub fn root_pid(&self) -> u32 {
        self.parts.holder.root_pid()
    }

    /// How it ended; waits for it.
    pub async fn death(&self) -> Arc<Death> {
        self.lifeline.death().await
    }

    /// What its processes have used on the host so far; `None` once they are gone (DISP-62).
    pub async fn usage(&self) -> Option<HostUsage> {
        let root = self.root_pid();
        let live = self
            .parts
            .programs
            .first()
            .is_some_and(|vmm| vmm.launched.ended().is_none());
        if !live {
            return None;
        }
        tokio::task::spawn_blocking(move || of_tree(root))
            .await
            .ok()
            .flatten()
    }

    /// The last lines of the guest's console, safe to show.
    #[must_use]
    pub fn console(&self) -> String {
        self.parts.console.tail()
    }

    /// Has the guest power off, at most `limit`; then ends what is left: first as QEMU's control
    /// socket allows, then by force.
    pub async fn stop(self, limit: Duration) -> Stopped {
        let usage = self.usage().await;
        self.stopping.store(POWERS_OFF, Ordering::Relaxed);
        let orderly = async {
            self.guest.power_off(limit).await.ok()?;
            Some(self.lifeline.death().await)
        };
        let mut death = timeout(limit, orderly).await.ok().flatten();
        death = death.or_else(|| self.lifeline.known());
        if death.is_none() {
            death = self.quit().await;
        }
        let console = self.parts.console.tail();
        if let Err(error) = self.parts.holder.end().await {
            tracing::error!(%error, "processes of a VM may be left");
        }
        let ended = || Death {
            cause: Cause::Ended,
            out_of_memory: false,
            console,
        };
        Stopped {
            usage,
            death: death.unwrap_or_else(|| Arc::new(ended())),
        }
    }

    /// Tells QEMU to end.
    async fn quit(&self) -> Option<Arc<Death>> {
        let socket = self.qmp.as_deref()?;
        self.stopping.store(IS_ENDED, Ordering::Relaxed);
        self.listening.iter().for_each(AbortHandle::abort);
        let quit = async {
            let mut qmp = Qmp::connect(socket).await.ok()?;
            // It may end before it answers.
            let _ = qmp.execute("quit", json!({})).await;
            Some(self.lifeline.death().await)
        };
        timeout(QUIT, quit).await.ok().flatten()
    }
}
