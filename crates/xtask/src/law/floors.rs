//! The floors of the workspace: an import only ever points to a lower floor, never along one.

use std::path::Path;

use super::Breach;
use crate::workspace::{Dependency, Metadata, Package};

/// Each crate's floor. Crates of later work stand here before they exist.
const FLOORS: [(&str, u8); 28] = [
    ("vk-step", 0),
    ("vk-hub-proto", 0),
    ("vk-guest-proto", 0),
    ("vk-hub-core", 1),
    ("vk-node-core", 1),
    ("vk-gitlab-core", 1),
    ("vk-stage-core", 1),
    ("vk-oci", 1),
    ("vk-trace", 1),
    ("vk-erofs", 1),
    ("vk-net", 1),
    ("vk-kill", 1),
    ("vk-ci-config", 1),
    ("vk-exporter", 1),
    ("vk-vm", 2),
    ("vk-image", 2),
    ("vk-hub-client", 2),
    ("gitlab-runner-api", 2),
    ("vk-driver", 3),
    ("vk-build", 3),
    ("vk-node", 4),
    ("vk", 5),
    ("vk-gitlab", 5),
    ("vk-hub", 5),
    ("vk-lab", 5),
    ("vk-sim", 6),
    ("vk-tests", 6),
    ("xtask", 6),
];

/// Crates that may import these of ours only.
const ONLY: [(&str, &[&str]); 2] = [("vk-agent", &["vk-guest-proto"]), ("xtask", &[])];

/// Crates that any crate's tests may import, and nothing else of any: they lie on no floor.
const TESTS_ONLY: [&str; 1] = ["vk-fuzz"];

/// What a crate must not know though it lies lower, and why.
const NEVER: [(&str, &[&str], &str); 7] = [
    (
        "vk-lab",
        &[
            "gitlab-runner-api",
            "vk-hub-client",
            "vk-hub-core",
            "vk-node-core",
            "vk-gitlab-core",
        ],
        "else stand-in and client share every misreading",
    ),
    (
        "vk-node",
        &["gitlab-runner-api", "vk-vm"],
        "the node knows neither GitLab's API nor QEMU",
    ),
    (
        "vk-driver",
        &["vk-hub-client"],
        "the driver does not know the hub's session",
    ),
    (
        "vk-hub",
        &["gitlab-runner-api", "vk-vm", "vk-driver"],
        "the hub never calls GitLab",
    ),
    (
        "vk-hub-client",
        &[
            "vk-hub-core",
            "vk-node-core",
            "vk-gitlab-core",
            "vk-stage-core",
        ],
        "the way to the hub knows no core",
    ),
    (
        "vk-tests",
        &[
            "vk",
            "vk-hub",
            "vk-gitlab",
            "vk-lab",
            "vk-node",
            "vk-driver",
            "vk-vm",
        ],
        "these tests run the built programs and know the insides of none",
    ),
    (
        "vk-sim",
        &[
            "vk-oci",
            "vk-vm",
            "vk-image",
            "vk-hub-client",
            "gitlab-runner-api",
            "vk-driver",
        ],
        "the simulator drives cores, not edges",
    ),
];

/// Checks every import among our crates, of every kind.
pub(crate) fn check(metadata: &Metadata) -> Vec<Breach> {
    metadata
        .members()
        .into_iter()
        .flat_map(check_crate)
        .collect()
}

fn floor(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, floor)| *floor)
}

fn check_crate(package: &Package) -> Vec<Breach> {
    let manifest = Path::new("crates").join(&package.name).join("Cargo.toml");
    let only = ONLY
        .iter()
        .find(|(name, _)| *name == package.name)
        .map(|(_, only)| *only);
    if TESTS_ONLY.contains(&package.name.as_str()) {
        return check_imports(package, &manifest, Some(&[]));
    }
    if floor(&package.name).is_none() && only.is_none() {
        let what = "this crate has no floor: give it one in ARCHITECTURE.md and in xtask";
        return vec![Breach::in_file(&manifest, what)];
    }
    check_imports(package, &manifest, only)
}

fn check_imports(package: &Package, manifest: &Path, only: Option<&[&str]>) -> Vec<Breach> {
    let ours = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.path.is_some());
    let for_tests = |dependency: &&Dependency| {
        dependency.kind.as_deref() == Some("dev") && TESTS_ONLY.contains(&dependency.name.as_str())
    };
    ours.filter(|dependency| !for_tests(dependency))
        .filter_map(|dependency| import(&package.name, &dependency.name, only))
        .map(|what| Breach::in_file(manifest, what))
        .collect()
}

/// What is wrong with one import, if anything.
fn import(from: &str, to: &str, only: Option<&[&str]>) -> Option<String> {
    if let Some(only) = only {
        return (!only.contains(&to)).then(|| format!("{from} may import {only:?}, not {to}"));
    }
    let never = NEVER
        .iter()
        .find(|(name, never, _)| *name == from && never.contains(&to));
    if let Some((_, _, why)) = never {
        return Some(format!("{from} must not know {to}: {why}"));
    }
    match (floor(from), floor(to)) {
        (Some(own), Some(other)) if other < own => None,
        (Some(own), Some(other)) => Some(format!(
            "{from} (floor {own}) imports {to} (floor {other}): imports point to a lower floor"
        )),
        _ => Some(format!("{from} imports {to}, which has no floor")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_point_down() {
        assert_eq!(import("vk-node", "vk-driver", None), None);
        assert!(import("vk-driver", "vk-node", None).is_some());
        assert!(
            import("vk-hub-core", "vk-trace", None)
                .unwrap()
                .contains("floor 1")
        );
        assert!(
            import("vk-hub", "vk-secret", None)
                .unwrap()
                .contains("no floor")
        );
    }

    #[test]
    fn some_lower_crates_are_not_to_be_known() {
        assert!(
            import("vk-lab", "gitlab-runner-api", None)
                .unwrap()
                .contains("misreading")
        );
        assert_eq!(import("vk-lab", "vk-hub-proto", None), None);
    }

    #[test]
    fn the_agent_knows_its_frames_only() {
        let only = Some(&["vk-guest-proto"][..]);
        assert_eq!(import("vk-agent", "vk-guest-proto", only), None);
        assert!(import("vk-agent", "vk-step", only).is_some());
    }

    #[test]
    fn the_answer_of_cargo_is_read() {
        let text = r#"{"packages": [
            {"id": "a", "name": "vk-step", "manifest_path": "/x/crates/vk-step/Cargo.toml",
             "dependencies": [{"name": "vk-hub", "path": "/x/crates/vk-hub", "kind": "dev"},
                              {"name": "serde", "kind": null}]},
            {"id": "b", "name": "vk-new", "manifest_path": "/x/crates/vk-new/Cargo.toml"},
            {"id": "c", "name": "serde", "manifest_path": "/y/serde/Cargo.toml"}],
            "workspace_members": ["a", "b"], "target_directory": "/x/target"}"#;
        let breaches = check(&Metadata::parse(text).unwrap());
        let said: Vec<_> = breaches.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("vk-new") && said[0].contains("no floor"));
        assert!(said[1].contains("vk-step (floor 0) imports vk-hub (floor 5)"));
    }

    #[test]
    fn what_is_for_tests_is_imported_by_tests_alone() {
        let text = r#"{"packages": [
            {"id": "a", "name": "vk-agent", "manifest_path": "/x/crates/vk-agent/Cargo.toml",
             "dependencies": [{"name": "vk-fuzz", "path": "/x/crates/vk-fuzz", "kind": "dev"}]},
            {"id": "b", "name": "vk-step", "manifest_path": "/x/crates/vk-step/Cargo.toml",
             "dependencies": [{"name": "vk-fuzz", "path": "/x/crates/vk-fuzz", "kind": null}]},
            {"id": "c", "name": "vk-fuzz", "manifest_path": "/x/crates/vk-fuzz/Cargo.toml",
             "dependencies": [{"name": "vk-step", "path": "/x/crates/vk-step", "kind": null}]}],
            "workspace_members": ["a", "b", "c"], "target_directory": "/x/target"}"#;
        let breaches = check(&Metadata::parse(text).unwrap());
        let said: Vec<_> = breaches.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        // By the crates' names.
        assert!(said[0].contains("vk-fuzz may import"), "{said:?}");
        assert!(said[1].contains("vk-step imports vk-fuzz"), "{said:?}");
    }
}
