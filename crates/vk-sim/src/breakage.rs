//! Named breakages: what the invariants must find, lest they find nothing.

/// A way to break a core from outside, as a fault in it would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// The hub sends a start whose answer is lost to another node (against API-30).
    DoubleStart,
    /// The hub acks output as it arrives (against DISP-50).
    AckBeforeSync,
    /// The node tells no job to stop (against DISP-12).
    ForgottenCancel,
    /// The node forgets the jobs whose results the hub has recorded, so that a start that comes again
    /// is a new one to it (against DISP-41).
    ForgottenJob,
    /// The hub gives a running job that its node no longer holds to another one (against DISP-72).
    PlacedAgain,
    /// The daemon asks GitLab under reservations nobody granted (against ADM-07).
    NoReservation,
    /// The daemon asks GitLab without the hub's word (against SESS-09).
    AskUnapproved,
    /// A job is let wait for room ten times as long as was asked for (against ADM-24).
    LongWait,
}
