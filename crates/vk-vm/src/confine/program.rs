use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How strictly programs are walled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Walls {
    /// Namespaces, a view and no capabilities; a program that cannot have them does not start.
    Required,
    /// None but no capabilities and no new privileges. For a host that cannot confine and whose
    /// operator said aloud that VMs shall run all the same.
    Off,
}

/// Who confines, and how strictly.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The program whose hidden `guest confine` commands are the stages: `vk`.
    pub helper: PathBuf,
    /// How strictly.
    pub walls: Walls,
}

/// What a confined program may do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read it, execute it, and nothing else.
    Read,
    /// Read and write it.
    Write,
    /// Use it as a device.
    Device,
}

/// A file or directory in a confined program's view, at the path it has outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Its absolute path.
    pub path: PathBuf,
    /// What may be done with it.
    pub access: Access,
}

impl Place {
    /// A place that may be read.
    #[must_use]
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            access: Access::Read,
        }
    }

    /// A place that may be written.
    #[must_use]
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            access: Access::Write,
        }
    }

    /// A device.
    #[must_use]
    pub fn device(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            access: Access::Device,
        }
    }
}

/// A program to be held. Its environment and its stdin are empty.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// The program's absolute path.
    pub path: PathBuf,
    /// Its arguments. They are readable by everyone on the host: never a secret.
    pub args: Vec<OsString>,
    /// The directory it starts in; in a view, one of its places or on the way to one.
    pub directory: PathBuf,
    /// Its walls.
    pub confines: Confines,
    /// Whether it gets a descriptor of its owner's, as number [`INHERITED`](super::INHERITED).
    #[serde(default)]
    pub inherits: bool,
}

/// What is around a program, unless the walls are off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Confines {
    /// Namespaces of its own, no rights, and a view.
    View {
        /// An empty directory that the view is mounted on; nothing of it is seen outside.
        at: PathBuf,
        /// Everything it sees.
        places: Vec<Place>,
    },
    /// The holder's own namespaces, in which it is root: for the keeper of a VM's network, which
    /// makes a network namespace and has no right over the host's. No wall but the holder's;
    /// impossible with walls off.
    Holder,
    /// Namespaces in which it is root and sees the host's files: for a guest that is no machine.
    /// No wall to rely on; impossible with walls off.
    #[cfg(feature = "process-vmm")]
    Root,
}
