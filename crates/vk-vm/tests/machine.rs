//! Real microVMs: what a guest does, what confines it, how it ends.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::guest::{COMMAND, bare, run, settings, shell, with_root};
use support::{eventually, is_gone, named, status, test_root, tree};
use vk_guest_proto::{FailureCode, FileIn, FileOut, Scope, Stdin, TarIn, TarOut};
use vk_vm::accelerator::{Kvm, probe};
use vk_vm::channel::{ExecEvent, GuestError};
use vk_vm::confine::Walls;
use vk_vm::death::Cause;
use vk_vm::qemu::Qemu;
use vk_vm::{StartError, Vmm};

const QEMU: &str = "qemu-system-x86_64";
const STOP: Duration = Duration::from_secs(30);

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// DISP-57, DISP-59, STAGE-35
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_runs_commands_moves_files_and_powers_off_leaving_nothing() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = with_root(&root, directory.path()).await;
    println!(
        "hello after {:?}: {:?}",
        vm.boot().to_hello,
        vm.boot().hello
    );

    let (code, said) = run(&vm, "echo out; echo err >&2; id -u; exit 7").await;
    assert_eq!((code, said.as_str()), (7, "out\nerr\n0\n"));
    let (code, said) = run(&vm, "cat /sys/block/vd?/queue/read_ahead_kb").await;
    assert_eq!((code, said.as_str()), (0, "1024\n128\n"));
    // A processor that could be added is nobody's to count.
    let (code, said) = run(&vm, "cat /sys/devices/system/cpu/possible").await;
    assert_eq!((code, said.as_str()), (0, "0\n"));
    // Nothing of what is left out of the kernel's modules is missed.
    let (code, said) = run(&vm, "dmesg | grep -A3 -e 'cut here' -e 'Call Trace'").await;
    assert_eq!((code, said.as_str()), (1, ""));
    let (code, said) = run(&vm, "kill -TERM $$").await;
    assert_eq!((code, said.as_str()), (143, ""));

    let mut exec = shell("cat | tr a-z A-Z");
    exec.stdin = Stdin::Stream;
    let big = "abcdefghij".repeat(100_000);
    let ran = vm
        .guest()
        .run(exec, big.as_bytes(), 2 << 20, COMMAND)
        .await
        .unwrap();
    assert!(ran.stdout == big.to_uppercase().as_bytes());

    transfer_files(&vm).await;

    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let before = vm.usage().await.unwrap();
    run(&vm, busy).await;
    let after = vm.usage().await.unwrap();
    // What the guest computes is time of the VMM's vCPU threads, and memory of its process.
    assert!(after.cpu_ms >= before.cpu_ms + 100, "{before:?} {after:?}");
    assert!(after.peak_mem_bytes > 64 << 20, "{after:?}");

    let all = tree(vm.root_pid());
    assert!(
        all.len() >= 4,
        "two stages, the VMM and the vsock daemon: {all:?}"
    );
    let stopped = vm.stop(STOP).await;
    assert_eq!(stopped.death.cause, Cause::PoweredOff, "{}", stopped.death);
    assert!(stopped.usage.unwrap().cpu_ms >= after.cpu_ms);
    assert!(
        all.iter().all(|pid| is_gone(*pid)),
        "processes are left of {all:?}"
    );
}

async fn transfer_files(vm: &vk_vm::Vm) {
    // No environment string of the kernel's limit or more, and files of any size.
    let value = "v".repeat(300_000);
    let mut exec = shell("true");
    let name = b"LARGE".to_vec();
    exec.env.push(vk_guest_proto::EnvVar {
        name,
        value: value.as_bytes().into(),
    });
    match vm.guest().run(exec, b"", 1024, COMMAND).await {
        Err(GuestError::Refused { failure, .. }) => {
            assert_eq!(failure.code, FailureCode::TooLarge);
            assert!(failure.message.contains("LARGE"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    let path = b"/tmp/vars/LARGE".to_vec();
    let file = FileIn {
        path: path.clone(),
        mode: 0o600,
        owner: Vec::new(),
        create_parents: true,
        append: false,
    };
    vm.guest().write_file(file, value.as_bytes()).await.unwrap();
    let (_, said) = run(vm, "wc -c < /tmp/vars/LARGE; stat -c %a /tmp/vars/LARGE").await;
    assert_eq!(said, "300000\n600\n");
    let mut back = Vec::new();
    vm.guest()
        .read_file(
            FileOut {
                path,
                max_bytes: 1 << 20,
            },
            &mut back,
        )
        .await
        .unwrap();
    assert!(back == value.as_bytes());

    run(
        vm,
        "mkdir -p /tmp/a/b && echo one > /tmp/a/1 && echo two > /tmp/a/b/2",
    )
    .await;
    let out = TarOut {
        root: b"/tmp/a".to_vec(),
        paths: vec![b"1".to_vec(), b"b".to_vec()],
        exclude: Vec::new(),
        untracked: false,
        list_only: false,
    };
    let mut tar = Vec::new();
    vm.guest().tar_out(out, &mut tar).await.unwrap();
    let tar_in = |max_bytes| TarIn {
        root: b"/tmp/c".to_vec(),
        owner: Vec::new(),
        max_entries: 100,
        max_bytes,
    };
    vm.guest().tar_in(tar_in(1 << 20), &tar[..]).await.unwrap();
    let (_, said) = run(vm, "cd /tmp/c && cat 1 b/2").await;
    assert_eq!(said, "one\ntwo\n");
    let refused = vm.guest().tar_in(tar_in(3), &tar[..]).await;
    assert!(
        matches!(refused, Err(GuestError::Refused { .. })),
        "{refused:?}"
    );
    vm.guest().ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_has_no_rights_and_sees_no_key_of_the_nodes() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key.pk8");
    fs::write(&key, "the node's key").unwrap();
    let qemu = Qemu::prepare(settings(&root)).await.unwrap();
    let vm = qemu.start(bare(directory.path(), "vm")).await.unwrap();
    for (name, socket) in [(QEMU, "vm/qmp/s"), ("vhost-device-vsock", "vm/host/v_1024")] {
        let pid = named(vm.root_pid(), name)[0];
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(pid, set).unwrap(), "0".repeat(16), "{name}: {set}");
        }
        assert_eq!(status(pid, "NoNewPrivs").unwrap(), "1", "{name}");
        assert_eq!(status(pid, "Seccomp").unwrap(), "2", "{name}");
        for kind in ["user", "mnt", "pid", "net", "ipc"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
            assert_ne!(of(&pid.to_string()), of("self"), "{name}: {kind}");
        }
        // The root of the process, as its own mount namespace has it.
        let inside = format!("/proc/{pid}/root");
        let seen = |path: &Path| Path::new(&format!("{inside}{}", path.display())).exists();
        assert!(
            seen(&directory.path().join(socket)),
            "{name}: its own socket is there"
        );
        for path in [
            &key,
            Path::new("/etc/passwd"),
            &root,
            Path::new("/proc/1"),
            Path::new("/root"),
        ] {
            // The root of the tests lies on the way to the bundle; what is in it beside does not.
            let hidden = if path == root {
                root.join("bin/vk")
            } else {
                path.to_owned()
            };
            assert!(!seen(&hidden), "{name} sees {}", hidden.display());
        }
        let devices = fs::read_dir(format!("{inside}/dev"));
        assert!(devices.is_err(), "{name}: under TCG there is no device");
        let nets = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
        assert_eq!(
            nets.lines().count(),
            3,
            "{name} has only a loopback: {nets}"
        );
    }
    nothing_secret_lies_about(&vm, directory.path());
    vm.stop(STOP).await;
}

/// The initramfs with the secret is gone, and no process of the VM was given an environment.
fn nothing_secret_lies_about(vm: &vk_vm::Vm, directory: &Path) {
    assert!(!directory.join("vm/initrd").exists());
    for pid in tree(vm.root_pid()) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(
            environment.is_empty(),
            "{pid}: {}",
            String::from_utf8_lossy(&environment)
        );
    }
}

/// FAIL-32
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_that_dies_in_the_middle_of_a_command_is_told_as_such() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = with_root(&root, directory.path()).await;
    let mut running = vm
        .guest()
        .exec(shell("echo begun; sleep 1000"))
        .await
        .unwrap();
    loop {
        if let ExecEvent::Output(_, bytes) = running.output.next().await.unwrap() {
            assert_eq!(bytes, b"begun\n");
            break;
        }
    }
    let all = tree(vm.root_pid());
    kill(named(vm.root_pid(), QEMU)[0]);
    match running.output.next().await {
        Err(GuestError::Dead(death)) => {
            assert!(
                matches!(&death.cause, Cause::Program { name: "qemu", .. }),
                "{death}"
            );
            assert!(death.to_string().contains("signal 9"), "{death}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(vm.guest().ping().await, Err(GuestError::Dead(_))));
    assert_eq!(vm.usage().await, None);
    let stopped = vm.stop(STOP).await;
    assert_eq!(stopped.usage, None);
    assert!(
        matches!(stopped.death.cause, Cause::Program { .. }),
        "{}",
        stopped.death
    );
    assert!(
        all.iter().all(|pid| is_gone(*pid)),
        "processes are left of {all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_has_no_time_to_power_off_is_ended() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let qemu = Qemu::prepare(settings(&root)).await.unwrap();
    let vm = qemu.start(bare(directory.path(), "vm")).await.unwrap();
    let all = tree(vm.root_pid());
    let stopped = vm.stop(Duration::ZERO).await;
    assert_eq!(stopped.death.cause, Cause::Ended, "{}", stopped.death);
    assert!(stopped.usage.is_some());
    assert!(
        all.iter().all(|pid| is_gone(*pid)),
        "processes are left of {all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_walls_and_only_then_a_guest_runs_unconfined_and_is_held_all_the_same() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(&root);
    settings.confinement.walls = Walls::Off;
    let qemu = Qemu::prepare(settings).await.unwrap();
    let vm = qemu.start(bare(directory.path(), "vm")).await.unwrap();
    let pid = named(vm.root_pid(), QEMU)[0];
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    assert_eq!(of(&pid.to_string()), of("self"));
    for (field, value) in [
        ("CapEff", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        assert_eq!(status(pid, field).unwrap(), value, "{field}");
    }
    let all = tree(vm.root_pid());
    kill(all[1]);
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
}

/// FAIL-32
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_whose_kernel_dies_says_so_on_its_console() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = with_root(&root, directory.path()).await;
    let exec = shell(
        "mount -t proc proc /proc; echo 1 > /proc/sys/kernel/sysrq; \
                      echo c > /proc/sysrq-trigger; sleep 1000",
    );
    match vm.guest().run(exec, b"", 1 << 20, COMMAND).await {
        Err(GuestError::Dead(death)) => {
            assert!(
                matches!(&death.cause, Cause::Program { name: "qemu", .. }),
                "{death}"
            );
            assert!(death.console.contains("Kernel panic"), "{death}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_signalled_and_ended_while_its_output_is_read() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = with_root(&root, directory.path()).await;
    let script = "trap 'echo caught' USR1; echo ready; while :; do sleep 1; done";
    let mut running = vm.guest().exec(shell(script)).await.unwrap();
    let mut said = Vec::new();
    let end = loop {
        match running.output.next().await.unwrap() {
            ExecEvent::Started(_) => {}
            ExecEvent::Output(_, bytes) => {
                said.extend_from_slice(&bytes);
                if said == b"ready\n" {
                    running.handle.signal(10, Scope::Leader).await.unwrap();
                } else {
                    running.handle.kill(Duration::from_secs(1)).await.unwrap();
                }
            }
            ExecEvent::Ended(end) => break end,
        }
    };
    // A shell that hears of its sleep's end before its own signal comes says that it was terminated.
    let said = String::from_utf8(said).unwrap();
    let words = said.strip_prefix("ready\ncaught\n");
    assert!(matches!(words, Some("" | "Terminated\n")), "{said:?}");
    assert_eq!(end.status.shell_code(), 143);
    let late = running.handle.signal(10, Scope::Leader).await;
    assert!(matches!(late, Err(GuestError::Refused { .. })), "{late:?}");
    vm.stop(STOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_boot_in_time_is_killed_and_counted() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let qemu = Qemu::prepare(settings(&root)).await.unwrap();
    let mut machine = bare(directory.path(), "vm");
    machine.boot_limit = Duration::from_millis(300);
    match qemu.start(machine).await {
        Err(StartError::BootTimeout { limit, .. }) => assert_eq!(limit.as_millis(), 300),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("no guest boots in 300 ms under TCG"),
    }
    assert_eq!(qemu.boot_timeouts(), 1);
    assert!(
        !directory.path().join("vm/initrd").exists(),
        "the secret is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_killed_in_the_middle_of_a_boot_leaves_nothing() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut owner = tokio::process::Command::new(root.join("bin/vk"))
        .args(["guest", "boot", "--accelerator", "tcg"])
        .env("TMPDIR", directory.path())
        .spawn()
        .unwrap();
    let pid = owner.id().unwrap();
    eventually("QEMU runs", || !named(pid, QEMU).is_empty()).await;
    let all = tree(pid);
    owner.kill().await.unwrap();
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_confine_is_refused_with_what_to_do() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    // A user namespace in which none may be made is such a host.
    let script =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" guest boot --accelerator tcg";
    let refused = tokio::process::Command::new("/usr/bin/unshare")
        .args(["--user", "--map-root-user", "/bin/sh", "-c", script])
        .arg(root.join("bin/vk"))
        .env("TMPDIR", directory.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success(), "{said}");
    for part in ["does not let VMs be confined", "user.max_user_namespaces"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_boot_is_measured_to_qemus_exit() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let qemu = Qemu::prepare(settings(&root)).await.unwrap();
    let machine = bare(directory.path(), "vm");
    let took = qemu.bare_boot(&machine).await.unwrap();
    println!("{took:?}");
    assert!(took > Duration::from_millis(20) && took < machine.boot_limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_guests_boot_three_at_a_time_and_none_hangs() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let times = if std::env::var_os("VK_LONG").is_some() {
        "100"
    } else {
        "6"
    };
    let owner = tokio::process::Command::new(root.join("bin/vk"))
        .args([
            "guest",
            "boot",
            "--accelerator",
            "tcg",
            "--times",
            times,
            "--at-once",
            "3",
        ])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&owner.stdout);
    println!("{said}");
    assert!(
        owner.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&owner.stderr)
    );
    let booted = said
        .lines()
        .filter(|line| line.ends_with("the VM powered off"))
        .count();
    assert_eq!(booted.to_string(), times);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kvm_that_opens_and_hangs_is_given_up_in_time_and_remembered() {
    let Some(root) = test_root("a real VM") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    // A device that opens, and a QEMU that never gets anywhere with it.
    fs::write(path("kvm"), "").unwrap();
    fs::write(path("qemu"), "#!/bin/sh\nwhile :; do :; done\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(path("qemu"), executable).unwrap();
    let mut settings = settings(&root);
    settings.qemu = Some(path("qemu"));
    settings.kvm = path("kvm");
    let limit = Duration::from_secs(2);
    let begun = Instant::now();
    let found = probe(&settings, &path("memory"), directory.path(), limit)
        .await
        .unwrap();
    assert_eq!(found, Kvm::Hangs { limit_ms: 2000 });
    assert!(begun.elapsed() < 5 * limit, "{:?}", begun.elapsed());
    assert!(
        found
            .warning(&settings.kvm)
            .unwrap()
            .contains("no sign of life")
    );
    let again = Instant::now();
    let found = probe(&settings, &path("memory"), directory.path(), limit)
        .await
        .unwrap();
    assert_eq!(found, Kvm::Hangs { limit_ms: 2000 });
    assert!(again.elapsed() < limit, "it was tried again");
    // One that gives up at once is told apart.
    fs::write(path("qemu"), "#!/bin/sh\necho no such MSR >&2; exit 1\n").unwrap();
    let found = probe(&settings, &path("other"), directory.path(), limit)
        .await
        .unwrap();
    assert!(
        matches!(&found, Kvm::Fails { why } if why.contains("no such MSR")),
        "{found:?}"
    );
}
