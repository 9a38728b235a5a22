//! Images that are imported before a run, once for a file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{RunError, file};
use super::programs::{Call, Programs};

/// What a file was when it was imported: another file under its name is imported anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Imported {
    file: PathBuf,
    bytes: u64,
    changed_ns: i128,
    inode: u64,
}

/// What was imported under which name.
type Known = BTreeMap<String, Imported>;

/// Imports what is not there yet; the names of what was.
///
/// `state` is the node's state directory, `memory` a file that outlives the run.
pub(super) async fn import(
    programs: &Programs,
    state: &Path,
    memory: &Path,
    wanted: &[(String, PathBuf)],
) -> Result<(), RunError> {
    let mut known = recall(memory);
    for (name, path) in wanted {
        let real = path.canonicalize().map_err(file("find the image", path))?;
        let now = look(&real).map_err(file("look at", &real))?;
        if known.get(name) == Some(&now) && is_there(programs, state, name).await {
            continue;
        }
        eprintln!("vk-lab: importing {name} from {}", path.display());
        image(programs, state)
            .arg("import")
            .arg(&real)
            .arg(name)
            .run(None)
            .await?;
        known.insert(name.clone(), now);
        remember(memory, &known);
    }
    Ok(())
}

fn image(programs: &Programs, state: &Path) -> Call {
    Call::new(&programs.vk)
        .args(["image", "--state-dir"])
        .arg(state)
}

async fn is_there(programs: &Programs, state: &Path, name: &str) -> bool {
    let inspect = image(programs, state).arg("inspect").arg(name);
    inspect.run(None).await.is_ok()
}

fn look(path: &Path) -> std::io::Result<Imported> {
    let meta = fs::metadata(path)?;
    Ok(Imported {
        file: path.to_owned(),
        bytes: meta.len(),
        changed_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        inode: meta.ino(),
    })
}

/// A memory that cannot be read remembers nothing.
fn recall(memory: &Path) -> Known {
    let text = fs::read(memory).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// What cannot be remembered is imported again.
fn remember(memory: &Path, known: &Known) {
    let beside = memory.with_extension("new");
    if let Ok(text) = serde_json::to_vec_pretty(known) {
        let _ = fs::write(&beside, text).and_then(|()| fs::rename(&beside, memory));
    }
}
