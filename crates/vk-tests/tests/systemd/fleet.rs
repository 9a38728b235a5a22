//! Hub, GitLab stand-in, node and daemon on the host, all but the second as units.

use std::path::Path;

use serde_json::{Value, json};

use crate::host::Host;

/// The daemon's unit, as packages have it.
const DAEMON: &str = include_str!("../../../../packaging/vk-gitlab.service");
/// The hub's.
const HUB: &str = include_str!("../../../../packaging/vk-hub.service");
/// How many times the job waits for its gate.
pub(crate) const GATES: usize = 5;

/// Whether the one job has ended.
const ENDED: &str =
    "/opt/vk/vk-lab status --admin /srv/lab/admin | grep -q '\"finished_ms\": *[0-9]'";

/// What the stand-in for VMs wants: to be told that it may, and the guest's own way of opening files,
/// which this setting denies to those of the host.
const FOR_TESTS: &str =
    "[Service]\nEnvironment=VK_ALLOW_PROCESS_VMM=for-tests\nRestrictSUIDSGID=no\n";

/// Hub and GitLab running, node and daemon joined, and the node's unit there as
/// `vk node service install` writes it.
pub(crate) fn prepare(root: &Path) -> Host {
    let mut host = Host::boot(root);
    host.run(&format!(
        "cat >/etc/systemd/system/vk-hub.service <<'END'\n{HUB}\nEND"
    ));
    host.run(include_str!("fleet.sh"));
    host.note("hub and GitLab serve, node and daemon have joined");
    let said = host.run("/opt/vk/vk node service install --user vk --no-start");
    let file = "/etc/systemd/system/vk-node.service";
    assert_eq!(said, format!("vk-node.service is enabled: {file}"));
    host
}

/// Both units running.
pub(crate) fn start(host: &mut Host) {
    // As an administrator's own settings are.
    host.run(&format!(
        "set -e\nmkdir /etc/systemd/system/vk-node.service.d\n\
         echo '{FOR_TESTS}' >/etc/systemd/system/vk-node.service.d/test.conf"
    ));
    let said = host.run("/opt/vk/vk node service install --user vk");
    assert!(said.contains("written anew and restarted"), "{said}");
    host.run(&format!(
        "set -e\nln -s /opt/vk/vk-gitlab /usr/bin/vk-gitlab\n\
         cat >/etc/systemd/system/vk-gitlab.service <<'END'\n{DAEMON}\nEND\n\
         systemctl daemon-reload\nsystemctl enable --now vk-gitlab"
    ));
    ready(host, "the node is ready");
}

/// Waits until the hub counts on the node.
pub(crate) fn ready(host: &mut Host, what: &str) {
    let nodes = "runuser -u vk-hub -- vk-hub --config /etc/vk-hub/hub.toml nodes";
    host.until(what, &format!("{nodes} | tee /dev/stderr | grep -qw ready"));
}

/// A job that goes on from gate to gate.
pub(crate) struct Job(u64);

impl Job {
    /// Begins one, and waits until it runs.
    pub(crate) fn begin(host: &mut Host) -> Self {
        // The process stand-in for VMs lets a script see its host by way of its first process.
        let gate = "/proc/1/root/srv/gate";
        let mut script = vec![
            format!("echo begun >> {gate}/begun"),
            "echo step 0".to_owned(),
        ];
        for number in 1..=GATES {
            script.push(format!(
                "until [ -e {gate}/{number} ]; do sleep 0.5; done; echo {number} > {gate}/passed-{number}"
            ));
            script.push(format!("echo step {number}"));
        }
        let variables = json!({ "GIT_STRATEGY": "none" });
        let job = json!({ "name": "goes-on", "script": script, "variables": variables });
        let pipeline = json!({ "jobs": [job] });
        let said = host.run(&format!(
            "echo '{pipeline}' >/srv/job.json; {} /srv/job.json",
            lab("trigger")
        ));
        let said: Value = serde_json::from_str(&said).unwrap();
        let job = Self(said["jobs"][0]["id"].as_u64().unwrap());
        // Of a job that is looked at GitLab wants to hear every few seconds.
        let watch = format!("{} {} --follow", lab("trace"), job.0);
        host.run(&format!("systemd-run --quiet --unit watcher {watch}"));
        job.says(host, "step 0");
        job
    }

    /// Waits until GitLab has a line of the job's script.
    pub(crate) fn says(&self, host: &mut Host, line: &str) {
        let trace = format!("{} {}", lab("trace"), self.0);
        let what = format!("GitLab has {line:?}");
        // The line, not the command that prints it. A job that has ended says no more.
        host.until(
            &what,
            &format!(
                "ended=$({ENDED} && echo 90 || echo 1); trace=$({trace})\n\
                 grep -aq '[0-9]O {line}$' <<<\"$trace\" && exit 0\n\
                 echo \"$trace\"; exit $ended"
            ),
        );
    }

    /// Opens a gate.
    pub(crate) fn open(&self, host: &mut Host, number: usize) {
        host.run(&format!("touch /srv/gate/{number}"));
    }

    /// Waits until the script has gone through a gate, whoever hears of it.
    pub(crate) fn passes(&self, host: &mut Host, number: usize) {
        let test = format!("[ -s /srv/gate/passed-{number} ]");
        host.until(&format!("the job goes through gate {number}"), &test);
    }

    /// Waits for its end: well, once, and with its whole trace.
    pub(crate) fn ends_well(&self, host: &mut Host) {
        host.until("the job has ended", ENDED);
        let status: Value = serde_json::from_str(&host.run(&lab("status"))).unwrap();
        let job = &status["pipelines"][0]["jobs"][0];
        let trace = host.run(&format!("{} {}", lab("trace"), self.0));
        assert_eq!(job["status"], "success", "{trace}");
        assert_eq!(job["handed_out"], 1, "{job}");
        let steps = trace.lines().filter(|line| !line.contains('$'));
        let steps: Vec<&str> = steps
            .filter_map(|line| Some(line.split_once("step ")?.1.trim()))
            .collect();
        let wanted: Vec<String> = (0..=GATES).map(|number| number.to_string()).collect();
        assert_eq!(steps, wanted, "{trace}");
        assert!(trace.contains("Job succeeded"), "{trace}");
        assert_eq!(host.run("cat /srv/gate/begun"), "begun");
        assert_eq!(host.run(&lab("invariants")), "");
    }
}

/// A question to the GitLab stand-in.
fn lab(what: &str) -> String {
    format!("/opt/vk/vk-lab {what} --admin /srv/lab/admin")
}
