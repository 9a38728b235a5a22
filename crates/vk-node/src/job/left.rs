//! What a job's process that died left running. Its VMs and networks end with it; host programs that
//! work for it, such as git, do not.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Names the job's directory in the environment of its process, which hands it on to what it starts.
pub(super) const OF_JOB: &str = "VK_JOB";
/// What is read of a process's environment.
const ENVIRON_BYTES: u64 = 1 << 20;
/// How often it is looked whether they are gone, and with which pause.
const LOOKS: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);

/// Kills every process of the job of this directory, and waits until they are gone.
///
/// # Errors
/// Some do not go, as where a disk hangs, or processes cannot be looked at.
pub(super) fn end(job: &Path) -> io::Result<()> {
    let mark = [OF_JOB.as_bytes(), b"=", job.as_os_str().as_bytes()].concat();
    for look in 0..LOOKS {
        if look > 0 {
            sleep(PAUSE);
        }
        if kill_all(&mark)? == 0 {
            return Ok(());
        }
    }
    let mark = String::from_utf8_lossy(&mark);
    let why = format!("those with {mark} in their environment were killed and do not end");
    Err(io::Error::other(why))
}

/// Kills those that have the mark in their environment; how many there are.
fn kill_all(mark: &[u8]) -> io::Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| Pid::from_raw(name.parse().ok()?));
        // The number may be another process's by the time of the signal; what is open is not.
        let open = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(process) = open.filter(|_| has(&path, mark)) {
            found += 1;
            // One that has ended meanwhile is no matter; another is found again.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
    Ok(found)
}

/// Whether a process has the mark. Of another user's nothing can be read, and one that is over has
/// nothing.
fn has(process: &Path, mark: &[u8]) -> bool {
    let mut environ = Vec::new();
    let read = File::open(process.join("environ"))
        .and_then(|file| file.take(ENVIRON_BYTES).read_to_end(&mut environ));
    let mut entries = environ.split(|byte| *byte == 0);
    read.is_ok() && entries.any(|entry| entry == mark)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use super::*;

    fn of(job: &Path) -> Child {
        let mut command = Command::new("sleep");
        let command = command.arg("600").env(OF_JOB, job);
        command.spawn().unwrap()
    }

    /// FAIL-32
    #[test]
    fn what_is_left_of_a_job_ends_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("1"), dir.path().join("11"));
        let (mut first, mut second, mut kept) = (of(&one), of(&one), of(&other));
        end(&one).unwrap();
        for child in [&mut first, &mut second] {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert!(kept.try_wait().unwrap().is_none());
        kept.kill().unwrap();
        kept.wait().unwrap();
        end(&one).unwrap();
    }
}
