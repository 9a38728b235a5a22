//! Artifact types, each with the one format that GitLab takes for it (section 2.9), and what is
//! kept of an upload.

use std::path::PathBuf;

/// Types that come gzipped.
const GZIP: [&str; 11] = [
    "junit",
    "metrics",
    "metrics_referee",
    "network_referee",
    "dotenv",
    "cobertura",
    "jacoco",
    "cyclonedx",
    "annotations",
    "repository_xray",
    "cluster_applications",
];

/// Types that come as they are.
const RAW: [&str; 18] = [
    "sast",
    "secret_detection",
    "dependency_scanning",
    "container_scanning",
    "cluster_image_scanning",
    "dast",
    "license_scanning",
    "accessibility",
    "codequality",
    "performance",
    "browser_performance",
    "load_performance",
    "terraform",
    "requirements",
    "requirements_v2",
    "coverage_fuzzing",
    "api_fuzzing",
    "sarif",
];

/// The one format of an artifact type, or nothing where GitLab knows no such type.
pub fn format_of(kind: &str) -> Option<&'static str> {
    match kind {
        "archive" | "lsif" | "scip" => Some("zip"),
        kind if GZIP.contains(&kind) => Some("gzip"),
        kind if RAW.contains(&kind) => Some("raw"),
        _ => None,
    }
}

/// The file name that GitLab shows for a report of this type.
pub fn report_name(kind: &str) -> String {
    match kind {
        "junit" => "junit.xml".into(),
        "dotenv" => ".env".into(),
        "cobertura" => "cobertura-coverage.xml".into(),
        "codequality" => "gl-code-quality-report.json".into(),
        other => format!("gl-{}-report.json", other.replace('_', "-")),
    }
}

/// An uploaded file.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Its type (`archive`, `junit`, …).
    pub kind: String,
    /// Its name as uploaded.
    pub filename: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// What became of an upload whose bytes have all come.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is kept.
    New,
    /// The same bytes were kept before.
    Same,
    /// Other bytes of this type were kept before.
    Different,
}

/// Whether `upload` may be kept beside `known`.
pub fn judge(known: &[Artifact], upload: &Artifact) -> Stored {
    match known.iter().find(|artifact| artifact.kind == upload.kind) {
        None => Stored::New,
        Some(old) if old.sha256 == upload.sha256 => Stored::Same,
        Some(_) => Stored::Different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_format() {
        let rows = [
            ("archive", Some("zip")),
            ("lsif", Some("zip")),
            ("junit", Some("gzip")),
            ("dotenv", Some("gzip")),
            ("sast", Some("raw")),
            ("sarif", Some("raw")),
            ("trace", None),
            ("nope", None),
        ];
        for (kind, format) in rows {
            assert_eq!(format_of(kind), format, "{kind}");
        }
    }
}
