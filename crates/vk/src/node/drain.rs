//! `vk node drain` and `vk node undrain`.

use std::io::Write as _;

use anyhow::bail;
use vk_hub_proto::node_session::NodeState;
use vk_node::admin;
use vk_node::state_dir::StateDir;
use vk_node::view::StatusView;

use super::show::line;

/// Drains the node; where asked to, until nothing is left on it.
pub(super) async fn drain(state: &StateDir, wait: bool, maintenance: bool) -> anyhow::Result<()> {
    if maintenance {
        admin::maintain(state).await?;
    } else {
        admin::drain(state).await?;
    }
    let mut status = admin::status(state).await?;
    if !wait {
        return line(format_args!("{}", stands(&status)));
    }
    while is_left(&status) {
        tell(&status);
        let before = stands(&status);
        while is_left(&status) && stands(&status) == before {
            status = admin::change(state, &status).await?;
        }
    }
    match status.state {
        // Somebody else was faster.
        NodeState::Ready => bail!("the drain was ended by another command"),
        _ => line(format_args!("{}", stands(&status))),
    }
}

/// Ends a drain.
pub(super) async fn undrain(state: &StateDir) -> anyhow::Result<()> {
    admin::undrain(state).await?;
    let status = admin::status(state).await?;
    line(format_args!("{}", stands(&status)))
}

/// A job's result that the hub has not is left as well: it would go with the disk.
fn is_left(status: &StatusView) -> bool {
    match status.state {
        NodeState::Draining => true,
        NodeState::Drained | NodeState::Maintenance => status.jobs > 0,
        _ => false,
    }
}

fn tell(status: &StatusView) {
    // With nowhere to write to there is still the exit code.
    let _ = writeln!(std::io::stderr(), "vk: {}", stands(status));
}

fn stands(status: &StatusView) -> String {
    let entries = status.admission.running + status.admission.waiting;
    let jobs = u32::try_from(status.jobs).unwrap_or(u32::MAX);
    let held = entries.saturating_sub(jobs);
    let left = || match jobs + held {
        0 => String::new(),
        _ => format!("; {jobs} jobs and {held} reservations are left"),
    };
    match status.state {
        NodeState::Draining => format!("draining: {jobs} jobs and {held} reservations are left"),
        NodeState::Drained | NodeState::Maintenance if jobs > 0 => {
            format!("drained, but for {jobs} results that the hub has not yet")
        }
        NodeState::Drained => "drained".to_owned(),
        NodeState::Ready => "ready: the node takes work".to_owned(),
        NodeState::Quarantined => format!("quarantined at the hub: no work is taken{}", left()),
        _ => format!("in maintenance: no work is taken{}", left()),
    }
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::node_session::Admission;

    use super::*;

    #[test]
    fn each_state_is_told_with_what_is_still_here() {
        let of = |state, jobs, running, waiting| {
            stands(&StatusView {
                version: "1".to_owned(),
                node_id: "n".to_owned(),
                hub: "https://hub".to_owned(),
                connected: true,
                state,
                admission: Admission {
                    committed_mib: 256,
                    budget_mib: None,
                    running,
                    waiting,
                },
                store_failed: None,
                jobs,
            })
        };
        let draining = of(NodeState::Draining, 2, 2, 1);
        assert_eq!(draining, "draining: 2 jobs and 1 reservations are left");
        let results = of(NodeState::Drained, 3, 0, 0);
        assert_eq!(
            results,
            "drained, but for 3 results that the hub has not yet"
        );
        assert_eq!(of(NodeState::Drained, 0, 0, 0), "drained");
        assert_eq!(of(NodeState::Ready, 2, 2, 0), "ready: the node takes work");
        assert_eq!(
            of(NodeState::Maintenance, 1, 0, 0),
            "drained, but for 1 results that the hub has not yet"
        );
        assert_eq!(
            of(NodeState::Maintenance, 0, 0, 0),
            "in maintenance: no work is taken"
        );
        let quarantined = of(NodeState::Quarantined, 2, 2, 0);
        assert_eq!(
            quarantined,
            "quarantined at the hub: no work is taken; 2 jobs and 0 reservations are left"
        );
        assert_eq!(
            of(NodeState::Quarantined, 0, 0, 0),
            "quarantined at the hub: no work is taken"
        );
    }
}
