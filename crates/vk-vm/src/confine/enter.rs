use std::io;
use std::process::{Command, ExitCode, Stdio};

use rustix::thread::UnshareFlags;

use super::OWN_PROGRAM;
use super::identity::{enter_as, explain};
use super::program::Walls;

/// The first stage: new namespaces, the holder as the first process of a new PID namespace, and
/// its exit code in the end.
///
/// The owner's socket is stdin. Runs in a process of its own that has one thread.
///
/// # Errors
/// When a namespace cannot be made or the holder cannot be started.
pub fn enter(walls: Walls) -> io::Result<ExitCode> {
    if walls == Walls::Required {
        enter_as(
            0,
            UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC,
        )?;
    }
    let mut holder = Command::new(OWN_PROGRAM);
    holder.args(["guest", "confine", "hold"]);
    if walls == Walls::Off {
        holder.arg("--open");
    }
    let mut holder = holder
        .stdin(Stdio::inherit())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| explain("start the holder", e))?;
    let status = holder.wait()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, Into::into))
}
