//! Entries of an image's layers: as tar has them, and as the inodes they must become.

use vk_tests::inode::{Inode, hex};

/// What an entry is beside its metadata.
#[derive(Clone)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Dir,
    Symlink(Vec<u8>),
    /// Another name of an entry of this or a lower layer.
    HardLink(Vec<u8>),
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
}

/// One entry of a layer.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// Seconds and nanoseconds after them.
    pub(crate) mtime: (i64, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    pub(crate) fn new(path: impl AsRef<[u8]>, kind: Kind) -> Self {
        let mode = match kind {
            Kind::Dir => 0o755,
            Kind::Symlink(_) => 0o777,
            _ => 0o644,
        };
        Self {
            path: path.as_ref().to_vec(),
            kind,
            mode,
            owner: (0, 0),
            mtime: (1_700_000_000, 0),
            xattrs: Vec::new(),
        }
    }

    pub(crate) fn file(path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        Self::new(path, Kind::File(content.as_ref().to_vec()))
    }

    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    pub(crate) fn owner(self, uid: u32, gid: u32) -> Self {
        let owner = (uid, gid);
        Self { owner, ..self }
    }

    pub(crate) fn mtime(self, secs: i64, nanos: u32) -> Self {
        let mtime = (secs, nanos);
        Self { mtime, ..self }
    }

    pub(crate) fn xattr(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.xattrs.push((name.into(), value.as_ref().to_vec()));
        self
    }

    /// The inode it must become; of how many names, the tree says.
    pub(crate) fn inode(&self) -> Inode {
        let kind = match &self.kind {
            Kind::Fifo => 0o010_000,
            Kind::Char(..) => 0o020_000,
            Kind::Dir => 0o040_000,
            Kind::Block(..) => 0o060_000,
            Kind::File(_) | Kind::HardLink(_) => 0o100_000,
            Kind::Symlink(_) => 0o120_000,
        };
        let mut inode = Inode {
            mode: kind | self.mode,
            uid: self.owner.0,
            gid: self.owner.1,
            mtime: self.mtime,
            nlink: 1,
            xattrs: self
                .xattrs
                .iter()
                .map(|(name, value)| (hex(name), hex(value)))
                .collect(),
            ..Inode::default()
        };
        match &self.kind {
            Kind::File(content) => {
                inode.size = content.len() as u64;
                inode.content = sha256(content);
            }
            Kind::Symlink(target) => {
                inode.size = target.len() as u64;
                inode.target = hex(target);
            }
            Kind::Char(major, minor) | Kind::Block(major, minor) => inode.rdev = (*major, *minor),
            Kind::Dir | Kind::HardLink(_) | Kind::Fifo => {}
        }
        inode
    }

    /// Adds it to a tar: what does not fit a header stands in PAX records before it.
    pub(crate) fn write(&self, tar: &mut Vec<u8>) {
        let mut records = vec![(b"mtime".to_vec(), decimal(self.mtime).into_bytes())];
        records.push((b"path".to_vec(), self.path.clone()));
        for (name, value) in &self.xattrs {
            records.push(([&b"SCHILY.xattr."[..], name].concat(), value.clone()));
        }
        let (flag, content): (u8, &[u8]) = match &self.kind {
            Kind::File(content) => (b'0', content),
            Kind::HardLink(_) => (b'1', b""),
            Kind::Symlink(_) => (b'2', b""),
            Kind::Char(..) => (b'3', b""),
            Kind::Block(..) => (b'4', b""),
            Kind::Dir => (b'5', b""),
            Kind::Fifo => (b'6', b""),
        };
        if let Kind::Symlink(target) | Kind::HardLink(target) = &self.kind {
            records.push((b"linkpath".to_vec(), target.clone()));
        }
        let body = pax(&records);
        push(tar, header(b'x', body.len()), &body);
        let mut header = header(flag, content.len());
        header.set_mode(self.mode);
        header.set_uid(self.owner.0.into());
        header.set_gid(self.owner.1.into());
        if let Kind::Char(major, minor) | Kind::Block(major, minor) = self.kind {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        }
        push(tar, header, content);
    }
}

/// A whole layer.
pub(crate) fn layer(entries: &[Entry]) -> Vec<u8> {
    let mut tar = Vec::new();
    for entry in entries {
        entry.write(&mut tar);
    }
    tar.extend_from_slice(&[0; 1024]);
    tar
}

/// `sha256:` and the digest.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", crate::layout::sha256_hex(bytes))
}

fn header(flag: u8, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().linkflag = [flag];
    header.as_old_mut().name[..3].copy_from_slice(b"cut");
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

fn push(tar: &mut Vec<u8>, mut header: tar::Header, content: &[u8]) {
    header.set_cksum();
    tar.extend_from_slice(header.as_bytes());
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

fn pax(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
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

/// As PAX writes times: below zero, the fraction counts away from zero.
fn decimal((secs, nanos): (i64, u32)) -> String {
    if secs < 0 && nanos > 0 {
        format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos)
    } else {
        format!("{secs}.{nanos:09}")
    }
}
