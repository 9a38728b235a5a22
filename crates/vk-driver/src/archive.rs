//! Artifacts' archives: from the guest's tar to GitLab's formats, and back.

mod capped;
mod claims;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod huge;
mod level;
mod pack;
#[cfg(test)]
mod ported;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use level::Level;
#[cfg(test)]
use pack::pack;
pub(crate) use pack::{PackError, Packed, file_name, pack_at};
pub(crate) use unpack::{ENTRIES_MAX, UnpackError, unpack};
