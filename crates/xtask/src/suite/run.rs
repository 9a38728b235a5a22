//! Runs the staged test programs, one after another, and counts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::TestArgs;
use super::failures;
use super::index::{self, TestProgram};
use super::leftovers;
use super::libtest::{self, Totals};
use super::lock::RootLock;
use super::process::{self, End, Said};

/// How often a long silent program is mentioned.
const BEAT: Duration = Duration::from_secs(30);

/// How long a root's path may be, in bytes.
const LONGEST_ROOT: usize = 48;

/// Where and as whom programs run.
struct Place {
    root: PathBuf,
    user: Option<User>,
}

/// A user of the machine.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// Runs what was staged; `false` where a test failed or something was left behind.
pub(super) fn run(args: &TestArgs) -> Result<bool> {
    let root = args
        .root
        .canonicalize()
        .with_context(|| format!("{}", args.root.display()))?;
    let user = args.user.as_deref().map(User::find).transpose()?;
    let place = Place { root, user };
    let _lock = RootLock::take(&place.root)?;
    let programs = chosen(index::read(&place.root)?, &args.crates)?;
    place.refuse_long_paths()?;
    leftovers::adopt_orphans()?;

    let start = Instant::now();
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        eprint!("[{}/{}] ", number + 1, programs.len());
        let limit = program.wishes.limit_secs.unwrap_or(args.limit) * args.patience.max(1);
        let its = one(&place, program, Duration::from_secs(limit))?;
        totals += its;
        if its.failed > 0 {
            failed.push(program);
        }
    }
    if totals == Totals::default() {
        bail!("no test ran: {} test programs were chosen", programs.len());
    }
    for program in failed {
        let log = fs::read_to_string(place.log_of(program)).unwrap_or_default();
        eprintln!(
            "==== {} again\n{}\n====",
            program.name(),
            failures::of(&log)
        );
    }
    eprintln!("in {} s", start.elapsed().as_secs());
    println!("{} passed, {} failed", totals.passed, totals.failed);
    Ok(totals.failed == 0)
}

/// The programs of the crates asked for, or all.
fn chosen(programs: Vec<TestProgram>, crates: &[String]) -> Result<Vec<TestProgram>> {
    for name in crates {
        if !programs.iter().any(|program| program.package == *name) {
            bail!("no test of a crate {name} is staged");
        }
    }
    let asked = |program: &TestProgram| crates.is_empty() || crates.contains(&program.package);
    Ok(programs.into_iter().filter(asked).collect())
}

/// Runs one program and says how it went.
fn one(place: &Place, program: &TestProgram, limit: Duration) -> Result<Totals> {
    let name = program.name();
    eprint!("{name}: ");
    let work = place.make_work_folder(program)?;
    let log_path = place.log_of(program);
    let mut log = File::create(&log_path).with_context(|| format!("{}", log_path.display()))?;
    let mut counted: Option<Totals> = None;
    let mut last = String::new();
    // What is said between a program's name and its totals stands on lines of its own.
    let mut before_totals = "";

    let start = Instant::now();
    let end = process::run(
        &mut place.command(program, &work),
        limit,
        BEAT,
        |said| match said {
            Said::Line(line) => {
                // A log that cannot be written must not end the run: the totals are what counts.
                let _ = writeln!(log, "{line}");
                if let Some(totals) = libtest::result_line(line) {
                    *counted.get_or_insert_default() += totals;
                }
                if let Some(test) = libtest::failed_test(line) {
                    eprint!("\n    FAILED {test}");
                    before_totals = "\n    ";
                }
                line.clone_into(&mut last);
            }
            Said::Quiet(since) => {
                eprint!("\n    {} s, last line: {last:?}", since.as_secs());
                before_totals = "\n    ";
            }
        },
    )?;
    let took = start.elapsed();

    let mut totals = counted.unwrap_or_default();
    let mut faults = Vec::new();
    match end {
        End::TimedOut => faults.push(format!("killed at its limit of {} s", limit.as_secs())),
        End::Exited(status) if counted.is_none() => {
            faults.push(format!("ended without a result ({status})"));
        }
        End::Exited(status) if !status.success() && totals.failed == 0 => {
            faults.push(format!("no test failed, yet it ended with {status}"));
        }
        End::Exited(_) => {}
    }
    for left in leftovers::sweep()? {
        faults.push(format!(
            "left a process behind: {} {}",
            left.pid, left.command
        ));
    }
    if let Err(error) = fs::remove_dir_all(&work) {
        faults.push(format!(
            "left something behind in {}: {error}",
            work.display()
        ));
    }
    totals.failed += u64::try_from(faults.len()).unwrap_or(u64::MAX);
    let seconds = took.as_secs_f32();
    eprintln!(
        "{before_totals}{} passed, {} failed ({seconds:.1} s)",
        totals.passed, totals.failed
    );
    if totals.failed > 0 || program.wishes.show_output {
        let text = fs::read_to_string(&log_path).unwrap_or_default();
        eprintln!("---- {name}\n{}\n----", text.trim_end());
    }
    for fault in faults {
        eprintln!("    FAILED {name}: {fault}");
        let _ = writeln!(log, "FAILED {name}: {fault}");
    }
    Ok(totals)
}

impl TestProgram {
    fn log_name(&self) -> String {
        format!(
            "{}.log",
            self.path.file_name().unwrap_or_default().display()
        )
    }
}

impl Place {
    /// Where all that a program says is kept until it runs again.
    fn log_of(&self, program: &TestProgram) -> PathBuf {
        self.root.join("logs").join(program.log_name())
    }

    /// A test's sockets lie a few folders below the root, and a socket's path holds 107 bytes.
    fn refuse_long_paths(&self) -> Result<()> {
        let length = self.root.as_os_str().len();
        if length > LONGEST_ROOT {
            bail!(
                "the path {} has {length} bytes of at most {LONGEST_ROOT}: \
                 name a folder with a shorter one with VK_TEST_ROOT",
                self.root.display()
            );
        }
        Ok(())
    }

    /// An empty folder that belongs to the user: working directory, home and TMPDIR in one. Its name
    /// is short for the sockets in it.
    fn make_work_folder(&self, program: &TestProgram) -> Result<PathBuf> {
        let name = program.path.file_name().unwrap_or_default();
        let mut hash = 0_u32;
        for byte in name.as_encoded_bytes() {
            hash = hash.wrapping_mul(31).wrapping_add(u32::from(*byte));
        }
        let work = self.root.join("work").join(format!("{hash:08x}"));
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work).with_context(|| format!("making {}", work.display()))?;
        if let Some(user) = &self.user {
            std::os::unix::fs::chown(&work, Some(user.uid), Some(user.gid))
                .with_context(|| format!("giving {} to {}", work.display(), user.name))?;
        }
        Ok(work)
    }

    /// The command that runs a program as the user, with an environment of its own.
    fn command(&self, program: &TestProgram, work: &Path) -> Command {
        let path = self.root.join(&program.path);
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command
                    .arg(format!("--reuid={}", user.uid))
                    .arg(format!("--regid={}", user.gid));
                command
                    .args(["--init-groups", "--inh-caps=-all", "--"])
                    .arg(path);
                command
            }
            None => Command::new(path),
        };
        if program.wishes.show_output {
            command.arg("--show-output");
        }
        if let Some(threads) = program.wishes.threads {
            command.arg(format!("--test-threads={threads}"));
        }
        command.current_dir(work).env_clear();
        let own = std::env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy()));
        command.envs(own);
        command
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", work)
            .env("TMPDIR", work)
            .env("LANG", "C.UTF-8")
            .env("RUST_BACKTRACE", "1")
            .env("VK_TEST_ROOT", &self.root);
        if let Some(user) = &self.user {
            command.env("USER", &user.name).env("LOGNAME", &user.name);
        }
        command
    }
}

/// Settings of a run that its tests may read.
fn is_passed_on(name: &str) -> bool {
    name == "CI" || (name.starts_with("VK_") && name != "VK_TEST_ROOT")
}

impl User {
    /// Looks a user up.
    fn find(name: &str) -> Result<Self> {
        let path = "/etc/passwd";
        let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
        Self::in_passwd(&text, name)
            .with_context(|| format!("there is no user {name}: `make test` as root makes it"))
    }

    fn in_passwd(text: &str, name: &str) -> Option<Self> {
        let line = text
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Self {
            name: name.to_owned(),
            uid,
            gid,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::suite::alone;
    use crate::suite::index::Wishes;

    /// A staged "test program" that is a shell script.
    fn staged(script: &str) -> (tempfile::TempDir, Place, TestProgram) {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["tests", "logs", "work"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let path = PathBuf::from("tests/a--test--b");
        fs::write(dir.path().join(&path), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(dir.path().join(&path), PermissionsExt::from_mode(0o755)).unwrap();
        let place = Place {
            root: dir.path().to_path_buf(),
            user: None,
        };
        let program = TestProgram {
            package: "a".to_owned(),
            kind: "test".to_owned(),
            target: "b".to_owned(),
            path,
            wishes: Wishes::default(),
        };
        (dir, place, program)
    }

    fn totals(script: &str, limit: Duration) -> (u64, u64) {
        let _alone = alone();
        leftovers::adopt_orphans().unwrap();
        let (_dir, place, program) = staged(script);
        let totals = one(&place, &program, limit).unwrap();
        (totals.passed, totals.failed)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn results_are_counted() {
        let ok = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'";
        assert_eq!(totals(ok, LONG), (3, 0));
        let failed = "echo 'test result: FAILED. 3 passed; 2 failed; 0 ignored'; exit 101";
        assert_eq!(totals(failed, LONG), (3, 2));
    }

    #[test]
    fn a_program_without_a_result_counts_as_failed() {
        assert_eq!(totals("kill -9 $$", LONG), (0, 1));
        assert_eq!(totals("exit 0", LONG), (0, 1));
        let late = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; exit 101";
        assert_eq!(totals(late, LONG), (3, 1));
    }

    #[test]
    fn a_program_over_its_limit_counts_as_failed() {
        assert_eq!(totals("sleep 60", Duration::from_millis(200)), (0, 1));
    }

    #[test]
    fn a_process_left_behind_counts_as_failed() {
        let script = "setsid sleep 62 >/dev/null 2>&1 &\n\
                      echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        assert_eq!(totals(script, LONG), (1, 1));
    }

    #[test]
    fn a_program_gets_a_folder_and_the_settings_of_the_run_only() {
        let script = "test \"$PWD\" = \"$TMPDIR\" && test -n \"$VK_TEST_ROOT\" && \
                      test -z \"$CARGO_MANIFEST_DIR\" && touch \"$HOME/x\" && \
                      echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let _alone = alone();
        let (dir, place, program) = staged(script);
        assert_eq!(
            one(&place, &program, LONG).unwrap(),
            Totals {
                passed: 1,
                failed: 0
            }
        );
        let left = fs::read_dir(dir.path().join("work")).unwrap().count();
        assert_eq!(left, 0, "its folder is gone");
        assert!(is_passed_on("VK_LONG") && !is_passed_on("VK_TEST_ROOT") && !is_passed_on("HOME"));
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let text = "root:x:0:0:root:/:/bin/sh\nvk-test2:x:7:8::/:/bin/sh\nvk-test:x:5:6::/:/bin/sh";
        let user = User::in_passwd(text, "vk-test").unwrap();
        assert_eq!((user.uid, user.gid), (5, 6));
        assert!(User::in_passwd(text, "vk").is_none());
    }

    #[test]
    fn an_unknown_crate_is_an_error() {
        let (_dir, _place, program) = staged("");
        assert_eq!(
            chosen(vec![program.clone()], &["a".to_owned()])
                .unwrap()
                .len(),
            1
        );
        assert!(chosen(vec![program], &["z".to_owned()]).is_err());
    }
}
