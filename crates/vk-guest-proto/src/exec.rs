use crate::limits::{MAX_DIRECTORIES, MAX_NAME, MAX_PATH, MAX_REQUEST, MAX_STRINGS};
use crate::macros::{choice, record};
use crate::opaque::Opaque;
use crate::wire::{Bytes, Flag, Int, List, Opt, Own};

record! {
    /// One environment variable.
    pub struct EnvVar {
        /// Its name: not empty, without `=` and NUL.
        pub name: Vec<u8> as Bytes<MAX_REQUEST>,
        /// Its value: any bytes but NUL.
        pub value: Opaque as Bytes<MAX_REQUEST>,
    }
}

record! {
    /// A command to run in the job's root, in a session and a process group of its own.
    ///
    /// The environment is exactly `env`. A `argv[0]` without `/` is looked for in the `PATH` of
    /// `env`. SIGPIPE and every other signal have their default action and none is blocked.
    pub struct Exec {
        /// The program and its arguments; at least one.
        pub argv: Vec<Opaque> as List<Bytes<MAX_REQUEST>, MAX_STRINGS>,
        /// The environment, in this order. A string `NAME=value` of 128 KiB or more is refused with
        /// `TooLarge` and the variable's name: the kernel takes none (STAGE-35).
        pub env: Vec<EnvVar> as List<Own, MAX_STRINGS>,
        /// The working directory, absolute, in the job's root.
        pub cwd: Vec<u8> as Bytes<MAX_PATH>,
        /// Directories of the job's root to make first, with their parents, where they are missing,
        /// owned by the user. One that cannot be made is passed over, but for the working directory.
        pub directories: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_DIRECTORIES>,
        /// `name`, `uid`, `name:group`, `uid:gid` … as in the image's `/etc/passwd` and
        /// `/etc/group`; empty for root. Without a group, the user's own and every group that lists
        /// the user are taken.
        pub user: Vec<u8> as Bytes<MAX_NAME>,
        /// The file mode creation mask.
        pub umask: u32 as Int,
        /// What stdin is.
        pub stdin: Stdin as Own,
        /// Whether stderr goes into the pipe of stdout, which keeps the order of both exactly;
        /// else each has its own channel and the order between them is that of reading.
        pub merge_output: bool as Flag,
        /// Whether what the command left running is killed when it exits, as it is when a container
        /// ends with its first process.
        pub kill_leftovers: bool as Flag,
        /// Milliseconds that output is still awaited after the exit while a process left running
        /// holds the pipe open; then the rest is cut off ([`ExecEnd::cut`]).
        pub drain_ms: u32 as Int,
    }
}

choice! {
    /// What a command reads on its stdin.
    pub enum Stdin {
        /// `/dev/null`.
        0 = Null,
        /// A pipe that data frames feed, until [`crate::StreamToAgent::End`].
        1 = Stream,
        /// A file in memory that holds this, from its begin. A shell reads a script from a file in
        /// blocks, and from a pipe byte by byte.
        2 = File {
            /// Its content.
            content: Opaque as Bytes<MAX_REQUEST>,
        },
    }
}

choice! {
    /// Which processes a signal is meant for.
    #[derive(Copy, Hash)]
    pub enum Scope {
        /// The command's own process only.
        0 = Leader,
        /// Every process the command started, however deep and in whatever session.
        1 = Tree,
    }
}

choice! {
    /// How a command's own process ended.
    #[derive(Copy, Hash)]
    pub enum ExitStatus {
        /// It exited with this code, 0 to 255.
        0 = Code {
            /// The code.
            code: u8 as Int,
        },
        /// A signal ended it.
        1 = Signal {
            /// The signal's number.
            signal: u8 as Int,
        },
    }
}

impl ExitStatus {
    /// The code a shell would report: the exit code, or 128 and the signal's number.
    #[must_use]
    pub fn shell_code(self) -> i32 {
        match self {
            ExitStatus::Code { code } => i32::from(code),
            ExitStatus::Signal { signal } => 128 + i32::from(signal),
        }
    }
}

record! {
    /// A command's end.
    pub struct ExecEnd {
        /// How its process ended.
        pub status: ExitStatus as Own,
        /// Whether a process left running still held the output when the drain time was over, so
        /// that what it writes later is lost.
        pub cut: bool as Flag,
        /// Processes of the command that were still there at its end (killed, where asked).
        pub leftovers: u32 as Int,
        /// Processes the guest's kernel killed for want of memory while the command ran.
        pub oom_kills: u64 as Int,
        /// CPU time of the command's process and those it waited for, user and system, in
        /// milliseconds.
        pub cpu_ms: u64 as Int,
        /// The largest resident set of one of these processes, in KiB, where known.
        pub max_rss_kib: Option<u64> as Opt<Int>,
    }
}
