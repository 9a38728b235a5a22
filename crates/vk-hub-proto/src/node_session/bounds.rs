//! Cutting a node's tales to the size the hub keeps.

use super::{Inventory, Report};
use crate::display::sanitized;
use crate::limit::{INVENTORY_LIST, WORKLOADS};

fn clean(text: &mut String) {
    *text = sanitized(text);
}

impl Inventory {
    /// Each list cut to [`INVENTORY_LIST`] entries, each text made fit to be shown.
    #[must_use]
    pub fn bounded(mut self) -> Inventory {
        clean(&mut self.hostname);
        self.hardware.cpu_model.iter_mut().for_each(clean);
        self.hardware.memory_nodes.truncate(INVENTORY_LIST);
        self.hardware.checks.truncate(INVENTORY_LIST);
        for check in &mut self.hardware.checks {
            clean(&mut check.name);
            clean(&mut check.detail);
        }
        self.storage.truncate(INVENTORY_LIST);
        for storage in &mut self.storage {
            clean(&mut storage.path);
            clean(&mut storage.device);
        }
        clean(&mut self.versions.vk);
        self.versions.guest_kernel.iter_mut().for_each(clean);
        clean(&mut self.versions.config_hash);
        if let Some(runner) = &mut self.runner {
            clean(&mut runner.config);
            runner.runners.truncate(INVENTORY_LIST);
            runner.runners.iter_mut().for_each(clean);
        }
        self.labels.truncate(INVENTORY_LIST);
        self.registry_url.iter_mut().for_each(clean);
        self
    }
}

impl Report {
    /// At most [`WORKLOADS`] workloads, the rest counted as omitted, each text made fit to be
    /// shown.
    #[must_use]
    pub fn bounded(mut self) -> Report {
        if let Some(workloads) = &mut self.workloads {
            let over = workloads.len().saturating_sub(WORKLOADS);
            workloads.truncate(WORKLOADS);
            self.workloads_omitted = self
                .workloads_omitted
                .saturating_add(u32::try_from(over).unwrap_or(u32::MAX));
            for workload in workloads {
                clean(&mut workload.state_dir);
                [
                    &mut workload.label,
                    &mut workload.project,
                    &mut workload.job_name,
                ]
                .into_iter()
                .flatten()
                .for_each(clean);
            }
        }
        self.unsupported.truncate(INVENTORY_LIST);
        self.unsupported.iter_mut().for_each(clean);
        self.concurrency_error.iter_mut().for_each(clean);
        self.placed
            .iter_mut()
            .filter_map(|placed| placed.runner.as_mut())
            .for_each(clean);
        self
    }
}
