use std::process::{Command, Stdio};

use vk_vm::confine::Place;

use super::super::HostGit;
use super::super::tests::behind;
use super::*;

/// What comes comes within this.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_lock_that_is_dropped_is_free_although_a_fork_still_holds_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = Lock::take(&path).await.unwrap();
    let _fork = held.file().unwrap();
    let second = Lock::take_within(&path, WAIT * 2).await.unwrap();
    assert!(second.is_none(), "it is held");
    drop(held);
    let taken = Lock::take_within(&path, SOON).await.unwrap();
    assert!(taken.is_some(), "it is free");
}

#[tokio::test]
async fn a_lock_is_of_the_gits_that_are_left_behind_until_they_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let held = Lock::take(&path).await.unwrap();
    let git = held.file().unwrap();
    held.leave();
    drop(held);
    assert!(Lock::try_take(&path).unwrap().is_none());
    drop(git);
    let taken = Lock::take_within(&path, SOON).await.unwrap();
    assert!(taken.is_some(), "it is free");
}

/// Where [`holder_process`] works.
const DIR: &str = "VK_TEST_LOCK_DIR";

/// A git that waits for the end of what comes out of a pipe.
async fn slow(git: &HostGit, dir: &Path) -> Result<(), GitError> {
    let wait = format!(
        "!exec < {0}/pipe; echo $VK_JOB > {0}/runs; cat",
        dir.display()
    );
    let settings = [("alias.slow".to_owned(), wait)];
    git.feed("wait", &settings, &["slow".into()], b"").await
}

async fn git_of(dir: &Path, lock: &Lock) -> HostGit {
    let git = behind(HostGit::new(dir.join("home")).unwrap()).await;
    git.seeing(&[Place::write(dir)]).under(lock)
}

/// No test: a job's process that is killed in mid git.
#[tokio::test]
async fn holder_process() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let lock = Lock::take(&dir.join("lock")).await.unwrap();
    let git = git_of(dir, &lock).await;
    slow(&git, dir).await.unwrap();
}

/// Waits until a git runs that waits at the pipe; its end of the pipe.
async fn runs(dir: &Path) -> File {
    // Opened by both: neither waits for the other.
    let mut both = OpenOptions::new();
    let pipe = both.read(true).write(true).open(dir.join("pipe")).unwrap();
    tokio::time::timeout(SOON, async {
        let said = || fs::read_to_string(dir.join("runs")).unwrap_or_default();
        while !said().ends_with('\n') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    pipe
}

fn pipe(dir: &Path) {
    let made = Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(made.unwrap().success());
}

#[tokio::test]
async fn the_git_of_a_process_that_was_killed_keeps_the_lock_until_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    pipe(dir);
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "git::lock::tests::holder_process"])
        .env(DIR, dir)
        .env("VK_JOB", "the-job")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pipe = runs(dir).await;
    process.kill().unwrap();
    process.wait().unwrap();
    // By that the node finds it.
    let job = fs::read_to_string(dir.join("runs")).unwrap();
    assert_eq!(job, "the-job\n");
    let path = dir.join("lock");
    assert!(Lock::try_take(&path).unwrap().is_none(), "its git works on");
    // The only writer of the pipe: git reads its end.
    drop(pipe);
    let taken = Lock::take_within(&path, SOON).await.unwrap();
    assert!(taken.is_some(), "it is free");
}

#[tokio::test]
async fn a_git_that_is_given_up_is_gone_before_its_lock_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    pipe(dir);
    let path = dir.join("lock");
    let lock = Lock::take(&path).await.unwrap();
    let git = git_of(dir, &lock).await;
    let given_up = {
        let (git, dir) = (git.clone(), dir.to_owned());
        tokio::spawn(async move { slow(&git, &dir).await })
    };
    let pipe = runs(dir).await;
    given_up.abort();
    given_up.await.unwrap_err();
    // Whoever has it now is neither this nor its git, which was killed: it never reads the pipe's end.
    drop(lock);
    let taken = Lock::take_within(&path, SOON).await.unwrap();
    assert!(taken.is_some(), "it is free");
    drop(pipe);
}
