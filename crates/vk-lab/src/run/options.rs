//! What a run is asked for.

use std::path::{Path, PathBuf};

use super::error::RunError;

/// Most jobs at once, whatever the host.
const MOST_AT_ONCE: usize = 4;
/// Most CPUs of a VM where nothing is said.
const MOST_CPUS: u32 = 2;

/// A pipeline to run, and what to run it with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The project's directory.
    pub dir: PathBuf,
    /// Only these jobs and what they need; all where there is none.
    pub jobs: Vec<String>,
    /// File of project variables.
    pub variables: Option<PathBuf>,
    /// Where logs and artifacts are left.
    pub out: PathBuf,
    /// What the fleet is like.
    pub fleet: FleetOptions,
    /// Colour: always, never, or on a terminal.
    pub colour: Option<bool>,
}

/// The fleet that jobs run on.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Images to import: name and file.
    pub import: Vec<(String, PathBuf)>,
    /// The image of jobs that name none.
    pub image: Option<String>,
    /// Where images are kept; `images` in `state` where not given.
    pub image_store: Option<PathBuf>,
    /// What outlives a run; the user's cache directory where not given.
    pub state: Option<PathBuf>,
    /// The boot bundle; found by the node itself where not given.
    pub bundle: Option<PathBuf>,
    /// TOML that is merged into the node's configuration.
    pub node_config: Option<PathBuf>,
    /// Jobs at once; as many as the host has CPUs, at most 4, where not given.
    pub concurrent: Option<u16>,
    /// CPUs of a VM; 2 where the host has them and nothing is given.
    pub cpus: Option<u32>,
    /// Memory of a VM, such as `1G`.
    pub memory: String,
    /// Disk of a job.
    pub disk: String,
}

impl FleetOptions {
    pub(super) fn concurrent(&self) -> usize {
        let given = self.concurrent.map(usize::from);
        given
            .unwrap_or_else(|| host_cpus().min(MOST_AT_ONCE))
            .max(1)
    }

    pub(super) fn cpus(&self) -> u32 {
        let host = u32::try_from(host_cpus()).unwrap_or(1);
        self.cpus.unwrap_or_else(|| host.clamp(1, MOST_CPUS))
    }

    /// What outlives a run.
    pub(super) fn state(&self) -> Result<PathBuf, RunError> {
        if let Some(state) = &self.state {
            return std::path::absolute(state).map_err(RunError::System);
        }
        let of = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        let cache = cache.ok_or_else(|| RunError::Option {
            option: "--state",
            why: "neither HOME nor XDG_CACHE_HOME is set; name a directory".into(),
        })?;
        Ok(cache.join("vk-lab"))
    }

    /// Where images are kept.
    pub(super) fn image_store(&self) -> Result<PathBuf, RunError> {
        match &self.image_store {
            Some(store) => std::path::absolute(store).map_err(RunError::System),
            None => Ok(self.state()?.join("images")),
        }
    }
}

fn host_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `NAME=FILE`, the name before the first `=`: a file's path may hold more of them.
pub(crate) fn import(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(file)))
        }
        _ => Err("it is NAME=FILE, such as debian:12=./debian.tar".into()),
    }
}

/// Whether the archives of images are there: told before anything is started.
pub(super) fn archives(import: &[(String, PathBuf)]) -> Result<(), RunError> {
    for (name, path) in import {
        let why = match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => match std::fs::File::open(path) {
                Ok(_) => continue,
                Err(error) => error.to_string(),
            },
            Ok(_) => "it is no file".to_owned(),
            Err(error) => error.to_string(),
        };
        let path = path.display();
        return Err(RunError::Option {
            option: "--import",
            why: format!("{path} for {name}: {why}; name the image's archive"),
        });
    }
    Ok(())
}

/// Least memory that a node gives a VM, and least disk that one has.
const LEAST: [u64; 2] = [128 << 20, 16 << 20];

/// A VM's memory.
pub(crate) fn memory(text: &str) -> Result<String, String> {
    size(text, LEAST[0])
}

/// A job's disk.
pub(crate) fn disk(text: &str) -> Result<String, String> {
    size(text, LEAST[1])
}

/// A size that node and daemon read alike: a number and K, M, G or T.
fn size(text: &str, least: u64) -> Result<String, String> {
    let wrong = || "it is a whole number with K, M, G or T, such as 2G".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if bytes < least {
        return Err(format!("it is less than {}M; ask for more", least >> 20));
    }
    Ok(text.to_owned())
}

/// Where the private directory of a run is made: `TMPDIR`, else a place that is on disk.
pub(super) fn private_parent() -> PathBuf {
    let given = std::env::var_os("TMPDIR").map(PathBuf::from);
    given
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| Path::new("/var/tmp").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_names_an_image_and_a_file() {
        let read = import("debian:12=/a=b.tar").unwrap();
        assert_eq!(read, ("debian:12".into(), "/a=b.tar".into()));
        for text in ["debian", "=x", "x="] {
            assert!(import(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_what_node_and_daemon_take() {
        for text in ["128M", "1G", "134217728", "2t"] {
            assert_eq!(memory(text).as_deref(), Ok(text));
        }
        for text in ["lots", "", "1.5G", "0", "127M", "1GiB", "99999999T", "-1G"] {
            assert!(memory(text).is_err(), "{text}");
        }
        assert!(disk("16M").is_ok() && disk("15M").is_err());
    }

    #[test]
    fn an_archive_that_is_not_there_is_the_command_lines_fault() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone.tar");
        let error = archives(&[("a".into(), gone)]).unwrap_err();
        assert!(error.is_of_input() && error.to_string().contains("gone.tar"));
        assert!(archives(&[("a".into(), dir.path().to_owned())]).is_err());
    }
}
