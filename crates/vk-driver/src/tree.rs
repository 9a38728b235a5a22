//! A directory of the host as a disk image for the guest: all of it, or what differs from an earlier
//! one.

mod difference;
mod list;

use std::fs::{self, File, Metadata};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vk_erofs::{Builder, Options, Timestamp};

pub(crate) use difference::write_difference;
use list::{Entry, Kind, Writer};

/// Why a tree could not be made an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// A file of it, or the image's, failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is more, or other, than an image holds.
    #[error("cannot make a disk of the job's sources: {0}")]
    Image(#[from] vk_erofs::Error),
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::File { what, path, source }
}

/// Writes the image of `tree` into `image`, whose size stays as it is, and where `list` is named, what
/// is in it, for [`write_difference`]. Everything belongs to root and may be changed by all, as
/// gitlab-runner's containers leave it (their umask is 0).
pub(crate) fn write_image(tree: &Path, image: &Path, list: Option<&Path>) -> Result<(), TreeError> {
    let mut writer = match list {
        Some(path) => Some((path, Writer::new(path).map_err(file("make", path))?)),
        None => None,
    };
    let mut builder = Builder::new(empty(image)?, Options::default());
    walk(tree, &mut |entry, meta| {
        if let Some((path, list)) = writer.as_mut()
            && !entry.path.is_empty()
        {
            list.add(&entry, meta).map_err(file("write", path))?;
        }
        put(&mut builder, tree, &entry, meta)
    })?;
    builder.finish()?;
    match writer {
        Some((path, list)) => list.finish().map_err(file("write", path)),
        None => Ok(()),
    }
}

/// Opens an image's file to be written anew: what an earlier attempt wrote must read as zeros.
fn empty(image: &Path) -> Result<File, TreeError> {
    let output = File::options().write(true).read(true).open(image);
    let output = output.map_err(file("open", image))?;
    let size = output.metadata().map_err(file("look at", image))?.len();
    output
        .set_len(0)
        .and_then(|()| output.set_len(size))
        .map_err(file("empty", image))?;
    Ok(output)
}

/// Goes through a tree, its root first, each directory's entries by name. What is no file, directory
/// or link is left out.
fn walk(
    tree: &Path,
    to: &mut impl FnMut(Entry, &Metadata) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    step(tree, b"", to)
}

fn step(
    path: &Path,
    name: &[u8],
    to: &mut impl FnMut(Entry, &Metadata) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    let meta = fs::symlink_metadata(path).map_err(file("look at", path))?;
    let Some(kind) = Kind::of(&meta) else {
        return Ok(());
    };
    to(Entry::new(name.to_vec(), kind, &meta), &meta)?;
    if kind != Kind::Dir {
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(file("read", path))? {
        entries.push(entry.map_err(file("read", path))?.file_name());
    }
    entries.sort();
    for entry in entries {
        let inner = match name {
            [] => entry.as_bytes().to_vec(),
            name => [name, b"/", entry.as_bytes()].concat(),
        };
        step(&path.join(&entry), &inner, to)?;
    }
    Ok(())
}

/// Adds one file of a tree to an image.
fn put(
    builder: &mut Builder<File>,
    tree: &Path,
    entry: &Entry,
    meta: &Metadata,
) -> Result<(), TreeError> {
    let name = match entry.path.as_slice() {
        [] => b"/",
        name => name,
    };
    let path = || tree.join(std::ffi::OsStr::from_bytes(&entry.path));
    let given = metadata(meta);
    match entry.kind {
        Kind::Dir => builder.dir(name, given)?,
        Kind::Symlink => {
            let path = path();
            let target = fs::read_link(&path).map_err(file("read", &path))?;
            builder.symlink(name, given, target.as_os_str().as_bytes())?;
        }
        Kind::File => {
            let path = path();
            let content = File::open(&path).map_err(file("open", &path))?;
            builder.file(name, given, meta.len(), BufReader::new(content))?;
        }
    }
    Ok(())
}

/// Root's, with the owner's rights given to all.
fn metadata(of: &Metadata) -> vk_erofs::Metadata {
    let owner = u16::try_from((of.mode() >> 6) & 7).unwrap_or(7);
    vk_erofs::Metadata {
        mode: owner << 6 | owner << 3 | owner,
        mtime: Timestamp {
            secs: of.mtime(),
            nanos: u32::try_from(of.mtime_nsec()).unwrap_or_default(),
        },
        ..vk_erofs::Metadata::default()
    }
}
