//! How hard an archive is compressed, by gitlab-runner's names.

/// `ARTIFACT_COMPRESSION_LEVEL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    Fastest,
    Fast,
    #[default]
    Default,
    Slow,
    Slowest,
}

impl Level {
    /// By its name; none where there is none such.
    pub(crate) fn named(name: &str) -> Option<Level> {
        Some(match name {
            "fastest" => Level::Fastest,
            "fast" => Level::Fast,
            "default" => Level::Default,
            "slow" => Level::Slow,
            "slowest" => Level::Slowest,
            _ => return None,
        })
    }

    /// For zip and gzip; 0 stores.
    pub(super) const fn deflate(self) -> u32 {
        match self {
            Level::Fastest => 0,
            Level::Fast => 1,
            Level::Default => 5,
            Level::Slow => 7,
            Level::Slowest => 9,
        }
    }

    /// For zstd.
    pub(super) const fn zstd(self) -> i32 {
        match self {
            Level::Fastest => 1,
            Level::Fast => 2,
            Level::Default => 3,
            Level::Slow => 7,
            Level::Slowest => 11,
        }
    }
}
