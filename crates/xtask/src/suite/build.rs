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

/// The profile of fuzzers in a long run: optimised, with the checks of a debug build.
const LONG_PROFILE: [&str; 2] = ["--profile", "long"];

/// What fuzzers take their number of inputs from: a crate that depends on it has some.
const FUZZ: &str = "vk-fuzz";

/// The crates with fuzzers; of those named alone, where any is.
pub(super) fn fuzzed<'a>(metadata: &'a Metadata, only: &[String]) -> Vec<&'a Package> {
    let wanted = |package: &&Package| only.is_empty() || only.contains(&package.name);
    let has_some = |package: &&Package| package.dependencies.iter().any(|one| one.name == FUZZ);
    let members = metadata.members().into_iter();
    members.filter(wanted).filter(has_some).collect()
}

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

    /// Builds every test program of the workspace, those of some crates by the profile of long runs.
    pub(super) fn tests(&self, long: &[&Package]) -> Result<Vec<Built>> {
        let mut built = test_programs(&output_of(&mut self.usual_tests(long))?);
        if !long.is_empty() {
            let messages = output_of(&mut self.long_tests(long))?;
            built.extend(test_programs(&messages));
        }
        Ok(built)
    }

    /// All tests but those of some crates.
    fn usual_tests(&self, but: &[&Package]) -> Command {
        let mut cargo = self.building_tests(self.profile());
        cargo.arg("--workspace");
        let is_left_out = |name: &str| but.iter().any(|package| package.name == name);
        for package in self.metadata.members() {
            if is_left_out(&package.name) {
                cargo.args(["--exclude", &package.name]);
            } else {
                test_features(package)
                    .iter()
                    .for_each(|f| _ = cargo.args(["--features", f]));
            }
        }
        cargo
    }

    /// The tests of these crates, optimised.
    fn long_tests(&self, of: &[&Package]) -> Command {
        let mut cargo = self.building_tests(&LONG_PROFILE);
        for package in of {
            cargo.args(["--package", &package.name]);
            test_features(package)
                .iter()
                .for_each(|f| _ = cargo.args(["--features", f]));
        }
        cargo
    }

    fn building_tests(&self, profile: &[&str]) -> Command {
        let mut cargo = workspace::cargo(self.root);
        cargo.args(["test", "--no-run", "--message-format"]);
        cargo.arg("json-render-diagnostics").args(profile);
        cargo
    }

    fn profile(&self) -> &'static [&'static str] {
        if self.release { &["--release"] } else { &[] }
    }
}

/// What cargo says of the tests that it builds.
fn output_of(cargo: &mut Command) -> Result<String> {
    cargo
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .stdin(Stdio::null());
    let output = cargo.output().context("starting cargo test --no-run")?;
    if !output.status.success() {
        bail!("building the tests failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

    fn members() -> Metadata {
        let package = |name: &str, uses: &str, features: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","manifest_path":"/p/{name}/Cargo.toml",
                "dependencies":[{{"name":"{uses}","path":null,"kind":"dev"}}],
                "features":{{{features}}}}}"#
            )
        };
        let packages = [
            package("plain", "tar", r#""kill-points":[]"#),
            package("read", "vk-fuzz", ""),
            package("write", "vk-fuzz", r#""kill-points":[],"other":[]"#),
        ];
        let text = format!(
            r#"{{"packages":[{}],"workspace_members":["plain","read","write"],
            "target_directory":"/t"}}"#,
            packages.join(",")
        );
        Metadata::parse(&text).unwrap()
    }

    #[test]
    fn a_long_run_has_the_crates_with_fuzzers_built_apart_and_an_ordinary_one_has_not() {
        let metadata = members();
        let builder = Builder {
            root: Path::new("/"),
            metadata: &metadata,
            release: false,
        };
        let line = |cargo: Command| {
            let words = cargo.get_args().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        };
        let building = "test --no-run --message-format json-render-diagnostics";
        assert_eq!(
            line(builder.usual_tests(&[])),
            format!(
                "{building} --workspace --features plain/kill-points --features write/kill-points"
            )
        );
        let long = fuzzed(&metadata, &[]);
        assert_eq!(
            line(builder.usual_tests(&long)),
            format!(
                "{building} --workspace --features plain/kill-points --exclude read --exclude write"
            )
        );
        assert_eq!(
            line(builder.long_tests(&long)),
            format!(
                "{building} --profile long --package read --package write --features \
                 write/kill-points"
            )
        );
        let named = fuzzed(&metadata, &["plain".to_owned(), "read".to_owned()]);
        let names: Vec<_> = named.iter().map(|package| &package.name).collect();
        assert_eq!(names, ["read"]);
    }
}
