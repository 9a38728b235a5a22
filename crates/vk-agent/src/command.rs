//! The command line, for all but a machine's init.

use std::ffi::OsStr;
use std::io::{BufReader, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use vk_guest_proto::{Failure, Note, NoteCode, TarIn, TarOut};

use crate::archive::{archive_to, extract_from};
use crate::context::shown;
use crate::control::Over;
use crate::dial::Address;
use crate::fault::log;
use crate::process;

/// What the program is to be.
#[derive(Debug)]
pub enum Command {
    /// A machine's init.
    Init,
    /// The agent as a process.
    Process(process::Arguments),
    /// Files below a directory as a tar on standard output (GUEST-08).
    Archive(TarOut),
    /// The tar on standard input, into a directory (GUEST-08).
    Extract(TarIn),
    /// The version.
    Version,
}

const USAGE: &str =
    "usage: vk-agent process --dial vsock:CID:PORT|unix:PATH --secret FILE|- --state DIR
       vk-agent archive ROOT [--untracked] [--exclude GLOB]… [--] GLOB…
       vk-agent extract ROOT
       vk-agent --version";

/// Reads the command line, the program's own name first. The kernel gives its init words that are
/// not for it, so process 1 is init unless the first word says otherwise.
///
/// # Errors
/// What is wrong with it, and how it is used.
pub fn parse(arguments: &[Vec<u8>], init: bool) -> Result<Command, String> {
    let mut rest = arguments.iter().skip(1).map(Vec::as_slice);
    let command = rest.next();
    let parsed = match command {
        Some(b"process") => process_arguments(rest),
        Some(b"archive") => archive_arguments(rest),
        Some(b"extract") => extract_arguments(rest),
        _ if init => Ok(Command::Init),
        Some(b"--version") => Ok(Command::Version),
        Some(other) => Err(format!("{} is no command", shown(other))),
        None => Err("no command".into()),
    };
    parsed.map_err(|why| format!("{why}\n{USAGE}"))
}

fn value<'a>(option: &[u8], value: Option<&'a [u8]>) -> Result<&'a [u8], String> {
    value.ok_or_else(|| format!("{} has no value", shown(option)))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn process_arguments<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> Result<Command, String> {
    let (mut dial, mut secret, mut state) = (None, None, None);
    while let Some(option) = rest.next() {
        let given = value(option, rest.next())?;
        match option {
            b"--dial" => {
                let address = Address::parse(given);
                dial = Some(address.ok_or_else(|| format!("{} is no address", shown(given)))?);
            }
            b"--secret" => secret = Some(path(given)),
            b"--state" => state = Some(path(given)),
            _ => return Err(format!("{} is no option of process", shown(option))),
        }
    }
    match (dial, secret, state) {
        (Some(dial), Some(secret), Some(state)) => Ok(Command::Process(process::Arguments {
            dial,
            secret,
            state,
        })),
        _ => Err("process needs --dial, --secret and --state".into()),
    }
}

/// A directory's path, made absolute.
fn root(given: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let given = given.ok_or("no directory")?;
    let whole = std::path::absolute(path(given)).map_err(|error| error.to_string())?;
    Ok(whole.into_os_string().as_bytes().to_vec())
}

fn archive_arguments<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> Result<Command, String> {
    let mut tar = TarOut {
        root: root(rest.next())?,
        paths: Vec::new(),
        exclude: Vec::new(),
        untracked: false,
        list_only: false,
    };
    let mut options = true;
    while let Some(word) = rest.next() {
        match word {
            b"--" if options => options = false,
            b"--untracked" if options => tar.untracked = true,
            b"--exclude" if options => tar.exclude.push(value(word, rest.next())?.to_vec()),
            [b'-', b'-', ..] if options => {
                return Err(format!("{} is no option of archive", shown(word)));
            }
            glob => tar.paths.push(glob.to_vec()),
        }
    }
    Ok(Command::Archive(tar))
}

fn extract_arguments<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> Result<Command, String> {
    let root = root(rest.next())?;
    match rest.next() {
        None => Ok(Command::Extract(TarIn {
            root,
            owner: Vec::new(),
            max_entries: u64::MAX,
            max_bytes: u64::MAX,
        })),
        Some(word) => Err(format!("{} is too much for extract", shown(word))),
    }
}

/// Does what the command line says.
#[must_use]
pub fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Init => crate::boot::run(),
        Command::Process(arguments) => process::run(arguments).map(|over| {
            if let Over::HostGone(why) = over {
                log(&why);
            }
        }),
        Command::Archive(tar) => archive(&tar),
        Command::Extract(tar) => {
            let from = BufReader::with_capacity(64 * 1024, std::io::stdin().lock());
            extract_from(&tar, from, &mut tell).map(|_| ())
        }
        Command::Version => {
            use std::io::Write;
            // A closed output has no reader to tell.
            let _ = writeln!(std::io::stdout(), "vk-agent {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log(&failure.message);
            ExitCode::FAILURE
        }
    }
}

fn archive(tar: &TarOut) -> Result<(), Failure> {
    let out = BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
    archive_to(tar, out, &mut tell).map(|_| ())
}

/// A note as a line for a person.
fn tell(note: Note) {
    let Note {
        code,
        subject,
        count,
        text,
    } = note;
    let subject = shown(&subject);
    let line = match code {
        NoteCode::Matched => format!("{subject}: found {count} matching files and directories"),
        NoteCode::NoMatch => format!("{subject}: no matching files"),
        NoteCode::EmptyPattern => "no matching files: the pattern is empty".into(),
        NoteCode::PathOutside => format!("{subject}: outside the directory {text}"),
        NoteCode::ExcludeOutside => format!("{subject}: an exclude outside the directory"),
        NoteCode::Excluded => format!("{subject}: excluded {count} files"),
        NoteCode::Untracked => format!("untracked: found {count} files"),
        NoteCode::UntrackedUnknown => format!("untracked: {text}"),
        NoteCode::FileIgnored => format!("{subject}: left out: {text}"),
        NoteCode::InsideGit => format!("{subject}: part of .git"),
        NoteCode::EntrySkipped => format!("{subject}: not extracted: {text}"),
        NoteCode::FileChanged => format!("{subject}: changed while it was read {text}"),
        NoteCode::More => format!("and {count} more such lines"),
        NoteCode::Other => format!("{subject}: {text}"),
    };
    log(line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str], init: bool) -> Result<Command, String> {
        let words = ["vk-agent"].iter().chain(line);
        parse(
            &words
                .map(|word| word.as_bytes().to_vec())
                .collect::<Vec<_>>(),
            init,
        )
    }

    /// GUEST-08
    #[test]
    fn an_archive_takes_globs_after_its_options() {
        let line = [
            "archive",
            "/r",
            "--untracked",
            "--exclude",
            "*.o",
            "--",
            "--untracked",
            "out/**",
        ];
        let Ok(Command::Archive(tar)) = parsed(&line, false) else {
            panic!()
        };
        assert_eq!(tar.root, b"/r");
        assert!(tar.untracked);
        assert_eq!(tar.exclude, [b"*.o".to_vec()]);
        assert_eq!(tar.paths, [b"--untracked".to_vec(), b"out/**".to_vec()]);
        assert!(
            matches!(parsed(&["extract", "/r"], false), Ok(Command::Extract(tar)) if tar.root == b"/r")
        );
    }

    #[test]
    fn process_one_is_init_unless_it_is_told_otherwise() {
        assert!(matches!(parsed(&[], true), Ok(Command::Init)));
        assert!(matches!(
            parsed(&["splash", "--version"], true),
            Ok(Command::Init)
        ));
        let line = [
            "process", "--dial", "unix:/s", "--secret", "-", "--state", "/d",
        ];
        assert!(matches!(parsed(&line, true), Ok(Command::Process(_))));
        assert!(matches!(
            parsed(&["--version"], false),
            Ok(Command::Version)
        ));
    }

    #[test]
    fn a_line_that_cannot_be_meant_says_how_it_is_used() {
        for line in [
            &[][..],
            &["fly"][..],
            &["archive"][..],
            &["archive", "/r", "--exclude"][..],
            &["archive", "/r", "--fast"][..],
            &["extract", "/r", "x"][..],
            &["process", "--dial", "unix:/s"][..],
            &[
                "process", "--dial", "tcp:1", "--secret", "-", "--state", "/d",
            ][..],
        ] {
            let why = parsed(line, false).unwrap_err();
            assert!(why.contains("usage: "), "{line:?}: {why}");
        }
    }
}
