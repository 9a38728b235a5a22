//! A configuration on a desk of its own, and the program that is to read it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the good configuration's runner goes by.
pub(crate) const TOKEN: &str = "glrt-t1_abcdefghijkl";

/// The commands that read the configuration.
pub(crate) const COMMANDS: [&[&str]; 6] = [
    &["config", "check"],
    &["run"],
    &["verify"],
    &["join", "https://127.0.0.1:1", "--token", "-"],
    &["jobs"],
    &["leave"],
];

pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

/// What a program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn first_line(&self) -> &str {
        self.err.lines().next().unwrap_or_default()
    }
}

pub(crate) fn program() -> PathBuf {
    let root = std::env::var_os("VK_TEST_ROOT").map(|root| Path::new(&root).join("bin/vk-gitlab"));
    root.filter(|path| path.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_vk-gitlab").into())
}

impl Desk {
    /// A desk with a token file, and no configuration yet.
    pub(crate) fn new() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let desk = Desk { dir };
        desk.file("ci.token", TOKEN, 0o600);
        desk
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path as messages have it.
    pub(crate) fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) {
        fs::write(self.path(name), content).unwrap();
        self.mode(name, mode);
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn configure(&self, text: &str) {
        self.file("config.toml", text, 0o600);
    }

    /// A configuration that is good, with these lines at the end of its runner's table.
    pub(crate) fn configure_runner(&self, lines: &str) {
        self.configure(&format!(
            "state_dir = \"state\"\n[gitlab]\nurl = \"https://gitlab.invalid\"\n[[runners]]\n{lines}\n"
        ));
    }

    /// Runs the program with the configuration, and nothing on its standard input.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.run_with(&[], arguments)
    }

    /// The same, with this in its environment.
    pub(crate) fn run_with(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Said {
        let out = Command::new(program())
            .arg("--config")
            .arg(self.path("config.toml"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Said {
            code: out.status.code(),
            out: String::from_utf8(out.stdout).unwrap(),
            err: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// Runs the program, which is to refuse with exactly this line behind its name.
    pub(crate) fn refuses(&self, arguments: &[&str], line: &str) {
        let said = self.run(arguments);
        let told = (said.code, said.first_line());
        assert_eq!(
            told,
            (Some(1), format!("vk-gitlab: {line}").as_str()),
            "{arguments:?}: {said:?}"
        );
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
        assert_eq!(said.out, "", "{said:?}");
        let state = fs::read_dir(self.path("state"));
        let left: Vec<_> = state
            .into_iter()
            .flatten()
            .flatten()
            .map(|one| one.file_name())
            .collect();
        assert!(left.iter().all(|name| name != "hub"), "{left:?}");
    }
}
