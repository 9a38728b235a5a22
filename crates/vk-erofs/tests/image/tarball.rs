//! Tar streams made byte by byte, honest or not.

use tar::Header;

/// A tar stream being made.
#[derive(Default)]
pub(crate) struct Tarball {
    bytes: Vec<u8>,
}

/// What an entry's header says.
#[derive(Clone)]
pub(crate) struct Said {
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: u64,
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Said {
    pub(crate) fn mode(mode: u32) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            mtime: 0,
            records: Vec::new(),
        }
    }

    pub(crate) fn owner(mut self, uid: u64, gid: u64) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    pub(crate) fn record(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.records.push((key.into(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn xattr(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.record(&format!("SCHILY.xattr.{name}"), value)
    }
}

impl Tarball {
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 1024]);
        self.bytes
    }

    /// Without the two blocks at the end.
    pub(crate) fn cut(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(
            b'0',
            path.as_bytes(),
            &Said::mode(0o644),
            b"",
            content.as_ref(),
        )
    }

    pub(crate) fn dir(self, path: &str) -> Self {
        self.entry(b'5', path.as_bytes(), &Said::mode(0o755), b"", b"")
    }

    pub(crate) fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(
            b'2',
            path.as_bytes(),
            &Said::mode(0o777),
            target.as_bytes(),
            b"",
        )
    }

    pub(crate) fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(
            b'1',
            path.as_bytes(),
            &Said::mode(0o644),
            target.as_bytes(),
            b"",
        )
    }

    pub(crate) fn node(mut self, kind: u8, path: &str, mode: u32, major: u32, minor: u32) -> Self {
        let mut header = header(kind, path.as_bytes(), &Said::mode(mode), b"", 0);
        header.set_device_major(major).unwrap();
        header.set_device_minor(minor).unwrap();
        self.push(header, b"");
        self
    }

    /// An entry; paths and links that do not fit their fields go to PAX records.
    pub(crate) fn entry(
        mut self,
        kind: u8,
        path: &[u8],
        said: &Said,
        link: &[u8],
        content: &[u8],
    ) -> Self {
        let mut records = said.records.clone();
        if path.len() > 100 {
            records.push((b"path".to_vec(), path.to_vec()));
        }
        if link.len() > 100 {
            records.push((b"linkpath".to_vec(), link.to_vec()));
        }
        if !records.is_empty() {
            let body = pax(&records);
            self.push(
                header(b'x', b"pax", &Said::mode(0o644), b"", body.len() as u64),
                &body,
            );
        }
        let short = &path[..path.len().min(100)];
        let short_link = &link[..link.len().min(100)];
        self.push(
            header(kind, short, said, short_link, content.len() as u64),
            content,
        );
        self
    }

    /// A header as given, checksum made right, and content filled up to a block.
    pub(crate) fn raw(mut self, header: Header, content: &[u8]) -> Self {
        self.push(header, content);
        self
    }

    fn push(&mut self, mut header: Header, content: &[u8]) {
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }
}

/// A GNU header; large owners get its binary form.
pub(crate) fn header(kind: u8, path: &[u8], said: &Said, link: &[u8], size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().linkflag = [kind];
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_mode(said.mode);
    header.set_uid(said.uid);
    header.set_gid(said.gid);
    header.set_mtime(said.mtime);
    header.set_size(size);
    header
}

/// PAX records.
pub(crate) fn pax(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while rest + length.to_string().len() != length {
            length += 1;
        }
        out.extend_from_slice(format!("{length} ").as_bytes());
        out.extend_from_slice(key);
        out.push(b'=');
        out.extend_from_slice(value);
        out.push(b'\n');
    }
    out
}
