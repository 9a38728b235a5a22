//! What must hold between the machine's parts: for tests and the simulator, which ask after every
//! step. Walks everything; no path of the hub's does.

use crate::book::Holding;
use crate::fleet::Fleet;
use crate::job::{Job, Phase};
use crate::reservation::ReservationPhase;
use vk_hub_proto::JobId;

impl Fleet {
    /// # Errors
    /// The first thing found that does not hold.
    pub fn check(&self) -> Result<(), String> {
        if self.stopped.is_some() {
            return Ok(());
        }
        self.check_jobs()?;
        self.check_nodes()?;
        self.check_relays()?;
        self.check_reservations()?;
        self.check_classes()
    }

    fn check_jobs(&self) -> Result<(), String> {
        let unfinished = self.jobs.values().filter(|job| !job.phase.is_finished());
        if unfinished.count() != self.unfinished {
            return Err("the count of unfinished jobs is off".to_owned());
        }
        self.jobs
            .iter()
            .try_for_each(|(id, job)| self.check_job(*id, job))
    }

    fn check_job(&self, id: JobId, job: &Job) -> Result<(), String> {
        let has_spec = job.placing.is_some();
        match &job.phase {
            Phase::Running { .. } | Phase::Finished { .. } if has_spec => {
                return Err(format!("job {id} was accepted and its spec is in memory"));
            }
            Phase::Finished { result, .. } if result.output_len != job.output.durable() => {
                return Err(format!("job {id} ended and its output grew"));
            }
            _ => {}
        }
        if job.settled && !job.phase.is_finished() {
            return Err(format!("job {id} is settled and has not ended"));
        }
        let queued = job.placing.as_ref().is_some_and(|placing| {
            let class = self.classes.get(placing.class);
            class.is_some_and(|class| class.jobs.contains(&(placing.turn, id)))
        });
        let waits = job.phase == Phase::Queued && has_spec;
        if queued != waits {
            return Err(format!(
                "job {id} waits: {waits}, is in the queue: {queued}"
            ));
        }
        let node = job.phase.node().and_then(|node| self.nodes.get(&node));
        let listed = node.is_some_and(|node| node.jobs.contains(&id));
        if node.is_some() && listed == job.phase.is_finished() {
            return Err(format!("job {id} is on its node's list: {listed}"));
        }
        let told = node.is_some_and(|node| node.touch().is_some());
        if told && listed && !node.is_some_and(|node| node.book.has(Holding::Job(id))) {
            return Err(format!("job {id} is not in its node's book"));
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        for (id, node) in &self.nodes {
            let open = node.session.map(|open| open.handle);
            if open.is_some_and(|open| self.sessions.get(&open) != Some(id)) {
                return Err(format!("node {id} has a session nobody knows"));
            }
            if !node.jobs.iter().all(|job| {
                let job = self.jobs.get(job);
                job.is_some_and(|job| job.is_on(*id))
            }) {
                return Err(format!("node {id} lists a job that is not on it"));
            }
        }
        let live = self.nodes.values().filter(|node| node.session.is_some());
        if live.count() != self.sessions.len() {
            return Err("a session has no node".to_owned());
        }
        Ok(())
    }

    fn check_relays(&self) -> Result<(), String> {
        for (id, relay) in &self.relays {
            let open = relay.session;
            if open.is_some_and(|open| self.relay_sessions.get(&open) != Some(id)) {
                return Err(format!("relay {id} has a session nobody knows"));
            }
            if relay.told.is_some() && relay.told != self.server_status(*id) {
                return Err(format!("relay {id} was told {:?} last", relay.told));
            }
            let server = relay.kept.as_ref().map(|kept| kept.server);
            if server.is_some_and(|server| !self.approvals.servers.contains_key(&server)) {
                return Err(format!("relay {id} serves a server that is not there"));
            }
        }
        let live = self.relays.values().filter(|relay| relay.session.is_some());
        if live.count() != self.relay_sessions.len() {
            return Err("a session has no relay".to_owned());
        }
        Ok(())
    }

    fn check_reservations(&self) -> Result<(), String> {
        for (id, one) in &self.reservations {
            let node = self.nodes.get(&one.node);
            if !node.is_some_and(|node| node.reservations.contains(id)) {
                return Err(format!("reservation {id} is not on its node's list"));
            }
            let fits = match one.phase {
                ReservationPhase::Offered(seek) => self.seeks.contains_key(&seek),
                ReservationPhase::Held => true,
                ReservationPhase::Starting(job) => {
                    self.jobs.get(&job).is_some_and(Job::is_starting)
                }
            };
            if !fits {
                return Err(format!("reservation {id} serves nothing: {:?}", one.phase));
            }
        }
        let listed: usize = self
            .nodes
            .values()
            .map(|node| node.reservations.len())
            .sum();
        if listed != self.reservations.len() {
            return Err("a node lists a reservation that is not there".to_owned());
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<(), String> {
        let most = self.settings.fits_per_node;
        self.classes.iter().try_for_each(|class| {
            for (id, node) in &self.nodes {
                let in_pool = node.pools.contains(&class.placement.pool);
                let fits = if in_pool {
                    node.fits(&class.placement, most)
                } else {
                    0
                };
                let counted = class.fits.get(id).copied().unwrap_or(0);
                if fits != counted {
                    return Err(format!("node {id} has room {fits}, counted are {counted}"));
                }
            }
            let total: u64 = class.fits.values().map(|fits| u64::from(*fits)).sum();
            let announced = class.capacity().fits;
            if u64::from(announced) != total {
                return Err(format!("announced are {announced}, the total is {total}"));
            }
            Ok(())
        })
    }
}
