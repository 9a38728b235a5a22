use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vk_step::Variant;

use crate::{At, AtError, Boundary, Kind};

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
            None => (None, Some(text.parse()?)),
        };
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
        if told.is_due(boundary, self.core, kind, variant) {
            if let Some(file) = &told.file {
                // Where that fails the next life dies too, which a test sees.
                let _ = fs::remove_file(file);
            }
            // As `kill -9` would: no destructor, no flush, no goodbye.
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            // The signal may come a moment later; nothing happens in it.
            loop {
                std::thread::park();
            }
        }
    }
}

impl Told {
    fn is_due(&self, boundary: Boundary, core: &str, kind: Kind, variant: &str) -> bool {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            count.read(&fs::read_to_string(file).unwrap_or_default());
        }
        let is_meant = |at: &&At| at.boundary == boundary && at.names(core, kind, variant);
        let Some(nth) = count.at.as_ref().filter(is_meant).map(|at| at.nth) else {
            return false;
        };
        count.reached += 1;
        count.reached == nth
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
        fs::remove_dir_all(&dir).unwrap();
    }
}
