//! The program that lists inodes, as a layer: itself, its loader and its libraries in one folder, so
//! that it runs in any image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::entry::{Entry, Kind, layer};

/// Where it lies in the image.
pub(crate) const FOLDER: &str = "inspect";
const PROGRAM: &str = "inode-list";
/// The loader of every dynamic program on this platform.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The layer.
pub(crate) fn inspector(root: &Path) -> Vec<u8> {
    let program = root.join("bin").join(PROGRAM);
    let mut entries = vec![Entry::new(FOLDER, Kind::Dir)];
    let mut add = |name: &str, path: &Path| {
        let content = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.push(Entry::file(format!("{FOLDER}/{name}"), content).mode(0o755));
    };
    add(PROGRAM, &program);
    add("loader", Path::new(LOADER));
    for library in libraries(&program) {
        add(library.file_name().unwrap().to_str().unwrap(), &library);
    }
    layer(&entries)
}

/// What the loader finds for a program: `libc.so.6 => /lib/libc.so.6 (0x…)`, a line each.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new(LOADER)
        .arg("--list")
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.status.success(),
        "{LOADER} --list {}: {text}",
        program.display()
    );
    let found = text.lines().filter_map(|line| line.split_once(" => "));
    found
        .map(|(_, path)| PathBuf::from(path.split(" (").next().unwrap()))
        .collect()
}

/// The shell command that lists the tree at `/` into a file of the job's directory.
pub(crate) fn command(whole: bool, into: &str) -> String {
    let flag = if whole { "--whole " } else { "" };
    format!("/{FOLDER}/loader --library-path /{FOLDER} /{FOLDER}/{PROGRAM} {flag}/ > {into}")
}
