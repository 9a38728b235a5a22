//! Submodules against real servers; what hostile repositories try.

use std::fs;
use std::sync::Arc;

use super::*;
use crate::git::{Rewrites, Site, Updated, update};
use crate::settings::Submodules;

fn wanted() -> Submodules {
    Submodules {
        recursive: false,
        depth: 1,
        paths: Vec::new(),
        force_https: false,
        jobs: 1,
        remote: false,
        recommended: true,
    }
}

/// A project with submodules, below a served repository's.
struct Project {
    world: World,
}

impl Project {
    /// With a served library of two commits, the later with a submodule of its own.
    fn new() -> Project {
        let project = Project {
            world: World::new(),
        };
        project.make("inner", |work| {
            fs::write(work.join("inner.txt"), "innermost\n").unwrap();
        });
        let inner = project.tip("inner");
        project.make("lib", |work| {
            fs::write(work.join("lib.txt"), "of the library\n").unwrap();
            fs::write(work.join(".gitattributes"), "* filter=evil\n").unwrap();
            link(work, "deep", "inner", "../inner.git", &inner);
        });
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.dir.path().join(name)
    }

    /// Serves a repository of two commits, the first of them empty.
    fn make(&self, name: &str, fill: impl FnOnce(&Path)) {
        let work = self.path(name);
        fs::create_dir(&work).unwrap();
        git(&work, &["init", "-q", "-b", "main"]);
        git(&work, &["commit", "-q", "--allow-empty", "-m", "zero"]);
        fill(&work);
        git(&work, &["add", "--ignore-removal", "."]);
        git(&work, &["commit", "-q", "-m", "one"]);
        let bare = format!("g/{name}.git");
        git(
            self.world.dir.path(),
            &["clone", "-q", "--bare", name, &bare],
        );
    }

    fn tip(&self, name: &str) -> String {
        git(&self.path(&format!("g/{name}.git")), &["rev-parse", "main"])
    }

    /// A new commit of the project, with these changes.
    fn commit(&self, fill: impl FnOnce(&Path)) -> Sources {
        let work = self.path("work");
        fill(&work);
        git(&work, &["commit", "-q", "-m", "more"]);
        let bare = self.world.bare();
        let push = [
            "push",
            "-q",
            "-f",
            bare.to_str().unwrap(),
            "HEAD:refs/heads/main",
        ];
        git(&work, &push);
        git(
            &bare,
            &["update-ref", "refs/pipelines/9", "refs/heads/main"],
        );
        self.world.sources()
    }

    /// A commit with the library at `deps/lib`.
    fn with_library(&self, url: &str) -> Sources {
        let tip = self.tip("lib");
        self.commit(|work| link(work, "deps/lib", "the lib", url, &tip))
    }

    async fn job(
        &self,
        sources: &Sources,
        wanted: Submodules,
        rewrites: Rewrites,
        tree: &str,
    ) -> Result<Updated, GitError> {
        let flags = FetchFlags::default();
        let brought = self.world.bring(sources, &flags, "the-token", tree).await;
        let (_, top, credential) = brought?;
        let site = Site {
            mirrors: self.path("mirrors"),
            credential: Arc::new(credential),
            wanted,
            format: sources.object_format,
            rewrites,
        };
        update(&site, &top, &sources.repo_url).await
    }
}

/// Adds a submodule to the index, as `git submodule add` would.
fn link(work: &Path, path: &str, name: &str, url: &str, sha: &str) {
    let file = work.join(".gitmodules");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    text += &format!("[submodule \"{name}\"]\n\tpath = {path}\n\turl = {url}\n");
    fs::write(&file, text).unwrap();
    git(work, &["add", ".gitmodules"]);
    let info = format!("160000,{sha},{path}");
    git(work, &["update-index", "--add", "--cacheinfo", &info]);
}

/// STAGE-09, SPEC-22
#[tokio::test]
async fn a_submodule_of_a_relative_url_is_there_as_git_would_have_left_it() {
    let project = Project::new();
    let sources = project.with_library("../lib.git");
    let none = Rewrites::default();
    let updated = project.job(&sources, wanted(), none, "tree").await.unwrap();
    let (url, sha) = (project.world.server.url("g/lib.git"), project.tip("lib"));
    let lines = [
        format!("Submodule 'the lib' ({url}) registered for path 'deps/lib'"),
        format!("Submodule path 'deps/lib': checked out '{sha}'"),
    ];
    assert_eq!(updated.lines, lines);
    let tree = project.path("tree");
    let lib = tree.join("deps/lib");
    let content = fs::read_to_string(lib.join("lib.txt")).unwrap();
    assert_eq!(content, "of the library\n");
    // Moved, it is whole still: nothing in it names a place of the host's.
    let moved = project.path("moved");
    fs::rename(&tree, &moved).unwrap();
    let lib = moved.join("deps/lib");
    assert_eq!(git(&lib, &["rev-parse", "HEAD"]), sha);
    assert_eq!(git(&lib, &["rev-list", "--count", "HEAD"]), "1");
    assert_eq!(git(&lib, &["remote", "get-url", "origin"]), url);
    assert_eq!(git(&moved, &["status", "--porcelain"]), "");
    let status = git(&moved, &["submodule", "status"]);
    assert!(status.starts_with(&format!("{sha} deps/lib")), "{status}");
    assert!(!moved.join("deps/lib/deep/inner.txt").exists());
    let text = project.world.all_text(&["moved", "mirrors"]);
    assert!(!text.contains("the-token"), "the token was left somewhere");
    let text = project.world.all_text(&["moved"]);
    let host = project.world.dir.path().to_str().unwrap();
    assert!(
        !text.contains(host),
        "the tree names the host's directories"
    );
}

/// STAGE-09
#[tokio::test]
async fn submodules_of_submodules_come_where_they_are_wanted() {
    let project = Project::new();
    let sources = project.with_library("../lib.git");
    let recursive = Submodules {
        recursive: true,
        depth: 0,
        jobs: 4,
        ..wanted()
    };
    let none = Rewrites::default();
    let updated = project
        .job(&sources, recursive, none, "tree")
        .await
        .unwrap();
    assert_eq!(updated.trees.len(), 2);
    let tree = project.path("tree");
    let inner = tree.join("deps/lib/deep");
    let content = fs::read_to_string(inner.join("inner.txt")).unwrap();
    assert_eq!(content, "innermost\n");
    assert_eq!(git(&inner, &["rev-list", "--count", "HEAD"]), "2");
    let status = git(&tree, &["submodule", "status", "--recursive"]);
    let lines: Vec<_> = status.lines().map(str::trim).collect();
    let (lib, deep) = (project.tip("lib"), project.tip("inner"));
    assert!(lines[0].starts_with(&format!("{lib} deps/lib")), "{status}");
    assert!(
        lines[1].starts_with(&format!("{deep} deps/lib/deep")),
        "{status}"
    );
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn paths_say_which_submodules_come() {
    let project = Project::new();
    let (lib, inner) = (project.tip("lib"), project.tip("inner"));
    let sources = project.commit(|work| {
        link(work, "one", "one", "../lib.git", &lib);
        link(work, "two", "two", "../inner.git", &inner);
    });
    for (paths, expected) in [
        (vec!["two"], vec!["two"]),
        (vec![":(exclude)two"], vec!["one"]),
        (vec![], vec!["one", "two"]),
        (vec!["nothing"], vec![]),
    ] {
        let name = format!("tree-{}", paths.join("-").replace([':', '(', ')'], ""));
        let wanted = Submodules {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..wanted()
        };
        let none = Rewrites::default();
        let updated = project.job(&sources, wanted, none, &name).await.unwrap();
        let have = updated.trees.iter().map(|(tree, _)| tree.work.file_name());
        let have: Vec<_> = have.map(|name| name.unwrap().to_str().unwrap()).collect();
        assert_eq!(have, expected, "{paths:?}");
    }
}

/// SPEC-22
#[tokio::test]
async fn the_token_goes_to_the_jobs_own_server_alone() {
    let project = Project::new();
    let other = GitServer::start(project.world.dir.path().to_owned(), true);
    let sources = project.with_library(&other.url("g/lib.git"));
    let recursive = Submodules {
        recursive: true,
        ..wanted()
    };
    let none = Rewrites::default();
    let updated = project
        .job(&sources, recursive, none, "tree")
        .await
        .unwrap();
    assert_eq!(updated.trees.len(), 2);
    assert!(!other.requests().is_empty());
    assert!(!other.was_told_a_secret(), "{:?}", other.requests());
    assert!(project.world.server.was_told_a_secret());
    // One that asks for a password gets none.
    let closed = GitServer::start(project.world.dir.path().to_owned(), false);
    let sources = project.commit(|work| {
        git(work, &["rm", "-q", "-f", "--cached", ".gitmodules"]);
        fs::remove_file(work.join(".gitmodules")).unwrap();
        let tip = project.tip("lib");
        link(work, "deps/lib", "the lib", &closed.url("g/lib.git"), &tip);
    });
    let none = Rewrites::default();
    let refused = project
        .job(&sources, wanted(), none, "two")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("deps/lib"), "{refused}");
    assert!(!closed.requests().is_empty() && !closed.was_told_a_secret());
}

#[tokio::test]
async fn each_job_asks_the_server_before_a_submodules_mirror_serves_it() {
    let project = Project::new();
    let sources = project.with_library("../lib.git");
    let asked = || {
        let requests = project.world.server.requests();
        let of_lib = |line: &&String| line.starts_with("GET /g/lib.git/info/refs");
        requests.iter().filter(of_lib).count()
    };
    for tree in ["one", "two"] {
        let before = asked();
        let none = Rewrites::default();
        project.job(&sources, wanted(), none, tree).await.unwrap();
        assert!(asked() > before, "{tree}");
    }
    let hidden = project.path("g/lib.git");
    fs::rename(&hidden, project.path("g/moved.git")).unwrap();
    let none = Rewrites::default();
    let refused = project.job(&sources, wanted(), none, "three").await;
    assert!(
        matches!(refused, Err(GitError::Submodule { .. })),
        "{refused:?}"
    );
    assert!(!project.path("three/deps/lib/lib.txt").exists());
}

#[tokio::test]
async fn ssh_urls_of_the_own_server_are_fetched_by_http_where_the_job_says_so() {
    let project = Project::new();
    let sources = project.with_library("git@gitlab.example.com:g/lib.git");
    let none = Rewrites::default();
    let refused = project
        .job(&sources, wanted(), none, "one")
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("GIT_SUBMODULE_FORCE_HTTPS"),
        "{refused}"
    );
    let base = project.world.server.url("");
    let forced = Rewrites::of_server("gitlab.example.com", "", &base);
    project
        .job(&sources, wanted(), forced, "two")
        .await
        .unwrap();
    assert!(project.path("two/deps/lib/lib.txt").exists());
}

#[tokio::test]
async fn a_submodules_commit_may_be_on_no_branch_and_its_tip_may_be_wanted() {
    let project = Project::new();
    let bare = project.path("g/lib.git");
    let lost = git(&bare, &["commit-tree", "-m", "lost", "main^{tree}"]);
    let sources = project.commit(|work| link(work, "lib", "lib", "../lib.git", &lost));
    let none = Rewrites::default();
    project.job(&sources, wanted(), none, "one").await.unwrap();
    assert_eq!(git(&project.path("one/lib"), &["rev-parse", "HEAD"]), lost);
    let remote = Submodules {
        remote: true,
        ..wanted()
    };
    let none = Rewrites::default();
    project.job(&sources, remote, none, "two").await.unwrap();
    let tip = project.tip("lib");
    assert_eq!(git(&project.path("two/lib"), &["rev-parse", "HEAD"]), tip);
    let nowhere = "5".repeat(40);
    let sources = project.commit(|work| {
        let info = format!("160000,{nowhere},lib");
        git(work, &["update-index", "--cacheinfo", &info]);
    });
    let none = Rewrites::default();
    let refused = project
        .job(&sources, wanted(), none, "three")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(&nowhere), "{refused}");
}

/// What a repository says is neither run nor followed on the host: each of these fails the job, and
/// none leaves a trace.
#[tokio::test]
async fn what_hostile_submodules_try_comes_to_nothing() {
    let project = Project::new();
    let tip = project.tip("lib");
    let victim = project.path("victim");
    let touch = format!("touch {}", victim.display());
    let outside = project.path("outside");
    fs::create_dir(&outside).unwrap();
    let file_url = format!("file://{}", project.path("g/lib.git").display());
    let plain_path = project.path("g/lib.git").display().to_string();
    let gitmodules = |name: &str, path: &str, url: &str, more: &str| {
        format!("[submodule \"{name}\"]\n\tpath = {path}\n\turl = {url}\n{more}")
    };
    let included = project.path("included");
    fs::write(&included, "[submodule \"x\"]\n\turl = ../lib.git\n").unwrap();
    let include = |kind: &str| {
        let file = included.display();
        format!("[submodule \"x\"]\n\tpath = sub\n[{kind}]\n\tpath = {file}\n")
    };
    let cases = [
        // Without the URL that only a file of the host has.
        ("include", include("include"), "sub"),
        ("include-if", include("includeIf \"gitdir:/\""), "sub"),
        (
            "ext",
            gitmodules("x", "sub", &format!("ext::sh -c \"{touch}\""), ""),
            "sub",
        ),
        ("file", gitmodules("x", "sub", &file_url, ""), "sub"),
        ("path", gitmodules("x", "sub", &plain_path, ""), "sub"),
        (
            "dash",
            gitmodules("x", "sub", &format!("-u{touch}"), ""),
            "sub",
        ),
        (
            "upload-pack",
            gitmodules("x", "sub", &format!("--upload-pack={touch}"), ""),
            "sub",
        ),
        (
            "above",
            gitmodules("x", "sub", "../../../../../etc", ""),
            "sub",
        ),
        (
            "update",
            gitmodules("x", "sub", "../lib.git", &format!("\tupdate = !{touch}\n")),
            "sub",
        ),
        (
            "name",
            gitmodules("../../../outside/x", "sub", "../lib.git", ""),
            "sub",
        ),
        (
            "name-hooks",
            gitmodules("x/../../hooks", "sub", "../lib.git", ""),
            "sub",
        ),
        ("none", String::new(), "sub"),
    ];
    for (name, text, path) in cases {
        let sources = project.commit(|work| {
            let _ = fs::remove_file(work.join(".gitmodules"));
            git(work, &["read-tree", "--empty"]);
            fs::write(work.join(".gitmodules"), &text).unwrap();
            git(work, &["add", ".gitmodules", "run.sh"]);
            let info = format!("160000,{tip},{path}");
            git(work, &["update-index", "--add", "--cacheinfo", &info]);
        });
        let none = Rewrites::default();
        let refused = project
            .job(&sources, wanted(), none, &format!("t-{name}"))
            .await;
        assert!(refused.is_err(), "{name}: {refused:?}");
        assert!(!victim.exists(), "{name} ran something");
        let left = fs::read_dir(&outside).unwrap().count();
        assert_eq!(left, 0, "{name} wrote elsewhere");
    }
}

/// A tree object that has a name twice, once as a symlink, once as a directory with a submodule in
/// it: what git's own index never has, and a server may send.
#[tokio::test]
async fn a_submodule_behind_a_symlink_is_not_written_through_it() {
    let project = Project::new();
    let (outside, bare) = (project.path("outside"), project.world.bare());
    fs::create_dir(&outside).unwrap();
    let hash = |content: &str| {
        fs::write(project.path("blob"), content).unwrap();
        let file = project.path("blob");
        git(
            &bare,
            &["hash-object", "-w", "--no-filters", file.to_str().unwrap()],
        )
    };
    let target = hash(outside.to_str().unwrap());
    let modules = hash("[submodule \"x\"]\n\tpath = a/sub\n\turl = ../lib.git\n");
    let tree = |entries: &[(&str, &str, &str)]| {
        let mut bytes = Vec::new();
        for (mode, name, sha) in entries {
            bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            let digits = sha.as_bytes().chunks(2);
            bytes.extend(
                digits
                    .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()),
            );
        }
        fs::write(project.path("object"), bytes).unwrap();
        let file = project.path("object");
        let file = file.to_str().unwrap();
        git(
            &bare,
            &["hash-object", "-w", "-t", "tree", "--literally", file],
        )
    };
    let inner = tree(&[("160000", "sub", &project.tip("lib"))]);
    let top = tree(&[
        ("100644", ".gitmodules", &modules),
        ("120000", "a", &target),
        ("40000", "a", &inner),
    ]);
    let commit = git(&bare, &["commit-tree", "-m", "twice", &top]);
    git(&bare, &["update-ref", "refs/heads/main", &commit]);
    git(&bare, &["update-ref", "refs/pipelines/9", &commit]);
    let sources = project.world.sources();
    let none = Rewrites::default();
    let refused = project.job(&sources, wanted(), none, "tree").await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}
