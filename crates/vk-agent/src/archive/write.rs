//! A selection as a tar.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{FileType, OFlags, fstat, readlinkat};
use rustix::io::Errno;
use tar::{EntryType, Header};
use vk_guest_proto::{Failure, FailureCode, NoteCode, TransferEnd};

use super::entry::Meta;
use super::format::{pad, write_end, write_header};
use super::notes::Notes;
use super::select::Selection;
use crate::beneath::Beneath;
use crate::context::OrFail;

/// Where a tar goes, and what is to be known of it.
pub(super) struct TarWriter<'a, 'b, W> {
    pub(super) root: &'a Beneath,
    pub(super) out: W,
    pub(super) notes: &'a mut Notes<'b>,
    /// Whether files are written without their content.
    pub(super) list_only: bool,
}

impl<W: Write> TarWriter<'_, '_, W> {
    /// Writes all of it, in the order of the paths.
    pub(super) fn write(mut self, selection: &Selection) -> Result<(TransferEnd, W), Failure> {
        let mut end = TransferEnd {
            entries: 0,
            bytes: 0,
        };
        let mut in_git = false;
        for (path, meta) in selection {
            if !in_git && (path == b".git" || path.starts_with(b".git/")) {
                in_git = true;
                self.notes.say(NoteCode::InsideGit, path, 0, "")?;
            }
            if let Some(bytes) = self.entry(path, *meta)? {
                end.entries += 1;
                end.bytes += bytes;
            }
        }
        write_end(&mut self.out).or_else(sent)?;
        self.out.flush().or_else(sent)?;
        Ok((end, self.out))
    }

    /// Writes one entry; gives its bytes of content, or nothing if it was left out.
    fn entry(&mut self, path: &[u8], meta: Meta) -> Result<Option<u64>, Failure> {
        match meta.kind {
            FileType::Directory => {
                let name = [path, b"/"].concat();
                self.header(EntryType::Directory, meta, &name, b"", 0)?;
                Ok(Some(0))
            }
            FileType::Symlink => self.symlink(path, meta),
            FileType::RegularFile => self.file(path, meta),
            _ => self.ignore(path, "neither a file, a directory nor a symlink"),
        }
    }

    fn symlink(&mut self, path: &[u8], meta: Meta) -> Result<Option<u64>, Failure> {
        let target = self
            .root
            .open(path, OFlags::PATH)
            .and_then(|fd| readlinkat(&fd, c"", Vec::new()));
        match target {
            Ok(target) => {
                self.header(EntryType::Symlink, meta, path, target.as_bytes(), 0)?;
                Ok(Some(0))
            }
            Err(errno) => self.ignore(path, &reason(errno)),
        }
    }

    fn file(&mut self, path: &[u8], found: Meta) -> Result<Option<u64>, Failure> {
        // Without NONBLOCK a pipe that took the file's place would hold the archive for ever.
        let opened = self.root.open(path, OFlags::RDONLY | OFlags::NONBLOCK);
        let opened = opened.and_then(|fd| Ok((Meta::of(&fstat(&fd)?), fd)));
        let (meta, fd) = match opened {
            Ok((meta, fd)) if meta.kind == FileType::RegularFile => (meta, fd),
            Ok(_) => return self.ignore(path, "it is no longer a file"),
            Err(errno) => return self.ignore(path, &reason(errno)),
        };
        if self.list_only {
            self.header(EntryType::Regular, found, path, b"", 0)?;
            return Ok(Some(0));
        }
        self.header(EntryType::Regular, meta, path, b"", meta.size)?;
        self.content(path, File::from(fd), meta.size)?;
        Ok(Some(meta.size))
    }

    /// Exactly `size` bytes: what the header says stands, even if the file changes meanwhile.
    fn content(&mut self, path: &[u8], file: File, size: u64) -> Result<(), Failure> {
        let mut file = Tolerant { file, failed: None };
        let copied = io::copy(&mut file.by_ref().take(size), &mut self.out).or_else(sent)?;
        if copied < size {
            let zeros = io::repeat(0).take(size - copied);
            io::copy(&mut { zeros }, &mut self.out).or_else(sent)?;
        }
        let block = u64::try_from(super::format::BLOCK).unwrap_or(1);
        pad(&mut self.out, usize::try_from(size % block).unwrap_or(0)).or_else(sent)?;
        let grew = file.read(&mut [0]).is_ok_and(|n| n > 0);
        match file.failed {
            Some(error) => self
                .notes
                .say(NoteCode::FileChanged, path, 0, error.to_string()),
            None if copied < size || grew => self.notes.say(NoteCode::FileChanged, path, 0, ""),
            None => Ok(()),
        }
    }

    fn header(
        &mut self,
        kind: EntryType,
        meta: Meta,
        path: &[u8],
        link: &[u8],
        size: u64,
    ) -> Result<(), Failure> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(meta.mode);
        header.set_uid(meta.uid.into());
        header.set_gid(meta.gid.into());
        // The format has no times before 1970.
        header.set_mtime(u64::try_from(meta.mtime).unwrap_or(0));
        header.set_size(size);
        write_header(&mut self.out, &mut header, path, link).or_else(sent)
    }

    fn ignore(&mut self, path: &[u8], why: &str) -> Result<Option<u64>, Failure> {
        self.notes.say(NoteCode::FileIgnored, path, 0, why)?;
        Ok(None)
    }
}

/// A file whose read error is an early end: the archive's other files are worth having.
struct Tolerant {
    file: File,
    failed: Option<io::Error>,
}

impl Read for Tolerant {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.file.read(buf) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failed = Some(error);
                Ok(0)
            }
            result => result,
        }
    }
}

fn reason(errno: Errno) -> String {
    io::Error::from(errno).to_string()
}

fn sent<T>(error: io::Error) -> Result<T, Failure> {
    Err(error)
        .or_fail(|| "send the archive".into())
        .map_err(|mut failure: Failure| {
            failure.code = FailureCode::Io;
            failure
        })
}
