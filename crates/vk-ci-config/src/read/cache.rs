//! `cache`.

use super::value::{boolean, given, known, list, text, texts, wrong};
use crate::faults::Faults;
use crate::pipeline::{ArtifactsWhen, Cache};
use crate::yaml::{Map, Node, Value};

const KEYS: [&str; 7] = [
    "key",
    "paths",
    "untracked",
    "unprotect",
    "policy",
    "when",
    "fallback_keys",
];
/// As GitLab limits them.
const MAX_CACHES: usize = 4;
const MAX_FALLBACKS: usize = 5;
const POLICIES: [&str; 3] = ["pull-push", "pull", "push"];
/// The key of a cache that names none.
const DEFAULT_KEY: &str = "default";

/// Reads one cache, or a list of them.
pub(super) fn caches(node: &Node, faults: &mut Faults) -> Vec<Cache> {
    match &node.value {
        // How a job gets rid of one that it extends.
        Value::Map(map) if map.len() == 0 => Vec::new(),
        Value::Map(map) => vec![cache(map, faults)],
        Value::List(items) if items.len() > MAX_CACHES => {
            let what = format!("`cache` has more than {MAX_CACHES} entries");
            faults.add(node.at, what, "put some of them together");
            Vec::new()
        }
        Value::List(items) => {
            let mut caches = Vec::new();
            for item in items {
                match &item.value {
                    Value::Map(map) => caches.push(cache(map, faults)),
                    _ => wrong(item, "cache", "mappings", faults),
                }
            }
            caches
        }
        _ => {
            wrong(node, "cache", "a mapping or a list of mappings", faults);
            Vec::new()
        }
    }
}

fn cache(map: &Map, faults: &mut Faults) -> Cache {
    known(map, "cache:", &KEYS, &[], faults);
    let mut cache = Cache {
        key: DEFAULT_KEY.to_owned(),
        policy: "pull-push".to_owned(),
        ..Cache::default()
    };
    if let Some(key) = given(map, "key").and_then(|node| key(node, faults)) {
        cache.key = key;
    }
    if let Some(node) = given(map, "paths") {
        cache.paths = texts(node, "cache:paths", faults);
    }
    let flag = |name: &str, faults: &mut Faults| {
        let node = given(map, name);
        node.and_then(|node| boolean(node, &format!("cache:{name}"), faults))
            .unwrap_or_default()
    };
    cache.untracked = flag("untracked", faults);
    cache.unprotect = flag("unprotect", faults);
    if let Some(policy) = given(map, "policy").and_then(|node| policy(node, faults)) {
        cache.policy = policy;
    }
    if let Some(when) = given(map, "when").and_then(|node| when(node, faults)) {
        cache.when = when;
    }
    if let Some(node) = given(map, "fallback_keys") {
        cache.fallback_keys = fallback_keys(node, faults);
    }
    cache
}

/// A text. A key of files is made of their last commits, which are not known here.
fn key(node: &Node, faults: &mut Faults) -> Option<String> {
    if let Value::Map(_) = node.value {
        let what = "`cache:key` of `files` is not supported here";
        faults.add(
            node.at,
            what,
            "write a text, such as `deps-$CI_COMMIT_REF_SLUG`",
        );
        return None;
    }
    text(node, "cache:key", faults)
}

/// A word, or a variable that holds one when the job runs.
fn policy(node: &Node, faults: &mut Faults) -> Option<String> {
    let policy = text(node, "cache:policy", faults)?;
    if POLICIES.contains(&policy.as_str()) || policy.starts_with('$') {
        return Some(policy);
    }
    let what = "`cache:policy` takes pull-push, pull, push or a variable";
    faults.add(node.at, what, "give one of them");
    None
}

fn when(node: &Node, faults: &mut Faults) -> Option<ArtifactsWhen> {
    let when = ArtifactsWhen::named(&text(node, "cache:when", faults)?);
    if when.is_none() {
        let what = "`cache:when` takes on_success, on_failure or always";
        faults.add(node.at, what, "give one of them");
    }
    when
}

fn fallback_keys(node: &Node, faults: &mut Faults) -> Vec<String> {
    let keyword = "cache:fallback_keys";
    let count = list(node, keyword, "texts", faults).map_or(0, <[Node]>::len);
    if count > MAX_FALLBACKS {
        let what = format!("`{keyword}` has more than {MAX_FALLBACKS} entries");
        faults.add(node.at, what, "give fewer");
        return Vec::new();
    }
    texts(node, keyword, faults)
}
