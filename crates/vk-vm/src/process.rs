//! A guest that is no machine: the same agent as a process in namespaces.
//!
//! For crash, soak and bench runs that need thousands of jobs; never for anybody's job. Disks are
//! directories: an unprivileged namespace cannot mount an EROFS, so each image is extracted once
//! into a cache.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::time::timeout;
use vk_guest_proto::{Secret, Volume};

use crate::bundle::FileIdentity;
use crate::channel::Listener;
use crate::confine::{Confinement, Confines, Holder, Program};
use crate::launching::{Launching, make_directories, new_secret};
use crate::machine::{Accelerator, Disk, Machine, Starting, Vmm};
use crate::programs::find;
use crate::sockets;
use crate::start_error::StartError;
use crate::vm::{Awaited, Vm};

const NAME: &str = "process";
/// The variable by which a test or a bench says that it means it.
pub const ALLOW_VARIABLE: &str = "VK_ALLOW_PROCESS_VMM";
/// What the variable must be.
const ALLOWED: &str = "for-tests";
/// Extracting an image of a test takes seconds at most.
const EXTRACTING: Duration = Duration::from_secs(300);

/// What the process VMM is prepared from.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// The agent's program.
    pub agent: PathBuf,
    /// Whose stages hold the processes.
    pub confinement: Confinement,
    /// A directory for extracted images; made where missing, shared by all VMs.
    pub cache: PathBuf,
    /// Whether a test or a bench asked for it aloud; see [`allowed_by_environment`].
    pub allowed: bool,
}

/// Starts agents as processes.
#[derive(Debug)]
pub struct ProcessVmm {
    settings: ProcessSettings,
}

/// Whether [`ALLOW_VARIABLE`] is set to `for-tests`.
#[must_use]
pub fn allowed_by_environment() -> bool {
    std::env::var_os(ALLOW_VARIABLE).is_some_and(|value| value == ALLOWED)
}

impl ProcessVmm {
    /// Looks whether it may, and whether there is an agent.
    ///
    /// # Errors
    /// [`StartError::ProcessNotAllowed`], [`StartError::NoProgram`].
    pub fn prepare(settings: ProcessSettings) -> Result<Self, StartError> {
        if !settings.allowed {
            return Err(StartError::ProcessNotAllowed);
        }
        if !settings.agent.exists() {
            let program = settings.agent.display().to_string();
            return Err(StartError::NoProgram {
                program,
                hint: "it is built with vk",
            });
        }
        Ok(Self { settings })
    }

    async fn boot(&self, machine: Machine) -> Result<Vm, StartError> {
        machine.check().map_err(StartError::Machine)?;
        let directory = &machine.directory;
        make_directories(directory, &["state"])?;
        let mut volumes = Vec::new();
        for disk in &machine.disks {
            volumes.push(self.volume(disk, directory).await?);
        }
        let secret = new_secret()?;
        let file = directory.join("secret");
        write_secret(&file, &secret).map_err(StartError::io("write the agent's secret"))?;
        let booted = self.boot_with(&machine, secret, volumes).await;
        // The agent removes it when it reads it; one that never ran has not.
        let _ = fs::remove_file(&file);
        booted
    }

    async fn boot_with(
        &self,
        machine: &Machine,
        secret: Secret,
        volumes: Vec<(String, Volume)>,
    ) -> Result<Vm, StartError> {
        let directory = &machine.directory;
        let listener = sockets::listen(&directory.join("host"))
            .map_err(StartError::io("listen for the agent"))?;
        let confinement = &self.settings.confinement;
        let holder = Holder::start(confinement).await?;
        let listener = Listener::Unix(listener);
        let (mut launching, channel) = Launching::begin(holder, directory, listener, secret)?;
        // The socket relative to the agent's directory, for a socket's path must be short.
        let mut args: Vec<OsString> = [
            "process",
            "--dial",
            "unix:host",
            "--secret",
            "secret",
            "--state",
        ]
        .map(Into::into)
        .to_vec();
        args.push(directory.join("state").into());
        let program = Program {
            path: self.settings.agent.clone(),
            args,
            directory: directory.clone(),
            confines: Confines::Root,
            inherits: false,
        };
        let started = Instant::now();
        launching.launch_vmm(NAME, &program, None).await?;
        let awaited = Awaited {
            channel,
            vmm: NAME,
            accelerator: Accelerator::Host,
            started,
            limit: machine.boot_limit,
            volumes: volumes.into_iter().collect(),
            qmp: None,
        };
        Vm::come_up(launching, awaited).await
    }

    /// The directory that stands for a disk: an image's extracted tree, or an empty one.
    async fn volume(&self, disk: &Disk, machine: &Path) -> Result<(String, Volume), StartError> {
        let path = if disk.writable {
            let empty = machine.join(format!("disk-{}", disk.role));
            fs::create_dir(&empty).map_err(StartError::io(format!("make {}", empty.display())))?;
            empty
        } else if disk.path.is_dir() {
            disk.path.clone()
        } else {
            extracted(&disk.path, &self.settings.cache)
                .await
                .map_err(StartError::io(format!(
                    "extract the image {}",
                    disk.path.display()
                )))?
        };
        let path = path.as_os_str().as_bytes().to_vec();
        Ok((disk.role.clone(), Volume::Directory { path }))
    }
}

impl Vmm for ProcessVmm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn accelerator(&self) -> Accelerator {
        Accelerator::Host
    }

    fn start(&self, machine: Machine) -> Starting<'_> {
        Box::pin(self.boot(machine))
    }
}

fn write_secret(path: &Path, secret: &Secret) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(secret.expose())
}

/// The tree of an image, extracted once for its path, size and time of change.
async fn extracted(image: &Path, cache: &Path) -> io::Result<PathBuf> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(cache)?;
    let of = fs::metadata(image)?;
    let image = fs::canonicalize(image)?;
    let identity = format!(
        "{} {} {}.{}",
        image.display(),
        of.size(),
        of.mtime(),
        of.mtime_nsec()
    );
    let name = FileIdentity::of(identity.as_bytes()).sha256;
    let tree = cache.join(name);
    if tree.exists() {
        return Ok(tree);
    }
    let program = find("fsck.erofs")
        .ok_or_else(|| io::Error::other("fsck.erofs is not installed (package erofs-utils)"))?;
    let beside = tempfile::Builder::new().prefix("new-").tempdir_in(cache)?;
    let target = beside.path().join("tree");
    let mut extract = Command::new(program);
    let mut option = OsString::from("--extract=");
    option.push(&target);
    extract
        .arg(option)
        .args(["--no-preserve", "--overwrite"])
        .arg(&image);
    extract.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(EXTRACTING, extract.output())
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    if !output.status.success() {
        let said = crate::console::shown(&output.stderr);
        return Err(io::Error::other(format!("fsck.erofs: {}", said.trim())));
    }
    match fs::rename(&target, &tree) {
        // Another VM was faster with the same image.
        Err(_) if tree.exists() => Ok(tree),
        renamed => renamed.map(|()| tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_being_allowed_it_is_refused() {
        let settings = ProcessSettings {
            agent: PathBuf::from("/bin/sh"),
            confinement: Confinement::default(),
            cache: PathBuf::from("/cache"),
            allowed: false,
        };
        let refused = ProcessVmm::prepare(settings.clone()).unwrap_err();
        assert!(
            matches!(refused, StartError::ProcessNotAllowed),
            "{refused}"
        );
        ProcessVmm::prepare(ProcessSettings {
            allowed: true,
            ..settings
        })
        .unwrap();
    }
}
