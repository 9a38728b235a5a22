//! A directory of the host as a disk image for the guest.

use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use vk_erofs::{Builder, Metadata, Options, Timestamp};

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

/// Writes the image of `tree` into `image`, whose size stays as it is. Everything belongs to root
/// and may be changed by all, as gitlab-runner's containers leave it (their umask is 0).
pub(crate) fn write_image(tree: &Path, image: &Path) -> Result<(), TreeError> {
    let output = File::options().write(true).read(true).open(image);
    let output = output.map_err(file("open", image))?;
    // What an earlier attempt wrote must read as zeros.
    let size = output.metadata().map_err(file("look at", image))?.len();
    output
        .set_len(0)
        .and_then(|()| output.set_len(size))
        .map_err(file("empty", image))?;
    let mut builder = Builder::new(output, Options::default());
    add(&mut builder, tree, b"")?;
    builder.finish()?;
    Ok(())
}

fn add(builder: &mut Builder<File>, path: &Path, name: &[u8]) -> Result<(), TreeError> {
    let of = fs::symlink_metadata(path).map_err(file("look at", path))?;
    let meta = metadata(&of);
    if of.is_dir() {
        if !name.is_empty() {
            builder.dir(name, meta)?;
        } else {
            builder.dir(b"/", meta)?;
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(file("read", path))? {
            entries.push(entry.map_err(file("read", path))?.file_name());
        }
        entries.sort();
        for entry in entries {
            let inner = match name {
                b"" => entry.as_bytes().to_vec(),
                _ => [name, b"/", entry.as_bytes()].concat(),
            };
            add(builder, &path.join(&entry), &inner)?;
        }
    } else if of.is_symlink() {
        let target = fs::read_link(path).map_err(file("read", path))?;
        builder.symlink(name, meta, target.as_os_str().as_bytes())?;
    } else if of.is_file() {
        let content = File::open(path).map_err(file("open", path))?;
        builder.file(name, meta, of.len(), BufReader::new(content))?;
    }
    Ok(())
}

/// Root's, with the owner's rights given to all.
fn metadata(of: &fs::Metadata) -> Metadata {
    let owner = u16::try_from((of.mode() >> 6) & 7).unwrap_or(7);
    Metadata {
        mode: owner << 6 | owner << 3 | owner,
        mtime: Timestamp {
            secs: of.mtime(),
            nanos: u32::try_from(of.mtime_nsec()).unwrap_or_default(),
        },
        ..Metadata::default()
    }
}
