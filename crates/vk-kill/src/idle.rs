use std::time::Duration;

use vk_step::Variant;

use crate::AtError;

/// The time as it is: this build has no other.
#[must_use]
pub const fn seconds(_name: &str, usual: Duration) -> Duration {
    usual
}

/// The number as it is: this build has no other.
#[must_use]
pub const fn number(_name: &str, usual: usize) -> usize {
    usual
}

/// No kill points: this build has none.
#[derive(Clone, Debug, Default)]
pub struct KillPoints;

impl KillPoints {
    /// Nothing is read.
    ///
    /// # Errors
    /// None in this build.
    pub const fn from_env() -> Result<KillPoints, AtError> {
        Ok(KillPoints)
    }

    /// The same.
    #[must_use]
    pub const fn of(&self, _core: &'static str) -> KillPoints {
        KillPoints
    }

    /// Nothing happens.
    pub fn before<'a, R: Variant, E: Variant + 'a>(
        &self,
        _records: &[R],
        _effects: impl IntoIterator<Item = &'a E>,
    ) {
    }

    /// Nothing happens.
    pub fn synced<'a, R: Variant, E: Variant + 'a>(
        &self,
        _records: &[R],
        _effects: impl IntoIterator<Item = &'a E>,
    ) {
    }

    /// Nothing happens.
    pub const fn after_effect(&self, _variant: &'static str) {}

    /// Nothing happens.
    pub const fn after_records<R: Variant>(&self, _records: &[R]) {}
}
