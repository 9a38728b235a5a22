use crate::limits::{MAX_NAME, MAX_PATH};
use crate::macros::{choice, record};
use crate::opaque::Opaque;
use crate::wire::{Bytes, Flag, Int, Own};

record! {
    /// One file to be written: its content comes as data frames, of any size. It is written beside
    /// its place and renamed into it, so that it is there whole or not at all.
    pub struct FileIn {
        /// Where, absolute, in the job's root.
        pub path: Vec<u8> as Bytes<MAX_PATH>,
        /// Its permission bits.
        pub mode: u32 as Int,
        /// Who shall own it, as in [`crate::Exec::user`]; empty for root.
        pub owner: Vec<u8> as Bytes<MAX_NAME>,
        /// Whether to make missing parent directories (mode 0755, same owner).
        pub create_parents: bool as Flag,
        /// Whether to add to what is there instead, making the file where it is missing.
        pub append: bool as Flag,
    }
}

record! {
    /// One regular file to be read.
    pub struct FileOut {
        /// Which, absolute, in the job's root; symlinks are followed within it.
        pub path: Vec<u8> as Bytes<MAX_PATH>,
        /// Most bytes to send. A longer file is refused with `TooLarge`, not cut.
        pub max_bytes: u64 as Int,
    }
}

choice! {
    /// What a path leads to.
    #[derive(Copy, Hash)]
    pub enum FileKind else Other {
        /// Neither of the others.
        0 = Other,
        /// A regular file.
        1 = File,
        /// A directory.
        2 = Directory,
        /// A symlink (only where symlinks are not followed).
        3 = Symlink,
    }
}

record! {
    /// What is known of a path.
    pub struct FileInfo {
        /// What it is.
        pub kind: FileKind as Own,
        /// Type and permission bits, as the kernel gives them.
        pub mode: u32 as Int,
        /// Owner.
        pub uid: u32 as Int,
        /// Group.
        pub gid: u32 as Int,
        /// Size in bytes.
        pub size: u64 as Int,
        /// Where a symlink leads, if it is one.
        pub target: Opaque as Bytes<MAX_PATH>,
    }
}
