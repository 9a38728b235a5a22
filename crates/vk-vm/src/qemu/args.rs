//! QEMU's command line for one VM. Nothing secret is in it; relative paths are the VM's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::processors::{is_emulated, processors};
use crate::confine::INHERITED;
use crate::machine::{Accelerator, Disk, Machine};

/// The vhost-user socket between QEMU and the vsock daemon.
pub(crate) const VHOST_SOCKET: &str = "vhost/s";
/// QEMU's control socket.
pub(crate) const QMP_SOCKET: &str = "qmp/s";

/// The guest's address on a bridge that nobody else is on.
const MAC: &str = "52:54:00:76:6b:02";

/// How the guest's vsock is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VsockDevice {
    /// By the daemon at the other end of [`VHOST_SOCKET`].
    User,
    /// By the host's kernel, under this number.
    Kernel {
        /// The guest's CID.
        cid: u32,
    },
}

/// What the command line is made from, beside the machine.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    pub(crate) accelerator: Accelerator,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    /// The kernel's command line.
    pub(crate) command_line: &'a str,
    pub(crate) vsock: VsockDevice,
    /// Where the firmware lies.
    pub(crate) firmware: &'a Path,
    /// Whether the descriptor it inherits is the tap of its network.
    pub(crate) network: bool,
}

/// The arguments.
pub(crate) fn arguments(machine: &Machine, boot: &Boot<'_>) -> Vec<OsString> {
    let (accelerator, cpu) = if is_emulated(boot.accelerator) {
        // An emulated string instruction is a loop of a byte a turn. A guest that is not told that they
        // are fast moves words: a tenth of its boot.
        ("tcg", "max,-erms,-fsrm")
    } else {
        ("kvm", "host")
    };
    let memory = format!("{}M", machine.memory >> 20);
    let mut out = Arguments(Vec::new());
    out.flags(&["-no-user-config", "-nodefaults", "-nographic", "-no-reboot"]);
    out.option("-L", boot.firmware);
    out.option("-sandbox", SANDBOX);
    out.option(
        "-M",
        format!("microvm,accel={accelerator},memory-backend=mem"),
    );
    // Shared, for the vsock daemon reads and writes the guest's queues in it.
    out.option(
        "-object",
        format!("memory-backend-memfd,id=mem,size={memory},share=on"),
    );
    out.option("-m", &memory);
    out.option("-cpu", cpu);
    out.option("-smp", processors(machine.cpus, boot.accelerator));
    out.option("-kernel", boot.kernel);
    out.option("-initrd", boot.initrd);
    out.option("-append", boot.command_line);
    // The console is QEMU's stdout: whoever reads it bounds it.
    out.option("-chardev", "stdio,id=console,signal=off,mux=off");
    out.option("-serial", "chardev:console");
    out.option(
        "-chardev",
        format!("socket,id=qmp,path={QMP_SOCKET},server=on,wait=off"),
    );
    out.option("-mon", "chardev=qmp,mode=control");
    match boot.vsock {
        VsockDevice::User => {
            out.option("-chardev", format!("socket,id=vsock,path={VHOST_SOCKET}"));
            out.option("-device", "vhost-user-vsock-device,chardev=vsock");
        }
        VsockDevice::Kernel { cid } => {
            out.option("-device", format!("vhost-vsock-device,guest-cid={cid}"));
        }
    }
    if boot.network {
        out.option("-netdev", format!("tap,id=net,fd={INHERITED}"));
        out.option("-device", format!("virtio-net-device,netdev=net,mac={MAC}"));
    }
    for (number, disk) in machine.disks.iter().enumerate() {
        out.disk(number, disk);
    }
    out.0
}

/// Old system calls, other users' rights, other programs, and scheduling: all denied for good.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

struct Arguments(Vec<OsString>);

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn option(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.extend([OsString::from(name), value.into()]);
    }

    /// A file, the raw image in it and the device; as JSON, for a path may hold commas.
    fn disk(&mut self, number: usize, disk: &Disk) {
        let read_only = !disk.writable;
        let file = json!({
            "driver": "file",
            "node-name": format!("file{number}"),
            "filename": disk.path.to_string_lossy(),
            "read-only": read_only,
            "discard": "unmap",
            // What the guest flushes need not reach the host's disk: it does not outlive the job.
            "cache": { "no-flush": disk.writable },
        });
        let image = json!({
            "driver": "raw",
            "node-name": format!("disk{number}"),
            "file": format!("file{number}"),
            "read-only": read_only,
            "discard": "unmap",
        });
        self.option("-blockdev", file.to_string());
        self.option("-blockdev", image.to_string());
        self.option(
            "-device",
            format!("virtio-blk-device,drive=disk{number},serial={}", disk.role),
        );
    }
}

/// Everything of a VM that QEMU must see, beside itself.
pub(crate) fn files(machine: &Machine, boot: &Boot<'_>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (writable, readable): (Vec<_>, Vec<_>) =
        machine.disks.iter().partition(|disk| disk.writable);
    let path = |disk: &Disk| disk.path.clone();
    let mut read: Vec<_> = readable.into_iter().map(path).collect();
    read.extend([boot.kernel, boot.initrd, boot.firmware].map(Path::to_owned));
    (read, writable.into_iter().map(path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::machine;

    fn boot(accelerator: Accelerator) -> Boot<'static> {
        Boot {
            accelerator,
            kernel: Path::new("/b/kernel"),
            initrd: Path::new("/run/vm/initrd"),
            command_line: "console=ttyS0 tsc_early_khz=2600000",
            vsock: VsockDevice::User,
            firmware: Path::new("/usr/share/qemu"),
            network: false,
        }
    }

    fn line(accelerator: Accelerator) -> String {
        let arguments = arguments(&machine(), &boot(accelerator));
        arguments
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_sandbox_denies_everything_and_no_configuration_is_read() {
        let line = line(Accelerator::Tcg);
        for part in [
            "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
            "-no-user-config",
            "-nodefaults",
            "-no-reboot",
            "accel=tcg,",
        ] {
            assert!(line.contains(part), "no {part:?} in {line}");
        }
        assert!(self::line(Accelerator::Kvm).contains("accel=kvm,"));
    }

    #[test]
    fn a_machine_has_the_processors_it_is_to_have() {
        let one = Machine {
            cpus: 1,
            ..machine()
        };
        let smp = |machine: &Machine| {
            let line = arguments(machine, &boot(Accelerator::Tcg));
            let at = line.iter().position(|word| word == "-smp").unwrap();
            line[at + 1].clone()
        };
        let with_room = "1,maxcpus=2,sockets=2,cores=1,threads=1";
        assert_eq!([smp(&one), smp(&machine())], [with_room, "2"]);
    }

    #[test]
    fn a_path_with_a_comma_stays_one_value_and_only_the_scratch_disk_is_written() {
        let line = line(Accelerator::Tcg);
        assert!(line.contains(r#""filename":"/disks/image,v=1""#), "{line}");
        let of = |role: &str| {
            let values: Vec<_> = line.split(" -").collect();
            let at = values
                .iter()
                .position(|v| v.contains(&format!("serial={role}")))
                .unwrap();
            [
                values[at - 2].contains(r#""read-only":true"#),
                values[at - 1].contains(r#""read-only":true"#),
            ]
        };
        assert_eq!(of("image"), [true, true]);
        assert_eq!(of("scratch"), [false, false]);
        let (read, write) = files(&machine(), &boot(Accelerator::Tcg));
        assert_eq!(write, [PathBuf::from("/disks/scratch,v=1")]);
        assert!(read.contains(&PathBuf::from("/disks/image,v=1")));
    }
}
