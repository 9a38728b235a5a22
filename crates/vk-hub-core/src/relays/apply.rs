//! What the records of servers, projects and relays mean.

use crate::Record;
use crate::approvals::{Project, Server};
use crate::fleet::Fleet;
use crate::relays::Kept;

impl Fleet {
    pub(crate) fn apply_approval(&mut self, record: &Record) {
        match record {
            Record::ServerKnown {
                server,
                url,
                spki_sha256,
                decision,
                all_projects,
            } => {
                let known = Server {
                    url: url.clone(),
                    spki_sha256: *spki_sha256,
                    decision: *decision,
                    all_projects: *all_projects,
                };
                self.approvals.servers.insert(*server, known);
            }
            Record::ServerDropped { server } => {
                self.approvals.servers.remove(server);
            }
            Record::ProjectKnown {
                project,
                server,
                gitlab_project,
                path,
                decision,
            } => {
                let known = Project {
                    server: *server,
                    gitlab_project: *gitlab_project,
                    path: path.clone(),
                    decision: *decision,
                };
                self.approvals.put_project(*project, known);
            }
            Record::ProjectDropped { project } => self.approvals.drop_project(*project),
            Record::RelayServer {
                relay,
                server,
                bound,
                system_id,
            } => {
                self.relays.entry(*relay).or_default().kept = Some(Kept {
                    server: *server,
                    bound: bound.clone(),
                    system_id: system_id.clone(),
                });
            }
            Record::RelayRemoved { relay } => {
                self.relays.remove(relay);
            }
            _ => {}
        }
    }
}
