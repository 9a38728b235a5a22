//! What jobs may name: stages that are there, jobs that can end before them, no circles.

use std::collections::{BTreeMap, BTreeSet};

use crate::faults::Faults;
use crate::model::{JobModel, Model, Named};

/// Checks the names that jobs give of stages and of each other.
pub(crate) fn check(model: &Model, faults: &mut Faults) {
    if model.jobs.is_empty() && !faults.any() {
        let hint = "give at least one job whose name does not begin with `.`";
        faults.add(None, "the file has no job that could run", hint);
    }
    let graph = Graph {
        order: positions(model),
        jobs: model.jobs.iter().map(|job| (name(job), job)).collect(),
    };
    for job in &model.jobs {
        faults.enter(Some(name(job)));
        graph.stage(model, job, faults);
        graph.needs(job, faults);
        graph.dependencies(job, faults);
        faults.enter(None);
    }
    circle(model, faults);
}

fn name(job: &JobModel) -> &str {
    &job.named.name
}

fn positions(model: &Model) -> BTreeMap<&str, usize> {
    let stages = model.stages.iter().enumerate();
    stages.map(|(at, name)| (name.as_str(), at)).collect()
}

struct Graph<'a> {
    order: BTreeMap<&'a str, usize>,
    jobs: BTreeMap<&'a str, &'a JobModel>,
}

impl Graph<'_> {
    fn stage(&self, model: &Model, job: &JobModel, faults: &mut Faults) {
        if !self.order.contains_key(job.stage.name.as_str()) {
            let what = format!("its stage `{}` is not among the stages", job.stage.name);
            let hint = format!("add it to `stages`, which are {}", model.stages.join(", "));
            faults.add(job.stage.at, what, hint);
        }
    }

    /// A job's place among the stages.
    fn place(&self, job: &JobModel) -> Option<usize> {
        self.order.get(job.stage.name.as_str()).copied()
    }

    fn needs(&self, job: &JobModel, faults: &mut Faults) {
        for need in job.needs.iter().flatten() {
            let found = self.jobs.get(need.job.name.as_str());
            if found.is_some() || !need.optional {
                self.earlier(job, &need.job, "needs", faults);
            }
        }
    }

    fn dependencies(&self, job: &JobModel, faults: &mut Faults) {
        for named in job.dependencies.iter().flatten() {
            let Some(needs) = &job.needs else {
                self.earlier(job, named, "dependencies", faults);
                self.same_stage(job, named, faults);
                continue;
            };
            if !needs.iter().any(|need| need.job.name == named.name) {
                let what = format!("`dependencies` names `{}`, `needs` does not", named.name);
                faults.add(named.at, what, "add it to `needs` too");
            }
        }
    }

    fn earlier(&self, job: &JobModel, named: &Named, keyword: &str, faults: &mut Faults) {
        let Some(other) = self.jobs.get(named.name.as_str()) else {
            let what = format!(
                "`{keyword}` names `{}`, which is not in the file",
                named.name
            );
            faults.add(named.at, what, "name a job that is not hidden");
            return;
        };
        if let (Some(own), Some(place)) = (self.place(job), self.place(other))
            && place > own
        {
            let what = format!(
                "`{keyword}` names `{}`, whose stage `{}` comes later",
                named.name, other.stage.name
            );
            faults.add(named.at, what, "name jobs of this or earlier stages");
        }
    }

    /// Without `needs` a job gets artifacts of earlier stages only.
    fn same_stage(&self, job: &JobModel, named: &Named, faults: &mut Faults) {
        let other = self.jobs.get(named.name.as_str());
        if other.is_some_and(|other| other.stage.name == job.stage.name) {
            let what = format!("`dependencies` names `{}` of the same stage", named.name);
            faults.add(
                named.at,
                what,
                "add it to `needs` too, else there is no order",
            );
        }
    }
}

/// Finds jobs that need each other in a circle.
fn circle(model: &Model, faults: &mut Faults) {
    let mut left: BTreeMap<&str, &JobModel> =
        model.jobs.iter().map(|job| (name(job), job)).collect();
    let names: BTreeSet<&str> = left.keys().copied().collect();
    loop {
        let before = left.len();
        let waiting: BTreeSet<&str> = left.keys().copied().collect();
        let waits = |job: &JobModel| {
            let mut needs = job.needs.iter().flatten();
            needs.any(|need| {
                let other = need.job.name.as_str();
                names.contains(other) && waiting.contains(other)
            })
        };
        left.retain(|_, job| waits(job));
        if left.len() == before {
            break;
        }
    }
    // Those that only wait for a circle are left too: the first that is needed by one of them.
    let needed = |job: &JobModel| {
        let needs = left.values().flat_map(|other| other.needs.iter().flatten());
        needs.into_iter().any(|need| need.job.name == name(job))
    };
    let first = model
        .jobs
        .iter()
        .find(|job| left.contains_key(name(job)) && needed(job));
    if let Some(job) = first {
        faults.enter(Some(name(job)));
        let what = "jobs need each other in a circle, this one among them";
        faults.add(job.named.at, what, "remove one of the needs");
        faults.enter(None);
    }
}
