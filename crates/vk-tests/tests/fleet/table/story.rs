//! What happens to a job, so that a variant is reached.

use crate::settings::Settings;

use super::point::{Point, Victim};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Story {
    /// A job, from its beginning to its end.
    Plain,
    /// The victim is killed in mid-job, and dies again as it starts.
    Started,
    /// GitLab cancels the job and waits for nobody.
    Canceled,
    /// GitLab asks for the job to be cancelled.
    Canceling,
    /// The job's process is killed.
    Orphaned,
    /// The node is killed in mid-job and comes back.
    NodeBack,
    /// The node dies before it keeps the job it was sent.
    Unkept,
    /// The daemon dies between a patch and its record, so that GitLab has more than it knows of.
    Ahead,
    /// The operator puts the node into other pools.
    Pools,
    /// The operator gives the node another ceiling.
    Ceiling,
    /// The operator removes the node.
    Removed,
    /// The operator rejects GitLab and approves of it again.
    Judged,
    /// The operator removes the daemon, which joins anew and calls GitLab by another name.
    Renamed,
    /// The operator has not approved the project.
    Unapproved,
    /// The hub is away until the daemon gives the job up.
    Unplaced,
    /// The daemon is told to end in mid-job.
    Drained,
    /// The daemon is told to end while there is no job.
    Left,
    /// A job in a daemon's only slot.
    OneSlot,
    /// GitLab refuses a job request for a moment.
    Refused,
    /// No job is there for a while.
    Idle,
    /// Jobs of old leave the history.
    Forgotten,
    /// The hub's disk fails for a while.
    Full,
    /// The job wants more memory than it was placed with, and gets it.
    Granted,
    /// It cannot get it.
    Denied,
}

/// How a fleet is set up; a story is told in a fleet of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum House {
    /// As usual.
    Usual,
    /// One slot, and job requests that are not held.
    OneSlot,
    /// The hub keeps one settled job, and requests for a second.
    Forgetful,
    /// The hub keeps one GitLab server.
    Narrow,
    /// Projects wait for approval, and the hub keeps one that does.
    Asking,
    /// The daemon gives jobs up after a second.
    Hasty,
    /// The hub's files can be kept from growing.
    Limited,
    /// A node that can never give a job what it asks for.
    Small,
    /// One that can.
    Large,
    /// Jobs run in real VMs.
    Machines,
}

impl House {
    pub(crate) fn settings(self) -> Settings {
        let mut settings = Settings {
            held: true,
            wired: true,
            schedule: "mem_budget = \"64G\"".to_owned(),
            ..Settings::default()
        };
        match self {
            House::Usual => {}
            House::Machines => settings.machines = true,
            House::OneSlot => {
                settings.concurrent = 1;
                settings.held = false;
            }
            House::Forgetful => {
                settings.history = 1;
                let times = [
                    ("VK_TEST_REMEMBER_REQUESTS", "1"),
                    ("VK_TEST_REDIAL_WINDOW", "0"),
                ];
                settings.environment.extend(times);
            }
            House::Limited => settings.limited = true,
            House::Asking => {
                settings.approve = "ask";
                settings.environment.push(("VK_TEST_PROJECTS", "1"));
            }
            House::Narrow => settings.environment.push(("VK_TEST_SERVERS", "1")),
            House::Hasty => settings.environment.push(("VK_TEST_PLACE_WITHIN", "1")),
            House::Small | House::Large => {
                let budget = if self == House::Small { 3 } else { 6 };
                settings.vm = "max_mem = \"4G\"".to_owned();
                settings.schedule = format!("mem_budget = \"{budget}G\"");
            }
        }
        settings
    }
}

impl Story {
    pub(crate) const fn house(self) -> House {
        match self {
            Story::Drained | Story::Idle | Story::Left | Story::OneSlot => House::OneSlot,
            Story::Renamed => House::Narrow,
            Story::Unapproved => House::Asking,
            Story::Unplaced => House::Hasty,
            Story::Denied => House::Small,
            Story::Granted => House::Large,
            Story::Full => House::Limited,
            Story::Forgotten => House::Forgetful,
            _ => House::Usual,
        }
    }
}

/// The story that reaches a point, or why none does.
pub(crate) fn of(point: &Point) -> Result<Story, &'static str> {
    let story = match point.victim {
        Victim::Hub => of_hub(point.variant),
        Victim::Node | Victim::Session => return of_node(point.variant),
        Victim::Daemon => return of_daemon(point.core, point.variant),
        Victim::Job | Victim::Machine | Victim::Agent => of_job(point.variant),
    };
    Ok(story)
}

fn of_hub(variant: &str) -> Story {
    match variant {
        "Clock" | "RetainOutputs" => Story::Started,
        "JobCancel" | "Cancel" => Story::Canceled,
        "NodeSilent" | "NodeHeard" => Story::NodeBack,
        "JobQueued" => Story::Unkept,
        "NodePools" => Story::Pools,
        "NodeDesired" | "Desired" => Story::Ceiling,
        "NodeRemoved" | "Close" => Story::Removed,
        "SubmissionRefused" | "ProjectKnown" | "ProjectDropped" => Story::Unapproved,
        "ServerKnown" | "Audited" | "Server" => Story::Judged,
        "ServerDropped" | "RelayServer" | "RelayRemoved" | "CloseRelay" => Story::Renamed,
        "JobForgotten" | "RequestForgotten" => Story::Forgotten,
        "Renew" => Story::Idle,
        "Release" => Story::Left,
        "Stopped" => Story::Full,
        _ => Story::Plain,
    }
}

fn of_node(variant: &str) -> Result<Story, &'static str> {
    Ok(match variant {
        "Attach" | "SendReport" => Story::Started,
        "Cancelled" | "Stop" => Story::Canceled,
        "Closing" | "CleanUp" | "CloseOutput" => Story::Orphaned,
        "Granted" => Story::Granted,
        "Denied" | "Deny" => Story::Denied,
        "Desired" => Story::Ceiling,
        "Commanded" | "SendAck" => {
            return Err("no hub sends commands yet; vk-node's own table, with a scripted hub");
        }
        _ => Story::Plain,
    })
}

fn of_daemon(core: &str, variant: &str) -> Result<Story, &'static str> {
    Ok(match (core, variant) {
        ("acquire", "DrawRequestIds" | "Verify" | "State") => Story::Started,
        ("acquire", "Renew") => Story::Idle,
        ("acquire", "Release") => Story::Left,
        ("acquire", "WantSlot") => Story::OneSlot,
        ("acquire", "PassSlot" | "Drained") => Story::Drained,
        ("acquire", "Note") => Story::Refused,
        ("job", "Suffix" | "Refused" | "Release" | "RenderSuffix") => Story::Unapproved,
        ("job", "Abandoned") => Story::Unplaced,
        ("job", "GivenUp" | "Cancel") => Story::Canceled,
        ("job", "Sum") => Story::Ahead,
        ("job", "Closing") => {
            return Err(
                "closing lines of a job that the hub has want a node that is lost for minutes; the \
                 daemon's core is cut after each of its records in its own tests",
            );
        }
        _ => Story::Plain,
    })
}

fn of_job(variant: &str) -> Story {
    match variant {
        "Kill" | "Print" => Story::Canceling,
        _ => Story::Plain,
    }
}
