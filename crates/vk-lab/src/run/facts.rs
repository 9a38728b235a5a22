//! What hub and node know of the jobs, by GitLab's number of each.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::RunError;
use super::fleet::Fleet;

/// What is known of one job; nothing where it was not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The host that ran it.
    pub(super) node: Option<String>,
    /// From the VMM's start to the agent's hello.
    pub(super) boot_ms: Option<u64>,
    /// Its VM's largest memory.
    pub(super) peak_bytes: Option<u64>,
    /// The VMM.
    pub(super) vmm: Option<String>,
    /// What the VM ran on.
    pub(super) accelerator: Option<String>,
    /// Unix milliseconds of the node's receipt of its start.
    pub(super) received_ms: Option<u64>,
}

/// The hub's row of a job.
#[derive(Debug, Deserialize)]
struct HubJob {
    view: HubView,
    gitlab_job: u64,
}

#[derive(Debug, Deserialize)]
struct HubView {
    node: Option<String>,
    result: Option<HubResult>,
}

#[derive(Debug, Deserialize)]
struct HubResult {
    usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    peak_mem_bytes: Option<u64>,
}

/// The hub's row of a node.
#[derive(Debug, Deserialize)]
struct HubNode {
    node: String,
    hostname: String,
}

/// The node's row of a job.
#[derive(Debug, Deserialize)]
struct NodeJob {
    gitlab_id: u64,
    received_ms: Option<u64>,
    boot_ms: Option<u64>,
    vmm: Option<String>,
    accelerator: Option<String>,
}

/// Asks both.
pub(super) async fn ask(fleet: &Fleet) -> Result<BTreeMap<u64, Facts>, RunError> {
    let jobs = fleet.hub_call(&["jobs", "--json"]).json::<Vec<HubJob>>();
    let nodes = fleet.hub_call(&["nodes", "--json"]).json::<Vec<HubNode>>();
    let node_jobs = fleet.node_call(&["jobs", "--json"]).json::<Vec<NodeJob>>();
    let (jobs, nodes, node_jobs) = tokio::join!(jobs, nodes, node_jobs);
    Ok(join(jobs?, &nodes?, node_jobs?))
}

fn join(jobs: Vec<HubJob>, nodes: &[HubNode], node_jobs: Vec<NodeJob>) -> BTreeMap<u64, Facts> {
    let mut facts: BTreeMap<u64, Facts> = BTreeMap::new();
    for job in jobs {
        let known = facts.entry(job.gitlab_job).or_default();
        let host = nodes
            .iter()
            .find(|node| Some(&node.node) == job.view.node.as_ref());
        known.node = host.map(|node| node.hostname.clone()).or(job.view.node);
        let usage = job.view.result.and_then(|result| result.usage);
        known.peak_bytes = usage.and_then(|usage| usage.peak_mem_bytes);
    }
    for job in node_jobs {
        let known = facts.entry(job.gitlab_id).or_default();
        known.boot_ms = job.boot_ms;
        known.vmm = job.vmm;
        known.accelerator = job.accelerator;
        known.received_ms = job.received_ms;
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_job_are_put_together() {
        let jobs = r#"[{"gitlab_job":7,"view":{"node":"n1","result":{"usage":{"peak_mem_bytes":5}}}},
                       {"gitlab_job":8,"view":{"node":"n2","result":null}}]"#;
        let nodes = r#"[{"node":"n1","hostname":"host"}]"#;
        let node_jobs = r#"[{"gitlab_id":7,"received_ms":1,"boot_ms":2,"vmm":"qemu","accelerator":"tcg","x":1}]"#;
        let facts = join(
            serde_json::from_str(jobs).unwrap(),
            &serde_json::from_str::<Vec<HubNode>>(nodes).unwrap(),
            serde_json::from_str(node_jobs).unwrap(),
        );
        let want = Facts {
            node: Some("host".into()),
            boot_ms: Some(2),
            peak_bytes: Some(5),
            vmm: Some("qemu".into()),
            accelerator: Some("tcg".into()),
            received_ms: Some(1),
        };
        assert_eq!(facts[&7], want);
        assert_eq!(facts[&8].node.as_deref(), Some("n2"));
        assert_eq!(facts[&8].boot_ms, None);
    }
}
