//! How many processors a machine has, and could have.

use crate::machine::Accelerator;

/// Whether QEMU emulates the guest's processors.
pub(super) fn is_emulated(accelerator: Accelerator) -> bool {
    accelerator != Accelerator::Kvm
}

/// The value of QEMU's `-smp`.
///
/// For a machine that can have one processor only, QEMU's emulator leaves the guest's memory barriers
/// out, as if nobody else looked at the guest's memory; but its devices do, on threads of their own, and
/// the vsock daemon does. Without them a guest may miss that its request is done, or a device that there
/// is one, and each waits for the other for good (decision 0023). A machine that could have a second
/// processor has its barriers, as long as each processor has a thread of QEMU's, which is so unless
/// `-icount` or `thread=single` is asked for. The second one would be a package of its own: a core
/// beside the first would be counted by all who ask CPUID.
pub(super) fn processors(cpus: u32, accelerator: Accelerator) -> String {
    if cpus == 1 && is_emulated(accelerator) {
        return "1,maxcpus=2,sockets=2,cores=1,threads=1".to_owned();
    }
    cpus.to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::super::args::{Boot, VsockDevice, arguments};
    use super::super::firmware;
    use super::*;
    use crate::machine::{Machine, machine};
    use crate::programs::find;

    /// Where the kernel below is put.
    const ENTRY: u32 = 0x10_0000;
    /// What Linux has for barriers: `mfence`, `lock addl $0, (%esp)`, `xchg %eax, (%esp)`. Then how many
    /// processors CPUID counts in this package goes to the first serial port. With `ud2`, and nobody to
    /// take the fault, the machine resets, and QEMU ends.
    const CODE: [u8; 36] = [
        0xbc, 0, 0, 0x11, 0, // mov $0x110000, %esp
        0x0f, 0xae, 0xf0, // mfence
        0xf0, 0x83, 0x04, 0x24, 0, // lock addl $0, (%esp)
        0x87, 0x04, 0x24, // xchg %eax, (%esp)
        0xb8, 1, 0, 0, 0, // mov $1, %eax
        0x0f, 0xa2, // cpuid
        0x89, 0xd8, // mov %ebx, %eax
        0xc1, 0xe8, 0x10, // shr $16, %eax
        0xba, 0xf8, 3, 0, 0,    // mov $0x3f8, %edx
        0xee, // out %al, (%dx)
        0x0f, 0x0b, // ud2
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

    /// Runs the kernel as guests are run, with no device but the console: what QEMU makes of its
    /// instructions, and what it wrote.
    fn run(kernel: &Path, cpus: u32) -> (String, Vec<u8>) {
        let path = find("qemu-system-x86_64").unwrap();
        let firmware = firmware::directory(&path).unwrap();
        let boot = Boot {
            accelerator: Accelerator::Tcg,
            kernel,
            initrd: Path::new("none"),
            command_line: "",
            vsock: VsockDevice::User,
            firmware: &firmware,
            network: false,
        };
        let machine = Machine { cpus, ..machine() };
        let log = kernel.with_extension("log");
        let filter = format!("{ENTRY:#x}+0x100");
        // It ends at once, or never.
        let mut qemu = Command::new("timeout");
        qemu.args(["--signal=KILL", "60"]).arg(path);
        let mut arguments = arguments(&machine, &boot).into_iter().peekable();
        while let Some(name) = arguments.next() {
            let value = arguments.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
            let is_socket = { value.as_ref() }
                .is_some_and(|value| value.as_encoded_bytes().starts_with(b"socket,"));
            let devices = ["-device", "-blockdev", "-initrd", "-mon"];
            if !is_socket && !devices.iter().any(|device| name == *device) {
                qemu.arg(name).args(value);
            }
        }
        qemu.args(["-d", "op", "-dfilter", &filter, "-D"]).arg(&log);
        let ran = qemu.stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{qemu:?}: {ran:?}");
        (std::fs::read_to_string(log).unwrap(), ran.stdout)
    }

    #[test]
    fn an_emulated_guest_with_one_processor_has_its_memory_barriers_and_counts_one() {
        if std::env::var_os("VK_TEST_ROOT").is_none() {
            println!("QEMU's barriers need what the set-up installs: VK_TEST_ROOT is not set");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let kernel = directory.path().join("kernel");
        std::fs::write(&kernel, self::kernel()).unwrap();
        let (ops, counted) = run(&kernel, 1);
        for (op, instruction) in [
            ("\n mb ", "mfence"),
            ("call atomic_add_fetch", "lock add"),
            ("call atomic_xchg", "xchg"),
        ] {
            assert!(ops.contains(op), "{instruction} is no barrier: {ops}");
        }
        // Zero is one, too: nothing is said of others.
        assert!(matches!(counted[..], [0 | 1]), "{counted:?}");
    }

    #[test]
    fn no_other_machine_could_have_more_processors_than_it_has() {
        assert_eq!(processors(2, Accelerator::Tcg), "2");
        assert_eq!(processors(1, Accelerator::Kvm), "1");
    }
}
