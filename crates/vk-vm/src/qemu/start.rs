use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use vk_guest_proto::{DiskFormat, Secret, Volume};
use vk_net::Plan;

use super::args::{Boot, QMP_SOCKET, VsockDevice, arguments, files};
use super::processors::is_emulated;
use super::settings::{QemuSettings, Tool, Tools};
use crate::bundle::{Bundle, write_initrd};
use crate::confine::{Anticipated, Confines, Exit, Place, Program};
use crate::death::{Cause, Death};
use crate::launching::{Channel, Launching, make_directories, new_secret};
use crate::machine::{Accelerator, Disk, Machine, Starting, Vmm};
use crate::network::Keeper;
use crate::start_error::StartError;
use crate::vm::{Awaited, Vm};
use crate::vsock::{Arrival, KERNEL_DEVICE, Vsock};
use crate::{tsc, vsock};

const NAME: &str = "qemu";

/// QEMU, ready to start VMs.
#[derive(Debug)]
pub struct Qemu {
    settings: QemuSettings,
    bundle: Bundle,
    tools: Tools,
    vsock: Vsock,
    holders: Anticipated,
    boot_timeouts: AtomicU64,
}

impl Qemu {
    /// Finds the programs and what they need, opens the bundle, begins to measure the time stamp counter.
    ///
    /// # Errors
    /// [`StartError::NoProgram`], [`StartError::NoFirmware`], [`StartError::Bundle`],
    /// [`StartError::Confine`].
    pub async fn prepare(settings: QemuSettings) -> Result<Self, StartError> {
        let vsock = settings.vsock.settle();
        // It is awaited where it is needed: when the rest of a VM is ready.
        tokio::task::spawn_blocking(tsc::frequency_khz);
        let tools = Tools::find(&settings, vsock).await?;
        let bundle = Bundle::open(&settings.bundle)?;
        let boot_timeouts = AtomicU64::new(0);
        Ok(Self {
            settings,
            bundle,
            tools,
            vsock,
            holders: Anticipated::default(),
            boot_timeouts,
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
        let (initrd, secret) = self.make_initrd(&machine)?;
        let vm = self.boot_from(&machine, &initrd, secret).await;
        // Whoever was to read it has: the secret need not lie about.
        let _ = fs::remove_file(&initrd);
        if matches!(vm, Err(StartError::BootTimeout { .. })) {
            self.boot_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        vm
    }

    /// Makes the VM's directory, and in it its initramfs with a new secret.
    fn make_initrd(&self, machine: &Machine) -> Result<(PathBuf, Secret), StartError> {
        machine.check().map_err(StartError::Machine)?;
        for disk in &machine.disks {
            fs::metadata(&disk.path).map_err(StartError::io(format!(
                "use the disk {}",
                disk.path.display()
            )))?;
        }
        let directory = &machine.directory;
        make_directories(
            directory,
            &["vhost", "host", "qmp", "view-vsock", "view-qemu"],
        )?;
        let secret = new_secret()?;
        let initrd = directory.join("initrd");
        write_initrd(&self.bundle, &secret, &initrd)?;
        Ok((initrd, secret))
    }

    async fn boot_from(
        &self,
        machine: &Machine,
        initrd: &Path,
        secret: Secret,
    ) -> Result<Vm, StartError> {
        let directory = &machine.directory;
        let started = self.launch(machine, initrd, secret, Purpose::Job).await?;
        let Started {
            launching,
            channel,
            at: started,
            keeper,
        } = started;
        let awaited = Awaited {
            channel,
            vmm: NAME,
            accelerator: self.settings.accelerator,
            started,
            limit: machine.boot_limit,
            volumes: machine.disks.iter().map(volume).collect(),
            qmp: Some(directory.join(QMP_SOCKET)),
        };
        let vm = Vm::come_up(launching, awaited).await?;
        if let Some(keeper) = keeper
            && let Err(error) = keeper.ready().await
        {
            vm.stop(Duration::ZERO).await;
            return Err(error);
        }
        Ok(vm)
    }

    /// Boots the machine with an init that powers off at once; from QEMU's start to its exit.
    ///
    /// The same kernel, devices and walls as any VM's: the floor that a job's start is measured
    /// against.
    ///
    /// # Errors
    /// As [`Vmm::start`]; [`StartError::Died`] where QEMU exits with an error.
    pub async fn bare_boot(&self, machine: &Machine) -> Result<Duration, StartError> {
        let (initrd, secret) = self.make_initrd(machine)?;
        let started = self.launch(machine, &initrd, secret, Purpose::Bare).await?;
        let Started {
            launching,
            channel: _channel,
            at: started,
            ..
        } = started;
        let ended = match launching.programs.first() {
            Some(vmm) => timeout(machine.boot_limit, vmm.launched.exit()).await,
            None => Ok(Exit::WithHolder),
        };
        let took = started.elapsed();
        let _ = fs::remove_file(&initrd);
        let console = launching.console.tail();
        launching.holder.end().await?;
        match ended {
            Ok(Exit::Code(0)) => Ok(took),
            Ok(exit) => {
                let exit = exit.to_string();
                let cause = Cause::Program {
                    name: NAME,
                    exit,
                    said: String::new(),
                };
                Err(StartError::Died(Arc::new(Death {
                    cause,
                    out_of_memory: false,
                    console,
                })))
            }
            Err(_) => Err(StartError::BootTimeout {
                limit: machine.boot_limit,
                console,
            }),
        }
    }

    /// Starts the machine's programs.
    async fn launch(
        &self,
        machine: &Machine,
        initrd: &Path,
        secret: Secret,
        purpose: Purpose,
    ) -> Result<Started, StartError> {
        let directory = &machine.directory;
        let Arrival {
            listener,
            device,
            port,
        } = vsock::listen(self.vsock, directory)?;
        let walls = &self.settings.confinement;
        let holder = self.holders.take(walls).await?;
        let (mut launching, channel) = Launching::begin(holder, directory, listener, secret)?;
        if let Some(daemon) = &self.tools.daemon {
            let program = daemon_in(daemon, directory);
            let daemon = launching.launch("vhost-device-vsock", &program).await?;
            vsock::ready(directory, &daemon).await?;
        }
        let mut line = command_line(
            port,
            self.settings.accelerator,
            machine.cpus,
            frequency().await,
        );
        let (mut tap, mut keeper) = (None, None);
        match (purpose, &self.tools.network) {
            (Purpose::Bare, _) => line.push_str(" vk.action=poweroff"),
            (Purpose::Job, None) => {}
            (Purpose::Job, Some(needs)) => {
                let connected = Keeper::start(&mut launching, walls, needs, directory).await?;
                line.push_str(&interface(&connected.plan));
                (tap, keeper) = (Some(connected.tap), Some(connected.keeper));
            }
        }
        let at = Instant::now();
        let program = self.program(machine, initrd, device, &line, tap.is_some());
        launching.launch_vmm(NAME, &program, tap).await?;
        Ok(Started {
            launching,
            channel,
            at,
            keeper,
        })
    }

    /// QEMU for one machine, with everything it may see.
    fn program(
        &self,
        machine: &Machine,
        initrd: &Path,
        vsock: VsockDevice,
        command_line: &str,
        network: bool,
    ) -> Program {
        let kernel = self.bundle.kernel();
        let boot = Boot {
            accelerator: self.settings.accelerator,
            kernel: &kernel,
            initrd,
            command_line,
            vsock,
            firmware: &self.tools.firmware,
            network,
        };
        let directory = &machine.directory;
        let Tool { path, needs } = &self.tools.qemu;
        let (read, write) = files(machine, &boot);
        let mut places = needs.clone();
        places.extend(read.into_iter().map(Place::read));
        places.extend(write.into_iter().map(Place::write));
        places.push(Place::write(directory.join("qmp")));
        places.push(match vsock {
            VsockDevice::User => Place::write(directory.join("vhost")),
            VsockDevice::Kernel { .. } => Place::device(KERNEL_DEVICE),
        });
        if self.settings.accelerator == Accelerator::Kvm {
            places.push(Place::device(&self.settings.kvm));
        }
        Program {
            path: path.clone(),
            args: arguments(machine, &boot),
            directory: directory.clone(),
            confines: Confines::View {
                at: directory.join("view-qemu"),
                places,
            },
            inherits: network,
        }
    }
}

/// The time stamp counter's, in kHz, as measured since [`Qemu::prepare`].
async fn frequency() -> Option<u64> {
    let measured = tokio::task::spawn_blocking(tsc::frequency_khz).await;
    let frequency = measured.ok().flatten();
    if frequency.is_none() {
        tracing::warn!("the time stamp counter ticks implausibly: guests may hang at boot");
    }
    frequency
}

/// What a machine is started for.
#[derive(Clone, Copy)]
enum Purpose {
    /// To serve.
    Job,
    /// To power off at once.
    Bare,
}

/// A machine's programs.
struct Started {
    launching: Launching,
    channel: Channel,
    /// When QEMU was started.
    at: Instant,
    /// Of its network, where it has one.
    keeper: Option<Keeper>,
}

impl Vmm for Qemu {
    fn name(&self) -> &'static str {
        NAME
    }

    fn accelerator(&self) -> Accelerator {
        self.settings.accelerator
    }

    fn anticipate(&self) {
        self.holders.begin(&self.settings.confinement);
    }

    fn start(&self, machine: Machine) -> Starting<'_> {
        Box::pin(self.boot(machine))
    }
}

/// The vsock daemon of the VM in `directory`.
fn daemon_in(daemon: &Tool, directory: &Path) -> Program {
    let mut places = daemon.needs.clone();
    places.extend(["vhost", "host"].map(|name| Place::write(directory.join(name))));
    Program {
        path: daemon.path.clone(),
        args: vsock::arguments(),
        directory: directory.to_owned(),
        confines: Confines::View {
            at: directory.join("view-vsock"),
            places,
        },
        inherits: false,
    }
}

/// What the guest's kernel and agent are told; everybody in the guest may read it.
fn command_line(
    port: u32,
    accelerator: Accelerator,
    cpus: u32,
    frequency_khz: Option<u64>,
) -> String {
    // Tests of the kernel's ciphers are a fifth of a boot under TCG, and no guest's business. A
    // command's start waits for the kernel's read-copy-update, which need not take its time.
    let mut line = format!(
        "console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests=1 rcupdate.rcu_expedited=1 \
         vk.dial=vsock:2:{port}"
    );
    if is_emulated(accelerator) {
        // Each place that is patched for one processor costs a translation. Memory that the kernel clears
        // before it uses it guards a guest's users from one another, and a job is alone. A processor that
        // could be added never is, and no program is to count it.
        line.push_str(&format!(" noreplace-smp init_on_alloc=0 nr_cpus={cpus}"));
    }
    if let Some(khz) = frequency_khz {
        // Reliable: on a busy host the guest's timer interrupts come late, and the kernel would take
        // that for a fault of the counter and go on with a clock that loses time.
        line.push_str(&format!(" tsc_early_khz={khz} tsc=reliable"));
    }
    line
}

/// What the guest's agent is told of its network.
fn interface(plan: &Plan) -> String {
    let (guest, length, bridge) = (plan.guest, plan.prefix_len, plan.bridge);
    format!(" vk.net={guest}/{length},{bridge}")
}

/// How the guest finds a disk.
fn volume(disk: &Disk) -> (String, Volume) {
    let format = if disk.writable {
        DiskFormat::Ext4
    } else {
        DiskFormat::Erofs
    };
    (
        disk.role.clone(),
        Volume::Disk {
            serial: disk.role.clone().into_bytes(),
            format,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_always_told_the_counters_frequency() {
        let line = command_line(1024, Accelerator::Tcg, 2, Some(2_596_000));
        assert!(
            line.contains(" tsc_early_khz=2596000 tsc=reliable"),
            "{line}"
        );
        assert!(line.contains("console=ttyS0"), "{line}");
        assert!(line.contains("vk.dial=vsock:2:1024"), "{line}");
    }

    #[test]
    fn an_emulated_kernel_is_told_that_there_will_be_no_more_processors() {
        let line = command_line(1024, Accelerator::Tcg, 2, None);
        assert!(line.contains(" nr_cpus=2"), "{line}");
        let line = command_line(1024, Accelerator::Kvm, 2, None);
        assert!(!line.contains("nr_cpus"), "{line}");
    }
}
