//! A relay's messages, cut to what the hub keeps.

use vk_hub_proto::display::sanitized;
use vk_hub_proto::limit::INVENTORY_LIST;
use vk_hub_proto::relay_session::{RelayMessage, RelayReport, RunnerBeat};

/// Bytes of a server's URL at most.
const URL_BYTES: usize = 2048;

/// A message of a relay's, after its handshake.
#[derive(Clone, Debug, PartialEq)]
pub enum FromRelay {
    /// What the daemon is.
    Report(Box<RelayReport>),
    /// How its runners are.
    Heartbeat(Vec<RunnerBeat>),
}

impl FromRelay {
    /// A wire message. Nothing for messages that do not concern the core: the handshake's, and kinds
    /// this version does not know.
    ///
    /// # Errors
    /// A report whose server cannot be one; the text says why.
    pub fn read(message: RelayMessage) -> Result<Option<FromRelay>, &'static str> {
        match message {
            RelayMessage::Report(report) => bounded(*report).map(Some),
            RelayMessage::Heartbeat { mut runners } => {
                runners.truncate(INVENTORY_LIST);
                for runner in &mut runners {
                    runner.name = sanitized(&runner.name);
                }
                Ok(Some(FromRelay::Heartbeat(runners)))
            }
            RelayMessage::Hello { .. } | RelayMessage::Auth { .. } | RelayMessage::Other => {
                Ok(None)
            }
        }
    }
}

fn bounded(mut report: RelayReport) -> Result<FromRelay, &'static str> {
    let url = &report.server.url;
    if url.is_empty() || url.len() > URL_BYTES || url.chars().any(|c| c.is_control() || c == ' ') {
        return Err("the reported server's URL is empty, too long or no URL");
    }
    report.version = sanitized(&report.version);
    report.host = sanitized(&report.host);
    report.system_id = sanitized(&report.system_id);
    report.runners.truncate(INVENTORY_LIST);
    for runner in &mut report.runners {
        runner.name = sanitized(&runner.name);
    }
    Ok(FromRelay::Report(Box::new(report)))
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::relay_session::RelayServer;

    use super::*;

    fn report(url: &str, host: &str) -> RelayMessage {
        RelayMessage::Report(Box::new(RelayReport {
            version: String::new(),
            host: host.to_owned(),
            system_id: String::new(),
            concurrent: 1,
            server: RelayServer {
                url: url.to_owned(),
                spki_sha256: None,
            },
            runners: Vec::new(),
        }))
    }

    #[test]
    fn a_report_is_cleaned_for_operators_and_a_url_that_is_none_refused() {
        let read = FromRelay::read(report("https://gitlab.example.com", "h\u{1b}[31m"));
        let Ok(Some(FromRelay::Report(read))) = read else {
            panic!("{read:?}")
        };
        assert_eq!(read.host, "h[31m");
        let long = "x".repeat(URL_BYTES + 1);
        for bad in ["", "https://a b", "https://a\n", &long] {
            assert!(FromRelay::read(report(bad, "h")).is_err(), "{bad:?}");
        }
    }
}
