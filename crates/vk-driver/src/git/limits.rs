//! What one of the host's gits may take of the host, whatever a repository says.
//!
//! A pack of a kilobyte may hold a commit, a tree or a chain of differences of gigabytes, and git has
//! each of them in memory whole.

use std::ffi::OsStr;

use tokio::process::Command;

use super::host::GitError;
use super::room::SourceBounds;

/// The largest file git may write, in bytes, whatever a project may have.
const FILE_MAX: u64 = 32 << 30;
/// What the host's memory is divided by, and between what the result lies, where no limit is said.
/// Two gibibytes are what the history of the Linux kernel needs, four three times that many objects.
const PART_OF_MEMORY: u64 = 4;
const MEMORY_MIN: u64 = 1 << 30;
const MEMORY_MAX: u64 = 4 << 30;
/// Threads that git may use: the stack of each counts as memory.
const THREADS_MAX: usize = 4;

/// The shell that sets the limits and becomes git. Data, and not addresses: packs that are mapped are
/// no memory that the host lacks. Where the host's memory ends all the same, git is what goes.
const SHELL: &str = "ulimit -c 0; ulimit -f \"$0\"; ulimit -d \"$1\"; shift; \
                     { echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; exec git \"$@\"";

/// What git says where a file became too large: what index-pack or git itself died of, or what it
/// says where the signal is blocked.
const FILE_SIGNS: [&str; 3] = ["signal 25", "signal: 25", "File too large"];
/// What it says where it had no memory.
const MEMORY_SIGNS: [&str; 3] = [
    "ut of memory",
    "Cannot allocate memory",
    "unable to create thread",
];

/// The limits of one git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of one file that it writes.
    pub(super) file: u64,
    /// Bytes of memory of each of its processes.
    pub(super) memory: u64,
}

impl Limits {
    pub(super) fn of(bounds: &SourceBounds) -> Limits {
        Limits {
            file: FILE_MAX.min(bounds.project),
            memory: bounds.git_memory,
        }
    }

    /// A command that becomes git with these limits; git's own arguments follow.
    pub(super) fn command(self) -> Command {
        let mut command = Command::new("/bin/sh");
        // In blocks of 512 bytes, and in KiB.
        let file = self.file.div_ceil(512).to_string();
        let memory = match self.memory {
            u64::MAX => "unlimited".to_owned(),
            bytes => (bytes >> 10).to_string(),
        };
        command.args([
            OsStr::new("-c"),
            SHELL.as_ref(),
            file.as_ref(),
            memory.as_ref(),
        ]);
        command
    }

    /// Settings by which git needs no more memory for an honest repository than it must.
    pub(super) fn settings() -> [(&'static str, String); 3] {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        [
            // A larger file goes through git in parts, and is compared with no other.
            ("core.bigFileThreshold", "32m".to_owned()),
            ("pack.windowMemory", "64m".to_owned()),
            ("pack.threads", threads.min(THREADS_MAX).to_string()),
        ]
    }

    /// The error of a git that failed, by what it said.
    pub(super) fn failed(self, what: &'static str, said: String) -> GitError {
        // A server's words are its own.
        let own = |sign: &&str| {
            let mut lines = said.lines().filter(|line| !line.starts_with("remote:"));
            lines.any(|line| line.contains(sign))
        };
        if FILE_SIGNS.iter().any(&own) {
            let most = self.file;
            GitError::TooLarge { what, most }
        } else if MEMORY_SIGNS.iter().any(own) {
            let most = self.memory;
            GitError::Memory { what, most }
        } else {
            GitError::Failed { what, said }
        }
    }
}

/// What one git may have of a host's memory, where nothing is said.
pub(super) fn memory_of_host() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    let bytes = kib.unwrap_or_default().saturating_mul(1024);
    (bytes / PART_OF_MEMORY).clamp(MEMORY_MIN, MEMORY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_met_is_told_from_what_a_server_says() {
        let limits = Limits {
            file: 1,
            memory: 2 << 20,
        };
        let failed = |said: &str| limits.failed("fetch", said.to_owned());
        let memory = failed("x\nfatal: Out of memory, malloc failed (tried to allocate 9 bytes)\n");
        assert!(matches!(memory, GitError::Memory { .. }), "{memory}");
        for part in ["2 MiB", "[sources] max_git_memory"] {
            assert!(memory.to_string().contains(part), "{memory}");
        }
        let file = failed("fatal: write error: File too large\n");
        assert!(matches!(file, GitError::TooLarge { most: 1, .. }), "{file}");
        for said in [
            "remote: fatal: Out of memory\n",
            "remote: File too large",
            "no",
        ] {
            let other = failed(said);
            assert!(matches!(other, GitError::Failed { .. }), "{other}");
        }
    }

    #[test]
    fn a_host_gives_one_git_a_part_of_its_memory() {
        assert!((MEMORY_MIN..=MEMORY_MAX).contains(&memory_of_host()));
    }
}
