//! `join` and `leave`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, bail};
use vk_hub_client::enrolment::{Directory, Enrolment};
use vk_hub_client::{EnrolmentToken, HubUrl, enroll_relay};

use crate::config::Config;
use crate::state::StateDir;

/// A token on standard input is no longer.
const TOKEN_BYTES: u64 = 4096;

/// A token comes by standard input alone: everybody on the host reads an argument.
///
/// # Errors
/// It was given as an argument.
pub(crate) fn refuse_argument(token: &str) -> anyhow::Result<()> {
    if token != "-" {
        bail!(
            "a token in an argument can be read by everybody on this host: give `--token -`, and the \
             token on standard input"
        );
    }
    Ok(())
}

/// Enrols with a hub by the token that `input` holds (ENR-02 to ENR-05, ENR-07, ENR-09, ENR-17, ENR-19).
///
/// # Errors
/// See the message: it says what to do.
pub(crate) async fn join(
    config: &Config,
    hub: &str,
    input: impl Read,
    ca: Option<&Path>,
    replace: bool,
) -> anyhow::Result<()> {
    let url: HubUrl = hub.parse()?;
    let state = StateDir::open(&config.state_dir)?;
    let directory = Directory::at(config.hub_dir());
    if directory.is_enrolled() && !replace {
        bail!("this daemon is enrolled already: leave first, or join with --replace");
    }
    refuse_while_jobs(&state, config, "join")?;
    let mut text = String::new();
    input
        .take(TOKEN_BYTES)
        .read_to_string(&mut text)
        .context("cannot read the enrolment token from standard input")?;
    let token: EnrolmentToken = text.parse()?;
    let ca = match ca {
        Some(path) => {
            Some(std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?)
        }
        None => None,
    };
    let key = directory.joining_key()?;
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let joined = enroll_relay(&url, &token, ca, &key, &host).await?;
    let enrolment = Enrolment {
        hub: url,
        id: joined.id,
        key,
        ca_pem: joined.ca_pem,
    };
    directory.save(&enrolment)?;
    println!("enrolled with {} as relay {}", enrolment.hub, enrolment.id);
    Ok(())
}

/// Forgets the hub (ENR-06, ENR-08, ENR-18).
///
/// # Errors
/// A state file holds a job, or the daemon runs.
pub(crate) fn leave(config: &Config) -> anyhow::Result<()> {
    let state = StateDir::open(&config.state_dir)?;
    refuse_while_jobs(&state, config, "leave")?;
    let directory = Directory::at(config.hub_dir());
    if !directory.is_enrolled() {
        println!("this daemon is not enrolled with a hub: there is nothing to leave");
        return Ok(());
    }
    directory.remove()?;
    println!("left; an operator of the hub removes the relay with `vk-hub relays remove`");
    Ok(())
}

/// A recorded job belongs to the relay that took it (STATE-17).
fn refuse_while_jobs(state: &StateDir, config: &Config, what: &str) -> anyhow::Result<()> {
    for runner in state.runners()? {
        let path = config.state_dir.join(format!("{runner}.json"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let jobs = serde_json::from_str::<serde_json::Value>(&text).ok();
        let jobs = jobs
            .as_ref()
            .and_then(|file| file.get("jobs")?.as_array().map(Vec::len));
        match jobs {
            Some(0) => {}
            Some(jobs) => bail!(
                "cannot {what}: {} holds {jobs} job(s); let them end, or remove the file, which \
                 gives them up to GitLab's timeout",
                path.display()
            ),
            None => bail!("cannot {what}: {} is no state file", path.display()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> Config {
        let path = dir.join("config.toml");
        let text = "state_dir = 'state'\n[gitlab]\nurl = 'https://gitlab.example.com'\n\
                    [[runners]]\nname = 'ci'\ntoken = 'glrt-t1_abcdefghijkl'\n";
        std::fs::write(&path, text).unwrap();
        Config::read(&path).unwrap().0
    }

    fn enrolled(config: &Config) -> Directory {
        let directory = Directory::at(config.hub_dir());
        drop(StateDir::open(&config.state_dir).unwrap());
        let enrolment = Enrolment {
            hub: "https://hub.example.com".parse().unwrap(),
            id: vk_hub_proto::RelayId::from_bytes([1; 16]),
            key: vk_hub_client::Key::generate().unwrap(),
            ca_pem: None,
        };
        directory.save(&enrolment).unwrap();
        directory
    }

    /// ENR-02
    #[test]
    fn a_token_in_an_argument_is_refused_and_not_repeated() {
        let error = refuse_argument("s3cret.x").unwrap_err().to_string();
        assert!(error.contains("--token -") && !error.contains("s3cret"));
        refuse_argument("-").unwrap();
    }

    /// ENR-19
    #[test]
    fn leaving_is_refused_while_the_daemon_runs() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let directory = enrolled(&config);
        let running = StateDir::open(&config.state_dir).unwrap();
        let error = leave(&config).unwrap_err().to_string();
        assert!(
            error.contains("another vk-gitlab") && directory.is_enrolled(),
            "{error}"
        );
        drop(running);
        leave(&config).unwrap();
    }

    /// ENR-06, ENR-08, ENR-10, STATE-17
    #[test]
    fn leaving_is_refused_while_a_state_file_holds_a_job() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let directory = enrolled(&config);
        let file = config.state_dir.join("ci.json");
        std::fs::write(&file, r#"{"relay":"x","jobs":[{}]}"#).unwrap();
        let error = leave(&config).unwrap_err().to_string();
        assert!(
            error.contains("1 job(s)") && directory.is_enrolled(),
            "{error}"
        );
        std::fs::remove_file(&file).unwrap();
        leave(&config).unwrap();
        assert!(!directory.is_enrolled());
    }

    /// ENR-07, ENR-09, ENR-17, ENR-19
    #[tokio::test]
    async fn joining_is_refused_when_enrolled_when_jobs_are_held_and_while_the_daemon_runs() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        enrolled(&config);
        let try_join = async |url: &str, replace: bool| {
            join(&config, url, &b"not-a-token"[..], None, replace)
                .await
                .unwrap_err()
                .to_string()
        };
        let url = "https://127.0.0.1:1";
        assert!(try_join(url, false).await.contains("--replace"));
        assert!(
            try_join("http://hub.example.com", true)
                .await
                .contains("loopback")
        );
        assert!(try_join(url, true).await.contains("no enrolment token"));
        std::fs::write(config.state_dir.join("ci.json"), r#"{"jobs":[{}]}"#).unwrap();
        assert!(try_join(url, true).await.contains("1 job(s)"));
        let running = StateDir::open(&config.state_dir).unwrap();
        assert!(try_join(url, true).await.contains("another vk-gitlab"));
        drop(running);
    }
}
