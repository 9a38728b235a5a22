//! What a VM is asked to be, and what every VMM offers.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use crate::start_error::StartError;
use crate::vm::Vm;

/// Longest serial a virtio disk has.
pub const ROLE_MAX: usize = 20;
/// Most disks of one VM; the machine has room for few more devices.
pub const DISKS_MAX: usize = 16;
/// Least memory a guest boots with.
pub const MEMORY_MIN: u64 = 128 << 20;
/// Most processors of one VM.
pub const CPUS_MAX: u32 = 255;

/// One virtual machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// A directory for this VM alone, made here (0700); sockets, console and initramfs lie in it.
    /// Whoever asked for the VM removes it after its end.
    pub directory: PathBuf,
    /// Virtual processors.
    pub cpus: u32,
    /// The guest's memory in bytes; a multiple of 1 MiB.
    pub memory: u64,
    /// Its disks, in this order.
    pub disks: Vec<Disk>,
    /// From the VMM's start to the agent's hello; then the VM is killed.
    pub boot_limit: Duration,
}

/// A raw disk image.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The disk's serial, by which the guest finds it: letters, digits and `-`, at most 20.
    pub role: String,
    /// The image's file; its size is a multiple of 512.
    pub path: PathBuf,
    /// Whether the guest may write: then it holds an ext4 of this machine alone, else an EROFS that
    /// others may use at the same time.
    pub writable: bool,
}

/// What executes a guest's instructions.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself, through KVM.
    Kvm,
    /// QEMU, instruction by instruction: many times slower.
    Tcg,
    /// The host's kernel runs the job as a process; there is no machine.
    Host,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
            Self::Host => "host",
        })
    }
}

/// A future that a trait's method can give.
pub type Starting<'a> = Pin<Box<dyn Future<Output = Result<Vm, StartError>> + Send + 'a>>;

/// Something that can start VMs.
pub trait Vmm: fmt::Debug + Send + Sync {
    /// Its name, as shown: `qemu`.
    fn name(&self) -> &'static str;

    /// What its guests run on.
    fn accelerator(&self) -> Accelerator;

    /// A VM will be started soon: begins what it needs that depends on nothing of it. Nothing where
    /// there is no such thing.
    fn anticipate(&self) {}

    /// Starts a VM and waits for its agent's hello.
    ///
    /// Every process of it dies with this one, however that ends. On an error nothing is left but
    /// the machine's directory.
    fn start(&self, machine: Machine) -> Starting<'_>;
}

impl Machine {
    /// What is wrong with it, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.directory.is_absolute() {
            return Err(format!(
                "its directory {} is not absolute",
                self.directory.display()
            ));
        }
        if self.cpus == 0 || self.cpus > CPUS_MAX {
            return Err(format!(
                "{} processors; 1 to {CPUS_MAX} are possible",
                self.cpus
            ));
        }
        if self.memory < MEMORY_MIN || !self.memory.is_multiple_of(1 << 20) {
            let least = MEMORY_MIN >> 20;
            return Err(format!(
                "{} bytes of memory; at least {least} MiB, in whole MiB",
                self.memory
            ));
        }
        if self.disks.len() > DISKS_MAX {
            return Err(format!("{} disks; at most {DISKS_MAX}", self.disks.len()));
        }
        for (at, disk) in self.disks.iter().enumerate() {
            disk.check()?;
            if self
                .disks
                .iter()
                .take(at)
                .any(|other| other.role == disk.role)
            {
                return Err(format!("two disks are called {}", disk.role));
            }
        }
        Ok(())
    }
}

impl Disk {
    fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.role.is_empty() || self.role.len() > ROLE_MAX || !self.role.chars().all(plain) {
            return Err(format!("{:?} is no name for a disk", self.role));
        }
        if !self.path.is_absolute() || self.path.to_str().is_none() {
            return Err(format!(
                "the path of disk {} is not absolute, or not UTF-8",
                self.role
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn machine() -> Machine {
    let disk = |role: &str, writable| Disk {
        role: role.to_owned(),
        path: PathBuf::from(format!("/disks/{role},v=1")),
        writable,
    };
    Machine {
        directory: PathBuf::from("/run/vm"),
        cpus: 2,
        memory: 512 << 20,
        disks: vec![disk("image", false), disk("scratch", true)],
        boot_limit: Duration::from_secs(60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_be_is_refused() {
        assert_eq!(machine().check(), Ok(()));
        let broken: [fn(&mut Machine); 9] = [
            |of| of.directory = PathBuf::from("vm"),
            |of| of.cpus = 0,
            |of| of.cpus = 256,
            |of| of.memory = MEMORY_MIN - 1,
            |of| of.memory += 1,
            |of| of.disks[1].role = "image".to_owned(),
            |of| of.disks[0].role = "an,image".to_owned(),
            |of| of.disks[0].role = "x".repeat(21),
            |of| of.disks[0].path = PathBuf::from("disk"),
        ];
        for (number, damage) in broken.iter().enumerate() {
            let mut machine = machine();
            damage(&mut machine);
            assert!(machine.check().is_err(), "case {number}");
        }
    }
}
