use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use rustix::thread::UnshareFlags;

use super::drop_rights::drop_rights;
use super::identity::{enter_as, explain};
use super::order::PACKET_MAX;
use super::program::{Program, Walls};
use super::view;
use crate::sys;

/// What a confined program's user is inside its namespace: not root, so that an exec gives it
/// nothing even before the bounding set is looked at.
const INSIDE: u32 = 1000;

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
    if walls == Walls::Required {
        enter_as(
            INSIDE,
            UnshareFlags::NEWNS
                | UnshareFlags::NEWNET
                | UnshareFlags::NEWIPC
                | UnshareFlags::NEWUTS
                | UnshareFlags::NEWCGROUP,
        )?;
        rustix::system::sethostname(b"vm").map_err(|e| explain("set the host name", e))?;
        view::enter(&program)?;
    }
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
    .map_err(|e| explain("forbid core dumps", e))?;
    drop_rights().map_err(|e| explain("give up capabilities", e))?;
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| explain("ask for the parent's death signal", e))?;
    sys::close_descriptors_on_exec().map_err(|e| explain("close descriptors", e))?;
    let directory = &program.directory;
    std::env::set_current_dir(directory)
        .map_err(|e| explain(&format!("enter {}", directory.display()), e))?;
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .env_clear()
        .stdin(Stdio::from(nothing));
    Ok(command)
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
