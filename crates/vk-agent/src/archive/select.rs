//! Which files an archive takes: by patterns and by what git does not track, as gitlab-runner's
//! archiver selects (reference/runner-stages.md, section 15).

use std::collections::BTreeMap;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use vk_guest_proto::limits::MAX_PATH;
use vk_guest_proto::{Failure, FailureCode, NoteCode, TarOut};

use super::entry::Meta;
use super::notes::Notes;
use crate::beneath::Beneath;
use crate::context::{OrFail, fail, shown};
use crate::git::untracked;
use crate::glob::{Pattern, State, has_meta, relative, split_pattern, unescaped};

/// Most entries of one archive.
const MAX_ENTRIES: usize = 2_000_000;

/// Files by their path below the root, in byte order.
pub(super) type Selection = BTreeMap<Vec<u8>, Meta>;

/// An exclude pattern and what it left out.
struct Exclude<'a> {
    written: &'a [u8],
    pattern: Option<Pattern>,
    left_out: u64,
}

struct Selector<'a, 'b> {
    root: &'a Beneath,
    tar: &'a TarOut,
    excludes: Vec<Exclude<'a>>,
    found: Selection,
    notes: &'a mut Notes<'b>,
}

/// Selects what an archive takes from below its root.
pub(super) fn select(
    root: &Beneath,
    tar: &TarOut,
    notes: &mut Notes<'_>,
) -> Result<Selection, Failure> {
    let excludes = excludes(tar, notes)?;
    let mut selector = Selector {
        root,
        tar,
        excludes,
        found: Selection::new(),
        notes,
    };
    for path in &tar.paths {
        selector.take_pattern(path)?;
    }
    if tar.untracked {
        selector.take_untracked()?;
    }
    for exclude in selector
        .excludes
        .iter()
        .filter(|exclude| exclude.left_out > 0)
    {
        selector
            .notes
            .say(NoteCode::Excluded, exclude.written, exclude.left_out, "")?;
    }
    Ok(selector.found)
}

/// The exclude patterns up to the first that leads outside. A pattern that cannot be read excludes
/// nothing.
fn excludes<'a>(tar: &'a TarOut, notes: &mut Notes<'_>) -> Result<Vec<Exclude<'a>>, Failure> {
    let mut list = Vec::new();
    for written in &tar.exclude {
        let Some(below) = relative(&tar.root, written) else {
            notes.say(NoteCode::ExcludeOutside, written, 0, "")?;
            break;
        };
        list.push(Exclude {
            written,
            pattern: Pattern::new(&below).ok(),
            left_out: 0,
        });
    }
    Ok(list)
}

/// A directory that is still to be read: how far the pattern has come in it, and how many matches
/// it lies in. Each match is a walk of its own for the count, as it is for gitlab-runner.
struct Pending {
    path: Vec<u8>,
    state: State,
    matches: u64,
}

impl Selector<'_, '_> {
    fn take_pattern(&mut self, written: &[u8]) -> Result<(), Failure> {
        if written.is_empty() {
            return self.notes.say(NoteCode::EmptyPattern, b"", 0, "");
        }
        let (base, rest) = split_pattern(written);
        // A `..` after a star takes the star away, by text alone; so the whole is cleaned, not the
        // base only.
        let (Some(_), Some(below)) = (
            relative(&self.tar.root, &base),
            relative(&self.tar.root, written),
        ) else {
            return self.notes.say(NoteCode::PathOutside, written, 0, "");
        };
        let found = if has_meta(rest) {
            self.take_matches(&below)?
        } else {
            Some(self.take_tree(&unescaped(&below))?)
        };
        let Some(found) = found else { return Ok(()) };
        let code = if found == 0 {
            NoteCode::NoMatch
        } else {
            NoteCode::Matched
        };
        // As it was written, which is what its writer looks for.
        self.notes.say(code, written, found, "")
    }

    /// All that a pattern with meta characters matches, from its first directory on.
    /// `None` for a pattern that cannot be read.
    fn take_matches(&mut self, below: &[u8]) -> Result<Option<u64>, Failure> {
        let (base, rest) = split_pattern(below);
        let base = if base == b"." { Vec::new() } else { base };
        let Ok(pattern) = Pattern::new(rest) else {
            self.notes
                .say(NoteCode::Other, below, 0, "the pattern cannot be read")?;
            return Ok(None);
        };
        let start = pattern.start();
        let mut found = 0;
        let matches = u64::from(start.accepts());
        if matches > 0 {
            match self.look(&base)? {
                Some(meta) if meta.kind == FileType::Directory => {
                    found += self.offer(&base, meta, matches)?;
                }
                _ => return Ok(Some(0)),
            }
        }
        found += self.walk(
            Pending {
                path: base,
                state: start,
                matches,
            },
            Some(&pattern),
        )?;
        Ok(Some(found))
    }

    /// One path and everything below it.
    fn take_tree(&mut self, path: &[u8]) -> Result<u64, Failure> {
        let Some(meta) = self.look(path)? else {
            return Ok(0);
        };
        let found = self.offer(path, meta, 1)?;
        if meta.kind != FileType::Directory {
            return Ok(found);
        }
        let state = Pattern::new(b"").map(|pattern| pattern.start());
        let state = state.or_else(|_| fail(FailureCode::Internal, "an empty pattern is one"))?;
        Ok(found
            + self.walk(
                Pending {
                    path: path.to_vec(),
                    state,
                    matches: 1,
                },
                None,
            )?)
    }

    /// Everything below a directory that matches, or lies in a match. A list of directories still to
    /// be read instead of recursion: a job may nest them as deep as it likes.
    fn walk(&mut self, first: Pending, pattern: Option<&Pattern>) -> Result<u64, Failure> {
        let mut found = 0;
        let mut todo = vec![first];
        while let Some(pending) = todo.pop() {
            for (name, meta) in self.list(&pending.path)? {
                let path = join(&pending.path, &name);
                let state = pattern.map(|pattern| pattern.step(&pending.state, &name));
                let matched = state.as_ref().is_some_and(State::accepts);
                let matches = pending.matches + u64::from(matched);
                if matches > 0 {
                    found += self.offer(&path, meta, matches)?;
                }
                let goes_on = matches > 0 || state.as_ref().is_some_and(State::goes_on);
                if meta.kind == FileType::Directory && goes_on {
                    let state = state.unwrap_or_else(|| pending.state.clone());
                    todo.push(Pending {
                        path,
                        state,
                        matches,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Names and metadata in a directory; nothing for one that is gone or closed to us.
    fn list(&mut self, path: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>, Failure> {
        let dir = match self.root.open_dir(path) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => {
                let reason = std::io::Error::from(errno).to_string();
                self.notes.say(NoteCode::FileIgnored, path, 0, reason)?;
                return Ok(Vec::new());
            }
            Ok(dir) => dir,
        };
        let what = || format!("list {}", shown(path));
        let mut list = Vec::new();
        for entry in Dir::read_from(&dir).or_fail(what)? {
            let entry = entry.or_fail(what)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if path.len() + 1 + name.len() >= MAX_PATH {
                self.notes
                    .say(NoteCode::FileIgnored, path, 0, "a path in it is too long")?;
                continue;
            }
            match Meta::in_dir(&dir, name) {
                Ok(meta) => list.push((name.to_vec(), meta)),
                Err(Errno::NOENT) => {}
                Err(errno) => {
                    let reason = std::io::Error::from(errno).to_string();
                    self.notes
                        .say(NoteCode::FileIgnored, &join(path, name), 0, reason)?;
                }
            }
        }
        Ok(list)
    }

    /// What lies at a path, if anything does.
    fn look(&mut self, path: &[u8]) -> Result<Option<Meta>, Failure> {
        match Meta::at(self.root, path) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::XDEV) => {
                let text = "a symlink on the way leads out of the directory";
                self.notes.say(NoteCode::PathOutside, path, 0, text)?;
                Ok(None)
            }
            Err(errno) => {
                let reason = std::io::Error::from(errno).to_string();
                self.notes.say(NoteCode::FileIgnored, path, 0, reason)?;
                Ok(None)
            }
        }
    }

    /// Takes a file, unless it is excluded; gives how often it counts.
    fn offer(&mut self, path: &[u8], meta: Meta, matches: u64) -> Result<u64, Failure> {
        let name = if path.is_empty() {
            b".".as_slice()
        } else {
            path
        };
        let excluded = self.excludes.iter_mut().find(|exclude| {
            exclude
                .pattern
                .as_ref()
                .is_some_and(|pattern| pattern.matches(name))
        });
        if let Some(exclude) = excluded {
            exclude.left_out += matches;
            return Ok(0);
        }
        if self.found.len() >= MAX_ENTRIES {
            return fail(
                FailureCode::TooLarge,
                format!("an archive of over {MAX_ENTRIES} files"),
            );
        }
        // The directory itself is everyone's own already.
        if !path.is_empty() {
            self.found.insert(path.to_vec(), meta);
        }
        Ok(matches)
    }

    fn take_untracked(&mut self) -> Result<(), Failure> {
        let paths = match untracked(self.root) {
            Ok(paths) => paths,
            Err(why) => {
                return self
                    .notes
                    .say(NoteCode::UntrackedUnknown, b"", 0, why.to_string());
            }
        };
        let mut found = 0;
        for path in paths {
            if let Some(meta) = self.look(&path)? {
                found += self.offer(&path, meta, 1)?;
            }
        }
        self.notes.say(NoteCode::Untracked, b"", found, "")
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, b"/", name].concat()
    }
}
