use crate::limits::{MAX_DIRECTORIES, MAX_NAME, MAX_PATH, MAX_STAT_PATHS};
use crate::macros::{choice, record};
use crate::wire::{Bytes, Int, List, Opt, Own, Text};

choice! {
    /// The format of a disk.
    #[derive(Copy, Hash)]
    pub enum DiskFormat {
        /// Read-only EROFS.
        0 = Erofs,
        /// Ext4, writable.
        1 = Ext4,
    }
}

choice! {
    /// Where a tree or space for one comes from.
    pub enum Volume {
        /// A virtio disk, found by the serial the host gave it (at most 20 bytes).
        0 = Disk {
            /// The serial.
            serial: Vec<u8> as Bytes<MAX_NAME>,
            /// Its format.
            format: DiskFormat as Own,
        },
        /// A directory the agent sees outside the job's root; only where the agent runs as a
        /// process.
        1 = Directory {
            /// The directory, absolute.
            path: Vec<u8> as Bytes<MAX_PATH>,
        },
        /// Memory, as a tmpfs.
        2 = Memory {
            /// Most bytes it may take.
            max_bytes: u64 as Int,
        },
    }
}

record! {
    /// The job's root: an overlay of a read-only image and writable space. Once a VM, before the
    /// first exec, file or archive.
    pub struct MountRoot {
        /// The image.
        pub image: Volume as Own,
        /// Where all changes go, those of later overlays too.
        pub writable: Volume as Own,
    }
}

record! {
    /// All that a guest is before the first exec, file or archive: an answer's way there and back costs
    /// a guest that is emulated milliseconds.
    pub struct SetUp {
        /// The machine's name; absent for a process, which has its host's.
        pub hostname: Option<String> as Opt<Text<MAX_NAME>>,
        /// The time, in nanoseconds since 1970 in UTC; absent for a process.
        pub unix_ns: Option<u64> as Opt<Int>,
        /// The job's root.
        pub root: MountRoot as Own,
        /// Directories in it, absolute, made in this order with their parents. Each becomes root's, and
        /// may be changed by all, also where it is there already.
        pub open: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_DIRECTORIES>,
        /// Paths in it to look at, absolute; a symlink at the end of one is followed. What is behind
        /// the first program (a file that may be executed) is not looked at, and told as not there.
        pub look: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_STAT_PATHS>,
        /// A file in it to be read, absolute, where it has at most
        /// [`MAX_SMALL_FILE`](crate::limits::MAX_SMALL_FILE) bytes.
        pub read: Vec<u8> as Bytes<MAX_PATH>,
    }
}

choice! {
    /// How a further tree is seen.
    #[derive(Copy, Hash)]
    pub enum TreeAccess {
        /// As it is.
        0 = ReadOnly,
        /// As the lower side of an overlay whose changes go to the writable space. What is at its
        /// place already is seen where the tree has nothing.
        1 = Overlay,
    }
}

record! {
    /// A further tree in the job's root: sources at the builds directory, say, or tools.
    pub struct MountTree {
        /// The tree.
        pub volume: Volume as Own,
        /// Where, absolute, in the job's root; made where missing, with its parents.
        pub at: Vec<u8> as Bytes<MAX_PATH>,
        /// How.
        pub access: TreeAccess as Own,
    }
}
