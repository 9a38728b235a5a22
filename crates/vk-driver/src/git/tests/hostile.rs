//! Repositories made to attack the node that fetches them, by seed. Sly ones have nothing that git refuses,
//! and thousands of odd names, links and contents: all of them arrive as they are. Bold ones have what
//! must be refused. Neither runs anything, writes outside the job's tree or hangs. `VK_LONG` makes a
//! million entries; `VK_SEED` and `VK_FUZZ` say which and how many.

mod objects;
mod random;
mod repository;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::git::{Rewrites, Site, update};
use crate::settings::Submodules;
use objects::Store;
use random::Random;
use repository::{Entry, bold, sly};

/// Entries of a sly repository.
const ENTRIES: u64 = 2000;
/// Far more than a job's sources take here, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(600);

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn entries(few: u64) -> u64 {
    let long = std::env::var_os("VK_LONG").is_some();
    asked("VK_FUZZ").unwrap_or(if long { 1_000_000 } else { few })
}

/// The seeds of so many repositories.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = asked("VK_SEED").unwrap_or(1);
    first..first + count
}

/// A node beside which lies what nobody may touch.
struct Node {
    world: World,
    around: BTreeSet<String>,
}

impl Node {
    async fn new() -> Node {
        let world = World::new();
        fs::create_dir(world.dir.path().join("witness")).unwrap();
        fs::write(world.dir.path().join("witness/file"), "untouched").unwrap();
        let node = Node {
            world,
            around: BTreeSet::new(),
        };
        // What an honest job leaves is what there may be.
        node.job("honest").await.unwrap();
        let around = node.names();
        Node { around, ..node }
    }

    fn store(&self) -> Store {
        Store::new(self.world.bare().join("objects"))
    }

    fn serve(&self, commit: &str) {
        for reference in ["refs/heads/main", "refs/pipelines/9"] {
            fs::write(self.world.bare().join(reference), format!("{commit}\n")).unwrap();
        }
    }

    fn canary(&self) -> PathBuf {
        self.world.dir.path().join("canary")
    }

    /// Names beside and in the places that a job uses.
    fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for place in ["", "g", "home", "witness"] {
            let dir = self.world.dir.path().join(place);
            for entry in fs::read_dir(dir).into_iter().flatten() {
                let name = entry.unwrap().file_name();
                names.insert(format!("{place}/{}", name.to_string_lossy()));
            }
        }
        names
    }

    /// Fetches and checks out, submodules too; leaves the tree.
    async fn job(&self, tree: &str) -> Result<PathBuf, GitError> {
        let bare = self.world.bare();
        let sha = fs::read_to_string(bare.join("refs/heads/main"));
        let sources = Sources {
            sha: sha.map_or_else(
                |_| git(&bare, &["rev-parse", "main"]),
                |sha| sha.trim().to_owned(),
            ),
            refspecs: vec![
                "+refs/pipelines/9:refs/pipelines/9".to_owned(),
                "+refs/heads/*:refs/remotes/origin/*".to_owned(),
            ],
            depth: 1,
            ..crate::testing::job().sources
        };
        let sources = Sources {
            repo_url: self.world.url.clone(),
            ..sources
        };
        let flags = FetchFlags::default();
        let brought = self.world.bring(&sources, &flags, "the-token", tree).await;
        let (_, top, credential) = brought?;
        let site = Site {
            mirrors: self.world.dir.path().join("mirrors"),
            credential: Arc::new(credential),
            wanted: Submodules {
                recursive: true,
                depth: 1,
                paths: Vec::new(),
                force_https: true,
                jobs: 1,
                remote: false,
                recommended: true,
            },
            format: sources.object_format,
            rewrites: Rewrites::default(),
        };
        update(&site, &top, &self.world.url).await?;
        Ok(self.world.dir.path().join(tree))
    }

    /// Runs a job of what is served, and says whether it was taken. Whatever it was, all around is as it was
    /// before.
    async fn attacked(&self, what: &str, check: impl FnOnce(&Path)) -> bool {
        let ran = tokio::time::timeout(PATIENCE, self.job("attacked")).await;
        let ran = ran.unwrap_or_else(|_| panic!("{what}: it hangs"));
        assert!(!self.canary().exists(), "{what}: something ran: {ran:?}");
        let tree = self.world.dir.path().join("attacked");
        match &ran {
            Ok(tree) => {
                safe(tree, what);
                check(tree);
            }
            Err(error) => {
                println!("{what}: {error}");
                // How git tells of settings that it read from the host's files.
                let read = error.to_string().contains(" in file ");
                assert!(!read, "{what}: a file of the host was read: {error}");
            }
        }
        let _ = fs::remove_dir_all(&tree);
        assert_eq!(self.names(), self.around, "{what}");
        let witness = fs::read(self.world.dir.path().join("witness/file")).unwrap();
        assert_eq!(witness, b"untouched", "{what}");
        ran.is_ok()
    }
}

/// Nothing of the repository came to lie where git reads what it is to do.
fn safe(tree: &Path, what: &str) {
    let of_git = tree.join(".git");
    assert!(fs::symlink_metadata(&of_git).unwrap().is_dir(), "{what}");
    let config = fs::read_to_string(of_git.join("config")).unwrap();
    for bad in [
        "canary",
        "fsmonitor",
        "hooksPath",
        "filter",
        "sshCommand",
        "ext::",
        "alternate",
    ] {
        assert!(!config.contains(bad), "{what}: {config}");
    }
    let hooks = fs::read_dir(of_git.join("hooks")).map_or(0, Iterator::count);
    assert_eq!(hooks, 0, "{what}: hooks");
}

/// Everything is there, as it was committed.
fn arrived(entries: &[Entry], dir: &Path, what: &str) {
    for entry in entries {
        let path = dir.join(entry.name());
        let there = fs::symlink_metadata(&path)
            .unwrap_or_else(|error| panic!("{what}: {}: {error}", path.display()));
        match entry {
            Entry::File { content, runs, .. } => {
                assert!(there.is_file(), "{what}: {}", path.display());
                assert_eq!(
                    &fs::read(&path).unwrap(),
                    content,
                    "{what}: {}",
                    path.display()
                );
                assert_eq!(there.permissions().mode() & 0o100 != 0, *runs, "{what}");
            }
            Entry::Link { target, .. } => {
                use std::os::unix::ffi::OsStrExt as _;
                let told = fs::read_link(&path).unwrap();
                assert_eq!(
                    told.as_os_str().as_bytes(),
                    target,
                    "{what}: {}",
                    path.display()
                );
            }
            Entry::Directory { entries, .. } => arrived(entries, &path, what),
            Entry::Raw { .. } => {}
        }
    }
}

#[tokio::test]
async fn sly_repositories_arrive_as_they_are_and_do_nothing() {
    let node = Node::new().await;
    let count = entries(600);
    let each = count.min(ENTRIES);
    for seed in seeds(count.div_ceil(each)) {
        let mut random = Random::new(seed);
        let entries = sly(&mut random, each, &node.canary());
        let commit = node.store().commit(&entries);
        node.serve(&commit);
        let what = format!("sly repository {seed}");
        let taken = node
            .attacked(&what, |tree| arrived(&entries, tree, &what))
            .await;
        assert!(taken, "{what}: {:?}", node.job("refused").await);
    }
}

#[tokio::test]
async fn bold_repositories_are_refused_or_harmless() {
    let node = Node::new().await;
    // One attack a repository, each some runs of git.
    let long = std::env::var_os("VK_LONG").is_some();
    let usual = if long { 1000 } else { 6 };
    let count = asked("VK_FUZZ").map_or(usual, |entries| entries.div_ceil(100));
    let mut taken = 0;
    for seed in seeds(count) {
        let mut random = Random::new(seed);
        let _ = fs::remove_file(node.world.bare().join("packed-refs"));
        let (commit, attack) = bold(
            &mut random,
            &node.store(),
            &node.canary(),
            &node.world.bare(),
        );
        node.serve(&commit);
        let what = format!("bold repository {seed}: {attack}");
        taken += u64::from(node.attacked(&what, |_| {}).await);
    }
    println!("{count} bold repositories, {taken} of them harmless");
}
