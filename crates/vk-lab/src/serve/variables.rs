//! The file of project variables: TOML, readable by its owner only, outside every project.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::gitlab::spec::{Variable, VariableSpec};

/// Largest file.
const MAX_BYTES: u64 = 1 << 20;
/// GitLab masks no shorter value.
const SHORTEST_MASKED: usize = 8;

/// What is wrong with a file of variables.
#[derive(Debug, thiserror::Error)]
pub enum VariablesError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others may read it.
    #[error("{} may be read by others (mode {mode:o}); chmod 600 it", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It lies in a project.
    #[error("{} lies inside the project {}; move it out", .path.display(), .project.display())]
    Inside {
        /// The file.
        path: PathBuf,
        /// The project.
        project: PathBuf,
    },
    /// It is too large.
    #[error("{} is larger than 1 MiB; is it the right file?", .0.display())]
    TooLarge(PathBuf),
    /// It is not such a file.
    #[error("{} at byte {at}: {what}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
        /// What; never the line itself, which may hold a secret.
        what: String,
    },
    /// A value cannot be masked.
    #[error("{name} in {} cannot be masked; GitLab masks 8 characters or more on one line without spaces", .path.display())]
    Unmaskable {
        /// The file.
        path: PathBuf,
        /// The variable.
        name: String,
    },
}

/// Reads a file of variables.
pub(super) fn read(
    path: &Path,
    projects: &[PathBuf],
) -> Result<BTreeMap<String, Variable>, VariablesError> {
    let failed = |source| VariablesError::Read {
        path: path.to_owned(),
        source,
    };
    let real = path.canonicalize().map_err(failed)?;
    if let Some(project) = projects.iter().find(|project| real.starts_with(project)) {
        let project = project.clone();
        return Err(VariablesError::Inside {
            path: real,
            project,
        });
    }
    let meta = std::fs::metadata(&real).map_err(failed)?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(VariablesError::Open { path: real, mode });
    }
    if meta.len() > MAX_BYTES {
        return Err(VariablesError::TooLarge(real));
    }
    let text = std::fs::read_to_string(&real).map_err(failed)?;
    parse(&real, &text)
}

fn parse(path: &Path, text: &str) -> Result<BTreeMap<String, Variable>, VariablesError> {
    let table: BTreeMap<String, VariableSpec> = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        VariablesError::Parse {
            path: path.to_owned(),
            at,
            what: error.message().to_owned(),
        }
    })?;
    let full: BTreeMap<String, Variable> = table
        .into_iter()
        .map(|(name, variable)| (name, variable.full()))
        .collect();
    let bad = full
        .iter()
        .find(|(_, variable)| variable.masked && !maskable(&variable.value));
    match bad {
        Some((name, _)) => Err(VariablesError::Unmaskable {
            path: path.to_owned(),
            name: name.clone(),
        }),
        None => Ok(full),
    }
}

fn maskable(value: &str) -> bool {
    value.chars().count() >= SHORTEST_MASKED && !value.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(dir: &Path, text: &str, mode: u32) -> PathBuf {
        let path = dir.join("variables.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn values_and_properties_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "A = 'x'\n[B]\nvalue = 'longenough'\nmasked = true\nraw = true\n";
        let read = read(&write(dir.path(), text, 0o600), &[]).unwrap();
        assert_eq!(read["A"].value, "x");
        assert!(read["B"].masked && read["B"].raw && !read["B"].file);
    }

    #[test]
    fn a_file_that_is_open_inside_or_wrong_is_refused_without_its_values() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let open = read(&write(&root, "A='x'", 0o644), &[]).unwrap_err();
        assert!(open.to_string().contains("chmod 600"), "{open}");
        let inside = read(&write(&root, "A='x'", 0o600), std::slice::from_ref(&root)).unwrap_err();
        assert!(
            inside.to_string().contains("inside the project"),
            "{inside}"
        );
        let short = "[A]\nvalue='short'\nmasked=true";
        let short = read(&write(&root, short, 0o600), &[])
            .unwrap_err()
            .to_string();
        assert!(
            short.contains("cannot be masked") && !short.contains("short"),
            "{short}"
        );
        let wrong = read(&write(&root, "A = s3cret-value", 0o600), &[])
            .unwrap_err()
            .to_string();
        assert!(!wrong.contains("s3cret"), "{wrong}");
    }
}
