//! `vk node drain` and `vk node undrain`.

use std::io::Write as _;

use anyhow::bail;
use vk_hub_proto::node_session::NodeState;
use vk_node::admin;
use vk_node::state_dir::StateDir;
use vk_node::view::StatusView;

use super::show::line;

/// Drains the node; where asked to, until nothing is left on it.
pub(super) async fn drain(state: &StateDir, wait: bool) -> anyhow::Result<()> {
    admin::drain(state).await?;
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
        NodeState::Drained => line(format_args!("drained")),
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
        NodeState::Drained => status.jobs > 0,
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
    match status.state {
        NodeState::Draining => format!("draining: {jobs} jobs and {held} reservations are left"),
        NodeState::Drained if jobs > 0 => {
            format!("drained, but for {jobs} results that the hub has not yet")
        }
        NodeState::Drained => "drained".to_owned(),
        NodeState::Ready => "ready: the node takes work".to_owned(),
        NodeState::Quarantined => "quarantined at the hub: no work is taken".to_owned(),
        _ => "in maintenance: no work is taken".to_owned(),
    }
}
