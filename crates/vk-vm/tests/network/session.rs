//! One run of guests in a world of its own, and what came of it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vk_vm::qemu::Qemu;
use vk_vm::{NetMode, Vm, Vmm};

use super::support::guest::{bare, run, settings, shell, with_settings};
use super::support::{eventually, is_gone, named, status, test_root, tree};
use super::world::{
    CLOUDS, HOST_PORT, IPV6, LAB, LAB_PORT, LINK_LOCAL, MAIN, METADATA, MIRROR_PORT, MOVING,
    SECOND, TALK_PORT, World, ip,
};

type Answers = BTreeMap<String, String>;

/// Set in the process that is in the world.
const INSIDE: &str = "VK_TEST_IN_WORLD";
/// This module's test, by its name.
const SESSION: &str = "session::guests_in_a_world_of_their_own";
/// What stands before each answer.
const MARK: &str = "answer ";

/// What the one session found, by case; `None`, said aloud, where it cannot run.
pub(crate) fn session() -> Option<&'static Answers> {
    static ALL: LazyLock<Option<Answers>> = LazyLock::new(|| {
        test_root("network")?;
        let tun = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        if let Err(error) = tun {
            println!("network needs /dev/net/tun open to this user: {error}");
            return None;
        }
        Some(run_inside())
    });
    ALL.as_ref()
}

/// Runs this program's session in namespaces where it is root.
fn run_inside() -> Answers {
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "--kill-child",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", SESSION, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    said.lines()
        .filter_map(|line| line.split_once(MARK)?.1.split_once('='))
        .map(|(case, answer)| (case.to_owned(), answer.to_owned()))
        .collect()
}

#[test]
fn guests_in_a_world_of_their_own() {
    if std::env::var_os(INSIDE).is_none() {
        // The session of the others.
        if let Some(all) = session() {
            assert!(!all.is_empty());
        }
        return;
    }
    let root = test_root("network").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let world = World::make(directory.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        reach(&root, directory.path(), &world).await;
        for victim in ["pasta", "keeper", "qemu", "holder"] {
            kill(&root, directory.path(), victim).await;
        }
    });
}

fn tell(case: &str, answer: &str) {
    println!("{MARK}{case}={}", answer.trim().replace('\n', " "));
}

async fn reach(root: &Path, directory: &Path, world: &World) {
    let mut settings = settings(root);
    settings.network = NetMode::Switch;
    let vm = with_settings(root, directory, settings).await;
    tell("resolv.conf", &run(&vm, "cat /etc/resolv.conf").await.1);
    tell("interfaces", &run(&vm, "ls /sys/class/net").await.1);
    tell("lab", &fetch(&vm, LAB, LAB_PORT).await);
    tell("mirror", &fetch(&vm, "mirror.example", MIRROR_PORT).await);
    let (code, said) = run(&vm, "nslookup -type=a mirror.example 198.18.254.1").await;
    assert_eq!(code, 0, "{said}");
    let answered = by_tcp(&vm, "long", 1, 1).await;
    let has_address = answered.ends_with(&["203", "0", "113", "9"].map(str::to_owned));
    tell(
        "resolver-tcp",
        if has_address {
            "answered"
        } else {
            "not answered"
        },
    );
    refused(&vm, world).await;
    pings(&vm).await;
    for (case, address, port) in [
        ("main", MAIN, HOST_PORT),
        ("second", SECOND, HOST_PORT),
        ("link-local", LINK_LOCAL, HOST_PORT),
        ("metadata", METADATA, 80),
        ("resolver", SECOND, 53),
        ("ipv6", IPV6, HOST_PORT),
    ] {
        assert!(world.answers(address, port), "{address} is not there");
        tell(case, &denied(&vm, world, address, port).await);
    }
    for (case, address) in [
        ("bridge", "198.18.254.1"),
        ("uplink", "198.18.255.2"),
        ("beyond", "198.18.255.1"),
        ("unspecified", "0.0.0.0"),
        ("loopback", "127.0.0.1"),
    ] {
        tell(case, &denied(&vm, world, address, HOST_PORT).await);
    }
    for (number, address) in CLOUDS.into_iter().enumerate() {
        assert!(world.asked(address, LAB_PORT).ends_with("lab"));
        let case = format!("cloud-{number}");
        tell(&case, &unnoticed(&vm, world, address, LAB_PORT).await);
    }
    force(&vm).await;
    tell("ipv6-forced", &denied(&vm, world, IPV6, HOST_PORT).await);
    moving(&vm, world).await;
    rights(&vm);
    used(&vm).await;
    spoof(&vm, world).await;
    let all = tree(vm.root_pid());
    vm.stop(Duration::from_secs(60)).await;
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
    tell("stopped", "nothing is left");
}

/// What the guest gets from there, or "denied".
async fn fetch(vm: &Vm, address: &str, port: u16) -> String {
    fetch_within(vm, address, port, 30).await
}

/// As [`fetch`], with so many seconds to connect.
async fn fetch_within(vm: &Vm, address: &str, port: u16, secs: u32) -> String {
    // A name is looked up apart: the static busybox knows no name service but its own nslookup.
    let script = format!(
        r#"to={address}
          case $to in *[!0-9a-f:.]*)
              to=$(nslookup -type=a $to | sed -n '/^Name:/,$s/^Address: *//p') ;;
          esac
          timeout 45 nc -w {secs} $to {port} -e sh -c \
              'printf "GET / HTTP/1.0\r\n\r\n"; exec cat >&2' 2>&1"#
    );
    let (_, said) = run(vm, &script).await;
    let refused = ["can't connect to remote host", "timed out"];
    if refused.iter().any(|why| said.contains(why)) {
        return "denied".to_owned();
    }
    let body = said.rsplit("\r\n\r\n").next();
    body.unwrap_or(&said).to_owned()
}

/// As [`fetch`]; reached is also what a server of the host noticed.
async fn denied(vm: &Vm, world: &World, address: &str, port: u16) -> String {
    let before = world.noticed.host.load(Ordering::SeqCst);
    let answer = fetch_within(vm, address, port, 5).await;
    match world.noticed.host.load(Ordering::SeqCst) {
        now if now == before => answer,
        _ => format!("noticed; the guest got {answer}"),
    }
}

/// As [`denied`], of a place at the lab.
async fn unnoticed(vm: &Vm, world: &World, address: &str, port: u16) -> String {
    let before = world.noticed.lab.load(Ordering::SeqCst);
    let answer = fetch_within(vm, address, port, 5).await;
    match world.noticed.lab.load(Ordering::SeqCst) {
        now if now == before => answer,
        _ => format!("noticed; the guest got {answer}"),
    }
}

/// What a resolver tells its own host alone; and one of the host's itself, by UDP.
async fn refused(vm: &Vm, world: &World) {
    for (case, kind, class) in [("transfer", 252, 1), ("changes", 251, 1), ("chaos", 16, 3)] {
        let answer = by_tcp(vm, "zone", kind, class).await;
        // The fourth byte behind the length.
        let code = answer.get(5).and_then(|byte| byte.parse::<u8>().ok());
        let said = match code.map(|code| code & 0xf) {
            Some(5) => "refused".to_owned(),
            _ => format!("got {answer:?}"),
        };
        tell(&format!("resolver-{case}"), &said);
    }
    let asked = world.noticed.inner.load(Ordering::SeqCst);
    tell("resolver-inner", &asked.to_string());
    let before = world.noticed.host.load(Ordering::SeqCst);
    let (code, said) = run(vm, &format!("nslookup -type=a mirror.example {SECOND}")).await;
    let noticed = world.noticed.host.load(Ordering::SeqCst) - before;
    let answer = if code != 0 && noticed == 0 {
        "denied".to_owned()
    } else {
        format!("{noticed} packets noticed; the guest got {said}")
    };
    tell("resolver-udp", &answer);
}

async fn pings(vm: &Vm) {
    // One that is denied is waited for to the end.
    for (case, address, secs) in [("lab", LAB, 30), ("main", MAIN, 2), ("second", SECOND, 2)] {
        let (code, said) = run(vm, &format!("ping -c 1 -W {secs} {address}")).await;
        let answer = match code {
            0 => "answered",
            _ if said.contains("100% packet loss") => "denied",
            _ => &said,
        };
        tell(&format!("ping-{case}"), answer);
    }
}

/// The guest takes another address than its own.
async fn spoof(vm: &Vm, world: &World) {
    let take = |address: &str| {
        format!(
            "ip addr flush dev eth0 && ip addr add {address}/24 dev eth0
             ip route add default via 198.18.254.1"
        )
    };
    let (code, said) = run(vm, &take("198.18.254.77")).await;
    assert_eq!(code, 0, "{said}");
    tell("spoofed", &unnoticed(vm, world, LAB, LAB_PORT).await);
    let (code, said) = run(vm, &take("198.18.254.2")).await;
    assert_eq!(code, 0, "{said}");
    tell("spoofed-no-more", &fetch(vm, LAB, LAB_PORT).await);
}

/// What it used is what all its processes used, those of its network among them.
async fn used(vm: &Vm) {
    let all = || -> u64 {
        let peak = |pid: &u32| -> Option<u64> {
            let text = status(*pid, "VmHWM")?;
            text.trim_end_matches(" kB").parse().ok()
        };
        tree(vm.root_pid()).iter().filter_map(peak).sum::<u64>() << 10
    };
    assert!(tree(vm.root_pid()).contains(&pasta(vm)));
    // A process that ends between two looks is in one of them only.
    let mut is_all = false;
    for _ in 0..5 {
        let before = all();
        let said = vm.usage().await.unwrap().peak_mem_bytes;
        is_all |= (before..=all()).contains(&said);
    }
    tell("usage", if is_all { "all" } else { "not all" });
}

/// The bytes of what a question by TCP is answered with: the guest's busybox asks by UDP alone, so
/// its bytes are sent as they are.
async fn by_tcp(vm: &Vm, label: &str, kind: u8, class: u8) -> Vec<String> {
    let length = 12 + 1 + label.len() + 1 + 7 + 1 + 4;
    let header = r"\022\064\001\0\0\001\0\0\0\0\0\0";
    let name = format!(r"\{:03o}{label}\007example\0", label.len());
    let question = format!(r"\0\{length:03o}{header}{name}\0\{kind:03o}\0\{class:03o}");
    let script = format!("printf '{question}' | nc -w 30 198.18.254.1 53 | od -An -v -tu1");
    let (_, said) = run(vm, &script).await;
    said.split_whitespace().map(str::to_owned).collect()
}

/// The guest's root does what it can to have IPv6.
async fn force(vm: &Vm) {
    let script = "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6
         ip -6 addr add 2001:db8::55/64 dev eth0
         ip -6 neigh add 2001:db8::1 lladdr $(ip neigh show dev eth0 | grep -o '..:..:..:..:..:..' | head -n1) dev eth0
         ip -6 addr show dev eth0";
    let (_, said) = run(vm, script).await;
    assert!(said.contains("2001:db8::55"), "{said}");
}

/// An address wanders from the lab to the host and back.
async fn moving(vm: &Vm, world: &World) {
    tell("before", &fetch(vm, MOVING, LAB_PORT).await);
    let talking = format!(
        "syslogd -n -R {MOVING}:{TALK_PORT} & i=0
         while :; do i=$((i+1)); logger -t talk $i; echo $i > /tmp/said; usleep 50000; done"
    );
    let steps = async {
        let talk = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        eventually("the lab hears the guest", || {
            talk(&world.noticed.lab_talk) > 3
        })
        .await;
        take(vm, world).await;
        // Wherever the connection leads now: to the host, or still to the lab where its route is kept.
        let heard = || talk(&world.noticed.host_talk) + talk(&world.noticed.lab_talk);
        says(vm, 3).await;
        let before = heard();
        says(vm, 10).await;
        match heard() - before {
            0 => "denied".to_owned(),
            more => format!("{more} packets noticed"),
        }
    };
    let limit = Duration::from_secs(240);
    let talks = vm.guest().run(shell(&talking), b"", 1 << 20, limit);
    tokio::select! {
        ended = talks => panic!("the guest ended: {ended:?}"),
        answer = steps => tell("mid-connection", &answer),
    }
    tell("while", &denied(vm, world, MOVING, HOST_PORT).await);
    ip(&format!("addr del {MOVING}/32 dev second0"));
    until(vm, "lab").await;
    tell("after", &fetch(vm, MOVING, LAB_PORT).await);
}

/// Waits until the guest has talked so often again.
async fn says(vm: &Vm, times: u64) {
    let said_before = said(vm).await;
    let end = Instant::now() + Duration::from_secs(60);
    while said(vm).await < said_before + times {
        assert!(Instant::now() < end, "the guest talks no more");
    }
}

/// How often the guest has talked.
async fn said(vm: &Vm) -> u64 {
    let (_, said) = run(vm, "cat /tmp/said").await;
    said.trim().parse().unwrap_or(0)
}

/// The host takes the address that was the lab's, and the network knows it.
async fn take(vm: &Vm, world: &World) {
    ip(&format!("addr add {MOVING}/32 dev second0"));
    assert!(world.answers(MOVING, HOST_PORT), "it is the host's now");
    until(vm, "denied").await;
}

async fn until(vm: &Vm, answer: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while fetch(vm, MOVING, LAB_PORT).await != answer {
        assert!(Instant::now() < end, "never {answer}");
    }
}

/// What QEMU may, and where it is.
fn rights(vm: &Vm) {
    let qemu = named(vm.root_pid(), "qemu-system-x86")[0];
    let none = ["CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .iter()
        .all(|set| status(qemu, set).unwrap() == "0".repeat(16));
    let sealed = status(qemu, "NoNewPrivs").unwrap() == "1";
    let filtered = status(qemu, "Seccomp").unwrap() == "2";
    tell(
        "rights",
        if none && sealed && filtered {
            "none"
        } else {
            "some"
        },
    );
    let net = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    let keeper = keeper(vm);
    let own = ![keeper, std::process::id()]
        .iter()
        .any(|of| net(*of) == net(qemu));
    tell("namespace", if own { "its own" } else { "shared" });
}

/// The keeper: the parent of pasta.
fn keeper(vm: &Vm) -> u32 {
    let pasta = pasta(vm);
    status(pasta, "PPid").unwrap().parse().unwrap()
}

fn pasta(vm: &Vm) -> u32 {
    let all = tree(vm.root_pid());
    let is = |pid: &&u32| status(**pid, "Name").is_some_and(|name| name.starts_with("pas"));
    *all.iter().find(is).unwrap()
}

/// A victim is killed; the VM ends, and all of it.
async fn kill(root: &Path, directory: &Path, victim: &str) {
    let mut settings = settings(root);
    settings.network = NetMode::Switch;
    let qemu = Qemu::prepare(settings).await.unwrap();
    let machine = bare(directory, &format!("killed-{victim}"));
    let vm = qemu.start(machine).await.unwrap();
    let all = tree(vm.root_pid());
    let pid = match victim {
        "pasta" => pasta(&vm),
        "keeper" => keeper(&vm),
        "qemu" => named(vm.root_pid(), "qemu-system-x86")[0],
        _ => all[1],
    };
    assert!(all.contains(&pid));
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let death = vm.death().await.to_string();
    if matches!(victim, "pasta" | "keeper") {
        assert!(death.contains("network ended with"), "{death}");
    }
    drop(vm);
    eventually("all are gone", || all.iter().all(|pid| is_gone(*pid))).await;
    tell(&format!("killed-{victim}"), "nothing is left");
}
