//! What operators read of a runner: what happened, and what to do about it.

use std::fmt;

use super::Note;

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TokenRefused => f.write_str(
                "GitLab refuses this runner's token: it takes no jobs until GitLab takes the token \
                 again or the daemon is started with another (`vk-gitlab verify` asks GitLab)",
            ),
            Note::TokenTaken => f.write_str("GitLab takes this runner's token again"),
            Note::Unhealthy {
                failures,
                pause,
                why,
            } => write!(
                f,
                "GitLab failed {failures} times in a row, the last time so: {why}; the runner asks \
                 again in {} s",
                pause.as_secs()
            ),
            Note::BackOff { status, pause } => write!(
                f,
                "GitLab asks to wait ({status}): the runner asks again in {} s",
                pause.as_secs()
            ),
            Note::RequestLost { why } => write!(
                f,
                "a job request got no whole answer, so a job may be lost at GitLab: {why}"
            ),
            Note::ReservationLost { reservation, how } => write!(
                f,
                "reservation {reservation} was lost under an open job request: {how:?}"
            ),
            Note::LeaseTooShort { lease_secs } => write!(
                f,
                "a node granted a lease of {lease_secs} s, too short for a job request: given back"
            ),
            Note::Hub { what, failure } => write!(f, "{what}: {failure}; tried again"),
            Note::NoNodes => f.write_str(
                "no node of the fleet is in this runner's pool, so it takes no jobs: \
                 `vk-hub nodes` shows every node's pools, `vk-hub nodes pools` changes them",
            ),
            Note::StoreFailed { why } => write!(
                f,
                "the runner's state file cannot be written, so it takes no jobs until it can: {why}"
            ),
            Note::StoreWorks => f.write_str("the runner's state file can be written again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stops_a_runner_is_said_with_what_to_do() {
        let says = |note: Note, words: &str| {
            let text = note.to_string();
            assert!(text.contains(words), "{text}");
        };
        says(Note::TokenRefused, "vk-gitlab verify");
        says(Note::NoNodes, "vk-hub nodes pools");
        let why = "no space left".to_owned();
        says(Note::StoreFailed { why }, "no space left");
    }
}
