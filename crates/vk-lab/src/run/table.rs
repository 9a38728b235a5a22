//! The closing table: how each job ended, and what it took.

use std::collections::BTreeMap;

use serde::Serialize;

use super::facts::Facts;
use super::render::stamp;
use crate::gitlab::{Gitlab, Job, Status};

/// What stands where nothing was measured.
const NONE: &str = "–";

/// One job at one attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    /// GitLab's number.
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) stage: String,
    pub(super) status: &'static str,
    /// The status as it is shown.
    #[serde(skip)]
    pub(super) outcome: String,
    pub(super) allow_failure: bool,
    /// A later attempt took its place.
    pub(super) superseded: bool,
    pub(super) failure_reason: Option<String>,
    pub(super) exit_code: Option<i64>,
    /// The host that ran it.
    pub(super) node: Option<String>,
    /// From pending to the answer that handed it out, by the lab.
    pub(super) queue_ms: Option<u64>,
    /// From QEMU's start to the agent's hello, by the node.
    pub(super) boot_ms: Option<u64>,
    /// From the answer that handed it out to the final state, by the lab.
    pub(super) wall_ms: Option<u64>,
    /// Its VM's largest memory, by the node.
    pub(super) peak_bytes: Option<u64>,
    pub(super) vmm: Option<String>,
    pub(super) accelerator: Option<String>,
    /// From the node's receipt of the start to the stamp of the script's first line.
    pub(super) to_first_line_ms: Option<u64>,
    /// Where its artifacts lie.
    pub(super) artifacts: Vec<String>,
}

/// The rows of a pipeline.
pub(super) fn rows(gitlab: &Gitlab, pipeline: u64, facts: &BTreeMap<u64, Facts>) -> Vec<Row> {
    let jobs = gitlab.jobs().filter(|job| job.pipeline == pipeline);
    let none = Facts::default();
    jobs.map(|job| row(job, facts.get(&job.id).unwrap_or(&none)))
        .collect()
}

fn row(job: &Job, facts: &Facts) -> Row {
    let between = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
    let ran = job.started_ms.is_some();
    Row {
        id: job.id,
        name: job.spec.name.clone(),
        stage: job.spec.stage.clone(),
        status: job.status.word(),
        outcome: outcome(job),
        allow_failure: job.failure_allowed,
        superseded: job.superseded,
        failure_reason: job.failure_reason.clone(),
        exit_code: job.exit_code.filter(|_| job.status == Status::Failed),
        node: facts.node.clone(),
        queue_ms: between(job.queued_ms, job.started_ms),
        boot_ms: facts.boot_ms,
        wall_ms: between(job.started_ms, job.finished_ms).filter(|_| ran),
        peak_bytes: facts.peak_bytes,
        vmm: facts.vmm.clone(),
        accelerator: facts.accelerator.clone(),
        to_first_line_ms: between(facts.received_ms, first_line_ms(&job.trace)),
        artifacts: Vec::new(),
    }
}

/// How a job ended, in a few words.
pub(super) fn outcome(job: &Job) -> String {
    let mut text = job.status.word().to_owned();
    if job.status == Status::Failed {
        let why = match (job.exit_code, &job.failure_reason) {
            (Some(code), _) => format!(" (exit code {code})"),
            (None, Some(reason)) => format!(" ({reason})"),
            (None, None) => String::new(),
        };
        text.push_str(&why);
        if job.failure_allowed {
            text.push_str(", allowed");
        }
    }
    if job.superseded {
        text.push_str(", retried");
    }
    text
}

/// How a job ended, and how long it ran.
pub(super) fn ending(job: &Job) -> String {
    let outcome = outcome(job);
    match job.started_ms.zip(job.finished_ms) {
        Some((from, to)) => {
            let wall = seconds(Some(to.saturating_sub(from)));
            format!("{outcome} after {wall}")
        }
        None => outcome,
    }
}

/// When the first line of the script's own stage was written, by its stamp: Unix milliseconds.
fn first_line_ms(trace: &[u8]) -> Option<u64> {
    let marker = b":step_script";
    let mut inside = false;
    for line in trace.split(|byte| *byte == b'\n') {
        let Some(stamped) = stamp(line) else { continue };
        let begins = stamped.text.starts_with(b"section_start:");
        if begins && memchr::memmem::find(stamped.text, marker).is_some() {
            inside = true;
        } else if inside && is_command(stamped.text) {
            return millis(stamped.time);
        }
    }
    None
}

/// Whether a line echoes a command of the script: `$ …` in green.
fn is_command(line: &[u8]) -> bool {
    let shown = super::render::shown(line, false);
    shown.is_some_and(|text| text.starts_with("$ "))
}

/// A stamp's time, in Unix milliseconds.
fn millis(time: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(time).ok()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let days = days(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
    let secs = number(11, 13)? * 3_600 + number(14, 16)? * 60 + number(17, 19)?;
    Some((days * 86_400 + secs) * 1_000 + number(20, 23)?)
}

/// Days from 1970-01-01 to a date after it.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let months = *BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let this = months + u64::from(leap && month > 2) + day.checked_sub(1)?;
    let last = year.checked_sub(1)?;
    let leaps = last / 4 - last / 100 + last / 400;
    // 1970-01-01 is day 719162 of this count.
    (last * 365 + leaps + this).checked_sub(719_162)
}

/// The table as text, with what the VMs ran on below it.
pub(super) fn text(rows: &[Row]) -> String {
    let head = [
        "job",
        "status",
        "node",
        "queue",
        "boot",
        "wall",
        "peak memory",
    ];
    let mut cells: Vec<[String; 7]> = vec![head.map(str::to_owned)];
    cells.extend(rows.iter().map(cells_of));
    let width = |column: usize| {
        let of = |row: &[String; 7]| row.get(column).map_or(0, |cell| cell.chars().count());
        cells.iter().map(of).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &cells {
        let padded = row.iter().zip(&widths).enumerate();
        let padded = padded.map(|(column, (cell, width))| match column {
            // Words to the left, numbers to the right.
            0..=2 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text.push_str(&machines(rows));
    text
}

fn cells_of(row: &Row) -> [String; 7] {
    let name = row
        .name
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    [
        name.collect(),
        row.outcome.clone(),
        row.node.clone().unwrap_or_else(|| NONE.into()),
        seconds(row.queue_ms),
        seconds(row.boot_ms),
        seconds(row.wall_ms),
        row.peak_bytes
            .map_or_else(|| NONE.into(), |bytes| format!("{} MiB", bytes >> 20)),
    ]
}

fn seconds(ms: Option<u64>) -> String {
    ms.map_or_else(
        || NONE.into(),
        |ms| format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
    )
}

/// What the VMs ran on.
fn machines(rows: &[Row]) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for row in rows {
        if let Some(vmm) = &row.vmm {
            let accelerator = row.accelerator.as_deref().unwrap_or(NONE);
            let kind = format!("VMM: {vmm}, accelerator: {accelerator}\n");
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_times() {
        for (text, ms) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("2000-02-29T00:00:00.001999Z", 951_782_400_001),
            ("2026-03-02T09:14:07.999000Z", 1_772_442_847_999),
            ("2026-12-31T23:59:59.000000Z", 1_798_761_599_000),
        ] {
            assert_eq!(millis(text.as_bytes()), Some(ms), "{text}");
        }
        assert_eq!(millis(b"2026-13-01T00:00:00.000000Z"), None);
    }

    #[test]
    fn the_first_line_is_the_scripts_first_command() {
        let trace = "2026-03-02T09:14:01.000000Z 00O $ not yet\n\
            2026-03-02T09:14:02.000000Z 00O section_start:1:step_script\r\u{1b}[0K\n\
            2026-03-02T09:14:02.000000Z 00O+\u{1b}[36;1mExecuting\u{1b}[0;m\n\
            2026-03-02T09:14:07.999000Z 01O \u{1b}[32;1m$ echo hello\u{1b}[0;m\n\
            2026-03-02T09:14:09.000000Z 01O hello\n";
        assert_eq!(first_line_ms(trace.as_bytes()), Some(1_772_442_847_999));
        assert_eq!(first_line_ms(b"nothing\n"), None);
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let mut row = Row {
            id: 1,
            name: "a".into(),
            stage: "test".into(),
            status: "success",
            outcome: "success".into(),
            allow_failure: false,
            superseded: false,
            failure_reason: None,
            exit_code: None,
            node: None,
            queue_ms: Some(1_234),
            boot_ms: None,
            wall_ms: Some(60_000),
            peak_bytes: Some(300 << 20),
            vmm: Some("qemu".into()),
            accelerator: Some("tcg".into()),
            to_first_line_ms: None,
            artifacts: Vec::new(),
        };
        let shown = text(std::slice::from_ref(&row));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "job  status   node   queue  boot     wall  peak memory"
        );
        assert_eq!(
            lines[1],
            "a    success  –     1.23 s     –  60.00 s      300 MiB"
        );
        assert_eq!(lines[2], "VMM: qemu, accelerator: tcg");
        row.vmm = None;
        assert_eq!(text(&[row]).lines().count(), 2);
    }
}
