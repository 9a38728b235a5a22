//! What is known of a job's process that ended without a result.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is known of the death of a job's process. What a later version knows beside it is nothing to
/// this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Death {
    /// How it ended.
    pub by: By,
    /// Processes of the node's control group that the kernel ended for want of memory while it ran.
    pub oom_kills: u64,
    /// The same of the whole host, where no control group counts them: it may have been anybody's.
    #[serde(skip_serializing_if = "is_none")]
    pub host_oom_kills: u64,
}

/// For serde, which hands out references.
const fn is_none(kills: &u64) -> bool {
    *kills == 0
}

/// How a job's process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum By {
    /// The host was started anew since it began.
    Reboot,
    /// A signal.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// Itself: a panic, or a job that could not even leave a result.
    Exit {
        /// Its exit code.
        code: i32,
    },
    /// Nobody saw it: the daemon that started it was gone, and so whose child it was.
    #[default]
    #[serde(other)]
    Unseen,
}

/// As a sentence about "it", without an end.
impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Reboot => return f.write_str("the node's host was restarted"),
            By::Signal { signal } => {
                write!(f, "it was killed by signal {signal}")?;
                if let Some(name) = name(signal) {
                    write!(f, " ({name})")?;
                }
            }
            By::Exit { code } => write!(f, "it ended with exit code {code}")?,
            By::Unseen => f.write_str("nobody saw how, since the node's daemon was restarted")?,
        }
        if self.oom_kills == 0 {
            return match self.host_oom_kills {
                0 => Ok(()),
                _ => f.write_str(
                    "; the host's memory ran out at about that time, and whether the kernel ended \
                     this process for it or others is not known",
                ),
            };
        }
        let likely = match self.by {
            By::Signal { signal: 9 } => "probably for want of memory: ",
            _ => "",
        };
        let processes = match self.oom_kills {
            1 => "process",
            _ => "processes",
        };
        let count = self.oom_kills;
        write!(
            f,
            "; {likely}the kernel ended {count} {processes} there for want of memory while it ran"
        )
    }
}

/// Of the signals that end a process, on x86-64.
const fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FAIL-34
    #[test]
    fn each_death_is_told_apart() {
        let of = |by, oom_kills| {
            let death = Death {
                by,
                oom_kills,
                ..Death::default()
            };
            death.to_string()
        };
        let told = [
            (of(By::Reboot, 0), "the node's host was restarted"),
            // Counters of two starts of a host are no difference.
            (of(By::Reboot, 7), "the node's host was restarted"),
            (
                of(By::Signal { signal: 6 }, 0),
                "it was killed by signal 6 (SIGABRT)",
            ),
            (
                of(By::Signal { signal: 40 }, 0),
                "it was killed by signal 40",
            ),
            (
                of(By::Signal { signal: 9 }, 1),
                "it was killed by signal 9 (SIGKILL); probably for want of memory: the kernel ended \
                 1 process there for want of memory while it ran",
            ),
            (
                of(By::Exit { code: 101 }, 2),
                "it ended with exit code 101; the kernel ended 2 processes there for want of memory \
                 while it ran",
            ),
            (
                of(By::Unseen, 0),
                "nobody saw how, since the node's daemon was restarted",
            ),
        ];
        for (told, expected) in told {
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn what_a_later_version_knows_of_a_death_is_nothing_to_this_one() {
        let later = r#"{"by":{"by":"frost","degrees":-3},"oom_kills":1,"mood":"bad"}"#;
        let read: Death = serde_json::from_str(later).unwrap();
        let by = By::Unseen;
        let expected = Death {
            by,
            oom_kills: 1,
            ..Death::default()
        };
        assert_eq!(read, expected);
    }

    /// FAIL-34: what the whole host's counter says is nobody's death for a fact.
    #[test]
    fn a_host_without_memory_is_told_and_nobody_is_said_to_have_died_of_it() {
        let of = |by, host_oom_kills| {
            let death = Death {
                by,
                host_oom_kills,
                ..Death::default()
            };
            death.to_string()
        };
        let killed = By::Signal { signal: 9 };
        assert_eq!(
            of(killed, 3),
            "it was killed by signal 9 (SIGKILL); the host's memory ran out at about that time, and \
             whether the kernel ended this process for it or others is not known"
        );
        assert_eq!(of(killed, 0), "it was killed by signal 9 (SIGKILL)");
        assert_eq!(of(By::Reboot, 3), "the node's host was restarted");
    }
}
