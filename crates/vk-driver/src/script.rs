//! Scripts with the effect of gitlab-runner's bash shell (STAGE-13).

mod compose;
#[cfg(test)]
mod fuzz;
mod quote;
#[cfg(test)]
mod tests;

pub(crate) use compose::{
    Known, Prologue, Shell, Wrapped, commands, is_exportable, notice, remove, warning,
};
