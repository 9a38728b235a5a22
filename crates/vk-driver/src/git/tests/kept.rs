//! A tree that is kept from job to job, compared with one that is made for the job.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::super::{Disks, Image, Kept, Places, check_out_at, lend};
use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    fn kept_at(&self) -> PathBuf {
        self.dir.path().join("mirrors/trees/p")
    }

    /// A job's checkout into the kept tree, and what it holds until its image is written.
    async fn follow(&self, sources: &Sources) -> Kept {
        self.check_out(sources, PATIENCE).await.1.unwrap()
    }

    async fn check_out(&self, sources: &Sources, patience: Duration) -> (Tree, Option<Kept>) {
        let path = |name: &str| self.dir.path().join(name);
        let git = behind(HostGit::new(path("home")).unwrap()).await;
        let token = Secret::from("the-token");
        let credential =
            Credential::new(path("private-kept"), &sources.repo_url, &token, None).unwrap();
        let format = sources.object_format;
        let name = name_of_project("http://gitlab.example.com", 3, format);
        let mirrors = path("mirrors");
        let mirror = Mirror::open(&mirrors, git.clone(), &name, format);
        let mirror = mirror.await.unwrap();
        let fetched = mirror.fetch(sources, credential.way()).await.unwrap();
        let clean = ["-ffdx".to_owned()];
        let wanted = Wanted {
            sources,
            fetched: &fetched,
            flags: &FetchFlags::default(),
            checkout: true,
            clean: &clean,
        };
        let (kept, own) = (self.kept_at(), path("own"));
        let places = Places {
            kept: Some(&kept),
            below: Path::new("g/p"),
            own: &own,
        };
        let made = check_out_at(places, patience, &git, &mirror, wanted).await;
        made.unwrap()
    }

    fn kept_tree(&self) -> PathBuf {
        self.kept_at().join("root/g/p")
    }

    /// A new commit on a branch of the server's.
    fn commit(&self, branch: &str, change: impl FnOnce(&Path)) -> String {
        let work = self.dir.path().join("work");
        change(&work);
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "--allow-empty", "-m", "next"]);
        let to = format!("HEAD:refs/heads/{branch}");
        git(&work, &["push", "-q", "-f", "../g/p.git", &to]);
        git(&work, &["rev-parse", "HEAD"])
    }

    fn of(&self, branch: &str, pipeline: u32, depth: u32) -> Sources {
        let sha = git(&self.bare(), &["rev-parse", branch]);
        let reference = format!("refs/pipelines/{pipeline}");
        git(&self.bare(), &["update-ref", &reference, &sha]);
        Sources {
            sha,
            ref_name: branch.to_owned(),
            refspecs: vec![
                format!("+{reference}:{reference}"),
                format!("+refs/heads/{branch}:refs/remotes/origin/{branch}"),
            ],
            depth,
            ..self.sources()
        }
    }

    fn disks(&self, job: &str) -> Disks {
        let path = |name: &str| self.dir.path().join(format!("{job}-{name}"));
        let disks = Disks {
            sources: path("sources"),
            list: path("list"),
            base_list: path("base.list"),
        };
        let made = std::fs::File::create(&disks.sources).unwrap();
        made.set_len(64 << 20).unwrap();
        disks
    }
}

/// Files by name: mode and content.
fn files(tree: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut left = vec![tree.to_owned()];
    while let Some(path) = left.pop() {
        let of = std::fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(tree).unwrap().to_owned();
        let content = if of.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            target.into_os_string().into_encoded_bytes()
        } else if of.is_dir() {
            if name != Path::new(".git") {
                left.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            }
            Vec::new()
        } else {
            std::fs::read(&path).unwrap()
        };
        files.insert(name, (of.mode(), content));
    }
    files
}

/// What a job can see of its repository. `shallow` may name commits that it does not come to.
fn repository(tree: &Path) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(tree.join(".git").join(name));
    vec![
        git(tree, &["for-each-ref"]),
        git(tree, &["status", "--porcelain", "--ignored"]),
        git(tree, &["rev-list", "HEAD"]),
        git(tree, &["ls-files", "-s"]),
        git(tree, &["reflog", "HEAD", "--format=%H %gs"]),
        read("HEAD").unwrap(),
        read("FETCH_HEAD").unwrap(),
        read("config").unwrap(),
    ]
}

/// STAGE-06
#[tokio::test]
async fn a_kept_tree_is_to_each_job_what_a_new_one_would_be() {
    let world = World::new();
    world.follow(&world.of("main", 9, 2)).await;
    let changes: [fn(&Path); 6] = [
        |_| {},
        |work| std::fs::write(work.join("secret"), "changed\n").unwrap(),
        |work| {
            std::fs::remove_file(work.join("run.sh")).unwrap();
            std::fs::create_dir_all(work.join("run.sh")).unwrap();
            std::fs::write(work.join("run.sh/inner"), "a directory now\n").unwrap();
        },
        |work| {
            std::fs::remove_dir_all(work.join("run.sh")).unwrap();
            std::os::unix::fs::symlink("secret", work.join("run.sh")).unwrap();
            std::fs::write(work.join(".gitignore"), "*.o\n").unwrap();
        },
        |work| std::fs::remove_file(work.join("run.sh")).unwrap(),
        |work| {
            git(work, &["checkout", "-q", "HEAD~3"]);
            git(work, &["tag", "a-tag"]);
            git(work, &["push", "-q", "../g/p.git", "a-tag"]);
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let branch = ["main", "other"][number % 2];
        world.commit(branch, change);
        let sources = world.of(branch, 10 + u32::try_from(number).unwrap(), 2);
        // Nothing that an earlier job's checkout left is in the next one's.
        let kept_tree = world.kept_tree();
        std::fs::write(kept_tree.join("left.o"), "x").unwrap();
        let inode = |tree: &Path| {
            std::fs::metadata(tree.join(".gitattributes"))
                .unwrap()
                .ino()
        };
        let before = inode(&kept_tree);
        world.follow(&sources).await;
        let new = format!("new-{number}");
        world.job(&sources, "the-token", &new).await.unwrap();
        let new = world.dir.path().join(new);
        assert_eq!(files(&kept_tree), files(&new), "change {number}");
        assert_eq!(repository(&kept_tree), repository(&new), "change {number}");
        assert_eq!(inode(&kept_tree), before, "it was made anew");
    }
    let text = world.all_text(&["mirrors/trees"]);
    assert!(!text.contains("the-token"), "the token was left somewhere");
}

/// A file is another where its blob is the same and its attributes are not.
#[tokio::test]
async fn attributes_that_change_make_the_tree_anew() {
    let world = World::new();
    let sent = |text: &'static str| {
        move |work: &Path| std::fs::write(work.join(".gitattributes"), text).unwrap()
    };
    world.follow(&world.of("main", 9, 2)).await;
    let file = world.kept_tree().join("secret");
    for (number, (attributes, expected)) in [
        ("* text eol=crlf\n", "kept\r\n"),
        ("\n", "kept\n"),
        ("a -text\n", "kept\n"),
    ]
    .into_iter()
    .enumerate()
    {
        world.commit("main", sent(attributes));
        let pipeline = 10 + u32::try_from(number).unwrap();
        world.follow(&world.of("main", pipeline, 2)).await;
        let content = std::fs::read_to_string(&file).unwrap();
        assert_eq!(content, expected, "{attributes:?}");
    }
}

#[tokio::test]
async fn attributes_of_lfs_are_found_at_any_depth() {
    let world = World::new();
    let has = async |sources: &Sources| {
        world.follow(sources).await;
        let path = |name: &str| world.dir.path().join(name);
        let git = behind(HostGit::new(path("home")).unwrap()).await;
        let name = name_of_project("http://gitlab.example.com", 3, sources.object_format);
        let mirrors = path("mirrors");
        let mirror = Mirror::open(&mirrors, git, &name, sources.object_format);
        mirror.await.unwrap().names_lfs(&sources.sha).await.unwrap()
    };
    assert!(!has(&world.of("main", 9, 2)).await);
    world.commit("main", |work| {
        std::fs::create_dir_all(work.join("a/b")).unwrap();
        let text = "*.bin filter=lfs diff=lfs merge=lfs -text\n";
        std::fs::write(work.join("a/b/.gitattributes"), text).unwrap();
    });
    assert!(has(&world.of("main", 10, 2)).await);
}

#[tokio::test]
async fn a_kept_tree_whose_update_was_cut_short_is_made_anew() {
    let world = World::new();
    let sources = world.of("main", 9, 2);
    world.follow(&sources).await;
    let tree = world.kept_tree();
    let whole = world.kept_at().join("whole");
    let spoil: [&dyn Fn(); 4] = [
        // Killed on the way.
        &|| std::fs::remove_file(&whole).unwrap(),
        // Of another start of the host.
        &|| std::fs::write(&whole, "another 0\n").unwrap(),
        // Updated often.
        &|| {
            let text = std::fs::read_to_string(&whole).unwrap();
            std::fs::write(&whole, text.replace(" 0\n", " 1000\n")).unwrap();
        },
        // Damaged.
        &|| std::fs::write(tree.join(".git/index"), "no index").unwrap(),
    ];
    for spoil in spoil {
        spoil();
        std::fs::write(tree.join(".git/index.lock"), "").unwrap();
        world.follow(&sources).await;
        assert!(!tree.join(".git/index.lock").exists());
        assert_eq!(git(&tree, &["status", "--porcelain"]), "");
        assert_eq!(git(&tree, &["rev-parse", "HEAD"]), sources.sha);
    }
}

#[tokio::test]
async fn the_first_image_is_the_base_of_the_next_ones() {
    let world = World::new();
    let one = world.disks("one");
    let kept = world.follow(&world.of("main", 9, 2)).await;
    assert_eq!(kept.image(&one).unwrap(), Image::Whole);
    drop(kept);
    let two = world.disks("two");
    let base = world.dir.path().join("two-base");
    assert!(lend(&world.kept_at(), &base, &two.base_list));
    let same = |a: &Path, b: &Path| {
        let of = |path: &Path| std::fs::metadata(path).unwrap().ino();
        of(a) == of(b)
    };
    assert!(same(&base, &one.sources));
    world.commit("main", |work| {
        std::fs::write(work.join("secret"), "changed\n").unwrap();
    });
    let kept = world.follow(&world.of("main", 10, 2)).await;
    assert_eq!(kept.image(&two).unwrap(), Image::Difference);
    drop(kept);
    // Another tree, another base.
    std::fs::remove_file(world.kept_at().join("whole")).unwrap();
    // A base that is lent stays its job's when there is another.
    let four = world.disks("four");
    let kept = world.follow(&world.of("main", 12, 2)).await;
    assert_eq!(kept.image(&four).unwrap(), Image::Whole);
    assert!(base.exists());
    let again = world.dir.path().join("again");
    assert!(lend(
        &world.kept_at(),
        &again,
        &world.dir.path().join("again.list")
    ));
    assert!(same(&again, &four.sources));
}

#[tokio::test]
async fn trees_beyond_the_bound_go_the_least_recently_used_first_but_one_in_use() {
    use super::super::kept::{Bound, make_room};
    let world = World::new();
    let trees = world.dir.path().join("trees");
    let mut held = None;
    for (age, name) in ["oldest", "held", "older", "newest", "own"]
        .iter()
        .rev()
        .enumerate()
    {
        let dir = trees.join(format!("gitlab.example.com-{name}"));
        // Each has a lock of its own.
        let kept = Kept::open(&dir, PATIENCE).await.unwrap().unwrap();
        std::fs::write(dir.join("whole"), "x").unwrap();
        let file = std::fs::File::options().write(true).open(dir.join("whole"));
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(60 * age as u64);
        file.unwrap().set_modified(then).unwrap();
        if *name == "held" {
            held = Some(kept);
        }
    }
    let bound = |trees| Bound {
        trees,
        bytes: u64::MAX,
    };
    let left = || {
        let all = std::fs::read_dir(&trees)
            .unwrap()
            .map(|entry| entry.unwrap());
        let dirs = all.filter(|entry| entry.path().is_dir());
        let mut names: Vec<_> = dirs
            .map(|entry| entry.file_name().into_string().unwrap())
            .map(|name| name.replace("gitlab.example.com-", ""))
            .collect();
        names.sort();
        names
    };
    let own = trees.join("gitlab.example.com-own");
    make_room(&trees, &own, bound(5));
    assert_eq!(left().len(), 5);
    make_room(&trees, &own, bound(3));
    assert_eq!(left(), ["held", "newest", "own"]);
    make_room(&trees, &own, bound(0));
    assert_eq!(left(), ["held", "own"]);
    drop(held);
}

#[tokio::test]
async fn a_job_gets_a_new_tree_where_another_has_the_kept_one_for_long() {
    let world = World::new();
    let held = world.follow(&world.of("main", 9, 2)).await;
    let sources = world.of("main", 10, 2);
    let (new, own) = world.check_out(&sources, Duration::ZERO).await;
    assert!(own.is_none());
    assert_eq!(new.work, world.dir.path().join("own"));
    assert_eq!(git(&new.work, &["rev-parse", "HEAD"]), sources.sha);
    assert_eq!(git(&new.work, &["status", "--porcelain"]), "");
    drop(held);
    let (again, own) = world.check_out(&sources, Duration::ZERO).await;
    assert!(own.is_some());
    assert_eq!(again.work, world.kept_tree());
}
