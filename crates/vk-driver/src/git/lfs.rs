//! Git LFS: the files behind pointers, from the job's own server, kept on the host by their hash.
//!
//! Nothing of `git-lfs` runs: pointers are read out of the tree, objects are asked for with the job's
//! own token each time, and git puts them in place through a filter of ours.

mod batch;
mod client;
mod pointer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vk_hub_proto::Secret;
use vk_vm::confine::Place;

use super::checkout::Tree;
use super::credential::Credential;
use super::host::GitError;
use super::room::{self, Room, Shared, SourceBounds};
use super::unfollowed;
use batch::Action;
use client::LfsClient;
use pointer::Pointer;

/// Most LFS files of one repository.
const FILES_MAX: usize = 100_000;
/// A pointer is never longer.
const POINTER_MAX: u64 = 1024;

/// How often an object is brought that goes before it is used.
const HAVE_TRIES: u32 = 5;

/// What one job's LFS files need.
#[derive(Debug)]
pub(crate) struct Lfs<'a> {
    /// Tells which server is the job's own.
    pub(crate) credential: &'a Credential,
    pub(crate) token: &'a Secret,
    /// What that server's certificate is checked by, beside the host's.
    pub(crate) ca_pem: Option<&'a str>,
    /// Where mirrors and objects are kept.
    pub(crate) mirrors: PathBuf,
    /// What they may take of the disk.
    pub(crate) bounds: SourceBounds,
    /// A directory of the job's own, which is made here: what this job may have of them.
    pub(crate) granted: PathBuf,
}

/// What was put in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulled {
    /// Objects, each once.
    pub(crate) objects: usize,
    /// Their size.
    pub(crate) bytes: u64,
    /// Files of a repository of another server, which stay pointers.
    pub(crate) foreign: usize,
}

impl Pulled {
    /// Counts another repository's, too.
    pub(crate) fn add(&mut self, other: Pulled) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.foreign += other.foreign;
    }
}

/// Objects of a repository on the host, below their hash; each server's apart: that one server lets
/// a job have an object says nothing of what another's is.
struct Store(PathBuf);

impl Store {
    fn new(dir: &Path, origin: &str) -> Store {
        let server = vk_oci::Digest::of(origin.as_bytes()).hex();
        Store(dir.join(server.get(..32).unwrap_or_default()))
    }

    fn path(&self, oid: &str) -> PathBuf {
        self.0.join(oid)
    }

    fn has(&self, pointer: &Pointer) -> bool {
        fs::metadata(self.path(&pointer.oid)).is_ok_and(|of| of.len() == pointer.size)
    }
}

/// A file, and what it shall have in it.
struct File {
    path: Vec<u8>,
    pointer: Pointer,
}

impl Lfs<'_> {
    /// Puts the LFS files of a tree in place. `url` is its repository's, `name` its mirror's.
    pub(crate) async fn pull(
        &self,
        tree: &Tree,
        url: &str,
        name: &str,
    ) -> Result<Pulled, GitError> {
        let files = files(tree).await?;
        if files.is_empty() {
            return Ok(Pulled::default());
        }
        if !self.credential.is_for(url) {
            return Ok(Pulled {
                foreign: files.len(),
                ..Pulled::default()
            });
        }
        let objects: BTreeMap<&str, &Pointer> = files
            .iter()
            .map(|file| (file.pointer.oid.as_str(), &file.pointer))
            .collect();
        let wanted: Vec<&Pointer> = objects.into_values().collect();
        let bytes = self.fits(&wanted)?;
        let endpoint = self.endpoint(tree, url).await?;
        fs::create_dir_all(&self.granted).map_err(GitError::file("make", &self.granted))?;
        let room = Room {
            root: self.mirrors.clone(),
            bounds: self.bounds,
        };
        let used = Shared::take(&room.lfs_lock(name)).await?;
        let store = Store::new(&room.lfs(name), self.credential.origin());
        self.make_room(&room, name, &store, &wanted).await?;
        let own = self.credential.origin().to_owned();
        let client = LfsClient::new(self.token, self.ca_pem, own)?;
        for some in wanted.chunks(batch::OBJECTS_MAX) {
            let answers = client.batch(&endpoint, some).await?;
            for (pointer, action) in some.iter().zip(answers) {
                self.have(&client, &endpoint, &store, pointer, &action)
                    .await?;
            }
        }
        place(tree, &self.granted, &files).await?;
        let name = name.to_owned();
        let measuring = tokio::task::spawn_blocking(move || {
            room.measure(&name);
            drop(used);
        });
        // For later sums only.
        let _ = measuring.await;
        Ok(Pulled {
            objects: wanted.len(),
            bytes,
            foreign: 0,
        })
    }

    /// What all of them take, where a project may have so much: asked before anything is downloaded.
    fn fits(&self, wanted: &[&Pointer]) -> Result<u64, GitError> {
        let sum = |sum: u64, one: &&Pointer| sum.saturating_add(one.size);
        let bytes = wanted.iter().fold(0, sum);
        let most = self.bounds.project;
        if bytes > most {
            return Err(GitError::Lfs(format!(
                "its pointers name {bytes} bytes, and a project may have {most} on this node: set \
                 GIT_LFS_SKIP_SMUDGE: \"1\" to have the pointers, or raise [sources] max_project \
                 there"
            )));
        }
        Ok(bytes)
    }

    /// Makes room for what is not here yet: of the project's own objects, then of other projects.
    async fn make_room(
        &self,
        room: &Room,
        name: &str,
        store: &Store,
        wanted: &[&Pointer],
    ) -> Result<(), GitError> {
        let mut more = 0_u64;
        for pointer in wanted.iter().filter(|pointer| !store.has(pointer)) {
            more = more.saturating_add(pointer.size);
        }
        if more == 0 {
            return Ok(());
        }
        let wanted: BTreeSet<_> = wanted.iter().map(|one| store.path(&one.oid)).collect();
        let (room, name) = (room.clone(), name.to_owned());
        let making = tokio::task::spawn_blocking(move || {
            room.make_room_of_objects(&name, more, |path| wanted.contains(path));
            room.make_room(more, &name);
        });
        making
            .await
            .map_err(|error| GitError::Start(std::io::Error::other(error)))
    }

    /// Has an object under a name of this job's own, which stays though the host's goes: downloads it
    /// where it is not here. The job's filter finds what its token was good for, and nothing else.
    async fn have(
        &self,
        client: &LfsClient<'_>,
        endpoint: &str,
        store: &Store,
        pointer: &Pointer,
        action: &Action,
    ) -> Result<(), GitError> {
        let (stored, own) = (store.path(&pointer.oid), self.granted.join(&pointer.oid));
        if own.exists() {
            return Ok(());
        }
        for _ in 0..HAVE_TRIES {
            if !store.has(pointer) {
                client.download(endpoint, pointer, action, &stored).await?;
            }
            room::date(&stored);
            match fs::hard_link(&stored, &own) {
                Ok(()) => return Ok(()),
                // Another job needed the room.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                // The job's files lie on another disk.
                Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                    let copied = fs::copy(&stored, &own).map(drop);
                    return copied.map_err(GitError::file("copy", &stored));
                }
                Err(error) => return Err(GitError::file("make", &own)(error)),
            }
        }
        Err(GitError::Lfs(format!(
            "object {} went {HAVE_TRIES} times before it was used: this node has too little room",
            pointer.oid
        )))
    }

    /// Where the repository's objects are asked for: `.lfsconfig` may say so, of the same server.
    async fn endpoint(&self, tree: &Tree, url: &str) -> Result<String, GitError> {
        // Includes would have git read files of the host.
        let args = ["config", "--no-includes", "--blob", ":.lfsconfig"];
        let args = [&args[..], &["--get", "lfs.url"]].concat();
        let said = tree.run("read .lfsconfig", &args).await.unwrap_or_default();
        let said = said.trim();
        if said.is_empty() {
            let ending = if url.ends_with(".git") { "" } else { ".git" };
            return Ok(format!("{}{ending}/info/lfs", url.trim_end_matches('/')));
        }
        if self.credential.is_for(said) {
            return Ok(said.trim_end_matches('/').to_owned());
        }
        Err(GitError::Lfs(format!(
            "the repository's .lfsconfig names {said:?}, which is not the job's own server: set \
             GIT_LFS_SKIP_SMUDGE: \"1\" to have the pointers"
        )))
    }
}

/// The files of a tree that are LFS pointers.
async fn files(tree: &Tree) -> Result<Vec<File>, GitError> {
    let args = tree.args(&["ls-files", "-z", "--", ":(attr:filter=lfs)"]);
    let paths = tree.git.records("list LFS files", &args, |_| true).await?;
    if paths.len() > FILES_MAX {
        let why = format!("there are {}, and a job may have {FILES_MAX}", paths.len());
        return Err(GitError::Lfs(why));
    }
    let pointer = |path: Vec<u8>| {
        let pointer = read(&tree.work, &path)?;
        Some(File { path, pointer })
    };
    Ok(paths.into_iter().filter_map(pointer).collect())
}

/// The pointer in a file, if it is one: nothing on the way to it is a symlink.
fn read(work: &Path, path: &[u8]) -> Option<Pointer> {
    let mut at = work.to_owned();
    let mut last = None;
    for part in path.split(|byte| *byte == b'/') {
        at.push(std::ffi::OsStr::from_bytes(part));
        let of = fs::symlink_metadata(&at).ok()?;
        if of.is_symlink() {
            return None;
        }
        last = Some(of);
    }
    last.filter(|of| of.is_file() && of.len() <= POINTER_MAX)?;
    Pointer::read(&fs::read(&at).ok()?)
}

/// Has git write the files anew, through a filter that gives what their pointers name. Its index then
/// knows them, and finds nothing changed although the guest's git has no such filter.
async fn place(tree: &Tree, granted: &Path, files: &[File]) -> Result<(), GitError> {
    let mut paths = Vec::new();
    for file in files {
        let path = tree.work.join(std::ffi::OsStr::from_bytes(&file.path));
        fs::remove_file(&path).map_err(GitError::file("remove", &path))?;
        paths.extend_from_slice(&file.path);
        paths.push(0);
    }
    let quoted = granted.to_string_lossy().replace('\'', "'\\''");
    let oid = "sed -n 's/^oid sha256:\\([0-9a-f]*\\)$/\\1/p'";
    let settings = [
        (
            "filter.lfs.smudge".to_owned(),
            format!("cat '{quoted}'/\"$({oid})\""),
        ),
        ("filter.lfs.required".to_owned(), "true".to_owned()),
    ];
    let args = tree.args(&["checkout-index", "-f", "-u", "-z", "--stdin"]);
    let what = "put the LFS files in place";
    age(&tree.git_dir)?;
    let git = tree.git.seeing(&[Place::read(granted)]);
    git.feed(what, &settings, &args, &paths).await?;
    age(&tree.git_dir)
}

/// Dates an index later than all its files. Git reads those that are as young as their index, to be
/// sure of them, and LFS files are not what their commit has.
fn age(git_dir: &Path) -> Result<(), GitError> {
    let index = git_dir.join("index");
    let later = SystemTime::now() + Duration::from_secs(2);
    let dated = unfollowed::open(&index).and_then(|file| file.set_modified(later));
    dated.map_err(GitError::file("date", &index))
}
