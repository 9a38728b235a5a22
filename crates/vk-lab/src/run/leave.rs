//! What a run leaves behind: logs, artifacts and results, in a directory that git ignores.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use super::error::{RunError, file};
use crate::gitlab::{Gitlab, Job};

/// Most files of one archive.
const MAX_FILES: usize = 200_000;
/// Most bytes of one archive's files.
const MAX_BYTES: u64 = 32 << 30;
/// Longest name of a job's directory.
const MAX_NAME: usize = 80;

/// The directory.
#[derive(Debug)]
pub(super) struct Leavings {
    dir: PathBuf,
    /// Held as long as this run writes into it.
    _lock: fs::File,
}

/// One artifact on its way out.
struct Artifact {
    kind: String,
    filename: String,
    path: PathBuf,
}

/// A job, as far as it is left behind.
pub(super) struct Left {
    pub(super) id: u64,
    folder: String,
    trace: Vec<u8>,
    artifacts: Vec<Artifact>,
}

impl Leavings {
    /// Makes the directory, or empties what an earlier run left in it.
    pub(super) fn open(dir: &Path) -> Result<Self, RunError> {
        match fs::symlink_metadata(dir) {
            Ok(meta) if !meta.is_dir() => {
                return Err(RunError::Option {
                    option: "--out",
                    why: format!(
                        "{} is no directory; remove it or name another",
                        dir.display()
                    ),
                });
            }
            Ok(_) => {}
            Err(_) => fs::create_dir_all(dir).map_err(|error| unusable(dir, &error))?,
        }
        let lock = lock(dir)?;
        let dir = dir.canonicalize().map_err(file("find", dir))?;
        let leavings = Self { dir, _lock: lock };
        // Before anything else: what comes later is never a change of somebody's repository.
        leavings.put(Path::new(".gitignore"), b"*\n")?;
        for name in ["jobs", "logs"] {
            let folder = leavings.dir.join(name);
            if fs::symlink_metadata(&folder).is_ok() {
                fs::remove_dir_all(&folder).map_err(file("empty", &folder))?;
            }
        }
        let results = leavings.dir.join("result.json");
        let _ = fs::remove_file(results);
        Ok(leavings)
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    /// Where the programs' logs go.
    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Writes a file in the place of whatever has its name.
    pub(super) fn put(&self, name: &Path, bytes: &[u8]) -> Result<(), RunError> {
        let path = self.dir.join(name);
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let _ = fs::remove_file(&beside);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        let mut out = options.open(&beside).map_err(file("create", &beside))?;
        out.write_all(bytes).map_err(file("write", &beside))?;
        fs::rename(&beside, &path).map_err(file("write", &path))
    }

    /// Leaves a job's log and artifacts; where the artifacts are.
    pub(super) fn job(&self, job: &Left) -> Result<Vec<String>, RunError> {
        let folder = Path::new("jobs").join(&job.folder);
        let at = self.dir.join(&folder);
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(&at);
        made.map_err(file("create", &at))?;
        self.put(&folder.join("trace.log"), &job.trace)?;
        let mut places = Vec::new();
        for artifact in &job.artifacts {
            places.extend(self.artifact(&folder, artifact)?);
        }
        Ok(places)
    }

    fn artifact(&self, folder: &Path, artifact: &Artifact) -> Result<Option<String>, RunError> {
        if artifact.kind == "archive" {
            let to = folder.join("artifacts");
            if unpack(&artifact.path, &self.dir.join(&to))? {
                return Ok(Some(to.display().to_string()));
            }
        }
        // What cannot be unpacked, or is no archive, is left as it was uploaded.
        let name = plain(&format!("{}-{}", artifact.kind, artifact.filename));
        let to = folder.join(name);
        let path = self.dir.join(&to);
        fs::copy(&artifact.path, &path).map_err(file("write", &path))?;
        Ok(Some(to.display().to_string()))
    }
}

fn unusable(dir: &Path, error: &std::io::Error) -> RunError {
    RunError::Option {
        option: "--out",
        why: format!(
            "cannot write in {}: {error}; name a directory that can be written",
            dir.display()
        ),
    }
}

/// Two runs that write into one directory would mix what they leave.
fn lock(dir: &Path) -> Result<fs::File, RunError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    // A link in its place would name a file of somebody's.
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    let opened = options.open(dir.join(".lock"));
    let opened = opened.map_err(|error| unusable(dir, &error))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(fs::TryLockError::WouldBlock) => Err(RunError::Option {
            option: "--out",
            why: format!(
                "another run writes into {}; wait for its end, or name another directory",
                dir.display()
            ),
        }),
        Err(fs::TryLockError::Error(error)) => Err(unusable(dir, &error)),
    }
}

/// The jobs of a pipeline; each has a directory of its own.
pub(super) fn jobs(gitlab: &Gitlab, pipeline: u64) -> Vec<Left> {
    let mut taken = BTreeSet::new();
    let jobs = gitlab.jobs().filter(|job| job.pipeline == pipeline);
    jobs.filter(|job| job.started_ms.is_some())
        .map(|job| left(job, &mut taken))
        .collect()
}

fn left(job: &Job, taken: &mut BTreeSet<String>) -> Left {
    let mut folder = plain(&job.spec.name);
    // Two names may look the same in plain, and an attempt has the name of the one before.
    if !taken.insert(folder.clone()) {
        folder = format!("{folder}-{}", job.id);
        taken.insert(folder.clone());
    }
    let artifacts = job.artifacts.iter().map(|artifact| Artifact {
        kind: artifact.kind.clone(),
        filename: artifact.filename.clone(),
        path: artifact.path.clone(),
    });
    Left {
        id: job.id,
        folder,
        trace: job.trace.clone(),
        artifacts: artifacts.collect(),
    }
}

/// A name that is one part of a path and no surprise in a shell.
fn plain(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
        _ => '-',
    };
    let text: String = name.chars().map(plain).take(MAX_NAME).collect();
    let text = text.trim_start_matches('.');
    if text.is_empty() { "job" } else { text }.to_owned()
}

/// Unpacks the files of an archive that a job made. Whether all of it could be unpacked: links and
/// names that lead elsewhere are not.
fn unpack(archive: &Path, to: &Path) -> Result<bool, RunError> {
    let opened = fs::File::open(archive).map_err(file("open", archive))?;
    let Ok(mut zip) = ZipArchive::new(opened) else {
        return Ok(false);
    };
    if zip.len() > MAX_FILES {
        return Ok(false);
    }
    fs::create_dir_all(to).map_err(file("create", to))?;
    let (mut whole, mut room) = (true, MAX_BYTES);
    for index in 0..zip.len() {
        let Ok(mut entry) = zip.by_index(index) else {
            whole = false;
            continue;
        };
        let Some(name) = entry.enclosed_name().filter(|_| !entry.is_symlink()) else {
            whole = false;
            continue;
        };
        let path = to.join(name);
        if entry.is_dir() {
            fs::create_dir_all(&path).map_err(file("create", &path))?;
            continue;
        }
        let mode = entry.unix_mode().unwrap_or(0o644) & 0o755 | 0o600;
        match write(&mut entry, &path, mode, room)? {
            Some(bytes) => room -= bytes,
            None => whole = false,
        }
    }
    Ok(whole)
}

/// Writes one file; how many bytes, or nothing where it is cut or beyond the room.
fn write(
    entry: &mut impl Read,
    path: &Path,
    mode: u32,
    room: u64,
) -> Result<Option<u64>, RunError> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(file("create", parent))?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let Ok(mut out) = options.open(path) else {
        // A second file of one name.
        return Ok(None);
    };
    let copied = std::io::copy(&mut entry.take(room.saturating_add(1)), &mut out);
    match copied {
        Ok(bytes) if bytes <= room => Ok(Some(bytes)),
        Ok(_) => Ok(None),
        // What the archive holds is broken, or the disk is full: the upload itself is kept then.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use zip::write::{SimpleFileOptions, ZipWriter};

    use super::*;

    fn archive(dir: &Path) -> ZipWriter<fs::File> {
        ZipWriter::new(fs::File::create(dir.join("a.zip")).unwrap())
    }

    #[test]
    fn files_are_unpacked_with_their_modes() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let mut zip = archive(dir.path());
        let options = SimpleFileOptions::default().unix_permissions(0o4755);
        zip.start_file("bin/run", options).unwrap();
        zip.write_all(b"x").unwrap();
        zip.finish().unwrap();
        assert!(unpack(&dir.path().join("a.zip"), &dir.path().join("out")).unwrap());
        let run = dir.path().join("out/bin/run");
        let mode = fs::metadata(&run).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }

    #[test]
    fn what_leads_elsewhere_is_not_unpacked_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut zip = archive(dir.path());
        let options = SimpleFileOptions::default();
        zip.start_file("../outside", options).unwrap();
        zip.add_symlink("link", "/etc", options).unwrap();
        zip.start_file("link/passwd", options).unwrap();
        zip.start_file("inside", options).unwrap();
        zip.finish().unwrap();
        let out = dir.path().join("out");
        assert!(!unpack(&dir.path().join("a.zip"), &out).unwrap());
        assert!(out.join("inside").exists() && !dir.path().join("outside").exists());
        assert!(!out.join("link").is_symlink());
    }

    #[test]
    fn the_directory_is_ignored_by_git_and_emptied_of_what_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        fs::create_dir_all(out.join("jobs/old")).unwrap();
        fs::write(out.join("mine"), "").unwrap();
        // What stands in the place of a file is replaced, never written through.
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), out.join(".gitignore")).unwrap();
        let leavings = Leavings::open(&out).unwrap();
        assert_eq!(fs::read_to_string(out.join(".gitignore")).unwrap(), "*\n");
        assert!(!dir.path().join("elsewhere").exists());
        assert!(!out.join("jobs").exists() && out.join("mine").exists());
        assert_eq!(leavings.path(), out.canonicalize().unwrap());
        std::os::unix::fs::symlink(&out, dir.path().join("link")).unwrap();
        assert!(Leavings::open(&dir.path().join("link")).is_err());
    }

    #[test]
    fn a_second_run_does_not_write_into_the_directory_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let first = Leavings::open(&out).unwrap();
        fs::create_dir(out.join("logs")).unwrap();
        let second = Leavings::open(&out).unwrap_err();
        assert!(second.is_of_input() && second.to_string().contains("another run"));
        assert!(out.join("logs").exists());
        drop(first);
        Leavings::open(&out).unwrap();
    }

    #[test]
    fn names_of_directories_are_plain() {
        for (name, want) in [
            ("build: [a/b]", "build---a-b-"),
            ("../x", "-x"),
            ("", "job"),
        ] {
            assert_eq!(plain(name), want);
        }
    }
}
