//! All jobs' output: which pieces lie where, and what may go.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vk_hub_proto::JobId;

use super::segment::{self, Frame, Segment};

/// A segment is closed once it is larger.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// Where a gathering writes to more files than this, they are synced together.
const SYNC_EACH: usize = 32;

/// Output that could not be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct OutputError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OutputError {
    let path = path.to_owned();
    move |source| OutputError {
        action,
        path,
        source,
    }
}

/// A piece of a job's output in a segment.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    len: u32,
    segment: u64,
    at: u64,
}

/// One job's output.
#[derive(Debug, Default)]
struct Output {
    /// Bytes gathered in the job's own file, from its start.
    gathered: u64,
    /// What follows them, without gaps.
    pieces: Vec<Piece>,
}

impl Output {
    fn len(&self) -> u64 {
        self.pieces
            .last()
            .map_or(self.gathered, |piece| piece.offset + u64::from(piece.len))
    }
}

/// The output log. One owner writes; what it says is there can be read.
#[derive(Debug)]
pub struct OutputLog {
    directory: PathBuf,
    /// A segment is closed once it is larger.
    segment_bytes: u64,
    segments: BTreeMap<u64, Segment>,
    outputs: BTreeMap<JobId, Output>,
}

impl OutputLog {
    /// Opens the log in a directory, which is made where it is missing.
    ///
    /// # Errors
    /// A file could not be read or mended.
    pub fn open(directory: PathBuf) -> Result<OutputLog, OutputError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed("create the directory", &directory))?;
        let mut log = OutputLog {
            directory,
            segment_bytes: SEGMENT_BYTES,
            segments: BTreeMap::new(),
            outputs: BTreeMap::new(),
        };
        log.read_files()?;
        Ok(log)
    }

    fn read_files(&mut self) -> Result<(), OutputError> {
        let listed = fs::read_dir(&self.directory).map_err(failed("list", &self.directory))?;
        let mut numbers = Vec::new();
        for entry in listed {
            let path = entry.map_err(failed("list", &self.directory))?.path();
            if let Some(number) = segment::number(&path) {
                numbers.push((number, path));
            } else if let Some(job) = job_of(&path) {
                let size = path.metadata().map_err(failed("read", &path))?.len();
                self.outputs.entry(job).or_default().gathered = size;
            } else if path.extension().is_some_and(|ending| ending == "new") {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        numbers.sort_unstable();
        for (number, path) in numbers {
            let opened = Segment::open(path.clone()).map_err(failed("open", &path))?;
            let (segment, frames) = opened;
            self.segments.insert(number, segment);
            frames
                .into_iter()
                .for_each(|frame| self.index(number, frame));
        }
        Ok(())
    }

    /// Takes a frame into account. What is there already, or would leave a gap, is not; a frame
    /// that begins within what is there counts from its end on.
    fn index(&mut self, segment: u64, frame: Frame) {
        let output = self.outputs.entry(frame.job).or_default();
        if output.pieces.is_empty() && frame.offset < output.gathered {
            // A gathering was cut short: of the job's own file, only what no segment has any more
            // is known to be whole.
            output.gathered = frame.offset;
        }
        if frame.offset == output.len() {
            output.pieces.push(Piece {
                offset: frame.offset,
                len: frame.len,
                segment,
                at: frame.at,
            });
        }
    }

    /// How much there is of each job's output.
    #[must_use]
    pub fn lengths(&self) -> BTreeMap<JobId, u64> {
        self.outputs
            .iter()
            .map(|(job, output)| (*job, output.len()))
            .collect()
    }

    /// Appends to a job's output. Durable after the next [`OutputLog::sync`].
    ///
    /// # Errors
    /// The log cannot be written, or `offset` is not the output's end.
    pub fn append(&mut self, job: JobId, offset: u64, bytes: &[u8]) -> Result<(), OutputError> {
        let end = self.outputs.get(&job).map_or(0, Output::len);
        if offset != end {
            let why = format!("output of {job} at {offset}, its end is {end}");
            return Err(failed("append to", &self.directory)(io::Error::other(why)));
        }
        let number = self.current()?;
        let Some(segment) = self.segments.get_mut(&number) else {
            return Ok(());
        };
        let frame = segment.append(job, offset, bytes);
        let frame = frame.map_err(failed("write", &segment.path))?;
        self.index(number, frame);
        Ok(())
    }

    /// The segment to write to.
    fn current(&mut self) -> Result<u64, OutputError> {
        let last = self.segments.last_key_value();
        if let Some((number, segment)) = last
            && segment.len < self.segment_bytes
        {
            return Ok(*number);
        }
        let retired = last.map(|(number, _)| *number);
        if let Some(segment) = retired.and_then(|number| self.segments.get(&number)) {
            segment.sync().map_err(failed("sync", &segment.path))?;
        }
        let number = retired.map_or(1, |number| number + 1);
        let path = self.directory.join(format!("{number:012}.seg"));
        let segment = Segment::create(path.clone()).map_err(failed("create", &path))?;
        self.sync_directory()?;
        self.segments.insert(number, segment);
        if let Some(retired) = retired {
            self.gather(retired)?;
        }
        Ok(number)
    }

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// The sync failed: nothing since the last one is known to be durable.
    pub fn sync(&self) -> Result<(), OutputError> {
        match self.segments.last_key_value() {
            Some((_, segment)) => segment.sync().map_err(failed("sync", &segment.path)),
            None => Ok(()),
        }
    }

    /// Moves what live jobs have in a retired segment to files of their own, and drops the segment.
    fn gather(&mut self, retired: u64) -> Result<(), OutputError> {
        let lies_there = |output: &Output| {
            output
                .pieces
                .first()
                .is_some_and(|piece| piece.segment <= retired)
        };
        let jobs: Vec<JobId> = self
            .outputs
            .iter()
            .filter(|(_, out)| lies_there(out))
            .map(|(job, _)| *job)
            .collect();
        let together = jobs.len() > SYNC_EACH;
        for job in jobs {
            let file = self.gather_job(job, retired)?;
            if !together {
                file.sync_all()
                    .map_err(failed("sync", &self.own_file(job)))?;
            }
        }
        if together {
            self.sync_file_system()?;
        }
        self.sync_directory()?;
        // An earlier one is there where its gathering failed.
        let kept = self.segments.split_off(&(retired + 1));
        for segment in std::mem::replace(&mut self.segments, kept).into_values() {
            fs::remove_file(&segment.path).map_err(failed("remove", &segment.path))?;
        }
        Ok(())
    }

    /// The job's own file is to be synced by the caller.
    fn gather_job(&mut self, job: JobId, retired: u64) -> Result<File, OutputError> {
        let path = self.own_file(job);
        let output = self.outputs.entry(job).or_default();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path);
        let mut file = file.map_err(failed("open", &path))?;
        // A gathering that was cut short left bytes that the segment still has.
        file.set_len(output.gathered)
            .map_err(failed("cut", &path))?;
        let staying = output
            .pieces
            .iter()
            .position(|piece| piece.segment > retired);
        let moving = staying.unwrap_or(output.pieces.len());
        for piece in output.pieces.drain(..moving).collect::<Vec<_>>() {
            let Some(segment) = self.segments.get(&piece.segment) else {
                continue;
            };
            let mut bytes = vec![0; piece.len as usize];
            segment
                .read(piece.at, &mut bytes)
                .map_err(failed("read", &segment.path))?;
            file.write_all(&bytes).map_err(failed("write", &path))?;
            output.gathered += u64::from(piece.len);
        }
        Ok(file)
    }

    /// Reads bytes of a job's output.
    ///
    /// # Errors
    /// They are not there, or cannot be read.
    pub fn read(&self, job: JobId, offset: u64, len: u64) -> Result<Vec<u8>, OutputError> {
        let short = || {
            let why = format!("output of {job} has no {len} bytes at {offset}");
            failed("read", &self.directory)(io::Error::other(why))
        };
        let output = self.outputs.get(&job).ok_or_else(short)?;
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= output.len())
            .ok_or_else(short)?;
        let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        if offset < output.gathered {
            let take = end.min(output.gathered) - offset;
            bytes.resize(usize::try_from(take).unwrap_or(0), 0);
            let path = self.own_file(job);
            let file = File::open(&path).map_err(failed("open", &path))?;
            file.read_exact_at(&mut bytes, offset)
                .map_err(failed("read", &path))?;
        }
        let past = |piece: &Piece| piece.offset + u64::from(piece.len) <= offset;
        let first = output.pieces.partition_point(past);
        let pieces = output.pieces.iter().skip(first);
        for piece in pieces.take_while(|piece| piece.offset < end) {
            self.read_piece(piece, offset.max(output.gathered), end, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn read_piece(
        &self,
        piece: &Piece,
        from: u64,
        end: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<(), OutputError> {
        let (start, stop) = (
            from.max(piece.offset),
            end.min(piece.offset + u64::from(piece.len)),
        );
        if start >= stop {
            return Ok(());
        }
        let Some(segment) = self.segments.get(&piece.segment) else {
            return Ok(());
        };
        let mut part = vec![0; usize::try_from(stop - start).unwrap_or(0)];
        let at = piece.at + (start - piece.offset);
        segment
            .read(at, &mut part)
            .map_err(failed("read", &segment.path))?;
        bytes.append(&mut part);
        Ok(())
    }

    /// Drops a job's output.
    ///
    /// # Errors
    /// Its own file cannot be removed.
    pub fn drop_output(&mut self, job: JobId) -> Result<(), OutputError> {
        if self.outputs.remove(&job).is_none() {
            return Ok(());
        }
        let path = self.own_file(job);
        match fs::remove_file(&path) {
            // Nothing of it was gathered.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(failed("remove", &path)),
        }
    }

    /// Drops every output but these jobs'.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn retain(&mut self, jobs: &[JobId]) -> Result<(), OutputError> {
        let gone: Vec<JobId> = self
            .outputs
            .keys()
            .filter(|job| !jobs.contains(job))
            .copied()
            .collect();
        gone.into_iter().try_for_each(|job| self.drop_output(job))
    }

    fn own_file(&self, job: JobId) -> PathBuf {
        self.directory.join(format!("{job}.out"))
    }

    /// Makes every file durable at once: a sync each for thousands of jobs would hold up acks.
    fn sync_file_system(&self) -> Result<(), OutputError> {
        let synced =
            File::open(&self.directory).and_then(|directory| Ok(rustix::fs::syncfs(&directory)?));
        synced.map_err(failed("sync the file system of", &self.directory))
    }

    fn sync_directory(&self) -> Result<(), OutputError> {
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(failed("sync the directory", &self.directory))
    }
}

fn job_of(path: &Path) -> Option<JobId> {
    path.file_name()?
        .to_str()?
        .strip_suffix(".out")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
