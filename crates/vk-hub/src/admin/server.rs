//! The socket's side in the running hub.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use vk_hub_core::{Answer, Approve, OperatorRequest, Principal};
use vk_hub_proto::client::JobState;
use vk_hub_proto::{JobId, NodeId, RelayId};

use super::call::{Call, Kind, Request, VERSION};
use super::gitlab::{GitLab, pending, relays};
use super::view::{JobRow, NodeRow, Status};
use crate::fleet::FleetHandle;
use crate::http::Seats;
use crate::members::Members;
use crate::store::MemberKind;

/// A request, or its answer, must be through within this.
const WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a request at most.
const REQUEST_BYTES: u64 = 64 * 1024;

/// Lines of the audit log in one answer at most.
const AUDIT_LINES: u32 = 2_000;

/// A socket that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on the admin socket {}", path.display())]
pub struct ServeError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Answers operators.
#[derive(Clone)]
pub struct AdminServer {
    /// The fleet.
    pub fleet: FleetHandle,
    /// Who is enrolled.
    pub members: Members,
    /// Where the hub listens.
    pub addr: String,
    /// Whether submissions need an operator's approval.
    pub approve: Approve,
    /// Where connections that were turned away are counted.
    pub seats: Seats,
}

impl AdminServer {
    /// Listens on the socket, in place of one that a dead hub left.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn bind(path: &Path) -> Result<UnixListener, ServeError> {
        let fail = |source| ServeError {
            path: path.to_owned(),
            source,
        };
        // The lock on the data directory says that no other hub lives.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(fail)?;
        Ok(listener)
    }

    /// Answers for ever.
    pub async fn run(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = self.clone();
                    tokio::spawn(async move {
                        if let Ok(Err(error)) = timeout(WITHIN, server.serve(stream)).await {
                            tracing::debug!(%error, "an admin connection broke");
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "an admin connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(&self, stream: UnixStream) -> std::io::Result<()> {
        let (read, mut write) = stream.into_split();
        let mut line = String::new();
        BufReader::new(read.take(REQUEST_BYTES))
            .read_line(&mut line)
            .await?;
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(Request { v: VERSION, call }) => self.answer(call).await,
            Ok(Request { v, .. }) => Err(format!(
                "this hub speaks version {VERSION} on its admin socket, not {v}: use its own vk-hub"
            )),
            Err(error) => Err(format!("the request does not parse: {error}")),
        };
        let answer = match answer {
            Ok(value) => json!({ "ok": value }),
            Err(why) => json!({ "err": why }),
        };
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.shutdown().await
    }

    async fn answer(&self, call: Call) -> Result<Value, String> {
        match call {
            Call::Status => to_json(&self.status().await?),
            Call::TokenCreate { kind, lives_secs } => self.token(kind, lives_secs).await,
            Call::Nodes => to_json(&self.nodes().await?),
            Call::NodesPools { node, pools } => {
                self.operator(OperatorRequest::SetPools { node, pools })
                    .await
            }
            Call::NodesCeiling { node, ceiling } => {
                self.operator(OperatorRequest::SetCeiling { node, ceiling })
                    .await
            }
            Call::NodesRemove { node } => self.remove_node(node).await,
            Call::Relays => self.relays().await,
            Call::RelaysRemove { relay } => self.remove_relay(relay).await,
            Call::Gitlab => self.gitlab().await,
            Call::Audit { most } => self.audit(most).await,
            Call::GitlabDecide {
                target,
                approved,
                all_projects,
            } => self.operator(target.decide(approved, all_projects)).await,
            Call::Jobs => to_json(&self.jobs().await?),
            Call::JobsShow { job } => self.job(job).await,
            Call::JobsCancel { job, mode } => {
                self.operator(OperatorRequest::CancelJob { job, mode })
                    .await
            }
            Call::JobsSettle { job } => self.operator(OperatorRequest::SettleJob { job }).await,
        }
    }

    async fn status(&self) -> Result<Status, String> {
        let relays = self.members.all(MemberKind::GitLab).len();
        let (addr, approve) = (self.addr.clone(), self.approve);
        let turned_away = self.seats.turned_away();
        let look = move |fleet: &vk_hub_core::Fleet| Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addr,
            nodes: fleet.nodes().count(),
            nodes_ready: fleet.nodes().filter(|node| node.takes_work).count(),
            relays,
            jobs_unfinished: fleet.unfinished(),
            jobs_unsettled: fleet
                .jobs()
                .filter(|job| job.view.state == JobState::Finished && !job.settled)
                .count(),
            pending: pending(fleet, approve),
            turned_away,
            warnings: warnings(approve),
        };
        self.fleet.look(look).await.map_err(|gone| gone.to_string())
    }

    async fn token(&self, kind: Kind, lives_secs: u64) -> Result<Value, String> {
        let kind = match kind {
            Kind::Node => MemberKind::Node,
            Kind::GitLab => MemberKind::GitLab,
        };
        let members = self.members.clone();
        let made = tokio::task::spawn_blocking(move || members.create_token(kind, lives_secs));
        let token = made.await.map_err(|error| error.to_string())?;
        token
            .map(|token| json!(token.expose()))
            .map_err(|error| error.to_string())
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, String> {
        let members = self.members.clone();
        let look = move |fleet: &vk_hub_core::Fleet| {
            let row = |status: vk_hub_core::NodeStatus<'_>| {
                let member = members.find(MemberKind::Node, status.node.as_bytes());
                NodeRow::of(
                    &status,
                    member.map(|member| member.hostname).unwrap_or_default(),
                )
            };
            fleet.nodes().map(row).collect()
        };
        self.fleet.look(look).await.map_err(|gone| gone.to_string())
    }

    async fn jobs(&self) -> Result<Vec<JobRow>, String> {
        let look = |fleet: &vk_hub_core::Fleet| {
            let mut jobs: Vec<JobRow> = fleet.jobs().map(|job| JobRow::of(&job)).collect();
            jobs.sort_by_key(|job| std::cmp::Reverse(job.view.revision));
            jobs
        };
        self.fleet.look(look).await.map_err(|gone| gone.to_string())
    }

    async fn job(&self, job: JobId) -> Result<Value, String> {
        let look = move |fleet: &vk_hub_core::Fleet| fleet.job(job).map(|job| JobRow::of(&job));
        let found = self
            .fleet
            .look(look)
            .await
            .map_err(|gone| gone.to_string())?;
        to_json(&found.ok_or_else(|| format!("there is no job {job}"))?)
    }

    async fn relays(&self) -> Result<Value, String> {
        let members = self.members.clone();
        let look = move |fleet: &vk_hub_core::Fleet| relays(fleet, &members);
        let rows = self.fleet.look(look).await;
        to_json(&rows.map_err(|gone| gone.to_string())?)
    }

    async fn gitlab(&self) -> Result<Value, String> {
        let approve = self.approve;
        let look = move |fleet: &vk_hub_core::Fleet| GitLab::of(fleet, approve);
        let all = self.fleet.look(look).await;
        to_json(&all.map_err(|gone| gone.to_string())?)
    }

    async fn audit(&self, most: u32) -> Result<Value, String> {
        let members = self.members.clone();
        let most = most.min(AUDIT_LINES);
        let lines = tokio::task::spawn_blocking(move || members.audit(most)).await;
        let lines = lines.map_err(|error| error.to_string())?;
        to_json(&lines.map_err(|error| error.to_string())?)
    }

    async fn remove_relay(&self, relay: RelayId) -> Result<Value, String> {
        let held = self.held_by(relay).await?;
        // The members first: a session that opens meanwhile looks there again. Whatever the fleet
        // still knows of a relay that is none goes in any case.
        let removed = self
            .remove(MemberKind::GitLab, *relay.as_bytes(), &relay.to_string())
            .await;
        self.operator(OperatorRequest::RemoveRelay { relay })
            .await?;
        removed.map(|_| json!(held))
    }

    /// Jobs of a relay whose outcome GitLab does not have yet.
    async fn held_by(&self, relay: RelayId) -> Result<usize, String> {
        let look = move |fleet: &vk_hub_core::Fleet| {
            let jobs = fleet.jobs().filter(|job| !job.settled);
            jobs.filter(|job| job.owner == Principal::Relay(relay))
                .count()
        };
        self.fleet.look(look).await.map_err(|gone| gone.to_string())
    }

    async fn remove_node(&self, node: NodeId) -> Result<Value, String> {
        // The fleet first: where the hub dies in between, the same command ends it.
        self.operator(OperatorRequest::RemoveNode { node }).await?;
        self.remove(MemberKind::Node, *node.as_bytes(), &node.to_string())
            .await
    }

    async fn remove(&self, kind: MemberKind, id: [u8; 16], shown: &str) -> Result<Value, String> {
        let members = self.members.clone();
        let removed = tokio::task::spawn_blocking(move || members.remove(kind, &id));
        match removed.await.map_err(|error| error.to_string())? {
            Ok(true) => Ok(Value::Null),
            Ok(false) => Err(format!("no {} {shown} is enrolled", kind.word())),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn operator(&self, request: OperatorRequest) -> Result<Value, String> {
        let reply = self
            .fleet
            .operator(request)
            .await
            .map_err(|gone| gone.to_string())?;
        match reply.answer {
            Answer::Refused(refusal) => Err(refusal.error.error),
            _ => Ok(Value::Null),
        }
    }
}

/// What an operator should know of the settings.
#[must_use]
pub(crate) fn warnings(approve: Approve) -> Vec<String> {
    match approve {
        Approve::All => vec![
            "every GitLab server and project of an enrolled relay is taken without approval: \
             [gitlab] approve = \"all\" in hub.toml"
                .to_owned(),
        ],
        Approve::Ask => Vec::new(),
    }
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
