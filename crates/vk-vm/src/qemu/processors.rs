//! How many processors a machine has, and could have.

use crate::machine::Accelerator;

/// The value of QEMU's `-smp`.
///
/// For a machine that can have one processor only, QEMU's emulator leaves the guest's memory barriers
/// out, as if nobody else looked at the guest's memory; but its devices do, on threads of their own, and
/// the vsock daemon does. Without them a guest may miss that its request is done, or a device that there
/// is one, and each waits for the other for good (decision 0023). A machine that could have a second
/// processor has its barriers.
pub(super) fn processors(cpus: u32, accelerator: Accelerator) -> String {
    match (cpus, accelerator) {
        (1, Accelerator::Tcg | Accelerator::Host) => "1,maxcpus=2".to_owned(),
        (cpus, _) => cpus.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// Where the kernel below is put.
    const ENTRY: u32 = 0x10_0000;
    /// `mov $0x110000, %esp`, then the two barriers, `mfence` and `lock addl $0, (%esp)`, and `ud2`:
    /// without anybody to take the fault the machine resets, and QEMU ends.
    const CODE: [u8; 16] = [
        0xbc, 0, 0, 0x11, 0, 0x0f, 0xae, 0xf0, 0xf0, 0x83, 0x04, 0x24, 0, 0x0f, 0x0b, 0x90,
    ];

    /// A kernel of a few instructions: an ELF file that says where it is to be entered (PVH).
    fn kernel() -> Vec<u8> {
        let (headers, length) = (0x34 + 2 * 32, u32::try_from(CODE.len()).unwrap());
        let mut file = b"\x7fELF\x01\x01\x01".to_vec();
        file.resize(16, 0);
        let halves = |file: &mut Vec<u8>, values: &[u16]| {
            file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        };
        let words = |file: &mut Vec<u8>, values: &[u32]| {
            file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        };
        // An executable for the 386, whose two program headers follow.
        halves(&mut file, &[2, 3]);
        words(&mut file, &[1, ENTRY, 0x34, 0, 0]);
        halves(&mut file, &[0x34, 32, 2, 0, 0, 0]);
        words(&mut file, &[1, headers, ENTRY, ENTRY, length, length, 5, 4]);
        words(&mut file, &[4, headers + length, 0, 0, 20, 20, 4, 4]);
        file.extend(CODE);
        // The note of Xen's with number 18: the entry.
        words(&mut file, &[4, 4, 18]);
        file.extend(b"Xen\0");
        words(&mut file, &[ENTRY]);
        file
    }

    /// What QEMU makes of the kernel's instructions.
    fn translated(kernel: &Path, smp: &str) -> String {
        let log = kernel.with_extension(smp);
        let filter = format!("{ENTRY:#x}+0x100");
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-no-user-config", "-nodefaults", "-nographic", "-no-reboot"]);
        qemu.args(["-M", "microvm,accel=tcg", "-m", "64M", "-smp", smp]);
        qemu.args(["-d", "op", "-dfilter", &filter, "-D"]).arg(&log);
        qemu.arg("-kernel").arg(kernel).stdin(Stdio::null());
        let ran = qemu.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        std::fs::read_to_string(log).unwrap()
    }

    #[test]
    fn qemu_keeps_the_memory_barriers_of_an_emulated_guest_with_one_processor() {
        if std::env::var_os("VK_TEST_ROOT").is_none() {
            println!("QEMU's barriers need what the set-up installs: VK_TEST_ROOT is not set");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let kernel = directory.path().join("kernel");
        std::fs::write(&kernel, self::kernel()).unwrap();
        let ops = translated(&kernel, &processors(1, Accelerator::Tcg));
        assert!(ops.contains("\n mb "), "mfence became nothing: {ops}");
        let is_atomic = ops.contains("call atomic_add_fetch");
        assert!(is_atomic, "lock add became a plain one: {ops}");
    }

    #[test]
    fn no_other_machine_could_have_more_processors_than_it_has() {
        assert_eq!(processors(2, Accelerator::Tcg), "2");
        assert_eq!(processors(1, Accelerator::Kvm), "1");
    }
}
