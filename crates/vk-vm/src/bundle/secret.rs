use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use vk_guest_proto::Secret;

use super::cpio::CpioWriter;
use super::{Bundle, BundleError, layout};

/// Writes one VM's initramfs to the new file `path`, for its owner's eyes only: the bundle's, and
/// behind it an archive with the VM's secret.
///
/// # Errors
/// [`BundleError::Read`] and [`BundleError::Write`].
///
/// It may be removed once the guest has said hello: a VMM reads it once, at its start.
pub(crate) fn write_initrd(
    bundle: &Bundle,
    secret: &Secret,
    path: &Path,
) -> Result<(), BundleError> {
    let from = bundle.initramfs();
    let base = File::open(&from).map_err(|e| BundleError::Read(from, e))?;
    write(base, secret, path).map_err(|e| BundleError::Write(path.to_owned(), e))
}

fn write(mut base: File, secret: &Secret, path: &Path) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    io::copy(&mut base, &mut out)?;
    let mut cpio = CpioWriter::new(BufWriter::new(out));
    cpio.file(layout::SECRET, 0o400, secret.expose())?;
    cpio.finish()?.flush()
}
