//! A guest on a small image, for tests with real VMs.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vk_erofs::{Builder, Options, Whiteouts};
use vk_guest_proto::{DiskFormat, EnvVar, Exec, MountRoot, Stdin, Volume};
use vk_vm::disk::create_scratch;
use vk_vm::qemu::{Qemu, QemuSettings};
use vk_vm::{Accelerator, Disk, Machine, Vm, Vmm};

use super::confinement;

/// A boot under TCG on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(90);
/// A command that does nothing long.
pub(crate) const COMMAND: Duration = Duration::from_secs(60);

/// Settings for the programs of the test root.
pub(crate) fn settings(root: &Path) -> QemuSettings {
    let bundle = root.join("guest");
    let mut settings = QemuSettings::new(bundle, confinement(root), Accelerator::Tcg);
    settings.vsock_daemon = Some(root.join("bin/vhost-device-vsock"));
    settings
}

/// A machine without disks, in a directory of this name.
pub(crate) fn bare(directory: &Path, name: &str) -> Machine {
    Machine {
        directory: directory.join(name),
        cpus: 1,
        memory: 256 << 20,
        disks: Vec::new(),
        boot_limit: BOOT,
    }
}

/// A running guest with a busybox root, and the directory of its files.
pub(crate) async fn with_root(root: &Path, directory: &Path) -> Vm {
    with_settings(root, directory, settings(root)).await
}

/// As [`with_root`], by a QEMU of these settings.
pub(crate) async fn with_settings(root: &Path, directory: &Path, settings: QemuSettings) -> Vm {
    let image = directory.join("image.erofs");
    busybox(root, &image);
    let scratch = directory.join("scratch");
    create_scratch(&scratch, 1 << 30).await.unwrap();
    let disk = |role: &str, path: PathBuf, writable| Disk {
        role: role.to_owned(),
        path,
        writable,
    };
    let mut machine = bare(directory, "vm");
    machine.disks = vec![disk("image", image, false), disk("scratch", scratch, true)];
    let qemu = Qemu::prepare(settings).await.unwrap();
    let vm = qemu.start(machine).await.unwrap();
    vm.guest().mount_root(root_plan()).await.unwrap();
    vm
}

fn root_plan() -> MountRoot {
    let disk = |serial: &str, format| Volume::Disk {
        serial: serial.into(),
        format,
    };
    MountRoot {
        image: disk("image", DiskFormat::Erofs),
        writable: disk("scratch", DiskFormat::Ext4),
    }
}

pub(crate) fn busybox(root: &Path, image: &Path) {
    let tar = BufReader::new(File::open(root.join("images/busybox.tar")).unwrap());
    let mut builder = Builder::new(File::create(image).unwrap(), Options::default());
    builder.layer(tar, Whiteouts::Literal).unwrap();
    builder.finish().unwrap();
    assert!(fs::metadata(image).unwrap().len() > 1 << 20);
}

/// A shell script to run in the guest.
pub(crate) fn shell(script: &str) -> Exec {
    let path = EnvVar {
        name: b"PATH".to_vec(),
        value: b"/bin:/usr/bin".to_vec().into(),
    };
    Exec {
        argv: ["/bin/sh", "-c", script]
            .map(|of| of.as_bytes().into())
            .to_vec(),
        env: vec![path],
        cwd: b"/".to_vec(),
        directories: Vec::new(),
        user: Vec::new(),
        umask: 0o022,
        stdin: Stdin::Null,
        merge_output: true,
        kill_leftovers: true,
        drain_ms: 1000,
    }
}

/// Runs a script; its exit code and output.
pub(crate) async fn run(vm: &Vm, script: &str) -> (i32, String) {
    let ran = vm
        .guest()
        .run(shell(script), b"", 1 << 20, COMMAND)
        .await
        .unwrap();
    (
        ran.end.status.shell_code(),
        String::from_utf8(ran.stdout).unwrap(),
    )
}
