//! Objects as git keeps them, of whatever content.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::repository::Entry;

/// The loose objects of a repository.
pub(super) struct Store {
    objects: PathBuf,
}

impl Store {
    pub(super) fn new(objects: PathBuf) -> Store {
        Store { objects }
    }

    /// Keeps an object; its name.
    pub(super) fn put(&self, kind: &str, content: &[u8]) -> String {
        let whole = [format!("{kind} {}\0", content.len()).as_bytes(), content].concat();
        let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &whole);
        let name: String = sum
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let path = self.path(&name);
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = ZlibEncoder::new(fs::File::create(path).unwrap(), Compression::fast());
            file.write_all(&whole).unwrap();
            file.finish().unwrap();
        }
        name
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.objects.join(&name[..2]).join(&name[2..])
    }

    /// Keeps a tree and all below it.
    pub(super) fn tree(&self, entries: &[Entry]) -> String {
        let mut lines: Vec<(Vec<u8>, Vec<u8>)> = entries.iter().map(|one| self.line(one)).collect();
        lines.sort();
        let content: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line).collect();
        self.put("tree", &content)
    }

    /// What a tree says of an entry, and what it is sorted by.
    pub(super) fn line(&self, entry: &Entry) -> (Vec<u8>, Vec<u8>) {
        let (mode, name, object) = match entry {
            Entry::File {
                name,
                content,
                runs,
            } => {
                let mode = if *runs { "100755" } else { "100644" };
                (mode, name, self.put("blob", content))
            }
            Entry::Link { name, target } => ("120000", name, self.put("blob", target)),
            Entry::Directory { name, entries } => ("40000", name, self.tree(entries)),
            Entry::Raw { mode, name, object } => (*mode, name, object.clone()),
        };
        let mut key = name.clone();
        if mode == "40000" {
            key.push(b'/');
        }
        let sha = (0..20).map(|nth| u8::from_str_radix(&object[2 * nth..2 * nth + 2], 16).unwrap());
        let line = [mode.as_bytes(), b" ", name, b"\0"].concat();
        (key, line.into_iter().chain(sha).collect())
    }

    pub(super) fn commit(&self, entries: &[Entry]) -> String {
        self.commit_of(&self.tree(entries))
    }

    pub(super) fn commit_of(&self, tree: &str) -> String {
        let who = "A <a@example.com> 1700000000 +0000";
        let text = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nm\n");
        self.put("commit", text.as_bytes())
    }
}
