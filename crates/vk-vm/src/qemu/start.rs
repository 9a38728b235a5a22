use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use aws_lc_rs::rand;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use vk_guest_proto::{SECRET_LEN, Secret};

use super::args::{Boot, QMP_SOCKET, VsockDevice, arguments, files};
use super::firmware;
use crate::bundle::{Bundle, write_initrd};
use crate::channel::{Expected, Listener};
use crate::confine::{Confinement, Holder, Place, Program, needed_by};
use crate::console::Console;
use crate::machine::{Accelerator, Machine, Starting, Vmm};
use crate::programs::{find, find_beside};
use crate::start_error::StartError;
use crate::supervise::Watched;
use crate::vm::{Awaited, Parts, Vm};
use crate::{tsc, vsock};

const NAME: &str = "qemu";

/// What a QEMU is prepared from.
#[derive(Debug, Clone)]
pub struct QemuSettings {
    /// The boot bundle's directory.
    pub bundle: PathBuf,
    /// `qemu-system-x86_64`; searched for where `None`.
    pub qemu: Option<PathBuf>,
    /// `vhost-device-vsock`; searched for beside this program and then in PATH where `None`.
    pub vsock_daemon: Option<PathBuf>,
    /// Who confines, and how strictly.
    pub confinement: Confinement,
    /// What guests run on.
    pub accelerator: Accelerator,
    /// The device file of KVM.
    pub kvm: PathBuf,
}

/// QEMU, ready to start VMs.
#[derive(Debug)]
pub struct Qemu {
    bundle: Bundle,
    qemu: PathBuf,
    qemu_needs: Vec<Place>,
    daemon: PathBuf,
    daemon_needs: Vec<Place>,
    firmware: PathBuf,
    confinement: Confinement,
    accelerator: Accelerator,
    kvm: PathBuf,
    command_line: String,
    boot_timeouts: AtomicU64,
}

impl QemuSettings {
    /// Settings for programs found by themselves.
    #[must_use]
    pub fn new(bundle: PathBuf, confinement: Confinement, accelerator: Accelerator) -> Self {
        let kvm = PathBuf::from("/dev/kvm");
        Self { bundle, qemu: None, vsock_daemon: None, confinement, accelerator, kvm }
    }
}

/// Where QEMU is.
///
/// # Errors
/// [`StartError::NoProgram`].
pub(crate) fn find_qemu(configured: Option<&Path>) -> Result<PathBuf, StartError> {
    program(configured, "qemu-system-x86_64", "package qemu-system-x86", find)
}

fn program(
    configured: Option<&Path>,
    name: &str,
    hint: &'static str,
    search: fn(&str) -> Option<PathBuf>,
) -> Result<PathBuf, StartError> {
    let found = match configured {
        Some(path) => path.exists().then(|| path.to_owned()),
        None => search(name),
    };
    let missing = || StartError::NoProgram {
        program: configured.map_or(name.to_owned(), |path| path.display().to_string()),
        hint,
    };
    // Modules and firmware lie beside the program itself, not beside a link to it.
    found.and_then(|path| fs::canonicalize(path).ok()).ok_or_else(missing)
}

impl Qemu {
    /// Finds the programs and what they need, opens the bundle, measures the counter.
    ///
    /// # Errors
    /// [`StartError::NoProgram`], [`StartError::NoFirmware`], [`StartError::Bundle`],
    /// [`StartError::Confine`].
    pub async fn prepare(settings: QemuSettings) -> Result<Self, StartError> {
        let qemu = find_qemu(settings.qemu.as_deref())?;
        let configured = settings.vsock_daemon.as_deref();
        let hint = "`cargo install vhost-device-vsock`";
        let daemon = program(configured, "vhost-device-vsock", hint, find_beside)?;
        let bundle = Bundle::open(&settings.bundle)?;
        let frequency = tokio::task::spawn_blocking(tsc::frequency_khz);
        let modules = firmware::modules(&qemu);
        let (qemu_needs, daemon_needs) =
            tokio::try_join!(needed_by(&qemu, &modules), needed_by(&daemon, &[]))?;
        let frequency = frequency.await.ok().flatten();
        if frequency.is_none() {
            tracing::warn!("the time stamp counter's frequency is unknown: guests may hang at boot");
        }
        Ok(Self {
            bundle,
            firmware: firmware::directory(&qemu)?,
            qemu,
            qemu_needs,
            daemon,
            daemon_needs,
            confinement: settings.confinement,
            accelerator: settings.accelerator,
            kvm: settings.kvm,
            command_line: command_line(frequency),
            boot_timeouts: AtomicU64::new(0),
        })
    }

    /// Boots that were killed because no agent came in time.
    #[must_use]
    pub fn boot_timeouts(&self) -> u64 {
        self.boot_timeouts.load(Ordering::Relaxed)
    }

    /// The bundle guests boot from.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    pub(crate) async fn boot(&self, machine: Machine) -> Result<Vm, StartError> {
        machine.check().map_err(StartError::Machine)?;
        for disk in &machine.disks {
            fs::metadata(&disk.path)
                .map_err(StartError::io(format!("use the disk {}", disk.path.display())))?;
        }
        make_directories(&machine.directory)?;
        let secret = new_secret()?;
        let initrd = machine.directory.join("initrd");
        write_initrd(&self.bundle, &secret, &initrd)?;
        let (expected, control) = Expected::new(secret);
        let expected = Arc::new(expected);
        let listener = vsock::listen(&machine.directory)?;

        let console = Console::create(machine.directory.join("console.log"))
            .map_err(StartError::io("make the console's file"))?;
        let mut launching = Launching {
            holder: Holder::start(&self.confinement).await?,
            console: Arc::new(console),
            programs: Vec::new(),
            tasks: JoinSet::new(),
        };
        launching.tasks.spawn(Listener::Unix(listener).serve(Arc::clone(&expected)));
        launching.vsock_daemon(self, &machine.directory).await?;
        let started = Instant::now();
        launching.qemu(self, &machine, &initrd).await?;

        let Launching { holder, console, programs, tasks } = launching;
        let qmp = Some(machine.directory.join(QMP_SOCKET));
        let parts = Parts { holder, programs, console, tasks, qmp };
        let limit = machine.boot_limit;
        let accelerator = self.accelerator;
        let awaited = Awaited { expected, control, vmm: NAME, accelerator, started, limit };
        let vm = Vm::come_up(parts, awaited).await;
        if matches!(vm, Err(StartError::BootTimeout { .. })) {
            self.boot_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        // QEMU has read it, and the guest has its own copy: the secret need not lie about.
        let _ = fs::remove_file(&initrd);
        vm
    }
}

impl Vmm for Qemu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    fn start(&self, machine: Machine) -> Starting<'_> {
        Box::pin(self.boot(machine))
    }
}

/// A VM whose programs are being started.
struct Launching {
    holder: Holder,
    console: Arc<Console>,
    /// The VMM is put first, whenever it was started.
    programs: Vec<Watched>,
    tasks: JoinSet<()>,
}

impl Launching {
    /// Starts the vsock daemon, and waits until its socket is there.
    async fn vsock_daemon(&mut self, of: &Qemu, directory: &Path) -> Result<(), StartError> {
        let mut places = of.daemon_needs.clone();
        places.extend(["vhost", "host"].map(|name| Place::write(directory.join(name))));
        let program = Program {
            path: of.daemon.clone(),
            args: vsock::arguments(),
            directory: directory.to_owned(),
            view: directory.join("view-vsock"),
            places,
        };
        let daemon = self.launch("vhost-device-vsock", &program, null()?).await?;
        vsock::ready(directory, &daemon).await
    }

    async fn qemu(&mut self, of: &Qemu, machine: &Machine, initrd: &Path) -> Result<(), StartError> {
        let kernel = of.bundle.kernel();
        let boot = Boot {
            accelerator: of.accelerator,
            kernel: &kernel,
            initrd,
            command_line: &of.command_line,
            vsock: VsockDevice::User,
            firmware: &of.firmware,
        };
        let directory = &machine.directory;
        let (read, write) = files(machine, &boot);
        let mut places = of.qemu_needs.clone();
        places.extend(read.into_iter().map(Place::read));
        places.extend(write.into_iter().map(Place::write));
        places.extend(["vhost", "qmp"].map(|name| Place::write(directory.join(name))));
        if of.accelerator == Accelerator::Kvm {
            places.push(Place::device(&of.kvm));
        }
        let program = Program {
            path: of.qemu.clone(),
            args: arguments(machine, &boot),
            directory: directory.clone(),
            view: directory.join("view-qemu"),
            places,
        };
        let (output, console) = pipe()?;
        let log = Arc::clone(&self.console);
        self.tasks.spawn(async move { log.record(console).await });
        self.launch(NAME, &program, output).await?;
        self.programs.rotate_right(1);
        Ok(())
    }

    async fn launch(
        &mut self,
        name: &'static str,
        program: &Program,
        stdout: OwnedFd,
    ) -> Result<Watched, StartError> {
        let (stderr, says) = pipe()?;
        let said = Arc::new(Console::default());
        let log = Arc::clone(&said);
        self.tasks.spawn(async move { log.record(says).await });
        let launched = self.holder.launch(program, stdout, stderr).await?;
        let watched = Watched { name, launched, said };
        self.programs.push(watched.clone());
        Ok(watched)
    }
}

/// What the guest's kernel and agent are told; everybody in the guest may read it.
fn command_line(frequency_khz: Option<u64>) -> String {
    let mut line = format!("console=ttyS0 reboot=t panic=-1 vk.dial=vsock:2:{}", vsock::PORT);
    if let Some(khz) = frequency_khz {
        line.push_str(&format!(" tsc_early_khz={khz}"));
    }
    line
}

fn new_secret() -> Result<Secret, StartError> {
    let mut bytes = [0; SECRET_LEN];
    rand::fill(&mut bytes)
        .map_err(|_| StartError::io("draw a secret")(io::Error::other("no randomness")))?;
    Ok(Secret::take(&mut bytes))
}

/// The VM's directory, and what is in it from the start; nobody else may look in.
fn make_directories(directory: &Path) -> Result<(), StartError> {
    let make = |path: &Path| {
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .map_err(StartError::io(format!("make {}", path.display())))
    };
    make(directory)?;
    for name in ["vhost", "host", "qmp", "view-vsock", "view-qemu"] {
        make(&directory.join(name))?;
    }
    Ok(())
}

/// A pipe from a program to this process.
fn pipe() -> Result<(OwnedFd, pipe::Receiver), StartError> {
    let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| StartError::io("make a pipe")(e.into()))?;
    let from = pipe::Receiver::from_owned_fd(from).map_err(StartError::io("read from a pipe"))?;
    Ok((to, from))
}

fn null() -> Result<OwnedFd, StartError> {
    let null = File::options().write(true).open("/dev/null");
    null.map(Into::into).map_err(StartError::io("open /dev/null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_always_told_the_counters_frequency() {
        let line = command_line(Some(2_596_000));
        assert!(line.contains(" tsc_early_khz=2596000"), "{line}");
        assert!(line.contains("console=ttyS0"), "{line}");
    }

    #[tokio::test]
    async fn a_missing_qemu_is_named_with_its_package() {
        let confinement = Confinement::default();
        let mut settings =
            QemuSettings::new(PathBuf::from("/bundle"), confinement, Accelerator::Tcg);
        settings.qemu = Some(PathBuf::from("/nowhere/qemu-system-x86_64"));
        let error = Qemu::prepare(settings).await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/qemu-system-x86_64 is not installed"), "{error}");
        assert!(error.contains("package qemu-system-x86"), "{error}");
    }

    #[test]
    fn a_directory_of_somebody_elses_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        assert!(make_directories(directory.path()).is_err());
        let own = directory.path().join("vm");
        make_directories(&own).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&own.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
    }
}

