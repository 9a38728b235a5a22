//! The bounds of everything on the wire. An encoder refuses what a decoder would refuse.

/// Most bytes in a frame after its length: kind and body.
pub const MAX_FRAME: usize = 128 * 1024;
/// Bytes of a frame's length field.
pub const LENGTH_FIELD: usize = 4;
/// Most bytes in one data frame or one part of a request; a sender cuts longer ones.
pub const MAX_CHUNK: usize = 64 * 1024;
/// Most bytes in one stream's request, all parts together.
pub const MAX_REQUEST: usize = 8 * 1024 * 1024;
/// Most bytes in a path (the kernel's own bound).
pub const MAX_PATH: usize = 4096;
/// Most bytes in a message, a warning or a pattern.
pub const MAX_TEXT: usize = 4096;
/// Most bytes in a version, a host name, a user specification or a disk's serial.
pub const MAX_NAME: usize = 256;
/// Most arguments, and most environment variables, of one exec.
pub const MAX_STRINGS: usize = 65_536;
/// Most include patterns, and most exclude patterns, of one archive.
pub const MAX_PATTERNS: usize = 4096;
/// Most paths in one [`crate::Op::Stat`] or [`crate::SetUp`].
pub const MAX_STAT_PATHS: usize = 16;
/// Most bytes of the file that a [`crate::SetUp`] reads: its answer is one frame.
pub const MAX_SMALL_FILE: usize = 32 * 1024;
/// Most directories that one exec or set-up asks for.
pub const MAX_DIRECTORIES: usize = 16;
/// Bytes of one argument or `NAME=value` string from which on the kernel refuses it (with its NUL).
pub const KERNEL_STRING: usize = 128 * 1024;
