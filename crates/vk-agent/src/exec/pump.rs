//! Carries a command's input, output and end between its pipes and its stream.
//!
//! One loop waits for all of them. It blocks only in sending a frame, while the host does not read:
//! then the command's pipes fill and the command waits, which is the flow control. Signals do not
//! pass here, so a full pipe never delays a kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use vk_guest_proto::limits::MAX_CHUNK;
use vk_guest_proto::{Channel, Exec, ExecEnd, Failure, FailureCode, StreamToAgent, StreamToHost};

use super::start::{Running, start};
use super::tree::{Tree, exit_status};
use crate::agent::Agent;
use crate::conn::{Conn, Gone, Incoming, Outgoing};
use crate::context::fail;
use crate::sys::Record;
use crate::usage::oom_kills;

/// Runs a stream's command to its end. When the host closes the stream earlier, everything the
/// command started is killed.
pub(crate) fn serve(
    agent: &Agent,
    stream: u32,
    conn: &Conn,
    incoming: Incoming<StreamToAgent>,
    out: &mut Outgoing,
    exec: &Exec,
) -> Result<StreamToHost, Failure> {
    let oom_before = agent.begin_command();
    let running = start(agent, stream, exec)?;
    let tree = Arc::clone(&running.tree);
    let registered = agent.register(stream, &tree);
    let mut pump = Pump::new(conn, incoming, out, exec, running);
    let ended = pump.run();
    drop(registered);
    if ended.is_err() {
        tree.kill_all();
    }
    let mut end = ended?;
    end.oom_kills = oom_kills().unwrap_or(0).saturating_sub(oom_before);
    Ok(StreamToHost::Exited { end })
}

/// A wait status: ended by SIGKILL.
const KILLED: i32 = 9;
/// Most reads after the drain time: a pipe holds a megabyte at most unless its owner is privileged.
const LAST_READS: u32 = 64;

/// What became ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Host,
    HostGone,
    Stdin,
    Records,
    Output(usize),
}

struct Pump<'a> {
    conn: &'a Conn,
    incoming: Incoming<StreamToAgent>,
    out: &'a mut Outgoing,
    exec: &'a Exec,
    pid: u32,
    tree: Arc<Tree>,
    stdin: Option<OwnedFd>,
    /// What of the last data frame the command has not taken yet.
    pending: Vec<u8>,
    outputs: Vec<(Channel, OwnedFd)>,
    records: OwnedFd,
    ended: Option<(ExecEnd, Instant)>,
    buf: Vec<u8>,
}

impl<'a> Pump<'a> {
    fn new(
        conn: &'a Conn,
        incoming: Incoming<StreamToAgent>,
        out: &'a mut Outgoing,
        exec: &'a Exec,
        running: Running,
    ) -> Self {
        let Running {
            pid,
            tree,
            stdin,
            outputs,
            records,
        } = running;
        let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0);
        let buf = vec![0; MAX_CHUNK];
        let (pending, ended) = (Vec::new(), None);
        Self {
            conn,
            incoming,
            out,
            exec,
            pid,
            tree,
            stdin,
            pending,
            outputs,
            records,
            ended,
            buf,
        }
    }

    fn run(&mut self) -> Result<ExecEnd, Failure> {
        self.send(&StreamToHost::Started { pid: self.pid })?;
        loop {
            self.take_frames()?;
            if let Some(end) = self.finished()? {
                return Ok(end);
            }
            // Output goes before the news of the end, and a later entry's number stays true.
            let ready = self.wait()?;
            for one in ready.iter().rev() {
                match one {
                    Ready::Output(at) => self.forward(*at)?,
                    Ready::Stdin => self.feed(),
                    Ready::Records => self.leader_ended()?,
                    Ready::Host => self.incoming.fill().map_err(|gone| gave_up(&gone))?,
                    Ready::HostGone => return Err(gave_up(&Gone::Closed)),
                }
            }
        }
    }

    /// The end, once the command's process has ended and its output has, or the drain time is over.
    fn finished(&mut self) -> Result<Option<ExecEnd>, Failure> {
        let Some((end, drained_by)) = &self.ended else {
            return Ok(None);
        };
        let mut end = end.clone();
        if !self.outputs.is_empty() {
            if Instant::now() < *drained_by {
                return Ok(None);
            }
            self.drain_what_is_there()?;
        }
        end.cut = !self.outputs.is_empty();
        if !self.exec.kill_leftovers {
            end.leftovers = count(self.tree.members().len());
        }
        Ok(Some(end))
    }

    /// Sends what the outputs hold now, and no more than pipes can hold.
    fn drain_what_is_there(&mut self) -> Result<(), Failure> {
        for _ in 0..LAST_READS {
            let mut fds: Vec<PollFd<'_>> = self
                .outputs
                .iter()
                .map(|(_, fd)| PollFd::new(fd, PollFlags::IN))
                .collect();
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let some = poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0);
            let at = fds.iter().position(|fd| !fd.revents().is_empty());
            match at {
                Some(at) if some => self.forward(at)?,
                _ => break,
            }
        }
        Ok(())
    }

    /// Takes what the host sent, unless the command still has to take what came before.
    fn take_frames(&mut self) -> Result<(), Failure> {
        while self.pending.is_empty() {
            match self.incoming.ready().map_err(|gone| gave_up(&gone))? {
                None => return Ok(()),
                Some(StreamToAgent::Data { bytes }) => {
                    // Data for a stdin that is not there, or no longer, has no reader.
                    if self.stdin.is_some() {
                        self.pending = bytes.into_inner();
                    }
                }
                Some(StreamToAgent::End) => self.stdin = None,
                Some(StreamToAgent::Request { .. }) => {
                    return fail(FailureCode::Protocol, "a second request on an exec stream");
                }
            }
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<Ready>, Failure> {
        let mut what = vec![Ready::Host];
        let host = if self.pending.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![PollFd::new(self.conn, host)];
        if let Some(stdin) = self.stdin.as_ref().filter(|_| !self.pending.is_empty()) {
            what.push(Ready::Stdin);
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        if self.ended.is_none() {
            what.push(Ready::Records);
            fds.push(PollFd::new(&self.records, PollFlags::IN));
        }
        for (at, (_, output)) in self.outputs.iter().enumerate() {
            what.push(Ready::Output(at));
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        let timeout = self.ended.as_ref().and_then(|(_, by)| {
            Timespec::try_from(by.saturating_duration_since(Instant::now())).ok()
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return fail(FailureCode::Io, format!("wait for a command: {errno}"));
            }
        }
        let ready = what.into_iter().zip(&fds).filter_map(|(what, fd)| {
            let events = fd.revents();
            let gone = PollFlags::HUP | PollFlags::ERR;
            match what {
                // With bytes still to be read, the read comes first and the end with the next.
                Ready::Host if events.contains(PollFlags::IN) => Some(what),
                Ready::Host if events.intersects(gone) => Some(Ready::HostGone),
                _ if !events.is_empty() => Some(what),
                _ => None,
            }
        });
        Ok(ready.collect())
    }

    /// Gives the command what it will take.
    fn feed(&mut self) {
        let Some(stdin) = &self.stdin else { return };
        match rustix::io::write(stdin, &self.pending) {
            Ok(n) => {
                self.pending.drain(..n.min(self.pending.len()));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Nobody reads it any more: what comes is dropped.
            Err(_) => {
                self.stdin = None;
                self.pending.clear();
            }
        }
    }

    /// Sends a chunk of an output, or closes it at its end.
    fn forward(&mut self, at: usize) -> Result<(), Failure> {
        let Some((channel, output)) = self.outputs.get(at) else {
            return Ok(());
        };
        let channel = *channel;
        let n = match rustix::io::read(output, &mut self.buf) {
            Err(Errno::INTR) => return Ok(()),
            Ok(n) => n,
            Err(_) => 0,
        };
        match self.buf.get(..n) {
            Some(chunk) if n > 0 => {
                let bytes = chunk.into();
                self.send(&StreamToHost::Data { channel, bytes })
            }
            _ => {
                self.outputs.remove(at);
                Ok(())
            }
        }
    }

    fn leader_ended(&mut self) -> Result<(), Failure> {
        let (status, cpu_ms, rss) = match Record::read(&self.records) {
            Some(Record::Ended(status, cpu_ms, rss)) => (status, cpu_ms, Some(rss)),
            // The watcher is gone without a word: the command killed it, with all that it could
            // kill (`kill -9 -1`), or the kernel did for want of memory. So is the command, then.
            _ => {
                self.tree.kill_orphans();
                (KILLED, 0, None)
            }
        };
        self.tree.leader_has_ended();
        self.stdin = None;
        self.pending.clear();
        let leftovers = if self.exec.kill_leftovers {
            self.tree.kill_all()
        } else {
            0
        };
        let end = ExecEnd {
            status: exit_status(status),
            cut: false,
            leftovers: count(leftovers),
            oom_kills: 0,
            cpu_ms,
            max_rss_kib: rss,
        };
        let drained_by = Instant::now() + Duration::from_millis(self.exec.drain_ms.into());
        self.ended = Some((end, drained_by));
        Ok(())
    }

    fn send(&mut self, frame: &StreamToHost) -> Result<(), Failure> {
        self.out.send(frame).map_err(|_| gave_up(&Gone::Closed))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn gave_up(gone: &Gone) -> Failure {
    Failure::new(
        FailureCode::Protocol,
        format!("the command was given up: {gone}"),
    )
}
