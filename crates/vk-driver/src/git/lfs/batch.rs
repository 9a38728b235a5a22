//! The batch call: what a server says of objects that are asked for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pointer::Pointer;

/// Most objects of one call.
pub(super) const OBJECTS_MAX: usize = 100;

/// Where an object is, and what its request has in its head.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Action {
    pub(super) href: String,
    #[serde(default)]
    pub(super) header: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    objects: Vec<Object>,
}

#[derive(Debug, Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: BTreeMap<String, Action>,
    error: Option<Trouble>,
}

#[derive(Debug, Deserialize)]
struct Trouble {
    code: i64,
    #[serde(default)]
    message: String,
}

pub(super) fn request(objects: &[&Pointer]) -> Value {
    let object = |of: &&Pointer| json!({"oid": of.oid, "size": of.size});
    let objects: Vec<_> = objects.iter().map(object).collect();
    json!({"operation": "download", "transfers": ["basic"], "objects": objects})
}

/// One action for each that was asked for, in their order.
///
/// # Errors
/// In words: what the server says of one, or that it leaves one out.
pub(super) fn read(body: &[u8], objects: &[&Pointer]) -> Result<Vec<Action>, String> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|error| format!("the server's answer is no batch response: {error}"))?;
    let mut said: BTreeMap<String, Object> = BTreeMap::new();
    for object in answer.objects {
        said.insert(object.oid.clone(), object);
    }
    let mut actions = Vec::new();
    for Pointer { oid, .. } in objects {
        let mut object = said
            .remove(oid)
            .ok_or_else(|| format!("the server says nothing of object {oid}"))?;
        if let Some(Trouble { code, message }) = object.error {
            return Err(format!("object {oid}: {message} ({code})"));
        }
        let action = object.actions.remove("download");
        actions.push(action.ok_or_else(|| format!("object {oid} cannot be downloaded"))?);
    }
    Ok(actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_that_was_asked_for_has_an_answer() {
        let oid = "ab".repeat(32);
        let pointer = Pointer {
            oid: oid.clone(),
            size: 3,
        };
        let body = |inner: Value| json!({"objects": [inner]}).to_string().into_bytes();
        let good = body(json!({
            "oid": oid, "size": 3, "actions": {"download": {"href": "https://h/x", "header": {"A": "b"}}}
        }));
        let actions = read(&good, &[&pointer]).unwrap();
        assert_eq!(actions[0].href, "https://h/x");
        assert_eq!(actions[0].header["A"], "b");
        let missing = json!({"oid": oid, "error": {"code": 404, "message": "not there"}});
        let why = read(&body(missing), &[&pointer]).unwrap_err();
        assert!(why.contains("not there (404)"), "{why}");
        for bad in [json!({"oid": "other"}), json!({"oid": oid})] {
            assert!(read(&body(bad), &[&pointer]).is_err());
        }
        assert!(read(b"<html>", &[&pointer]).is_err());
    }
}
