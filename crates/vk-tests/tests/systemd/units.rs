//! What systemd does to the units, and what becomes of a job meanwhile.

use crate::fleet::{GATES, Job, prepare, ready, start};
use crate::host::{Host, test_root};

/// The node's unit, as systemd understood it.
const NODE: [(&str, &str); 21] = [
    ("Type", "exec"),
    ("User", "vk"),
    ("KillMode", "process"),
    ("KillSignal", "15"),
    ("Restart", "on-failure"),
    ("RestartPreventExitStatus", "75 78"),
    ("OOMPolicy", "continue"),
    ("TasksMax", "infinity"),
    ("LimitCORE", "0"),
    ("LimitNOFILE", "65536"),
    ("UMask", "0077"),
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("AmbientCapabilities", ""),
    ("ProtectSystem", "full"),
    ("ProtectHome", "yes"),
    ("DevicePolicy", "closed"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("SystemCallArchitectures", "native"),
];

/// What a running node's process may.
const PROCESS: [(&str, &str); 3] = [
    ("NoNewPrivs", "1"),
    ("CapBnd", "0000000000000000"),
    ("CapEff", "0000000000000000"),
];

#[test]
fn a_job_goes_on_while_systemd_restarts_its_node_and_its_daemon_kills_them_and_stops_them() {
    let Some(root) = test_root("units under systemd") else {
        return;
    };
    let mut host = prepare(&root);
    assert_units_are_as_written(&mut host);
    start(&mut host);
    assert_hardened(&mut host);
    let job = Job::begin(&mut host);
    let process = job_process(&mut host);
    let first = main_process(&mut host, "vk-node");

    host.run("systemctl restart vk-node");
    let second = main_process(&mut host, "vk-node");
    assert_ne!(first, second);
    assert_eq!(job_process(&mut host), process, "after a restart");
    job.open(&mut host, 1);
    job.says(&mut host, "step 1");

    host.run(&format!("kill -9 {second}"));
    let restarted = "[ $(systemctl show vk-node -P NRestarts) = 1 ] && systemctl is-active vk-node";
    host.until("the node was killed and started anew", restarted);
    assert_ne!(main_process(&mut host, "vk-node"), second);
    assert_eq!(job_process(&mut host), process, "after a kill");
    job.open(&mut host, 2);
    job.says(&mut host, "step 2");

    let daemon = main_process(&mut host, "vk-gitlab");
    host.run("systemctl restart vk-gitlab");
    assert_ne!(main_process(&mut host, "vk-gitlab"), daemon);
    job.open(&mut host, 3);
    job.says(&mut host, "step 3");

    host.run("systemctl stop vk-node");
    assert_eq!(host.ask("systemctl is-active vk-node").1, "inactive");
    assert_eq!(job_process(&mut host), process, "after a stop");
    job.open(&mut host, 4);
    job.passes(&mut host, 4);
    host.run("systemctl start vk-node");
    assert_eq!(job_process(&mut host), process, "after a start");
    job.says(&mut host, "step 4");

    job.open(&mut host, GATES);
    job.ends_well(&mut host);
    let gone = "! pgrep -f 'node job' && [ -z \"$(ls /srv/vk/state/node/jobs)\" ]";
    host.until("nothing of the job is left", gone);

    the_disk_comes_and_goes(&mut host);
    host.power_off();
}

/// The node's state lies on a disk that a unit mounts: the node stops before it goes, and brings it
/// when it starts.
fn the_disk_comes_and_goes(host: &mut Host) {
    let mounts = host.run("systemctl show vk-node -P RequiresMountsFor");
    assert!(mounts.contains("/srv/vk/state"), "{mounts}");
    host.run("systemctl stop srv-vk.mount");
    assert_eq!(host.ask("systemctl is-active vk-node").1, "inactive");
    assert_eq!(host.run("ls /srv/vk"), "", "nothing was made below it");
    host.run("systemctl reset-failed; systemctl start vk-node");
    assert_eq!(host.run("systemctl is-active srv-vk.mount"), "active");
    ready(host, "the node is ready with its disk again");
    let code = host.run("systemctl show vk-node -P ExecMainStatus");
    assert_eq!(code, "0");
}

fn assert_units_are_as_written(host: &mut Host) {
    let shown = host.run("systemctl show --all vk-node");
    for (name, expected) in NODE {
        let line = shown
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}=")));
        assert_eq!(line, Some(expected), "{name}");
    }
    for device in [
        "/dev/kvm",
        "/dev/vhost-vsock",
        "/dev/vhost-net",
        "/dev/net/tun",
    ] {
        let line = format!("DeviceAllow={device} rw");
        assert!(shown.lines().any(|one| one == line), "{line}: {shown}");
    }
    host.note("the node's unit is as it is written");
}

fn assert_hardened(host: &mut Host) {
    let node = main_process(host, "vk-node");
    let status = host.run(&format!("cat /proc/{node}/status"));
    for (name, expected) in PROCESS {
        let line = status.lines().find(|line| line.starts_with(name));
        let is = line.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(is, Some(expected), "{name}: {status}");
    }
    let unit = host.run("systemctl show vk-gitlab -p KillMode -p Restart -p ProtectSystem");
    for line in [
        "KillMode=mixed",
        "Restart=on-failure",
        "ProtectSystem=strict",
    ] {
        assert!(unit.lines().any(|one| one == line), "{line}: {unit}");
    }
    host.note("both units run as they are written");
}

fn main_process(host: &mut Host, unit: &str) -> String {
    let pid = host.run(&format!("systemctl show {unit} -P MainPID"));
    assert_ne!(pid, "0", "{unit} does not run");
    pid
}

/// The job's process: its number, and since when it runs.
fn job_process(host: &mut Host) -> String {
    let found = host.run("pid=$(pgrep -f 'vk node job') && cut -d' ' -f1,22 /proc/$pid/stat");
    assert_eq!(found.lines().count(), 1, "{found}");
    found
}
