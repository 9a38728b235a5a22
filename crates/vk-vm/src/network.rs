//! The owner's side of a VM's network: starts its keeper, takes the tap, waits for the way out.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;
use vk_net::{Needs, Plan, SAID_MAX, Said};

use crate::confine::{Confinement, Confines, Program};
use crate::launching::Launching;
use crate::start_error::StartError;
use crate::supervise::Watched;
use crate::sys;

/// The keeper's name in what is said of it.
const NAME: &str = "network";
/// The file that the network namespace is mounted on, in the VM's directory.
const AT: &str = "net";
/// A network is made in a tenth of a second; more than this passes only where it never will be.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the last words of a keeper that ended may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What network a VM has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetMode {
    /// None.
    #[default]
    None,
    /// A switch of its own, with a way out through the host's ordinary sockets and every address of
    /// the host denied.
    Switch,
}

/// A keeper that has made the tap.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: AsyncFd<OwnedFd>,
    watched: Watched,
}

/// What the VM is given.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) keeper: Keeper,
    pub(crate) tap: OwnedFd,
    pub(crate) plan: Plan,
}

impl Keeper {
    /// Has the network made, as far as QEMU needs it.
    pub(crate) async fn start(
        launching: &mut Launching,
        confinement: &Confinement,
        needs: &Needs,
        directory: &Path,
    ) -> Result<Connected, StartError> {
        let at = directory.join(AT);
        File::create_new(&at).map_err(StartError::io(format!("make {}", at.display())))?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|e| StartError::io("make the network's socket")(e.into()))?;
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(|e| StartError::io("set up the network's socket")(e.into()))?;
        let program = program(confinement, needs, &at, directory);
        let watched = launching.launch_telling(NAME, &program, theirs).await?;
        let socket = sys::watch(ours).map_err(StartError::io("watch the network's socket"))?;
        let keeper = Self { socket, watched };
        match keeper.hear().await? {
            (Said::Tap(plan), Some(tap)) => Ok(Connected { keeper, tap, plan }),
            (said, _) => Err(out_of_turn(&said)),
        }
    }

    /// Waits until the guest can reach what is outside.
    pub(crate) async fn ready(self) -> Result<(), StartError> {
        match self.hear().await? {
            (Said::Ready, None) => Ok(()),
            (said, _) => Err(out_of_turn(&said)),
        }
    }

    async fn hear(&self) -> Result<(Said, Option<OwnedFd>), StartError> {
        let heard = self.socket.async_io(Interest::READABLE, receive);
        let why = match timeout(LIMIT, heard).await {
            Ok(Ok(Some(heard))) => return Ok(heard),
            Ok(Ok(None)) => self.last_words().await,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("nothing was heard of it for {} s", LIMIT.as_secs()),
        };
        Err(StartError::NetworkFailed { why })
    }

    async fn last_words(&self) -> String {
        let _ = timeout(LAST_WORDS, self.watched.said.whole()).await;
        let said = self.watched.said.tail();
        if said.is_empty() {
            "its keeper ended and said nothing".to_owned()
        } else {
            said
        }
    }
}

fn out_of_turn(said: &Said) -> StartError {
    let why = format!("its keeper speaks out of turn: {said:?}");
    StartError::NetworkFailed { why }
}

fn program(confinement: &Confinement, needs: &Needs, at: &Path, directory: &Path) -> Program {
    let mut args: Vec<OsString> = ["guest", "network"].map(OsString::from).to_vec();
    for (name, value) in [
        ("--at", at),
        ("--ip", &needs.ip),
        ("--nft", &needs.nft),
        ("--pasta", &needs.pasta),
    ] {
        args.extend([name.into(), value.as_os_str().to_owned()]);
    }
    Program {
        path: confinement.helper.clone(),
        args,
        directory: directory.to_owned(),
        confines: Confines::Holder,
        inherits: false,
    }
}

/// One packet, and the descriptor beside it; `None` once the keeper is gone.
fn receive(socket: &OwnedFd) -> io::Result<Option<(Said, Option<OwnedFd>)>> {
    let mut packet = vec![0; SAID_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut packet)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut buffers, &mut beside, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let packet = packet.get(..received.bytes).unwrap_or_default();
    Ok(Some((serde_json::from_slice(packet)?, descriptors.pop())))
}
