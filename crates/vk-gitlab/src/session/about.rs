//! What the daemon is, apart from its runners.

use tokio::sync::watch;
use vk_hub_client::spki_sha256;
use vk_hub_proto::hex::Hex;
use vk_hub_proto::relay_session::{RelayReport, RelayRunner, RelayServer};

/// What a report says apart from the runners.
#[derive(Clone, Debug)]
pub struct About {
    /// The program's version.
    pub version: String,
    /// Its host.
    pub host: String,
    /// Its system ID towards GitLab.
    pub system_id: String,
    /// GitLab's URL, as configured.
    pub url: String,
    /// Whether that is https.
    pub tls: bool,
    /// The certificate GitLab showed last.
    pub leaf: watch::Receiver<Option<Vec<u8>>>,
}

impl About {
    /// The report (SESS-03 to SESS-05); none before GitLab's key is known.
    #[must_use]
    pub fn report(&self, concurrent: u32, runners: Vec<RelayRunner>) -> Option<RelayReport> {
        let server = self.server()?;
        Some(RelayReport {
            version: self.version.clone(),
            host: self.host.clone(),
            system_id: self.system_id.clone(),
            concurrent,
            server,
            runners,
        })
    }

    fn server(&self) -> Option<RelayServer> {
        let spki_sha256 = match self.tls {
            false => None,
            true => Some(Hex(spki_sha256(self.leaf.borrow().as_deref()?)?)),
        };
        let url = self.url.clone();
        Some(RelayServer { url, spki_sha256 })
    }
}
