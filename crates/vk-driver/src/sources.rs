//! A job's sources, made on the host beside the VM's boot.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vk_guest_proto::limits::MAX_DIRECTORIES;
use vk_hub_proto::job::{FailureClass, HookName};

use crate::git::{
    Credential, Disks, Fetched, GitError, GitWalls, HostGit, Image, Kept, Lfs, Mirror, Places,
    Pulled, Rewrites, Site, TreeBounds, Trees, Updated, Wanted, check_out_at, lend,
    name_of_project, name_of_url, update,
};
use crate::job::{Job, Sourcing};
use crate::settings::{CLEAN_FLAGS, Strategy};
use crate::tree::write_image;

/// The disk for the sources: larger than any tree, and sparse.
pub(crate) const DISK_BYTES: u64 = 256 << 30;
/// Its name.
pub(crate) const DISK: &str = "sources";
/// An earlier job's disk, of which that has only what differs.
pub(crate) const BASE: &str = "base";

/// How long a job waits for a kept tree that another one has. Mostly that is a moment: while its image
/// is written. A new tree of a large repository costs some seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was brought.
#[derive(Debug, Default)]
pub(crate) struct Sourced {
    /// None where the job wants no repository.
    pub(crate) brought: Option<Brought>,
    /// The disk for the sources goes over the base.
    pub(crate) over_base: bool,
}

/// A repository, and what is in it.
#[derive(Debug)]
pub(crate) struct Brought {
    /// The job's own.
    pub(crate) fetched: Fetched,
    /// Submodules, where they are wanted.
    pub(crate) updated: Option<Updated>,
    /// Files behind LFS pointers.
    pub(crate) pulled: Pulled,
}

/// Whether there is a disk for the sources. Without a repository there is none: the guest makes the few
/// directories itself.
pub(crate) fn has_disk(job: &Job) -> bool {
    job.is_process()
        || job.settings.strategy.has_sources()
        || on_the_way(job).len() > MAX_DIRECTORIES
}

/// Directories that the guest makes where no disk brings them: that of the builds, and from there to the
/// project's. As on a disk they are root's, and all may change them.
pub(crate) fn directories(job: &Job) -> Vec<Vec<u8>> {
    if has_disk(job) {
        return Vec::new();
    }
    on_the_way(job)
}

fn on_the_way(job: &Job) -> Vec<Vec<u8>> {
    let mut at = PathBuf::from(&job.place.builds_dir);
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let mut all = vec![bytes(&at)];
    for name in below(job) {
        at.push(name);
        all.push(bytes(&at));
    }
    all
}

/// Makes room for the sources: a disk that is filled while the VM boots, or a directory; and gives the
/// VM the disk of an earlier job of the same project and settings, where one is kept.
pub(crate) fn make_room(job: &Job) -> std::io::Result<()> {
    let path = job.file(DISK);
    if job.is_process() {
        return match std::fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        };
    }
    std::fs::File::create(&path)?.set_len(DISK_BYTES)?;
    if let Some(kept) = kept_at(job) {
        lend(&kept, &job.file(BASE), &job.file(BASE_LIST));
    }
    Ok(())
}

/// What is in the base, as it was written.
const BASE_LIST: &str = "base.list";

/// Where the tree is kept that serves jobs like this one; none where each gets a new one: because it
/// asks for that, or a step of it changes the tree in ways of its own.
fn kept_at(job: &Job) -> Option<PathBuf> {
    let (settings, spec) = (&job.settings, job.spec());
    let plain = settings.strategy == Strategy::Fetch
        && settings.checkout
        && settings.git.clean == [CLEAN_FLAGS]
        && settings.git.submodules.is_none()
        && job.hook(HookName::PreGetSourcesScript).is_none();
    if !plain || job.is_process() {
        return None;
    }
    let sources = &spec.sources;
    // Whatever decides what a new tree would have beside its commit.
    let kind = format!(
        "{} {} {} {:?}",
        below(job).display(),
        sources.repo_url,
        sources.depth,
        settings.git.fetch,
    );
    let kind = vk_oci::Digest::of(kind.as_bytes()).hex();
    let kind = kind.get(..16).unwrap_or_default();
    let project = name_of_project(&spec.server_url, spec.job.project_id, sources.object_format);
    let trees = job.context.dirs.mirrors.join("trees");
    Some(trees.join(format!("{project}-{kind}")))
}

/// Where below the builds' directory the project lies.
fn below(job: &Job) -> &Path {
    let below = job.place.project_dir.strip_prefix(&job.place.builds_dir);
    Path::new(below.unwrap_or_default().trim_start_matches('/'))
}

/// Begins to bring them.
pub(crate) fn begin(job: &Arc<Job>, attempt: u32) -> Sourcing {
    let job = Arc::clone(job);
    Sourcing(tokio::spawn(async move { bring(&job, attempt).await }))
}

/// The failure's class, and its words.
pub(crate) fn class(of_the_node: bool) -> FailureClass {
    if of_the_node {
        FailureClass::System
    } else {
        FailureClass::ExternalDependency
    }
}

/// On an error: whether it is the node's own, and what happened.
async fn bring(job: &Job, attempt: u32) -> Result<Sourced, (bool, String)> {
    let root = if job.is_process() {
        job.file(DISK)
    } else {
        job.file(&format!("tree-{attempt}"))
    };
    let tree = root.join(below(job));
    let io = |error: std::io::Error| (true, format!("cannot make the job's tree: {error}"));
    if attempt > 1 && tree.exists() {
        std::fs::remove_dir_all(&tree).map_err(io)?;
    }
    std::fs::create_dir_all(&tree).map_err(io)?;
    let (brought, kept) = if job.settings.strategy.has_sources() {
        let fetched = fetch(job, &tree, attempt).await.map_err(|error| {
            (
                matches!(
                    error,
                    GitError::Start(_) | GitError::Walls(_) | GitError::File { .. }
                ),
                error.to_string(),
            )
        })?;
        (Some(fetched.0), fetched.1)
    } else {
        (None, None)
    };
    let mut over_base = false;
    if job.is_process() {
        open_to_all(&root, &tree).map_err(io)?;
    } else {
        let disks = Disks {
            sources: job.file(DISK),
            list: job.file("sources.list"),
            base_list: job.file(BASE_LIST),
        };
        let written = tokio::task::spawn_blocking(move || match kept {
            Some(kept) => kept.image(&disks),
            None => {
                let written = write_image(&root, &disks.sources, None);
                // What is left of it goes with the job's directory.
                let _ = std::fs::remove_dir_all(&root);
                written.map(|()| Image::Whole)
            }
        });
        let written = written.await.map_err(|error| (true, error.to_string()))?;
        over_base = written.map_err(|error| (true, error.to_string()))? == Image::Difference;
    }
    Ok(Sourced { brought, over_base })
}

/// What is brought, and the kept tree where it was brought into one.
async fn fetch(job: &Job, tree: &Path, attempt: u32) -> Result<(Brought, Option<Kept>), GitError> {
    let spec = job.spec();
    let sources = &spec.sources;
    let dirs = &job.context.dirs;
    let trees = Trees::within(TreeBounds::of_disk(job.context.plan.disk_bytes));
    let walls = GitWalls::new(&job.context.confinement).await?;
    let git = HostGit::new(job.file("git-home"))?.behind(walls);
    let git = git.within(dirs.bounds).holding(trees);
    let private = job.file(&format!("credential-{attempt}"));
    let ca = match &spec.server_ca_pem {
        Some(pem) => {
            let path = job.file("server-ca.pem");
            std::fs::write(&path, pem).map_err(GitError::file("write", &path))?;
            Some(path)
        }
        None => None,
    };
    let credential = Credential::new(private, &sources.repo_url, &spec.token, ca.as_deref())?;
    let root = &dirs.mirrors;
    let format = sources.object_format;
    let name = name_of_project(&spec.server_url, spec.job.project_id, format);
    let mirror = Mirror::open(root, git.clone(), &name, format).await?;
    let fetched = mirror.fetch(sources, credential.way()).await?;
    let settings = &job.settings.git;
    let wanted = Wanted {
        sources,
        fetched: &fetched,
        flags: &settings.fetch,
        checkout: job.settings.checkout,
        clean: &settings.clean,
    };
    // Files of LFS are put into the tree beside its commit, by this job's right.
    let lfs = settings.lfs && job.settings.checkout;
    let kept = match kept_at(job) {
        Some(dir) if !(lfs && mirror.names_lfs(&sources.sha).await?) => Some(dir),
        _ => None,
    };
    let places = Places {
        kept: kept.as_deref(),
        below: below(job),
        own: tree,
    };
    let (top, kept) = check_out_at(places, PATIENCE, &git, &mirror, wanted).await?;
    // Others wait for it, and a submodule may be of the same repository.
    mirror.done().await;
    let credential = Arc::new(credential);
    let mut updated = None;
    if let Some(wanted) = &settings.submodules {
        let site = Site {
            mirrors: root.clone(),
            credential: Arc::clone(&credential),
            wanted: wanted.clone(),
            format,
            rewrites: rewrites(job, wanted.force_https),
        };
        updated = Some(update(&site, &top, &sources.repo_url).await?);
    }
    let mut pulled = Pulled::default();
    if lfs && kept.is_none() {
        let lfs = Lfs {
            credential: &credential,
            token: &spec.token,
            ca_pem: spec.server_ca_pem.as_deref(),
            mirrors: root.clone(),
            bounds: dirs.bounds,
            granted: job.file(&format!("lfs-{attempt}")),
        };
        let inner = updated.iter().flat_map(|updated: &Updated| &updated.trees);
        let inner = inner.map(|(tree, url)| (tree, url, name_of_url(url, format)));
        for (tree, url, name) in std::iter::once((&top, &sources.repo_url, name)).chain(inner) {
            pulled.add(lfs.pull(tree, url, &name).await?);
        }
    }
    let brought = Brought {
        fetched,
        updated,
        pulled,
    };
    Ok((brought, kept))
}

/// `GIT_SUBMODULE_FORCE_HTTPS`: the server's SSH URLs, as its own variables tell them.
fn rewrites(job: &Job, wanted: bool) -> Rewrites {
    if !wanted {
        return Rewrites::default();
    }
    let shared = job.shared();
    let read = |name: &str| shared.variables.content(name).unwrap_or_default();
    let host = match read("CI_SERVER_SHELL_SSH_HOST") {
        "" => read("CI_SERVER_HOST"),
        host => host,
    };
    let port = read("CI_SERVER_SHELL_SSH_PORT");
    Rewrites::of_server(host, port, &job.spec().server_url)
}

/// The directories on the way to the tree, and the tree, for whichever user the scripts have.
fn open_to_all(root: &Path, tree: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut path = tree;
    loop {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        match path.parent() {
            Some(parent) if path != root => path = parent,
            _ => return Ok(()),
        }
    }
}
