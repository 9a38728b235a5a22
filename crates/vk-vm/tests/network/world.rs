//! A host and a lab: two network namespaces, a line between them, and servers.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The lab's address; the host's way to everywhere leads to it.
pub(crate) const LAB: &str = "203.0.113.9";
pub(crate) const MAIN: &str = "203.0.113.1";
pub(crate) const SECOND: &str = "192.0.2.77";
pub(crate) const LINK_LOCAL: &str = "169.254.10.1";
pub(crate) const METADATA: &str = "169.254.169.254";
pub(crate) const IPV6: &str = "2001:db8::1";
/// The lab's too, until the host takes it.
pub(crate) const MOVING: &str = "198.51.100.7";
/// Metadata services of clouds at ordinary addresses; here they are the lab's.
pub(crate) const CLOUDS: [&str; 2] = ["100.100.100.200", "168.63.129.16"];
/// The host's resolver.
const RESOLVER: &str = "127.0.0.53";
/// A question that is answered with more than a packet holds has this in its name.
const LONG: &[u8] = b"long";

/// The ports of the lab, of the mirror, and of the host's servers.
pub(crate) const LAB_PORT: u16 = 8000;
pub(crate) const MIRROR_PORT: u16 = 8080;
pub(crate) const HOST_PORT: u16 = 8000;
/// By UDP, of the lab and the host.
pub(crate) const TALK_PORT: u16 = 8001;

/// What servers noticed.
#[derive(Default)]
pub(crate) struct Noticed {
    /// Connections that the host's servers have taken, and packets.
    pub(crate) host: AtomicUsize,
    /// Packets for the host's `TALK_PORT`.
    pub(crate) host_talk: AtomicUsize,
    /// Connections to the lab.
    pub(crate) lab: AtomicUsize,
    /// Packets for the lab's `TALK_PORT`.
    pub(crate) lab_talk: AtomicUsize,
    /// Transfers and questions of other classes that the host's resolver was asked.
    pub(crate) inner: AtomicUsize,
}

type Count = fn(&Noticed) -> &AtomicUsize;

/// The lab's namespace, as long as it lives.
pub(crate) struct World {
    lab: Child,
    pub(crate) noticed: Arc<Noticed>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

impl World {
    /// Makes it around this process, which is root in a namespace of its own with nothing in it, and
    /// in a mount namespace; `directory` holds what it is mounted from.
    pub(crate) fn make(directory: &Path) -> Self {
        let list = directory.join("resolv.conf");
        fs::write(&list, format!("nameserver {RESOLVER}\n")).unwrap();
        rustix::mount::mount_bind(&list, "/etc/resolv.conf").unwrap();
        // Whoever is here may ping: pasta does as the guest does.
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        let mut lab = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo made; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut made = [0; 5];
        lab.stdout.as_mut().unwrap().read_exact(&mut made).unwrap();
        let pid = lab.id().to_string();
        for line in [
            "link set lo up".to_owned(),
            "link add host0 type veth peer name lab0".to_owned(),
            format!("link set lab0 netns {pid}"),
            format!("addr add {MAIN}/24 dev host0"),
            format!("addr add {IPV6}/64 dev host0 nodad"),
            "link set host0 up".to_owned(),
            format!("route add default via {LAB}"),
            // As a VPN leads everywhere.
            format!("route add 0.0.0.0/1 via {LAB}"),
            format!("route add 128.0.0.0/1 via {LAB}"),
            "link add second0 type bridge".to_owned(),
            "link set second0 up".to_owned(),
            format!("addr add {SECOND}/24 dev second0"),
            format!("addr add {LINK_LOCAL}/16 dev second0"),
            format!("addr add {METADATA}/32 dev second0"),
        ] {
            ip(&line);
        }
        let noticed = Arc::new(Noticed::default());
        let its = Arc::clone(&noticed);
        in_namespace(lab.id(), move || {
            for line in [
                "link set lo up".to_owned(),
                format!("addr add {LAB}/24 dev lab0"),
                format!("addr add {MOVING}/32 dev lab0"),
                format!("addr add {}/32 dev lab0", CLOUDS[0]),
                format!("addr add {}/32 dev lab0", CLOUDS[1]),
                "link set lab0 up".to_owned(),
            ] {
                ip(&line);
            }
            http(("0.0.0.0", LAB_PORT), "lab", &its, |of| &of.lab);
            http(("0.0.0.0", MIRROR_PORT), "mirror", &its, |of| &of.lab);
            // Its answers come from where the guest asked: else no connection is established.
            talk((MOVING, TALK_PORT), "lab", &its, |of| &of.lab_talk);
        });
        http(("::", HOST_PORT), "host", &noticed, |of| &of.host);
        http(("::", 80), "host", &noticed, |of| &of.host);
        http((SECOND, 53), "host", &noticed, |of| &of.host);
        talk((SECOND, 53), "host", &noticed, |of| &of.host);
        talk(("::", TALK_PORT), "host", &noticed, |of| &of.host_talk);
        resolver(&noticed);
        Self { lab, noticed }
    }

    /// A socket that listens at the lab, for whoever is on the host.
    pub(crate) fn listener_at_lab(&self, port: u16) -> TcpListener {
        let (send, made) = std::sync::mpsc::channel();
        in_namespace(self.lab.id(), move || {
            send.send(TcpListener::bind(("0.0.0.0", port)).unwrap())
                .unwrap();
        });
        made.recv().unwrap()
    }

    /// Whether the host itself is answered there: what a guest is denied must be there.
    pub(crate) fn answers(&self, address: &str, port: u16) -> bool {
        let before = self.noticed.host.load(Ordering::SeqCst);
        let answer = self.asked(address, port);
        self.noticed.host.store(before, Ordering::SeqCst);
        answer.ends_with("host")
    }

    /// What the host itself is answered there.
    pub(crate) fn asked(&self, address: &str, port: u16) -> String {
        let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        let mut answer = String::new();
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

pub(crate) fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(status.success(), "ip {line}");
}

/// Does it in a thread that is in the network namespace of a process.
fn in_namespace(pid: u32, what: impl FnOnce() + Send + 'static) {
    let namespace = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let done = thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        what();
    });
    done.join().unwrap();
}

/// Answers every request with `body`, and counts it.
fn http(at: (&str, u16), body: &'static str, noticed: &Arc<Noticed>, count: Count) {
    let listener = TcpListener::bind(at).unwrap();
    let noticed = Arc::clone(noticed);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count(&noticed).fetch_add(1, Ordering::SeqCst);
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            // Whoever asked may be gone.
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}");
        }
    });
}

/// Answers every packet with `body`, and counts it.
fn talk(at: (&str, u16), body: &'static str, noticed: &Arc<Noticed>, count: Count) {
    let socket = UdpSocket::bind(at).unwrap();
    let noticed = Arc::clone(noticed);
    thread::spawn(move || {
        let mut packet = [0; 4096];
        loop {
            // What an earlier answer met on its way is an error too.
            let Ok((_, from)) = socket.recv_from(&mut packet) else {
                continue;
            };
            count(&noticed).fetch_add(1, Ordering::SeqCst);
            let _ = socket.send_to(body.as_bytes(), from);
        }
    });
}

/// A resolver on the host's loopback that knows the lab's address, by any name of `example`.
fn resolver(noticed: &Arc<Noticed>) {
    let udp = UdpSocket::bind((RESOLVER, 53)).unwrap();
    let tcp = TcpListener::bind((RESOLVER, 53)).unwrap();
    let noticed = Arc::clone(noticed);
    let noticed_by_tcp = Arc::clone(&noticed);
    thread::spawn(move || {
        let mut packet = [0; 4096];
        loop {
            let (length, from) = udp.recv_from(&mut packet).unwrap();
            let _ = udp.send_to(&answer(&packet[..length], false, &noticed), from);
        }
    });
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question, true, &noticed_by_tcp);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&length[..], &answer].concat());
        }
    });
}

/// One address for a question of one, none for others; cut short where it is long and no stream.
fn answer(question: &[u8], stream: bool, noticed: &Noticed) -> Vec<u8> {
    let name = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let kind = [question[name], question[name + 1]];
    let is_transfer = matches!(kind, [0, 251 | 252]);
    if is_transfer || question[name + 2..name + 4] != [0, 1] {
        noticed.inner.fetch_add(1, Ordering::SeqCst);
    }
    let known = question[12..name].ends_with(b"\x07example\0");
    let long = question.windows(LONG.len()).any(|part| part == LONG);
    let cut = long && !stream;
    let count = u8::from(kind == [0, 1] && known && !cut);
    let flags = if cut { 0x86 } else { 0x84 };
    let code = if known { 0x80 } else { 0x83 };
    let mut out = question[..2].to_vec();
    out.extend([flags, code, 0, 1, 0, count, 0, 0, 0, 0]);
    out.extend(&question[12..name + 4]);
    if count == 1 {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        out.extend(LAB.parse::<std::net::Ipv4Addr>().unwrap().octets());
    }
    out
}
