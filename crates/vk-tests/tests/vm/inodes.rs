//! Images in the guest, inode by inode.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use vk_tests::inode::{Found, Inode, unhex};

use crate::entry::{Entry, Kind, sha256};
use crate::job::{Host, Ran, is_long, test_root};
use crate::layout::{self, Stored};
use crate::{inspector, rich, root_fs};

/// Where the agent mounts what a kernel shows.
const MOUNTED: [&str; 3] = ["dev", "proc", "sys"];
/// What a job makes in its root.
const MADE: [&str; 1] = ["builds"];

/// A tree: its inodes by path, and which names are one inode.
#[derive(Default)]
struct Tree {
    inodes: BTreeMap<Vec<u8>, Inode>,
    shared: BTreeSet<BTreeSet<Vec<u8>>>,
}

impl Tree {
    /// What entries of one tree become.
    fn of(entries: &[Entry]) -> Self {
        let mut tree = Self::default();
        let mut names: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for entry in entries {
            let first = match &entry.kind {
                Kind::HardLink(to) => to.clone(),
                Kind::Dir => Vec::new(),
                _ => entry.path.clone(),
            };
            let inode = match &entry.kind {
                Kind::HardLink(to) => tree.inodes[to].clone(),
                _ => entry.inode(),
            };
            tree.inodes.insert(entry.path.clone(), inode);
            if entry.kind_is_no_directory() {
                names.entry(first).or_default().insert(entry.path.clone());
            }
        }
        for group in names.into_values().filter(|group| group.len() > 1) {
            for path in &group {
                tree.inodes.get_mut(path).unwrap().nlink = group.len() as u64;
            }
            tree.shared.insert(group);
        }
        tree.count_subdirectories();
        tree
    }

    fn count_subdirectories(&mut self) {
        let is_dir = |inode: &Inode| inode.mode & 0o170_000 == 0o040_000;
        let dirs: Vec<Vec<u8>> = self
            .inodes
            .iter()
            .filter(|(_, inode)| is_dir(inode))
            .map(|(path, _)| path.clone())
            .collect();
        for path in dirs.iter().filter(|path| !path.is_empty()) {
            let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            // Linux counts a directory's own two names as the first.
            self.inodes
                .entry(path.clone())
                .and_modify(|of| of.nlink += 1);
            if let Some(parent) = self.inodes.get_mut(&path[..end]) {
                parent.nlink += 1;
            }
        }
    }

    /// What the guest listed.
    fn listed(lines: &[u8]) -> Self {
        let mut tree = Self::default();
        let mut names: BTreeMap<(u64, u64), BTreeSet<Vec<u8>>> = BTreeMap::new();
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let found: Found = serde_json::from_slice(line).unwrap();
            let path = unhex(&found.path).unwrap();
            names
                .entry(found.identity)
                .or_default()
                .insert(path.clone());
            assert!(
                tree.inodes.insert(path, found.inode).is_none(),
                "listed twice"
            );
        }
        tree.shared = names
            .into_values()
            .filter(|group| group.len() > 1)
            .collect();
        tree
    }

    /// The tree without the top names given and all below them, and without the root itself, which
    /// is the job's own.
    fn without(mut self, tops: &[&str]) -> Self {
        let is_kept = |path: &[u8]| {
            let top = path.split(|byte| *byte == b'/').next().unwrap();
            !path.is_empty() && tops.iter().all(|name| name.as_bytes() != top)
        };
        self.inodes.retain(|path, _| is_kept(path));
        self.shared
            .retain(|group| group.iter().all(|path| is_kept(path)));
        self
    }

    /// Panics with the first differences, if there are any.
    fn assert_is(&self, wanted: &Self) {
        let paths: BTreeSet<&Vec<u8>> = self.inodes.keys().chain(wanted.inodes.keys()).collect();
        let differences: Vec<String> = paths
            .into_iter()
            .filter(|path| self.inodes.get(*path) != wanted.inodes.get(*path))
            .map(|path| {
                let (found, wanted) = (self.inodes.get(path), wanted.inodes.get(path));
                format!(
                    "{}\n  found  {found:?}\n  wanted {wanted:?}",
                    path.escape_ascii()
                )
            })
            .collect();
        let first = differences
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n");
        assert!(
            differences.is_empty(),
            "{} differ:\n{first}",
            differences.len()
        );
        assert!(self.shared == wanted.shared, "other names are one inode");
    }
}

impl Entry {
    fn kind_is_no_directory(&self) -> bool {
        !matches!(self.kind, Kind::Dir)
    }
}

fn list(host: &Host, image: &str) -> (Tree, Ran) {
    let ran = host.run(image, &inspector::command(is_long(), "inodes"), "inodes");
    println!("{}", ran.boot);
    let lines = ran.file("inodes");
    (Tree::listed(&lines), ran)
}

/// Every byte of the sparse file is read in the guest, and every block of it that holds anything is
/// hashed with its offset, on both sides. To hash the zeros too takes a guest without KVM many
/// minutes: that is done with `VK_LONG`.
#[test]
fn an_image_with_a_bit_of_everything_is_the_same_inode_by_inode_in_the_guest() {
    let Some(root) = test_root("a rich image in a guest") else {
        return;
    };
    let busybox = fs::read(root.join("images/busybox.tar")).unwrap();
    let inspector = inspector::inspector(&root);
    let host = Host::new(root);
    let (sparse, sparse_inode) = rich::sparse(&host.path("scratch"), is_long());
    let (lower, upper) = (rich::lower(), rich::upper());
    let layers = |dir: &Path, with_sparse: bool| {
        let mut layers = vec![
            Stored::Plain(&busybox),
            Stored::Plain(&inspector),
            Stored::Gzip(&lower),
            Stored::Gzip(&upper),
        ];
        if with_sparse {
            layers.push(Stored::Gzip(&sparse));
        }
        layout::write(dir, &layers);
    };
    layers(&host.path("without"), false);
    layers(&host.path("with"), true);
    let without = host.import(&host.path("without"), "rich-without");
    let with = host.import(&host.path("with"), "rich-with");
    println!(
        "disk images: {without} bytes, {with} with the sparse file of {}",
        rich::SPARSE
    );
    assert!(
        with - without < 2 << 20,
        "the sparse file adds {}",
        with - without
    );

    let mut entries = root_fs::entries(&busybox);
    entries.extend(rich::merged());
    let mut wanted = Tree::of(&entries);
    wanted.inodes.insert(b"rich/sparse".to_vec(), sparse_inode);
    let except = [&MOUNTED[..], &MADE, &[inspector::FOLDER]].concat();
    let wanted = wanted.without(&except);
    let (found, _) = list(&host, "rich-with");
    let found = found.without(&except);
    println!("{} inodes compared", found.inodes.len());
    found.assert_is(&wanted);
    assert_eq!(found.shared.len(), 1, "four names of one inode");
}

#[test]
fn a_whole_debian_is_the_same_inode_by_inode_in_the_guest() {
    let Some(root) = test_root("Debian in a guest") else {
        return;
    };
    let debian = fs::read(root.join("images/debian.tar")).unwrap();
    let inspector = inspector::inspector(&root);
    let host = Host::new(root);
    layout::write(
        &host.path("layout"),
        &[Stored::Plain(&debian), Stored::Plain(&inspector)],
    );
    let bytes = host.import(&host.path("layout"), "debian-inspected");
    let except = [&MOUNTED[..], &MADE, &[inspector::FOLDER]].concat();
    let wanted = Tree::of(&root_fs::entries(&debian)).without(&except);
    let (found, _) = list(&host, "debian-inspected");
    let found = found.without(&except);
    println!(
        "{} inodes compared, of a disk image of {bytes} bytes",
        found.inodes.len()
    );
    found.assert_is(&wanted);
}

#[test]
fn a_tree_that_differs_in_anything_is_told_from_the_one_wanted() {
    let entries = || {
        vec![
            Entry::new("d", Kind::Dir),
            Entry::file("d/a", "content").xattr("user.x", "y"),
            Entry::new("d/b", Kind::HardLink(b"d/a".to_vec())),
            Entry::new("link", Kind::Symlink(b"d/a".to_vec())),
            Entry::new("null", Kind::Char(1, 3)),
        ]
    };
    let wanted = Tree::of(&entries());
    Tree::of(&entries()).assert_is(&wanted);
    assert_eq!(
        (
            wanted.inodes[&b"d"[..]].nlink,
            wanted.inodes[&b"d/b"[..]].nlink
        ),
        (2, 2)
    );
    let changes: [fn(&mut Tree); 12] = [
        |tree| drop(tree.inodes.remove(&b"null"[..])),
        |tree| drop(tree.inodes.insert(b"more".to_vec(), Inode::default())),
        |tree| tree.shared.clear(),
        |tree| tree.inodes.get_mut(&b"d"[..]).unwrap().mode ^= 0o1000,
        |tree| tree.inodes.get_mut(&b"d"[..]).unwrap().uid = 1,
        |tree| tree.inodes.get_mut(&b"d"[..]).unwrap().gid = 1,
        |tree| tree.inodes.get_mut(&b"d"[..]).unwrap().nlink = 1,
        |tree| tree.inodes.get_mut(&b"d"[..]).unwrap().mtime.1 = 1,
        |tree| tree.inodes.get_mut(&b"d/a"[..]).unwrap().content = sha256(b"other content"),
        |tree| tree.inodes.get_mut(&b"d/a"[..]).unwrap().xattrs.clear(),
        |tree| tree.inodes.get_mut(&b"link"[..]).unwrap().target.clear(),
        |tree| tree.inodes.get_mut(&b"null"[..]).unwrap().rdev = (1, 5),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut other = Tree::of(&entries());
        change(&mut other);
        let told = std::panic::catch_unwind(|| other.assert_is(&wanted));
        assert!(told.is_err(), "change {number} is not seen");
    }
}
