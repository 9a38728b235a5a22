//! Archives made and extracted in the guest, so that a job's image needs no archiver (GUEST-01,
//! GUEST-04).

mod entry;
mod extract;
mod format;
mod notes;
mod select;
mod streams;
mod write;

pub(crate) use streams::{archive_to, extract_from};
pub(crate) use streams::{serve_in, serve_out};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
