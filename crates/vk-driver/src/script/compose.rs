//! The text of a script: exports, commands, and what is around them.

use std::collections::{HashMap, HashSet};

use super::quote::{ansi_c, double, single};

/// From here on the kernel takes no `NAME=value` string (its NUL counted).
const KERNEL_STRING: usize = 128 * 1024;

/// Bytes of variables in a command's environment, of the 2 MiB that the kernel gives a command: its
/// arguments have room, and what a script adds itself.
const ENVIRONMENT: usize = 1792 << 10;

const GREEN: &str = "\x1b[32;1m";
const YELLOW: &str = "\x1b[0;33m";
const RESET: &str = "\x1b[0;m";

/// The image's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// GNU bash.
    Bash,
    /// Another POSIX shell.
    Sh,
}

impl Shell {
    fn word(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Shell::Bash => ansi_c(bytes),
            Shell::Sh => single(bytes),
        }
    }

    /// A command that prints one line as it is. `echo` of a shell that is not bash may read
    /// backslashes.
    fn echo(self, text: &[u8]) -> Vec<u8> {
        let print: &[u8] = match self {
            Shell::Bash => b"echo ",
            Shell::Sh => b"printf '%s\\n' ",
        };
        [print, &self.word(text)].concat()
    }
}

/// A text in a colour of gitlab-runner's scripts.
fn paint(colour: &str, text: &str) -> String {
    format!("{colour}{text}{RESET}")
}

/// A bold green line, with its line break.
pub(crate) fn notice(text: &str) -> String {
    paint(GREEN, text) + "\n"
}

/// A yellow line, with its line break.
pub(crate) fn warning(text: &str) -> String {
    paint(YELLOW, text) + "\n"
}

/// What a script sees before its first command.
#[derive(Debug)]
pub(crate) struct Prologue<'a> {
    /// The project's directory.
    pub(crate) project_dir: &'a str,
    /// The directory beside it, for file variables.
    pub(crate) temp_dir: &'a str,
    /// Names, values (a file variable's is its content) and whether it is a file, in order.
    pub(crate) variables: Vec<(&'a str, &'a str, bool)>,
    /// What the image sets itself, which commands have in any case.
    pub(crate) image: &'a [(String, String)],
    /// What is known of the shell before it reads the script.
    pub(crate) shell: Known,
}

/// What a script need not do, for it is so already. Each command that a shell runs for the first time
/// costs an emulated guest much of a millisecond.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// The shell has the environment that was made for it, `GITLAB_ENV` too: no entrypoint or startup
    /// file comes between.
    pub(crate) environment: bool,
    /// No script of the job ran in this guest before: nothing was written to `GITLAB_ENV`, and the
    /// directory beside the project's is as the agent made it.
    pub(crate) first: bool,
    /// `SHELL` is in the environment for the shell alone, which looks it up otherwise.
    pub(crate) login_shell: bool,
}

impl Prologue<'_> {
    /// Which of the variables, in their order, a command's environment has (STAGE-35): with more
    /// than the kernel takes no command would start. The scripts' shell has the others.
    pub(crate) fn exported(&self) -> Vec<bool> {
        let image = self
            .image
            .iter()
            .map(|(name, value)| cost(name, value.len()));
        let mut left = ENVIRONMENT.saturating_sub(image.sum());
        let mut takes = |(name, value, file): &(&str, &str, bool)| {
            let len = match file {
                true => self.temp_dir.len() + 1 + name.len(),
                false => value.len(),
            };
            let fits = *file || is_exportable(name, value);
            let after = left.checked_sub(cost(name, len)).filter(|_| fits);
            left = after.unwrap_or(left);
            after.is_some()
        };
        self.variables.iter().map(&mut takes).collect()
    }

    /// Exports in gitlab-runner's order, then what jobs wrote to `GITLAB_ENV`.
    ///
    /// A program is started for what is missing alone: each costs milliseconds, many times that where
    /// the guest is emulated. A trace that shows commands shows gitlab-runner's.
    pub(crate) fn text(&self, shell: Shell, xtrace: bool) -> Vec<u8> {
        let mut body = Vec::new();
        let exported = self.exported();
        let mut before = HashSet::new();
        let known = if xtrace { Known::default() } else { self.shell };
        let named = self.times_named();
        let is_set = |name: &str| {
            known.environment && is_predefined(name) && named.get(name).is_some_and(|n| *n == 1)
        };
        let temp = double(self.temp_dir.as_bytes());
        let there = [b"[ -d \"", temp.as_slice(), b"\" ] || "].concat();
        let unless: &[u8] = if xtrace { b"" } else { &there };
        for ((name, value, file), exported) in self.variables.iter().zip(exported) {
            if !is_name(name) {
                continue;
            }
            if exported && !*file && is_set(name) {
                // Shells tell lines by their numbers, and jobs show them.
                let lines = match shell {
                    Shell::Bash => 1,
                    Shell::Sh => 1 + value.matches('\n').count(),
                };
                body.resize(body.len() + lines, b'\n');
                continue;
            }
            if *file {
                before.insert(*name);
                let path = [&temp, b"/".as_slice(), name.as_bytes()].concat();
                line(&mut body, &[unless, b"mkdir -p \"", &temp, b"\""]);
                let value = shell.word(value.as_bytes());
                line(
                    &mut body,
                    &[b"printf '%s' ", &value, b" > \"", &path, b"\""],
                );
                line(
                    &mut body,
                    &[b"export ", name.as_bytes(), b"=\"", &path, b"\""],
                );
                continue;
            }
            // A larger one would keep every command from starting: the shell alone has it.
            let export: &[u8] = if exported { b"export " } else { b"" };
            if exported {
                before.insert(*name);
            } else if before.contains(name) {
                // What was exported once stays so, whatever it is set to.
                line(&mut body, &[b"unset ", name.as_bytes()]);
            }
            let value = shell.word(value.as_bytes());
            line(&mut body, &[export, name.as_bytes(), b"=", &value]);
        }
        let env = self.env_file();
        if !known.environment || named.contains_key("GITLAB_ENV") {
            let word = shell.word(env.as_bytes());
            line(&mut body, &[b"export GITLAB_ENV=", &word]);
        } else if known.login_shell {
            line(&mut body, &[b"export -n SHELL"]);
        } else {
            body.push(b'\n');
        }
        let env = double(env.as_bytes());
        if known.first {
            // Not `:`, of which a redirection that fails ends some shells with another code.
            line(&mut body, &[b"true > \"", &env, b"\"\n\n"]);
            return body;
        }
        line(&mut body, &[unless, b"mkdir -p \"", &temp, b"\""]);
        if xtrace {
            line(&mut body, &[b"touch \"", &env, b"\""]);
        } else {
            line(
                &mut body,
                &[b"[ -e \"", &env, b"\" ] || printf '' > \"", &env, b"\""],
            );
        }
        // gitlab-runner's name for it, but where it is a variable of the job's, which would be lost.
        let mut read = "line".to_owned();
        while self.variables.iter().any(|(name, ..)| *name == read) {
            read.push('_');
        }
        let read = format!("while read -r {read}; do export \"${read}\"; done < \"");
        line(&mut body, &[read.as_bytes(), &env, b"\""]);
        body
    }

    /// Where jobs write variables for their later scripts: `GITLAB_ENV`.
    pub(crate) fn env_file(&self) -> String {
        format!("{}/gitlab_runner_env", self.temp_dir)
    }

    /// How often each name stands in the list.
    fn times_named(&self) -> HashMap<&str, usize> {
        let mut times = HashMap::new();
        for (name, ..) in &self.variables {
            *times.entry(*name).or_default() += 1;
        }
        times
    }

    /// The same, and into the project's directory.
    pub(crate) fn text_in_project(&self, shell: Shell, xtrace: bool) -> Vec<u8> {
        let mut body = self.text(shell, xtrace);
        line(
            &mut body,
            &[b"cd ", &shell.word(self.project_dir.as_bytes())],
        );
        body
    }
}

/// Whether a variable may be in a command's environment (STAGE-35).
pub(crate) fn is_exportable(name: &str, value: &str) -> bool {
    name.len() + value.len() + 2 <= KERNEL_STRING && !value.contains('\0')
}

/// Whether a name is one of those that GitLab and its runner give their variables, none of which means
/// anything to a shell.
fn is_predefined(name: &str) -> bool {
    let prefixes = ["CI_", "GITLAB_", "FF_"];
    name == "CI" || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// `NAME=value`, its end, and a pointer to it.
fn cost(name: &str, value_len: usize) -> usize {
    name.len() + value_len + 2 + size_of::<usize>()
}

/// A shell's idea of a variable's name.
pub(crate) fn is_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A step's commands, each after a line that shows it. With `sections`, what their names begin with,
/// a command of several lines is shown whole in a section that is folded up (`FF_SCRIPT_SECTIONS`).
pub(crate) fn commands(shell: Shell, lines: &[String], sections: Option<&str>) -> Vec<u8> {
    let mut body = Vec::new();
    for (place, command) in lines.iter().enumerate() {
        let command = command.trim();
        let echo = match (command.split_once('\n'), sections) {
            _ if command.is_empty() => b"echo".to_vec(),
            (Some(_), Some(prefix)) => section(shell, &format!("{prefix}_{place}"), command),
            (Some((first, _)), None) => {
                let shown = format!("$ {first} # collapsed multi-line command");
                shell.echo(paint(GREEN, &shown).as_bytes())
            }
            (None, _) => shell.echo(paint(GREEN, &format!("$ {command}")).as_bytes()),
        };
        line(&mut body, &[&echo]);
        line(&mut body, &[command.as_bytes()]);
    }
    body
}

/// Removes a directory, silently.
pub(crate) fn remove(shell: Shell, dir: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let dir = shell.word(dir.as_bytes());
    line(&mut body, &[b"rm -r -f -- ", &dir]);
    body
}

/// Shows a command in a section of its own, which ends before the command runs.
fn section(shell: Shell, name: &str, command: &str) -> Vec<u8> {
    let shown = shell.word(paint(GREEN, &format!("$ {command}")).as_bytes());
    let start = format!(
        "printf 'section_start:%s:section_{name}[hide_duration=true,collapsed=true]\\r\\033[0K%s\\n' \
         \"$(date +%s)\" "
    );
    let end = format!("\nprintf 'section_end:%s:section_{name}\\r\\033[0K\\n' \"$(date +%s)\"");
    [start.as_bytes(), &shown, end.as_bytes()].concat()
}

/// A whole script.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// The image's shell.
    pub(crate) shell: Shell,
    /// `CI_DEBUG_TRACE`.
    pub(crate) xtrace: bool,
    /// What it does.
    pub(crate) body: Vec<u8>,
}

impl Wrapped {
    /// A line that shows a notice, before what follows.
    pub(crate) fn say(shell: Shell, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        line(&mut body, &[&shell.echo(paint(GREEN, text).as_bytes())]);
        body
    }

    /// What the shell reads on its stdin. The body is one word, so that the shell has all of it
    /// before it begins; its own stdin is empty; SIGTERM ends it without a word.
    pub(crate) fn text(&self) -> Vec<u8> {
        let interpreter = match self.shell {
            Shell::Bash => "bash",
            Shell::Sh => "sh",
        };
        let mut text =
            format!("#!/usr/bin/env {interpreter}\n\ntrap 'exit 1' TERM\n\n").into_bytes();
        if self.xtrace {
            text.extend_from_slice(b"set -o xtrace\n");
        }
        // Bash has it, and asking takes a process.
        let pipefail: &[u8] = if self.shell == Shell::Bash && !self.xtrace {
            b"set -o pipefail; set -o errexit\n"
        } else {
            b"case \"$(set -o)\" in *\"pipefail\"*) set -o pipefail;; esac; set -o errexit\n"
        };
        text.extend_from_slice(pipefail);
        text.extend_from_slice(b"set +o noclobber\n");
        let body = self.shell.word(&self.body);
        line(
            &mut text,
            &[b"(trap 'exit 1' TERM; eval ", &body, b") < /dev/null"],
        );
        text.extend_from_slice(b"exit 0\n");
        text
    }
}

fn line(to: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        to.extend_from_slice(part);
    }
    to.push(b'\n');
}
