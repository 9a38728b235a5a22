//! Room: who has it, who asks for it, who waits for it (ADM-01 to ADM-05, API-13, API-69).

use vk_hub_proto::NodeId;
use vk_hub_proto::client::{CapacityRequest, Placement};
use vk_step::Now;

use crate::class::{ClassId, Refused};
use crate::fleet::{Fleet, Out};
use crate::node::best;
use crate::request::RequestKey;
use crate::timers::Timer;
use crate::wait::Wait;
use crate::{Refusal, RequestHandle};

/// Who in a row may go without a node before the rest is left to the next round: a node that
/// refuses everybody must not make every change a walk over all.
const MISSES: usize = 64;

/// Who waits for a node.
#[derive(Clone, Copy, Debug)]
enum Seeker {
    Job(u64, vk_hub_proto::JobId),
    Seek(u64, RequestKey),
}

impl Fleet {
    pub(crate) fn on_capacity(
        &mut self,
        now: Now,
        to: RequestHandle,
        request: &CapacityRequest,
        out: &mut Out,
    ) {
        if let Err(why) = request.placement.validate() {
            return self.refuse(to, Refusal::invalid(why.to_string()), out);
        }
        let id = self.class_of(&request.placement);
        let current = self.classes.get(id).map(|class| class.capacity().revision);
        let known = request.after.is_some() && request.after >= current;
        if known && self.hold(now, to, Wait::Capacity(id), request.wait_secs) {
            if let Some(class) = self.classes.get_mut(id) {
                class.polls.insert(to);
            }
            return;
        }
        let answer = self.capacity_answer(id);
        self.answer(to, answer, out);
    }

    /// The class of a placement, made and counted if need be.
    pub(crate) fn class_of(&mut self, placement: &Placement) -> ClassId {
        if let Some(id) = self.classes.find(placement) {
            return id;
        }
        if let Some(forgotten) = self.classes.trim(self.settings.placements) {
            self.timers.clear(Timer::Round(forgotten));
        }
        let revision = self.clock.next_revision();
        let id = self.classes.add(placement.clone(), revision);
        let most = self.settings.fits_per_node;
        let in_pool = self
            .nodes
            .iter()
            .filter(|(_, node)| node.pools.contains(&placement.pool));
        if let Some(class) = self.classes.get_mut(id) {
            for (node, found) in in_pool {
                class.set_fits(*node, found.fits(placement, most));
            }
            class.announce(revision);
        }
        id
    }

    /// Sets a node's room in a placement, and notes what follows.
    pub(crate) fn set_fits(&mut self, id: ClassId, node: NodeId, fits: u32) {
        let Some(class) = self.classes.get_mut(id) else {
            return;
        };
        if class.set_fits(node, fits) && class.has_seekers() {
            self.woken.insert(id);
        }
        if class.moved() {
            self.moved.insert(id);
        }
    }

    /// Brings the room of every stirred node up to date, in the placements of its pools alone.
    fn recount(&mut self) {
        let most = self.settings.fits_per_node;
        while let Some(id) = self.stirred.pop_first() {
            let Some(node) = self.nodes.get(&id) else {
                continue;
            };
            let mut room = Vec::new();
            for class in node
                .pools
                .iter()
                .flat_map(|pool| self.classes.of_pool(pool))
            {
                if let Some(found) = self.classes.get(class) {
                    room.push((class, node.fits(&found.placement, most)));
                }
            }
            for (class, fits) in room {
                self.set_fits(class, id, fits);
            }
        }
    }

    /// Gives nodes to those who wait for one, until nobody can be served any more.
    pub(crate) fn serve(&mut self, now: Now, out: &mut Out) {
        self.recount();
        while let Some(class) = self.woken.pop_first() {
            self.serve_class(now, class, out);
            self.recount();
        }
    }

    /// Jobs first: GitLab has already given them away. Within a kind the oldest first.
    fn serve_class(&mut self, now: Now, id: ClassId, out: &mut Out) {
        let mut after: Option<Seeker> = None;
        let mut misses = 0;
        while misses < MISSES {
            let Some(seeker) = self.seeker_after(id, after) else {
                return;
            };
            after = Some(seeker);
            let Some(node) = self.best_for(now, id, seeker) else {
                misses += 1;
                if !self.anybody(now, id) {
                    return;
                }
                continue;
            };
            match seeker {
                Seeker::Job(_, job) => self.start(now, job, node, None, out),
                Seeker::Seek(_, seek) => self.offer(now, seek, node, out),
            }
            self.recount();
        }
    }

    fn seeker_after(&self, id: ClassId, after: Option<Seeker>) -> Option<Seeker> {
        use std::ops::Bound::{Excluded, Unbounded};
        let class = self.classes.get(id)?;
        let job = match after {
            None => class.jobs.first(),
            Some(Seeker::Job(turn, job)) => {
                class.jobs.range((Excluded((turn, job)), Unbounded)).next()
            }
            Some(Seeker::Seek(..)) => None,
        };
        if let Some((turn, job)) = job {
            return Some(Seeker::Job(*turn, *job));
        }
        let seek = match after {
            Some(Seeker::Seek(turn, seek)) => class
                .seeks
                .range((Excluded((turn, seek)), Unbounded))
                .next(),
            _ => class.seeks.first(),
        };
        seek.map(|(turn, seek)| Seeker::Seek(*turn, *seek))
    }

    /// The best node with room for this seeker; those that refused lately are left out.
    fn best_for(&self, now: Now, id: ClassId, seeker: Seeker) -> Option<NodeId> {
        let class = self.classes.get(id)?;
        let own = match seeker {
            Seeker::Job(_, job) => self
                .jobs
                .get(&job)
                .and_then(|job| job.placing.as_ref())
                .map(|placing| &placing.refused),
            Seeker::Seek(..) => None,
        };
        let again = self.settings.ask_again_after;
        let lately = |at: Option<Now>| at.is_some_and(|at| at.after(again) > now);
        let open = class.fits.iter().filter(|(node, _)| {
            let by_class = class.refused.get(*node).map(|one| one.at);
            let by_job = own.and_then(|own| own.get(*node)).copied();
            !lately(by_class) && !lately(by_job)
        });
        best(&self.nodes, open)
    }

    /// Whether any node may be asked for this placement.
    fn anybody(&self, now: Now, id: ClassId) -> bool {
        let again = self.settings.ask_again_after;
        self.classes.get(id).is_some_and(|class| {
            class.fits.keys().any(|node| {
                let refused = class.refused.get(node);
                refused.is_none_or(|one| one.at.after(again) <= now)
            })
        })
    }

    /// A node refused a placement: it is not asked again for it before its room grows or the
    /// round is over (API-62). What it refused is no longer in its book.
    pub(crate) fn refused_by(&mut self, now: Now, id: ClassId, node: NodeId) {
        let most = self.settings.fits_per_node;
        if let Some(class) = self.classes.get_mut(id)
            && let Some(found) = self.nodes.get(&node)
        {
            let fits = found.fits(&class.placement, most);
            class.refused.insert(node, Refused { at: now, fits });
        }
        self.next_round(now, id);
    }

    /// Asks again once the refusals of now are old.
    pub(crate) fn next_round(&mut self, now: Now, id: ClassId) {
        let at = now.after(self.settings.ask_again_after);
        self.timers.arm(Timer::Round(id), at);
    }

    pub(crate) fn on_round(&mut self, now: Now, id: ClassId) {
        let again = self.settings.ask_again_after;
        let Some(class) = self.classes.get_mut(id) else {
            return;
        };
        class.refused.retain(|_, one| one.at.after(again) > now);
        if class.has_seekers() {
            self.woken.insert(id);
            self.next_round(now, id);
        } else if let Some(oldest) = class.refused.values().map(|one| one.at).min() {
            self.timers.arm(Timer::Round(id), oldest.after(again));
        }
    }
}
