//! What past runs of a job used, for what is set aside for its next one (ADM-33).
//!
//! One file for each job of a project: `history/<project>-<path>-<digest>/<job>-<digest>`, a line a
//! run. A job's process adds its own line, so that runs count that ended while no daemon ran. It is
//! advice, not a record: nothing of it is synced, and a line that makes no sense is passed over.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::job::{CiJob, JobResult};
use vk_node_core::sizing::PastRun;

use crate::durable::{FileError, private_dir, write_private};

/// Runs of one job that are kept.
const RUNS: usize = 1000;
/// A file longer than this is cut to its last runs.
const CUT_BYTES: u64 = 64 << 10;
/// Bytes that are read of a file's end.
const READ_BYTES: u64 = 2 * CUT_BYTES;
/// Characters of a name that are shown in a file's name.
const SHOWN: usize = 40;

/// The past runs that a node keeps.
#[derive(Clone, Debug)]
pub struct PastRuns {
    dir: PathBuf,
}

/// The past runs of one job of one project.
#[derive(Clone, Debug)]
pub struct OfJob {
    file: PathBuf,
}

impl PastRuns {
    /// Those kept in a directory, which need not be there yet.
    #[must_use]
    pub const fn in_dir(dir: PathBuf) -> PastRuns {
        PastRuns { dir }
    }

    /// Those of a job: by its server, its project and its name.
    #[must_use]
    pub fn of(&self, job: &CiJob) -> OfJob {
        let CiJob {
            server_url, job, ..
        } = job;
        let of_project = digest(&[server_url, &job.project_id.to_string()]);
        let (id, path) = (job.project_id, shown(&job.project_path));
        let project = format!("{id}-{path}-{of_project}");
        let name = format!("{}-{}", shown(&job.name), digest(&[&job.name]));
        OfJob {
            file: self.dir.join(project).join(name),
        }
    }
}

impl OfJob {
    /// Adds a run that ended now. One whose VM never was, or whose use is not known, counts for
    /// nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&self, mem_mib: u64, result: &JobResult) -> Result<(), FileError> {
        let peak = result.usage.and_then(|usage| usage.peak_mem_bytes);
        let Some(peak) = peak.filter(|peak| *peak > 0) else {
            return Ok(());
        };
        let secs = unix_secs();
        let line = format!("{secs} {} {mem_mib}\n", peak.div_ceil(1 << 20));
        let directory = self.file.parent().unwrap_or(Path::new("."));
        if let Some(all) = directory.parent() {
            private_dir(all)?;
        }
        private_dir(directory)?;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.file)
            .map_err(FileError::of("open", &self.file))?;
        file.write_all(line.as_bytes())
            .map_err(FileError::of("write", &self.file))?;
        let len = file.metadata().map_or(0, |of| of.len());
        if len > CUT_BYTES {
            self.cut()?;
        }
        Ok(())
    }

    /// The last runs, oldest first; none where there are none, or the file cannot be read.
    #[must_use]
    pub fn read(&self) -> Vec<PastRun> {
        let now = unix_secs();
        let text = self.end().unwrap_or_default();
        let runs: Vec<PastRun> = text.lines().filter_map(|line| run(line, now)).collect();
        let first = runs.len().saturating_sub(RUNS);
        runs.get(first..).unwrap_or_default().to_vec()
    }

    /// Two processes that cut at once each leave a whole file.
    fn cut(&self) -> Result<(), FileError> {
        let text = self.end().map_err(FileError::of("read", &self.file))?;
        let lines: Vec<&str> = text.lines().collect();
        let first = lines.len().saturating_sub(RUNS / 2);
        let mut kept = lines.get(first..).unwrap_or_default().join("\n");
        kept.push('\n');
        write_private(&self.file, kept.as_bytes())
    }

    fn end(&self) -> std::io::Result<String> {
        let mut file = fs::File::open(&self.file)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(READ_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// `<unix seconds> <peak MiB> <VM's MiB>`; what stands behind them is for later programs.
fn run(line: &str, now: u64) -> Option<PastRun> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (secs, peak_mib, mem_mib) = (next()?, next()?, next()?);
    Some(PastRun {
        age_secs: now.saturating_sub(secs),
        mem_mib,
        peak_mib,
    })
}

/// A name as a part of a file's name.
fn shown(name: &str) -> String {
    let fit = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => c,
        _ => '-',
    };
    name.chars().take(SHOWN).map(fit).collect()
}

fn digest(parts: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part.as_bytes());
    }
    let whole = context.finish();
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(whole.as_ref()) {
        *to = *from;
    }
    Hex(first).to_string()
}

fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests;
