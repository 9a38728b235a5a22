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
    /// The VM's own process.
    Machine,
    /// The guest's agent.
    Agent,
    /// The connection between node and hub.
    Session,
}

impl Victim {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Victim::Hub => "hub",
            Victim::Node => "node",
            Victim::Daemon => "daemon",
            Victim::Job => "job",
            Victim::Machine => "machine",
            Victim::Agent => "agent",
            Victim::Session => "session",
        }
    }

    /// Whose boundaries the moment is one of, as its kill file is called.
    pub(crate) const fn counts(self) -> &'static str {
        match self {
            Victim::Job | Victim::Machine | Victim::Agent => "job",
            Victim::Node | Victim::Session => "node",
            Victim::Hub => "hub",
            Victim::Daemon => "daemon",
        }
    }

    /// Whether it is struck from outside, while the party that counts holds still.
    pub(crate) const fn is_struck(self) -> bool {
        !matches!(self, Victim::Hub | Victim::Node | Victim::Daemon)
    }

    /// Whether it ends with its job's VM.
    pub(crate) const fn is_of_vm(self) -> bool {
        matches!(self, Victim::Machine | Victim::Agent)
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
    /// The how-many-th time, from 1.
    pub(crate) nth: u32,
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
        write!(f, "{core}{dot}{kind}.{variant}:{boundary}")?;
        match self.nth {
            1 => Ok(()),
            nth => write!(f, ":{nth}"),
        }
    }
}

/// Where a party dies: before a record is durable or an effect done, once it is, and behind both.
const BOUNDARIES: [&str; 3] = ["before", "synced", "after"];

/// Stages of a job that comes to all that a job of the table has: the VM is there from the end of
/// the first one to behind the last one.
pub(super) const STAGES: u32 = 7;

impl Point {
    /// What the party that counts is told.
    pub(super) fn told(self) -> String {
        let first = Point { nth: 1, ..self };
        let hold = if self.victim.is_struck() { ":hold" } else { "" };
        format!("{first}:{}{hold}", self.nth)
    }

    /// Whether it is told whenever tests run: of each variant one boundary, which differs from variant to
    /// variant, since a kill costs more than a second. All of them are told with `VK_LONG`.
    pub(super) fn is_told_always(self) -> bool {
        let is_synced = self.boundary == "synced";
        let nth = usize::try_from(self.nth).unwrap_or(0);
        let turn = self.variant.len().wrapping_add(nth) % BOUNDARIES.len();
        match self.victim {
            Victim::Hub | Victim::Node | Victim::Daemon | Victim::Job => {
                BOUNDARIES.get(turn) == Some(&self.boundary)
            }
            Victim::Machine => is_synced && self.kind == "Effect" && turn == 0,
            Victim::Agent => is_synced && self.kind == "Effect" && turn == 1,
            Victim::Session => is_synced && turn == 0,
        }
    }

    fn boundaries(self) -> [Point; 3] {
        BOUNDARIES.map(|boundary| Point { boundary, ..self })
    }

    /// The same at every later stage, where it comes once a stage.
    fn stages(self) -> Vec<Point> {
        if self.kind != "Effect" || self.variant != "Run" {
            return vec![self];
        }
        let each = (self.nth..=STAGES).map(|nth| Point { nth, ..self });
        each.collect()
    }

    /// The first time that there is a VM to be killed.
    fn with_vm(self) -> Self {
        let begins = matches!(self.variant, "StageStarted" | "Run");
        Point {
            nth: if begins { 2 } else { 1 },
            ..self
        }
    }
}

/// A moment of one of a party's enums, the first time.
fn of<R: Variant, E: Variant>(victim: Victim, core: &'static str) -> Vec<Point> {
    let records = R::ALL.iter().map(|name| ("Record", *name));
    let effects = E::ALL.iter().map(|name| ("Effect", *name));
    records
        .chain(effects)
        .flat_map(|(kind, variant)| {
            let point = Point {
                victim,
                core,
                kind,
                variant,
                boundary: "",
                nth: 1,
            };
            point.boundaries()
        })
        .collect()
}

/// All of them.
pub(crate) fn all() -> Vec<Point> {
    let of_node = of::<vk_node_core::Record, vk_node_core::Effect>;
    let of_job = of::<vk_stage_core::Record, vk_stage_core::Effect>;
    let with_vm = |victim| { of_job(victim, "").into_iter() }.map(Point::with_vm);
    let stages = [
        of_job(Victim::Job, ""),
        with_vm(Victim::Machine).collect(),
        with_vm(Victim::Agent).collect(),
    ];
    [
        of::<vk_hub_core::Record, vk_hub_core::Effect>(Victim::Hub, ""),
        of_node(Victim::Node, ""),
        of::<acquire::Record, acquire::Effect>(Victim::Daemon, "acquire"),
        of::<job::Record, job::Effect>(Victim::Daemon, "job"),
        stages
            .into_iter()
            .flatten()
            .flat_map(Point::stages)
            .collect(),
        of_node(Victim::Session, ""),
    ]
    .concat()
}
