//! Files that are there whole or not at all, also after a power cut.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::Error;

/// Replaces a file's content.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(dir)
        .map_err(Error::file("making a file in", dir))?;
    file.write_all(bytes)
        .map_err(Error::file("writing", path))?;
    file.as_file()
        .sync_all()
        .map_err(Error::file("syncing", path))?;
    file.persist(path)
        .map_err(|error| Error::file("replacing", path)(error.error))?;
    sync_dir(dir)
}

/// Makes the names in a directory last.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    let sync = || File::open(dir)?.sync_all();
    sync().map_err(Error::file("syncing", dir))
}

/// Makes a directory and those above it, for their owner alone.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(Error::file("making", dir))
}
