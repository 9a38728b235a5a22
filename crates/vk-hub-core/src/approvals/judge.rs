//! Whether a submission's server and project may have it (ERR-07, ERR-08, ERR-10, ERR-11).

use vk_hub_proto::display::sanitized;
use vk_hub_proto::job::{CiJob, JobSpec};
use vk_hub_proto::relay_session::ServerStatus;
use vk_step::Now;

use super::{Decision, Project, ServerNumber, plain, project_record};
use crate::fleet::{Fleet, Out};
use crate::request::RequestKey;
use crate::{Approve, Digest, Principal, Record, Refusal};

impl Fleet {
    /// ERR-07, ERR-08: where the relay has said which server is its own.
    pub(crate) fn judge_server(&self, by: Principal, spec: &JobSpec) -> Result<(), Refusal> {
        let Principal::Relay(relay) = by;
        let JobSpec::GitlabCi(job) = spec;
        if self.server_status(relay) == Some(ServerStatus::Rebound) {
            return Err(Refusal::forbidden(
                "this relay reports another GitLab server than it was bound to: an operator must \
                 approve that first",
            ));
        }
        let number = self.relay_server(by);
        let known = number.and_then(|number| self.approvals.servers.get(&number));
        match known.filter(|known| known.url != plain(&job.server_url)) {
            None => Ok(()),
            Some(known) => Err(Refusal::forbidden(format!(
                "the job is of another GitLab server than {}, this relay's",
                known.url
            ))),
        }
    }

    /// A refusal is the answer to this request for a day, so that it counts once (ERR-10, ERR-11,
    /// ERR-20, ERR-26).
    pub(crate) fn judge_approval(
        &mut self,
        now: Now,
        key: RequestKey,
        digest: Digest,
        spec: &JobSpec,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let JobSpec::GitlabCi(job) = spec;
        let Some(refusal) = self.not_approved(key.owner, job, out) else {
            return Ok(());
        };
        self.keep(
            Record::SubmissionRefused {
                owner: key.owner,
                request: key.request,
                digest,
                refusal: refusal.clone(),
                at_ms: self.clock.served_ms(now),
            },
            out,
        );
        self.arm_forgetting();
        Err(refusal)
    }

    fn not_approved(&mut self, by: Principal, job: &CiJob, out: &mut Out) -> Option<Refusal> {
        let Principal::Relay(relay) = by;
        let takes_all = self.settings.approve == Approve::All;
        let url = sanitized(plain(&job.server_url));
        match self.server_status(relay) {
            Some(ServerStatus::Approved) => self.project_refusal(self.relay_server(by)?, job, out),
            Some(ServerStatus::Rejected) => Some(Refusal::project_rejected(format!(
                "server {url} was rejected"
            ))),
            None if takes_all => None,
            // A relay that has not said yet which server it serves waits like one whose server does.
            Some(ServerStatus::Pending | ServerStatus::Rebound) | None => Some(
                Refusal::approval_pending(format!("server {url} is waiting for approval")),
            ),
        }
    }

    /// The server a relay reported last.
    fn relay_server(&self, by: Principal) -> Option<ServerNumber> {
        let Principal::Relay(relay) = by;
        let kept = self.relays.get(&relay)?.kept.as_ref()?;
        Some(kept.server)
    }

    fn project_refusal(
        &mut self,
        server: ServerNumber,
        job: &CiJob,
        out: &mut Out,
    ) -> Option<Refusal> {
        let path = sanitized(&job.job.project_path);
        let shown = format!("project {path} (ID {})", job.job.project_id);
        let number = self.approvals.project(server, job.job.project_id);
        let known = number.and_then(|number| self.approvals.projects.get(&number));
        let all = self.approvals.servers.get(&server);
        let takes_all =
            self.settings.approve == Approve::All || all.is_some_and(|one| one.all_projects);
        match known.map(|known| known.decision) {
            Some(Decision::Rejected) => {
                Some(Refusal::project_rejected(format!("{shown} was rejected")))
            }
            Some(Decision::Approved) => None,
            Some(Decision::Pending) | None if takes_all => None,
            pending => {
                if pending.is_none() {
                    self.add_project(server, job.job.project_id, path, out);
                }
                let why = format!("{shown} is waiting for approval");
                Some(Refusal::approval_pending(why))
            }
        }
    }

    /// A project nobody decided of: it is listed, in place of the oldest such where the list is full.
    fn add_project(&mut self, server: ServerNumber, gitlab: u64, path: String, out: &mut Out) {
        let number = self.approvals.next_project();
        if self.approvals.projects.len() >= self.settings.projects {
            let Some(project) = self.approvals.oldest_pending() else {
                return;
            };
            self.keep(Record::ProjectDropped { project }, out);
        }
        let project = Project {
            server,
            gitlab_project: gitlab,
            path,
            decision: Decision::Pending,
        };
        self.keep(project_record(number, &project), out);
    }
}
