//! What operators read of a job: what happened, and where it went wrong what that means.

use std::fmt;

use vk_hub_proto::client::ErrorCode;

use super::{Note, WhyGivenUp};

impl Note {
    /// Its name, which does not change with the words.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Whether something went wrong that an operator may want to look at.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        match self {
            Note::Received
            | Note::Resumed
            | Note::Submitted
            | Note::Accepted
            | Note::Ended
            | Note::Reported
            | Note::Settled
            | Note::Canceling
            | Note::GivenUp(WhyGivenUp::Canceled | WhyGivenUp::Failed) => false,
            Note::Undelivered { .. }
            | Note::GivenUp(WhyGivenUp::Forbidden | WhyGivenUp::NotFound)
            | Note::Refused(_)
            | Note::Abandoned
            | Note::Hub { .. }
            | Note::ProxySuspected { .. }
            | Note::TraceAhead { .. }
            | Note::TraceBehind { .. }
            | Note::LostByHub
            | Note::RelayRemoved
            | Note::StoreFailed { .. } => true,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Received => f.write_str("GitLab handed the job over"),
            Note::Resumed => f.write_str("the job is carried on after a restart"),
            Note::Submitted => f.write_str("the hub has the job"),
            Note::Accepted => f.write_str("a node took the job"),
            Note::Ended => f.write_str("the job ended"),
            Note::Reported => f.write_str("GitLab has the job's final state"),
            Note::Undelivered { state, why } => write!(
                f,
                "GitLab will never have the job's final state ({state}): {why}; it ends the job by \
                 itself, as one that ran too long or whose runner was lost"
            ),
            Note::Settled => f.write_str("the hub settled the job"),
            Note::Canceling => f.write_str("GitLab asks to stop the job"),
            Note::GivenUp(WhyGivenUp::Canceled) => f.write_str("the job was canceled in GitLab"),
            Note::GivenUp(WhyGivenUp::Failed) => f.write_str("GitLab has failed the job by itself"),
            Note::GivenUp(WhyGivenUp::Forbidden) => f.write_str(
                "GitLab answered 403 and does not say why: most likely the trace is larger than it \
                 takes, or the job was erased or its project deleted; the job is stopped",
            ),
            Note::GivenUp(WhyGivenUp::NotFound) => {
                f.write_str("GitLab answered 404: the job is stopped")
            }
            Note::Refused(failure) => write!(f, "the job was refused: {failure}"),
            Note::Abandoned => f.write_str(
                "whether the hub has the job is not known: it fails in GitLab, and is stopped at the \
                 hub once that answers",
            ),
            Note::Hub { what, failure } if failure.code == Some(ErrorCode::Forbidden) => write!(
                f,
                "{what}: {failure}; tried again, once an hour at least. `vk-hub status` on the hub \
                 names what waits for an operator there"
            ),
            Note::Hub { what, failure } => write!(f, "{what}: {failure}; tried again"),
            Note::ProxySuspected { status } => write!(
                f,
                "the answer {status} is none of GitLab's own: look for a proxy before it"
            ),
            Note::TraceAhead { gitlab, ours } => write!(
                f,
                "GitLab's trace has {gitlab} bytes, and only {ours} are this job's: another wrote to it"
            ),
            Note::TraceBehind {
                gitlab,
                acknowledged,
            } => write!(
                f,
                "GitLab has {gitlab} bytes of the trace and had {acknowledged}: it lost some, which \
                 are sent again"
            ),
            Note::LostByHub => f.write_str("the hub has no record of the job any more"),
            Note::RelayRemoved => f.write_str(
                "the hub knows this daemon no more and says nothing of the job: it fails in GitLab",
            ),
            Note::StoreFailed { why } => write!(
                f,
                "the runner's state file cannot be written, so the job waits: {why}"
            ),
        }
    }
}
