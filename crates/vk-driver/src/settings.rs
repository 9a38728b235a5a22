//! What a job's variables say about the checkout, and where its directories are.

mod git;
#[cfg(test)]
mod tests;

use vk_hub_proto::job::CiJob;

use crate::archive::Level;
use crate::variables::Place;
use git::Reader;

pub(crate) use git::{CLEAN_FLAGS, FetchFlags, GitSettings, Submodules, Tags};

/// The root of builds in the guest.
const BUILDS_DIR: &str = "/builds";

/// `GIT_STRATEGY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// A fresh clone; in a VM that is always fresh the same as a fetch.
    Clone,
    /// A fetch.
    Fetch,
    /// No repository.
    None,
    /// No repository, and an empty directory.
    Empty,
}

impl Strategy {
    /// Whether there is a repository.
    pub(crate) const fn has_sources(self) -> bool {
        matches!(self, Strategy::Clone | Strategy::Fetch)
    }
}

/// The settings of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) strategy: Strategy,
    /// `GIT_CHECKOUT`.
    pub(crate) checkout: bool,
    /// `GIT_CLONE_PATH`, clean.
    pub(crate) clone_path: Option<String>,
    /// Flags, submodules, LFS.
    pub(crate) git: GitSettings,
    /// `CI_DEBUG_TRACE`.
    pub(crate) debug_trace: bool,
    /// `FF_SCRIPT_SECTIONS`.
    pub(crate) script_sections: bool,
    /// `ARTIFACT_COMPRESSION_LEVEL`.
    pub(crate) artifact_level: Level,
    /// What the job asks for and cannot have: it ends at once, with these words.
    pub(crate) refused: Option<String>,
    /// What was not understood.
    pub(crate) warnings: Vec<String>,
    /// Flags (`FF_…`) that were not understood.
    pub(crate) flag_faults: Vec<String>,
}

impl Settings {
    /// Reads them. `variable` gives a variable's content.
    pub(crate) fn read(job: &CiJob, variable: impl Fn(&str) -> Option<String>) -> Settings {
        let mut reader = Reader {
            given: &variable,
            warnings: Vec::new(),
            flag_faults: Vec::new(),
        };
        let default = if job.sources.allow_fetch {
            Strategy::Fetch
        } else {
            Strategy::Clone
        };
        let strategy = match reader.text("GIT_STRATEGY").as_deref() {
            None => default,
            Some("clone") => Strategy::Clone,
            Some("fetch") => Strategy::Fetch,
            Some("none") => Strategy::None,
            Some("empty") => Strategy::Empty,
            Some(other) => {
                reader.warnings.push(format!(
                    "GIT_STRATEGY: expected either 'clone', 'fetch', 'none' or 'empty' got \
                     {other:?}, using default value 'fetch'"
                ));
                default
            }
        };
        let checkout = reader.flag("GIT_CHECKOUT", true) && strategy.has_sources();
        let debug_trace = reader.flag("CI_DEBUG_TRACE", false);
        let script_sections = reader.feature("FF_SCRIPT_SECTIONS", false);
        let artifact_level = artifact_level(&mut reader);
        let mut refused = None;
        let mut or_refuse = |error: String| refused = Some(error);
        let git = if strategy.has_sources() {
            GitSettings::read(job, &mut reader).unwrap_or_else(|error| {
                or_refuse(error);
                GitSettings::none()
            })
        } else {
            GitSettings::none()
        };
        let clone_path = reader.text("GIT_CLONE_PATH").map(|path| clone_path(&path));
        let clone_path = clone_path.transpose().unwrap_or_else(|error| {
            or_refuse(error);
            None
        });
        Settings {
            strategy,
            checkout,
            clone_path,
            git,
            debug_trace,
            script_sections,
            artifact_level,
            refused,
            warnings: reader.warnings,
            flag_faults: reader.flag_faults,
        }
    }
}

/// What is said of a flag that is no bool.
pub(crate) fn flag_fault(name: &str, value: &str) -> String {
    format!("{name}: could not parse feature flag, expected bool, got {value}")
}

fn artifact_level(reader: &mut Reader<'_>) -> Level {
    let Some(name) = reader.text("ARTIFACT_COMPRESSION_LEVEL") else {
        return Level::default();
    };
    Level::named(&name).unwrap_or_else(|| {
        reader.warnings.push(format!(
            "ARTIFACT_COMPRESSION_LEVEL: expected one of 'fastest', 'fast', 'default', 'slow' or \
             'slowest' got {name:?}, using default value 'default'"
        ));
        Level::default()
    })
}

/// Bytes of a file's name.
const NAME_MAX: usize = 255;

/// Where a job wants its project: somewhere below the builds' directory.
fn clone_path(path: &str) -> Result<String, String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    let clean = format!("/{}", parts.join("/"));
    let below = clean.strip_prefix(BUILDS_DIR);
    let inside = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let plain = path.len() < 1024 && !path.chars().any(char::is_control);
    // `.tmp` stands behind the last one.
    if parts.iter().any(|part| part.len() > NAME_MAX - 4) {
        Err(format!(
            "the GIT_CLONE_PATH={path:?} has a name longer than {} bytes",
            NAME_MAX - 4
        ))
    } else if path.starts_with('/') && inside && plain {
        Ok(clean)
    } else {
        Err(format!(
            "the GIT_CLONE_PATH={path:?} has to be within {BUILDS_DIR:?}"
        ))
    }
}

/// The directories of a job in its guest.
pub(crate) fn place(job: &CiJob, strategy: Strategy, clone_path: Option<&str>) -> Place {
    let mut project_dir = match clone_path {
        Some(path) => path.to_owned(),
        None => {
            let path = project_path(&job.sources.repo_url);
            let path = path.unwrap_or_else(|| format!("project-{}", job.job.project_id));
            format!("{BUILDS_DIR}/{path}")
        }
    };
    if strategy == Strategy::Empty {
        project_dir.push_str("-empty");
    }
    Place {
        builds_dir: BUILDS_DIR.to_owned(),
        temp_dir: format!("{project_dir}.tmp"),
        project_dir,
    }
}

/// The path of a repository's URL without `.git`: what is safe in a directory's name, or nothing.
fn project_path(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (_, path) = rest.split_once('/')?;
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let parts: Vec<_> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    // `-empty` and `.tmp` may stand behind the last one.
    let fits = |part: &&str| part.len() <= NAME_MAX - 10;
    let fine = |part: &&str| {
        *part != ".." && fits(part) && !part.chars().any(|c| c.is_control() || c == '%')
    };
    (!parts.is_empty() && path.len() < 1024 && parts.iter().all(fine)).then(|| parts.join("/"))
}
