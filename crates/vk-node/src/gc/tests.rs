use vk_node_core::Record;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn dated(path: &Path, age: Duration) {
    let file = fs::File::open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn job(state: &StateDir, number: u8, age: Duration) -> JobDir {
    let job = JobId::from_bytes([number; 16]);
    let dir = JobDir::new(job, state.job(job));
    dir.create(b"{}").unwrap();
    fs::write(dir.output(), vec![1; 10_000]).unwrap();
    drop(dir.tenant().unwrap());
    dated(dir.path(), age);
    dir
}

#[tokio::test]
async fn only_old_directories_of_jobs_that_nobody_knows_and_that_are_dead_go() {
    let root = tempfile::tempdir().unwrap();
    let state = StateDir::open(root.path()).unwrap();
    let (old, young, known, lives) = (
        job(&state, 1, 8 * DAY),
        job(&state, 2, 6 * DAY),
        job(&state, 3, 8 * DAY),
        job(&state, 4, 8 * DAY),
    );
    let (mut journal, _) = Journal::open(&state.journal()).unwrap();
    journal
        .append(&[Record::Recorded { job: known.job() }])
        .unwrap();
    let Tenant::None(_held) = lives.tenant().unwrap() else {
        panic!("nobody lives there yet")
    };
    let left = || [&old, &young, &known, &lives].map(|dir| dir.path().exists());
    let would = jobs(&state, 7 * DAY, false).await.unwrap();
    assert_eq!(left(), [true; 4]);
    let did = jobs(&state, 7 * DAY, true).await.unwrap();
    assert_eq!(left(), [false, true, true, true]);
    assert_eq!((would, did.count), (did, 1));
    assert!(did.bytes >= 10_000, "{did:?}");
    // One that never had a process is as old after a look as before.
    let bare = job(&state, 6, 8 * DAY);
    fs::remove_file(bare.file("lock")).unwrap();
    dated(bare.path(), 8 * DAY);
    for really in [false, false, true] {
        assert_eq!(jobs(&state, 7 * DAY, really).await.unwrap().count, 1);
    }
    assert!(!bare.path().exists());
    // However little is to be kept: an hour is.
    let fresh = job(&state, 5, YOUNGEST / 2);
    let did = jobs(&state, Duration::ZERO, true).await.unwrap();
    assert_eq!(did.count, 1);
    assert!(fresh.path().exists() && !young.path().exists());
}

#[test]
fn figures_of_runs_go_once_none_of_them_counts() {
    let root = tempfile::tempdir().unwrap();
    let state = StateDir::open(root.path()).unwrap();
    let project = state.past_runs().join("5-web-00");
    fs::create_dir_all(&project).unwrap();
    let file = |name: &str, age| {
        let path = project.join(name);
        fs::write(&path, "1 2 3\n").unwrap();
        dated(&path, age);
        path
    };
    let (old, young) = (file("build-1", 15 * DAY), file("test-2", 13 * DAY));
    let one = Removed { count: 1, bytes: 6 };
    assert_eq!(past_runs(&state, false).unwrap(), one);
    assert!(old.exists());
    assert_eq!(past_runs(&state, true).unwrap(), one);
    assert!(!old.exists() && young.exists());
    dated(&young, 20 * DAY);
    assert_eq!(past_runs(&state, true).unwrap(), one);
    assert!(!project.exists());
}
