//! What owner and holder say to each other: one JSON value a packet, descriptors beside an order.

use serde::{Deserialize, Serialize};

use super::program::Program;

/// No packet is larger. A socket's buffer holds it (net.core.wmem_default is 208 KiB).
pub(super) const PACKET_MAX: usize = 128 * 1024;

/// The number of the one descriptor that a program may get beside its stdin, stdout and stderr:
/// above all that a holder has open.
pub const INHERITED: i32 = 500;

/// What the owner asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// To start a program. Two descriptors come with it, its stdout and stderr, and a third where the
    /// program inherits one.
    Launch {
        /// The owner's number for it.
        id: u32,
        /// The program.
        program: Program,
    },
    /// To kill a program, if it still runs.
    Kill {
        /// Its number.
        id: u32,
    },
}

/// What the holder says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// It is ready for orders. The first.
    Ready,
    /// A program was started (its own stage may still fail: then it exits).
    Started {
        /// Its number.
        id: u32,
    },
    /// A program was not started.
    Refused {
        /// Its number.
        id: u32,
        /// Why.
        why: String,
    },
    /// A program ended.
    Exited {
        /// Its number.
        id: u32,
        /// How.
        exit: Exit,
    },
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It ended with its holder, unseen.
    WithHolder,
}

impl Exit {
    /// Whether it ended well.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::WithHolder => f.write_str("the end of its holder"),
        }
    }
}
