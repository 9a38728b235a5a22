//! Waiting for a registry: not in silence, and not for long where the image is here and a later
//! policy takes it as it is.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use vk_oci::Reference;

use super::{Progress, PullPolicy};
use crate::error::Error;

/// How long a registry is waited for. How often it is tried, and how long a connection may take, is
/// its client's.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Before it is first told that there is no answer yet; each further word comes when three times
    /// as long was waited.
    pub word: Duration,
    /// Before the next policy, where the image is on this host and that policy takes it as it is. A
    /// network that swallows packets costs one try of a connection and half of another.
    pub fallback: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            word: Duration::from_secs(5),
            fallback: Duration::from_secs(15),
        }
    }
}

impl Patience {
    /// What a registry answers to `asking` for an image; nothing after a time where there is another
    /// policy to fall back to.
    ///
    /// # Errors
    /// The registry's, or that it gave no answer in time.
    pub(super) async fn answer<T>(
        self,
        image: &Reference,
        fallback: Option<PullPolicy>,
        progress: &(dyn Fn(Progress) + Send + Sync),
        asking: impl Future<Output = Result<T, vk_oci::Error>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let mut asking = std::pin::pin!(asking);
        let mut word = self.word;
        loop {
            let given_up = async {
                match fallback {
                    Some(_) => sleep_until(began + self.fallback).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut asking => return Ok(answer?),
                () = sleep_until(began + word) => progress(Progress::Waiting {
                    registry: image.registry().to_owned(),
                    waited: word,
                    then: fallback.map(|next| (self.fallback, next)),
                }),
                () = given_up => return Err(Error::NoAnswer {
                    image: image.familiar(),
                    registry: image.registry().to_owned(),
                    within: self.fallback,
                }),
            }
            word = word.saturating_mul(3);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::sync::Mutex;

    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    use vk_oci::{Client, Config, Digest, Platform};

    use super::*;
    use crate::names::Named;
    use crate::pull::Puller;
    use crate::store::Store;

    /// An address of this host where nobody answers a connection, as in a network that swallows
    /// packets: its queue is full, and the kernel lets go of what comes then.
    struct Hole {
        address: SocketAddr,
        _listener: TcpListener,
        _queued: Vec<TcpStream>,
    }

    impl Hole {
        fn open() -> Self {
            let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
            listen(&listener, 0).unwrap();
            let listener = TcpListener::from(listener);
            let address = listener.local_addr().unwrap();
            let mut queued = Vec::new();
            while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
                queued.push(one);
                assert!(queued.len() < 64, "the queue is never full");
            }
            Self {
                address,
                _listener: listener,
                _queued: queued,
            }
        }
    }

    fn tar() -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        tar.append_data(&mut header, "file", &b"x"[..]).unwrap();
        tar.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_registry_that_swallows_packets_holds_up_no_image_that_is_here() {
        let hole = Hole::open();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let lease = store
            .import_stream(&tar()[..], "local", &Platform::default())
            .unwrap();
        let name: Reference = format!("{}/app:1", hole.address).parse().unwrap();
        let named = Named {
            digest: lease.record().digest,
            registry_digest: Some(Digest::of(b"an index")),
        };
        store.name(name.clone(), named).unwrap();
        let client = Client::new(Config::default()).unwrap();
        let patience = Patience {
            word: Duration::from_millis(50),
            fallback: Duration::from_millis(400),
        };
        let puller = Puller::new(store, client, Platform::default()).patience(patience);

        let said = Mutex::new(Vec::new());
        let say = |step| said.lock().unwrap().push(step);
        let policies = [PullPolicy::Always, PullPolicy::IfNotPresent];
        let outcome = puller.get(&name, &policies, &say).await.unwrap();
        assert_eq!(outcome.policy, PullPolicy::IfNotPresent);
        assert!(!outcome.fetched);
        let said = said.into_inner().unwrap();
        let waiting = Progress::Waiting {
            registry: hole.address.to_string(),
            waited: patience.word,
            then: Some((patience.fallback, PullPolicy::IfNotPresent)),
        };
        assert_eq!(said[1], waiting, "{said:?}");
        let Some(Progress::NextPolicy { why, .. }) = said.last() else {
            panic!("{said:?}");
        };
        assert!(why.contains("gave no answer"), "{why}");
    }

    #[tokio::test]
    async fn who_has_nothing_to_fall_back_to_waits_for_the_client_and_hears_of_it() {
        let image: Reference = "registry.example.com/app:1".parse().unwrap();
        let patience = Patience {
            word: Duration::from_millis(20),
            fallback: Duration::from_millis(1),
        };
        let heard = Mutex::new(Vec::new());
        let third = tokio::sync::Notify::new();
        let hear = |step| {
            let Progress::Waiting { waited, then, .. } = step else {
                panic!("{step:?}");
            };
            assert_eq!(then, None);
            let mut heard = heard.lock().unwrap();
            heard.push(waited.as_millis());
            if heard.len() == 3 {
                third.notify_one();
            }
        };
        let slow = async {
            third.notified().await;
            Ok(7)
        };
        let answer = patience.answer(&image, None, &hear, slow).await;
        assert_eq!(answer.unwrap(), 7);
        assert_eq!(heard.into_inner().unwrap(), [20, 60, 180]);
    }
}
