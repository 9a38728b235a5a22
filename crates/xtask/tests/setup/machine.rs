//! A machine made of stand-ins: a folder of programs before the real ones, and an empty home.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A copy of the scripts, stand-ins for programs, and what they were called with.
pub(crate) struct Machine {
    dir: TempDir,
}

/// How a script ended.
pub(crate) struct Run {
    pub(crate) ok: bool,
    /// What it said to a person.
    pub(crate) said: String,
}

impl Machine {
    /// A machine with the real system's programs, no cargo, and an ordinary user.
    pub(crate) fn new() -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for folder in ["bin", "home", "project", "out", "calls"] {
            fs::create_dir(machine.path(folder)).unwrap();
        }
        copy(&scripts(), &machine.path("project/scripts"));
        fs::write(
            machine.path("project/Cargo.toml"),
            "rust-version = \"1.95\"\n",
        )
        .unwrap();
        machine.program("id", "case \"$*\" in -un) echo anna;; *) echo 1000;; esac");
        machine.program("sudo", "exit 1");
        machine.program("df", "printf 'h\\nd 1 1 99999999 1 /\\n'");
        machine
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Puts a stand-in before the program of this name. It notes its arguments, then does `body`.
    pub(crate) fn program(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path("bin").join(name);
        self.program_at(&path, body);
        path
    }

    pub(crate) fn program_at(&self, path: &Path, body: &str) {
        let name = path.file_name().unwrap().display();
        let calls = self.path("calls");
        let text = format!(
            "#!/bin/bash\nprintf '%s\\n' \"$*\" >>{}/{name}\n{body}\n",
            calls.display()
        );
        fs::write(path, text).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The argument lines a stand-in was called with.
    pub(crate) fn calls(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs a script of `scripts/setup/` to its end.
    pub(crate) fn run(&self, script: &str, arguments: &[&str]) -> Run {
        let output = self.command(script).args(arguments).output().unwrap();
        Run::of(&output)
    }

    /// The command that runs a script, for a test that adds to it.
    pub(crate) fn command(&self, script: &str) -> Command {
        let mut command = Command::new(self.path("project/scripts/setup").join(script));
        command
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.path("bin").display()),
            )
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("out"))
            .stdin(std::process::Stdio::null());
        command
    }
}

impl Run {
    pub(crate) fn of(output: &Output) -> Self {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Self {
            ok: output.status.success(),
            said,
        }
    }
}

/// The scripts as they were staged, or of the checkout in a plain run.
fn scripts() -> PathBuf {
    match env::var_os("VK_TEST_ROOT") {
        Some(root) => Path::new(&root).join("fixtures/scripts"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
