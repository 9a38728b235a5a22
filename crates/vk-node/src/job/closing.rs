//! The last line of an output whose process left no result.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::SystemTime;

use vk_node_core::io::ClosingLine;
use vk_trace::{Line, ReadTime, Secrets, Settings, Trace};

use super::directory::JobDir;
use crate::durable::{FileError, private_dir};

/// A stamp's length, before the first byte of a stamped line.
const STAMP: usize = 32;

/// Ends the output at the line's offset, appends the line and syncs; done again it gives the same
/// again, but for the line's time. Gives the output's length.
///
/// # Errors
/// The disk failed.
pub fn close_output(job: &JobDir, line: &ClosingLine) -> Result<u64, FileError> {
    // Where even the directory was lost the job ends all the same.
    private_dir(job.path())?;
    let path = job.output();
    close(job, line).map_err(FileError::of("write", &path))
}

fn close(job: &JobDir, line: &ClosingLine) -> io::Result<u64> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(job.output())?;
    let stamped = is_stamped(&file)?;
    // Bytes that only the hub has are a hole here: they are never sent again.
    file.set_len(line.at)?;
    file.seek(SeekFrom::Start(line.at))?;
    let text = text(&file, line, stamped)?;
    file.write_all(&text)?;
    file.sync_all()?;
    Ok(line.at + text.len() as u64)
}

fn text(file: &File, line: &ClosingLine, stamped: bool) -> io::Result<Vec<u8>> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let at = ReadTime::since_epoch(since.unwrap_or_default());
    let lost = format!(
        "the node lost output from byte {} on; up to byte {} it was saved elsewhere",
        line.own_len, line.at
    );
    let failed = format!("Job failed (system failure): {}", line.end);
    let mut lines = vec![Line::Error(&failed)];
    if line.at > line.own_len {
        lines.insert(0, Line::Warning(&lost));
    }
    let settings = Settings {
        timestamps: stamped,
        ..Settings::default()
    };
    let mut bytes = Vec::new();
    if breaks_off(file, line)? {
        bytes.push(b'\n');
    }
    Trace::new(&settings, Secrets::new())
        .and_then(|mut trace| trace.finish(at, &lines, &mut bytes))
        .map_err(io::Error::other)?;
    Ok(bytes)
}

/// Whether the output ends inside a line, as far as is known.
fn breaks_off(file: &File, line: &ClosingLine) -> io::Result<bool> {
    if line.at == 0 {
        return Ok(false);
    }
    if line.at > line.own_len {
        return Ok(true);
    }
    let mut last = [0];
    file.read_exact_at(&mut last, line.at - 1)?;
    Ok(last != *b"\n")
}

/// Whether the output's lines begin with stamps; an empty one's would.
fn is_stamped(file: &File) -> io::Result<bool> {
    let mut head = [0; STAMP];
    let mut have = 0;
    while let Some(rest) = head.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, have as u64)? {
            0 => break,
            more => have += more,
        }
    }
    let date = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        10 => *byte == b'T',
        13 | 16 => *byte == b':',
        19 => *byte == b'.',
        26 => *byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    Ok(have == 0 || (have == STAMP && head.iter().take(27).enumerate().all(date)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vk_hub_proto::JobId;
    use vk_node_core::io::DeadEnd;
    use vk_node_core::{By, Death};

    use super::*;

    fn died() -> DeadEnd {
        let by = By::Signal { signal: 9 };
        let death = Death {
            by,
            ..Death::default()
        };
        DeadEnd::Died { death }
    }

    fn closed(output: &str, at: u64, end: DeadEnd) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(JobId::from_bytes([4; 16]), dir.path().join("job"));
        job.create(b"{}").unwrap();
        fs::write(job.output(), output).unwrap();
        let line = ClosingLine {
            own_len: output.len() as u64,
            at,
            end,
        };
        let first = close_output(&job, &line).unwrap();
        let again = close_output(&job, &line).unwrap();
        let bytes = fs::read(job.output()).unwrap();
        assert_eq!((first, again), (bytes.len() as u64, bytes.len() as u64));
        bytes
    }

    /// FAIL-34
    #[test]
    fn a_dead_jobs_output_says_so_in_a_line_of_its_own_once() {
        let bytes = closed("Running with vk\nmid", 19, died());
        let text = String::from_utf8(bytes).unwrap();
        let line = "\u{1b}[31;1mERROR: Job failed (system failure): the job's process on its node \
                    ended without a result: it was killed by signal 9 (SIGKILL)\u{1b}[0;m\n";
        assert_eq!(text, format!("Running with vk\nmid\n{line}"));
    }

    #[test]
    fn a_job_whose_directory_is_lost_ends_too() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobDir::new(JobId::from_bytes([4; 16]), dir.path().join("job"));
        let line = ClosingLine {
            own_len: 0,
            at: 0,
            end: died(),
        };
        assert_eq!(close_output(&job, &line).unwrap(), job.output_len());
        assert!(job.output_len() > 0);
    }

    #[test]
    fn a_stamped_output_gets_a_stamped_line() {
        let line = "2026-01-02T03:04:05.123456Z 00O hello\n";
        let end = DeadEnd::NotSpawned {
            why: "no program".to_owned(),
        };
        let text = String::from_utf8(closed(line, line.len() as u64, end)).unwrap();
        let added = text.strip_prefix(line).unwrap();
        assert!(
            added.ends_with("could not be started: no program\u{1b}[0;m\n"),
            "{added}"
        );
        assert_eq!(added.get(26..32), Some("Z 00O "));
    }

    #[test]
    fn what_the_host_lost_is_named_and_not_sent_again() {
        let bytes = closed("abc\n", 100, died());
        assert_eq!(&bytes[..4], b"abc\n");
        assert!(bytes[4..100].iter().all(|byte| *byte == 0));
        let text = String::from_utf8_lossy(&bytes[100..]).into_owned();
        assert!(
            text.starts_with('\n') && text.contains("lost output from byte 4 on"),
            "{text}"
        );
    }
}
