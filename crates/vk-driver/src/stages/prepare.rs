//! prepare_executor: admission, image, boot.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use vk_guest_proto::{MountRoot, SetUp};
use vk_hub_proto::dispatch::GuestSize;
use vk_hub_proto::job::FailureClass;
use vk_stage_core::StageEnd;
use vk_trace::Line;
use vk_vm::channel::unix_ns;
use vk_vm::disk::create_scratch;
use vk_vm::{Accelerator, Disk, Machine, Vm};

use super::{failed, image, passing, system, unsupported, with_causes};
use crate::guest_env::{GuestEnv, PASSWD, shells};
use crate::job::{Inside, Job};
use crate::sources;

const IMAGE: &str = "image";
const SCRATCH: &str = "scratch";
/// An admission that takes longer is worth a line.
const AT_ONCE: Duration = Duration::from_millis(500);

/// An attempt that failed leaves nothing: the next has a VM and a disk of its own.
pub(super) async fn run(job: &Arc<Job>, attempt: u32) -> Result<(), StageEnd> {
    supported(job)?;
    admitted(job).await?;
    let scratch = job.file(&format!("scratch-{attempt}"));
    let directory = job.file(&format!("vm-{attempt}"));
    let begun = begin(job, &scratch, &directory).await;
    if begun.is_err() {
        // What resists goes with the job's directory.
        let _ = std::fs::remove_file(&scratch);
        let _ = std::fs::remove_dir_all(&directory);
    }
    watch(job, begun?);
    job.activity(None);
    Ok(())
}

/// The image, the disks and the VM. What needs nothing of another is begun beside it.
async fn begin(job: &Arc<Job>, scratch: &Path, directory: &Path) -> Result<Vm, StageEnd> {
    job.context.vmm.anticipate();
    let made = create_scratch(scratch, job.context.plan.disk_bytes);
    let (made, image) = tokio::join!(made, image::resolve(job));
    let image = image?;
    made.map_err(|error| not_begun(error.is_transient(), &error))?;
    let run = image.record().run.clone();
    let image_disk = image.disk().to_owned();
    job.shared().lease = Some(image);
    if sources::has_disk(job) && job.shared().sourcing.is_none() {
        sources::make_room(job).map_err(|error| passing(format!("cannot make a disk: {error}")))?;
        let sourcing = sources::begin(job, 1);
        job.shared().sourcing = Some(sourcing);
    }
    boot(job, scratch, directory, image_disk, &run).await
}

/// A VM that is set up for the job.
async fn boot(
    job: &Job,
    scratch: &Path,
    directory: &Path,
    image: PathBuf,
    run: &vk_oci::RunConfig,
) -> Result<Vm, StageEnd> {
    let disk = |role: &str, path, writable| Disk {
        role: role.to_owned(),
        path,
        writable,
    };
    let mut disks = vec![
        disk(IMAGE, image, false),
        disk(SCRATCH, scratch.to_owned(), true),
    ];
    if sources::has_disk(job) {
        disks.push(disk(sources::DISK, job.file(sources::DISK), false));
        let base = job.file(sources::BASE);
        if base.exists() {
            disks.push(disk(sources::BASE, base, false));
        }
    }
    let machine = Machine {
        directory: directory.to_owned(),
        cpus: job.context.plan.cpus,
        memory: job.context.plan.mem_mib << 20,
        disks,
        boot_limit: job.context.boot_limit,
    };
    job.activity(Some("booting"));
    let started = job.context.vmm.start(machine).await;
    let vm = started.map_err(|error| not_begun(error.is_transient(), &error))?;
    booted(job, &vm);
    let set_up = set_up(job, &vm, run).await;
    set_up.map(|()| vm)
}

/// Nothing of a job has run yet: what may pass is tried again, as gitlab-runner does.
fn not_begun(transient: bool, error: &dyn std::error::Error) -> StageEnd {
    let message = with_causes(error);
    if transient {
        passing(message)
    } else {
        system(message)
    }
}

/// What is asked for and not there is said, never left out silently.
fn supported(job: &Job) -> Result<(), StageEnd> {
    if let Some(message) = job.shared().variables.refused() {
        return Err(failed(FailureClass::Configuration, message));
    }
    let image = job.expand(&job.spec().image.name, "the image's name")?;
    if let Some(message) = unsupported::asked(job.spec(), &image) {
        return Err(failed(FailureClass::Configuration, message));
    }
    let allowed = job.context.images.rules.check_user(&user(job)?);
    allowed.map_err(|error| failed(FailureClass::Configuration, with_causes(&error)))?;
    match &job.settings.refused {
        Some(what) => Err(failed(FailureClass::Configuration, what)),
        None => Ok(()),
    }
}

/// Waits until the ledger has answered (ADM-34).
async fn admitted(job: &Job) -> Result<(), StageEnd> {
    let mut granted = job.granted.clone();
    let late = timeout(AT_ONCE, granted.wait_for(Option::is_some))
        .await
        .is_err();
    if late {
        job.activity(Some("waiting for room on the node"));
        job.output
            .line(Line::Plain("Waiting for room on the node ..."));
    }
    let answer = granted
        .wait_for(Option::is_some)
        .await
        .map(|answer| answer.clone());
    match answer {
        Ok(Some(Err(short))) => {
            let message = format!("the node cannot give the job all it asks for: {short} is short");
            Err(system(message))
        }
        Ok(_) => Ok(()),
        Err(_) => Err(system("nobody is left who could admit the job")),
    }
}

fn booted(job: &Job, vm: &Vm) {
    let boot = vm.boot();
    let plan = &job.context.plan;
    let line = format!(
        "Booted a VM by {} under {} in {:.1} s: {} CPUs, {} MiB, kernel {}",
        boot.vmm,
        boot.accelerator,
        boot.to_hello.as_secs_f32(),
        plan.cpus,
        plan.mem_mib,
        boot.hello.kernel_release,
    );
    job.output.line(Line::Plain(&line));
    if boot.accelerator == Accelerator::Tcg {
        let slow = "this node has no KVM that works: every instruction of the job is emulated, \
                    many times slower than on a processor";
        job.output.line(Line::Warning(slow));
    }
    job.state.send_modify(|state| {
        state.guest = Some(GuestSize {
            cpus: plan.cpus,
            mem_mib: plan.mem_mib,
        });
        state.counts.boots += 1;
        state.boot_ms = u64::try_from(boot.to_hello.as_millis()).ok();
        state.vmm = Some((boot.vmm.to_owned(), boot.accelerator.to_string()));
    });
}

/// Clock, name, root; and what the image says of itself.
async fn set_up(job: &Job, vm: &Vm, run: &vk_oci::RunConfig) -> Result<(), StageEnd> {
    let volume = |role: &str| {
        let missing = || system(format!("the VM has no disk {role}"));
        vm.volume(role).cloned().ok_or_else(missing)
    };
    let is_machine = !job.is_process();
    let plan = SetUp {
        hostname: is_machine.then(|| hostname(job)),
        unix_ns: is_machine.then(unix_ns),
        root: MountRoot {
            image: volume(IMAGE)?,
            writable: volume(SCRATCH)?,
        },
        open: sources::directories(job),
        look: shells(),
        read: PASSWD.to_vec(),
    };
    let guest = vm.guest();
    let found = guest.set_up(plan).await.map_err(passing)?;
    let wanted = &job.spec().image.entrypoint;
    let read = GuestEnv::read(guest, found, run, &user(job)?, wanted).await;
    let without = super::script::without_room(job, &read);
    let mut shared = job.shared();
    (shared.guest_env, shared.untouched) = (Some(Arc::new(read)), true);
    drop(shared);
    if let Some(names) = without {
        job.output.line(Line::Warning(&format!(
            "the job's variables are together more than a command can have: commands of its scripts \
             do not have {names}, their shell does"
        )));
    }
    Ok(())
}

/// As whom the job wants its scripts run: by `MICROVM_USER`, else by its image's `user`; empty where it
/// leaves that to the image.
fn user(job: &Job) -> Result<String, StageEnd> {
    let by_variable = job
        .shared()
        .variables
        .content("MICROVM_USER")
        .map(str::to_owned);
    match by_variable.filter(|user| !user.is_empty()) {
        Some(user) => Ok(user),
        None => {
            let user = job.spec().image.user.as_deref().unwrap_or_default();
            job.expand(user, "the image's user")
        }
    }
}

/// `runner-<short token>-project-<id>-concurrent-<n>`, as gitlab-runner names its containers.
pub(super) fn hostname(job: &Job) -> String {
    let short = job
        .shared()
        .variables
        .seen("CI_RUNNER_SHORT_TOKEN")
        .unwrap_or_default();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let short: String = short.chars().take(9).map(plain).collect();
    let short = if short.is_empty() { "vk" } else { &short };
    let (project, slot) = (job.spec().job.project_id, job.context.plan.slot);
    format!(
        "runner-{}-project-{project}-concurrent-{slot}",
        short.trim_matches('-')
    )
}

/// Keeps the VM, and tells when it is gone.
fn watch(job: &Arc<Job>, vm: Vm) {
    let guest = vm.guest().clone();
    let mut shared = job.shared();
    shared.guest = Some(guest.clone());
    shared.vm = Some(vm);
    drop(shared);
    let inside = job.inside.clone();
    tokio::spawn(async move {
        let death = guest.death().await;
        let message = death.to_string();
        // What runs in it hears of it first, and says how it ended there.
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The job may be over.
        let _ = inside.send(Inside::VmDied(message));
    });
}
