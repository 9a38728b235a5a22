//! Scripts of the job, run in the guest.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use vk_guest_proto::{Channel, EnvVar, Exec, ExecEnd, Opaque, Stdin};
use vk_hub_proto::job::{FailureClass, HookName};
use vk_stage_core::{Kill, StageEnd};
use vk_trace::{Kind, Line};
use vk_vm::channel::{ExecEvent, ExecHandle, GuestError, Output as ExecOutput, Running};

use super::{failed, system, with_causes};
use crate::guest_env::{DETECT, GuestEnv};
use crate::job::{Job, StopWatch};
use crate::script::{Known, Prologue, Shell, Wrapped, commands, is_exportable, remove};

/// From SIGTERM to SIGKILL: a script that is told to stop has stopped within 2 s.
const GRACE: Duration = Duration::from_millis(1500);
/// Output is awaited this long where a process that the script left holds it.
const DRAIN_MS: u32 = 1000;
/// A script up to this many bytes travels with its command; a longer one is fed to it.
const SMALL: usize = 1 << 20;

pub(super) async fn step(job: &Job, n: u32, stop: StopWatch) -> Result<(), StageEnd> {
    let place = usize::try_from(n).ok().and_then(|n| job.plan.steps.get(n));
    let step = place.and_then(|place| job.spec().steps.get(place.index));
    let Some(step) = step else {
        return Err(system(format!("the job has no step {n}")));
    };
    // A release's lines are gitlab-runner's own: it expands them (and a shell would, otherwise).
    let lines: Vec<String> = match step.name.as_str() {
        "release" => step
            .script
            .iter()
            .map(|line| job.expand(line, "a line of the release"))
            .collect::<Result<_, _>>()?,
        _ => step.script.clone(),
    };
    let sections = sections(job, "script_step");
    run(job, stop, |shell| commands(shell, &lines, sections)).await
}

pub(super) async fn after(job: &Job, stop: StopWatch) -> Result<(), StageEnd> {
    let step = job
        .spec()
        .steps
        .iter()
        .find(|step| step.name == "after_script");
    let lines = step.map(|step| step.script.clone()).unwrap_or_default();
    let sections = sections(job, "after_script_step");
    run(job, stop, |shell| {
        let mut body = Wrapped::say(shell, "Running after script...");
        body.extend(commands(shell, &lines, sections));
        body
    })
    .await
}

/// A hook around the checkout, where the job has it (SPEC-58). The one before it runs where the
/// image says, for there is no project yet.
pub(super) async fn hook(job: &Job, name: HookName, stop: StopWatch) -> Result<(), StageEnd> {
    let Some(hook) = job.hook(name) else {
        return Ok(());
    };
    let (prefix, at) = match name {
        HookName::PreGetSourcesScript => ("pre_clone_script", At::Image),
        HookName::PostGetSourcesScript => ("post_clone_script", At::Project),
    };
    let sections = sections(job, prefix);
    run_at(job, at, stop, |shell| {
        commands(shell, &hook.script, sections)
    })
    .await
}

/// Removes what is at the project's place, as gitlab-runner's cleaning would.
pub(super) async fn clear_project(job: &Job, stop: StopWatch) -> Result<(), StageEnd> {
    let dir = &job.place.project_dir;
    run_at(job, At::Image, stop, |shell| remove(shell, dir)).await
}

/// Where a script begins.
#[derive(Clone, Copy)]
enum At {
    Project,
    Image,
}

/// What the names of commands' sections begin with, where the job wants them and GitLab shows them.
fn sections<'a>(job: &Job, prefix: &'a str) -> Option<&'a str> {
    let wanted = job.settings.script_sections && job.spec().trace.sections;
    wanted.then_some(prefix)
}

/// Runs a script in the project's directory.
async fn run(
    job: &Job,
    stop: StopWatch,
    body: impl FnOnce(Shell) -> Vec<u8>,
) -> Result<(), StageEnd> {
    run_at(job, At::Project, stop, body).await
}

/// Runs a script to its end; a code that is not 0 is an error of that code.
async fn run_at(
    job: &Job,
    at: At,
    stop: StopWatch,
    body: impl FnOnce(Shell) -> Vec<u8>,
) -> Result<(), StageEnd> {
    let guest = job.guest()?;
    let env = job.shared().guest_env.clone();
    let env = env.ok_or_else(|| system("the guest was not set up"))?;
    let Some((path, shell)) = env.shell.clone() else {
        let message = "shell not found: the image has neither bash nor sh";
        return Err(failed(FailureClass::Configuration, message));
    };
    let (text, mut exec) = compose(job, &env, &path, shell, (at, body));
    let feed = (text.len() > SMALL).then_some(text.as_slice());
    if feed.is_none() {
        let content = Opaque::from(text.as_slice());
        exec.stdin = Stdin::File { content };
    }
    let running = guest.exec(exec).await.map_err(|error| refused(&error))?;
    let end = follow(job, running, feed, stop)
        .await
        .map_err(|error| refused(&error))?;
    if end.oom_kills > 0 {
        let line = format!(
            "the VM ran out of memory ({} MiB): its kernel killed {} process(es) of the job",
            job.context.plan.mem_mib, end.oom_kills
        );
        job.output.line(Line::Warning(&line));
    }
    match end.status.shell_code() {
        0 => Ok(()),
        code => Err(StageEnd::Exit(code)),
    }
}

/// The script's text, and the command that reads it.
fn compose(
    job: &Job,
    env: &Arc<GuestEnv>,
    path: &str,
    shell: Shell,
    (at, body): (At, impl FnOnce(Shell) -> Vec<u8>),
) -> (Vec<u8>, Exec) {
    let mut shared = job.shared();
    let first = std::mem::take(&mut shared.untouched);
    let variables: Vec<_> = shared.variables.exports().collect();
    let temp = &job.place.temp_dir;
    let mut prologue = Prologue {
        project_dir: &job.place.project_dir,
        temp_dir: temp,
        variables,
        image: &env.env,
        shell: Known::default(),
    };
    let mut strings = passed(&prologue);
    let xtrace = job.settings.debug_trace;
    let login_shell = env.login_shell.as_deref();
    prologue.shell = known(shell, env, &strings, first && !xtrace);
    if prologue.shell.environment {
        strings.push(("GITLAB_ENV".to_owned(), prologue.env_file()));
    }
    if prologue.shell.login_shell {
        strings.extend(login_shell.map(|path| ("SHELL".to_owned(), path.to_owned())));
    }
    let mut text = match at {
        At::Project => prologue.text_in_project(shell, xtrace),
        At::Image => prologue.text(shell, xtrace),
    };
    text.extend(body(shell));
    let text = Wrapped {
        shell,
        xtrace,
        body: text,
    }
    .text();
    let argv: Vec<Opaque> = match env.entrypoint.as_slice() {
        [] => vec![path.as_bytes().into()],
        entrypoint => {
            let words = entrypoint
                .iter()
                .map(String::as_str)
                .chain(["sh", "-c", DETECT]);
            words.map(|word| word.as_bytes().into()).collect()
        }
    };
    let exec = Exec {
        argv,
        env: environment(strings),
        cwd: env.cwd.clone().into_bytes(),
        // The script makes the second one where it is missing: a process more in the guest.
        directories: [&env.cwd, temp].map(|at| at.clone().into_bytes()).to_vec(),
        user: env.user.clone().into_bytes(),
        umask: 0o022,
        stdin: Stdin::Stream,
        merge_output: false,
        kill_leftovers: true,
        drain_ms: DRAIN_MS,
    };
    (text, exec)
}

/// What a script may rely on.
fn known(shell: Shell, env: &GuestEnv, strings: &[(String, String)], first: bool) -> Known {
    let is_set = |name| strings.iter().any(|(known, _)| known == name);
    // Either may change whatever it likes before the shell reads its script.
    let changes = ["BASH_ENV", "SHELLOPTS"];
    let environment = env.entrypoint.is_empty() && !changes.into_iter().any(is_set);
    Known {
        environment,
        first: environment && first,
        // bash makes a variable of it that its commands do not have. What a script before may have
        // changed in `/etc/passwd` counts for later ones.
        login_shell: environment
            && first
            && shell == Shell::Bash
            && env.login_shell.is_some()
            && !is_set("SHELL")
            && !is_set("GITLAB_ENV"),
    }
}

/// The names of variables that find no room in a command's environment beside the others.
pub(super) fn without_room(job: &Job, env: &GuestEnv) -> Option<String> {
    let shared = job.shared();
    let prologue = Prologue {
        project_dir: &job.place.project_dir,
        temp_dir: &job.place.temp_dir,
        variables: shared.variables.exports().collect(),
        image: &env.env,
        shell: Known::default(),
    };
    let exported = prologue.exported();
    let all = prologue.variables.iter().zip(exported);
    // Each larger than any command's variable is the script's alone, as gitlab-runner has it.
    let without = all.filter(|((name, value, file), exported)| {
        !exported && (*file || is_exportable(name, value))
    });
    let names: Vec<_> = without.map(|((name, ..), _)| *name).collect();
    let (first, more) = names.split_at(names.len().min(3));
    (!first.is_empty()).then(|| match more.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    })
}

/// The image's variables and the job's. One that is too large is not there at all: a shell would
/// export what it sets of a name that its environment has.
fn passed(prologue: &Prologue<'_>) -> Vec<(String, String)> {
    let mut strings = prologue.image.to_vec();
    for ((name, value, file), exported) in prologue.variables.iter().zip(prologue.exported()) {
        if name.is_empty() || name.contains(['=', '\0']) {
            continue;
        }
        let value = match file {
            true => format!("{}/{name}", prologue.temp_dir),
            false => (*value).to_owned(),
        };
        match exported {
            true => strings.push(((*name).to_owned(), value)),
            false => strings.retain(|(of, _)| of != name),
        }
    }
    strings
}

/// Of two of a name the last counts, and only it is passed.
fn environment(strings: Vec<(String, String)>) -> Vec<EnvVar> {
    let mut env: Vec<EnvVar> = Vec::with_capacity(strings.len());
    let mut seen = std::collections::HashSet::new();
    for (name, value) in strings.into_iter().rev() {
        if seen.insert(name.clone()) {
            env.push(EnvVar {
                name: name.into_bytes(),
                value: value.into_bytes().into(),
            });
        }
    }
    env.reverse();
    env
}

/// Feeds the script, where it is fed, passes its output on, and stops it when told so.
async fn follow(
    job: &Job,
    running: Running,
    text: Option<&[u8]>,
    mut stop: StopWatch,
) -> Result<ExecEnd, GuestError> {
    let Running {
        handle,
        mut input,
        output,
    } = running;
    let mut feed = pin!(async {
        // A shell that ends early does not read all of its script.
        let _ = input.write(text.unwrap_or_default()).await;
        let _ = input.end().await;
    });
    let mut read = pin!(read(job, output));
    let mut fed = text.is_none();
    let mut told = true;
    loop {
        tokio::select! {
            end = &mut read => return end,
            () = &mut feed, if !fed => fed = true,
            changed = stop.changed(), if told => match changed {
                Ok(()) => stop_as_told(&handle, *stop.borrow_and_update()),
                Err(_) => told = false,
            },
        }
    }
}

async fn read(job: &Job, mut output: ExecOutput) -> Result<ExecEnd, GuestError> {
    loop {
        match output.next().await? {
            ExecEvent::Started(_) => {}
            ExecEvent::Output(channel, bytes) => {
                let kind = match channel {
                    Channel::Stderr => Kind::Stderr,
                    Channel::Stdout | Channel::Content => Kind::Stdout,
                };
                job.output.guest(kind, &bytes);
            }
            ExecEvent::Ended(end) => return Ok(end),
        }
    }
}

/// Its answer comes when all is ended; the script's own end says so, too.
fn stop_as_told(handle: &ExecHandle, how: Option<Kill>) {
    let grace = match how {
        Some(Kill::Term) => GRACE,
        Some(Kill::Kill) => Duration::ZERO,
        Some(Kill::Vm) | None => return,
    };
    let handle = handle.clone();
    tokio::spawn(async move {
        // One that has ended by itself is not found.
        if let Err(error) = handle.kill(grace).await {
            tracing::debug!(%error, "a script that was to be stopped");
        }
    });
}

/// An agent that refuses a command names the job's mistake, or the guest's lack.
fn refused(error: &GuestError) -> StageEnd {
    use vk_guest_proto::FailureCode;
    match error {
        GuestError::Refused { failure, .. } => match failure.code {
            FailureCode::UnknownUser
            | FailureCode::NotFound
            | FailureCode::NotExecutable
            | FailureCode::TooLarge => failed(FailureClass::Configuration, error),
            _ => system(error),
        },
        GuestError::TooLong { .. } => failed(FailureClass::Configuration, with_causes(error)),
        _ => system(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_of(shell: Shell, first: bool, change: impl Fn(&mut GuestEnv)) -> Known {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut env = GuestEnv {
            shell: None,
            user: String::new(),
            login_shell: Some("/bin/bash".to_owned()),
            entrypoint: Vec::new(),
            cwd: "/".to_owned(),
            env: [("PATH", "/bin"), ("HOME", "/root")].map(pair).to_vec(),
        };
        change(&mut env);
        let strings = env.env.clone();
        known(shell, &env, &strings, first)
    }

    /// STAGE-13
    #[test]
    fn a_script_relies_on_nothing_that_another_program_may_have_changed() {
        let all = |known: Known| (known.environment, known.first, known.login_shell);
        let plain = |_: &mut GuestEnv| ();
        assert_eq!(all(known_of(Shell::Bash, true, plain)), (true, true, true));
        // dash makes no variable of it, and a script may have changed the entry.
        assert_eq!(all(known_of(Shell::Sh, true, plain)), (true, true, false));
        assert_eq!(
            all(known_of(Shell::Bash, false, plain)),
            (true, false, false)
        );
        let without = |env: &mut GuestEnv| env.login_shell = None;
        assert_eq!(
            all(known_of(Shell::Bash, true, without)),
            (true, true, false)
        );
        let own = |env: &mut GuestEnv| env.env.push(("SHELL".to_owned(), "/bin/zsh".to_owned()));
        assert_eq!(all(known_of(Shell::Bash, true, own)), (true, true, false));
        let behind = |env: &mut GuestEnv| env.entrypoint.push("/entry".to_owned());
        assert_eq!(
            all(known_of(Shell::Bash, true, behind)),
            (false, false, false)
        );
        let traced =
            |env: &mut GuestEnv| env.env.push(("SHELLOPTS".to_owned(), "xtrace".to_owned()));
        assert_eq!(
            all(known_of(Shell::Bash, true, traced)),
            (false, false, false)
        );
        let startup = |env: &mut GuestEnv| env.env.push(("BASH_ENV".to_owned(), "/rc".to_owned()));
        assert_eq!(
            all(known_of(Shell::Bash, true, startup)),
            (false, false, false)
        );
    }
}
