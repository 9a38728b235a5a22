//! What cargo builds for a staged run, and where it put it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{self, Metadata, Package};

/// The target of the guest's init: the same C library, linked statically.
const AGENT_TARGET: &str = "x86_64-unknown-linux-gnu";

/// The profile of the guest's init, which is loaded with every guest.
const AGENT_PROFILE: &str = "agent";

/// Features that only tests and benches build with: jobs without a virtual machine, and kill points.
const TEST_FEATURES: [&str; 2] = ["process-vmm", "kill-points"];

/// The test features that a crate declares, as cargo is asked for them.
pub(super) fn test_features(package: &Package) -> Vec<String> {
    let declared = TEST_FEATURES
        .iter()
        .filter(|name| package.features.contains_key(**name));
    declared
        .map(|name| format!("{}/{name}", package.name))
        .collect()
}

/// Builds with one profile.
pub(super) struct Builder<'a> {
    pub(super) root: &'a Path,
    pub(super) metadata: &'a Metadata,
    pub(super) release: bool,
}

/// A built test program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Built {
    pub(super) package_id: String,
    pub(super) kind: String,
    pub(super) target: String,
    pub(super) executable: PathBuf,
}

impl Builder<'_> {
    /// Builds the guest's init; `None` where the crate does not exist.
    pub(super) fn agent(&self) -> Result<Option<PathBuf>> {
        if self.metadata.member("vk-agent").is_none() {
            return Ok(None);
        }
        let mut cargo = workspace::cargo(self.root);
        cargo.args(["build", "--package", "vk-agent"]);
        cargo.args(["--profile", AGENT_PROFILE, "--target", AGENT_TARGET]);
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
        run(&mut cargo, "building the guest's init")?;
        let folder = self
            .metadata
            .target_directory
            .join(AGENT_TARGET)
            .join(AGENT_PROFILE);
        Ok(Some(folder.join("vk-agent")))
    }

    /// The crates that build programs to stage.
    pub(super) fn program_crates(&self) -> Vec<&Package> {
        let staged = |package: &&Package| {
            package.programs().next().is_some()
                && package.name != "xtask"
                && package.name != "vk-agent"
        };
        self.metadata.members().into_iter().filter(staged).collect()
    }

    /// Builds the programs of some crates, with their test features where that is asked. They are
    /// built apart from the tests: in one build, a feature that a test asks for would reach the
    /// programs too.
    pub(super) fn programs(&self, crates: &[&Package], for_tests: bool) -> Result<Vec<PathBuf>> {
        let mut cargo = workspace::cargo(self.root);
        cargo.args(["build", "--bins"]).args(self.profile());
        for package in crates {
            cargo.args(["--package", &package.name]);
            if for_tests {
                test_features(package)
                    .iter()
                    .for_each(|f| _ = cargo.args(["--features", f]));
            }
        }
        run(&mut cargo, "building the programs")?;
        let profile = if self.release { "release" } else { "debug" };
        let folder = self.metadata.target_directory.join(profile);
        Ok(crates
            .iter()
            .flat_map(|p| p.programs())
            .map(|name| folder.join(name))
            .collect())
    }

    /// Builds every test program of the workspace.
    pub(super) fn tests(&self) -> Result<Vec<Built>> {
        let mut cargo = workspace::cargo(self.root);
        cargo.args([
            "test",
            "--workspace",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ]);
        cargo.args(self.profile());
        for package in self.metadata.members() {
            test_features(package)
                .iter()
                .for_each(|f| _ = cargo.args(["--features", f]));
        }
        cargo
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .stdin(Stdio::null());
        let output = cargo.output().context("starting cargo test --no-run")?;
        if !output.status.success() {
            bail!("building the tests failed ({})", output.status);
        }
        Ok(test_programs(&String::from_utf8_lossy(&output.stdout)))
    }

    fn profile(&self) -> &'static [&'static str] {
        if self.release { &["--release"] } else { &[] }
    }
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("{what}: cargo"))?;
    if !status.success() {
        bail!("{what} failed ({status})");
    }
    Ok(())
}

/// One message of cargo, as far as it is asked here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    target: Option<workspace::Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test programs among cargo's messages.
fn test_programs(messages: &str) -> Vec<Built> {
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok());
    parsed.filter_map(test_program).collect()
}

fn test_program(message: Message) -> Option<Built> {
    let target = message.target?;
    let is_test = message.reason == "compiler-artifact" && message.profile?.test;
    is_test.then_some(Built {
        package_id: message.package_id?,
        kind: target.kind.into_iter().next()?,
        target: target.name,
        executable: message.executable?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_told_from_other_artifacts() {
        let messages = r#"
{"reason":"compiler-artifact","package_id":"p1","target":{"kind":["lib"],"name":"vk_step","src_path":"/s"},"profile":{"test":true},"executable":"/t/deps/vk_step-1"}
{"reason":"compiler-artifact","package_id":"p1","target":{"kind":["lib"],"name":"vk_step","src_path":"/s"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"p2","target":{"kind":["bin"],"name":"vk","src_path":"/s"},"profile":{"test":false},"executable":"/t/vk"}
{"reason":"compiler-message","package_id":"p1"}
{"reason":"build-finished","success":true}
"#;
        let built = test_programs(messages);
        assert_eq!(built.len(), 1);
        assert_eq!(
            (built[0].kind.as_str(), built[0].target.as_str()),
            ("lib", "vk_step")
        );
        assert_eq!(built[0].executable, Path::new("/t/deps/vk_step-1"));
    }
}
