//! How much a job's trees may be once they are checked out: a pack of a kilobyte may hold ten billion
//! files, or a petabyte, and neither may become the host's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::checkout::Tree;
use super::host::GitError;

/// Files and directories of all of a job's trees; their disk image holds no more.
const ENTRIES_MAX: u64 = 900_000;
/// Directories on the way to a file, from the tree's own root.
const LEVELS_MAX: usize = 500;

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeBounds {
    /// Files and directories.
    pub(crate) entries: u64,
    /// Bytes of files' contents.
    pub(crate) bytes: u64,
    /// Directories below each other.
    pub(crate) levels: usize,
}

impl TreeBounds {
    /// For a job that was granted so much of the disk.
    pub(crate) const fn of_disk(bytes: u64) -> TreeBounds {
        TreeBounds {
            entries: ENTRIES_MAX,
            bytes,
            levels: LEVELS_MAX,
        }
    }
}

/// How much a tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    entries: u64,
    bytes: u64,
}

impl Extent {
    const fn and(self, other: Extent) -> Extent {
        Extent {
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// What of a bound is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Entries,
    Bytes,
    Levels,
    /// What git lists is no list.
    Unread,
}

/// A job's trees, which share one bound: its own and its submodules'.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    bounds: TreeBounds,
    /// By where they lie: one that is checked out again counts once.
    known: Arc<Mutex<BTreeMap<PathBuf, Extent>>>,
}

impl Default for Trees {
    fn default() -> Self {
        Trees::within(TreeBounds::of_disk(u64::MAX))
    }
}

impl Trees {
    pub(crate) fn within(bounds: TreeBounds) -> Trees {
        let known = Arc::default();
        Trees { bounds, known }
    }

    /// What the other trees are.
    fn others(&self, tree: &Path) -> Extent {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let others = known.iter().filter(|(path, _)| *path != tree);
        others.fold(Extent::default(), |sum, (_, of)| sum.and(*of))
    }

    fn note(&self, tree: &Path, extent: Extent) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(tree.to_owned(), extent);
    }

    fn refuse(&self, over: Over) -> GitError {
        let TreeBounds {
            entries,
            bytes,
            levels,
        } = self.bounds;
        GitError::Extent(match over {
            Over::Entries => format!(
                "there are more than {entries} files and directories in it, and a job may have no more"
            ),
            Over::Bytes => format!(
                "its files are more than {bytes} bytes, the disk that a job has on this node: leave \
                 submodules out (GIT_SUBMODULE_PATHS), or keep large files elsewhere"
            ),
            Over::Levels => format!(
                "its directories lie more than {levels} deep, and a job may have no deeper ones"
            ),
            Over::Unread => "git lists it in a way this node does not understand".to_owned(),
        })
    }
}

impl Tree {
    /// Looks at a commit's files before any of them is written. It ends with the first that is too
    /// much, however many there are.
    pub(super) async fn look_at(&self, sha: &str) -> Result<(), GitError> {
        let trees = &self.git.trees;
        let others = trees.others(&self.work);
        let (mut extent, mut over) = (Extent::default(), None);
        let args = self.args(&["ls-tree", "-r", "-t", "-l", "-z", "--full-tree", sha]);
        let look = |record: &[u8]| {
            let bounds = trees.bounds;
            match entry(record) {
                Some((bytes, levels)) if levels <= bounds.levels => {
                    extent = extent.and(Extent { entries: 1, bytes });
                    let all = extent.and(others);
                    if all.entries > bounds.entries {
                        over = Some(Over::Entries);
                    } else if all.bytes > bounds.bytes {
                        over = Some(Over::Bytes);
                    }
                }
                Some(_) => over = Some(Over::Levels),
                None => over = Some(Over::Unread),
            }
            over.is_none()
        };
        let what = "look at the commit's files";
        self.git.each_record(what, &args, look).await?;
        if let Some(over) = over {
            return Err(trees.refuse(over));
        }
        trees.note(&self.work, extent);
        Ok(())
    }
}

/// Bytes and level of what `ls-tree -l` tells: `mode type object size<TAB>path`.
fn entry(record: &[u8]) -> Option<(u64, usize)> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let (told, path) = record.split_at_checked(tab)?;
    let size = std::str::from_utf8(told).ok()?.split_whitespace().nth(3)?;
    // Directories and submodules have none.
    let bytes = if size == "-" { 0 } else { size.parse().ok()? };
    let levels = path.iter().filter(|byte| **byte == b'/').count();
    Some((bytes, levels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_lists_is_read() {
        for (record, expected) in [
            ("100644 blob aa      12\ta/b\tc", Some((12, 1))),
            ("040000 tree bb       -\ta", Some((0, 0))),
            ("160000 commit cc       -\ta/b/c", Some((0, 2))),
            ("100644 blob aa 18446744073709551616\ta", None),
            ("100644 blob aa BAD\ta", None),
            ("100644 blob aa 12 a", None),
            ("", None),
        ] {
            assert_eq!(entry(record.as_bytes()), expected, "{record:?}");
        }
    }
}
