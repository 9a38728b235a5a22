//! `vk`, run: images imported, one job run in a VM, its artifacts taken.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Jobs' own numbers.
const JOB: u64 = 7;

/// The folder of built programs and fixtures, or `None`, said aloud, where it is not set.
pub(crate) fn test_root(test: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("{test}: needs the built programs: VK_TEST_ROOT is not set");
    }
    root
}

/// Whether the tests are asked for more.
pub(crate) fn is_long() -> bool {
    std::env::var_os("VK_LONG").is_some()
}

/// A host that runs jobs: the built programs and a state directory of its own.
pub(crate) struct Host {
    root: PathBuf,
    directory: tempfile::TempDir,
}

/// A job that ended.
pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) boot: String,
    artifacts: PathBuf,
}

impl Host {
    pub(crate) fn new(root: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { root, directory }
    }

    /// A place for the test's own files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn vk(&self, arguments: &[&str]) -> Output {
        let ran = Command::new(self.root.join("bin/vk"))
            .args(arguments)
            .arg("--state-dir")
            .arg(self.path("state"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        println!("vk {}: {}\n{said}", arguments.join(" "), ran.status);
        ran
    }

    /// Imports an image; the bytes of its disk.
    pub(crate) fn import(&self, from: &Path, name: &str) -> u64 {
        let ran = self.vk(&["image", "import", from.to_str().unwrap(), name]);
        assert!(ran.status.success());
        let ran = self.vk(&["image", "list", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let images = listed.as_array().unwrap();
        let mine = |image: &&serde_json::Value| image["names"].to_string().contains(name);
        let image = images
            .iter()
            .find(mine)
            .unwrap_or_else(|| panic!("{listed}"));
        let disk = fs::metadata(image["disk"].as_str().unwrap()).unwrap().len();
        assert_eq!(image["record"]["bytes"].as_u64(), Some(disk));
        disk
    }

    /// Runs a job of one command in an image, whose artifact is the file `artifact`.
    pub(crate) fn run(&self, image: &str, command: &str, artifact: &str) -> Ran {
        let spec = spec(image, command, artifact).to_string();
        let (ran, output) = self.attempt(&spec, &["--accelerator", "tcg", "--memory", "512"]);
        assert!(ran.status.success(), "{output}");
        let boot = output.lines().find(|line| line.contains("Booted a VM"));
        let boot = boot
            .unwrap_or_else(|| panic!("no boot in: {output}"))
            .to_owned();
        let artifacts = self.path("kept").join(JOB.to_string());
        Ran {
            output,
            boot,
            artifacts,
        }
    }

    /// Runs what may be a job's spec; how `vk` ended, and the job's output if it got so far.
    pub(crate) fn attempt(&self, spec: &str, more: &[&str]) -> (Output, String) {
        fs::write(self.path("spec.json"), spec).unwrap();
        let (spec, out, kept) = (self.path("spec.json"), self.path("out"), self.path("kept"));
        let bundle = self.root.join("guest");
        let mut arguments = [&["job", "run"], more].concat();
        for (option, path) in [
            ("--bundle", &bundle),
            ("--out", &out),
            ("--local-artifacts", &kept),
        ] {
            arguments.extend([option, path.to_str().unwrap()]);
        }
        arguments.push(spec.to_str().unwrap());
        let ran = self.vk(&arguments);
        let output = fs::read_to_string(out.join("output")).unwrap_or_default();
        (ran, output)
    }
}

/// A job of one command.
pub(crate) fn spec(image: &str, command: &str, artifact: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "gitlab_ci",
        "server_url": "http://127.0.0.1:9",
        "job": {
            "id": JOB, "name": "inodes", "stage": "test", "pipeline_id": 1, "project_id": 3,
            "project_name": "p", "project_path": "g/p", "namespace_id": 1,
            "root_namespace_id": 1, "user_id": 1, "runner_id": 0,
        },
        "token": "glcbt-64_a-token-of-no-use",
        "timeout_secs": 1800,
        "sources": {
            "repo_url": "http://127.0.0.1:9/g/p.git", "object_format": "sha1", "ref": "main",
            "ref_type": "branch", "sha": "0".repeat(40), "before_sha": "", "depth": 20,
            "allow_fetch": true,
        },
        "image": { "name": image },
        "variables": [{
            "key": "GIT_STRATEGY", "value": "none",
            "public": true, "file": false, "masked": false, "raw": false,
        }],
        "steps": [{
            "name": "script", "script": [command], "timeout_secs": 0,
            "when": "on_success", "allow_failure": false,
        }],
        "artifacts": [{
            "name": "taken", "untracked": false, "paths": [artifact], "exclude": [],
            "when": "always", "artifact_type": "archive", "format": "zip", "expire_in": "",
        }],
        "trace": { "sections": true, "limit_bytes": 0 },
    })
}

impl Ran {
    /// A file of the artifact's archive.
    pub(crate) fn file(&self, name: &str) -> Vec<u8> {
        let path = self.artifacts.join("taken.zip");
        let file = File::open(&path)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", path.display(), self.output));
        let mut archive = zip::ZipArchive::new(file).unwrap();
        let mut bytes = Vec::new();
        archive
            .by_name(name)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }
}
