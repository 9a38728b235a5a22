//! Which refs a job's repository has, by its pipeline and its flags.

use vk_hub_proto::job::{ObjectFormat, RefType};

use super::*;

fn refs(tree: &Path) -> Vec<String> {
    let refs = git(tree, &["for-each-ref", "--format=%(refname)"]);
    refs.lines().map(str::to_owned).collect()
}

fn with_tags(tags: Tags) -> FetchFlags {
    FetchFlags {
        tags,
        ..FetchFlags::default()
    }
}

/// As gitlab-runner's fetch does.
#[tokio::test]
async fn tags_of_the_jobs_history_come_with_it_and_gone_ones_go() {
    let world = World::new();
    let bare = world.bare();
    git(&bare, &["tag", "near", "main~1"]);
    git(&bare, &["tag", "far", "main~4"]);
    let mut sources = world.sources();
    world.job(&sources, "the-token", "one").await.unwrap();
    let own = ["refs/pipelines/9", "refs/remotes/origin/main"];
    let tree = world.dir.path().join("one");
    assert_eq!(refs(&tree), [own[0], own[1], "refs/tags/near"]);
    for (name, tags, expected) in [
        ("all", Tags::All, vec!["refs/tags/far", "refs/tags/near"]),
        ("none", Tags::None, vec![]),
    ] {
        let flags = with_tags(tags);
        let done = world.job_of(&sources, &flags, "the-token", name).await;
        done.unwrap();
        let have = refs(&world.dir.path().join(name));
        assert_eq!(have.get(2..).unwrap(), expected, "{name}");
    }
    git(&bare, &["tag", "-d", "near"]);
    git(&bare, &["tag", "-f", "far", "main"]);
    sources.depth = 0;
    world.job(&sources, "the-token", "two").await.unwrap();
    let tree = world.dir.path().join("two");
    assert_eq!(refs(&tree), [own[0], own[1], "refs/tags/far"]);
    assert_eq!(git(&tree, &["rev-parse", "far"]), sources.sha);
}

/// STAGE-08
#[tokio::test]
async fn flags_of_a_fetch_say_how_deep_it_goes() {
    let world = World::new();
    let sources = world.sources();
    let count = |name: &str| {
        git(
            &world.dir.path().join(name),
            &["rev-list", "--count", "HEAD"],
        )
    };
    for (name, depth, expected) in [("three", 3, "3"), ("all", 0, "5")] {
        let flags = FetchFlags {
            depth: Some(depth),
            ..FetchFlags::default()
        };
        let done = world.job_of(&sources, &flags, "the-token", name).await;
        done.unwrap();
        assert_eq!(count(name), expected);
    }
}

#[tokio::test]
async fn a_merge_requests_pipeline_has_its_own_refs() {
    let world = World::new();
    let bare = world.bare();
    let merged = git(&bare, &["commit-tree", "-m", "merged", "main^{tree}"]);
    for name in ["refs/merge-requests/4/head", "refs/pipelines/12"] {
        git(&bare, &["update-ref", name, &merged]);
    }
    let sources = Sources {
        sha: merged.clone(),
        ref_name: "refs/merge-requests/4/head".to_owned(),
        refspecs: vec!["+refs/pipelines/12:refs/pipelines/12".to_owned()],
        ..world.sources()
    };
    world.job(&sources, "the-token", "one").await.unwrap();
    let tree = world.dir.path().join("one");
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), merged);
    assert_eq!(refs(&tree), ["refs/pipelines/12"]);
}

/// STAGE-38
#[tokio::test]
async fn a_merge_requests_ref_stands_for_its_pipelines() {
    let world = World::new();
    let bare = world.bare();
    let merged = git(&bare, &["commit-tree", "-m", "merged", "main^{tree}"]);
    let later = git(
        &bare,
        &["commit-tree", "-p", &merged, "-m", "later", "main^{tree}"],
    );
    git(&bare, &["update-ref", "refs/merge-requests/4/head", &later]);
    let sources = Sources {
        sha: merged.clone(),
        ref_name: "refs/merge-requests/4/head".to_owned(),
        refspecs: vec!["+refs/pipelines/12:refs/pipelines/12".to_owned()],
        depth: 1,
        ..world.sources()
    };
    let fetched = world.job(&sources, "the-token", "one").await.unwrap();
    assert!(fetched.by_branch);
    let tree = world.dir.path().join("one");
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), merged);
}

#[tokio::test]
async fn a_tags_pipeline_and_one_of_all_branches_have_what_they_name() {
    let world = World::new();
    let bare = world.bare();
    git(&bare, &["tag", "-a", "-m", "one", "v1.0", "main~2"]);
    git(&bare, &["branch", "side", "main~1"]);
    let all = Sources {
        refspecs: vec![
            "+refs/heads/*:refs/remotes/origin/*".to_owned(),
            "+refs/tags/*:refs/tags/*".to_owned(),
        ],
        depth: 0,
        ..world.sources()
    };
    world.job(&all, "the-token", "all").await.unwrap();
    let names = [
        "refs/remotes/origin/main",
        "refs/remotes/origin/side",
        "refs/tags/v1.0",
    ];
    assert_eq!(refs(&world.dir.path().join("all")), names);
    let tag = Sources {
        sha: git(&bare, &["rev-parse", "v1.0^{commit}"]),
        ref_name: "v1.0".to_owned(),
        ref_type: RefType::Tag,
        refspecs: vec!["+refs/tags/v1.0:refs/tags/v1.0".to_owned()],
        ..world.sources()
    };
    world.job(&tag, "the-token", "tag").await.unwrap();
    let tree = world.dir.path().join("tag");
    assert_eq!(refs(&tree), ["refs/tags/v1.0"]);
    assert_eq!(git(&tree, &["describe", "--exact-match"]), "v1.0");
}

#[tokio::test]
async fn a_repository_of_sha256_is_checked_out() {
    let world = World::new();
    let work = world.dir.path().join("work256");
    std::fs::create_dir(&work).unwrap();
    git(
        &work,
        &["init", "-q", "-b", "main", "--object-format=sha256"],
    );
    std::fs::write(work.join("file"), "of sha256\n").unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "one"]);
    git(
        world.dir.path(),
        &["clone", "-q", "--bare", "work256", "g/p256.git"],
    );
    let sources = Sources {
        repo_url: world.server.url("g/p256.git"),
        object_format: ObjectFormat::Sha256,
        sha: git(&work, &["rev-parse", "HEAD"]),
        refspecs: vec!["+refs/heads/main:refs/remotes/origin/main".to_owned()],
        ..world.sources()
    };
    assert_eq!(sources.sha.len(), 64);
    // The same project had a repository of the other kind before.
    world
        .job(&world.sources(), "the-token", "one")
        .await
        .unwrap();
    world.job(&sources, "the-token", "two").await.unwrap();
    let tree = world.dir.path().join("two");
    assert_eq!(git(&tree, &["rev-parse", "HEAD"]), sources.sha);
    assert_eq!(git(&tree, &["rev-parse", "--show-object-format"]), "sha256");
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
}

/// Whoever may push can make one.
#[tokio::test]
async fn a_tag_whose_name_is_no_text_is_the_jobs_like_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let made = Command::new("git")
        .arg("tag")
        .arg(name)
        .arg("main")
        .current_dir(world.bare())
        .status();
    assert!(made.unwrap().success());
    for (depth, tree) in [(0, "all"), (2, "shallow")] {
        let sources = Sources {
            depth,
            ..world.sources()
        };
        world.job(&sources, "the-token", tree).await.unwrap();
        let tree = world.dir.path().join(tree);
        let fetched = std::fs::read(tree.join(".git/FETCH_HEAD")).unwrap();
        let fetched = String::from_utf8_lossy(&fetched);
        let own = format!(
            "tag 'caf\u{fffd}' of {}",
            world.url.trim_end_matches(".git")
        );
        assert!(fetched.contains(&own), "{fetched}");
        assert!(!fetched.contains("file://"), "{fetched}");
    }
}
