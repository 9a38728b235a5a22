//! The hub, the clock and the node's daemon.

use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use vk_hub_client::enrolment::Enrolment;
use vk_hub_proto::NodeId;
use vk_node::admin::{self, CallError};
use vk_node::config::Config;
use vk_node::state_dir::StateDir;

use super::{Found, chain};

/// How long a hub may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The head of an answer at most.
const HEAD_BYTES: u64 = 16 << 10;
/// How far the clocks may be apart: job tokens and leases are told in seconds.
const APART: Duration = Duration::from_secs(5);

const JOIN: &str = "vk-hub token create | vk node join https://HUB:8443 --token -";

fn is_there(config: &Config) -> bool {
    config.state_dir.join("node").exists()
}

/// The state directory, which a check does not make.
fn state(config: &Config) -> Result<StateDir, Found> {
    if !is_there(config) {
        return Err(Found::skipped("this host has not joined a hub"));
    }
    StateDir::look(&config.state_dir)
        .map_err(|error| Found::fail(chain(error), "see the check of the disk"))
}

fn enrolment(config: &Config) -> Result<Option<Enrolment<NodeId>>, Found> {
    if !is_there(config) {
        return Ok(None);
    }
    let loaded = state(config)?.enrolment().load::<NodeId>();
    loaded.map_err(|error| Found::fail(chain(error), "join anew with --replace"))
}

pub(super) async fn hub(config: &Config) -> Found {
    let enrolment = match enrolment(config) {
        Ok(Some(enrolment)) => enrolment,
        Ok(None) => return Found::fail("this host has not joined a hub", JOIN),
        Err(found) => return found,
    };
    let dialed = match enrolment.dialer() {
        Ok(dialer) => dialer.dial().await.map(drop).map_err(chain),
        Err(error) => Err(chain(error)),
    };
    match dialed {
        Ok(()) => Found::ok(format!("{}, as node {}", enrolment.hub, enrolment.id)),
        Err(why) => Found::fail(
            why,
            "is the hub up, and does this host reach it? A node dials its hub, never the other way",
        ),
    }
}

pub(super) async fn clock(config: &Config) -> Found {
    let enrolment = match enrolment(config) {
        Ok(Some(enrolment)) => enrolment,
        Ok(None) => return Found::skipped("there is no hub to compare it with"),
        Err(found) => return found,
    };
    let Ok(theirs) = timeout(ANSWER, hubs_clock(&enrolment)).await else {
        return Found::skipped("the hub does not say its time");
    };
    let Some(theirs) = theirs else {
        return Found::skipped("the hub does not say its time");
    };
    apart(SystemTime::now(), theirs)
}

fn apart(ours: SystemTime, theirs: SystemTime) -> Found {
    let apart = ours
        .duration_since(theirs)
        .unwrap_or_else(|error| error.duration());
    if apart > APART {
        let what = format!("{} s from the hub's", apart.as_secs());
        let remedy = "run an NTP client on both: what expires, expires by the clock";
        return Found::warn(what, remedy);
    }
    Found::ok(format!("within {} s of the hub's", APART.as_secs()))
}

/// The `Date` of any answer of the hub's.
async fn hubs_clock(enrolment: &Enrolment<NodeId>) -> Option<SystemTime> {
    let mut connection = enrolment.dialer().ok()?.dial().await.ok()?;
    let host = enrolment.hub.authority();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let stream = &mut connection.stream;
    stream.write_all(request.as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    let mut answer = Vec::new();
    // Whoever cuts the connection off may have said enough.
    let _ = stream.take(HEAD_BYTES).read_to_end(&mut answer).await;
    date(&String::from_utf8_lossy(&answer))
}

fn date(head: &str) -> Option<SystemTime> {
    let lines = head.lines().take_while(|line| !line.is_empty());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(name, _)| name.eq_ignore_ascii_case("date"))?;
    httpdate::parse_http_date(value.trim()).ok()
}

pub(super) async fn daemon(config: &Config) -> Found {
    let state = match state(config) {
        Ok(state) => state,
        Err(found) => return found,
    };
    match admin::status(&state).await {
        Ok(status) if status.connected => Found::ok(format!("runs, {} jobs", status.jobs)),
        Ok(_) => Found::fail(
            "it runs, and has no session with its hub",
            "its log says why: journalctl -u vk-node",
        ),
        Err(CallError::NotRunning { .. }) => {
            Found::warn("it does not run", "vk node run, or systemctl start vk-node")
        }
        Err(error) => Found::fail(chain(error), "its log says why: journalctl -u vk-node"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncBufReadExt as _;
    use tokio::net::TcpListener;

    use super::super::Verdict;
    use super::*;

    /// What the check of the clock finds on a host that has joined a hub, which answers with these
    /// lines.
    async fn clock_beside(lines: &str) -> Found {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        std::fs::write(&file, "state_dir = \"state\"\n").unwrap();
        let config = Config::read(Some(&file)).unwrap();
        let state = StateDir::open(&config.state_dir).unwrap();
        let enrolment = Enrolment {
            hub: format!("http://{at}").parse().unwrap(),
            id: NodeId::from_bytes([7; 16]),
            key: state.enrolment().joining_key().unwrap(),
            ca_pem: None,
        };
        state.enrolment().save(&enrolment).unwrap();
        let hub = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = tokio::io::BufReader::new(stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                assert_ne!(stream.read_line(&mut line).await.unwrap(), 0);
            }
            let answer = format!("HTTP/1.1 404 Not Found\r\n{lines}content-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (found, ()) = tokio::join!(clock(&config), hub);
        found
    }

    #[tokio::test]
    async fn a_hub_with_another_time_is_warned_of() {
        let date = |time| format!("date: {}\r\n", httpdate::fmt_http_date(time));
        let hour = Duration::from_secs(3600);
        for theirs in [SystemTime::now() - hour, SystemTime::now() + hour] {
            let found = clock_beside(&date(theirs)).await;
            assert_eq!(found.verdict, Verdict::Warn, "{}", found.what);
            let (secs, rest) = found.what.split_once(' ').unwrap();
            assert_eq!(rest, "s from the hub's");
            let secs: u64 = secs.parse().unwrap();
            assert!((3300..3900).contains(&secs), "{secs}");
        }
        let found = clock_beside("").await;
        assert_eq!(found.verdict, Verdict::Skipped, "{}", found.what);
        assert_eq!(found.what, "the hub does not say its time");
    }

    #[test]
    fn the_hubs_time_is_its_answers_date() {
        let head = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\ndate: Thu, 01 Jan 1970 00:01:40 GMT\r\n\r\n";
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert_eq!(date(head), Some(then));
        assert_eq!(
            date("HTTP/1.1 200 OK\r\n\r\nDate: Thu, 01 Jan 1970 00:01:40 GMT"),
            None
        );
        assert_eq!(date("HTTP/1.1 200 OK\r\nDate: today\r\n\r\n"), None);
    }

    #[test]
    fn a_clock_off_either_way_is_told_with_how_far_and_what_to_do() {
        let theirs = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for off in [0, 5] {
            for ours in [
                theirs + Duration::from_secs(off),
                theirs - Duration::from_secs(off),
            ] {
                assert_eq!(apart(ours, theirs).verdict, Verdict::Ok, "{off}");
            }
        }
        for ours in [
            theirs + Duration::from_secs(90),
            theirs - Duration::from_secs(90),
        ] {
            let found = apart(ours, theirs);
            assert_eq!(found.verdict, Verdict::Warn);
            assert_eq!(found.what, "90 s from the hub's");
            assert!(found.remedy.contains("NTP"), "{}", found.remedy);
        }
    }
}
