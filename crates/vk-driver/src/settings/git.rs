//! What a job's variables say to git: flags, submodules, LFS.

use vk_hub_proto::job::CiJob;

/// Most submodules that are fetched at once, whatever a job asks for.
const JOBS_MAX: usize = 16;

/// What a fetch brings besides the refspecs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tags {
    /// Those that point into what is fetched.
    #[default]
    Followed,
    /// All.
    All,
    /// None.
    None,
}

/// `GIT_FETCH_EXTRA_FLAGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchFlags {
    /// `--tags`, `--no-tags`.
    pub(crate) tags: Tags,
    /// `--depth`, `--unshallow`: instead of the job's depth.
    pub(crate) depth: Option<u32>,
    /// `--shallow-since=…`, `--shallow-exclude=…`, as they are.
    pub(crate) shallow: Vec<String>,
}

/// Submodules, where the job wants them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Submodules {
    /// Those of submodules, too.
    pub(crate) recursive: bool,
    /// History to fetch; 0 is all of it.
    pub(crate) depth: u32,
    /// `GIT_SUBMODULE_PATHS`: pathspecs; all where there is none.
    pub(crate) paths: Vec<String>,
    /// `GIT_SUBMODULE_FORCE_HTTPS`.
    pub(crate) force_https: bool,
    /// `--jobs`: fetched at once.
    pub(crate) jobs: usize,
    /// `--remote`: the branch's tip instead of the commit.
    pub(crate) remote: bool,
    /// Whether `shallow = true` of `.gitmodules` counts.
    pub(crate) recommended: bool,
}

/// Everything of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitSettings {
    /// `GIT_CLEAN_FLAGS`; empty where nothing is cleaned.
    pub(crate) clean: Vec<String>,
    /// `GIT_FETCH_EXTRA_FLAGS`.
    pub(crate) fetch: FetchFlags,
    /// `GIT_SUBMODULE_STRATEGY` and what goes with it.
    pub(crate) submodules: Option<Submodules>,
    /// Not `GIT_LFS_SKIP_SMUDGE`.
    pub(crate) lfs: bool,
}

/// What reading a job's variables gathers.
pub(super) struct Reader<'a> {
    pub(super) given: &'a dyn Fn(&str) -> Option<String>,
    pub(super) warnings: Vec<String>,
    pub(super) flag_faults: Vec<String>,
}

/// As Go reads a bool.
fn bool_of(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl Reader<'_> {
    /// A variable's content, unless it is empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.given)(name).filter(|value| !value.is_empty())
    }

    /// A bool, or its default, with a warning where it is neither.
    pub(super) fn flag(&mut self, name: &str, default: bool) -> bool {
        let Some(text) = self.text(name) else {
            return default;
        };
        bool_of(&text).unwrap_or_else(|| {
            self.warnings.push(format!(
                "{name}: expected bool got {text:?}, using default value: {default}"
            ));
            default
        })
    }

    /// A flag of gitlab-runner's (`FF_…`): an empty value is none of a bool's, either.
    pub(super) fn feature(&mut self, name: &str, default: bool) -> bool {
        let Some(text) = (self.given)(name) else {
            return default;
        };
        bool_of(&text).unwrap_or_else(|| {
            self.flag_faults.push(super::flag_fault(name, &text));
            default
        })
    }

    fn number(&mut self, name: &str, default: u32) -> u32 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match text.parse::<i64>() {
            Ok(number) => u32::try_from(number.max(0)).unwrap_or(u32::MAX),
            Err(_) => {
                self.warnings.push(format!(
                    "{name}: expected int got {text:?}, using default value: {default}"
                ));
                default
            }
        }
    }

    /// Words, or those of `default`; `none` is none at all.
    fn words(&self, name: &str, default: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_else(|| default.to_owned());
        match text.trim() {
            "none" => Vec::new(),
            text => text.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// What `GIT_CLEAN_FLAGS` is where a job says nothing.
pub(crate) const CLEAN_FLAGS: &str = "-ffdx";

impl GitSettings {
    /// Reads them.
    ///
    /// # Errors
    /// What a job asks for and cannot have, in words for its owner.
    pub(super) fn read(job: &CiJob, reader: &mut Reader<'_>) -> Result<GitSettings, String> {
        Ok(GitSettings {
            clean: reader.words("GIT_CLEAN_FLAGS", CLEAN_FLAGS),
            fetch: fetch_flags(&reader.words("GIT_FETCH_EXTRA_FLAGS", ""))?,
            submodules: submodules(job, reader)?,
            lfs: !reader.flag("GIT_LFS_SKIP_SMUDGE", false),
        })
    }

    /// None of git's doing.
    pub(super) fn none() -> GitSettings {
        GitSettings {
            clean: Vec::new(),
            fetch: FetchFlags::default(),
            submodules: None,
            lfs: false,
        }
    }
}

/// Flags of `git fetch` that change nothing where a mirror is between the server and a new tree.
const IDLE_FETCH: [&str; 27] = [
    "--prune",
    "-p",
    "--no-prune",
    "--prune-tags",
    "-P",
    "--quiet",
    "-q",
    "--verbose",
    "-v",
    "--progress",
    "--no-progress",
    "--force",
    "-f",
    "--keep",
    "-k",
    "--update-head-ok",
    "-u",
    "--auto-gc",
    "--no-auto-gc",
    "--auto-maintenance",
    "--no-auto-maintenance",
    "--atomic",
    "--append",
    "--ipv4",
    "-4",
    "--ipv6",
    "-6",
];

/// A flag's value, which stands behind `=` or is the next word.
fn value<'a>(
    word: &'a str,
    names: &[&str],
    rest: &mut impl Iterator<Item = &'a String>,
) -> Option<&'a str> {
    if names.contains(&word) {
        return Some(rest.next().map_or("", String::as_str));
    }
    let (name, value) = word.split_once('=')?;
    names.contains(&name).then_some(value)
}

fn fetch_flags(words: &[String]) -> Result<FetchFlags, String> {
    let mut flags = FetchFlags::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let bad = |why: &str| format!("GIT_FETCH_EXTRA_FLAGS: {word:?} {why}");
        match word.as_str() {
            "--tags" | "-t" => flags.tags = Tags::All,
            "--no-tags" | "-n" => flags.tags = Tags::None,
            "--unshallow" => flags.depth = Some(0),
            idle if IDLE_FETCH.contains(&idle) => {}
            since if since.starts_with("--shallow-since=") => flags.shallow.push(since.to_owned()),
            without if without.starts_with("--shallow-exclude=") => {
                flags.shallow.push(without.to_owned());
            }
            other => {
                if let Some(depth) = value(other, &["--depth"], &mut rest) {
                    let depth = depth.parse().ok().filter(|depth| *depth > 0);
                    flags.depth = Some(depth.ok_or_else(|| bad("is no depth"))?);
                } else if value(other, &["--jobs", "-j"], &mut rest).is_none() {
                    return Err(bad("is not a flag that a job may give to this node's git"));
                }
            }
        }
    }
    Ok(flags)
}

fn submodules(job: &CiJob, reader: &mut Reader<'_>) -> Result<Option<Submodules>, String> {
    // What is wrong with it is said where there are no submodules, too.
    let depth = reader.number("GIT_SUBMODULE_DEPTH", job.sources.depth);
    let recursive = match reader.text("GIT_SUBMODULE_STRATEGY").as_deref() {
        None | Some("none") => return Ok(None),
        Some("normal") => false,
        Some("recursive") => true,
        Some(other) => {
            return Err(format!(
                "GIT_SUBMODULE_STRATEGY: expected either 'normal', 'recursive' or 'none' got \
                 {other:?}"
            ));
        }
    };
    let paths = reader.words("GIT_SUBMODULE_PATHS", "");
    if let Some(bare) = paths.iter().find(|word| word.as_str() == ":(exclude)") {
        return Err(format!(
            "GIT_SUBMODULE_PATHS: invalid submodule pathspec {bare:?}"
        ));
    }
    let mut submodules = Submodules {
        recursive,
        depth,
        paths,
        force_https: reader.flag("GIT_SUBMODULE_FORCE_HTTPS", false),
        jobs: 1,
        remote: false,
        recommended: true,
    };
    let words = reader.words("GIT_SUBMODULE_UPDATE_FLAGS", "");
    update_flags(&words, &mut submodules)?;
    Ok(Some(submodules))
}

fn update_flags(words: &[String], submodules: &mut Submodules) -> Result<(), String> {
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let bad = |why: &str| format!("GIT_SUBMODULE_UPDATE_FLAGS: {word:?} {why}");
        match word.as_str() {
            "--remote" => submodules.remote = true,
            "--recursive" => submodules.recursive = true,
            "--recommend-shallow" => submodules.recommended = true,
            "--no-recommend-shallow" => submodules.recommended = false,
            "--init" | "--checkout" | "--force" | "-f" | "--quiet" | "-q" | "--progress"
            | "--single-branch" | "--no-single-branch" => {}
            other => {
                let attached = other.strip_prefix("-j").filter(|jobs| !jobs.is_empty());
                let jobs = attached.or_else(|| value(other, &["--jobs", "-j"], &mut rest));
                if let Some(jobs) = jobs {
                    let jobs = jobs.parse().ok().filter(|jobs: &usize| *jobs > 0);
                    submodules.jobs = jobs.ok_or_else(|| bad("is no number"))?.min(JOBS_MAX);
                } else if let Some(depth) = value(other, &["--depth"], &mut rest) {
                    let depth = depth.parse().ok().filter(|depth: &u32| *depth > 0);
                    submodules.depth = depth.ok_or_else(|| bad("is no depth"))?;
                } else {
                    return Err(bad("is not a flag that a job may give to this node's git"));
                }
            }
        }
    }
    Ok(())
}
