//! Watches a VM's programs and its agent, and says how the VM ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::channel::ControlEnd;
use crate::confine::{Exit, Launched};
use crate::console::Console;
use crate::death::{Cause, Death};

/// When one thing has ended, how long the thing that ended it may take to be seen.
const CAUSE: Duration = Duration::from_secs(2);
/// From the agent's last word to the end of the VMM.
const POWER_OFF: Duration = Duration::from_secs(15);
/// How long the last words of a program that ended may take to be read.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What a kernel without memory says.
const OUT_OF_MEMORY: [&str; 3] = ["Out of memory", "oom-kill", "out of memory"];

/// What the owner wants of a VM: that it runs,
pub(crate) const RUNS: u8 = 0;
/// that the guest powers off,
pub(crate) const POWERS_OFF: u8 = 1;
/// that it ends, whatever the guest wants.
pub(crate) const IS_ENDED: u8 = 2;

/// A program of a VM.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    pub(crate) launched: Launched,
    /// What it says on stderr.
    pub(crate) said: Arc<Console>,
}

/// What is seen of a VM's end first.
enum First<'a> {
    Exit((&'a Watched, Exit)),
    Control(ControlEnd),
    NoRoom(String),
}

/// Announces the VM's end once it has come.
pub(crate) async fn supervise(
    programs: Vec<Watched>,
    mut control: watch::Receiver<Option<ControlEnd>>,
    console: Arc<Console>,
    no_room: oneshot::Receiver<String>,
    stopping: Arc<AtomicU8>,
    announce: watch::Sender<Option<Arc<Death>>>,
) {
    let first = tokio::select! {
        biased;
        ended = first_exit(&programs) => First::Exit(ended),
        end = end_of(&mut control) => First::Control(end),
        why = told(no_room) => First::NoRoom(why),
    };
    let wanted = || stopping.load(Ordering::Relaxed);
    let cause = match first {
        First::Exit(ended) => {
            let ended = the_vmm_if_it_ended_too(&programs, ended).await;
            program(ended, wanted()).await
        }
        First::NoRoom(why) => Cause::NoRoom { why },
        First::Control(ControlEnd::Bye) => match timeout(POWER_OFF, first_exit(&programs)).await {
            Ok(ended) => program(ended, wanted()).await,
            Err(_) => agent("it said that it powers off, and the machine runs on".to_owned()),
        },
        First::Control(ControlEnd::Fault(failure)) => agent(failure.to_string()),
        First::Control(ControlEnd::Lost(why)) => {
            match timeout(CAUSE, first_exit(&programs)).await {
                Ok(ended) => program(ended, wanted()).await,
                Err(_) => agent(why),
            }
        }
    };
    let out_of_memory = matches!(&cause, Cause::Program { .. } | Cause::Agent { .. })
        && console.mentions(&OUT_OF_MEMORY);
    let death = Death {
        cause,
        out_of_memory,
        console: console.tail(),
    };
    announce.send_replace(Some(Arc::new(death)));
}

/// The first program to end, and how.
async fn first_exit(programs: &[Watched]) -> (&Watched, Exit) {
    let mut exits: Vec<Pin<Box<dyn Future<Output = Exit> + Send + '_>>> = programs
        .iter()
        .map(|of| Box::pin(of.launched.exit()) as _)
        .collect();
    std::future::poll_fn(|context: &mut Context<'_>| {
        for (exit, program) in exits.iter_mut().zip(programs) {
            if let Poll::Ready(exit) = exit.as_mut().poll(context) {
                return Poll::Ready((program, exit));
            }
        }
        Poll::Pending
    })
    .await
}

/// A program that ended because the VMM did is not the cause.
async fn the_vmm_if_it_ended_too<'a>(
    programs: &'a [Watched],
    ended: (&'a Watched, Exit),
) -> (&'a Watched, Exit) {
    match programs.first() {
        Some(vmm) if vmm.name != ended.0.name => {
            match timeout(LAST_WORDS, vmm.launched.exit()).await {
                Ok(exit) => (vmm, exit),
                Err(_) => ended,
            }
        }
        _ => ended,
    }
}

async fn end_of(control: &mut watch::Receiver<Option<ControlEnd>>) -> ControlEnd {
    match control
        .wait_for(Option::is_some)
        .await
        .map(|known| known.clone())
    {
        Ok(Some(end)) => end,
        // Nobody serves the control stream: the VM is booting, or its owner let go of it.
        _ => std::future::pending().await,
    }
}

/// What is told; waits for ever where nobody will tell it.
async fn told(what: oneshot::Receiver<String>) -> String {
    match what.await {
        Ok(told) => told,
        Err(_) => std::future::pending().await,
    }
}

async fn program((program, exit): (&Watched, Exit), wanted: u8) -> Cause {
    match (wanted, exit) {
        (POWERS_OFF, Exit::Code(0)) => Cause::PoweredOff,
        (IS_ENDED, Exit::Code(0)) | (POWERS_OFF | IS_ENDED, Exit::WithHolder) => Cause::Ended,
        _ => {
            // Its stderr is read by a task that may be a moment behind.
            let _ = timeout(LAST_WORDS, program.said.whole()).await;
            let said = program.said.tail();
            Cause::Program {
                name: program.name,
                exit: in_words(exit),
                said,
            }
        }
    }
}

/// SIGKILL comes from an operator or from a host out of memory; there is no third.
fn in_words(exit: Exit) -> String {
    match exit {
        Exit::Signal(9) => format!("{exit}: it was killed, or the host is out of memory"),
        _ => exit.to_string(),
    }
}

fn agent(why: String) -> Cause {
    Cause::Agent { why }
}
