use proptest::prelude::*;

use super::*;

fn job(number: u8) -> JobId {
    JobId::from_bytes([number; 16])
}

/// API-40, FAIL-23
#[test]
fn output_is_read_from_any_offset_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = OutputLog::open(dir.path().join("jobs")).unwrap();
    log.append(job(1), 0, b"hello ").unwrap();
    log.append(job(2), 0, b"other").unwrap();
    log.append(job(1), 6, b"world\n").unwrap();
    log.sync().unwrap();
    let check = |log: &OutputLog| {
        assert_eq!(log.read(job(1), 0, 12).unwrap(), b"hello world\n");
        assert_eq!(log.read(job(1), 4, 4).unwrap(), b"o wo");
        assert_eq!(log.read(job(1), 12, 0).unwrap(), b"");
        assert!(log.read(job(1), 12, 1).is_err());
    };
    check(&log);
    drop(log);
    let log = OutputLog::open(dir.path().join("jobs")).unwrap();
    check(&log);
    assert_eq!(log.lengths(), [(job(1), 12), (job(2), 5)].into());
}

#[test]
fn a_torn_frame_at_the_end_is_cut_off_and_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut log = OutputLog::open(path.clone()).unwrap();
    log.append(job(1), 0, b"whole").unwrap();
    log.append(job(1), 5, b"torn").unwrap();
    let segment = path.join("000000000001.seg");
    let len = segment.metadata().unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(len - 1)
        .unwrap();
    drop(log);
    let mut log = OutputLog::open(path).unwrap();
    assert_eq!(log.lengths(), [(job(1), 5)].into());
    log.append(job(1), 5, b" again").unwrap();
    assert_eq!(log.read(job(1), 0, 11).unwrap(), b"whole again");
}

#[test]
fn a_gap_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = OutputLog::open(dir.path().join("jobs")).unwrap();
    assert!(log.append(job(1), 1, b"x").is_err());
}

/// API-44
#[test]
fn a_retired_segment_is_gathered_and_a_dropped_output_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut log = OutputLog::open(path.clone()).unwrap();
    log.append(job(1), 0, b"kept ").unwrap();
    log.append(job(2), 0, b"dropped").unwrap();
    let mib = vec![7; 1024 * 1024];
    for number in 0..66_u64 {
        log.append(job(3), number * 1024 * 1024, &mib).unwrap();
    }
    log.append(job(1), 5, b"on").unwrap();
    assert!(
        !path.join("000000000001.seg").exists(),
        "the first segment is gone"
    );
    log.drop_output(job(2)).unwrap();
    assert_eq!(log.read(job(1), 0, 7).unwrap(), b"kept on");
    assert_eq!(log.read(job(3), 65 * 1024 * 1024 - 3, 6).unwrap(), [7; 6]);
    drop(log);
    let mut log = OutputLog::open(path.clone()).unwrap();
    assert_eq!(log.read(job(1), 0, 7).unwrap(), b"kept on");
    log.retain(&[job(1)]).unwrap();
    assert!(!path.join(format!("{}.out", job(3))).exists());
    assert!(!path.join(format!("{}.out", job(2))).exists());
}

/// Opens a log whose segments are closed after a frame or two.
fn small(path: &Path) -> OutputLog {
    let mut log = OutputLog::open(path.to_owned()).unwrap();
    log.segment_bytes = 60;
    log
}

/// FAIL-23
#[test]
fn a_gathering_that_was_cut_short_loses_nothing_that_was_acked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut log = OutputLog::open(path.clone()).unwrap();
    log.append(job(1), 0, b"hello ").unwrap();
    log.append(job(1), 6, b"world\n").unwrap();
    log.sync().unwrap();
    drop(log);
    // The disk was full, or the host died before the file's bytes were on it.
    for half in [&b"hello wo"[..], b"hel", b"", &[0; 12]] {
        fs::write(path.join(format!("{}.out", job(1))), half).unwrap();
        let log = OutputLog::open(path.clone()).unwrap();
        assert_eq!(log.lengths(), [(job(1), 12)].into(), "{half:?}");
        assert_eq!(log.read(job(1), 0, 12).unwrap(), b"hello world\n");
    }
    let mut log = small(&path);
    log.append(job(2), 0, &[1; 100]).unwrap();
    log.append(job(2), 100, b"x").unwrap();
    assert!(!path.join("000000000001.seg").exists());
    assert_eq!(log.read(job(1), 0, 12).unwrap(), b"hello world\n");
}

#[test]
fn a_segment_whose_gathering_failed_goes_with_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut log = small(&path);
    log.append(job(1), 0, &[1; 60]).unwrap();
    let own = path.join(format!("{}.out", job(1)));
    fs::create_dir(&own).unwrap();
    assert!(
        log.append(job(2), 0, b"x").is_err(),
        "nothing can be gathered"
    );
    fs::remove_dir(&own).unwrap();
    drop(log);
    let mut log = small(&path);
    log.append(job(2), 0, &[2; 60]).unwrap();
    log.append(job(2), 60, b"x").unwrap();
    let segments = fs::read_dir(&path).unwrap();
    let segments =
        segments.filter(|entry| segment::number(&entry.as_ref().unwrap().path()).is_some());
    assert_eq!(segments.count(), 1, "only the newest is left");
    assert_eq!(log.read(job(1), 0, 60).unwrap(), [1; 60]);
    assert_eq!(log.read(job(2), 0, 61).unwrap().last(), Some(&b'x'));
}

#[test]
fn many_jobs_are_gathered_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs");
    let mut log = OutputLog::open(path.clone()).unwrap();
    for number in 0..100 {
        log.append(job(number), 0, &[number; 3]).unwrap();
    }
    log.segment_bytes = 1;
    log.append(job(0), 3, b"x").unwrap();
    assert!(!path.join("000000000001.seg").exists());
    drop(log);
    let log = OutputLog::open(path).unwrap();
    for number in 0..100 {
        assert_eq!(log.read(job(number), 0, 3).unwrap(), [number; 3]);
    }
}

#[derive(Clone, Debug)]
enum Do {
    Append(u8, Vec<u8>),
    Drop(u8),
    Reopen,
}

fn doing() -> impl Strategy<Value = Do> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..50);
    prop_oneof![
        8 => (0_u8..3, bytes).prop_map(|(of, bytes)| Do::Append(of, bytes)),
        1 => (0_u8..3).prop_map(Do::Drop),
        1 => Just(Do::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn whatever_is_appended_is_read_back(steps in proptest::collection::vec(doing(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs");
        let mut log = small(&path);
        let mut model: BTreeMap<JobId, Vec<u8>> = BTreeMap::new();
        // A job's number is never given again.
        let mut dropped = std::collections::BTreeSet::new();
        for step in steps {
            match step {
                Do::Append(of, bytes) if !dropped.contains(&of) => {
                    let all = model.entry(job(of)).or_default();
                    log.append(job(of), all.len() as u64, &bytes).unwrap();
                    all.extend(bytes);
                }
                Do::Append(..) => {}
                Do::Drop(of) => {
                    log.drop_output(job(of)).unwrap();
                    model.remove(&job(of));
                    dropped.insert(of);
                }
                Do::Reopen => {
                    log = small(&path);
                    let jobs: Vec<JobId> = model.keys().copied().collect();
                    log.retain(&jobs).unwrap();
                }
            }
        }
        for (of, all) in &model {
            for from in 0..all.len() {
                let read = log.read(*of, from as u64, (all.len() - from) as u64).unwrap();
                prop_assert_eq!(&read, &all[from..]);
            }
            let half = all.len() / 2;
            prop_assert_eq!(log.read(*of, 0, half as u64).unwrap(), &all[..half]);
        }
    }
}
