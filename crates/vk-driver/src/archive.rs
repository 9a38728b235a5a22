//! Artifacts' archives: from the guest's tar to GitLab's formats, and back.

mod capped;
mod claims;
#[cfg(test)]
mod fuzz;
mod pack;
#[cfg(test)]
mod ported;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use pack::{PackError, Packed, file_name, pack};
pub(crate) use unpack::{ENTRIES_MAX, UnpackError, unpack};
