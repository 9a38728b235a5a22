//! `artifacts`.

use std::collections::BTreeMap;

use super::duration::seconds;
use super::value::{boolean, given, known, map, text, text_or_texts, texts};
use crate::faults::Faults;
use crate::pipeline::{Artifacts, ArtifactsWhen};
use crate::yaml::{Entry, Map, Node};

const KEYS: [&str; 7] = [
    "name",
    "paths",
    "exclude",
    "untracked",
    "when",
    "expire_in",
    "reports",
];
const REFUSED: [&str; 3] = ["expose_as", "public", "access"];

/// Types of reports that are a path or a list of paths.
const REPORTS: [&str; 25] = [
    "accessibility",
    "annotations",
    "api_fuzzing",
    "browser_performance",
    "cluster_image_scanning",
    "codequality",
    "container_scanning",
    "coverage_fuzzing",
    "cyclonedx",
    "dast",
    "dependency_scanning",
    "dotenv",
    "junit",
    "license_scanning",
    "load_performance",
    "lsif",
    "metrics",
    "performance",
    "repository_xray",
    "requirements",
    "requirements_v2",
    "sast",
    "scip",
    "secret_detection",
    "terraform",
];
/// The one type that is a mapping.
const COVERAGE: &str = "coverage_report";

/// Reads them.
pub(super) fn artifacts(node: &Node, faults: &mut Faults) -> Option<Artifacts> {
    let map = map(node, "artifacts", faults)?;
    known(map, "artifacts:", &KEYS, &REFUSED, faults);
    let mut artifacts = Artifacts {
        name: given(map, "name").and_then(|node| text(node, "artifacts:name", faults)),
        expire_in: given(map, "expire_in").and_then(|node| expire_in(node, faults)),
        ..Artifacts::default()
    };
    if let Some(node) = given(map, "paths") {
        artifacts.paths = texts(node, "artifacts:paths", faults);
    }
    if let Some(node) = given(map, "exclude") {
        artifacts.exclude = texts(node, "artifacts:exclude", faults);
    }
    if let Some(node) = given(map, "untracked") {
        artifacts.untracked = boolean(node, "artifacts:untracked", faults).unwrap_or_default();
    }
    if let Some(node) = given(map, "when") {
        artifacts.when = when(node, faults).unwrap_or_default();
    }
    if let Some(node) = given(map, "reports") {
        artifacts.reports = reports(node, faults);
    }
    Some(artifacts)
}

fn when(node: &Node, faults: &mut Faults) -> Option<ArtifactsWhen> {
    let when = ArtifactsWhen::named(&text(node, "artifacts:when", faults)?);
    if when.is_none() {
        let what = "`artifacts:when` takes on_success, on_failure or always";
        faults.add(node.at, what, "give one of them");
    }
    when
}

fn expire_in(node: &Node, faults: &mut Faults) -> Option<String> {
    let text = text(node, "artifacts:expire_in", faults)?;
    if text != "never" && seconds(&text).is_none() {
        let what = "`artifacts:expire_in` is no duration";
        faults.add(node.at, what, "write it as `1 week`, `3 days` or `never`");
        return None;
    }
    Some(text)
}

fn reports(node: &Node, faults: &mut Faults) -> BTreeMap<String, Vec<String>> {
    let mut reports = BTreeMap::new();
    let entries = map(node, "artifacts:reports", faults);
    for entry in entries.into_iter().flat_map(Map::iter) {
        let keyword = format!("artifacts:reports:{}", entry.key);
        if entry.key == COVERAGE {
            reports.extend(coverage(&entry.value, &keyword, faults));
        } else if REPORTS.contains(&entry.key.as_str()) {
            let paths = text_or_texts(&entry.value, &keyword, faults);
            reports.insert(entry.key.clone(), paths);
        } else {
            unknown(entry, faults);
        }
    }
    reports
}

fn unknown(entry: &Entry, faults: &mut Faults) {
    let what = format!("`artifacts:reports:{}` is no type of report", entry.key);
    let hint = format!("known are {COVERAGE}, {}", REPORTS.join(", "));
    faults.add(entry.at, what, hint);
}

/// `{coverage_format: cobertura, path: …}`: the format is the type that the runner uploads.
fn coverage(node: &Node, keyword: &str, faults: &mut Faults) -> Option<(String, Vec<String>)> {
    let map = map(node, keyword, faults)?;
    let keys = ["coverage_format", "path"];
    known(map, &format!("{keyword}:"), &keys, &[], faults);
    let [format, path] = keys.map(|key| given(map, key));
    let (Some(format_node), Some(path)) = (format, path) else {
        let what = format!("`{keyword}` lacks `coverage_format` or `path`");
        faults.add(node.at, what, "give both");
        return None;
    };
    let format = text(format_node, keyword, faults)?;
    if !matches!(format.as_str(), "cobertura" | "jacoco") {
        let what = format!("`{keyword}:coverage_format` takes cobertura or jacoco");
        faults.add(format_node.at, what, "give one of them");
        return None;
    }
    Some((format, vec![text(path, keyword, faults)?]))
}
