//! Git LFS: the files behind pointers, from the job's own server, kept on the host by their hash.
//!
//! Nothing of `git-lfs` runs: pointers are read out of the tree, objects are asked for with the job's
//! own token each time, and git puts them in place through a filter of ours.

mod batch;
mod client;
mod pointer;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vk_hub_proto::Secret;

use super::checkout::Tree;
use super::credential::Credential;
use super::host::GitError;
use client::LfsClient;
use pointer::Pointer;

/// Most LFS files of one repository.
const FILES_MAX: usize = 100_000;
/// A pointer is never longer.
const POINTER_MAX: u64 = 1024;

/// What one job's LFS files need.
#[derive(Debug)]
pub(crate) struct Lfs<'a> {
    /// Tells which server is the job's own.
    pub(crate) credential: &'a Credential,
    pub(crate) token: &'a Secret,
    /// What that server's certificate is checked by, beside the host's.
    pub(crate) ca_pem: Option<&'a str>,
    /// Objects of the host, below their hash.
    pub(crate) store: PathBuf,
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

/// A file, and what it shall have in it.
struct File {
    path: Vec<u8>,
    pointer: Pointer,
}

impl Lfs<'_> {
    /// Puts the LFS files of a tree in place. `url` is its repository's.
    pub(crate) async fn pull(&self, tree: &Tree, url: &str) -> Result<Pulled, GitError> {
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
        let endpoint = self.endpoint(tree, url).await?;
        let objects: BTreeMap<&str, &Pointer> = files
            .iter()
            .map(|file| (file.pointer.oid.as_str(), &file.pointer))
            .collect();
        fs::create_dir_all(&self.granted).map_err(GitError::file("make", &self.granted))?;
        let client = LfsClient::new(self.token, self.ca_pem)?;
        let wanted: Vec<&Pointer> = objects.into_values().collect();
        for some in wanted.chunks(batch::OBJECTS_MAX) {
            let answers = client.batch(&endpoint, some).await?;
            for (pointer, action) in some.iter().zip(answers) {
                let stored = self.stored(&pointer.oid);
                let kept = fs::metadata(&stored).is_ok_and(|of| of.len() == pointer.size);
                if !kept {
                    client
                        .download(&endpoint, pointer, &action, &stored)
                        .await?;
                }
                self.grant(pointer, &stored)?;
            }
        }
        place(tree, &self.granted, &files).await?;
        Ok(Pulled {
            objects: wanted.len(),
            bytes: wanted.iter().map(|pointer| pointer.size).sum(),
            foreign: 0,
        })
    }

    /// Each server's objects apart: that one server lets a job have an object says nothing of what
    /// another's is.
    fn stored(&self, oid: &str) -> PathBuf {
        let server = vk_oci::Digest::of(self.credential.origin().as_bytes()).hex();
        let server = self.store.join(server.get(..32).unwrap_or_default());
        server.join(oid.get(..2).unwrap_or_default()).join(oid)
    }

    /// The job's filter finds what its token was good for, and nothing else.
    fn grant(&self, pointer: &Pointer, stored: &Path) -> Result<(), GitError> {
        let link = self.granted.join(&pointer.oid);
        match std::os::unix::fs::symlink(stored, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(GitError::file("make", &link)(error))
            }
            _ => Ok(()),
        }
    }

    /// Where the repository's objects are asked for: `.lfsconfig` may say so, of the same server.
    async fn endpoint(&self, tree: &Tree, url: &str) -> Result<String, GitError> {
        let args = ["config", "--blob", ":.lfsconfig", "--get", "lfs.url"];
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
    tree.git.feed(what, &settings, &args, &paths).await?;
    age(&tree.git_dir)
}

/// Dates an index later than all its files. Git reads those that are as young as their index, to be
/// sure of them, and LFS files are not what their commit has.
fn age(git_dir: &Path) -> Result<(), GitError> {
    let index = git_dir.join("index");
    let later = SystemTime::now() + Duration::from_secs(2);
    let opened = fs::File::options().write(true).open(&index);
    let dated = opened.and_then(|file| file.set_modified(later));
    dated.map_err(GitError::file("date", &index))
}
