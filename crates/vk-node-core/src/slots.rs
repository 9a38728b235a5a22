//! The lowest free number, for `CI_CONCURRENT_ID` and `CI_CONCURRENT_PROJECT_ID`.

use std::collections::{BTreeMap, BTreeSet};

use crate::io::Project;

/// Numbers in use, over all jobs and within each project.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Numbers,
    projects: BTreeMap<Project, Numbers>,
}

impl Slots {
    /// Takes the lowest free numbers.
    pub(crate) fn take(&mut self, project: &Project) -> (u32, u32) {
        let slot = self.all.take();
        (
            slot,
            self.projects.entry(project.clone()).or_default().take(),
        )
    }

    /// Takes exactly these numbers: a job from the journal has them already.
    pub(crate) fn mark(&mut self, project: &Project, slot: u32, project_slot: u32) {
        self.all.used.insert(slot);
        let numbers = self.projects.entry(project.clone()).or_default();
        numbers.used.insert(project_slot);
    }

    /// Gives numbers back.
    pub(crate) fn give(&mut self, project: &Project, slot: u32, project_slot: u32) {
        self.all.used.remove(&slot);
        if let Some(numbers) = self.projects.get_mut(project) {
            numbers.used.remove(&project_slot);
            if numbers.used.is_empty() {
                self.projects.remove(project);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Numbers {
    used: BTreeSet<u32>,
}

impl Numbers {
    fn take(&mut self) -> u32 {
        let mut free = 0;
        for used in &self.used {
            if *used != free {
                break;
            }
            free = free.saturating_add(1);
        }
        self.used.insert(free);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(id: u64) -> Project {
        Project {
            server: "https://gitlab.example.com".to_owned(),
            id,
        }
    }

    #[test]
    fn the_lowest_free_number_is_taken_overall_and_within_the_project() {
        let (a, b) = (project(1), project(2));
        let mut slots = Slots::default();
        assert_eq!(slots.take(&a), (0, 0));
        assert_eq!(slots.take(&b), (1, 0));
        assert_eq!(slots.take(&a), (2, 1));
        slots.give(&a, 0, 0);
        assert_eq!(slots.take(&b), (0, 1));
        slots.mark(&a, 7, 0);
        assert_eq!(slots.take(&a), (3, 2));
        assert_eq!(slots.take(&b), (4, 2));
    }

    #[test]
    fn a_project_without_jobs_is_forgotten() {
        let mut slots = Slots::default();
        let (slot, project_slot) = slots.take(&project(1));
        slots.give(&project(1), slot, project_slot);
        assert!(slots.projects.is_empty());
    }
}
