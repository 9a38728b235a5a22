//! What a job's variables say about the checkout, and where its directories are.

use vk_hub_proto::job::CiJob;

use crate::variables::Place;

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
    /// `CI_DEBUG_TRACE`.
    pub(crate) debug_trace: bool,
    /// `FF_SCRIPT_SECTIONS`.
    pub(crate) script_sections: bool,
    /// What the job asks of git that this node cannot do.
    pub(crate) unsupported: Option<String>,
    /// What was not understood.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// Reads them. `variable` gives a variable's content.
    pub(crate) fn read(job: &CiJob, variable: impl Fn(&str) -> Option<String>) -> Settings {
        let mut warnings = Vec::new();
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let default = if job.sources.allow_fetch {
            Strategy::Fetch
        } else {
            Strategy::Clone
        };
        let strategy = match given("GIT_STRATEGY").as_deref() {
            None => default,
            Some("clone") => Strategy::Clone,
            Some("fetch") => Strategy::Fetch,
            Some("none") => Strategy::None,
            Some("empty") => Strategy::Empty,
            Some(other) => {
                warnings.push(format!(
                    "GIT_STRATEGY: expected either 'clone', 'fetch', 'none' or 'empty' got \
                     {other:?}, using default value 'fetch'"
                ));
                default
            }
        };
        let mut flag = |name: &str, default: bool| match given(name).as_deref() {
            None => default,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(other) => {
                warnings.push(format!(
                    "{name}: expected bool got {other:?}, using default value: {default}"
                ));
                default
            }
        };
        let checkout = flag("GIT_CHECKOUT", true) && strategy.has_sources();
        let debug_trace = flag("CI_DEBUG_TRACE", false);
        let script_sections = flag("FF_SCRIPT_SECTIONS", false);
        let submodules = given("GIT_SUBMODULE_STRATEGY");
        let unsupported = match submodules.as_deref() {
            _ if !strategy.has_sources() => None,
            None | Some("none") => given("GIT_CLONE_PATH").map(|path| {
                format!("GIT_CLONE_PATH={path:?}: this node has no build directories of jobs' own")
            }),
            Some(other) => Some(format!(
                "GIT_SUBMODULE_STRATEGY={other:?}: this node cannot fetch submodules yet; use \
                 \"none\""
            )),
        };
        Settings {
            strategy,
            checkout,
            debug_trace,
            script_sections,
            unsupported,
            warnings,
        }
    }
}

/// The directories of a job in its guest.
pub(crate) fn place(job: &CiJob, strategy: Strategy) -> Place {
    let mut path = project_path(&job.sources.repo_url)
        .unwrap_or_else(|| format!("project-{}", job.job.project_id));
    if strategy == Strategy::Empty {
        path.push_str("-empty");
    }
    let project_dir = format!("{BUILDS_DIR}/{path}");
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
    let fine = |part: &&str| *part != ".." && !part.chars().any(|c| c.is_control() || c == '%');
    (!parts.is_empty() && path.len() < 1024 && parts.iter().all(fine)).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    fn read(rows: &[(&str, &str)]) -> Settings {
        Settings::read(&job(), |name| {
            let found = rows.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// STAGE-07, STAGE-10
    #[test]
    fn the_strategy_is_what_the_job_says() {
        for (value, strategy, checkout) in [
            ("", Strategy::Fetch, true),
            ("clone", Strategy::Clone, true),
            ("fetch", Strategy::Fetch, true),
            ("none", Strategy::None, false),
            ("empty", Strategy::Empty, false),
        ] {
            let settings = read(&[("GIT_STRATEGY", value)]);
            assert_eq!(
                (settings.strategy, settings.checkout),
                (strategy, checkout),
                "{value}"
            );
            assert_eq!(settings.warnings, Vec::<String>::new());
        }
        let settings = read(&[("GIT_STRATEGY", "rsync"), ("GIT_CHECKOUT", "maybe")]);
        assert_eq!(settings.strategy, Strategy::Fetch);
        assert_eq!(
            settings.warnings,
            [
                "GIT_STRATEGY: expected either 'clone', 'fetch', 'none' or 'empty' got \"rsync\", \
                 using default value 'fetch'",
                "GIT_CHECKOUT: expected bool got \"maybe\", using default value: true"
            ]
        );
        assert!(!read(&[("GIT_CHECKOUT", "false")]).checkout);
    }

    #[test]
    fn what_this_node_cannot_do_is_said() {
        assert_eq!(
            read(&[("GIT_SUBMODULE_STRATEGY", "none")]).unsupported,
            None
        );
        assert!(
            read(&[("GIT_SUBMODULE_STRATEGY", "normal")])
                .unsupported
                .is_some()
        );
        assert!(
            read(&[("GIT_CLONE_PATH", "/builds/x")])
                .unsupported
                .is_some()
        );
        let none = [
            ("GIT_SUBMODULE_STRATEGY", "normal"),
            ("GIT_STRATEGY", "none"),
        ];
        assert_eq!(read(&none).unsupported, None);
    }

    #[test]
    fn the_project_lies_where_its_urls_path_says() {
        let mut job = job();
        for (url, path) in [
            ("https://gitlab.example.com/g/sub/p.git", "/builds/g/sub/p"),
            ("http://localhost:8080/g//p/", "/builds/g/p"),
            ("https://gitlab.example.com/../p.git", "/builds/project-3"),
            ("https://gitlab.example.com/a%2fb.git", "/builds/project-3"),
            ("not a url", "/builds/project-3"),
            ("", "/builds/project-3"),
        ] {
            job.sources.repo_url = url.to_owned();
            assert_eq!(place(&job, Strategy::Fetch).project_dir, path, "{url}");
        }
        job.sources.repo_url = "https://x/g/p.git".to_owned();
        let place = place(&job, Strategy::Empty);
        assert_eq!(place.project_dir, "/builds/g/p-empty");
        assert_eq!(place.temp_dir, "/builds/g/p-empty.tmp");
    }
}
