//! The process that makes a job's network and holds it.
//!
//! It begins in the host's network namespace and lives in two: its first thread leaves for a
//! namespace of the job's, where bridge, tap, rules and the resolver's sockets are made; a second
//! one stays, starts pasta and asks the host's resolvers. Sockets belong to the namespace they were
//! made in, whichever thread uses them.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::mount_bind;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::NetError;
use crate::needs::Needs;
use crate::netlink::Netlink;
use crate::plan::{OUTSIDE_LENGTH, Plan};
use crate::prefix::merged;
use crate::resolver::{Listening, serve};
use crate::rules::{TAP, UPLINK, links, ruleset, update};
use crate::said::Said;
use crate::sys;

/// How long the way out may take to be there.
const WAY_OUT: Duration = Duration::from_secs(15);
/// What is shown of what a program said.
const SAID: usize = 600;

/// Makes the network, tells its owner over stdout, and keeps the host's addresses denied until it is
/// ended from outside. Returns only when something of it failed; everything is then taken down by
/// the caller's exit.
///
/// `at` is an empty file that the namespace is mounted on, for pasta to find it by: the caller is in
/// a mount namespace of its own, in which it may mount, and the first process of a PID namespace of
/// its own, so that pasta ends with it. It has one thread.
///
/// # Errors
/// Any [`NetError`].
pub fn keep(needs: &Needs, at: &Path) -> Result<Infallible, NetError> {
    let host = Netlink::open()?;
    let (work, begun) = stay_behind(needs, at);
    sys::new_network().map_err(NetError::io("make a network namespace"))?;
    mount_bind("/proc/self/ns/net", at)
        .map_err(|e| NetError::io("give the network namespace a name")(e.into()))?;
    let inside = Netlink::open()?;
    let tap = sys::tap(TAP).map_err(NetError::io("make a tap"))?;
    let found = host.list()?;
    let taken = [&found.own[..], &found.reached[..]].concat();
    let plan = Plan::choose(&taken).ok_or(NetError::NoRoom)?;
    quiet_ipv6();
    feed("ip", &needs.ip, &["-batch", "-"], &links(&plan))?;
    feed("nft", &needs.nft, &["-f", "-"], &ruleset(&plan, &found.own))?;
    let forward = fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    forward.map_err(NetError::io(
        "let packets pass between the namespace's interfaces",
    ))?;
    say(&Said::Tap(plan), Some(tap))?;
    // Who else would start it does not wait for it.
    let _ = work.send((plan, listen(&plan)?));
    let mut pasta = begun.recv().map_err(|_| resolver_ended())??;
    let pasta_end = end_of(&pasta)?;
    inside.clear()?;
    wait_for_way_out(&inside, &mut pasta, &pasta_end)?;
    say(&Said::Ready, None)?;
    let mut denied = merged(found.own);
    loop {
        wait(&[host.changes(), pasta_end.as_fd()], None)?;
        if let Some(error) = ended(&mut pasta)? {
            return Err(error);
        }
        host.clear()?;
        let now = merged(host.list()?.own);
        if now != denied {
            feed("nft", &needs.nft, &["-f", "-"], &update(&now))?;
            denied = now;
        }
    }
}

type Work = (Plan, Listening);

/// Starts the thread that stays in the host's namespace: it starts pasta, then resolves.
fn stay_behind(needs: &Needs, at: &Path) -> (Sender<Work>, Receiver<Result<Child, NetError>>) {
    let (work, arriving) = channel::<Work>();
    let (tell, begun) = channel();
    let (program, at) = (needs.pasta.clone(), at.to_owned());
    thread::spawn(move || {
        let Ok((plan, listening)) = arriving.recv() else {
            return;
        };
        // Whoever waits for it may be gone.
        let _ = tell.send(start_pasta(&program, &at, &plan));
        let error = serve(listening);
        eprintln!("the resolver of the job's network failed: {error}");
        // Without it the network is none: the namespace and all in it go.
        std::process::exit(1);
    });
    (work, begun)
}

fn start_pasta(program: &Path, at: &Path, plan: &Plan) -> Result<Child, NetError> {
    let mut pasta = Command::new(program);
    pasta
        .args(["--foreground", "--stderr", "--quiet", "--ipv4-only"])
        .args(["--netns-only", "--no-netns-quit", "--netns"])
        .arg(at)
        .args(["--config-net", "--ns-ifname", UPLINK])
        .args(["--address", &plan.uplink.to_string()])
        .args(["--netmask", &OUTSIDE_LENGTH.to_string()])
        .args(["--gateway", &plan.beyond.to_string()])
        // By default it opens ports of the host's loopback both ways.
        .args(["-t", "none", "-u", "none", "-T", "none", "-U", "none"])
        .args([
            "--no-map-gw",
            "--no-dhcp",
            "--no-dhcpv6",
            "--no-ndp",
            "--no-ra",
        ])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    pasta.spawn().map_err(NetError::io("start pasta"))
}

/// The guest has no IPv6, and so nothing of the namespace shall.
fn quiet_ipv6() {
    for scope in ["all", "default"] {
        // A kernel without IPv6 has no such file; the rules let none pass in any case.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}

fn listen(plan: &Plan) -> Result<Listening, NetError> {
    let at = (plan.bridge, 53);
    let failed = || NetError::io("listen for the guest's DNS questions");
    Ok(Listening {
        udp: UdpSocket::bind(at).map_err(failed())?,
        tcp: TcpListener::bind(at).map_err(failed())?,
    })
}

/// Waits for a default route in the job's namespace: the last that pasta makes.
fn wait_for_way_out(
    inside: &Netlink,
    pasta: &mut Child,
    pasta_end: &OwnedFd,
) -> Result<(), NetError> {
    let until = Instant::now() + WAY_OUT;
    while !inside.list()?.default_route {
        let left = until.saturating_duration_since(Instant::now());
        let news = wait(&[inside.changes(), pasta_end.as_fd()], Some(left))?;
        if let Some(error) = ended(pasta)? {
            return Err(error);
        }
        if !news {
            return Err(NetError::Late {
                what: "pasta made no way out",
                secs: WAY_OUT.as_secs(),
            });
        }
        inside.clear()?;
    }
    Ok(())
}

/// Blocks until one is readable; false when the time is over.
fn wait(on: &[rustix::fd::BorrowedFd<'_>], limit: Option<Duration>) -> Result<bool, NetError> {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut on: Vec<_> = on
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll(&mut on, limit.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(e) => Err(NetError::io("wait for changes of the host's addresses")(
            e.into(),
        )),
    }
}

fn end_of(child: &Child) -> Result<OwnedFd, NetError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or(Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .map_err(|e| NetError::io("watch pasta")(e.into()))
}

/// That pasta has ended; what it said is in the keeper's own stderr.
fn ended(pasta: &mut Child) -> Result<Option<NetError>, NetError> {
    let status = pasta.try_wait().map_err(NetError::io("watch pasta"))?;
    Ok(status.map(|status| program_failed("pasta", &[], &status.to_string())))
}

/// Runs a program of the namespace's on a text.
fn feed(name: &'static str, program: &Path, args: &[&str], text: &str) -> Result<(), NetError> {
    let failed = || NetError::io(format!("run {name}"));
    let script = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
    let mut script = File::from(script.map_err(|e| failed()(e.into()))?);
    script.write_all(text.as_bytes()).map_err(failed())?;
    std::io::Seek::rewind(&mut script).map_err(failed())?;
    let mut run = Command::new(program);
    run.args(args).env_clear().stdin(script);
    let output = run.output().map_err(failed())?;
    if output.status.success() {
        return Ok(());
    }
    Err(program_failed(
        name,
        &output.stderr,
        &output.status.to_string(),
    ))
}

fn program_failed(program: &'static str, said: &[u8], ended: &str) -> NetError {
    let said = String::from_utf8_lossy(said);
    let shown: String = said
        .trim()
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .collect();
    let shown: String = shown.chars().take(SAID).collect();
    let said = if shown.is_empty() {
        ended.to_owned()
    } else {
        format!("{ended}: {}", shown.replace('\n', "; "))
    };
    NetError::Program { program, said }
}

fn resolver_ended() -> NetError {
    NetError::Program {
        program: "the resolver",
        said: "it ended before it began".to_owned(),
    }
}

/// Says it to the owner, over the socket that is stdout.
fn say(what: &Said, with: Option<OwnedFd>) -> Result<(), NetError> {
    let failed = || NetError::io("speak to the VM's owner");
    let packet = serde_json::to_vec(what).map_err(|e| failed()(e.into()))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<_> = with.iter().map(AsFd::as_fd).collect();
    if !rights.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(&rights));
    }
    let packet = [IoSlice::new(&packet)];
    let stdout = rustix::stdio::stdout();
    let sent = sendmsg(stdout, &packet, &mut beside, SendFlags::NOSIGNAL);
    // The tap lasts as long as who got it wants.
    drop(with);
    sent.map(drop).map_err(|e| failed()(e.into()))
}
