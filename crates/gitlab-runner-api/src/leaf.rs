//! The certificate that GitLab showed last.

use std::sync::Arc;

use tokio::sync::watch;

/// The leaf certificate of the last answer that came over TLS, as DER: shared by the clients of one
/// GitLab. Nothing before the first such answer, or over plain http.
#[derive(Clone, Debug)]
pub struct Leaf(Arc<watch::Sender<Option<Vec<u8>>>>);

impl Default for Leaf {
    fn default() -> Leaf {
        Leaf(Arc::new(watch::Sender::new(None)))
    }
}

impl Leaf {
    /// Sees the certificate, and every other one that takes its place.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Vec<u8>>> {
        self.0.subscribe()
    }

    pub(crate) fn saw(&self, der: &[u8]) {
        self.0.send_if_modified(|seen| {
            let new = seen.as_deref() != Some(der);
            if new {
                *seen = Some(der.to_vec());
            }
            new
        });
    }
}
