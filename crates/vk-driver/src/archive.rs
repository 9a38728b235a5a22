//! Artifacts' archives: from the guest's tar to GitLab's formats, and back.

mod pack;
#[cfg(test)]
mod tests;
mod unpack;

pub(crate) use pack::{PackError, Packed, file_name, pack};
#[cfg(test)]
pub(crate) use unpack::UnpackError;
pub(crate) use unpack::unpack;
