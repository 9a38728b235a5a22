//! Whether KVM really works here, found out by booting under it.
//!
//! That `/dev/kvm` exists and opens proves nothing: there are hosts where a guest then hangs for
//! ever. A guest is booted under a time limit, once for a guest kernel, processor, host kernel and
//! QEMU; the answer is remembered in a file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::machine::{Accelerator, MEMORY_MIN, Machine};
use crate::qemu::{Qemu, QemuSettings};
use crate::start_error::StartError;

/// A boot under a KVM that works takes well under a second; a busy host is allowed for.
pub const PROBE_LIMIT: Duration = Duration::from_secs(10);
/// How long the guest of a probe may take to power off; it is killed then, and that is no matter.
const POWER_OFF: Duration = Duration::from_secs(2);
/// Answers remembered; older ones are forgotten.
const REMEMBERED_MAX: usize = 32;
/// No memory of probes is larger.
const MEMORY_FILE_MAX: u64 = 1 << 20;

/// What was found out about KVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kvm {
    /// A guest booted under it.
    Works {
        /// From QEMU's start to the agent's hello, in milliseconds.
        boot_ms: u64,
    },
    /// There is no device.
    Absent,
    /// This user may not open the device.
    Denied,
    /// A guest under it showed no sign of life within the limit.
    Hangs {
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// QEMU gave up under it.
    Fails {
        /// What it said.
        why: String,
    },
}

impl Kvm {
    /// What guests run on, given this.
    #[must_use]
    pub fn accelerator(&self) -> Accelerator {
        match self {
            Self::Works { .. } => Accelerator::Kvm,
            _ => Accelerator::Tcg,
        }
    }

    /// The one line an operator is told when guests run without KVM: why, and what to do.
    #[must_use]
    pub fn warning(&self, device: &Path) -> Option<String> {
        let device = device.display();
        let why = match self {
            Self::Works { .. } => return None,
            Self::Absent => format!(
                "{device} does not exist: switch on virtualisation in the firmware, \
                 load kvm_intel or kvm_amd, or use a host that offers nested virtualisation"
            ),
            Self::Denied => format!(
                "this user may not open {device}: add it to the group that owns the device \
                 (usually kvm)"
            ),
            Self::Hangs { limit_ms } => format!(
                "a guest under {device} showed no sign of life within {limit_ms} ms: \
                 this host's KVM does not run stock kernels"
            ),
            Self::Fails { why } => format!("QEMU fails under {device}: {why}"),
        };
        Some(format!("VMs run without KVM, many times slower; {why}"))
    }
}

/// What an answer holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Circumstances {
    guest_kernel: String,
    host_kernel: String,
    processor: String,
    qemu: PathBuf,
    qemu_size: u64,
    qemu_changed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    on: Circumstances,
    kvm: Kvm,
}

/// Finds out about KVM: from the file `memory` if these circumstances are known, else by a boot of
/// at most `limit` in a directory made below `directory`.
///
/// # Errors
/// [`StartError`] when no guest at all can be started, KVM or not. That the answer cannot be
/// remembered is no error.
pub async fn probe(
    settings: &QemuSettings,
    memory: &Path,
    directory: &Path,
    limit: Duration,
) -> Result<Kvm, StartError> {
    if let Some(known_at_once) = look_at_device(&settings.kvm) {
        return Ok(known_at_once);
    }
    let on = circumstances(settings)?;
    let mut remembered = recall(memory);
    if let Some(known) = remembered.iter().find(|known| known.on == on) {
        return Ok(known.kvm.clone());
    }
    let kvm = boot(settings, directory, limit).await?;
    remembered.insert(
        0,
        Remembered {
            on,
            kvm: kvm.clone(),
        },
    );
    remembered.truncate(REMEMBERED_MAX);
    if let Err(error) = remember(memory, &remembered) {
        let file = memory.display();
        tracing::warn!(%error, %file, "cannot remember whether KVM works: each start finds it out");
    }
    Ok(kvm)
}

/// What opening the device says; nothing, when it opens.
fn look_at_device(device: &Path) -> Option<Kvm> {
    let opened = File::options().read(true).write(true).open(device);
    match opened.map_err(|e| e.kind()) {
        Ok(_) => None,
        Err(io::ErrorKind::PermissionDenied) => Some(Kvm::Denied),
        Err(_) => Some(Kvm::Absent),
    }
}

async fn boot(
    settings: &QemuSettings,
    directory: &Path,
    limit: Duration,
) -> Result<Kvm, StartError> {
    let settings = QemuSettings {
        accelerator: Accelerator::Kvm,
        ..settings.clone()
    };
    let qemu = Qemu::prepare(settings).await?;
    let parent = tempfile::Builder::new()
        .prefix("vk-probe-")
        .tempdir_in(directory)
        .map_err(StartError::io(format!(
            "make a directory in {}",
            directory.display()
        )))?;
    let machine = Machine {
        directory: parent.path().join("vm"),
        cpus: 1,
        memory: MEMORY_MIN,
        disks: Vec::new(),
        boot_limit: limit,
    };
    match qemu.boot(machine).await {
        Ok(vm) => {
            let boot_ms = u64::try_from(vm.boot().to_hello.as_millis()).unwrap_or(u64::MAX);
            vm.stop(POWER_OFF).await;
            Ok(Kvm::Works { boot_ms })
        }
        Err(StartError::BootTimeout { limit, .. }) => {
            let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            Ok(Kvm::Hangs { limit_ms })
        }
        Err(StartError::Died(death)) => Ok(Kvm::Fails {
            why: death.to_string(),
        }),
        Err(other) => Err(other),
    }
}

fn circumstances(settings: &QemuSettings) -> Result<Circumstances, StartError> {
    let bundle = Bundle::open(&settings.bundle)?;
    let qemu = settings.find_qemu()?;
    let file =
        fs::metadata(&qemu).map_err(StartError::io(format!("look at {}", qemu.display())))?;
    let changed = file
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let manifest = bundle.manifest();
    Ok(Circumstances {
        guest_kernel: format!("{} {}", manifest.kernel_release, manifest.kernel.sha256),
        host_kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        processor: processor(),
        qemu,
        qemu_size: file.len(),
        qemu_changed: changed.map_or(0, |at| at.as_secs()),
    })
}

/// The processor's name; all of a host's processors are alike for this.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    line.map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']))
        .to_owned()
}

/// A memory that cannot be read is no memory.
fn recall(memory: &Path) -> Vec<Remembered> {
    let small = fs::metadata(memory).is_ok_and(|file| file.len() <= MEMORY_FILE_MAX);
    let text = if small {
        fs::read(memory).unwrap_or_default()
    } else {
        Vec::new()
    };
    serde_json::from_slice(&text).unwrap_or_default()
}

fn remember(memory: &Path, remembered: &[Remembered]) -> io::Result<()> {
    let parent = memory.parent().filter(|of| !of.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let mut new = tempfile::NamedTempFile::new_in(parent)?;
    serde_json::to_writer_pretty(&mut new, remembered)?;
    new.persist(memory)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(qemu: &str) -> Circumstances {
        Circumstances {
            guest_kernel: "6.1 ab".to_owned(),
            host_kernel: "6.18".to_owned(),
            processor: processor(),
            qemu: PathBuf::from(qemu),
            qemu_size: 1,
            qemu_changed: 2,
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_told_from_one_that_may_not_be_opened() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("kvm");
        assert_eq!(look_at_device(&device), Some(Kvm::Absent));
        fs::write(&device, "").unwrap();
        assert_eq!(look_at_device(&device), None);
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        fs::set_permissions(&device, readable).unwrap();
        // Root may open what it likes.
        if !rustix::process::geteuid().is_root() {
            assert_eq!(look_at_device(&device), Some(Kvm::Denied));
        }
    }

    #[test]
    fn answers_are_remembered_for_their_circumstances_and_garbage_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let memory = directory.path().join("state/kvm.json");
        assert!(recall(&memory).is_empty());
        let kvm = Kvm::Hangs { limit_ms: 10_000 };
        remember(
            &memory,
            &[Remembered {
                on: on("/usr/bin/qemu"),
                kvm: kvm.clone(),
            }],
        )
        .unwrap();
        let recalled = recall(&memory);
        assert_eq!(
            (&recalled[0].on, &recalled[0].kvm),
            (&on("/usr/bin/qemu"), &kvm)
        );
        assert_ne!(recalled[0].on, on("/opt/qemu"));
        fs::write(&memory, "[{").unwrap();
        assert!(recall(&memory).is_empty());
    }

    #[test]
    fn each_way_of_not_working_has_its_own_remedy() {
        let device = Path::new("/dev/kvm");
        assert_eq!(Kvm::Works { boot_ms: 300 }.warning(device), None);
        let said = |kvm: Kvm| kvm.warning(device).unwrap();
        assert!(said(Kvm::Denied).contains("group"));
        assert!(said(Kvm::Absent).contains("does not exist"));
        assert!(said(Kvm::Hangs { limit_ms: 9 }).contains("within 9 ms"));
        assert!(
            said(Kvm::Fails {
                why: "MSR".to_owned()
            })
            .contains("MSR")
        );
    }
}
