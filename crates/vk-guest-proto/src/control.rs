use crate::decoder::Frame;
use crate::exec::Scope;
use crate::failure::Failure;
use crate::file::FileInfo;
use crate::limits::{MAX_NAME, MAX_PATH, MAX_SMALL_FILE, MAX_STAT_PATHS};
use crate::macros::{choice, record};
use crate::mount::{MountRoot, MountTree, SetUp};
use crate::opening::Purpose;
use crate::wire::{Bytes, Coding, Flag, Int, List, Opt, Own, Reader, Text};
use crate::{DecodeError, EncodeError};

choice! {
    /// What the agent is.
    #[derive(Copy, Hash)]
    pub enum Mode {
        /// The init of a virtual machine.
        0 = Vm,
        /// A process in namespaces.
        1 = Process,
    }
}

record! {
    /// The agent's first word on the control stream.
    pub struct Hello {
        /// The agent's version.
        pub agent_version: String as Text<MAX_NAME>,
        /// What the agent is.
        pub mode: Mode as Own,
        /// `uname -r` of the guest.
        pub kernel_release: String as Text<MAX_NAME>,
        /// Milliseconds since the guest's kernel started.
        pub uptime_ms: u64 as Int,
        /// Memory the guest's kernel has, in KiB.
        pub memory_kib: u64 as Int,
        /// Processors on line.
        pub cpus: u32 as Int,
    }
}

/// A [`Purpose`] as one byte.
struct PurposeByte;

impl Coding<Purpose> for PurposeByte {
    fn put(_: &'static str, value: &Purpose, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(value.byte());
        Ok(())
    }
    fn get(what: &'static str, from: &mut Reader<'_>) -> Result<Purpose, DecodeError> {
        Purpose::from_byte(from.byte(what)?)
    }
}

choice! {
    /// What the host asks of the agent.
    pub enum Op {
        /// Nothing but an answer.
        0 = Ping,
        /// To dial a stream. `Done` says that the host took it.
        1 = Open {
            /// Its number, never used before in this VM.
            stream: u32 as Int,
            /// What for; not `Control`.
            purpose: Purpose as PurposeByte,
        },
        /// To send a signal to an exec. `NotFound` when it has ended.
        2 = Signal {
            /// The exec's stream.
            stream: u32 as Int,
            /// The signal's number.
            signal: u8 as Int,
            /// To which of its processes.
            scope: Scope as Own,
        },
        /// To end an exec's whole process tree: SIGTERM now, SIGKILL for whatever is still there
        /// after the grace time. `Done` says that SIGTERM (with no grace, SIGKILL) was sent; the
        /// end itself is told on the exec's stream.
        3 = Kill {
            /// The exec's stream.
            stream: u32 as Int,
            /// Milliseconds between the two.
            grace_ms: u32 as Int,
        },
        /// To assemble the job's root.
        4 = MountRoot {
            /// From what.
            plan: MountRoot as Own,
        },
        /// To mount a further tree in it.
        5 = MountTree {
            /// What, where and how.
            plan: MountTree as Own,
        },
        /// To look at paths; answered by `Stats`.
        6 = Stat {
            /// The paths, absolute, in the job's root.
            paths: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_STAT_PATHS>,
            /// Whether a symlink at the end of a path is followed.
            follow: bool as Flag,
        },
        /// To set the guest up for the job, all at once; answered by `SetUp`. `MountRoot` and `Stat`
        /// do parts of it.
        7 = SetUp {
            /// How.
            plan: SetUp as Own,
        },
        /// To say what was used so far; answered by `Usage`.
        9 = Usage,
        /// To write out what the job's disk has not yet.
        10 = Sync,
        /// To kill what runs, unmount and power off. After `Done` comes `Bye`, then the
        /// connection's end. As a process, the agent exits.
        11 = PowerOff,
    }
}

record! {
    /// What the guest used since its start. What is not measured is absent.
    pub struct Usage {
        /// CPU time of the whole guest, user and system, in milliseconds.
        pub cpu_ms: Option<u64> as Opt<Int>,
        /// Memory in use now (total less available), in KiB.
        pub memory_kib: Option<u64> as Opt<Int>,
        /// The most seen in use, in KiB, sampled four times a second.
        pub memory_peak_kib: Option<u64> as Opt<Int>,
        /// Bytes in use on the job's writable space.
        pub disk_bytes: Option<u64> as Opt<Int>,
        /// Processes killed for want of memory.
        pub oom_kills: Option<u64> as Opt<Int>,
    }
}

choice! {
    /// The agent's answer to a request.
    pub enum Answer {
        /// It is done.
        0 = Done,
        /// It is not.
        1 = Failed {
            /// Why.
            failure: Failure as Own,
        },
        /// What the paths of a `Stat` are, in their order; absent where there is nothing.
        2 = Stats {
            /// One a path.
            files: Vec<Option<FileInfo>> as List<Opt<Own>, MAX_STAT_PATHS>,
        },
        /// What was used.
        3 = Usage {
            /// The figures.
            usage: Usage as Own,
        },
        /// The guest is set up.
        4 = SetUp {
            /// What its paths are, in their order; absent where there is nothing.
            files: Vec<Option<FileInfo>> as List<Opt<Own>, MAX_STAT_PATHS>,
            /// What is in its file; absent where it cannot be read, or has more than it may.
            content: Option<Vec<u8>> as Opt<Bytes<MAX_SMALL_FILE>>,
        },
    }
}

choice! {
    /// A frame of the control stream, from host to agent.
    pub enum ControlToAgent {
        /// A request.
        0 = Request {
            /// Its number, for the answer.
            id: u32 as Int,
            /// What is asked.
            op: Op as Own,
        },
    }
}

choice! {
    /// A frame of the control stream, from agent to host.
    pub enum ControlToHost {
        /// The first.
        0 = Hello {
            /// What the agent says of itself.
            hello: Hello as Own,
        },
        /// An answer.
        1 = Answer {
            /// The number of the request.
            id: u32 as Int,
            /// The answer.
            answer: Answer as Own,
        },
        /// The agent cannot go on, and says why with its last breath; ends the stream.
        2 = Fault {
            /// Why.
            failure: Failure as Own,
        },
        /// The agent powers off as asked; ends the stream.
        3 = Bye,
    }
}

impl Frame for ControlToAgent {
    const NAME: &'static str = "ControlToAgent";
    fn is_final(&self) -> bool {
        false
    }
}

impl Frame for ControlToHost {
    const NAME: &'static str = "ControlToHost";
    fn is_final(&self) -> bool {
        matches!(self, Self::Bye | Self::Fault { .. })
    }
}
