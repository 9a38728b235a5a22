//! Tables for people; JSON is for programs.

use std::io::Write as _;

use vk_hub_proto::client::JobState;
use vk_hub_proto::node_session::NodeState;

use crate::admin::{GitLab, JobRow, NodeRow, PendingRow, RelayRow, Status};
use crate::http::TurnedAway;
use crate::store::AuditLine;

/// The last second that the form of times can show.
const LAST: u64 = 253_402_300_799;

/// Lines of what waits in `vk-hub status`.
const PENDING: usize = 20;

/// Prints rows under a heading, each column as wide as its widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> std::io::Result<()> {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        let title = heading.get(column).map_or(0, |title| title.len());
        cells.chain([title]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut out = std::io::stdout().lock();
    let heading = heading.iter().map(|title| (*title).to_owned()).collect();
    for row in [heading].iter().chain(rows) {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

pub(crate) fn nodes(rows: &[NodeRow]) -> std::io::Result<()> {
    let heading = [
        "NODE",
        "HOST",
        "STATE",
        "POOLS",
        "PLACED",
        "CAP",
        "CPUS",
        "MEMORY MiB",
    ];
    let cells = rows.iter().map(|row| {
        let state = match (row.connected, row.takes_work, row.state) {
            (false, ..) => "away".to_owned(),
            (true, true, _) => "ready".to_owned(),
            // A ready node that takes none was told to, or has a runner of its own.
            (true, false, None | Some(NodeState::Ready)) => "takes no work".to_owned(),
            (true, false, Some(state)) => word(&state),
        };
        let pools: Vec<&str> = row.pools.iter().map(vk_hub_proto::Name::as_str).collect();
        vec![
            row.node.to_string(),
            row.hostname.clone(),
            state,
            pools.join(","),
            row.placed.to_string(),
            or_dash(row.cap),
            or_dash(row.cpus),
            format!("{}/{}", or_dash(row.committed_mib), or_dash(row.budget_mib)),
        ]
    });
    table(&heading, &cells.collect::<Vec<_>>())
}

fn state(job: &JobRow) -> String {
    match (&job.view.state, &job.view.result) {
        (JobState::Finished, Some(result)) => match result.failure {
            None => "success".to_owned(),
            Some(class) => word(&class),
        },
        (state, _) => word(state),
    }
}

/// An enum's word on the wire.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

pub(crate) fn relays(rows: &[RelayRow]) -> std::io::Result<()> {
    let heading = ["RELAY", "HOST", "STATE", "SERVER", "STATUS", "RUNNERS"];
    let cells = rows.iter().map(|row| {
        let runner = |one: &crate::admin::RunnerRow| format!("{} {}", one.name, word(&one.state));
        let runners: Vec<String> = row.runners.iter().map(runner).collect();
        vec![
            row.relay.to_string(),
            row.hostname.clone(),
            if row.connected { "here" } else { "away" }.to_owned(),
            or_dash(row.server.as_deref()),
            or_dash(row.status.map(|status| word(&status))),
            or_dash((!runners.is_empty()).then(|| runners.join(", "))),
        ]
    });
    table(&heading, &cells.collect::<Vec<_>>())
}

/// Servers, then projects.
pub(crate) fn gitlab(all: &GitLab) -> std::io::Result<()> {
    let servers = all.servers.iter().map(|row| {
        vec![
            row.server.clone(),
            word(&row.decision),
            if row.all_projects { "all" } else { "ask" }.to_owned(),
            row.url.clone(),
            or_dash(row.spki_sha256),
        ]
    });
    let heading = ["SERVER", "STATE", "PROJECTS", "URL", "KEY"];
    table(&heading, &servers.collect::<Vec<_>>())?;
    writeln!(std::io::stdout())?;
    let projects = all.projects.iter().map(|row| {
        vec![
            row.project.clone(),
            word(&row.decision),
            row.server.clone(),
            row.gitlab_project.to_string(),
            row.path.clone(),
        ]
    });
    let heading = ["PROJECT", "STATE", "SERVER", "ID", "PATH"];
    table(&heading, &projects.collect::<Vec<_>>())
}

/// A line each, with its time in UTC.
pub(crate) fn audit(lines: &[AuditLine]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    lines.iter().try_for_each(|line| {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(line.at.min(LAST));
        let at = httpdate::fmt_http_date(at);
        writeln!(out, "{at}  {}: {}", line.what, line.detail)
    })
}

pub(crate) fn pending(rows: &[PendingRow]) -> std::io::Result<()> {
    let cells = rows
        .iter()
        .map(|row| vec![row.id.clone(), row.what.clone()]);
    table(&["ID", "WAITS"], &cells.collect::<Vec<_>>())
}

pub(crate) fn jobs(rows: &[JobRow]) -> std::io::Result<()> {
    let heading = [
        "JOB", "GITLAB", "PROJECT", "NAME", "STATE", "STAGE", "OUTPUT", "SETTLED",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.id().to_string(),
            row.gitlab_job.to_string(),
            row.project.clone(),
            row.name.clone(),
            state(row),
            or_dash(row.view.stage.as_deref()),
            row.view.output_len.to_string(),
            if row.settled { "yes" } else { "no" }.to_owned(),
        ]
    });
    table(&heading, &cells.collect::<Vec<_>>())
}

pub(crate) fn job(row: &JobRow) -> std::io::Result<()> {
    let result = row.view.result.as_ref();
    let usage = result.and_then(|result| result.usage);
    let pairs = [
        ("job", row.id().to_string()),
        (
            "gitlab job",
            format!("{} at {}", row.gitlab_job, row.server),
        ),
        ("project", format!("{} ({})", row.project, row.ref_name)),
        ("name", format!("{} in stage {}", row.name, row.stage)),
        (
            "image",
            if row.image.is_empty() {
                "the node's default".into()
            } else {
                row.image.clone()
            },
        ),
        ("state", state(row)),
        ("node", or_dash(row.view.node)),
        ("last stage", or_dash(row.view.stage.as_deref())),
        ("output bytes", row.view.output_len.to_string()),
        (
            "exit code",
            or_dash(result.and_then(|result| result.exit_code)),
        ),
        (
            "message",
            or_dash(result.and_then(|result| result.message.as_deref())),
        ),
        ("wall ms", or_dash(usage.map(|usage| usage.wall_ms))),
        (
            "peak memory bytes",
            or_dash(usage.and_then(|usage| usage.peak_mem_bytes)),
        ),
        (
            "settled",
            if row.settled {
                "yes".into()
            } else {
                "no".into()
            },
        ),
    ];
    let mut out = std::io::stdout().lock();
    pairs
        .into_iter()
        .try_for_each(|(key, value)| writeln!(out, "{key:<18} {value}"))
}

pub(crate) fn status(status: &Status) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "vk-hub {} at {}", status.version, status.addr)?;
    writeln!(
        out,
        "nodes   {} ready of {}",
        status.nodes_ready, status.nodes
    )?;
    writeln!(out, "relays  {}", status.relays)?;
    writeln!(
        out,
        "jobs    {} unfinished, {} unsettled",
        status.jobs_unfinished, status.jobs_unsettled
    )?;
    let turned = status.turned_away;
    if turned != TurnedAway::default() {
        writeln!(
            out,
            "turned away for [limits] in hub.toml: {} clients, {} nodes, {} unauthenticated; {} \
             bodies were late",
            turned.clients, turned.nodes, turned.strangers, turned.late_bodies
        )?;
    }
    let shown = status.pending.iter().take(PENDING);
    for row in shown {
        let PendingRow { id, what } = row;
        writeln!(out, "waits   {what}: vk-hub gitlab approve {id}")?;
    }
    let more = status.pending.len().saturating_sub(PENDING);
    if more > 0 {
        writeln!(out, "waits   {more} more: vk-hub gitlab pending")?;
    }
    status
        .warnings
        .iter()
        .try_for_each(|warning| writeln!(out, "warning: {warning}"))
}
