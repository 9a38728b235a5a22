//! Bounds of what is read. Where GitLab has a bound of its own, it is that one.

/// Largest file, in bytes.
pub const MAX_FILE: usize = 1024 * 1024;
/// Most nodes of the file once all aliases, merges and references stand as copies.
pub const MAX_NODES: usize = 200_000;
/// Most bytes of scalars of the file once all aliases, merges and references stand as copies.
pub const MAX_SCALAR_BYTES: usize = 16 * 1024 * 1024;
/// Deepest nesting of lists and mappings.
pub const MAX_DEPTH: usize = 64;
/// Most jobs, hidden ones included.
pub const MAX_JOBS: usize = 500;
/// Most entries of one list: script lines, variables, rules, needs, paths, stages, tags.
pub const MAX_LIST: usize = 1_000;
/// Longest name of a job, stage or variable, in bytes.
pub const MAX_NAME: usize = 255;
/// Levels of `extends`, as in GitLab.
pub const MAX_EXTENDS: usize = 11;
/// Levels of nested lists in a script, and of `!reference` in `!reference`, as in GitLab.
pub const MAX_NESTED: usize = 10;
/// Longest `if:` of a rule, in bytes.
pub const MAX_EXPRESSION: usize = 16 * 1024;
/// Deepest nesting of parentheses in an `if:`.
pub const MAX_EXPRESSION_DEPTH: usize = 64;
/// Largest compiled regular expression, in bytes.
pub const MAX_PATTERN: usize = 256 * 1024;
/// Most different regular expressions of one file, and of the variables that its rules look at.
pub const MAX_PATTERNS: usize = 500;
/// Faults that are reported in one go; of more only the number is said.
pub const MAX_FAULTS: usize = 20;
/// Most entries of one `needs`, as in GitLab.
pub const MAX_NEEDS: usize = 50;
/// Longest timeout, in seconds: a month, as in GitLab.
pub const MAX_TIMEOUT_SECS: u64 = 2_629_746;
