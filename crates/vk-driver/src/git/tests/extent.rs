//! Repositories that would be too much on the host's disk: refused before anything is checked out.

use std::io::Write;
use std::process::Stdio;

use super::*;
use crate::git::SourceBounds;
use crate::git::extent::{TreeBounds, Trees};

const BOUNDS: TreeBounds = TreeBounds {
    entries: 1000,
    bytes: 1 << 20,
    levels: 20,
};

fn with_input(dir: &Path, args: &[&str], input: &[u8]) -> String {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success(), "git {args:?}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

impl World {
    /// Makes `main` a commit of this tree.
    fn serve_tree(&self, tree: &str) -> Sources {
        let commit = git(&self.bare(), &["commit-tree", "-m", "bomb", tree]);
        self.serve_commit(&commit)
    }

    fn serve_commit(&self, commit: &str) -> Sources {
        for reference in ["refs/heads/main", "refs/pipelines/9"] {
            git(&self.bare(), &["update-ref", reference, commit]);
        }
        self.sources()
    }

    /// A tree whose ten entries are the same tree, and so on: `levels` of them above `leaf`.
    fn bomb(&self, leaf: &str, levels: u32) -> String {
        (0..levels).fold(leaf.to_owned(), |inner, _| {
            let entries: Vec<_> = (0..10)
                .map(|n| format!("040000 tree {inner}\t{n}\n"))
                .collect();
            with_input(&self.bare(), &["mktree"], entries.concat().as_bytes())
        })
    }

    /// Files of these paths and bytes each, as a commit.
    fn files(&self, files: &[(&str, usize)]) -> String {
        let mut stream =
            b"commit refs/heads/made\ncommitter t <t@example.com> 0 +0000\ndata 0\n".to_vec();
        for (path, bytes) in files {
            write!(stream, "M 100644 inline {path}\ndata {bytes}\n").unwrap();
            stream.extend(std::iter::repeat_n(b'x', *bytes));
            stream.push(b'\n');
        }
        with_input(
            &self.bare(),
            &["fast-import", "--quiet", "--force"],
            &stream,
        );
        git(&self.bare(), &["rev-parse", "refs/heads/made"])
    }

    async fn job_within(&self, bounds: TreeBounds, sources: &Sources) -> Result<(), GitError> {
        let home = HostGit::new(self.dir.path().join("home"))?;
        self.job_by(behind(home.holding(Trees::within(bounds))).await, sources)
            .await
    }

    async fn job_with_memory(&self, git_memory: u64, sources: &Sources) -> Result<(), GitError> {
        let home = HostGit::new(self.dir.path().join("home"))?;
        let bounds = SourceBounds {
            git_memory,
            ..SourceBounds::default()
        };
        self.job_by(behind(home.within(bounds)).await, sources)
            .await
    }

    async fn job_by(&self, git: HostGit, sources: &Sources) -> Result<(), GitError> {
        let flags = FetchFlags::default();
        let brought = self
            .bring_by(git, sources, &flags, ("the-token", "tree"))
            .await;
        brought.map(drop)
    }

    /// The job is refused with these words, and nothing was written but the repository.
    async fn refused(&self, bounds: TreeBounds, sources: &Sources, why: &str) {
        let error = self.job_within(bounds, sources).await.unwrap_err();
        assert!(matches!(error, GitError::Extent(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        let entries = std::fs::read_dir(self.dir.path().join("tree")).unwrap();
        let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [".git"]);
        std::fs::remove_dir_all(self.dir.path().join("tree")).unwrap();
    }
}

/// Ten billion files, and as many directories with nothing in them, out of a pack of a kilobyte.
#[tokio::test]
async fn a_tree_of_more_files_than_a_disk_holds_is_refused_before_it_is_written() {
    let world = World::new();
    let file = with_input(&world.bare(), &["hash-object", "-w", "--stdin"], b"x");
    let leaf = format!("100644 blob {file}\tf\n");
    let leaf = with_input(&world.bare(), &["mktree"], leaf.as_bytes());
    let empty = with_input(&world.bare(), &["mktree"], b"");
    for leaf in [leaf, empty] {
        let sources = world.serve_tree(&world.bomb(&leaf, 10));
        world
            .refused(BOUNDS, &sources, "more than 1000 files")
            .await;
    }
}

/// What git may check out may still be deeper than what is made of it can go.
#[tokio::test]
async fn a_tree_of_two_thousand_levels_is_refused_and_one_within_the_bound_is_had() {
    let world = World::new();
    let bounds = TreeBounds::of_disk(1 << 30);
    let deep = format!("{}f", "d/".repeat(2000));
    let sources = world.serve_commit(&world.files(&[(&deep, 1)]));
    world.refused(bounds, &sources, "more than 500 deep").await;
    let deep = format!("{}f", "d/".repeat(bounds.levels));
    let sources = world.serve_commit(&world.files(&[(&deep, 1)]));
    world.job_within(bounds, &sources).await.unwrap();
    assert!(world.dir.path().join("tree").join(deep).exists());
}

/// The bytes of all files count, those that git has once in its pack as well; up to the bound all is
/// well.
#[tokio::test]
async fn a_tree_of_more_bytes_than_the_job_has_of_the_disk_is_refused() {
    let world = World::new();
    let files = [
        ("a/1", 1 << 18),
        ("b/2", 1 << 18),
        ("3", 1 << 18),
        ("4", 1 << 18),
    ];
    let sources = world.serve_commit(&world.files(&files));
    let less = TreeBounds {
        bytes: BOUNDS.bytes - 1,
        ..BOUNDS
    };
    world
        .refused(less, &sources, "more than 1048575 bytes")
        .await;
    // Two directories, four files.
    let fewer = TreeBounds {
        entries: 5,
        ..BOUNDS
    };
    world.refused(fewer, &sources, "more than 5 files").await;
    let exactly = TreeBounds {
        entries: 6,
        ..BOUNDS
    };
    world.job_within(exactly, &sources).await.unwrap();
}

/// A job's trees have one bound together; one that is checked out anew counts once.
#[tokio::test]
async fn trees_of_one_job_share_their_bound() {
    let world = World::new();
    let sources = world.serve_commit(&world.files(&[("f", 600)]));
    let bounds = TreeBounds {
        bytes: 1000,
        ..BOUNDS
    };
    let home = HostGit::new(world.dir.path().join("home")).unwrap();
    let git = behind(home).await.holding(Trees::within(bounds));
    let flags = FetchFlags::default();
    let bring = async |to: &str| {
        let git = git.clone();
        world
            .bring_by(git, &sources, &flags, ("the-token", to))
            .await
    };
    bring("one").await.unwrap();
    std::fs::remove_dir_all(world.dir.path().join("one")).unwrap();
    bring("one").await.unwrap();
    let error = bring("two").await.unwrap_err();
    assert!(matches!(error, GitError::Extent(_)), "{error}");
}

/// A commit's message of gigabytes is kilobytes in a pack, and git has it in memory: it has no more of
/// that than it may, and the job's log says so.
#[tokio::test]
async fn a_commit_that_is_more_than_a_git_may_have_in_memory_fails_the_job_and_says_the_limit() {
    let world = World::new();
    let tree = git(&world.bare(), &["rev-parse", "main^{tree}"]);
    let mut commit = format!(
        "tree {tree}\nauthor t <t@example.com> 0 +0000\ncommitter t <t@example.com> 0 +0000\n\n"
    )
    .into_bytes();
    commit.resize(80 << 20, b'm');
    let hash = ["hash-object", "-t", "commit", "-w", "--stdin"];
    let sources = world.serve_commit(&with_input(&world.bare(), &hash, &commit));
    let error = world.job_with_memory(64 << 20, &sources).await.unwrap_err();
    assert!(matches!(error, GitError::Memory { .. }), "{error}");
    for part in ["64 MiB", "[sources] max_git_memory"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// A large file is no attack: it goes through git in parts.
#[tokio::test]
async fn a_file_that_is_more_than_a_git_may_have_in_memory_is_had() {
    let world = World::new();
    let sources = world.serve_commit(&world.files(&[("large", 80 << 20)]));
    world.job_with_memory(64 << 20, &sources).await.unwrap();
    let large = std::fs::metadata(world.dir.path().join("tree/large")).unwrap();
    assert_eq!(large.len(), 80 << 20);
}
