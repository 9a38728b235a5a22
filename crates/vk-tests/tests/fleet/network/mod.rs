//! Jobs with a network, two at once, in a fleet whose host is a network namespace of its own with a
//! lab beside it: what they reach, and what they never do.

mod job;
#[path = "../../../../vk-vm/tests/network/world.rs"]
#[allow(dead_code, reason = "the guests' own tests use more of it")]
mod world;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::fleet::{Fleet, Party, test_root};
use crate::program::{eventually, eventually_within, run};
use crate::settings::Settings;
use job::{ALONE, Answers, GITLAB_PORT, MEETING_PORT, OWN_PORT};
use world::{HOST_PORT, LAB_PORT, MAIN, MIRROR_PORT, SECOND, World};

/// Says to the test that it runs in the world.
const INSIDE: &str = "VK_TEST_IN_WORLD";
const TEST: &str =
    "network::two_jobs_at_once_reach_others_by_name_and_neither_the_host_nor_each_other";
/// From both jobs' begin to the end of one: they ask much, in emulated machines that share two
/// processors with other tests.
const LIMIT: Duration = Duration::from_secs(900);
/// The two jobs.
const NAMES: [&str; 2] = ["one", "two"];

#[test]
fn two_jobs_at_once_reach_others_by_name_and_neither_the_host_nor_each_other() {
    let Some(root) = test_root("jobs with a network") else {
        return;
    };
    let mut tun = OpenOptions::new();
    if let Err(error) = tun.read(true).write(true).open("/dev/net/tun") {
        println!("jobs with a network need /dev/net/tun open to this user: {error}");
        return;
    }
    if std::env::var_os(INSIDE).is_some() {
        return in_world(&root);
    }
    if std::env::var_os("VK_LONG").is_none() {
        println!("jobs with a network: two emulated machines for minutes, with VK_LONG alone");
        return;
    }
    let namespaces = [
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--kill-child",
    ];
    let mut inside = Command::new("unshare");
    inside
        .args(namespaces)
        .arg(std::env::current_exe().unwrap());
    inside.args(["--exact", TEST, "--nocapture"]);
    let ended = inside.env(INSIDE, "1").output().unwrap();
    println!("{}", String::from_utf8_lossy(&ended.stdout));
    println!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "in the world: {}", ended.status);
}

fn in_world(root: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let world = World::make(directory.path());
    let mut fleet = fleet(root);
    let hub = port_of(&fleet.hub_url());
    pass_on(world.listener_at_lab(GITLAB_PORT), gitlab_port(&fleet));
    meet(world.listener_at_lab(MEETING_PORT));
    are_there(&world, hub);
    let script = job::script(hub);
    let jobs = NAMES.map(|name| json!({"name": name, "image": "debian", "script": [script]}));
    let (pipeline, numbers) = fleet.lab.trigger(&json!(jobs));
    let answers: Vec<Answers> = numbers
        .iter()
        .map(|number| answers(&mut fleet, pipeline, *number))
        .collect();
    for (name, answers) in NAMES.iter().zip(&answers) {
        job::judge(name, answers);
    }
    let noticed =
        [&world.noticed.host, &world.noticed.host_talk].map(|of| of.load(Ordering::SeqCst));
    assert_eq!(
        noticed,
        [0, 0],
        "connections and packets that the host took"
    );
    let met = world.noticed.lab_talk.load(Ordering::SeqCst);
    // A question that was not answered soon is asked again: of refusals the kernel sends only so many a
    // second.
    assert!(met >= NAMES.len(), "{met} packets that the lab took");
    fleet.assert_nothing_is_left();
}

/// A fleet of real VMs with a network, whose hub listens everywhere.
fn fleet(root: &Path) -> Fleet {
    let settings = Settings {
        programs: "bin",
        schedule: "mem_budget = \"2G\"\n[net]\nmode = \"switch\"".to_owned(),
        ..Settings::default()
    };
    let mut fleet = Fleet::with(root, &settings);
    let mut import = fleet.program("vk");
    import.args(["image", "import", "--state-dir"]);
    let debian = root.join("images/debian.tar");
    run(import.arg(fleet.path("node")).arg(debian).arg("debian"));
    let file = fleet.path("hub.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("addr = \"127.0.0.1:"), "{text}");
    fs::write(&file, text.replacen("127.0.0.1", "0.0.0.0", 1)).unwrap();
    fleet.restart(Party::Hub);
    fleet.wait_for_node();
    eventually("the daemon is back", || {
        fleet.daemon_is_there().then_some(())
    });
    fleet
}

fn port_of(url: &str) -> u16 {
    url.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn gitlab_port(fleet: &Fleet) -> u16 {
    let text = fs::read_to_string(fleet.path("gitlab.toml")).unwrap();
    let url = text.lines().find_map(|line| line.strip_prefix("url = "));
    port_of(url.unwrap().trim_matches('"'))
}

/// The stand-in for GitLab listens on the host's loopback: whoever comes to the lab for it is
/// brought there.
fn pass_on(from: TcpListener, to: u16) {
    thread::spawn(move || {
        for guest in from.incoming() {
            let guest = guest.unwrap();
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            for (mut from, mut to) in [
                (guest.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, guest),
            ] {
                thread::spawn(move || {
                    // Either may go when it has what it wants.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

/// Who comes waits for the other; then the host looks whether it reaches what they listen with.
fn meet(at: TcpListener) {
    thread::spawn(move || {
        loop {
            let mut both = NAMES.map(|_| at.accept().unwrap().0);
            let reached = ["127.0.0.1", MAIN, SECOND]
                .iter()
                .any(|address| TcpStream::connect((*address, OWN_PORT)).is_ok());
            let said = if reached { "a way in" } else { ALONE };
            for job in &mut both {
                // Whoever leaves some of it unread resets the connection.
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && job.read(&mut byte).unwrap() == 1 {
                    request.push(byte[0]);
                }
                let _ = write!(job, "HTTP/1.0 200 OK\r\n\r\n{said}\n");
            }
        }
    });
}

/// What the jobs are to be denied is there, and so is what they are to reach.
fn are_there(world: &World, hub: u16) {
    for address in [MAIN, SECOND, world::LINK_LOCAL, world::IPV6, "127.0.0.1"] {
        assert!(world.answers(address, HOST_PORT), "{address} is not there");
    }
    assert!(world.answers(world::METADATA, 80));
    for address in [MAIN, SECOND] {
        TcpStream::connect((address, hub)).unwrap();
    }
    assert!(world.asked(world::LAB, LAB_PORT).ends_with("lab"));
    assert!(world.asked(world::LAB, MIRROR_PORT).ends_with("mirror"));
}

/// What a job found, once it has ended well.
fn answers(fleet: &mut Fleet, pipeline: u64, number: u64) -> Answers {
    let ended = eventually_within(LIMIT, "the job ends", || {
        for party in [Party::Hub, Party::Node, Party::Daemon] {
            fleet.running(party).log();
        }
        let jobs = fleet.lab.jobs(pipeline);
        let job = jobs.into_iter().find(|job| job["id"] == number)?;
        (!job["finished_ms"].is_null()).then_some(job)
    });
    let trace = fleet.trace(number);
    assert_eq!(ended["status"], "success", "{trace}");
    println!("{trace}");
    job::read(&trace)
}
