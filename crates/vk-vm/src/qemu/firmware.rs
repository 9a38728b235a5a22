use std::path::{Path, PathBuf};

use crate::start_error::StartError;

/// The firmware of the microvm machine.
const MICROVM: &str = "bios-microvm.bin";
/// Accelerators are loaded by QEMU as modules from these directories, where they are modules.
const ACCELERATOR: &str = "accel-tcg-x86_64.so";

/// The directory that holds the firmware, for a QEMU installed at `program`.
pub(super) fn directory(program: &Path) -> Result<PathBuf, StartError> {
    let prefix = program
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/usr"));
    let prefixes = [prefix, Path::new("/usr")];
    let names = ["share/qemu", "share/qemu-kvm"];
    let candidates: Vec<_> = prefixes
        .iter()
        .flat_map(|of| names.map(|name| of.join(name)))
        .collect();
    let found = candidates
        .iter()
        .find(|of| of.join(MICROVM).exists())
        .cloned();
    found.ok_or(StartError::NoFirmware(candidates))
}

/// The modules of `program` that a microvm may load: the instruction translator.
pub(super) fn modules(program: &Path) -> Vec<PathBuf> {
    let prefix = program
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/usr"));
    [
        "lib/x86_64-linux-gnu/qemu",
        "lib64/qemu",
        "lib64/qemu-kvm",
        "lib/qemu",
    ]
    .map(|directory| prefix.join(directory).join(ACCELERATOR))
    .into_iter()
    .filter(|module| module.exists())
    .collect()
}
