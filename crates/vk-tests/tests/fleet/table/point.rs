//! The moments at which a party is killed: every variant of its cores' records and effects, before,
//! synced and after.

use std::fmt;

use vk_gitlab_core::{acquire, job};
use vk_step::Variant;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Hub,
    Node,
    Daemon,
    Job,
}

impl Victim {
    /// As its kill file is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Victim::Hub => "hub",
            Victim::Node => "node",
            Victim::Daemon => "daemon",
            Victim::Job => "job",
        }
    }
}

/// One moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) victim: Victim,
    /// The core, where the victim has several.
    pub(crate) core: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) boundary: &'static str,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.core.is_empty() { "" } else { "." };
        let Point {
            core,
            kind,
            variant,
            boundary,
            ..
        } = self;
        write!(f, "{core}{dot}{kind}.{variant}:{boundary}")
    }
}

/// A variant of one of a party's enums.
pub(crate) const fn variant(
    victim: Victim,
    core: &'static str,
    kind: &'static str,
    variant: &'static str,
) -> Point {
    Point {
        victim,
        core,
        kind,
        variant,
        boundary: "",
    }
}

impl Point {
    fn boundaries(self) -> [Point; 3] {
        ["before", "synced", "after"].map(|boundary| Point { boundary, ..self })
    }
}

fn of<R: Variant, E: Variant>(victim: Victim, core: &'static str) -> Vec<Point> {
    let records = R::ALL.iter().map(|name| ("Record", *name));
    let effects = E::ALL.iter().map(|name| ("Effect", *name));
    records
        .chain(effects)
        .flat_map(|(kind, name)| variant(victim, core, kind, name).boundaries())
        .collect()
}

/// All of them.
pub(crate) fn all() -> Vec<Point> {
    [
        of::<vk_hub_core::Record, vk_hub_core::Effect>(Victim::Hub, ""),
        of::<vk_node_core::Record, vk_node_core::Effect>(Victim::Node, ""),
        of::<acquire::Record, acquire::Effect>(Victim::Daemon, "acquire"),
        of::<job::Record, job::Effect>(Victim::Daemon, "job"),
        of::<vk_stage_core::Record, vk_stage_core::Effect>(Victim::Job, ""),
    ]
    .concat()
}
