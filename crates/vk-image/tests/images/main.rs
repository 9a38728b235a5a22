//! The store, imports and pulls, by files and registries as they are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod importing;
mod keeping;
mod make;
mod programs;
mod pulling;
mod room;

use std::fs;
use std::path::{Path, PathBuf};

use vk_image::{Lease, Platform, Store};

/// A store in a directory that goes with the test.
struct Bench {
    dir: tempfile::TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// An image of one file with this content.
    fn image(&self, name: &str, content: &str) -> Lease {
        let tar = make::tar(&[("file", content)]);
        self.store
            .import_stream(&tar[..], name, &Platform::default())
            .unwrap()
    }

    fn names(&self) -> Vec<String> {
        let listed = self.store.list().unwrap();
        listed
            .iter()
            .flat_map(|image| image.names.iter().map(|name| name.familiar()))
            .collect()
    }

    /// Files of the store besides its locks, names and images.
    fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for part in ["build", "downloads"] {
            let dir = self.path("store").join(part);
            found.extend(
                fs::read_dir(dir)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        found
    }
}

/// Whether an image holds these bytes: contents stand in it as they are.
fn holds(disk: &Path, bytes: &[u8]) -> bool {
    let image = fs::read(disk).unwrap();
    image.windows(bytes.len()).any(|window| window == bytes)
}
