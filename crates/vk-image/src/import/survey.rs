//! What kind of archive a file is, told by the names in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use vk_erofs::Limits;
use vk_erofs::tar::{Archive, Entry, Kind as EntryKind};

use crate::compression::{Compression, decompress};
use crate::error::Error;

/// Files of an archive of images; one has two or three a layer.
const FILES_MAX: usize = 10_000;

/// A kind of archive.
pub(super) enum Kind {
    RootFileSystem,
    DockerArchive(Index),
    Layout(Index),
}

/// Where the files of an archive are.
pub(super) type Index = BTreeMap<String, Place>;

/// Where one file is.
pub(super) enum Place {
    /// In the archive: offset and bytes.
    At(u64, u64),
    /// Under another name.
    Link(String),
}

/// Looks through an archive. The first name that no archive of images has ends the look: the rest is
/// a root file system's.
pub(super) fn survey(file: &mut File, path: &Path) -> Result<(Compression, Kind), Error> {
    let failed = |source| Error::Archive {
        path: path.to_owned(),
        source,
    };
    let (compression, input) = decompress(file).map_err(Error::file("reading", path))?;
    let mut archive = Archive::new(input, &Limits::default());
    let mut index = Index::new();
    let mut entries = 0u64;
    while let Some(entry) = archive.next_entry().map_err(failed)? {
        entries += 1;
        let Some(name) = member_name(&entry.path) else {
            return Ok((compression, Kind::RootFileSystem));
        };
        if index.len() >= FILES_MAX {
            return Ok((compression, Kind::RootFileSystem));
        }
        if let Some(place) = place(&name, &entry) {
            index.insert(name, place);
        }
    }
    if entries == 0 {
        return Err(Error::import(path, "it is an archive without entries"));
    }
    let kind = if index.contains_key("oci-layout") && index.contains_key("index.json") {
        Kind::Layout(index)
    } else if index.contains_key("manifest.json") {
        Kind::DockerArchive(index)
    } else {
        Kind::RootFileSystem
    };
    Ok((compression, kind))
}

fn place(name: &str, entry: &Entry) -> Option<Place> {
    match &entry.kind {
        EntryKind::File if entry.is_whole() => Some(Place::At(entry.data_at, entry.size)),
        // Older Docker archives link a layer that two images share; the target is relative.
        EntryKind::Symlink(target) => {
            let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
            clean(&format!("{dir}/{}", std::str::from_utf8(target).ok()?)).map(Place::Link)
        }
        EntryKind::HardLink(target) => clean(std::str::from_utf8(target).ok()?).map(Place::Link),
        _ => None,
    }
}

/// An archive member's name in one spelling; `None` for names that no archive of images has.
fn member_name(path: &[u8]) -> Option<String> {
    let name = clean(std::str::from_utf8(path).ok()?)?;
    let top = name.split('/').next().unwrap_or_default();
    let stem = top
        .strip_suffix(".json")
        .or(top.strip_suffix(".tar"))
        .unwrap_or(top);
    let known = [
        "",
        "blobs",
        "oci-layout",
        "index.json",
        "manifest.json",
        "repositories",
    ];
    let is_id = stem.len() == 64 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    (known.contains(&top) || is_id).then_some(name)
}

/// Without `.`, `..` and empty parts; nothing leads above the archive.
pub(super) fn clean(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
