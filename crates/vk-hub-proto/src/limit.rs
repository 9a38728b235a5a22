//! The numbers both sides must agree on.

/// Serialized bytes of a job spec at most (API-31).
pub const SPEC_BYTES: usize = 524_288;
/// Bytes of a request's body at most, a job submission's aside (AUTH-18).
pub const BODY_BYTES: usize = 65_536;
/// Bytes of a job submission's body at most (AUTH-18).
pub const SUBMISSION_BYTES: usize = SPEC_BYTES + 65_536;
/// Bytes of one output answer at most (API-36).
pub const OUTPUT_ANSWER_BYTES: usize = 1_048_576;
/// Bytes of one session message at most (DISP-03).
pub const MESSAGE_BYTES: usize = 1_048_576;
/// Bytes of a job's registry token at most: it goes into one header.
pub const REGISTRY_TOKEN_BYTES: usize = 16_384;
/// Namespaces of a job's registry token at most.
pub const REGISTRY_NAMESPACES: usize = 128;
/// Bytes of a name at a registry at most; what a registry takes is shorter.
pub const REGISTRY_NAME_BYTES: usize = 1_024;
/// Output bytes in one `output` message at most (DISP-19).
pub const CHUNK_BYTES: usize = 262_144;
/// Output bytes a node sends past the last ack at most (DISP-47).
pub const WINDOW_BYTES: u64 = 4 * 1_048_576;
/// The trace limit where the spec says 0.
pub const DEFAULT_TRACE_BYTES: u64 = 4 * 1_048_576;
/// What the hub stores past a job's trace limit (DISP-79).
pub const TRACE_SLACK_BYTES: u64 = 65_536;
/// Seconds a long poll is held at most (API-12).
pub const WAIT_SECS: u32 = 60;
/// Seconds of a lease at most (DISP-38).
pub const LEASE_SECS: u32 = 600;
/// Seconds a job may wait for a place at most (API-56).
pub const PLACE_WITHIN_SECS: u32 = 86_400;
/// Labels of a placement at most (PLACE-42).
pub const LABELS: usize = 32;
/// Seconds by which a signed request's time may be off, inclusive (AUTH-16).
pub const DOWNLOAD_SKEW_SECS: u64 = 300;
/// Entries of any list in an inventory or report that the hub keeps (wire, 2.6).
pub const INVENTORY_LIST: usize = 64;
/// Characters of display text at most (DISP-85).
pub const DISPLAY_CHARS: usize = 256;
/// Workloads of a report that the hub keeps (wire, 2.6).
pub const WORKLOADS: usize = 256;
