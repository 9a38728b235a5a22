//! A stand-in of its own for each test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::raw::{Answer, try_call};

pub(crate) struct Lab {
    pub(crate) addr: SocketAddr,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) token: String,
    admin: PathBuf,
    child: Child,
    out: BufReader<ChildStdout>,
}

pub(crate) fn program() -> PathBuf {
    let root = std::env::var_os("VK_TEST_ROOT").map(|root| Path::new(&root).join("bin/vk-lab"));
    root.filter(|path| path.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_vk-lab").into())
}

pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// One job that only says hello.
pub(crate) fn hello() -> Value {
    json!({"jobs": [{"name": "hello", "image": "debian", "script": ["echo hello"]}]})
}

impl Lab {
    pub(crate) fn start() -> Self {
        Self::with(&[], None)
    }

    /// With more arguments and a file of variables.
    pub(crate) fn with(arguments: &[&str], variables: Option<&str>) -> Self {
        Self::spawn(Command::new(program()), arguments, variables)
    }

    /// Started where at first only so many descriptors may be open.
    pub(crate) fn narrow(descriptors: u32, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let line = format!("ulimit -Sn {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &line]).arg(program());
        Self::spawn(command, arguments, None)
    }

    fn spawn(mut command: Command, arguments: &[&str], variables: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("web");
        std::fs::create_dir(&project).unwrap();
        git(&project, &["init", "--quiet", "--initial-branch=main"]);
        std::fs::write(project.join("README"), "hello\n").unwrap();
        git(&project, &["add", "README"]);
        git(&project, &["commit", "--quiet", "-m", "first"]);
        let token_file = dir.path().join("token");
        command
            .args(["serve", "--addr", "127.0.0.1:0", "--token-file"])
            .arg(&token_file);
        command
            .arg("--project")
            .arg(format!("acme/web={}", project.display()));
        command
            .arg("--state")
            .arg(dir.path().join("state"))
            .args(arguments);
        if let Some(text) = variables {
            let path = dir.path().join("variables.toml");
            std::fs::write(&path, text).unwrap();
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            command.arg("--variables").arg(path);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(serving["event"], "serving");
        let token = std::fs::read_to_string(&token_file)
            .unwrap()
            .trim()
            .to_owned();
        Self {
            addr: serving["addr"].as_str().unwrap().parse().unwrap(),
            admin: serving["admin"].as_str().unwrap().into(),
            dir,
            token,
            child,
            out,
        }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("web")
    }

    pub(crate) fn admin_socket(&self) -> &Path {
        &self.admin
    }

    /// One command on the admin socket, and its one answer.
    pub(crate) fn try_admin(&self, command: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.admin).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn admin(&self, command: &Value) -> Value {
        let answer = self.try_admin(command);
        assert_eq!(answer["ok"], true, "{command}: {answer}");
        answer
    }

    /// Makes a pipeline; its jobs' ids.
    pub(crate) fn trigger(&self, pipeline: &Value) -> Vec<u64> {
        let answer = self.admin(&json!({"cmd": "trigger", "pipeline": pipeline}));
        let jobs = answer["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect()
    }

    /// What `status` shows of a job.
    pub(crate) fn job(&self, id: u64) -> Value {
        let status = self.admin(&json!({"cmd": "status"}));
        let pipelines = status["pipelines"].as_array().unwrap();
        let mut jobs = pipelines
            .iter()
            .flat_map(|line| line["jobs"].as_array().unwrap());
        jobs.find(|job| job["id"] == id).unwrap().clone()
    }

    pub(crate) fn status(&self, id: u64) -> String {
        self.job(id)["status"].as_str().unwrap().to_owned()
    }

    /// A job's stored log.
    pub(crate) fn trace(&self, id: u64) -> String {
        let out = Command::new(program())
            .args(["trace", "--admin"])
            .arg(&self.admin)
            .arg(id.to_string())
            .output()
            .unwrap();
        assert!(out.status.success());
        String::from_utf8(out.stdout).unwrap()
    }

    /// Kinds of broken invariants.
    pub(crate) fn broken(&self) -> Vec<String> {
        let answer = self.admin(&json!({"cmd": "invariants"}));
        let list = answer["broken"].as_array().unwrap().iter();
        list.map(|broken| broken["kind"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let answer = try_call(self.addr, method, path, headers, body.as_ref());
        answer.unwrap_or_else(|| panic!("{method} {path} got no answer"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let kind = [("Content-Type", "application/json")];
        self.call("POST", &format!("/api/v4{path}"), &kind, body.to_string())
    }

    /// The body of a job request with everything that this runner can do.
    pub(crate) fn ask(&self, last_update: &str) -> Value {
        json!({"token": self.token, "system_id": "s_1", "last_update": last_update,
               "info": {"name": "raw", "features": {
                   "cancel_gracefully": true, "upload_multiple_artifacts": true,
                   "artifacts_exclude": true, "return_exit_code": true}}})
    }

    pub(crate) fn request(&self, last_update: &str) -> Answer {
        self.post("/jobs/request", &self.ask(last_update))
    }

    /// Takes the next job.
    pub(crate) fn take(&self) -> Value {
        let answer = self.request("");
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// Makes a pipeline of one job and takes it: id and token.
    pub(crate) fn running(&self) -> (u64, String) {
        self.trigger(&hello());
        let job = self.take();
        (
            job["id"].as_u64().unwrap(),
            job["token"].as_str().unwrap().to_owned(),
        )
    }

    pub(crate) fn put(&self, id: u64, body: &Value) -> Answer {
        let kind = [("Content-Type", "application/json")];
        self.call(
            "PUT",
            &format!("/api/v4/jobs/{id}"),
            &kind,
            body.to_string(),
        )
    }

    pub(crate) fn finish(&self, id: u64, token: &str, state: &str) -> Answer {
        self.put(id, &json!({"token": token, "state": state}))
    }

    pub(crate) fn patch(
        &self,
        id: u64,
        token: &str,
        range: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let headers = [("JOB-TOKEN", token), ("Content-Range", range)];
        self.call("PATCH", &format!("/api/v4/jobs/{id}/trace"), &headers, body)
    }

    /// Ends it with SIGTERM: its last line and exit code.
    pub(crate) fn end(mut self) -> (Value, i32) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        (serde_json::from_str(&line).unwrap(), code)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
