//! The wire between a node and its hub, which can be cut.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A relay on a port of its own: each connection to it is passed on to the hub's port.
pub(crate) struct Wire {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Both ends of each connection that was passed on.
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
    /// The next connection is cut when the hub says its first word.
    cuts_next: AtomicBool,
    is_over: AtomicBool,
}

impl Wire {
    /// One to the hub's port of the loopback address.
    pub(crate) fn to(hub: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for node in listener.incoming() {
                if of_thread.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // A hub that is down refuses: the node sees a connection that ends.
                let Ok(node) = node else { continue };
                if let Ok(hub) = TcpStream::connect((Ipv4Addr::LOCALHOST, hub)) {
                    // One of them may have ended already.
                    let _ = of_thread.pass_on(&node, &hub);
                }
            }
        });
        Self { port, shared }
    }

    /// Where the node finds its hub.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Ends every connection at once, at both ends. Where there is none, the next one ends in the
    /// middle of its beginning.
    pub(crate) fn cut(&self) {
        let mut open = self.shared.open();
        let cut = open.drain(..).map(|(node, hub)| {
            let ends = [&node, &hub].map(|end| end.shutdown(Shutdown::Both).is_ok());
            ends == [true, true]
        });
        if cut.filter(|was_open| *was_open).count() == 0 {
            self.shared.cuts_next.store(true, Ordering::SeqCst);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that listens.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(TcpStream, TcpStream)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(self: &Arc<Self>, node: &TcpStream, hub: &TcpStream) -> io::Result<()> {
        // What is sent in small parts is sent at once.
        node.set_nodelay(true)?;
        hub.set_nodelay(true)?;
        let both = (node.try_clone()?, hub.try_clone()?);
        self.open().push(both);
        for (from, to, is_hub) in [(node, hub, false), (hub, node, true)] {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.copy(&from, &to, is_hub));
        }
        Ok(())
    }

    /// Copies one way until either end is closed, and then closes both.
    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream, is_hub: bool) {
        use std::io::{Read as _, Write as _};
        let mut bytes = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if is_hub && self.cuts_next.swap(false, Ordering::SeqCst) {
                break;
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        for end in [from, to] {
            let _ = end.shutdown(Shutdown::Both);
        }
        let mut open = self.open();
        open.retain(|(node, hub)| node.peer_addr().is_ok() && hub.peer_addr().is_ok());
    }
}
