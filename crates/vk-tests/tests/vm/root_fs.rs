//! The tar of a root file system, read as the tree it must become.

use std::io::Read;

use crate::entry::{Entry, Kind};

/// Its entries.
pub(crate) fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(tar);
    let mut entries = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = plain(&entry.path_bytes());
        let link = entry.link_name_bytes().map(|of| of.into_owned());
        let kind = match entry.header().as_old().linkflag[0] {
            b'0' | 0 => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                Kind::File(content)
            }
            b'1' => Kind::HardLink(plain(&link.unwrap())),
            b'2' => Kind::Symlink(link.unwrap()),
            b'3' => Kind::Char(
                number(entry.header().device_major()),
                number(entry.header().device_minor()),
            ),
            b'4' => Kind::Block(
                number(entry.header().device_major()),
                number(entry.header().device_minor()),
            ),
            b'5' => Kind::Dir,
            b'6' => Kind::Fifo,
            other => panic!("an entry of type {other}"),
        };
        let mut read = Entry::new(path, kind).mode(entry.header().mode().unwrap() & 0o7777);
        let id = |id: std::io::Result<u64>| u32::try_from(id.unwrap()).unwrap();
        read = read.owner(id(entry.header().uid()), id(entry.header().gid()));
        let secs = i64::try_from(entry.header().mtime().unwrap()).unwrap();
        read = read.mtime(secs, 0);
        if let Some(records) = entry.pax_extensions().unwrap() {
            for record in records {
                let record = record.unwrap();
                let key = record.key().unwrap();
                if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                    read = read.xattr(name, record.value_bytes());
                } else if key == "mtime" {
                    let (secs, nanos) = time(record.value().unwrap());
                    read = read.mtime(secs, nanos);
                }
            }
        }
        entries.push(read);
    }
    entries
}

fn number(of: std::io::Result<Option<u32>>) -> u32 {
    of.unwrap().unwrap()
}

/// Without `./` before it and `/` behind it.
fn plain(path: &[u8]) -> Vec<u8> {
    let path = path
        .strip_prefix(b".")
        .filter(|rest| rest.first() == Some(&b'/'))
        .unwrap_or(path);
    let parts: Vec<&[u8]> = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(&b'/')
}

/// A time since 1970 with up to nine digits of a fraction.
fn time(text: &str) -> (i64, u32) {
    let (secs, fraction) = text.split_once('.').unwrap_or((text, "0"));
    assert!(!secs.starts_with('-'), "before 1970: {text}");
    (
        secs.parse().unwrap(),
        format!("{fraction:0<9}").parse().unwrap(),
    )
}
