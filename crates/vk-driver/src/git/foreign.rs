//! Servers other than the job's own: what a repository names there is fetched as anybody may, without
//! the job's token, and never from this host itself or the link it is on.

use std::net::IpAddr;

use vk_oci::{is_no_servers, means_this_host};

use super::credential::{Credential, Way, origin};
use super::host::{HostGit, PROXIES};

/// The first git that can be told at which address a name is (`http.curloptResolve`).
const PINS: (u32, u32) = (2, 37);

/// What git is told on the way to such a server.
///
/// # Errors
/// Why this node does not go there.
pub(super) async fn settings(url: &str, own: &Credential, git: &HostGit) -> Result<Way, String> {
    let mut settings = vec![
        ("credential.helper".to_owned(), String::new()),
        ("http.followRedirects".to_owned(), "false".to_owned()),
    ];
    if let Some(looked) = look(url, own.origin()).await? {
        let pin = match looked.host.parse::<IpAddr>() {
            Ok(_) => None,
            Err(_) => Some(pin(&looked, git.version().await)?),
        };
        settings.extend(pin.map(|pin| ("http.curloptResolve".to_owned(), pin)));
    }
    Ok(Way {
        settings,
        places: Vec::new(),
    })
}

/// What was looked at is where git goes, whatever the name means a moment later: by a git that knows of
/// that. An older one passes over the setting without a word.
fn pin(looked: &Looked, version: Option<(u32, u32)>) -> Result<String, String> {
    let Looked { host, port, at } = looked;
    if version.is_none_or(|version| version < PINS) {
        let (major, minor) = version.unwrap_or_default();
        return Err(format!(
            "the node's git is {major}.{minor}, which cannot hold on to an address that was looked \
             at: repositories of other servers than the job's need git {}.{} or later there",
            PINS.0, PINS.1
        ));
    }
    let list: Vec<_> = at.iter().map(ToString::to_string).collect();
    Ok(format!("{host}:{port}:{}", list.join(",")))
}

/// A server that was looked up, and may be gone to.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) host: String,
    pub(super) port: u16,
    /// Its addresses, one at least.
    pub(super) at: Vec<IpAddr>,
}

/// Looks up where a URL leads that another server than the job's own names, and whether this node goes
/// there; none where a proxy decides the way.
///
/// # Errors
/// Why this node does not go there.
pub(super) async fn look(url: &str, own: &str) -> Result<Option<Looked>, String> {
    // Where to go without a proxy is no proxy.
    let mut proxies = PROXIES
        .iter()
        .filter(|name| !name.eq_ignore_ascii_case("no_proxy"));
    if proxies.any(|name| std::env::var_os(name).is_some_and(|proxy| !proxy.is_empty())) {
        return Ok(None);
    }
    let (host, port) = host_and_port(url).ok_or_else(|| format!("{url:?} names no host"))?;
    let at = resolve(&host, port).await?;
    if at.is_empty() {
        return Err(format!("{host} is not found"));
    }
    if let Some(address) = at.iter().find(|address| is_no_servers(**address)) {
        return Err(format!("{host} is {address}, where no server is"));
    }
    if let Some(address) = of_this_host(&at)? {
        // A trial has its GitLab on its own machine, and everything else there, too.
        let (own_host, own_port) = host_and_port(own).unwrap_or_default();
        let own = resolve(&own_host, own_port).await.unwrap_or_default();
        if of_this_host(&own)?.is_none() {
            return Err(format!(
                "{host} is {address}, an address of the node or of its link: jobs' sources do not \
                 come from there"
            ));
        }
    }
    Ok(Some(Looked { host, port, at }))
}

/// The first of the addresses that is this host's or of its link.
fn of_this_host(addresses: &[IpAddr]) -> Result<Option<IpAddr>, String> {
    for address in addresses {
        if is_of_this_host(*address)? {
            return Ok(Some(*address));
        }
    }
    Ok(None)
}

async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| format!("{host} is not found: {error}"))?;
    Ok(found.map(|at| at.ip()).collect())
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let origin = origin(url)?;
    let (scheme, rest) = origin.split_once("://")?;
    let default = if scheme == "https" { 443 } else { 80 };
    if let Some(rest) = rest.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = port
            .strip_prefix(':')
            .map_or(Some(default), |port| port.parse().ok());
        return Some((host.to_owned(), port?));
    }
    match rest.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((rest.to_owned(), default)),
    }
}

/// Whether an address is this host's, or one that means its own link.
fn is_of_this_host(address: IpAddr) -> Result<bool, String> {
    let address = address.to_canonical();
    if means_this_host(address) {
        return Ok(true);
    }
    vk_net::is_local(address)
        .map_err(|error| format!("whether {address} is the node's is not known: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk_hub_proto::Secret;

    #[test]
    fn addresses_of_links_and_of_clouds_metadata_are_no_servers() {
        for never in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
        ] {
            assert!(is_no_servers(never.parse().unwrap()), "{never}");
        }
        for server in ["127.0.0.1", "192.0.2.1", "2001:db8::1"] {
            assert!(!is_no_servers(server.parse().unwrap()), "{server}");
        }
    }

    #[test]
    fn addresses_of_the_host_and_its_link_are_known() {
        for own in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "fe80::1",
            "224.0.0.1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_of_this_host(own.parse().unwrap()).unwrap(), "{own}");
        }
        for other in ["192.0.2.7", "198.51.100.1", "2001:db8::1"] {
            assert!(!is_of_this_host(other.parse().unwrap()).unwrap(), "{other}");
        }
    }

    #[test]
    fn hosts_and_ports_are_read() {
        for (url, expected) in [
            ("https://h/p.git", ("h", 443)),
            ("http://h:8080/p", ("h", 8080)),
            ("http://[::1]:81/p", ("::1", 81)),
            ("https://[2001:db8::1]/p", ("2001:db8::1", 443)),
        ] {
            let (host, port) = host_and_port(url).unwrap();
            assert_eq!((host.as_str(), port), expected);
        }
        assert_eq!(host_and_port("http://h:99999/p"), None);
    }

    #[test]
    fn a_git_that_would_not_hold_on_to_an_address_is_refused_by_its_version() {
        let looked = Looked {
            host: "git.example.com".to_owned(),
            port: 443,
            at: ["198.51.100.9", "2001:db8::9"]
                .map(|at| at.parse().unwrap())
                .to_vec(),
        };
        let expected = "git.example.com:443:198.51.100.9,2001:db8::9";
        for fine in [(2, 37), (2, 39), (3, 0)] {
            assert_eq!(pin(&looked, Some(fine)).unwrap(), expected, "{fine:?}");
        }
        for old in [Some((2, 36)), Some((1, 99)), None] {
            let why = pin(&looked, old).unwrap_err();
            assert!(why.contains("need git 2.37 or later"), "{why}");
        }
    }

    #[tokio::test]
    async fn the_nodes_git_tells_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let git = HostGit::new(dir.path().join("home")).unwrap();
        assert!(git.version().await.is_some_and(|version| version > (1, 0)));
    }

    #[tokio::test]
    async fn a_submodule_on_the_node_itself_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let token = Secret::from("t");
        let url = "https://192.0.2.10/g/p.git";
        let git = HostGit::new(dir.path().join("home")).unwrap();
        let own = Credential::new(dir.path().join("c"), url, &token, None).unwrap();
        for (bad, why) in [
            ("http://127.0.0.1:8080/x.git", "do not come from there"),
            ("http://169.254.169.254/latest", "where no server is"),
        ] {
            let refused = settings(bad, &own, &git).await.unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        // A trial's GitLab is on the node; the clouds' own addresses are no part of the trial.
        let trial = dir.path().join("d");
        let trial = Credential::new(trial, "http://127.0.0.1:8080/g/p.git", &token, None).unwrap();
        assert!(
            settings("http://127.0.0.1:8081/x.git", &trial, &git)
                .await
                .is_ok()
        );
        assert!(
            settings("http://169.254.169.254/latest", &trial, &git)
                .await
                .is_err()
        );
        let fine = settings("http://198.51.100.9/x.git", &own, &git)
            .await
            .unwrap();
        let has =
            |name: &str, value: &str| fine.settings.contains(&(name.to_owned(), value.to_owned()));
        assert!(has("credential.helper", "") && has("http.followRedirects", "false"));
        assert!(
            !fine
                .settings
                .iter()
                .any(|(name, _)| name.contains("helper") && name.contains("192"))
        );
    }
}
