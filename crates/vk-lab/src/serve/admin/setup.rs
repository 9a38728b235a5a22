//! Commands that put something around the server: listeners, runners, settings, a restart.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Answer, missing};
use crate::admin::{AdminError, Listen, RunnerEdit, SettingsEdit};
use crate::serve::http::{self, Door};
use crate::serve::lab::Lab;

/// Most runners that one command adds.
const MAX_ADDED: u32 = 1_000;

fn failed(error: impl std::fmt::Display) -> AdminError {
    AdminError::new("failed", error.to_string())
}

/// Listens on one more address.
pub(super) async fn listen(lab: &Arc<Lab>, listen: Listen) -> Answer {
    match listen {
        Listen::Elsewhere { addr, url } => {
            let bound = TcpListener::bind(addr).await;
            let listener = bound.map_err(|error| {
                failed(format!(
                    "cannot listen on {addr}: {error}; choose another address"
                ))
            })?;
            let addr = listener.local_addr().map_err(failed)?;
            let url = url.unwrap_or_else(|| format!("http://{addr}"));
            lab.faults.elsewhere.listens(url.trim_end_matches('/'));
            tokio::spawn(http::serve_at(Arc::clone(lab), listener, Door::Elsewhere));
            Ok(json!({"addr": addr.to_string(), "url": url}))
        }
        Listen::Https { addr, cert, key } => {
            let opened = lab.faults.secure.open(addr, &cert, &key).await;
            let Some(opened) = opened.map_err(failed)? else {
                return Ok(json!({"addr": addr.to_string(), "changed": true}));
            };
            let addr = opened.addr.to_string();
            tokio::spawn(http::serve_secure(Arc::clone(lab), opened));
            Ok(json!({"addr": addr, "url": format!("https://{addr}")}))
        }
    }
}

/// Adds runners; each one's token is written to `runner-<id>.token` in a directory.
pub(super) fn add_runners(lab: &Lab, count: u32, tags: &[String], token_dir: &Path) -> Answer {
    if count == 0 || count > MAX_ADDED {
        let text = format!("{count} runners cannot be added; 1 to {MAX_ADDED} can at once");
        return Err(AdminError::new("invalid", text));
    }
    let mut added = Vec::new();
    for _ in 0..count {
        let made = lab.with(|gitlab, _| {
            let runner = gitlab.add_runner(tags.to_vec())?;
            Some((runner.id, runner.token.clone()))
        });
        let text = "there are too many runners; start a new stand-in";
        let (id, token) = made.ok_or_else(|| AdminError::new("conflict", text))?;
        let path = token_dir.join(format!("runner-{id}.token"));
        write_private(&path, token.expose())
            .map_err(|error| failed(format!("cannot create {}: {error}", path.display())))?;
        added.push(json!({"id": id, "token_file": path}));
    }
    Ok(json!({ "runners": added }))
}

/// A new file that only its owner can read.
fn write_private(path: &Path, secret: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path)?;
    std::io::Write::write_all(&mut file, format!("{secret}\n").as_bytes())
}

/// Serves an image.
pub(super) fn image(lab: &Lab, name: &str, layout: &Path) -> Answer {
    let found = layout.canonicalize().map_err(|error| {
        failed(format!(
            "cannot find the OCI layout {}: {error}",
            layout.display()
        ))
    })?;
    if !found.join("index.json").is_file() {
        let text = format!("{} has no index.json; give an OCI layout", found.display());
        return Err(AdminError::new("invalid", text));
    }
    let text = "there are too many images; start a new stand-in";
    lab.with(|gitlab, _| gitlab.add_image(name, found))
        .then(|| json!({ "image": name }))
        .ok_or_else(|| AdminError::new("conflict", text))
}

/// Breaks all connections and takes none for a while.
pub(super) fn restart(lab: &Lab, down_ms: u64) -> Answer {
    lab.faults.tear.all(Duration::from_millis(down_ms));
    Ok(json!({ "down_ms": down_ms }))
}

/// Changes settings.
pub(super) fn set(lab: &Lab, SettingsEdit(edit): SettingsEdit) -> Answer {
    let invalid = |error: serde_json::Error| {
        let text = format!("{error}; `vk-lab admin --help` lists the settings");
        AdminError::new("invalid", text)
    };
    lab.with(|gitlab, _| {
        let mut all = serde_json::to_value(&gitlab.settings).map_err(invalid)?;
        if let Some(fields) = all.as_object_mut() {
            for (name, value) in edit {
                match (fields.get_mut(&name), value) {
                    // The limits of a group are set one by one.
                    (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
                    (_, value) => drop(fields.insert(name, value)),
                }
            }
        }
        gitlab.settings = serde_json::from_value(all).map_err(invalid)?;
        Ok(json!({ "settings": gitlab.settings }))
    })
}

fn put<T: Copy>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Edits a runner.
pub(super) fn edit_runner(lab: &Lab, edit: RunnerEdit) -> Answer {
    lab.with(|gitlab, now| {
        let first = gitlab.runner().map(|runner| runner.id);
        let id = edit.id.or(first).unwrap_or_default();
        gitlab.edit_runner_of(id, |runner| {
            put(&mut runner.paused, edit.paused);
            put(&mut runner.run_untagged, edit.run_untagged);
            put(&mut runner.ref_protected, edit.ref_protected);
            if let Some(secs) = edit.maximum_timeout_secs {
                runner.maximum_timeout_secs = Some(secs).filter(|secs| *secs > 0);
            }
            if let Some(tags) = edit.tags {
                runner.tags = tags;
            }
            if let Some(secs) = edit.token_expires_in_secs {
                runner.token_expires_ms = Some(now.saturating_add(secs.saturating_mul(1_000)));
            }
        })
    })
    .map_err(missing)?;
    Ok(json!({}))
}
