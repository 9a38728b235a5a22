//! The agent's last words when it fails: on the console, and to the host.

use std::sync::{Mutex, OnceLock};

use vk_guest_proto::{ControlToHost, Failure, FailureCode};

use crate::conn::{Conn, Outgoing};

static CONTROL: OnceLock<Mutex<Outgoing>> = OnceLock::new();

/// Says on the console what a person should know.
pub fn log(message: &str) {
    use std::io::Write;
    // Without a console there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "vk-agent: {message}");
}

/// Sends a failure of this program to the host too, over the control stream.
pub(crate) fn report_on(conn: Conn) {
    // A second control stream would be one of a second agent in the same process.
    let _ = CONTROL.set(Mutex::new(Outgoing::new(conn)));
}

/// Says that the agent cannot go on. The frame may cut into one that another thread is sending,
/// which the host sees as an error too.
pub fn last_words(why: &str) {
    log(why);
    if let Some(Ok(mut out)) = CONTROL.get().map(Mutex::try_lock) {
        let failure = Failure::new(FailureCode::Internal, why);
        let _ = out.send(&ControlToHost::Fault { failure });
    }
}
