//! How the rest of the hub speaks to the fleet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};
use vk_hub_core::{
    Answer, FromRelay, OperatorRequest, Principal, Request, RequestHandle, SessionHandle,
};
use vk_hub_proto::node_session::{HubMessage, NodeMessage};
use vk_hub_proto::relay_session::HubRelayMessage;
use vk_hub_proto::{NodeId, RelayId};

/// Messages for a session that may wait; a session that does not take them is ended.
const OUTBOX: usize = 1024;

/// What the fleet is told.
pub(crate) enum Message {
    Request {
        to: RequestHandle,
        by: Principal,
        request: Request,
        reply: oneshot::Sender<Reply>,
    },
    Operator {
        to: RequestHandle,
        request: OperatorRequest,
        reply: oneshot::Sender<Reply>,
    },
    HungUp {
        to: RequestHandle,
    },
    Opened {
        session: SessionHandle,
        node: NodeId,
        version: u32,
        outbox: mpsc::Sender<HubMessage>,
    },
    Closed {
        session: SessionHandle,
    },
    Alive {
        session: SessionHandle,
    },
    Node {
        session: SessionHandle,
        message: Box<NodeMessage>,
    },
    RelayOpened {
        session: SessionHandle,
        relay: RelayId,
        outbox: mpsc::Sender<HubRelayMessage>,
    },
    Relay {
        session: SessionHandle,
        message: FromRelay,
    },
    Look(Box<dyn FnOnce(&vk_hub_core::Fleet) + Send>),
}

/// An answer, and the output bytes that belong to it.
#[derive(Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// Of an output read.
    pub bytes: Vec<u8>,
}

/// The fleet is gone: the hub is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub is stopping")]
pub struct Gone;

/// Speaks to the fleet.
#[derive(Clone)]
pub struct FleetHandle {
    sender: mpsc::Sender<Message>,
    next: Arc<AtomicU64>,
}

impl FleetHandle {
    pub(crate) fn new(sender: mpsc::Sender<Message>) -> FleetHandle {
        FleetHandle {
            sender,
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A client's request. Dropping the future before it is done tells the fleet that the client
    /// hung up.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn request(&self, by: Principal, request: Request) -> Result<Reply, Gone> {
        let to = RequestHandle(self.number());
        let (reply, answered) = oneshot::channel();
        self.send(Message::Request {
            to,
            by,
            request,
            reply,
        })
        .await?;
        self.answered(to, answered).await
    }

    /// An operator's request.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn operator(&self, request: OperatorRequest) -> Result<Reply, Gone> {
        let to = RequestHandle(self.number());
        let (reply, answered) = oneshot::channel();
        self.send(Message::Operator { to, request, reply }).await?;
        self.answered(to, answered).await
    }

    async fn answered(
        &self,
        to: RequestHandle,
        answered: oneshot::Receiver<Reply>,
    ) -> Result<Reply, Gone> {
        let mut hang_up = HangUp {
            sender: Some(self.sender.clone()),
            to,
        };
        let reply = answered.await;
        hang_up.sender = None;
        reply.map_err(|_| Gone)
    }

    /// A node's session is open.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn open_session(&self, node: NodeId, version: u32) -> Result<Session, Gone> {
        let session = SessionHandle(self.number());
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        self.send(Message::Opened {
            session,
            node,
            version,
            outbox,
        })
        .await?;
        Ok(Session {
            session,
            inbox,
            sender: self.sender.clone(),
        })
    }

    /// A relay's session is open.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn open_relay_session(&self, relay: RelayId) -> Result<RelaySession, Gone> {
        let session = SessionHandle(self.number());
        let (outbox, inbox) = mpsc::channel(OUTBOX);
        self.send(Message::RelayOpened {
            session,
            relay,
            outbox,
        })
        .await?;
        Ok(RelaySession {
            session,
            inbox,
            sender: self.sender.clone(),
        })
    }

    /// Looks at the fleet as it stands.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&vk_hub_core::Fleet) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (tell, told) = oneshot::channel();
        let look = move |fleet: &vk_hub_core::Fleet| {
            // Nobody listens any more: nothing is lost.
            let _ = tell.send(look(fleet));
        };
        self.send(Message::Look(Box::new(look))).await?;
        told.await.map_err(|_| Gone)
    }

    async fn send(&self, message: Message) -> Result<(), Gone> {
        self.sender.send(message).await.map_err(|_| Gone)
    }
}

/// Tells the fleet that a client is gone, unless it was answered.
struct HangUp {
    sender: Option<mpsc::Sender<Message>>,
    to: RequestHandle,
}

impl Drop for HangUp {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let to = self.to;
            tokio::spawn(async move { sender.send(Message::HungUp { to }).await });
        }
    }
}

/// One node's open session, seen from its connection.
pub struct Session {
    session: SessionHandle,
    /// What is to be sent; ended when the fleet ended the session.
    pub inbox: mpsc::Receiver<HubMessage>,
    sender: mpsc::Sender<Message>,
}

impl Session {
    /// A message of the node's.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn message(&self, message: NodeMessage) -> Result<(), Gone> {
        let message = Message::Node {
            session: self.session,
            message: Box::new(message),
        };
        self.sender.send(message).await.map_err(|_| Gone)
    }

    /// A sign of life.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn alive(&self) -> Result<(), Gone> {
        self.sender
            .send(Message::Alive {
                session: self.session,
            })
            .await
            .map_err(|_| Gone)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let (sender, session) = (self.sender.clone(), self.session);
        tokio::spawn(async move { sender.send(Message::Closed { session }).await });
    }
}

/// One relay's open session, seen from its connection.
pub struct RelaySession {
    session: SessionHandle,
    /// What is to be sent; ended when the fleet ended the session.
    pub inbox: mpsc::Receiver<HubRelayMessage>,
    sender: mpsc::Sender<Message>,
}

impl RelaySession {
    /// A message of the relay's.
    ///
    /// # Errors
    /// The hub is stopping.
    pub async fn message(&self, message: FromRelay) -> Result<(), Gone> {
        let session = self.session;
        let message = Message::Relay { session, message };
        self.sender.send(message).await.map_err(|_| Gone)
    }
}

impl Drop for RelaySession {
    fn drop(&mut self) {
        let (sender, session) = (self.sender.clone(), self.session);
        tokio::spawn(async move { sender.send(Message::Closed { session }).await });
    }
}
