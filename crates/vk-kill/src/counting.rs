use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use vk_step::Variant;

use crate::{At, AtError, Boundary, Kind};

/// How often one that holds still looks whether it may go on, where it was not stopped at once.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The number of seconds that `VK_TEST_<name>` says, where it is one; else the usual time.
#[must_use]
pub fn seconds(name: &str, usual: Duration) -> Duration {
    told(name).map_or(usual, Duration::from_secs)
}

/// The number that `VK_TEST_<name>` says, where it is one; else the usual one.
#[must_use]
pub fn number(name: &str, usual: usize) -> usize {
    told(name).unwrap_or(usual)
}

fn told<T: std::str::FromStr>(name: &str) -> Option<T> {
    let told = std::env::var(format!("VK_TEST_{name}")).ok();
    told.and_then(|text| text.parse().ok())
}

/// Where a program that was told by this file to hold still says, by its process number, that it
/// does.
fn held_file(file: &Path) -> PathBuf {
    file.with_extension("held")
}

/// Counts boundaries and dies at the one that was asked for.
#[derive(Clone, Debug, Default)]
pub struct KillPoints {
    core: &'static str,
    told: Option<Arc<Told>>,
}

/// What was asked for, and how often its boundary was reached.
#[derive(Debug)]
struct Told {
    /// The file that may say otherwise at any time.
    file: Option<PathBuf>,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    text: String,
    at: Option<At>,
    reached: u64,
}

impl KillPoints {
    /// The moment that `VK_KILL_AT` names; none where it is not set.
    ///
    /// # Errors
    /// It names none.
    pub fn from_env() -> Result<KillPoints, AtError> {
        match std::env::var("VK_KILL_AT") {
            Ok(text) => KillPoints::told(&text),
            Err(_) => Ok(KillPoints::default()),
        }
    }

    fn told(text: &str) -> Result<KillPoints, AtError> {
        let (file, at) = match text.strip_prefix('@') {
            Some(file) => (Some(PathBuf::from(file)), None),
            None => (None, Some(text.parse::<At>()?)),
        };
        // Nobody could tell it to go on.
        if at.as_ref().is_some_and(|at| at.holds) {
            return Err(AtError(text.to_owned()));
        }
        let count = Count {
            at,
            ..Count::default()
        };
        let told = Told {
            file,
            count: Mutex::new(count),
        };
        Ok(KillPoints {
            core: "",
            told: Some(Arc::new(told)),
        })
    }

    /// The same, for the steps of one of the program's cores.
    #[must_use]
    pub fn of(&self, core: &'static str) -> KillPoints {
        let told = self.told.clone();
        KillPoints { core, told }
    }

    /// A step is about to be written.
    pub fn before<'a, R: Variant, E: Variant + 'a>(
        &self,
        records: &[R],
        effects: impl IntoIterator<Item = &'a E>,
    ) {
        self.step(Boundary::Before, records, effects);
    }

    /// A step is durable and none of its effects is released.
    pub fn synced<'a, R: Variant, E: Variant + 'a>(
        &self,
        records: &[R],
        effects: impl IntoIterator<Item = &'a E>,
    ) {
        self.step(Boundary::Synced, records, effects);
    }

    /// An effect of this variant was released. The name alone: an effect is consumed when it is
    /// released, and is not copied for this.
    pub fn after_effect(&self, variant: &'static str) {
        self.reached(Boundary::After, Kind::Effect, variant);
    }

    /// The first effect of a step with these records was released, or there was none to release.
    pub fn after_records<R: Variant>(&self, records: &[R]) {
        records
            .iter()
            .for_each(|record| self.reached(Boundary::After, Kind::Record, record.variant()));
    }

    fn step<'a, R: Variant, E: Variant + 'a>(
        &self,
        boundary: Boundary,
        records: &[R],
        effects: impl IntoIterator<Item = &'a E>,
    ) {
        let records = records.iter().map(Variant::variant);
        records.for_each(|variant| self.reached(boundary, Kind::Record, variant));
        let effects = effects.into_iter().map(Variant::variant);
        effects.for_each(|variant| self.reached(boundary, Kind::Effect, variant));
    }

    fn reached(&self, boundary: Boundary, kind: Kind, variant: &str) {
        let Some(told) = &self.told else { return };
        let Some(holds) = told.is_due(boundary, self.core, kind, variant) else {
            return;
        };
        if let (true, Some(file)) = (holds, &told.file) {
            return hold(file);
        }
        if let Some(file) = &told.file {
            // Where that fails the next life dies too, which a test sees.
            let _ = fs::remove_file(file);
        }
        signal(Signal::KILL);
        // The signal may come a moment later; nothing happens in it.
        loop {
            std::thread::park();
        }
    }
}

/// As `kill` would: no destructor, no flush, no goodbye.
fn signal(signal: Signal) {
    // One's own process may be signalled by anybody.
    let _ = kill_process(getpid(), signal);
}

/// Stops the whole process until whoever asked for it continues it and removes its word.
fn hold(file: &Path) {
    let held = held_file(file);
    let word = file.with_extension("holding");
    let said = fs::write(&word, getpid().as_raw_pid().to_string())
        .and_then(|()| fs::rename(&word, &held))
        .and_then(|()| fs::remove_file(file));
    if said.is_err() {
        // A test that waits for the word says that it never came.
        return;
    }
    signal(Signal::STOP);
    // Other threads may have been stopped a moment earlier than this one.
    while held.exists() {
        std::thread::sleep(LOOK_AGAIN);
    }
}

impl Told {
    /// Whether the moment has come, and then whether the program holds still there.
    fn is_due(&self, boundary: Boundary, core: &str, kind: Kind, variant: &str) -> Option<bool> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            count.read(&fs::read_to_string(file).unwrap_or_default());
        }
        let is_meant = |at: &&At| at.boundary == boundary && at.names(core, kind, variant);
        let At { nth, holds, .. } = count.at.as_ref().filter(is_meant)?;
        let (nth, holds) = (*nth, *holds);
        count.reached += 1;
        (count.reached == nth).then_some(holds)
    }
}

impl Count {
    /// A text that is no moment, a half-written one too, is none.
    fn read(&mut self, text: &str) {
        if text != self.text {
            *self = Count {
                at: text.parse().ok(),
                text: text.to_owned(),
                reached: 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_due(kill: &KillPoints, boundary: Boundary, variant: &str) -> bool {
        let told = kill.told.as_ref().unwrap();
        told.is_due(boundary, kill.core, Kind::Effect, variant)
            .is_some()
    }

    #[test]
    fn the_nth_time_of_the_named_boundary_is_due_and_no_other() {
        let kill = KillPoints::told("Start:after:2").unwrap();
        assert!(!is_due(&kill, Boundary::Synced, "Start"));
        assert!(!is_due(&kill, Boundary::After, "Stop"));
        assert!(!is_due(&kill, Boundary::After, "Start"));
        assert!(is_due(&kill, Boundary::After, "Start"));
        assert!(!is_due(&kill, Boundary::After, "Start"));
    }

    #[test]
    fn a_program_with_several_cores_dies_in_the_one_that_is_named() {
        let kill = KillPoints::told("job.Release:after:1").unwrap();
        assert!(!is_due(&kill.of("acquire"), Boundary::After, "Release"));
        assert!(is_due(&kill.of("job"), Boundary::After, "Release"));
    }

    #[test]
    fn a_file_says_when_while_the_program_runs() {
        let dir = std::env::temp_dir().join(format!("vk-kill-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("at");
        let kill = KillPoints::told(&format!("@{}", file.display())).unwrap();
        assert!(!is_due(&kill, Boundary::After, "Start"));
        fs::write(&file, "Start:after:2\n").unwrap();
        assert!(!is_due(&kill, Boundary::After, "Start"));
        fs::remove_file(&file).unwrap();
        assert!(!is_due(&kill, Boundary::After, "Start"));
        fs::write(&file, "Start:after:2").unwrap();
        assert!(!is_due(&kill, Boundary::After, "Start"));
        assert!(is_due(&kill, Boundary::After, "Start"));
        fs::write(&file, "Stop:after:1:hold").unwrap();
        let told = kill.told.as_ref().unwrap();
        let due = told.is_due(Boundary::After, "", Kind::Effect, "Stop");
        assert_eq!(due, Some(true), "it holds still and does not die");
        fs::remove_dir_all(&dir).unwrap();
        assert!(KillPoints::told("Stop:after:1:hold").is_err());
    }
}
