//! The programs beside this one, and commands of theirs that end soon.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::error::{RunError, file};

/// Most bytes of what a command prints.
const MAX_OUT: u64 = 64 << 20;
/// Most bytes of what it says.
const MAX_SAID: u64 = 16 << 10;

/// Where the programs are.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) vk: PathBuf,
    pub(super) hub: PathBuf,
    pub(super) daemon: PathBuf,
}

impl Programs {
    /// Those that lie beside this program.
    pub(super) fn find() -> Result<Self, RunError> {
        let own = std::env::current_exe().map_err(RunError::System)?;
        let at = own.parent().unwrap_or(Path::new("/")).to_owned();
        let find = |name: &'static str| {
            let path = at.join(name);
            let at = at.clone();
            path.is_file()
                .then_some(path)
                .ok_or(RunError::Missing { name, at })
        };
        Ok(Self {
            vk: find("vk")?,
            hub: find("vk-hub")?,
            daemon: find("vk-gitlab")?,
        })
    }
}

/// A command that ends by itself.
#[derive(Debug)]
pub(super) struct Call {
    command: Command,
    shown: String,
}

impl Call {
    pub(super) fn new(program: &Path) -> Self {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let name = program.file_name().unwrap_or(program.as_os_str());
        let shown = name.to_string_lossy().into_owned();
        Self { command, shown }
    }

    pub(super) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        let argument = argument.as_ref();
        self.shown.push(' ');
        self.shown.push_str(&argument.to_string_lossy());
        self.command.arg(argument);
        self
    }

    pub(super) fn args<const N: usize>(self, arguments: [&str; N]) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Runs it with this on its standard input; what it printed.
    pub(super) async fn run(mut self, input: Option<&str>) -> Result<Vec<u8>, RunError> {
        if input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let program = PathBuf::from(self.command.as_std().get_program());
        let mut child = self.command.spawn().map_err(file("start", &program))?;
        let (mut out, mut said) = (Vec::new(), Vec::new());
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A program that does not read it says itself what it lacks.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let read_out = async {
            if let Some(stdout) = stdout {
                let _ = stdout.take(MAX_OUT).read_to_end(&mut out).await;
            }
        };
        let read_said = async {
            if let Some(stderr) = stderr {
                let _ = stderr.take(MAX_SAID).read_to_end(&mut said).await;
            }
        };
        let (_, _, _, status) = tokio::join!(write, read_out, read_said, child.wait());
        let status = status.map_err(file("wait for", &program))?;
        if status.success() {
            return Ok(out);
        }
        Err(RunError::Command {
            command: self.shown,
            how: status.to_string(),
            said: String::from_utf8_lossy(&said).trim().to_owned(),
        })
    }

    /// Runs it and reads what it printed as JSON.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, RunError> {
        let command = self.shown.clone();
        let out = self.run(None).await?;
        serde_json::from_slice(&out).map_err(|source| RunError::Answer { command, source })
    }
}
