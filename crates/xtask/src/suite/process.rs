//! One child with a time limit: its lines as they come, its end, and no group left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// How long lines are awaited after the child itself has ended: a process it left behind may hold
/// its output open for ever.
const AFTERMATH: Duration = Duration::from_secs(1);

/// How a child ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// Killed at its limit.
    TimedOut,
}

/// What the caller is told.
pub(super) enum Said<'a> {
    /// A line, without its newline.
    Line(&'a str),
    /// Nothing was said for a while; the time since the start.
    Quiet(Duration),
}

enum Event {
    Line(String),
    Eof,
    Ended(std::io::Result<ExitStatus>),
}

/// Runs a command in a process group of its own, without input, at most for `limit`.
pub(super) fn run(
    command: &mut Command,
    limit: Duration,
    beat: Duration,
    mut said: impl FnMut(Said<'_>),
) -> Result<End> {
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    let group = Pid::from_child(&child);
    let events = listen(&mut child);
    thread::spawn({
        let ended = events.0;
        move || ended.send(Event::Ended(child.wait()))
    });

    let start = Instant::now();
    let mut watch = Watch {
        limit: start + limit,
        open_streams: 2,
        end: None,
        timed_out: false,
    };
    let mut quiet_since = start;
    while !watch.is_over() {
        let wait = watch.deadline().saturating_duration_since(Instant::now());
        match events.1.recv_timeout(wait.min(beat)) {
            Ok(Event::Line(line)) => {
                said(Said::Line(&line));
                quiet_since = Instant::now();
            }
            Ok(Event::Eof) => watch.open_streams -= 1,
            Ok(Event::Ended(status)) => {
                watch.end = Some((
                    status.context("waiting for a test program")?,
                    Instant::now(),
                ));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= watch.deadline() => {
                // The group may be gone already; then there is nothing to kill.
                let _ = kill_process_group(group, Signal::KILL);
                watch.expire();
            }
            Err(RecvTimeoutError::Timeout) if quiet_since.elapsed() >= beat => {
                said(Said::Quiet(start.elapsed()));
                quiet_since = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(watch.into_end())
}

/// What a run waits for.
struct Watch {
    limit: Instant,
    open_streams: u8,
    end: Option<(ExitStatus, Instant)>,
    timed_out: bool,
}

impl Watch {
    /// When waiting stops: at the limit, or shortly after the child's end.
    fn deadline(&self) -> Instant {
        match self.end {
            Some((_, at)) => at + AFTERMATH,
            None if self.timed_out => self.limit + AFTERMATH,
            None => self.limit,
        }
    }

    /// The deadline passed: the limit at first, then the aftermath.
    fn expire(&mut self) {
        if self.timed_out || self.end.is_some() {
            self.open_streams = 0;
        }
        self.timed_out |= self.end.is_none();
    }

    fn is_over(&self) -> bool {
        self.open_streams == 0 && (self.end.is_some() || self.timed_out)
    }

    fn into_end(self) -> End {
        match self.end {
            Some((status, _)) if !self.timed_out => End::Exited(status),
            _ => End::TimedOut,
        }
    }
}

/// Reads both streams of a child into one channel, a line an event.
fn listen(child: &mut Child) -> (Sender<Event>, Receiver<Event>) {
    let (sender, receiver) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child
            .stdout
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|stream| Box::new(stream) as Box<dyn Read + Send>),
    ];
    for stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        thread::spawn(move || read_lines(stream, &sender));
    }
    (sender, receiver)
}

fn read_lines(stream: impl Read, sender: &Sender<Event>) {
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    while reader
        .read_until(b'\n', &mut bytes)
        .is_ok_and(|read| read > 0)
    {
        let line = String::from_utf8_lossy(&bytes)
            .trim_end_matches('\n')
            .to_owned();
        if sender.send(Event::Line(line)).is_err() {
            return;
        }
        bytes.clear();
    }
    let _ = sender.send(Event::Eof);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::alone;

    fn shell(script: &str, limit: Duration) -> (End, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let end = run(&mut command, limit, Duration::from_secs(9), |said| {
            if let Said::Line(line) = said {
                lines.push(line.to_owned());
            }
        });
        (end.unwrap(), lines)
    }

    #[test]
    fn lines_of_both_streams_and_the_exit_code_arrive() {
        let _alone = alone();
        let (end, mut lines) = shell("echo a; echo b >&2; exit 3", Duration::from_secs(20));
        lines.sort();
        assert_eq!(lines, ["a", "b"]);
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_with_its_group() {
        let _alone = alone();
        let start = Instant::now();
        let script = "echo started; sleep 60 & sleep 60";
        let (end, lines) = shell(script, Duration::from_millis(300));
        assert!(matches!(end, End::TimedOut));
        assert_eq!(lines, ["started"]);
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "its group was not killed"
        );
    }

    #[test]
    fn a_process_that_holds_the_output_open_does_not_hold_up_the_run() {
        let _alone = alone();
        let start = Instant::now();
        let script = "setsid sleep 30 & echo $!";
        let (end, lines) = shell(script, Duration::from_secs(25));
        assert!(matches!(end, End::Exited(status) if status.success()));
        assert!(start.elapsed() < Duration::from_secs(20));
        let left = lines[0].parse().ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(left, Signal::KILL).unwrap();
    }
}
