//! The end of a VM: what is known of it, and how everyone who waits on the VM hears of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// When a connection ends first, how long the VM's own end may take to be seen.
const SOON: Duration = Duration::from_secs(6);

/// How a VM ended.
#[derive(Debug, Clone)]
pub struct Death {
    /// What ended it.
    pub cause: Cause,
    /// Whether the guest or the host ran out of memory, as far as it shows.
    pub out_of_memory: bool,
    /// The last lines of the guest's console, safe to show.
    pub console: String,
}

/// What ended a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// It powered off, as its owner asked.
    PoweredOff,
    /// Its owner ended it.
    Ended,
    /// A program of the VM ended: its name, how it ended, and what it said last.
    Program {
        /// The program.
        name: &'static str,
        /// Its end, in words.
        exit: String,
        /// The end of its stderr, safe to show.
        said: String,
    },
    /// The guest stands still: its disk finds no room on its host.
    NoRoom {
        /// What the host said.
        why: String,
    },
    /// The agent broke off, or does not answer, while the VMM runs on.
    Agent {
        /// What is known of it.
        why: String,
    },
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::PoweredOff => f.write_str("the VM powered off")?,
            Cause::Ended => f.write_str("the VM was ended")?,
            Cause::Program { name, exit, said } => {
                write!(f, "the VM died: {name} ended with {exit}")?;
                if !said.is_empty() {
                    write!(f, " ({said})")?;
                }
            }
            Cause::NoRoom { why } => {
                let what = "the VM stood still: its disk cannot grow on the node's";
                write!(f, "{what}: {why}; make room in the node's state directory")?;
            }
            Cause::Agent { why } => write!(f, "the guest's agent is gone: {why}")?,
        }
        if self.out_of_memory {
            f.write_str("; it ran out of memory")?;
        }
        let says_nothing = matches!(
            self.cause,
            Cause::PoweredOff | Cause::Ended | Cause::NoRoom { .. }
        );
        if !self.console.is_empty() && !says_nothing {
            write!(f, "; the console ends with:\n{}", self.console)?;
        }
        Ok(())
    }
}

/// Tells of the VM's end, once.
#[derive(Debug, Clone)]
pub(crate) struct Lifeline(watch::Receiver<Option<Arc<Death>>>);

impl Lifeline {
    /// A lifeline, and the end at which the death is announced.
    pub(crate) fn new() -> (watch::Sender<Option<Arc<Death>>>, Self) {
        let (announce, hear) = watch::channel(None);
        (announce, Self(hear))
    }

    /// The VM's end; waits for it.
    pub(crate) async fn death(&self) -> Arc<Death> {
        let mut hear = self.0.clone();
        match hear
            .wait_for(Option::is_some)
            .await
            .map(|known| known.clone())
        {
            Ok(Some(death)) => death,
            // Whoever would announce it is gone: the owner dropped the VM.
            _ => Arc::new(Death {
                cause: Cause::Ended,
                out_of_memory: false,
                console: String::new(),
            }),
        }
    }

    /// The VM's end, if it has come.
    pub(crate) fn known(&self) -> Option<Arc<Death>> {
        self.0.borrow().clone()
    }

    /// The VM's end, if it comes within moments.
    pub(crate) async fn death_soon(&self) -> Option<Arc<Death>> {
        timeout(SOON, self.death()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_hears_of_the_end_early_or_late() {
        let (announce, lifeline) = Lifeline::new();
        let early = tokio::spawn({
            let lifeline = lifeline.clone();
            async move { lifeline.death().await }
        });
        let cause = Cause::Program {
            name: "qemu",
            exit: "signal 9".into(),
            said: "bye".into(),
        };
        let death = Death {
            cause,
            out_of_memory: true,
            console: "panic".into(),
        };
        announce.send_replace(Some(Arc::new(death)));
        for death in [early.await.unwrap(), lifeline.death().await] {
            let said = death.to_string();
            for part in [
                "qemu ended with signal 9",
                "(bye)",
                "out of memory",
                "panic",
            ] {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[tokio::test]
    async fn an_owner_that_dropped_the_vm_has_ended_it() {
        let (announce, lifeline) = Lifeline::new();
        drop(announce);
        assert_eq!(lifeline.death().await.cause, Cause::Ended);
    }
}
