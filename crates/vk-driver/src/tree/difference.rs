//! What of a tree differs from an earlier one, as an image that an overlay puts over that one's.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vk_erofs::{Builder, Node, Options};

use super::list::{Entry, Kind, Reader, order};
use super::{TreeError, empty, file, put, walk};

/// A difference of less is written however small the earlier tree is.
const BYTES_FREE: u64 = 64 << 20;
const ENTRIES_FREE: u64 = 5_000;
/// Above that, at most one of this many parts of the earlier tree.
const PART: u64 = 4;

/// One place where the trees differ.
enum Change {
    /// There is another file now, or one where none was.
    Put(Entry, Box<Metadata>),
    /// There is none any more.
    Gone(Vec<u8>),
}

impl Change {
    fn path(&self) -> &[u8] {
        match self {
            Change::Put(entry, _) => &entry.path,
            Change::Gone(path) => path,
        }
    }
}

/// Writes into `image`, whose size stays as it is, what `tree` has otherwise than the image of which
/// `list` tells, with a whiteout for each file that is gone. False where that is too much to be worth
/// it, or the list is none: then nothing was written.
pub(crate) fn write_difference(tree: &Path, image: &Path, list: &Path) -> Result<bool, TreeError> {
    let Some(changes) = changes(tree, list)? else {
        return Ok(false);
    };
    let mut builder = Builder::new(empty(image)?, Options::default());
    let mut given = HashSet::new();
    let root = fs::symlink_metadata(tree).map_err(file("look at", tree))?;
    put(
        &mut builder,
        tree,
        &Entry::new(Vec::new(), Kind::Dir, &root),
        &root,
    )?;
    for change in &changes {
        directories_of(&mut builder, tree, change.path(), &mut given)?;
        match change {
            Change::Put(entry, meta) => {
                put(&mut builder, tree, entry, meta)?;
                if entry.kind == Kind::Dir {
                    given.insert(entry.path.clone());
                }
            }
            Change::Gone(path) => {
                let whiteout = Node::Char { major: 0, minor: 0 };
                builder.node(path, vk_erofs::Metadata::default(), whiteout)?;
            }
        }
    }
    builder.finish()?;
    Ok(true)
}

/// The directories above a path, each once: an overlay shows the upper one's mode and time.
fn directories_of(
    builder: &mut Builder<File>,
    tree: &Path,
    path: &[u8],
    given: &mut HashSet<Vec<u8>>,
) -> Result<(), TreeError> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for (at, _) in slashes {
        let above = path.get(..at).unwrap_or_default();
        if !given.insert(above.to_vec()) {
            continue;
        }
        let on_host = tree.join(std::ffi::OsStr::from_bytes(above));
        let meta = fs::symlink_metadata(&on_host).map_err(file("look at", &on_host))?;
        put(
            builder,
            tree,
            &Entry::new(above.to_vec(), Kind::Dir, &meta),
            &meta,
        )?;
    }
    Ok(())
}

/// None where there are too many, or the list cannot be read.
fn changes(tree: &Path, list: &Path) -> Result<Option<Vec<Change>>, TreeError> {
    let Ok(mut before) = Before::open(list) else {
        return Ok(None);
    };
    let mut changes = Changes::default();
    let mut damaged = false;
    walk(tree, &mut |entry, meta| {
        if entry.path.is_empty() || damaged || changes.are_too_many() {
            return Ok(());
        }
        damaged = before.pass(entry, meta, &mut changes).is_err();
        Ok(())
    })?;
    if damaged || before.rest(&mut changes).is_err() || changes.are_too_many() {
        return Ok(None);
    }
    let bytes = BYTES_FREE.max(before.bytes / PART);
    let entries = ENTRIES_FREE.max(before.entries / PART);
    let few = changes.bytes <= bytes && (changes.all.len() as u64) <= entries;
    Ok(few.then_some(changes.all))
}

#[derive(Default)]
struct Changes {
    all: Vec<Change>,
    bytes: u64,
}

impl Changes {
    /// More than memory should hold, whatever the limit turns out to be.
    fn are_too_many(&self) -> bool {
        self.all.len() > 1_000_000
    }

    fn put(&mut self, entry: Entry, meta: &Metadata) {
        if entry.kind == Kind::File {
            self.bytes += meta.len();
        }
        self.all.push(Change::Put(entry, Box::new(meta.clone())));
    }
}

/// The earlier tree, followed beside a walk through the later one.
struct Before {
    list: Reader,
    next: Option<Entry>,
    /// A directory that is gone: nothing in it needs to be taken away.
    covered: Option<Vec<u8>>,
    entries: u64,
    bytes: u64,
}

impl Before {
    fn open(list: &Path) -> std::io::Result<Before> {
        let mut list = Reader::open(list)?;
        let next = list.next()?;
        Ok(Before {
            list,
            next,
            covered: None,
            entries: 0,
            bytes: 0,
        })
    }

    fn take(&mut self) -> std::io::Result<Option<Entry>> {
        let next = self.list.next()?;
        let taken = std::mem::replace(&mut self.next, next);
        if let Some(entry) = &taken {
            self.entries += 1;
            self.bytes += entry.size();
        }
        Ok(taken)
    }

    /// Comes to a file of the later tree.
    fn pass(&mut self, now: Entry, meta: &Metadata, to: &mut Changes) -> std::io::Result<()> {
        while let Some(next) = &self.next {
            match order(&next.path, &now.path) {
                std::cmp::Ordering::Less => self.gone(to)?,
                std::cmp::Ordering::Equal => {
                    let before = self.take()?;
                    match before {
                        Some(before) if before.is_still(&now) => {}
                        Some(before) => {
                            if before.kind == Kind::Dir && now.kind != Kind::Dir {
                                self.covered = Some(before.path);
                            }
                            to.put(now, meta);
                        }
                        None => {}
                    }
                    return Ok(());
                }
                std::cmp::Ordering::Greater => break,
            }
        }
        to.put(now, meta);
        Ok(())
    }

    /// The next of the earlier files has no counterpart.
    fn gone(&mut self, to: &mut Changes) -> std::io::Result<()> {
        let Some(entry) = self.take()? else {
            return Ok(());
        };
        if let Some(covered) = &self.covered
            && is_below(&entry.path, covered)
        {
            return Ok(());
        }
        if entry.kind == Kind::Dir {
            self.covered = Some(entry.path.clone());
        }
        to.all.push(Change::Gone(entry.path));
        Ok(())
    }

    fn rest(&mut self, to: &mut Changes) -> std::io::Result<()> {
        while self.next.is_some() && !to.are_too_many() {
            self.gone(to)?;
        }
        Ok(())
    }
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::super::write_image;
    use super::*;

    /// What lies where: content of files, targets of links, none for directories; and the mode.
    type Seen = BTreeMap<Vec<u8>, (Kind, u32, Vec<u8>)>;

    fn look(tree: &Path, entry: &Entry, meta: &Metadata) -> (Kind, u32, Vec<u8>) {
        use std::os::unix::fs::MetadataExt;
        let path = tree.join(std::ffi::OsStr::from_bytes(&entry.path));
        let content = match entry.kind {
            Kind::Dir => Vec::new(),
            Kind::File => fs::read(path).unwrap(),
            Kind::Symlink => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        };
        (entry.kind, meta.mode(), content)
    }

    fn seen(tree: &Path) -> Seen {
        let mut seen = Seen::new();
        walk(tree, &mut |entry, meta| {
            if !entry.path.is_empty() {
                let what = look(tree, &entry, meta);
                seen.insert(entry.path, what);
            }
            Ok(())
        })
        .unwrap();
        seen
    }

    /// What an overlay of the changes over the earlier tree shows.
    fn overlaid(mut seen: Seen, tree: &Path, changes: &[Change]) -> Seen {
        for change in changes {
            let path = change.path().to_vec();
            let stays_dir = |seen: &Seen| {
                matches!(change, Change::Put(entry, _) if entry.kind == Kind::Dir)
                    && matches!(seen.get(&path), Some((Kind::Dir, ..)))
            };
            if !stays_dir(&seen) {
                seen.retain(|at, _| *at != path && !is_below(at, &path));
            }
            if let Change::Put(entry, meta) = change {
                let what = look(tree, entry, meta);
                seen.insert(path, what);
            }
        }
        seen
    }

    /// One file of a made-up tree: a path, and what is there.
    #[derive(Clone, Debug)]
    struct Made {
        path: String,
        what: u8,
        content: u8,
    }

    fn made() -> impl Strategy<Value = Made> {
        let path = proptest::collection::vec("(a|b|a-b|a\\.b)", 1..4);
        (path, 0_u8..4, 0_u8..3).prop_map(|(path, what, content)| Made {
            path: path.join("/"),
            what,
            content,
        })
    }

    /// Makes it; what cannot be, since something else is in its way, is left out.
    fn make(tree: &Path, made: &Made) {
        let path: PathBuf = tree.join(&made.path);
        let _ = fs::create_dir_all(path.parent().unwrap());
        let _ = match made.what {
            0 => fs::create_dir(&path),
            1 => std::os::unix::fs::symlink(format!("t{}", made.content), &path),
            _ => fs::write(&path, vec![b'x'; usize::from(made.content)]),
        };
    }

    proptest! {
        #[test]
        fn an_earlier_tree_with_the_difference_over_it_is_the_later_one(
            first in proptest::collection::vec(made(), 0..12),
            gone in proptest::collection::vec("(a|b|a-b)(/(a|b))?", 0..4),
            then in proptest::collection::vec(made(), 0..6),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let (tree, list) = (dir.path().join("tree"), dir.path().join("list"));
            let image = dir.path().join("image");
            fs::create_dir(&tree).unwrap();
            File::create(&image).unwrap().set_len(1 << 20).unwrap();
            first.iter().for_each(|made| make(&tree, made));
            write_image(&tree, &image, Some(&list)).unwrap();
            let before = seen(&tree);
            for path in gone {
                let path = tree.join(path);
                let _ = fs::remove_file(&path);
                let _ = fs::remove_dir_all(&path);
            }
            then.iter().for_each(|made| make(&tree, made));
            let changes = changes(&tree, &list).unwrap().unwrap();
            prop_assert_eq!(overlaid(before, &tree, &changes), seen(&tree));
            prop_assert!(write_difference(&tree, &image, &list).unwrap());
        }
    }

    #[test]
    fn what_did_not_change_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, list) = (dir.path().join("tree"), dir.path().join("list"));
        let image = dir.path().join("image");
        fs::create_dir_all(tree.join("dir")).unwrap();
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        for name in ["dir/kept", "dir/changed", "dir/gone"] {
            fs::write(tree.join(name), "one").unwrap();
            let opened = File::options().write(true).open(tree.join(name)).unwrap();
            opened.set_modified(long_ago).unwrap();
        }
        // Its change must be old, too, and only the clock makes that so.
        let list_of = |path: &Path| {
            write_image(&tree, &image, Some(path)).unwrap();
            let text = fs::read(path).unwrap();
            fs::write(path, String::from_utf8(text).unwrap().replace(" ? ", " - ")).unwrap();
        };
        list_of(&list);
        fs::write(tree.join("dir/changed"), "two").unwrap();
        fs::remove_file(tree.join("dir/gone")).unwrap();
        let changes = changes(&tree, &list).unwrap().unwrap();
        let paths: Vec<_> = changes
            .iter()
            .map(|change| change.path().to_vec())
            .collect();
        assert_eq!(paths, [b"dir/changed".to_vec(), b"dir/gone".to_vec()]);
    }

    #[test]
    fn a_list_that_is_damaged_or_missing_says_nothing_of_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, list) = (dir.path().join("tree"), dir.path().join("list"));
        let image = dir.path().join("image");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("a"), "x").unwrap();
        File::create(&image).unwrap().set_len(1 << 20).unwrap();
        assert!(!write_difference(&tree, &image, &list).unwrap());
        write_image(&tree, &image, Some(&list)).unwrap();
        let whole = fs::read(&list).unwrap();
        fs::write(&list, &whole[..whole.len() - 4]).unwrap();
        assert!(!write_difference(&tree, &image, &list).unwrap());
    }
}
