/// Why output cannot be masked or taken. After any of these the trace lets nothing out any more;
/// the job ends `system` (STAGE-34).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// More masked values than are searched for in one job.
    #[error("masking {count} values was refused: at most {limit} a job; mask fewer variables")]
    TooManyPhrases {
        /// How many there would be.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Masked values longer in sum than are searched for in one job.
    #[error(
        "masking {bytes} bytes of values was refused: at most {limit} bytes a job in sum; \
         mask fewer or shorter variables"
    )]
    PhrasesTooLong {
        /// Their length in sum.
        bytes: usize,
        /// What it may be.
        limit: usize,
    },
    /// More token prefixes than are searched for, or longer ones.
    #[error(
        "searching {count} token prefixes of {bytes} bytes was refused: at most {max_count} and \
         {max_bytes} bytes in sum; GitLab sent them as token_mask_prefixes"
    )]
    TooManyPrefixes {
        /// How many there are.
        count: usize,
        /// Their length in sum.
        bytes: usize,
        /// How many there may be.
        max_count: usize,
        /// What their length in sum may be.
        max_bytes: usize,
    },
    /// The search for the values could not be set up.
    #[error("the search for {patterns} masked values or prefixes could not be built")]
    Build {
        /// How many patterns it was to find.
        patterns: usize,
        /// What the search library says.
        #[source]
        source: aho_corasick::BuildError,
    },
    /// Masking failed before; what is written now is not let out.
    #[error("output was held back: masking failed earlier in this job")]
    Stopped,
    /// The trace has its closing line; nothing can follow it.
    #[error("output was dropped: it came after the job's closing line")]
    Finished,
}
