//! A VM whose programs are being started, whatever its VMM.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use vk_guest_proto::{SECRET_LEN, Secret};

use crate::channel::{Connection, Expected, Listener};
use crate::confine::{Holder, Program};
use crate::console::Console;
use crate::start_error::StartError;
use crate::supervise::Watched;

/// The holder, and what runs under it so far.
pub(crate) struct Launching {
    pub(crate) holder: Holder,
    pub(crate) console: Arc<Console>,
    pub(crate) programs: Vec<Watched>,
    pub(crate) tasks: JoinSet<()>,
}

/// The host's end of a channel that nobody has dialled yet.
pub(crate) struct Channel {
    pub(crate) expected: Arc<Expected>,
    pub(crate) control: oneshot::Receiver<Connection>,
}

impl Launching {
    /// A VM in `directory` under its holder; what dials `listener` with `secret` is its agent.
    pub(crate) fn begin(
        holder: Holder,
        directory: &Path,
        listener: Listener,
        secret: Secret,
    ) -> Result<(Self, Channel), StartError> {
        let console = Console::create(directory.join("console.log"))
            .map_err(StartError::io("make the console's file"))?;
        let (expected, control) = Expected::new(secret);
        let expected = Arc::new(expected);
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.serve(Arc::clone(&expected)));
        let programs = Vec::new();
        let launching = Self {
            holder,
            console: Arc::new(console),
            programs,
            tasks,
        };
        Ok((launching, Channel { expected, control }))
    }

    /// Starts a program whose stdout is of no interest.
    pub(crate) async fn launch(
        &mut self,
        name: &'static str,
        program: &Program,
    ) -> Result<Watched, StartError> {
        let null = File::options().write(true).open("/dev/null");
        let null = null.map_err(StartError::io("open /dev/null"))?;
        self.launch_with(name, program, null.into(), None).await
    }

    /// Starts a program whose stdout is a socket of its owner's.
    pub(crate) async fn launch_telling(
        &mut self,
        name: &'static str,
        program: &Program,
        stdout: OwnedFd,
    ) -> Result<Watched, StartError> {
        self.launch_with(name, program, stdout, None).await
    }

    /// Starts the VMM, whose stdout is the guest's console, with a descriptor where it inherits one.
    pub(crate) async fn launch_vmm(
        &mut self,
        name: &'static str,
        program: &Program,
        inherited: Option<OwnedFd>,
    ) -> Result<(), StartError> {
        let (output, says) = pipe()?;
        let console = Arc::clone(&self.console);
        self.tasks.spawn(async move { console.record(says).await });
        self.launch_with(name, program, output, inherited).await?;
        // The VMM is the first of a VM's programs, whenever it was started.
        self.programs.rotate_right(1);
        Ok(())
    }

    async fn launch_with(
        &mut self,
        name: &'static str,
        program: &Program,
        stdout: OwnedFd,
        inherited: Option<OwnedFd>,
    ) -> Result<Watched, StartError> {
        let (stderr, says) = pipe()?;
        let said = Arc::new(Console::default());
        let log = Arc::clone(&said);
        self.tasks.spawn(async move { log.record(says).await });
        let launched = self
            .holder
            .launch_with(program, stdout, stderr, inherited)
            .await?;
        let watched = Watched {
            name,
            launched,
            said,
        };
        self.programs.push(watched.clone());
        Ok(watched)
    }
}

/// Fills with the kernel's randomness. A library's generator gathers entropy of its own first, which takes
/// a process that starts one VM longer than starting the VMM.
pub(crate) fn draw(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// A secret for one VM.
pub(crate) fn new_secret() -> Result<Secret, StartError> {
    let mut bytes = [0; SECRET_LEN];
    draw(&mut bytes).map_err(StartError::io("draw a secret from /dev/urandom"))?;
    Ok(Secret::take(&mut bytes))
}

/// Makes the VM's directory and directories in it; nobody else may look in.
pub(crate) fn make_directories(directory: &Path, inside: &[&str]) -> Result<(), StartError> {
    let make = |path: &Path| {
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .map_err(StartError::io(format!("make {}", path.display())))
    };
    make(directory)?;
    inside
        .iter()
        .try_for_each(|name| make(&directory.join(name)))
}

/// A pipe from a program to this process.
fn pipe() -> Result<(OwnedFd, pipe::Receiver), StartError> {
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| StartError::io("make a pipe")(e.into()))?;
    let from = pipe::Receiver::from_owned_fd(from).map_err(StartError::io("read from a pipe"))?;
    Ok((to, from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_somebody_elses_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        assert!(make_directories(directory.path(), &[]).is_err());
        let own = directory.path().join("vm");
        make_directories(&own, &["qmp"]).unwrap();
        for path in [own.clone(), own.join("qmp")] {
            let permissions = path.metadata().unwrap().permissions();
            assert_eq!(
                std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777,
                0o700
            );
        }
    }
}
