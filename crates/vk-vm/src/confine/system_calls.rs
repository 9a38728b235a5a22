//! What no confined program may ask the kernel, whatever else it does.
//!
//! These are calls that neither a VMM nor a vsock daemon makes, and by which escapes have been made:
//! other processes, new namespaces and mounts, modules, keys, programs in the kernel. QEMU adds its
//! own, stricter filter.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Refused with EPERM, whatever the arguments.
const REFUSED: [i64; 46] = [
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_personality,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    // Keys, and a second way to make every call.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
];

/// Every flag by which `clone` makes a namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// Puts the filter on this process and what it becomes. `no_new_privs` must be set.
pub(super) fn refuse_the_dangerous() -> io::Result<()> {
    for program in [without_clone3(), filter()] {
        let program = program.map_err(io::Error::other)?;
        apply_filter(&program).map_err(io::Error::other)?;
    }
    Ok(())
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    // Namespaces by another name.
    rules.insert(libc::SYS_clone, new_namespace_rules()?);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64)?;
    filter.try_into()
}

/// One rule a flag: a rule matches when any bit of its one flag is set.
fn new_namespace_rules() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    (0..u64::BITS)
        .map(|bit| 1_u64 << bit)
        .filter(|flag| NEW_NAMESPACES & flag != 0)
        .map(|flag| {
            let is_set = SeccompCmpOp::MaskedEq(flag);
            let length = SeccompCmpArgLen::Qword;
            SeccompRule::new(vec![SeccompCondition::new(0, length, is_set, flag)?])
        })
        .collect()
}

/// `clone3` hides its flags in memory, where no filter sees them: it is answered as by a kernel that
/// does not have it, and libraries then use `clone`.
fn without_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, TargetArch::x86_64)?;
    filter.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_compile_and_every_namespace_flag_has_its_rule() {
        assert!(!filter().unwrap().is_empty());
        assert!(!without_clone3().unwrap().is_empty());
        // CLONE_NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWNS.
        let flags = [
            0x0200_0000,
            0x0400_0000,
            0x0800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
            0x0002_0000,
        ];
        assert_eq!(flags.iter().sum::<u64>(), NEW_NAMESPACES);
        assert_eq!(new_namespace_rules().unwrap().len(), flags.len());
    }

    #[test]
    fn no_call_stands_twice() {
        let mut calls = REFUSED.to_vec();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), REFUSED.len());
    }
}
