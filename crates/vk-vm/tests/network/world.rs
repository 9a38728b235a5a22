//! A host and a lab: two network namespaces, a line between them, and servers.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
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
/// The host's resolver.
const RESOLVER: &str = "127.0.0.53";
/// A question that is answered with more than a packet holds has this in its name.
const LONG: &[u8] = b"long";

/// The ports of the lab, of the mirror, and of the host's servers.
pub(crate) const LAB_PORT: u16 = 8000;
pub(crate) const MIRROR_PORT: u16 = 8080;
pub(crate) const HOST_PORT: u16 = 8000;

/// The lab's namespace, as long as it lives.
pub(crate) struct World {
    lab: Child,
    /// Connections that the host's servers have taken.
    pub(crate) taken: Arc<AtomicUsize>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.lab.kill();
        let _ = self.lab.wait();
    }
}

impl World {
    /// Makes it around this process, which is root in a namespace of its own with nothing in it.
    pub(crate) fn make() -> Self {
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
            "link add second0 type bridge".to_owned(),
            "link set second0 up".to_owned(),
            format!("addr add {SECOND}/24 dev second0"),
            format!("addr add {LINK_LOCAL}/16 dev second0"),
            format!("addr add {METADATA}/32 dev second0"),
        ] {
            ip(&line);
        }
        let taken = Arc::new(AtomicUsize::new(0));
        in_namespace(lab.id(), || {
            for line in [
                "link set lo up".to_owned(),
                format!("addr add {LAB}/24 dev lab0"),
                format!("addr add {MOVING}/32 dev lab0"),
                "link set lab0 up".to_owned(),
            ] {
                ip(&line);
            }
            let nobody = Arc::new(AtomicUsize::new(0));
            http(("0.0.0.0", LAB_PORT), "lab", &nobody);
            http(("0.0.0.0", MIRROR_PORT), "mirror", &nobody);
        });
        http(("::", HOST_PORT), "host", &taken);
        http(("::", 80), "host", &taken);
        http((SECOND, 53), "host", &taken);
        resolver();
        Self { lab, taken }
    }

    /// Whether the host itself is answered there: what a guest is denied must be there.
    pub(crate) fn answers(&self, address: &str, port: u16) -> bool {
        let before = self.taken.load(Ordering::SeqCst);
        let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        let mut answer = String::new();
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).unwrap();
        self.taken.store(before, Ordering::SeqCst);
        answer.ends_with("host")
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
fn http(at: (&str, u16), body: &'static str, taken: &Arc<AtomicUsize>) {
    let listener = TcpListener::bind(at).unwrap();
    let taken = Arc::clone(taken);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            taken.fetch_add(1, Ordering::SeqCst);
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

/// A resolver on the host's loopback that knows one address: the lab's.
fn resolver() {
    let udp = UdpSocket::bind((RESOLVER, 53)).unwrap();
    let tcp = TcpListener::bind((RESOLVER, 53)).unwrap();
    thread::spawn(move || {
        let mut packet = [0; 4096];
        loop {
            let (length, from) = udp.recv_from(&mut packet).unwrap();
            let _ = udp.send_to(&answer(&packet[..length], false), from);
        }
    });
    thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question, true);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            let _ = stream.write_all(&[&length[..], &answer].concat());
        }
    });
}

/// One address for a question of one, none for others; cut short where it is long and no stream.
fn answer(question: &[u8], stream: bool) -> Vec<u8> {
    let name = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let wants_address = question[name..name + 2] == [0, 1];
    let long = question.windows(LONG.len()).any(|part| part == LONG);
    let cut = long && !stream;
    let count = u8::from(wants_address && !cut);
    let flags = if cut { 0x86 } else { 0x84 };
    let mut out = question[..2].to_vec();
    out.extend([flags, 0x80, 0, 1, 0, count, 0, 0, 0, 0]);
    out.extend(&question[12..name + 4]);
    if count == 1 {
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        out.extend(LAB.parse::<std::net::Ipv4Addr>().unwrap().octets());
    }
    out
}
