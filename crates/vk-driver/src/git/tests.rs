//! The host's git against a server of the smart HTTP protocol that wants the job's token.

mod extent;
mod hostile;
mod kept;
mod lfs;
mod refs;
mod submodules;
mod walls;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use vk_hub_proto::Secret;
use vk_hub_proto::job::Sources;
use vk_vm::confine::{Confinement, Walls};

use super::checkout::Tree;
use super::checkout::check_out;
use super::test_server::GitServer;
use super::{
    Credential, Fetched, GitError, GitWalls, HostGit, Mirror, SourceBounds, Wanted, name_of_project,
};
use crate::settings::{FetchFlags, Tags};

/// Behind walls where the built programs are, as on a node; elsewhere without.
pub(super) async fn behind(git: HostGit) -> HostGit {
    let Some(root) = std::env::var_os("VK_TEST_ROOT") else {
        return git;
    };
    let confinement = Confinement {
        helper: Path::new(&root).join("bin/vk"),
        walls: Walls::Required,
    };
    git.behind(GitWalls::new(&confinement).await.unwrap())
}

/// What is enough for every repository here that is no attack.
const GIT_MEMORY: u64 = 128 << 20;

fn git(dir: &Path, args: &[&str]) -> String {
    let ran = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "git {args:?}: {said}");
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// A served repository, and what jobs make of it.
struct World {
    dir: TempDir,
    url: String,
    server: GitServer,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        git(&work, &["init", "-q", "-b", "main"]);
        std::fs::write(work.join(".gitattributes"), "secret export-ignore\n").unwrap();
        std::fs::write(work.join("secret"), "kept\n").unwrap();
        std::fs::write(work.join("run.sh"), "#!/bin/sh\n").unwrap();
        git(&work, &["add", "."]);
        git(&work, &["update-index", "--chmod=+x", "run.sh"]);
        for n in 0..5 {
            git(
                &work,
                &["commit", "-q", "--allow-empty", "-m", &format!("c{n}")],
            );
        }
        let bare = dir.path().join("g").join("p.git");
        git(dir.path(), &["clone", "-q", "--bare", "work", "g/p.git"]);
        let server = GitServer::start(dir.path().to_owned(), false);
        let world = World {
            url: server.url("g/p.git"),
            dir,
            server,
        };
        git(
            &bare,
            &["update-ref", "refs/pipelines/9", "refs/heads/main"],
        );
        world
    }

    fn bare(&self) -> PathBuf {
        self.dir.path().join("g/p.git")
    }

    fn sources(&self) -> Sources {
        let job = crate::testing::job();
        Sources {
            repo_url: self.url.clone(),
            sha: git(&self.bare(), &["rev-parse", "main"]),
            refspecs: vec![
                "+refs/pipelines/9:refs/pipelines/9".to_owned(),
                "+refs/heads/main:refs/remotes/origin/main".to_owned(),
            ],
            depth: 2,
            ..job.sources
        }
    }

    async fn job(&self, sources: &Sources, token: &str, tree: &str) -> Result<Fetched, GitError> {
        let flags = FetchFlags::default();
        self.job_of(sources, &flags, token, tree).await
    }

    async fn job_of(
        &self,
        sources: &Sources,
        flags: &FetchFlags,
        token: &str,
        tree: &str,
    ) -> Result<Fetched, GitError> {
        let (fetched, ..) = self.bring(sources, flags, token, tree).await?;
        Ok(fetched)
    }

    async fn bring(
        &self,
        sources: &Sources,
        flags: &FetchFlags,
        token: &str,
        tree: &str,
    ) -> Result<(Fetched, Tree, Credential), GitError> {
        let git = HostGit::new(self.dir.path().join("home"))?;
        let git = git.within(SourceBounds {
            git_memory: GIT_MEMORY,
            ..SourceBounds::default()
        });
        let git = behind(git).await;
        self.bring_by(git, sources, flags, (token, tree)).await
    }

    async fn bring_by(
        &self,
        home: HostGit,
        sources: &Sources,
        flags: &FetchFlags,
        (token, tree): (&str, &str),
    ) -> Result<(Fetched, Tree, Credential), GitError> {
        let path = |name: &str| self.dir.path().join(name);
        let token = Secret::from(token);
        let private = path(&format!("private-{tree}"));
        let credential = Credential::new(private, &sources.repo_url, &token, None)?;
        let mirrors = path("mirrors");
        let format = sources.object_format;
        let name = name_of_project("http://gitlab.example.com", 3, format);
        let mirror = Mirror::open(&mirrors, home.clone(), &name, format).await?;
        let fetched = mirror.fetch(sources, credential.way()).await?;
        let clean = ["-ffdx".to_owned()];
        let wanted = Wanted {
            sources,
            fetched: &fetched,
            flags,
            checkout: true,
            clean: &clean,
        };
        let tree = check_out(&home, &mirror, wanted, &path(tree)).await?;
        Ok((fetched, tree, credential))
    }

    /// How often a fetch asked the server, with the job's token.
    fn asks(&self) -> usize {
        asks(&self.server)
    }

    /// Everything below the mirrors and a tree, as text.
    fn all_text(&self, names: &[&str]) -> String {
        let mut text = String::new();
        let mut left: Vec<_> = names
            .iter()
            .map(|name| self.dir.path().join(name))
            .collect();
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            } else {
                text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
            }
        }
        text
    }
}

fn asks(server: &GitServer) -> usize {
    let heard = server.requests().into_iter();
    let asks = heard.filter(|line| line.ends_with("/info/refs (authorized)"));
    asks.count()
}

/// STAGE-06, STAGE-08, SPEC-22
#[tokio::test]
async fn a_job_gets_its_tree_as_shallow_as_asked_and_without_its_token() {
    let world = World::new();
    let sources = world.sources();
    let fetched = world.job(&sources, "the-token", "tree").await.unwrap();
    assert!(!fetched.by_branch);
    assert!(
        world.server.refused.load(Ordering::Relaxed) > 0,
        "no credential was asked for"
    );
    let tree = world.dir.path().join("tree");
    assert_eq!(
        std::fs::read_to_string(tree.join("secret")).unwrap(),
        "kept\n"
    );
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), sources.sha);
    assert_eq!(git(&tree, &["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(git(&tree, &["remote", "get-url", "origin"]), world.url);
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
    let refs = git(&tree, &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/pipelines/9\nrefs/remotes/origin/main");
    let text = world.all_text(&["tree", "mirrors"]);
    assert!(!text.contains("the-token"), "the token was left somewhere");
    let text = world.all_text(&["tree"]);
    assert!(!text.contains("mirrors/"), "the tree names the mirror");
    assert!(!world.dir.path().join("private-tree").exists());
}

#[tokio::test]
async fn a_second_job_fetches_with_its_own_token_before_the_mirror_serves_it() {
    let world = World::new();
    let sources = world.sources();
    world.job(&sources, "the-token", "one").await.unwrap();
    let error = world.job(&sources, "another", "two").await.unwrap_err();
    assert!(
        error.to_string().contains("fetch the repository"),
        "{error}"
    );
    assert!(!world.dir.path().join("two").exists());
    let full = Sources {
        depth: 0,
        ..sources
    };
    world.job(&full, "the-token", "three").await.unwrap();
    let tree = world.dir.path().join("three");
    assert_eq!(git(&tree, &["rev-list", "--count", "HEAD"]), "5");
}

/// STAGE-38
#[tokio::test]
async fn a_pipelines_ref_that_is_gone_is_replaced_by_its_branch() {
    let world = World::new();
    let sources = world.sources();
    git(&world.bare(), &["update-ref", "-d", "refs/pipelines/9"]);
    let fetched = world.job(&sources, "the-token", "tree").await.unwrap();
    assert!(fetched.by_branch);
    // The first, three more, and the branch.
    assert_eq!(world.asks(), 5, "{:?}", world.server.requests());
    let tree = world.dir.path().join("tree");
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), sources.sha);
    let elsewhere = Sources {
        sha: "1".repeat(40),
        ..sources
    };
    let error = world
        .job(&elsewhere, "the-token", "none")
        .await
        .unwrap_err();
    assert!(matches!(error, GitError::NoCommit { .. }), "{error}");
}

/// STAGE-38
#[tokio::test]
async fn a_pipelines_ref_that_comes_late_is_waited_for() {
    let world = World::new();
    let sources = world.sources();
    let (bare, reference) = (world.bare(), "refs/pipelines/9");
    git(&bare, &["update-ref", "-d", reference]);
    let server = world.server.clone();
    let sha = sources.sha.clone();
    // It comes once it has been missed.
    let late = std::thread::spawn(move || {
        while asks(&server) < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        git(&bare, &["update-ref", reference, &sha]);
    });
    let fetched = world.job(&sources, "the-token", "tree").await.unwrap();
    late.join().unwrap();
    assert!(!fetched.by_branch);
    assert!((2..=4).contains(&world.asks()), "{}", world.asks());
}

/// STAGE-38
#[tokio::test]
async fn a_pipelines_ref_that_is_gone_with_its_branch_is_named() {
    let world = World::new();
    let sources = world.sources();
    let bare = world.bare();
    git(&bare, &["symbolic-ref", "HEAD", "refs/heads/other"]);
    for reference in ["refs/pipelines/9", "refs/heads/main"] {
        git(&bare, &["update-ref", "-d", reference]);
    }
    let error = world.job(&sources, "the-token", "tree").await.unwrap_err();
    assert!(matches!(error, GitError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("refs/heads/main"), "{error}");
}

#[tokio::test]
async fn a_branch_that_became_a_directory_of_branches_is_fetched() {
    let world = World::new();
    let sources = world.sources();
    world.job(&sources, "the-token", "one").await.unwrap();
    let bare = world.bare();
    git(&bare, &["symbolic-ref", "HEAD", "refs/heads/other"]);
    git(&bare, &["update-ref", "-d", "refs/heads/main"]);
    git(&bare, &["update-ref", "refs/heads/main/next", &sources.sha]);
    let next = Sources {
        ref_name: "main/next".to_owned(),
        refspecs: vec!["+refs/heads/main/next:refs/remotes/origin/main/next".to_owned()],
        ..sources
    };
    world.job(&next, "the-token", "two").await.unwrap();
    let tree = world.dir.path().join("two");
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), next.sha);
}

#[tokio::test]
async fn what_a_spec_could_smuggle_in_is_refused() {
    let world = World::new();
    let good = world.sources();
    let bad = |change: fn(&mut Sources)| {
        let mut sources = good.clone();
        change(&mut sources);
        sources
    };
    for sources in [
        bad(|of| of.sha = "--upload-pack=x".to_owned()),
        bad(|of| of.refspecs = vec!["--upload-pack=id".to_owned()]),
        bad(|of| of.refspecs = vec!["refs/heads/a b:refs/heads/x".to_owned()]),
        bad(|of| of.repo_url = "ext::sh -c id".to_owned()),
        bad(|of| of.repo_url = "file:///etc".to_owned()),
    ] {
        let error = world.job(&sources, "the-token", "tree").await.unwrap_err();
        assert!(matches!(error, GitError::Spec { .. }), "{error}");
    }
}
