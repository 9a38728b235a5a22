//! Jobs in VMs: from the node's receipt of `start` to the script's first line, by its stamp.
//!
//! Against the bare boot (QEMU's start to its exit, the same kernel and machine, an init that powers off
//! at once): without sources, and with those of a project whose mirror the node has. Against the host's
//! own git: with those of a large repository of which one file changed since the job before.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::fleet::{Fleet, Guests};
use crate::lab::{self, Lab};
use crate::program::run;
use crate::table::{Figure, Row, samples};

/// How often each start is measured. On a noisy machine the ratio of two medians of eleven is off by
/// more than the limit leaves room for.
const TIMES: usize = 31;
/// How often the large repository's is.
const TIMES_LARGE: usize = 7;
/// The ratios at most.
const WITHOUT_SOURCES: f64 = 1.35;
const WITH_SOURCES: f64 = 1.6;
const LARGE: f64 = 1.0;
/// The machine of jobs and bare boots.
const CPUS: &str = "1";
const MEMORY_MIB: &str = "512";
/// The image of the jobs.
const IMAGE: &str = "debian";
/// The large repository: files, and bytes of each.
const FILES: usize = 5_000;
const FILE_BYTES: usize = 100_000;

/// One fleet with a project, and the jobs that went through it.
struct Bench {
    root: std::path::PathBuf,
    lab: Lab,
    fleet: Fleet,
    _daemon: Daemon,
}

impl Bench {
    fn start(root: &Path, dir: &Path, project: &Path) -> anyhow::Result<Bench> {
        let lab = Lab::serve(&root.join("bin"), dir, project)?;
        let fleet = Fleet::start(root, dir, Guests::Machines(IMAGE))?;
        let token = fleet.token(&["--kind", "gitlab"])?;
        let hub = (fleet.url.as_str(), token.as_str());
        let daemon = Daemon::start(&root.join("bin"), dir, &lab, hub, (1, 1))?;
        Ok(Bench {
            root: root.to_owned(),
            lab,
            fleet,
            _daemon: daemon,
        })
    }

    /// Runs one job; from the receipt of its start to its script's first line, in milliseconds.
    fn job(&self, variables: &Value, script: &str) -> anyhow::Result<u64> {
        let job = json!({ "name": "job", "script": [script], "variables": variables });
        let pipeline = self.lab.trigger_jobs(&[job])?;
        let id = self.lab.ended(pipeline)?["id"].as_u64();
        let id = id.context("the job's number")?;
        let received: BTreeMap<u64, u64> = self.fleet.received()?;
        let received = received.get(&id);
        let received = received.with_context(|| format!("the node does not show job {id}"))?;
        let trace = self.lab.trace(id)?;
        let written = first_line(&trace);
        let written = written.with_context(|| format!("no first line in the log\n{trace}"))?;
        Ok(written.saturating_sub(*received))
    }

    /// Boots once, bare; milliseconds.
    fn bare(&self) -> anyhow::Result<u64> {
        let mut command = Command::new(self.root.join("bin/vk"));
        command.args(["guest", "boot", "--bare", "--cpus", CPUS]);
        command.args(["--memory", MEMORY_MIB, "--bundle"]);
        let said = run(command.arg(self.root.join("guest")))?;
        // `qemu under TCG: 1234 ms from its start to its exit`
        let (_, rest) = said.split_once(": ").unwrap_or_default();
        let number = rest.split_once(" ms").map(|(number, _)| number.parse());
        match number {
            Some(Ok(number)) => Ok(number),
            _ => bail!("vk guest boot says {said:?}"),
        }
    }
}

/// When the script's first line was written: Unix milliseconds, by the stamp before it.
fn first_line(trace: &str) -> Option<u64> {
    let line = trace.lines().find(|line| line.ends_with("first-line"))?;
    let stamp: jiff::Timestamp = line.get(..27)?.parse().ok()?;
    u64::try_from(stamp.as_millisecond()).ok()
}

const SCRIPT: &str = "echo first-line";

pub(crate) fn measure(root: &Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = small(root)?;
    rows.push(large(root)?);
    Ok(rows)
}

/// A project of one small file.
fn small(root: &Path) -> anyhow::Result<Vec<Row>> {
    let dir = tempfile::tempdir_in(root.join("work"))?;
    let project = dir.path().join("project");
    fs::create_dir(&project)?;
    fs::write(project.join("file"), "what the project holds\n")?;
    lab::git(&project, &["init", "--quiet", "--initial-branch=main"])?;
    lab::commit(&project)?;
    let bench = Bench::start(root, dir.path(), &project)?;
    // The host's caches are warm, the mirror is there, and how this host boots is known.
    bench.job(&json!({}), SCRIPT)?;
    let (mut without, mut with, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=TIMES {
        floor.push(bench.bare()?);
        without.push(bench.job(&json!({ "GIT_STRATEGY": "none" }), SCRIPT)?);
        with.push(bench.job(&json!({}), "test -f file && echo first-line")?);
        let last = |all: &[u64]| all.last().copied().unwrap_or_default();
        eprintln!(
            "start {number} of {TIMES}: {} ms without sources, {} ms with, bare boot {} ms",
            last(&without),
            last(&with),
            last(&floor),
        );
    }
    bench.lab.check()?;
    let row = |name, measured: &[u64], limit| Row {
        name,
        unit: "ms",
        figure: Figure::Pairs,
        measured: samples(measured),
        floor: Some(samples(&floor)),
        limit,
        on: "QEMU on this machine".to_owned(),
    };
    Ok(vec![
        row(
            "start to the script's first line, no sources ÷ bare boot",
            &without,
            WITHOUT_SOURCES,
        ),
        row(
            "the same with a warm mirror ÷ bare boot",
            &with,
            WITH_SOURCES,
        ),
    ])
}

/// A large repository, of which one file changes before each job.
fn large(root: &Path) -> anyhow::Result<Row> {
    let dir = tempfile::tempdir_in(root.join("work"))?;
    let project = dir.path().join("project");
    fs::create_dir(&project)?;
    let mut text = Text(0x9e37_79b9_7f4a_7c15);
    for number in 0..FILES {
        let below = project.join(format!("part-{}", number / 100));
        fs::create_dir_all(&below)?;
        let mut file = fs::File::create(below.join(format!("file-{number}")))?;
        file.write_all(&text.bytes(FILE_BYTES))?;
    }
    lab::git(&project, &["init", "--quiet", "--initial-branch=main"])?;
    lab::commit(&project)?;
    // As a GitLab server's housekeeping leaves its repositories. Loose, each object would be packed anew
    // for the first job: the server's time, and most of that job's.
    lab::git(&project, &["repack", "-a", "-d", "--quiet", "--window=0"])?;
    let bench = Bench::start(root, dir.path(), &project)?;
    let took = bench.job(&json!({}), SCRIPT)?;
    eprintln!("the first job of a large repository: {took} ms");
    let (mut measured, mut floor) = (Vec::new(), Vec::new());
    for number in 1..=TIMES_LARGE {
        let changed = project.join("part-7/file-700");
        fs::write(&changed, text.bytes(FILE_BYTES))?;
        lab::commit(&project)?;
        measured.push(bench.job(&json!({}), "test -f part-7/file-700 && echo first-line")?);
        floor.push(clone(
            &project,
            &dir.path().join(format!("clone-{number}")),
        )?);
        eprintln!(
            "large {number}: {} ms, the host's git {} ms",
            measured.last().copied().unwrap_or_default(),
            floor.last().copied().unwrap_or_default(),
        );
    }
    bench.lab.check()?;
    Ok(Row {
        name: "start to the tree of 500 MB, one file changed ÷ git clone --shared, git checkout",
        unit: "ms",
        figure: Figure::Pairs,
        measured: samples(&measured),
        floor: Some(samples(&floor)),
        limit: LARGE,
        on: "QEMU on this machine".to_owned(),
    })
}

/// The host's own way to such a tree; milliseconds.
fn clone(project: &Path, to: &Path) -> anyhow::Result<u64> {
    let from = Instant::now();
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--shared", "--no-checkout"]);
    run(git.arg(project).arg(to))?;
    lab::git(to, &["checkout", "--quiet"])?;
    let took = from.elapsed().as_millis();
    fs::remove_dir_all(to)?;
    Ok(u64::try_from(took).unwrap_or(u64::MAX))
}

/// Words that look like a source's: they compress as those do. The same in each run.
struct Text(u64);

impl Text {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "let ", "fn ", "value", "self.", "(", ")", " = ", ";\n", "    ", "match ", "->", "::",
            "Some", "error", "{\n", "}\n",
        ];
        let mut bytes = Vec::with_capacity(length + 16);
        while bytes.len() < length {
            // Marsaglia's xorshift.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            let at = usize::try_from(self.0 % 16).unwrap_or_default();
            bytes.extend_from_slice(WORDS.get(at).copied().unwrap_or_default().as_bytes());
            if self.0 & 0x70 == 0 {
                bytes.extend_from_slice(format!("{:x}", self.0 >> 32).as_bytes());
            }
        }
        bytes.truncate(length);
        bytes
    }
}
