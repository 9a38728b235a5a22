use crate::limits::{MAX_NAME, MAX_PATH, MAX_PATTERNS, MAX_TEXT};
use crate::macros::{choice, record};
use crate::wire::{Bytes, Flag, Int, List, Own, Text};

record! {
    /// Files of the guest as a tar (GUEST-01, GUEST-08). Entries come in the byte order of their
    /// paths, relative to `root`; directories are entries; symlinks are stored, not followed.
    pub struct TarOut {
        /// The directory it is about, absolute, in the job's root.
        pub root: Vec<u8> as Bytes<MAX_PATH>,
        /// What to take: doublestar patterns relative to `root`, or absolute and within it. A match
        /// that is a directory is taken whole.
        pub paths: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_PATTERNS>,
        /// What to leave out: patterns matched against whole relative paths.
        pub exclude: Vec<Vec<u8>> as List<Bytes<MAX_PATH>, MAX_PATTERNS>,
        /// Whether to take what git does not track, ignored files included (GUEST-10).
        pub untracked: bool as Flag,
        /// Whether only to list: the notes come, and the tar has no content in its files (all are
        /// empty).
        pub list_only: bool as Flag,
    }
}

record! {
    /// A tar to be extracted in the guest (GUEST-01, GUEST-08). The bytes come as data frames.
    pub struct TarIn {
        /// The directory to extract into, absolute, in the job's root; made where missing. Nothing
        /// is written outside it, whatever the archive says (GUEST-09).
        pub root: Vec<u8> as Bytes<MAX_PATH>,
        /// Who shall own what is written, as in [`crate::Exec::user`]; empty to keep the owners
        /// that the archive names.
        pub owner: Vec<u8> as Bytes<MAX_NAME>,
        /// Most entries the archive may have.
        pub max_entries: u64 as Int,
        /// Most bytes its files may have, together.
        pub max_bytes: u64 as Int,
    }
}

choice! {
    /// What a note is about. A code that is not known reads as `Other`.
    #[derive(Copy, Hash)]
    pub enum NoteCode else Other {
        /// Only the text says it.
        0 = Other,
        /// `subject` is a pattern that matched `count` files and directories.
        1 = Matched,
        /// `subject` is a pattern that matched nothing.
        2 = NoMatch,
        /// `subject` is a pattern of no characters.
        3 = EmptyPattern,
        /// `subject` is a path pattern that leads out of the root; it was left out.
        4 = PathOutside,
        /// `subject` is an exclude pattern that leads out of the root; no pattern after it was
        /// looked at.
        5 = ExcludeOutside,
        /// `subject` is an exclude pattern that left out `count` files.
        6 = Excluded,
        /// `count` untracked files were found; with `count` 0, none.
        7 = Untracked,
        /// Untracked files cannot be told; the text says why.
        8 = UntrackedUnknown,
        /// `subject` is a file that was not stored: gone meanwhile, unreadable, or of a kind that
        /// archives do not have (socket, device, pipe).
        9 = FileIgnored,
        /// `subject` is the first path inside `.git`.
        10 = InsideGit,
        /// `subject` is an entry that was not extracted; the text says why.
        11 = EntrySkipped,
        /// `subject` is a file that changed while it was read: it is stored at the size it had
        /// first, cut or filled with zeros.
        12 = FileChanged,
        /// Further notes of this code were left out; `count` says how many.
        13 = More,
    }
}

record! {
    /// Something a reader of the log should know, that does not end the transfer.
    pub struct Note {
        /// What it is about.
        pub code: NoteCode as Own,
        /// The path or pattern in question.
        pub subject: Vec<u8> as Bytes<MAX_PATH>,
        /// How many, where the code says so; else 0.
        pub count: u64 as Int,
        /// The reason, where there is one.
        pub text: String as Text<MAX_TEXT>,
    }
}
