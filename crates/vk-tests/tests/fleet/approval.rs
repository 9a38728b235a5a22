//! An operator of the hub decides whose jobs are taken, while daemon and jobs run.

use std::fs::File;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use vk_tests::port;

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{eventually, run, run_with};
use crate::settings::Settings;

fn asking(root: &Path) -> Fleet {
    let settings = Settings {
        approve: "ask",
        approved: false,
        ..Settings::default()
    };
    Fleet::with(root, &settings)
}

impl Fleet {
    fn operate(&self, arguments: &[&str]) -> String {
        run(&mut self.hub_command(arguments))
    }

    /// The only relay, as the hub shows it; none while the hub is down.
    fn relay(&self) -> Option<Value> {
        let ran = self.hub_command(&["relays", "--json"]).output().unwrap();
        let relays: Value = serde_json::from_slice(&ran.stdout).ok()?;
        relays.get(0).cloned()
    }

    /// Waits until the hub was told that the daemon's runner is in this state, without a request.
    fn runner_is(&self, state: &str) {
        eventually(&format!("the runner is {state}"), || {
            let relay = self.relay()?;
            let runner = &relay["runners"][0];
            let is = runner["state"] == state && (state == "polling" || runner["requests"] == 0);
            (relay["connected"] == true && is).then_some(())
        });
    }

    /// The runner's token is in no file of hub or node, and the job's calls came from the daemon.
    fn assert_only_the_daemon_speaks_for_the_runner(&self, job: &Value) {
        let token = std::fs::read_to_string(self.path("runner-token")).unwrap();
        let token = token.trim();
        for place in ["hub", "node", "hub.log", "node.log"] {
            for file in files_below(&self.path(place)) {
                let bytes = std::fs::read(&file).unwrap_or_default();
                let mut windows = bytes.windows(token.len());
                let found = windows.any(|window| window == token.as_bytes());
                assert!(!found, "the runner's token is in {}", file.display());
            }
        }
        let system_id = std::fs::read_to_string(self.path("daemon/system_id")).unwrap();
        assert_eq!(job["manager"].as_str(), system_id.lines().next());
    }

    /// Job requests that GitLab has seen.
    fn requests(&self) -> u64 {
        let status = self.lab.ask(&json!({ "cmd": "status" }));
        status["runners"][0]["requests"].as_u64().unwrap()
    }
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let entries = entries.flatten().map(|entry| entry.path());
    entries.flat_map(|path| files_below(&path)).collect()
}

/// SESS-01, SESS-09, SESS-10, SESS-11, ERR-10, ERR-24, ERR-25, FLOW-01
#[test]
fn nothing_is_asked_until_the_server_is_approved_and_a_project_waits_for_its_own_word() {
    let Some(root) = test_root("approvals") else {
        return;
    };
    let mut fleet = asking(&root);
    let (pipeline, job) = fleet.trigger(&["echo taken"]);
    fleet.runner_is("server_pending");
    assert_eq!(fleet.requests(), 0);
    let status = fleet.operate(&["status"]);
    assert!(status.contains("vk-hub gitlab approve s1"), "{status}");
    let log = eventually("the daemon says why it waits", || {
        let log = std::fs::read_to_string(fleet.path("daemon.log")).unwrap();
        log.contains("waiting for approval").then_some(log)
    });
    assert!(log.contains("vk-hub gitlab approve s1"), "{log}");

    fleet.operate(&["gitlab", "approve", "s1"]);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "failed", "{trace}");
    assert_eq!(ended["failure_reason"], "runner_configuration_error");
    let lines = [
        "is waiting for approval on the fleet hub https://localhost:",
        "Retry this job once an operator has approved it (Connections > GitLab > Pending).",
    ];
    for line in lines {
        assert!(trace.contains(line), "no {line:?} in {trace}");
    }
    let waits = fleet.operate(&["gitlab", "pending"]);
    assert!(waits.contains("p1"), "{waits}");

    fleet.operate(&["gitlab", "approve", "p1"]);
    let (pipeline, job) = fleet.trigger(&["echo taken"]);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "success", "{trace}");
    fleet.assert_nothing_is_left();
    fleet.assert_only_the_daemon_speaks_for_the_runner(&ended);
}

/// SESS-12, SESS-15, ERR-11
#[test]
fn a_server_rejected_in_mid_job_lets_the_job_end_and_gets_no_other_asked_for() {
    let Some(root) = test_root("a rejection") else {
        return;
    };
    let mut fleet = asking(&root);
    fleet.runner_is("server_pending");
    fleet.operate(&["gitlab", "approve", "s1", "--projects", "all"]);
    let (pipeline, job) = fleet.trigger(&["echo begun", "sleep 5", "echo to the end"]);
    eventually("the job has begun", || {
        fleet.trace(job).contains("begun").then_some(())
    });
    fleet.operate(&["gitlab", "reject", "s1"]);
    fleet.runner_is("server_pending");
    let asked = fleet.requests();
    let (next, _) = fleet.trigger(&["echo another"]);
    let ended = fleet.ended(pipeline);
    let trace = fleet.trace(job);
    assert_eq!(ended["status"], "success", "{trace}");
    assert!(trace.contains("to the end"), "{trace}");
    fleet.runner_is("server_pending");
    assert_eq!(fleet.requests(), asked, "no other job is asked for");
    assert_eq!(fleet.lab.jobs(next)[0]["status"], "pending");
    fleet.operate(&["gitlab", "approve", "s1"]);
    assert_eq!(fleet.ended(next)["status"], "success");
    fleet.assert_nothing_is_left();
}

/// SESS-02, SESS-22, SESS-24
#[test]
fn an_approval_outlives_the_hub_and_the_session_comes_back() {
    let Some(root) = test_root("a hub that restarts") else {
        return;
    };
    let mut fleet = asking(&root);
    fleet.runner_is("server_pending");
    fleet.operate(&["gitlab", "approve", "s1", "--projects", "all"]);
    fleet.runner_is("polling");
    fleet.restart(Party::Hub);
    fleet.wait_for_node();
    fleet.runner_is("polling");
    let relay = fleet.relay().unwrap();
    assert_eq!(relay["status"], "approved");
    let (pipeline, _) = fleet.trigger(&["echo after all"]);
    assert_eq!(fleet.ended(pipeline)["status"], "success");
    fleet.assert_nothing_is_left();
    fleet.restart(Party::Daemon);
    let (pipeline, _) = fleet.trigger(&["echo once more"]);
    assert_eq!(fleet.ended(pipeline)["status"], "success");
    fleet.assert_nothing_is_left();
}

/// SESS-14, SESS-21, ENR-04, ENR-06, ENR-09, ENR-15, ENR-18
#[test]
fn a_removed_relay_asks_no_more_and_its_daemon_joins_anew() {
    let Some(root) = test_root("a relay that is removed") else {
        return;
    };
    let mut fleet = asking(&root);
    fleet.runner_is("server_pending");
    fleet.operate(&["gitlab", "approve", "s1", "--projects", "all"]);
    fleet.runner_is("polling");
    let relay = fleet.relay().unwrap()["relay"].as_str().unwrap().to_owned();
    fleet.operate(&["relays", "remove", &relay]);
    eventually("the daemon says that it was refused", || {
        let log = std::fs::read_to_string(fleet.path("daemon.log")).unwrap();
        let said = log.contains("refused this daemon for good");
        (said && log.contains("join --replace")).then_some(())
    });
    let (pipeline, _) = fleet.trigger(&["echo of a new relay"]);
    fleet.stop(Party::Daemon);
    assert_eq!(fleet.lab.jobs(pipeline)[0]["status"], "pending");
    assert_eq!(fleet.relay(), None);

    let key = || std::fs::read(fleet.path("daemon/hub/key.pk8")).ok();
    let first = key();
    let again = |more: &[&str]| {
        fleet.token(&["--kind", "gitlab"]);
        let mut join = fleet.program("vk-gitlab");
        join.arg("-c").arg(fleet.path("gitlab.toml"));
        join.args(["join", &fleet.hub_url(), "--token", "-"]);
        join.args(more);
        join
    };
    let refused = again(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("--replace"),
        "{said}"
    );
    let mut join = again(&["--replace"]);
    run_with(&mut join, File::open(fleet.path("token")).unwrap());
    assert!(key().is_some() && key() != first, "a key of its own");
    fleet.restart(Party::Daemon);
    assert_eq!(fleet.ended(pipeline)["status"], "success");
    let audit = fleet.operate(&["audit"]);
    assert!(audit.contains("GitLab server approved: s1"), "{audit}");
    assert!(
        audit.contains(&format!("member removed: {relay}")),
        "{audit}"
    );
    let new = fleet.relay().unwrap()["relay"].as_str().unwrap().to_owned();
    assert_ne!(new, relay, "a removed relay gets a new ID");
    fleet.assert_nothing_is_left();
    fleet.stop(Party::Daemon);
    fleet.stop(Party::Hub);
    let mut leave = fleet.program("vk-gitlab");
    run(leave.arg("-c").arg(fleet.path("gitlab.toml")).arg("leave"));
    assert_eq!(
        files_below(&fleet.path("daemon/hub")),
        Vec::<PathBuf>::new()
    );
}

/// Certificates of one CA for a GitLab on loopback: `ca.pem`, and `<name>.pem` with `<name>.key`.
fn certificates(dir: &Path, names: &[&str]) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let write = |name: String, text: String| std::fs::write(dir.join(name), text).unwrap();
    write("ca.pem".into(), params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for name in names {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        write(format!("{name}.pem"), leaf.pem());
        write(format!("{name}.key"), key.serialize_pem());
    }
}

impl Fleet {
    /// Serves GitLab over TLS with this certificate, from now on alone.
    fn serve_tls(&self, addr: &str, name: &str) {
        let file = |end: &str| self.path(&format!("{name}.{end}"));
        self.lab.ask(&json!({
            "cmd": "listen", "as": "https", "addr": addr,
            "cert": file("pem"), "key": file("key"),
        }));
        // Connections under an older certificate break.
        self.lab.ask(&json!({ "cmd": "restart", "down_ms": 1 }));
    }

    /// Waits until the relay reports this server, which stands so.
    fn server_is(&self, server: &str, status: &str) {
        eventually(&format!("{server} is {status}"), || {
            let relay = self.relay()?;
            let is = relay["server"] == server && relay["status"] == status;
            (relay["connected"] == true && is).then_some(())
        });
    }
}

/// SESS-13, SESS-15, SESS-24, SESS-25, SESS-28
#[test]
fn a_gitlab_with_another_url_or_key_waits_for_its_own_approval_and_jobs_run_on() {
    let Some(root) = test_root("a certificate that is renewed") else {
        return;
    };
    let mut fleet = asking(&root);
    fleet.server_is("s1", "pending");
    fleet.operate(&["gitlab", "approve", "s1", "--projects", "all"]);
    certificates(&fleet.path(""), &["old", "new"]);
    let addr = format!("127.0.0.1:{}", port::free());
    fleet.serve_tls(&addr, "old");
    let config = std::fs::read_to_string(fleet.path("gitlab.toml")).unwrap();
    let lines = config.lines().map(|line| match line {
        "[[runners]]" => "[[runners]]\ntls_ca_file = \"ca.pem\"".to_owned(),
        line if line.starts_with("url = ") => format!("url = \"https://{addr}\""),
        line => line.to_owned(),
    });
    let config: Vec<String> = lines.collect();
    std::fs::write(fleet.path("gitlab.toml"), config.join("\n")).unwrap();
    fleet.restart(Party::Daemon);
    fleet.server_is("s2", "rebound");
    fleet.runner_is("server_pending");
    fleet.operate(&["gitlab", "approve", "s2", "--projects", "all"]);

    let (pipeline, job) = fleet.trigger(&["echo begun", "sleep 8", "echo to the end"]);
    eventually("the job has begun", || {
        fleet.trace(job).contains("begun").then_some(())
    });
    fleet.serve_tls(&addr, "new");
    fleet.server_is("s3", "rebound");
    fleet.runner_is("server_pending");
    let asked = fleet.requests();
    let (next, _) = fleet.trigger(&["echo another"]);
    assert_eq!(fleet.ended(pipeline)["status"], "success");
    assert!(fleet.trace(job).contains("to the end"));
    assert_eq!(fleet.requests(), asked, "no other job is asked for");
    let audit = fleet.operate(&["audit"]);
    assert!(audit.contains("vk-hub gitlab approve s3"), "{audit}");
    fleet.operate(&["gitlab", "approve", "s3", "--projects", "all"]);
    assert_eq!(fleet.ended(next)["status"], "success");
    fleet.assert_nothing_is_left();
}
