//! A writer of "newc" cpio archives, the form in which a kernel takes its first file system.
//!
//! Several archives may follow one another in one file: the kernel unpacks them in turn.

use std::io::{self, Write};

/// Longest name the kernel's unpacker takes, its NUL included.
const NAME_MAX: usize = 4096;

/// Writes entries to `out`; owners are root, times are zero, so equal input gives equal bytes.
pub(crate) struct CpioWriter<W> {
    out: W,
    inode: u32,
}

impl<W: Write> CpioWriter<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// A directory; its parents must have been written before.
    pub(crate) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, 0o040_755, (0, 0), &[])
    }

    /// A regular file with these permission bits.
    pub(crate) fn file(&mut self, name: &str, permissions: u32, data: &[u8]) -> io::Result<()> {
        self.entry(name, 0o100_000 | (permissions & 0o7777), (0, 0), data)
    }

    /// A character device.
    pub(crate) fn character_device(&mut self, name: &str, device: (u32, u32)) -> io::Result<()> {
        self.entry(name, 0o020_600, device, &[])
    }

    /// Ends the archive and gives the output back.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        if name.is_empty() || name.len() >= NAME_MAX || name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a name for an archive",
            ));
        }
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "larger than an archive takes")
        })?;
        let name_size = u32::try_from(name.len()).unwrap_or(0) + 1;
        self.inode += 1;
        let links = 1;
        // inode, mode, uid, gid, links, mtime, size, device of the file, device it is, name, check
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08X}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        const ZEROS: [u8; 3] = [0; 3];
        let missing = written.next_multiple_of(4) - written;
        self.out.write_all(ZEROS.get(..missing).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_the_bytes_the_format_says() {
        let mut cpio = CpioWriter::new(Vec::new());
        cpio.directory("dev").unwrap();
        cpio.character_device("dev/console", (5, 1)).unwrap();
        cpio.file("init", 0o755, b"hello").unwrap();
        let bytes = cpio.finish().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap().replace('\0', ".");
        let zero = "00000000";
        let expected = [
            format!(
                "07070100000001000041ED{zero}{zero}00000001{zero}{zero}{zero}{zero}{zero}{zero}00000004{zero}dev..."
            ),
            format!(
                "0707010000000200002180{zero}{zero}00000001{zero}{zero}{zero}{zero}00000005000000010000000C{zero}dev/console..."
            ),
            format!(
                "07070100000003000081ED{zero}{zero}00000001{zero}00000005{zero}{zero}{zero}{zero}00000005{zero}init..hello..."
            ),
        ];
        assert!(text.starts_with(&expected.concat()), "{text}");
        assert!(text.contains("TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn a_name_that_would_break_the_archive_is_refused() {
        let mut cpio = CpioWriter::new(Vec::new());
        assert!(cpio.file("a\0b", 0o644, b"").is_err());
        assert!(cpio.file("", 0o644, b"").is_err());
        assert!(cpio.file(&"x".repeat(5000), 0o644, b"").is_err());
    }
}
