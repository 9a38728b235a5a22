//! A project's tree, kept on the host from job to job: a job's checkout follows what differs from the
//! one before, and so does the image that is made of it.
//!
//! A kept tree is a directory below `trees`, beside the mirrors: `root` (what becomes the image: the
//! way to the tree, the tree and its `.git`), `whole` (there while no update is under way), and
//! `base-<boot>-<n>` (an image of it, and the list of what is in that). Jobs get copies of it by an
//! overlay, never itself. After a crash of the host none of it is trusted: nothing was synced.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vk_vm::confine::Place;

use super::checkout::{FromMirror, Tree, Wanted, check_out};
use super::host::{GitError, HostGit};
use super::lock::Lock;
use super::mirror::Mirror;
use crate::settings::{CLEAN_FLAGS, FetchFlags, Tags};
use crate::tree::{TreeError, write_difference, write_image};

/// After so many updates a tree is made anew: objects that no job reaches any more stay until then.
const UPDATES_MAX: u32 = 1_000;
/// Kept trees of one host, and which part of its disk they may take.
const TREES_MAX: usize = 64;
const PART_OF_DISK: u64 = 5;
/// Which start of the host this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What a job's disk with its sources became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// All of the tree.
    Whole,
    /// What differs from the base that the job has.
    Difference,
}

/// The disks and lists of one job.
#[derive(Clone, Debug)]
pub(crate) struct Disks {
    /// The disk for its sources, which is there.
    pub(crate) sources: PathBuf,
    /// What is in that, where it is worth being told.
    pub(crate) list: PathBuf,
    /// What is in the base that its VM has, if it has one.
    pub(crate) base_list: PathBuf,
}

/// A kept tree, held for one job.
#[derive(Debug)]
pub(crate) struct Kept {
    dir: PathBuf,
    boot: String,
    lock: Lock,
}

impl Kept {
    /// Opens the one at `dir`, once no other job has it; none where one has it for longer than this:
    /// a new tree is sooner there.
    pub(super) async fn open(dir: &Path, patience: Duration) -> Result<Option<Kept>, GitError> {
        let Some(lock) = Lock::take_within(&lock_of(dir), patience).await? else {
            tracing::info!("another job has the kept tree {}", dir.display());
            return Ok(None);
        };
        fs::create_dir_all(dir).map_err(GitError::file("make", dir))?;
        Ok(Some(Kept {
            dir: dir.to_owned(),
            boot: boot_id(),
            lock,
        }))
    }

    /// What becomes an image.
    fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn whole(&self) -> PathBuf {
        self.dir.join("whole")
    }

    /// Brings it to what a job wants; `below` is where in the image the tree lies. One that cannot be
    /// brought there is made anew.
    pub(super) async fn check_out(
        &self,
        git: &HostGit,
        mirror: &Mirror,
        wanted: Wanted<'_>,
        below: &Path,
    ) -> Result<Tree, GitError> {
        let work = self.root().join(below);
        let tree = Tree {
            git: mirror
                .read_by(git)
                .under(&self.lock)
                .seeing(&[Place::write(&work)]),
            git_dir: work.join(".git"),
            work,
        };
        let updates = self
            .updates()
            .filter(|_| tree.git_dir.join("HEAD").exists());
        if let Some(updates @ ..UPDATES_MAX) = updates {
            self.remove(&self.whole())?;
            match tree.follow(mirror, wanted).await {
                Ok(()) => {
                    self.tell_whole(updates + 1)?;
                    return Ok(tree);
                }
                Err(error) => {
                    tracing::info!(%error, "a kept tree is made anew: {}", self.dir.display());
                }
            }
        }
        self.forget()?;
        fs::create_dir_all(&tree.work).map_err(GitError::file("make", &tree.work))?;
        let tree = check_out(&tree.git, mirror, wanted, &tree.work).await?;
        self.tell_whole(0)?;
        Ok(tree)
    }

    /// How often it was updated; none where it is none, or one of which nothing is known.
    fn updates(&self) -> Option<u32> {
        let text = fs::read_to_string(self.whole()).ok()?;
        let (boot, updates) = text.trim().split_once(' ')?;
        let updates = updates.parse().ok()?;
        (boot == self.boot && !self.boot.is_empty()).then_some(updates)
    }

    fn tell_whole(&self, updates: u32) -> Result<(), GitError> {
        let path = self.whole();
        let text = format!("{} {updates}\n", self.boot);
        fs::write(&path, text).map_err(GitError::file("write", &path))
    }

    /// Removes the tree; its bases stay until there is another.
    fn forget(&self) -> Result<(), GitError> {
        self.remove(&self.whole())?;
        self.remove(&self.root())
    }

    fn remove(&self, path: &Path) -> Result<(), GitError> {
        let removed = match fs::symlink_metadata(path) {
            Ok(of) if of.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(GitError::file("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Writes the image of the tree into the job's disk: the difference from the job's base where
    /// that is worth it, else all of it, which is then the base of later jobs.
    pub(crate) fn image(&self, disks: &Disks) -> Result<Image, TreeError> {
        let root = self.root();
        if disks.base_list.exists() && write_difference(&root, &disks.sources, &disks.base_list)? {
            return Ok(Image::Difference);
        }
        let mut written = write_image(&root, &disks.sources, Some(&disks.list));
        if written.is_err() {
            // Trees of other projects may be what the disk is full of.
            self.make_room();
            written = write_image(&root, &disks.sources, Some(&disks.list));
        }
        written?;
        if let Err(error) = self.keep(disks) {
            // The job has its sources; a later one tries again.
            tracing::warn!(%error, "no base is kept in {}", self.dir.display());
        }
        self.make_room();
        Ok(Image::Whole)
    }

    /// Makes a job's image, which nobody changes any more, the base.
    fn keep(&self, disks: &Disks) -> std::io::Result<()> {
        if self.boot.is_empty() {
            return Ok(());
        }
        // No two bases have one name, also not one after the tree was removed: whoever links the files
        // of one has both of the same.
        let next = bases(&self.dir).last().map_or(0, |(number, _)| number + 1);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let number = u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        let number = number.max(next);
        let earlier = all_bases(&self.dir);
        let name = format!("base-{}-{number}", self.boot);
        let new = self.dir.join("new");
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir(&new)?;
        fs::hard_link(&disks.sources, new.join("image"))?;
        fs::hard_link(&disks.list, new.join("list"))?;
        fs::rename(&new, self.dir.join(name))?;
        // Jobs that have them have names of their own for them.
        for path in earlier {
            fs::remove_dir_all(path)?;
        }
        Ok(())
    }

    /// Removes the trees of other projects that were used longest ago, where there are too many.
    fn make_room(&self) {
        let Some(trees) = self.dir.parent() else {
            return;
        };
        let disk = rustix::fs::statvfs(trees).map_or(u64::MAX, |of| of.f_blocks * of.f_frsize);
        let bound = Bound {
            trees: TREES_MAX,
            bytes: disk / PART_OF_DISK,
        };
        make_room(trees, &self.dir, bound);
    }
}

/// Where a job's tree may come to lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    /// A kept tree, where jobs like this one have one.
    pub(crate) kept: Option<&'a Path>,
    /// Where in that the tree lies.
    pub(crate) below: &'a Path,
    /// One for this job alone.
    pub(crate) own: &'a Path,
}

/// Makes a job's tree: in the kept one, which is then the job's for as long as it has it, or, where
/// there is none or another job has it for longer than this, in the job's own.
pub(crate) async fn check_out_at(
    places: Places<'_>,
    patience: Duration,
    git: &HostGit,
    mirror: &Mirror,
    wanted: Wanted<'_>,
) -> Result<(Tree, Option<Kept>), GitError> {
    let kept = match places.kept {
        Some(dir) => Kept::open(dir, patience).await?,
        None => None,
    };
    let tree = match &kept {
        Some(kept) => kept.check_out(git, mirror, wanted, places.below).await?,
        None => check_out(git, mirror, wanted, places.own).await?,
    };
    Ok((tree, kept))
}

/// Removes a kept tree whose lock is held: its mark first, so that what is left of it when this is cut
/// short is none.
pub(super) fn remove_tree(dir: &Path) -> std::io::Result<()> {
    super::room::remove(&dir.join("whole"))?;
    super::room::remove(dir)
}

/// The lock of the tree at `dir`, whose name may have dots in it: a server's.
pub(super) fn lock_of(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// How much of kept trees there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) trees: usize,
    pub(super) bytes: u64,
}

/// Removes what is beyond the bound, the least recently used first, but what a job has.
pub(super) fn make_room(trees: &Path, but: &Path, bound: Bound) {
    let mut all: Vec<_> = fs::read_dir(trees)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .map(|path| (last_use(&path), bytes(&path), path))
        .collect();
    all.sort();
    let mut total: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
    let mut count = all.len();
    for (_, bytes, path) in all {
        if count <= bound.trees && total <= bound.bytes {
            return;
        }
        if path == but {
            continue;
        }
        let Ok(Some(_lock)) = Lock::try_take(&lock_of(&path)) else {
            continue;
        };
        match remove_tree(&path) {
            Ok(()) => {
                count -= 1;
                total = total.saturating_sub(bytes);
            }
            Err(error) => tracing::warn!(%error, "cannot remove {}", path.display()),
        }
    }
}

fn last_use(dir: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(dir.join("whole")).ok()?.modified().ok()
}

/// What a tree takes, about: as much as its base, and that.
fn bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let images = all_bases(dir).into_iter();
    let sizes = images.filter_map(|path| fs::metadata(path.join("image")).ok());
    let sum: u64 = sizes.map(|image| image.blocks() * 512 * 2).sum();
    match sum {
        // Without a base only a look says it.
        0 => super::room::bytes(dir),
        sum => sum,
    }
}

/// Bases of every start of the host.
fn all_bases(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_base = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("base-"))
    };
    entries.map(|entry| entry.path()).filter(is_base).collect()
}

/// Bases of this start of the host, the newest last.
fn bases(dir: &Path) -> Vec<(u64, PathBuf)> {
    let boot = boot_id();
    if boot.is_empty() {
        return Vec::new();
    }
    let mine = format!("base-{boot}-");
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix(&mine)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    all.sort();
    all
}

fn boot_id() -> String {
    let id = fs::read_to_string(BOOT_ID).unwrap_or_default();
    id.trim().to_owned()
}

/// Gives a job the newest base of the tree at `dir`, if there is one, under names of its own.
pub(crate) fn lend(dir: &Path, image: &Path, list: &Path) -> bool {
    // One may go while it is looked at, since there is a newer one.
    for _ in 0..3 {
        let Some((_, base)) = bases(dir).pop() else {
            return false;
        };
        let linked = fs::hard_link(base.join("image"), image)
            .and_then(|()| fs::hard_link(base.join("list"), list));
        if linked.is_ok() {
            return true;
        }
        let _ = fs::remove_file(image);
        let _ = fs::remove_file(list);
    }
    false
}

impl Tree {
    /// Brings a tree that another job had to what this one wants, as if it were made for it: what
    /// differs from a new one are times of files that did not change, and objects.
    async fn follow(&self, mirror: &Mirror, wanted: Wanted<'_>) -> Result<(), GitError> {
        for name in ["logs", "FETCH_HEAD", "ORIG_HEAD"] {
            let path = self.git_dir.join(name);
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            match removed {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(GitError::file("remove", &path)(error));
                }
                _ => {}
            }
        }
        let what = "leave the earlier job's commit";
        self.run(what, &["symbolic-ref", "HEAD", "refs/heads/none"])
            .await?;
        // A tag whose commit is here already would be fetched as if the job named it, and its history
        // be as deep as the job's own.
        let mut flags = wanted.flags.clone();
        let follows = flags.tags == Tags::Followed;
        if follows {
            flags.tags = Tags::None;
        }
        let of = Wanted {
            flags: &flags,
            ..wanted
        };
        let refspecs = self.fetch_wanted(mirror, of).await?;
        self.drop_refs(&refspecs, flags.tags).await?;
        if follows {
            let flags = FetchFlags::default();
            let again = FromMirror {
                refspecs: &refspecs,
                depth: 0,
                flags: &flags,
                url: &wanted.sources.repo_url,
            };
            self.fetch(mirror, again).await?;
        }
        self.same_attributes(&wanted.sources.sha).await?;
        self.check_out(&wanted.sources.sha).await?;
        self.run("clean the tree", &["clean", "-q", CLEAN_FLAGS])
            .await
            .map(drop)
    }

    /// Git writes a file anew where its blob is another, not where other attributes would make another
    /// file of it (`eol`, `ident`, `working-tree-encoding`).
    async fn same_attributes(&self, sha: &str) -> Result<(), GitError> {
        let args = self.args(&[
            "diff",
            "--cached",
            "--name-only",
            "--no-renames",
            "-z",
            sha,
            "--",
            ":(top,glob,icase)**/.gitattributes",
        ]);
        let what = "compare the attributes";
        let changed = self.git.records(what, &args, |_| true).await?;
        match changed.is_empty() {
            true => Ok(()),
            false => Err(GitError::Failed {
                what: "follow",
                said: "the repository's attributes are others".to_owned(),
            }),
        }
    }

    /// Removes the refs that are no place for what is fetched now.
    async fn drop_refs(&self, refspecs: &[String], tags: Tags) -> Result<(), GitError> {
        let args = self.args(&["for-each-ref", "--format=%(refname)%00"]);
        let what = "list the refs";
        let refs = self.git.records(what, &args, |_| true).await?;
        let places: Vec<&str> = refspecs
            .iter()
            .filter_map(|refspec| refspec.split_once(':').map(|(_, place)| place))
            .collect();
        let mut orders = Vec::new();
        for name in refs {
            let name = name.trim_ascii_start();
            let fetched = tags == Tags::All && name.starts_with(b"refs/tags/");
            if name.is_empty() || fetched || places.iter().any(|place| holds(place, name)) {
                continue;
            }
            orders.extend_from_slice(b"delete ");
            orders.extend_from_slice(name);
            orders.push(b'\n');
        }
        if orders.is_empty() {
            return Ok(());
        }
        let args = self.args(&["update-ref", "--stdin"]);
        let what = "remove refs of an earlier job";
        self.git.feed(what, &[], &args, &orders).await
    }
}

/// Whether a refspec's place, in which one star stands for anything, is that of a ref.
fn holds(place: &str, name: &[u8]) -> bool {
    match place.split_once('*') {
        None => place.as_bytes() == name,
        Some((before, after)) => name
            .strip_prefix(before.as_bytes())
            .is_some_and(|rest| rest.ends_with(after.as_bytes())),
    }
}
