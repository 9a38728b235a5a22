use vk_step::Variant;

use crate::AtError;

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

    /// Nothing happens.
    pub const fn before<R: Variant, E: Variant>(&self, _records: &[R], _effects: &[E]) {}

    /// Nothing happens.
    pub const fn synced<R: Variant, E: Variant>(&self, _records: &[R], _effects: &[E]) {}

    /// Nothing happens.
    pub const fn after_effect<E: Variant>(&self, _effect: &E) {}

    /// Nothing happens.
    pub const fn after_records<R: Variant>(&self, _records: &[R]) {}
}
