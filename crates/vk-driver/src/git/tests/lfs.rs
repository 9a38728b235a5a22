//! LFS against a real repository and a server that has the objects.

use std::fs;

use super::*;
use crate::git::{Lfs, Pulled, SourceBounds};

/// A commit with these LFS files: name, content. What a server has of them lies in its repository.
fn commit(world: &World, files: &[(&str, &str)], more: impl FnOnce(&Path)) -> Sources {
    let work = world.dir.path().join("work");
    fs::write(
        work.join(".gitattributes"),
        "*.bin filter=lfs diff=lfs merge=lfs -text\n",
    )
    .unwrap();
    for (name, content) in files {
        let path = work.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, pointer(content)).unwrap();
        keep(world, content, content);
    }
    more(&work);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "--allow-empty", "-m", "with LFS"]);
    let bare = world.bare();
    git(
        &work,
        &[
            "push",
            "-q",
            "-f",
            bare.to_str().unwrap(),
            "HEAD:refs/heads/main",
        ],
    );
    git(
        &bare,
        &["update-ref", "refs/pipelines/9", "refs/heads/main"],
    );
    world.sources()
}

fn oid(content: &str) -> String {
    vk_oci::Digest::of(content.as_bytes()).hex()
}

fn pointer(content: &str) -> String {
    let (oid, size) = (oid(content), content.len());
    format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n")
}

/// What the server has for a content.
fn keep(world: &World, content: &str, really: &str) {
    let objects = world.bare().join("lfs/objects");
    fs::create_dir_all(&objects).unwrap();
    fs::write(objects.join(oid(content)), really).unwrap();
}

async fn pull(world: &World, sources: &Sources, name: &str) -> Result<Pulled, GitError> {
    pull_within(world, sources, name, SourceBounds::default()).await
}

async fn pull_within(
    world: &World,
    sources: &Sources,
    name: &str,
    bounds: SourceBounds,
) -> Result<Pulled, GitError> {
    let flags = FetchFlags::default();
    let (_, tree, credential) = world.bring(sources, &flags, "the-token", name).await?;
    let token = Secret::from("the-token");
    let lfs = Lfs {
        credential: &credential,
        token: &token,
        ca_pem: None,
        mirrors: world.dir.path().join("mirrors"),
        bounds,
        granted: world.dir.path().join(format!("granted-{name}")),
    };
    lfs.pull(&tree, &sources.repo_url, "p").await
}

fn downloads(world: &World) -> usize {
    let requests = world.server.requests();
    let of_object = |line: &&String| line.contains("/gitlab-lfs/objects/");
    requests.iter().filter(of_object).count()
}

/// SPEC-22
#[tokio::test]
async fn files_behind_pointers_are_there_and_git_finds_nothing_changed() {
    let world = World::new();
    let files = [
        ("a b/big.bin", "large content\n"),
        ("same.bin", "large content\n"),
    ];
    let sources = commit(&world, &files, |work| {
        fs::write(work.join("plain.bin"), "no pointer\n").unwrap();
    });
    let pulled = pull(&world, &sources, "one").await.unwrap();
    let expected = Pulled {
        objects: 1,
        bytes: 14,
        foreign: 0,
    };
    assert_eq!(pulled, expected);
    let tree = world.dir.path().join("one");
    let read = |name: &str| fs::read_to_string(tree.join(name)).unwrap();
    assert_eq!(read("a b/big.bin"), "large content\n");
    assert_eq!(read("same.bin"), "large content\n");
    assert_eq!(read("plain.bin"), "no pointer\n");
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
    let text = world.all_text(&["one", "mirrors"]);
    assert!(!text.contains("the-token"), "the token was left somewhere");
    assert_eq!(downloads(&world), 1);
    // Another job asks again whether it may, and the host has it.
    let asked = world.server.requests().len();
    pull(&world, &sources, "two").await.unwrap();
    let again = world.server.requests().split_off(asked);
    assert!(
        again
            .iter()
            .any(|line| line.contains("info/lfs/objects/batch (authorized)"))
    );
    assert_eq!(downloads(&world), 1);
    let content = fs::read_to_string(world.dir.path().join("two/same.bin")).unwrap();
    assert_eq!(content, "large content\n");
}

#[tokio::test]
async fn an_object_that_is_missing_or_other_than_its_pointer_fails_the_job() {
    let world = World::new();
    let sources = commit(&world, &[("a.bin", "right")], |_| ());
    keep(&world, "right", "wrong");
    let error = pull(&world, &sources, "one").await.unwrap_err();
    assert!(error.to_string().contains("other content"), "{error}");
    keep(&world, "right", "right and more");
    let error = pull(&world, &sources, "two").await.unwrap_err();
    assert!(error.to_string().contains("other content"), "{error}");
    fs::remove_dir_all(world.bare().join("lfs")).unwrap();
    let error = pull(&world, &sources, "three").await.unwrap_err();
    assert!(
        error.to_string().contains("Object does not exist"),
        "{error}"
    );
    let left = world.dir.path().join("mirrors/lfs");
    assert!(
        !world.all_text(&["mirrors/lfs"]).contains("wrong"),
        "{}",
        left.display()
    );
}

#[tokio::test]
async fn what_pointers_say_is_held_against_the_bound_before_anything_is_asked_for() {
    let world = World::new();
    let files = [("a.bin", "0123456789"), ("b.bin", "abcdefghij")];
    let sources = commit(&world, &files, |_| ());
    let within = |project| SourceBounds {
        total: project,
        project,
        ..SourceBounds::default()
    };
    let error = pull_within(&world, &sources, "one", within(19)).await;
    let error = error.unwrap_err().to_string();
    for part in [
        "20 bytes",
        "19 on this node",
        "max_project",
        "GIT_LFS_SKIP_SMUDGE",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let requests = world.server.requests();
    let asked = requests.iter().any(|line| line.contains("/info/lfs/"));
    assert!(!asked, "{requests:?}");
    let pulled = pull_within(&world, &sources, "two", within(1 << 20)).await;
    assert_eq!(pulled.unwrap().bytes, 20);
}

/// What a job has stays, though the host needs the room for others; and later jobs have it anew.
#[tokio::test]
async fn an_object_that_went_from_the_host_is_brought_again() {
    let world = World::new();
    let sources = commit(&world, &[("a.bin", "content")], |_| ());
    pull(&world, &sources, "one").await.unwrap();
    let host = world.dir.path().join("mirrors/lfs/p");
    fs::remove_dir_all(&host).unwrap();
    let granted = world.dir.path().join("granted-one").join(oid("content"));
    assert_eq!(fs::read_to_string(granted).unwrap(), "content");
    pull(&world, &sources, "two").await.unwrap();
    assert_eq!(downloads(&world), 2);
    assert!(host.exists());
}

/// Where an object is said to be is looked at first: no repository has the node ask its cloud for
/// secrets.
#[tokio::test]
async fn an_object_at_an_address_of_the_nodes_cloud_is_not_asked_for() {
    let world = World::new();
    let sources = commit(&world, &[("a.bin", "content")], |_| ());
    for at in ["http://169.254.169.254", "http://[fd00:ec2::254]"] {
        *world.server.store.lock().unwrap() = Some(at.to_owned());
        let error = pull(&world, &sources, &oid(at)).await.unwrap_err();
        assert!(error.to_string().contains("where no server is"), "{error}");
    }
}

/// An object store is told neither the job's token nor what was meant for GitLab.
#[tokio::test]
async fn a_redirect_of_an_object_carries_no_credentials_abroad() {
    let world = World::new();
    let sources = commit(&world, &[("a.bin", "stored elsewhere")], |_| ());
    let store = GitServer::start(world.dir.path().to_owned(), true);
    let base = store.url("");
    *world.server.store.lock().unwrap() = Some(base.trim_end_matches('/').to_owned());
    pull(&world, &sources, "one").await.unwrap();
    let content = fs::read_to_string(world.dir.path().join("one/a.bin")).unwrap();
    assert_eq!(content, "stored elsewhere");
    assert_eq!(store.requests().len(), 1);
    assert!(!store.was_told_a_secret(), "{:?}", store.requests());
}

/// What a repository says makes this host neither run nor ask anything of it.
#[tokio::test]
async fn a_hostile_lfs_configuration_comes_to_nothing() {
    let world = World::new();
    let victim = world.dir.path().join("victim");
    let touch = format!("touch {}", victim.display());
    let other = GitServer::start(world.dir.path().to_owned(), true);
    for (name, url) in [
        ("elsewhere", other.url("g/p.git/info/lfs")),
        ("file", format!("file://{}", world.bare().display())),
        ("ssh", "ssh://-oProxyCommand=id/p".to_owned()),
    ] {
        let sources = commit(&world, &[("a.bin", "content")], |work| {
            let text = format!(
                "[lfs]\n\turl = {url}\n[filter \"lfs\"]\n\tsmudge = {touch}\n\
                 [lfs \"extension.x\"]\n\tsmudge = {touch}\n[core]\n\tfsmonitor = {touch}\n"
            );
            fs::write(work.join(".lfsconfig"), text).unwrap();
        });
        let error = pull(&world, &sources, name).await.unwrap_err();
        assert!(
            error.to_string().contains("not the job's own server"),
            "{error}"
        );
    }
    assert!(other.requests().is_empty());
    // What a file of the host says is neither taken nor told.
    let included = world.dir.path().join("included");
    fs::write(&included, "[lfs]\n\turl = https://of-the-host.example/\n").unwrap();
    let sources = commit(&world, &[("a.bin", "content")], |work| {
        let text = format!("[include]\n\tpath = {}\n", included.display());
        fs::write(work.join(".lfsconfig"), text).unwrap();
    });
    pull(&world, &sources, "include").await.unwrap();
    let sources = commit(&world, &[("$(touch x).bin", "content")], |work| {
        let url = world.server.url("g/p.git/info/lfs");
        fs::write(work.join(".lfsconfig"), format!("[lfs]\n\turl = {url}\n")).unwrap();
        // What a link leads to is no file of the tree.
        std::os::unix::fs::symlink("/etc/hostname", work.join("link.bin")).unwrap();
    });
    pull(&world, &sources, "own").await.unwrap();
    let tree = world.dir.path().join("own");
    assert!(
        fs::symlink_metadata(tree.join("link.bin"))
            .unwrap()
            .is_symlink()
    );
    let content = fs::read_to_string(tree.join("$(touch x).bin")).unwrap();
    assert_eq!(content, "content");
    assert!(!victim.exists());
}
