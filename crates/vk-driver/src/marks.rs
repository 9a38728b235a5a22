//! What is kept of a job's stages, and its result: files that outlive the process.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use vk_hub_proto::job::JobResult;
use vk_stage_core::Record;

use crate::error::DriverError;

const MARKS: &str = "stages.jsonl";
const RESULT: &str = "result.json";
/// A job has a few dozen stages, each with a line or two for each of at most ten attempts.
const MARKS_MAX: u64 = 16 << 20;
const RESULT_MAX: u64 = 16 << 20;

/// The stage core's records, one JSON a line, each synced before what follows from it.
#[derive(Debug)]
pub(crate) struct Marks {
    path: PathBuf,
    file: File,
}

impl Marks {
    /// Opens them, with what an earlier life wrote. A last line without its end was never acted
    /// upon.
    pub(crate) fn open(dir: &Path) -> Result<(Marks, Vec<Record>), DriverError> {
        let path = dir.join(MARKS);
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).append(true).mode(0o600);
        let file = options
            .open(&path)
            .map_err(DriverError::file("open", &path))?;
        let mut records = Vec::new();
        let mut reader = BufReader::new((&file).take(MARKS_MAX));
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line);
            read.map_err(DriverError::file("read", &path))?;
            if line.last() != Some(&b'\n') {
                break;
            }
            let record = serde_json::from_slice(&line);
            records.push(record.map_err(|error| DriverError::Marks {
                path: path.clone(),
                why: format!("line {}: {error}", records.len() + 1),
            })?);
        }
        Ok((Marks { path, file }, records))
    }

    /// Keeps a step's records.
    pub(crate) fn keep(&mut self, records: &[Record]) -> Result<(), DriverError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for record in records {
            let line = serde_json::to_vec(record).map_err(std::io::Error::other);
            text.extend(line.map_err(DriverError::file("write", &self.path))?);
            text.push(b'\n');
        }
        let written = self
            .file
            .write_all(&text)
            .and_then(|()| self.file.sync_data());
        written.map_err(DriverError::file("write", &self.path))
    }
}

/// The result of an earlier life, if it left one.
pub(crate) fn read_result(dir: &Path) -> Result<Option<JobResult>, DriverError> {
    let path = dir.join(RESULT);
    let mut text = Vec::new();
    match File::open(&path) {
        Ok(file) => file.take(RESULT_MAX).read_to_end(&mut text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    }
    .map_err(DriverError::file("read", &path))?;
    let result = serde_json::from_slice(&text);
    result.map(Some).map_err(|error| DriverError::Marks {
        path,
        why: error.to_string(),
    })
}

/// Writes the result: whole or not at all, and durably.
pub(crate) fn write_result(dir: &Path, result: &JobResult) -> Result<(), DriverError> {
    let path = dir.join(RESULT);
    let write = || {
        let mut new = tempfile::NamedTempFile::new_in(dir)?;
        serde_json::to_writer_pretty(&mut new, result)?;
        new.write_all(b"\n")?;
        new.as_file().sync_all()?;
        new.persist(&path)?;
        fs::File::open(dir)?.sync_all()
    };
    write().map_err(DriverError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_and_a_torn_last_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::StageStarted {
            stage: "get_sources".to_owned(),
            attempt: 1,
        };
        let (mut marks, none) = Marks::open(dir.path()).unwrap();
        assert_eq!(none, []);
        marks.keep(std::slice::from_ref(&record)).unwrap();
        let path = dir.path().join(MARKS);
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"record\":\"stage_st");
        fs::write(&path, text).unwrap();
        assert_eq!(Marks::open(dir.path()).unwrap().1, [record]);
        fs::write(&path, "nonsense\n").unwrap();
        let error = Marks::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_result_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_result(dir.path()).unwrap(), None);
        let result = JobResult {
            failure: None,
            exit_code: None,
            message: None,
            output_len: 12,
            artifacts: Vec::new(),
            usage: None,
        };
        write_result(dir.path(), &result).unwrap();
        assert_eq!(read_result(dir.path()).unwrap(), Some(result));
    }
}
