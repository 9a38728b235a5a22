//! A holder that is started before there is a VM for it: its namespaces take longer than the disks that
//! a VM waits for.

use std::sync::{Mutex, PoisonError};

use tokio::task::JoinHandle;

use super::error::ConfineError;
use super::owner::Holder;
use super::program::Confinement;

/// At most one holder that nobody has taken yet. It ends with this.
#[derive(Debug, Default)]
pub(crate) struct Anticipated(Mutex<Option<Starting>>);

type Starting = JoinHandle<Result<Holder, ConfineError>>;

impl Anticipated {
    /// Begins to start one, in the runtime of the caller. One that was begun before and not taken serves
    /// as well.
    pub(crate) fn begin(&self, confinement: &Confinement) {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let confinement = confinement.clone();
        begun.get_or_insert_with(|| tokio::spawn(async move { Holder::start(&confinement).await }));
    }

    /// The one that was begun, or a new one.
    ///
    /// # Errors
    /// As [`Holder::start`].
    pub(crate) async fn take(&self, confinement: &Confinement) -> Result<Holder, ConfineError> {
        let begun = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match begun {
            Some(begun) => match begun.await {
                Ok(started) => started,
                // Its task was ended: there is none.
                Err(_) => Holder::start(confinement).await,
            },
            None => Holder::start(confinement).await,
        }
    }
}
