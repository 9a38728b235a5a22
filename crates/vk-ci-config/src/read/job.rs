//! A job.

use super::duration::seconds;
use super::value::{given, known, map as mapping, name, text, text_or_texts, texts, wrong};
use super::{artifacts, cache, needs, retry, rules, variables};
use crate::expression::Patterns;
use crate::faults::Faults;
use crate::limit::MAX_TIMEOUT_SECS;
use crate::model::{JobModel, Named};
use crate::pipeline::{AllowFailure, Image, When};
use crate::yaml::{Entry, Map, Node, Value};

const KEYS: [&str; 18] = [
    "stage",
    "image",
    "before_script",
    "script",
    "after_script",
    "variables",
    "artifacts",
    "cache",
    "hooks",
    "needs",
    "dependencies",
    "rules",
    "when",
    "allow_failure",
    "timeout",
    "tags",
    "retry",
    "extends",
];

/// Keywords of GitLab that are not supported.
const REFUSED: [&str; 24] = [
    "coverage",
    "dast_configuration",
    "environment",
    "except",
    "id_tokens",
    "identity",
    "inherit",
    "inputs",
    "interruptible",
    "manual_confirmation",
    "only",
    "pages",
    "parallel",
    "publish",
    "release",
    "resource_group",
    "run",
    "secrets",
    "services",
    "start_in",
    "trigger",
    "type",
    "include",
    "workflow",
];

const DEFAULT_STAGE: &str = "test";

/// Reads a job from its normalized mapping.
pub(super) fn job(
    entry: &Entry,
    map: &Map,
    patterns: &mut Patterns,
    faults: &mut Faults,
) -> JobModel {
    known(map, "", &KEYS, &REFUSED, faults);
    let when = given(map, "when").and_then(|node| when(node, faults));
    let when = when.unwrap_or_default();
    let allow_failure = given(map, "allow_failure")
        .and_then(|node| retry::allow_failure(node, faults))
        .unwrap_or(AllowFailure::All(when == When::Manual));
    let stage = given(map, "stage").and_then(|node| name(node, "stage", faults));
    JobModel {
        named: Named {
            name: entry.key.clone(),
            at: entry.at,
        },
        stage: stage.unwrap_or(Named {
            name: DEFAULT_STAGE.into(),
            at: entry.at,
        }),
        image: given(map, "image").and_then(|node| image(node, faults)),
        script: whole_script(entry, map, faults),
        after_script: lines(map, "after_script", faults),
        variables: given(map, "variables")
            .map(|node| variables::of_job(node, faults))
            .unwrap_or_default(),
        artifacts: given(map, "artifacts").and_then(|node| artifacts::artifacts(node, faults)),
        caches: given(map, "cache")
            .map(|node| cache::caches(node, faults))
            .unwrap_or_default(),
        pre_get_sources: given(map, "hooks")
            .map(|node| hooks(node, faults))
            .unwrap_or_default(),
        needs: given(map, "needs").and_then(|node| needs::needs(node, faults)),
        dependencies: given(map, "dependencies").and_then(|node| needs::dependencies(node, faults)),
        timeout_secs: given(map, "timeout").and_then(|node| timeout(node, faults)),
        allow_failure,
        when,
        rules: given(map, "rules").and_then(|node| rules::of_job(node, patterns, faults)),
        tags: given(map, "tags")
            .map(|node| texts(node, "tags", faults))
            .unwrap_or_default(),
        retry: given(map, "retry")
            .and_then(|node| retry::retry(node, faults))
            .unwrap_or_default(),
    }
}

fn lines(map: &Map, keyword: &str, faults: &mut Faults) -> Vec<String> {
    let node = given(map, keyword);
    node.map(|node| text_or_texts(node, keyword, faults))
        .unwrap_or_default()
}

/// The one hook that GitLab has.
fn hooks(node: &Node, faults: &mut Faults) -> Vec<String> {
    let Some(map) = mapping(node, "hooks", faults) else {
        return Vec::new();
    };
    known(map, "hooks:", &["pre_get_sources_script"], &[], faults);
    lines(map, "pre_get_sources_script", faults)
}

/// `before_script` and `script`; the latter must be there.
fn whole_script(entry: &Entry, map: &Map, faults: &mut Faults) -> Vec<String> {
    let mut lines_of_all = lines(map, "before_script", faults);
    let refused = REFUSED.iter().any(|key| map.get(key).is_some());
    let empty = |node: &Node| match &node.value {
        Value::List(list) => list.is_empty(),
        Value::Text(text) => text.is_empty(),
        _ => false,
    };
    match given(map, "script") {
        Some(node) if empty(node) => {
            faults.add(node.at, "`script` is empty", "give it at least one line");
        }
        None if !refused => {
            let hint = "give it one, or begin its name with `.` to hide it";
            faults.add(entry.at, "it has no `script`", hint);
        }
        _ => lines_of_all.extend(lines(map, "script", faults)),
    }
    lines_of_all
}

fn image(node: &Node, faults: &mut Faults) -> Option<Image> {
    let image = match &node.value {
        Value::Text(name) => Image {
            name: name.clone(),
            entrypoint: None,
        },
        Value::Map(map) => {
            let refused = ["docker", "kubernetes", "pull_policy", "ports"];
            known(map, "image:", &["name", "entrypoint"], &refused, faults);
            let name = given(map, "name").map(|node| text(node, "image:name", faults));
            let entrypoint = given(map, "entrypoint");
            Image {
                name: name.unwrap_or(Some(String::new()))?,
                entrypoint: entrypoint.map(|node| texts(node, "image:entrypoint", faults)),
            }
        }
        _ => {
            wrong(node, "image", "a name, or a mapping with `name`", faults);
            return None;
        }
    };
    if image.name.is_empty() {
        faults.add(node.at, "`image` has no name", "name one, or remove it");
        return None;
    }
    Some(image)
}

fn when(node: &Node, faults: &mut Faults) -> Option<When> {
    let word = text(node, "when", faults)?;
    let when = rules::named(&word);
    if when.is_none() {
        let what = match word.as_str() {
            "delayed" => "`when: delayed` is not supported here".to_owned(),
            "never" => "`when: never` stands in a job; it belongs into `rules`".to_owned(),
            word => format!("`when` knows no `{word}`"),
        };
        faults.add(
            node.at,
            what,
            "it takes on_success, on_failure, always or manual",
        );
    }
    when
}

fn timeout(node: &Node, faults: &mut Faults) -> Option<u64> {
    let text = text(node, "timeout", faults)?;
    let secs = seconds(&text).filter(|secs| *secs <= MAX_TIMEOUT_SECS);
    if secs.is_none() {
        let what = "`timeout` is no duration, or is 0 or longer than a month";
        faults.add(
            node.at,
            what,
            "write it as `1h 30m`, `90 minutes` or `3 hours`",
        );
    }
    secs
}
