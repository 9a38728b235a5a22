//! What a program needs to be able to start: itself, its loader, its libraries.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::error::ConfineError;
use super::program::Place;
use crate::elf;

/// The start of a program in which its headers lie.
const HEAD: u64 = 64 * 1024;
/// The loader lists a program's libraries in milliseconds.
const LISTING: Duration = Duration::from_secs(10);
/// A cache by which the loader finds libraries outside its built-in directories.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Every file that `program` and the things it loads (`also`) need in their view.
///
/// A script needs its interpreter. Libraries are those the program's own loader finds with an empty
/// environment, at the paths where it finds them.
///
/// # Errors
/// [`ConfineError::Needs`] for what is no program, or one whose libraries are not all there.
pub async fn needed_by(program: &Path, also: &[PathBuf]) -> Result<Vec<Place>, ConfineError> {
    let mut files = BTreeSet::from([program.to_owned()]);
    let head = head(program)?;
    let (subject, head) = match script_interpreter(&head) {
        Some(interpreter) => {
            files.insert(interpreter.clone());
            let of_interpreter = self::head(&interpreter)?;
            (interpreter, of_interpreter)
        }
        None => (program.to_owned(), head),
    };
    let failed = |why: &str| ConfineError::Needs {
        program: subject.clone(),
        why: why.to_owned(),
    };
    if !elf::is_elf(&head) {
        return Err(failed("it is neither a 64-bit program nor a script"));
    }
    if let Some(loader) = elf::interpreter(&head) {
        files.insert(PathBuf::from(loader));
        for listed in [&subject].into_iter().chain(also) {
            files.extend(libraries(loader, listed).await?);
        }
        if Path::new(LOADER_CACHE).exists() {
            files.insert(PathBuf::from(LOADER_CACHE));
        }
    }
    files.extend(also.iter().cloned());
    Ok(files.into_iter().map(Place::read).collect())
}

fn head(program: &Path) -> Result<Vec<u8>, ConfineError> {
    let mut head = Vec::new();
    File::open(program)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(|e| ConfineError::Needs {
            program: program.to_owned(),
            why: e.to_string(),
        })?;
    Ok(head)
}

/// The interpreter in a script's first line.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let word = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    word.starts_with('/').then(|| PathBuf::from(word))
}

async fn libraries(loader: &str, program: &Path) -> Result<Vec<PathBuf>, ConfineError> {
    let failed = |why: String| ConfineError::Needs {
        program: program.to_owned(),
        why,
    };
    let mut listing = Command::new(loader);
    listing
        .arg("--list")
        .arg(program)
        .env_clear()
        .kill_on_drop(true);
    let output = tokio::time::timeout(LISTING, listing.output())
        .await
        .map_err(|_| failed(format!("{loader} --list does not end")))?
        .map_err(|e| failed(format!("{loader} --list: {e}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(format!("{loader} --list: {said}")));
    }
    parse_listing(&String::from_utf8_lossy(&output.stdout)).map_err(failed)
}

/// The paths in a loader's listing; a library that was not found is an error.
fn parse_listing(listing: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in listing.lines().map(str::trim) {
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        if place.starts_with("not found") {
            return Err(format!("a library is missing: {line}"));
        }
        let path = place.rsplit_once(" (").map_or(place, |(path, _)| path);
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_names_each_library_and_the_loader() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                       \tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = parse_listing(listing).unwrap();
        let expected = [
            "/lib/x86_64-linux-gnu/libz.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(
            parse_listing("\tlibx.so.1 => not found\n")
                .unwrap_err()
                .contains("libx.so.1")
        );
    }

    #[test]
    fn a_script_needs_its_interpreter() {
        assert_eq!(
            script_interpreter(b"#! /bin/sh -e\necho"),
            Some(PathBuf::from("/bin/sh"))
        );
        assert_eq!(script_interpreter(b"#!sh\n"), None);
        assert_eq!(script_interpreter(b"\x7fELF"), None);
    }

    #[tokio::test]
    async fn a_dynamic_program_needs_its_loader_and_libraries() {
        let shell = std::fs::canonicalize("/bin/sh").unwrap();
        let places = needed_by(&shell, &[]).await.unwrap();
        let named = |part: &str| {
            places
                .iter()
                .any(|place| place.path.to_string_lossy().contains(part))
        };
        assert!(named("/ld-linux") && named("libc.so"), "{places:?}");
        assert!(places.contains(&Place::read(shell)));
    }
}
