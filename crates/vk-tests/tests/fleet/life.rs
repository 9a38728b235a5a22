//! A program's life and death.

use rustix::process::{Pid, Signal, kill_process};

use crate::program::Program;

impl Program {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Whether it ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}
