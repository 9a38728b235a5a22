//! `vk node gc`: what nobody needs any more.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use vk_driver::collect_sources;
use vk_image::{Bounds, Keep, Store};
use vk_node::gc;
use vk_node::state_dir::StateDir;

use super::Place;
use super::images::StoreSettings;
use super::show::line;
use super::vmm::SourceSettings;
use crate::owner::refuse_other_users;

pub(super) const EXAMPLES: &str = "Examples:
  vk node gc --dry-run               # what would go, and how much that is
  vk node gc --unused-for 7          # also what was not used for a week";

/// A day.
const DAY: Duration = Duration::from_secs(86_400);
/// What commands of this program make where temporary files go.
const TEMPORARY: [&str; 3] = ["vk-probe-", "vk-check-", "vk-boot-"];
/// Files of one of them that are looked at.
const FILES: usize = 100_000;

/// Arguments of `vk node gc`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only tell what would go.
    #[arg(long)]
    dry_run: bool,
    /// Days without use after which images, mirrors, LFS files and kept trees go.
    #[arg(long, value_name = "DAYS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(0..=3650))]
    unused_for: u32,
    /// Days that directories of jobs stay which the node does not know; an hour at least.
    #[arg(long, value_name = "DAYS", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(0..=3650))]
    jobs_for: u32,
    /// As JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// What went of one kind.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    count: u64,
    bytes: u64,
}

/// What was done, or would be.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    removed: Vec<Row>,
    bytes: u64,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let config = arguments.place.config()?;
    let state = StateDir::look(&config.state_dir)?;
    refuse_other_users(state.root(), "vk node gc")?;
    let bounds = SourceSettings::of(&config).bounds(state.root());
    let really = !arguments.dry_run;
    let unused = arguments.unused_for * DAY;
    let jobs = gc::jobs(&state, arguments.jobs_for * DAY, really).await?;
    let runs = gc::past_runs(&state, really)?;
    let mirrors = state.root().join("mirrors");
    let sources =
        tokio::task::spawn_blocking(move || collect_sources(&mirrors, bounds, unused, really));
    let sources = sources.await?;
    let of = StoreSettings::of(config.image_store).bounds(state.root());
    let images = images(&state.root().join("images"), of, unused, really)?;
    let temporary = temporary(&std::env::temp_dir(), really)?;
    let row = |what, count, bytes| Row { what, count, bytes };
    let of = |what, gone: vk_driver::Gone| row(what, gone.count, gone.bytes);
    let leftovers = sources.leftovers;
    report(
        &arguments,
        vec![
            row("job directories", jobs.count, jobs.bytes),
            row("images", images.count, images.bytes),
            of("mirrors with their LFS files", sources.mirrors),
            of("LFS files", sources.objects),
            of("kept trees", sources.trees),
            row("figures of past runs", runs.count, runs.bytes),
            row(
                "leftovers of dead processes",
                leftovers.count + temporary.count,
                leftovers.bytes + temporary.bytes,
            ),
        ],
    )
}

fn images(
    dir: &Path,
    bounds: Bounds,
    unused: Duration,
    really: bool,
) -> anyhow::Result<gc::Removed> {
    if !dir.exists() {
        return Ok(gc::Removed::default());
    }
    let store = Store::open(dir).context("cannot open the image store")?;
    let store = store.bounded(bounds);
    let keep = Keep {
        used_within: Some(unused),
    };
    let gone = match really {
        true => store.collect(keep)?,
        false => store.unwanted(keep)?,
    };
    Ok(gc::Removed {
        count: gone.images,
        bytes: gone.bytes,
    })
}

/// Directories of this user's commands that died a day ago and more.
fn temporary(dir: &Path, really: bool) -> anyhow::Result<gc::Removed> {
    let mut removed = gc::Removed::default();
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = |name: &str| TEMPORARY.iter().any(|begin| name.starts_with(begin));
        let Ok(of) = entry.metadata() else { continue };
        if !name.to_str().is_some_and(ours) || !of.is_dir() || of.uid() != user {
            continue;
        }
        let age = of.modified().map(|at| SystemTime::now().duration_since(at));
        if !age.is_ok_and(|age| age.is_ok_and(|age| age > DAY)) {
            continue;
        }
        removed.bytes += bytes(entry.path());
        removed.count += 1;
        if really {
            vk_node::durable::remove_tree(&entry.path())?;
        }
    }
    Ok(removed)
}

fn bytes(dir: PathBuf) -> u64 {
    let (mut waiting, mut left, mut sum) = (vec![dir], FILES, 0);
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(of) = entry.metadata() else { continue };
            sum += of.blocks() * 512;
            let Some(fewer) = left.checked_sub(1) else {
                return sum;
            };
            left = fewer;
            if of.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    sum
}

fn report(arguments: &Arguments, removed: Vec<Row>) -> anyhow::Result<()> {
    let bytes = removed.iter().map(|row| row.bytes).sum();
    if arguments.json {
        let report = Report {
            dry_run: arguments.dry_run,
            removed,
            bytes,
        };
        return line(format_args!("{}", serde_json::to_string_pretty(&report)?));
    }
    let what = match arguments.dry_run {
        true => "WOULD FREE",
        false => "FREED",
    };
    line(format_args!("{:<28}  {:>7}  {what:>12}", "WHAT", "COUNT"))?;
    for Row { what, count, bytes } in &removed {
        line(format_args!("{what:<28}  {count:>7}  {:>12}", size(*bytes)))?;
    }
    line(format_args!(
        "{:<28}  {:>7}  {:>12}",
        "in all",
        "",
        size(bytes)
    ))
}

fn size(bytes: u64) -> String {
    match bytes {
        0 => "–".to_owned(),
        1..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_that_died_left_goes_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, days: u32| {
            let path = dir.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("disk"), vec![1; 9000]).unwrap();
            let opened = std::fs::File::open(&path).unwrap();
            opened.set_modified(SystemTime::now() - days * DAY).unwrap();
            path
        };
        let (old, young, other) = (
            made("vk-probe-a", 2),
            made("vk-probe-b", 0),
            made("other", 9),
        );
        let would = temporary(dir.path(), false).unwrap();
        assert!(old.exists());
        let did = temporary(dir.path(), true).unwrap();
        assert_eq!((would, did.count), (did, 1));
        assert!(did.bytes >= 9000);
        assert!(!old.exists() && young.exists() && other.exists());
    }
}
