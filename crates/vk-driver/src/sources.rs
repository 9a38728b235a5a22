//! A job's sources, made on the host beside the VM's boot.

use std::path::Path;
use std::sync::Arc;

use vk_hub_proto::job::FailureClass;

use crate::git::{
    Credential, Fetched, GitError, HostGit, Lfs, Mirror, Pulled, Rewrites, Site, Updated, Wanted,
    check_out, name_of_project, update,
};
use crate::job::{Job, Sourcing};
use crate::tree::write_image;

/// The disk for the sources: larger than any tree, and sparse.
pub(crate) const DISK_BYTES: u64 = 256 << 30;
/// Its name.
pub(crate) const DISK: &str = "sources";

/// What was brought; none where the job wants no repository.
#[derive(Debug)]
pub(crate) struct Sourced(pub(crate) Option<Brought>);

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

/// Makes room for the sources: a disk that is filled while the VM boots, or a directory.
pub(crate) fn make_room(job: &Job) -> std::io::Result<()> {
    let path = job.file(DISK);
    if job.is_process() {
        return match std::fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        };
    }
    std::fs::File::create(&path)?.set_len(DISK_BYTES)
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
    let below = job
        .place
        .project_dir
        .strip_prefix(&job.place.builds_dir)
        .unwrap_or_default();
    let tree = root.join(below.trim_start_matches('/'));
    let io = |error: std::io::Error| (true, format!("cannot make the job's tree: {error}"));
    if attempt > 1 && tree.exists() {
        std::fs::remove_dir_all(&tree).map_err(io)?;
    }
    std::fs::create_dir_all(&tree).map_err(io)?;
    let brought = if job.settings.strategy.has_sources() {
        Some(fetch(job, &tree, attempt).await.map_err(|error| {
            (
                matches!(error, GitError::Start(_) | GitError::File { .. }),
                error.to_string(),
            )
        })?)
    } else {
        None
    };
    if job.is_process() {
        open_to_all(&root, &tree).map_err(io)?;
    } else {
        let disk = job.file(DISK);
        let written = tokio::task::spawn_blocking(move || {
            let written = write_image(&root, &disk);
            // What is left of it goes with the job's directory.
            let _ = std::fs::remove_dir_all(&root);
            written
        });
        let written = written.await.map_err(|error| (true, error.to_string()))?;
        written.map_err(|error| (true, error.to_string()))?;
    }
    Ok(Sourced(brought))
}

async fn fetch(job: &Job, tree: &Path, attempt: u32) -> Result<Brought, GitError> {
    let spec = job.spec();
    let sources = &spec.sources;
    let git = HostGit::new(job.file("git-home"))?;
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
    let root = &job.context.dirs.mirrors;
    let format = sources.object_format;
    let name = name_of_project(&spec.server_url, spec.job.project_id, format);
    let mirror = Mirror::open(root, git.clone(), &name, format).await?;
    let fetched = mirror.fetch(sources, credential.settings()).await?;
    let settings = &job.settings.git;
    let wanted = Wanted {
        sources,
        fetched: &fetched,
        flags: &settings.fetch,
        checkout: job.settings.checkout,
        clean: &settings.clean,
    };
    let top = check_out(&git, &mirror, wanted, tree).await?;
    // Others wait for it, and a submodule may be of the same repository.
    drop(mirror);
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
    if settings.lfs && job.settings.checkout {
        let lfs = Lfs {
            credential: &credential,
            token: &spec.token,
            ca_pem: spec.server_ca_pem.as_deref(),
            store: root.join("lfs"),
            granted: job.file(&format!("lfs-{attempt}")),
        };
        let inner = updated.iter().flat_map(|updated: &Updated| &updated.trees);
        let inner = inner.map(|(tree, url)| (tree, url));
        for (tree, url) in std::iter::once((&top, &sources.repo_url)).chain(inner) {
            pulled.add(lfs.pull(tree, url).await?);
        }
    }
    Ok(Brought {
        fetched,
        updated,
        pulled,
    })
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
