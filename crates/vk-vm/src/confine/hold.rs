use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::OWN_PROGRAM;
use super::identity::explain;
use super::order::{Exit, INHERITED, Order, PACKET_MAX, Report};
use super::program::{Program, Walls};
use crate::sys;

/// Most programs held at once.
const PROGRAMS_MAX: usize = 64;

/// The second stage: starts what the owner orders over the socket on stdin, until it closes.
///
/// Runs as process 1 of its PID namespace (unless the walls are off), single-threaded.
///
/// # Errors
/// When the socket breaks. The kernel ends what is held either way.
pub fn hold(walls: Walls) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut holder = Holding {
        walls,
        own_pids: File::open("/proc/self/ns/pid")?,
        held: BTreeMap::new(),
    };
    holder.say(&Report::Ready)?;
    loop {
        holder.wait_for_news()?;
        holder.reap()?;
        match receive()? {
            Received::Closed => return Ok(()),
            Received::Nothing => {}
            Received::Order(order, descriptors) => holder.obey(order, descriptors)?,
        }
    }
}

struct Holding {
    walls: Walls,
    own_pids: File,
    /// By the owner's number: the process, and a descriptor that becomes readable at its end.
    held: BTreeMap<u32, (Pid, OwnedFd)>,
}

enum Received {
    Order(Order, Vec<OwnedFd>),
    Nothing,
    Closed,
}

impl Holding {
    /// Blocks until an order has come or a program has ended.
    fn wait_for_news(&self) -> io::Result<()> {
        let socket = rustix::stdio::stdin();
        let mut on = vec![PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        on.extend(
            self.held
                .values()
                .map(|(_, end)| PollFd::new(end, PollFlags::IN)),
        );
        loop {
            match poll(&mut on, None) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map(drop).map_err(Into::into),
            }
        }
    }

    /// Tells of every program that has ended. Strangers that were handed to process 1 are buried.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            let (pid, status) = match waitpid(None, WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let exit = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => continue,
            };
            let id = self
                .held
                .iter()
                .find(|(_, (held, _))| *held == pid)
                .map(|(id, _)| *id);
            if let Some(id) = id {
                self.held.remove(&id);
                self.say(&Report::Exited { id, exit })?;
            }
        }
    }

    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::Kill { id } => {
                if let Some((_, end)) = self.held.get(&id) {
                    // It may have ended in this very moment; then there is nothing to kill.
                    let _ = pidfd_send_signal(end, Signal::KILL);
                }
                Ok(())
            }
            Order::Launch { id, program } => match self.launch(&program, descriptors) {
                Ok(held) => {
                    self.held.insert(id, held);
                    self.say(&Report::Started { id })
                }
                Err(e) => self.say(&Report::Refused {
                    id,
                    why: e.to_string(),
                }),
            },
        }
    }

    /// Starts a program's own stage, as the first process of a PID namespace of its own.
    fn launch(&self, program: &Program, descriptors: Vec<OwnedFd>) -> io::Result<(Pid, OwnedFd)> {
        if self.held.len() >= PROGRAMS_MAX {
            return Err(io::Error::other(format!(
                "{PROGRAMS_MAX} programs run already"
            )));
        }
        let mut descriptors = descriptors.into_iter();
        let (Some(stdout), Some(stderr)) = (descriptors.next(), descriptors.next()) else {
            return Err(io::Error::other("an order without its two descriptors"));
        };
        let inherited = descriptors.next();
        if inherited.is_some() != program.inherits {
            return Err(io::Error::other(
                "an order with more or fewer descriptors than it says",
            ));
        }
        // Kept open by the stage's exec; the holder itself closes it when the stage has it.
        let _inherited = inherited.as_ref().map(place).transpose()?;
        let mut stage = Command::new(OWN_PROGRAM);
        stage.args(["guest", "confine", "exec"]);
        if self.walls == Walls::Off {
            stage.arg("--open");
        }
        stage
            .stdin(Stdio::from(plan(program)?))
            .stdout(stdout)
            .stderr(stderr)
            .env_clear();
        let child = self.spawn(&mut stage)?;
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("a child without a number"))?;
        Ok((pid, pidfd_open(pid, PidfdFlags::empty())?))
    }

    fn spawn(&self, stage: &mut Command) -> io::Result<std::process::Child> {
        if self.walls == Walls::Off {
            return stage
                .spawn()
                .map_err(|e| explain("start the program's stage", e));
        }
        sys::unshare(UnshareFlags::NEWPID).map_err(|e| explain("make a PID namespace", e))?;
        let child = stage
            .spawn()
            .map_err(|e| explain("start the program's stage", e));
        // The next child shall not land in this one's namespace, which may then be gone.
        let kind = Some(LinkNameSpaceType::ProcessID);
        move_into_link_name_space(self.own_pids.as_fd(), kind)
            .map_err(|e| explain("return from a PID namespace", e))?;
        child
    }

    #[allow(clippy::unused_self, reason = "a report is the holder's")]
    fn say(&self, report: &Report) -> io::Result<()> {
        let packet = serde_json::to_vec(report)?;
        let mut none = SendAncillaryBuffer::default();
        let socket = rustix::stdio::stdin();
        sendmsg(
            socket,
            &[IoSlice::new(&packet)],
            &mut none,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }
}

/// Gives a descriptor the number that the program knows it by.
fn place(descriptor: &OwnedFd) -> io::Result<OwnedFd> {
    let placed = rustix::io::fcntl_dupfd_cloexec(descriptor, INHERITED)?;
    if placed.as_raw_fd() != INHERITED {
        return Err(io::Error::other(format!(
            "descriptor {INHERITED} is in use"
        )));
    }
    rustix::io::fcntl_setfd(&placed, rustix::io::FdFlags::empty())?;
    Ok(placed)
}

/// The program's description, as a file to be read by its stage: never on disk.
fn plan(program: &Program) -> io::Result<File> {
    let mut plan = File::from(memfd_create("plan", MemfdFlags::CLOEXEC)?);
    plan.write_all(&serde_json::to_vec(program)?)?;
    plan.rewind()?;
    Ok(plan)
}

/// Takes one packet from the owner's socket, if there is one.
fn receive() -> io::Result<Received> {
    let mut packet = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let socket: BorrowedFd<'_> = rustix::stdio::stdin();
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut buffers = [IoSliceMut::new(&mut packet)];
    let received = match recvmsg(socket, &mut buffers, &mut beside, flags) {
        Ok(received) if received.bytes == 0 => return Ok(Received::Closed),
        Ok(received) => received,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
        Err(e) => return Err(e.into()),
    };
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let packet = packet.get(..received.bytes).unwrap_or_default();
    // An owner of another version or build: it hears this as the reason of the holder's end.
    let order = serde_json::from_slice(packet)
        .map_err(|e| explain("understand an order of the VM's owner", e))?;
    Ok(Received::Order(order, descriptors))
}
