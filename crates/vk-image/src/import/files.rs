//! The files of an archive or a layout, by name.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

use super::survey::{Index, Place, clean};

/// Links followed from one name.
const LINKS_MAX: usize = 8;

/// Where files are read from.
pub(super) struct Files<'a> {
    path: &'a Path,
    from: From,
}

enum From {
    Directory,
    Archive(File, Index),
}

impl<'a> Files<'a> {
    pub(super) fn directory(path: &'a Path) -> Self {
        Self {
            path,
            from: From::Directory,
        }
    }

    pub(super) fn archive(path: &'a Path, file: File, index: Index) -> Self {
        Self {
            path,
            from: From::Archive(file, index),
        }
    }

    /// One file's bytes, and how many there are.
    pub(super) fn open(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64), Error> {
        let missing = || Error::import(self.path, format!("{name:?} is missing in it"));
        let name = clean(name).ok_or_else(missing)?;
        match &self.from {
            From::Directory => {
                let path: PathBuf = self.path.join(&name);
                let file = File::open(&path).map_err(Error::file("opening", &path))?;
                let size = file
                    .metadata()
                    .map_err(Error::file("reading", &path))?
                    .len();
                Ok((Box::new(file), size))
            }
            From::Archive(file, index) => {
                let mut name = name.as_str();
                for _ in 0..LINKS_MAX {
                    match index.get(name) {
                        Some(Place::At(at, size)) => {
                            let section = Section {
                                file,
                                at: *at,
                                left: *size,
                            };
                            return Ok((Box::new(section), *size));
                        }
                        Some(Place::Link(target)) => name = target,
                        None => break,
                    }
                }
                Err(missing())
            }
        }
    }

    /// A whole file of at most `limit` bytes.
    pub(super) fn small(&self, name: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let (input, size) = self.open(name)?;
        if size > limit {
            let what = format!("{name:?} in it is longer than {limit} bytes");
            return Err(Error::import(self.path, what));
        }
        let mut bytes = Vec::new();
        input
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(Error::file("reading", self.path))?;
        Ok(bytes)
    }
}

/// A part of a file.
struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let take = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = self
            .file
            .read_at(buffer.get_mut(..take).unwrap_or_default(), self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}
