//! The clippy law of pure crates. Clippy reads the nearest `clippy.toml` up from a crate's folder
//! and no other, so each pure crate holds a copy of one template, and this keeps the copies equal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Breach;
use super::purity::PURE;
use crate::workspace::{self, Metadata};

/// What each pure crate's `clippy.toml` holds, after the workspace's own.
const TEMPLATE: &str = include_str!("pure-clippy.toml");

/// The workspace's own `clippy.toml`, then the template.
fn expected(root: &Path) -> Result<String> {
    let path = root.join("clippy.toml");
    let own = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(format!(
        "{TEMPLATE}\n# The same as in the workspace's own clippy.toml:\n{own}"
    ))
}

fn copies<'a>(root: &'a Path, metadata: &'a Metadata) -> impl Iterator<Item = PathBuf> + 'a {
    let exists = |name: &&&str| metadata.member(name).is_some();
    PURE.iter()
        .filter(exists)
        .map(|name| root.join("crates").join(name).join("clippy.toml"))
}

/// Writes every copy anew.
pub(crate) fn write(root: &Path, metadata: &Metadata) -> Result<()> {
    let text = expected(root)?;
    for copy in copies(root, metadata) {
        fs::write(&copy, &text).with_context(|| format!("writing {}", copy.display()))?;
    }
    Ok(())
}

/// Compares every copy.
pub(crate) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Breach>> {
    let text = expected(root)?;
    let differs = |copy: &PathBuf| fs::read_to_string(copy).map_or(true, |found| found != text);
    let breach = |copy: PathBuf| {
        let what = "not what the template says: run `cargo run -p xtask -- check --write`";
        Breach::in_file(copy.strip_prefix(root).unwrap_or(&copy), what)
    };
    Ok(copies(root, metadata).filter(differs).map(breach).collect())
}

/// Every path the template bans, with the reason it gives.
fn bans(template: &str) -> Vec<&str> {
    let lines = template
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("{ path = \""));
    lines.filter_map(|line| line.split('"').nth(1)).collect()
}

/// One use of each ban: a path taken as a value, or a type named.
fn probe_source(template: &str) -> String {
    let mut text = String::from("//! Breaks every ban once.\n#![allow(unused, deprecated)]\n");
    for (index, ban) in bans(template).into_iter().enumerate() {
        let last = ban.rsplit("::").next().unwrap_or(ban);
        if last.chars().next().is_some_and(char::is_uppercase) {
            text.push_str(&format!("pub type T{index} = {ban};\n"));
        } else {
            text.push_str(&format!(
                "pub fn f{index}() {{ let _ = {}; }}\n",
                as_value(ban)
            ));
        }
    }
    text
}

/// A function's path as an expression; a generic one needs its types said.
fn as_value(ban: &str) -> String {
    let types = match ban {
        "std::fs::copy" | "std::fs::hard_link" | "std::fs::rename" | "std::fs::write" => {
            "::<&str, &str>"
        }
        "std::thread::spawn" => "::<fn(), ()>",
        "std::process::Command::new" | "std::env::set_current_dir" => "::<&str>",
        "std::env::var" | "std::env::var_os" => "::<&str>",
        _ if ban.starts_with("std::fs::") => "::<&str>",
        _ => "",
    };
    format!("{ban}{types}")
}

/// Breaks each ban once in a crate made for it, and has clippy say so for each.
pub(crate) fn probe(root: &Path, metadata: &Metadata) -> Result<Vec<Breach>> {
    let dir = metadata.target_directory.join("clippy-probe");
    let source = probe_source(TEMPLATE);
    fs::create_dir_all(dir.join("src")).with_context(|| format!("making {}", dir.display()))?;
    let manifest = "[package]\nname = \"clippy-probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                    [workspace]\n";
    let files = [
        ("Cargo.toml", manifest),
        ("src/lib.rs", &source),
        ("clippy.toml", &expected(root)?),
    ];
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    // A file's time may be no newer than the last probe's: what clippy remembers must go.
    let _ = fs::remove_dir_all(dir.join("target"));
    let mut command: Command = workspace::cargo(&dir);
    command
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .args([
            "clippy",
            "--quiet",
            "--offline",
            "--",
            "--warn",
            "clippy::disallowed_methods",
            "--warn",
            "clippy::disallowed_types",
        ]);
    let output = command.output().context("starting cargo clippy")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("the crate that breaks every ban does not compile:\n{said}");
    }
    Ok(silent(TEMPLATE, &said))
}

/// The bans that clippy did not report.
fn silent(template: &str, said: &str) -> Vec<Breach> {
    let file = Path::new("crates/xtask/src/law/pure-clippy.toml");
    let reported = |ban: &&str| {
        said.contains(&format!("use of a disallowed method `{ban}`"))
            || said.contains(&format!("use of a disallowed type `{ban}`"))
    };
    let breach = |ban| Breach::in_file(file, format!("clippy does not report {ban}"));
    bans(template)
        .into_iter()
        .filter(|ban| !reported(ban))
        .map(breach)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_bans_clocks_files_sockets_and_environment() {
        let bans = bans(TEMPLATE);
        for expected in [
            "std::time::Instant::now",
            "std::time::SystemTime::now",
            "std::fs::read",
            "std::fs::File",
            "std::net::TcpStream",
            "std::env::var",
        ] {
            assert!(bans.contains(&expected), "{expected} is not banned");
        }
        let entries = TEMPLATE
            .lines()
            .filter(|line| line.trim().starts_with('{'))
            .count();
        let reasons = TEMPLATE.matches("reason = \"").count();
        assert_eq!(
            (entries, reasons),
            (bans.len(), bans.len()),
            "every ban has a reason"
        );
    }

    #[test]
    fn a_ban_that_clippy_does_not_report_is_a_breach() {
        let template = "{ path = \"std::fs::read\", reason = \"x\" },\n\
                        { path = \"std::fs::File\", reason = \"x\" },";
        let said = "warning: use of a disallowed method `std::fs::read`\n";
        let found = silent(template, said);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("std::fs::File"));
    }

    #[test]
    fn a_copy_that_differs_is_a_breach() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("crates/vk-step");
        fs::create_dir_all(&folder).unwrap();
        fs::write(dir.path().join("clippy.toml"), "a = true\n").unwrap();
        let text = format!(
            r#"{{"packages": [{{"id": "a", "name": "vk-step", "manifest_path": {:?}}}],
                "workspace_members": ["a"], "target_directory": "/x"}}"#,
            folder.join("Cargo.toml")
        );
        let metadata = Metadata::parse(&text).unwrap();
        assert_eq!(
            check(dir.path(), &metadata).unwrap().len(),
            1,
            "a missing copy"
        );
        write(dir.path(), &metadata).unwrap();
        assert!(check(dir.path(), &metadata).unwrap().is_empty());
        fs::write(folder.join("clippy.toml"), "a = true\n").unwrap();
        assert_eq!(
            check(dir.path(), &metadata).unwrap().len(),
            1,
            "a copy without bans"
        );
    }
}
