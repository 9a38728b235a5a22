//! Guests that are processes: the same agent and the same channel, without a machine.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test finds otherwise than it must be ends it"
)]
#![cfg(feature = "process-vmm")]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use support::guest::{COMMAND, bare, busybox, run, shell};
use support::{eventually, is_gone, test_root, tree};
use vk_guest_proto::MountRoot;
use vk_vm::channel::GuestError;
use vk_vm::confine::{Confinement, Walls};
use vk_vm::death::Cause;
use vk_vm::process::{ProcessSettings, ProcessVmm};
use vk_vm::{Accelerator, Disk, Vm, Vmm};

const STOP: Duration = Duration::from_secs(10);

async fn start(root: &Path, directory: &Path, walls: Walls) -> Vm {
    let image = directory.join("image.erofs");
    if !image.exists() {
        busybox(root, &image);
    }
    let vmm = ProcessVmm::prepare(ProcessSettings {
        agent: root.join("bin/vk-agent"),
        // The stage for such guests is only in programs built with the feature.
        confinement: Confinement {
            helper: root.join("bin-process/vk"),
            walls,
        },
        cache: directory.join("cache"),
        allowed: true,
    })
    .unwrap();
    assert_eq!(vmm.accelerator(), Accelerator::Host);
    let number = fs::read_dir(directory).unwrap().count();
    let mut machine = bare(directory, &format!("vm-{number}"));
    let disk = |role: &str, writable| Disk {
        role: role.to_owned(),
        path: image.clone(),
        writable,
    };
    machine.disks = vec![disk("image", false), disk("scratch", true)];
    let vm = vmm.start(machine).await.unwrap();
    let volume = |role| vm.volume(role).unwrap().clone();
    let plan = MountRoot {
        image: volume("image"),
        writable: volume("scratch"),
    };
    vm.guest().mount_root(plan).await.unwrap();
    vm
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_guest_runs_commands_in_its_image_and_leaves_nothing() {
    let Some(root) = test_root("a process guest") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let vm = start(&root, directory.path(), Walls::Required).await;
        println!("hello after {:?}", vm.boot().to_hello);
        let (code, said) = run(&vm, "id -u; echo > /new && ls /new; exit 3").await;
        assert_eq!((code, said.as_str()), (3, "0\n/new\n"));
        assert!(vm.usage().await.unwrap().peak_mem_bytes > 0);
        let all = tree(vm.root_pid());
        let stopped = vm.stop(STOP).await;
        assert_eq!(stopped.death.cause, Cause::PoweredOff, "{}", stopped.death);
        assert!(
            all.iter().all(|pid| is_gone(*pid)),
            "processes are left of {all:?}"
        );
    }
    let cached: Vec<_> = fs::read_dir(directory.path().join("cache"))
        .unwrap()
        .collect();
    assert_eq!(cached.len(), 1, "the image was extracted once: {cached:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_guest_whose_owner_goes_is_gone_with_all_it_started() {
    let Some(root) = test_root("a process guest") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = start(&root, directory.path(), Walls::Required).await;
    let script = "setsid sleep 1000 & sleep 1000";
    let running = vm.guest().exec(shell(script)).await.unwrap();
    eventually("both sleep", || {
        support::named(vm.root_pid(), "busybox").len() >= 2
            || support::named(vm.root_pid(), "sleep").len() >= 2
    })
    .await;
    let all = tree(vm.root_pid());
    drop((running, vm));
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
}

/// FAIL-32
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_is_told_as_a_death_of_the_vm() {
    let Some(root) = test_root("a process guest") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let vm = start(&root, directory.path(), Walls::Required).await;
    let agent = support::named(vm.root_pid(), "vk-agent")[0];
    let guest = vm.guest().clone();
    let waiting =
        tokio::spawn(async move { guest.run(shell("sleep 1000"), b"", 1024, COMMAND).await });
    eventually("it sleeps", || tree(agent).len() > 1).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    match waiting.await.unwrap() {
        Err(GuestError::Dead(death)) => {
            assert!(
                matches!(
                    death.cause,
                    Cause::Program {
                        name: "process",
                        ..
                    }
                ),
                "{death}"
            );
        }
        other => panic!("{other:?}"),
    }
}
