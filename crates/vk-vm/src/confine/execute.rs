use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::UnshareFlags;

use super::drop_rights::drop_rights;
use super::identity::{enter_as, explain};
use super::order::{INHERITED, PACKET_MAX};
use super::program::{Confines, Program, Walls};
use super::system_calls::refuse_the_dangerous;
use super::view;
use crate::sys;

/// What a confined program's user is inside its namespace: not root, so that an exec gives it
/// nothing even before the bounding set is looked at.
pub(super) const INSIDE: u32 = 1000;

/// The third stage: builds the walls and executes the program that stdin describes.
///
/// Returns only when it could not: the caller prints the error on stderr, which is the program's.
pub fn execute(walls: Walls) -> io::Error {
    match prepare(walls) {
        Ok(mut program) => {
            let error = program.exec();
            explain(
                &format!("execute {}", program.get_program().to_string_lossy()),
                error,
            )
        }
        Err(e) => e,
    }
}

fn prepare(walls: Walls) -> io::Result<Command> {
    let program = read_plan()?;
    let nothing = File::open("/dev/null").map_err(|e| explain("open /dev/null", e))?;
    let nothing_held = confine(&program.confines, walls)?;
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
    .map_err(|e| explain("forbid core dumps", e))?;
    if nothing_held {
        drop_rights().map_err(|e| explain("give up capabilities", e))?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| explain("ask for the parent's death signal", e))?;
    sys::close_descriptors_on_exec(program.inherits.then_some(INHERITED))
        .map_err(|e| explain("close descriptors", e))?;
    let directory = &program.directory;
    std::env::set_current_dir(directory)
        .map_err(|e| explain(&format!("enter {}", directory.display()), e))?;
    if nothing_held {
        refuse_the_dangerous().map_err(|e| explain("forbid dangerous system calls", e))?;
    }
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .env_clear()
        .stdin(Stdio::from(nothing));
    Ok(command)
}

/// Enters the program's namespaces; whether it is to hold no rights.
fn confine(confines: &Confines, walls: Walls) -> io::Result<bool> {
    let all = UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    match confines {
        Confines::View { at, places } if walls == Walls::Required => {
            enter_as(INSIDE, all)?;
            rustix::system::sethostname(b"vm").map_err(|e| explain("set the host name", e))?;
            view::enter(at, places)?;
            Ok(true)
        }
        Confines::View { .. } => Ok(true),
        Confines::Holder if walls == Walls::Required => Ok(false),
        Confines::Holder => Err(io::Error::other(
            "the keeper of a VM's network needs the walls, and they are off",
        )),
        #[cfg(feature = "process-vmm")]
        // The holder's user namespace serves: its PID namespace belongs to it, and so /proc can be
        // mounted.
        Confines::Root => sys::unshare(all).map(|()| false).map_err(|e| {
            explain(
                "make the namespaces of a guest that is a process (walls must be on)",
                e,
            )
        }),
    }
}

fn read_plan() -> io::Result<Program> {
    let limit = u64::try_from(PACKET_MAX).unwrap_or(u64::MAX);
    let mut text = Vec::new();
    io::stdin().lock().take(limit).read_to_end(&mut text)?;
    let program: Program = serde_json::from_slice(&text)?;
    fs::metadata(&program.path)
        .map_err(|e| explain(&format!("find {}", program.path.display()), e))?;
    Ok(program)
}
