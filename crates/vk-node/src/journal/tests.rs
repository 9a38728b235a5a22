use std::fs;

use vk_hub_proto::JobId;
use vk_hub_proto::client::CancelMode;
use vk_node_core::Record;

use super::*;

fn record(number: u8) -> Record {
    Record::Cancelled {
        job: JobId::from_bytes([number; 16]),
        mode: CancelMode::Graceful,
    }
}

fn open(path: &Path) -> (Journal, Vec<Record>) {
    Journal::open(path).unwrap()
}

#[test]
fn what_was_appended_is_there_after_a_restart_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, none) = open(&path);
    assert!(none.is_empty() && journal.is_empty());
    journal.append(&[record(1), record(2)]).unwrap();
    journal.append(&[record(3)]).unwrap();
    drop(journal);
    assert_eq!(open(&path).1, [record(1), record(2), record(3)]);
}

/// DISP-41: a batch torn at any byte loses records of that batch alone, from some record on, and
/// the journal takes new ones behind what is left.
#[test]
fn a_torn_write_loses_nothing_that_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, _) = open(&path);
    journal.append(&[record(1)]).unwrap();
    let synced = journal.len();
    journal.append(&[record(2), record(3)]).unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    let first = usize::try_from(synced).unwrap();
    for torn in (first..whole.len()).step_by(5).chain([whole.len()]) {
        fs::write(&path, &whole[..torn]).unwrap();
        let (mut journal, read) = open(&path);
        let all = [record(1), record(2), record(3)];
        assert_eq!(read, all[..read.len()], "torn at {torn}");
        assert!(!read.is_empty() && (read.len() == 3) == (torn == whole.len()));
        journal.append(&[record(9)]).unwrap();
        drop(journal);
        assert_eq!(open(&path).1.last(), Some(&record(9)), "torn at {torn}");
    }
}

/// A disk may write the later pages of a batch and not the earlier.
#[test]
fn a_hole_in_a_batch_that_was_never_synced_ends_the_journal_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, _) = open(&path);
    journal.append(&[record(1)]).unwrap();
    let hole = usize::try_from(journal.len()).unwrap();
    journal.append(&[record(2), record(3)]).unwrap();
    drop(journal);
    let mut bytes = fs::read(&path).unwrap();
    bytes[hole..hole + 30].fill(0);
    fs::write(&path, bytes).unwrap();
    assert_eq!(open(&path).1, [record(1)]);
}

#[test]
fn damage_to_what_was_durable_is_refused_not_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, _) = open(&path);
    for number in 1..4 {
        journal.append(&[record(number)]).unwrap();
    }
    drop(journal);
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEAD + 3] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Journal::open(&path).unwrap_err().to_string();
    assert!(error.contains("byte 0"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_replaced_journal_holds_the_new_records_and_takes_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, _) = open(&path);
    journal.append(&[record(1), record(2)]).unwrap();
    journal.replace(&[record(5)]).unwrap();
    journal.append(&[record(6)]).unwrap();
    assert_eq!(journal.durable().unwrap(), [record(5), record(6)]);
    drop(journal);
    assert_eq!(open(&path).1, [record(5), record(6)]);
}

#[test]
fn after_a_failed_write_what_was_written_of_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (mut journal, _) = open(&path);
    journal.append(&[record(1)]).unwrap();
    // Half of a batch reached the file before the disk failed.
    let half = frames(&[record(2)], journal.len()).unwrap();
    journal.file.write_all(&half).unwrap();
    assert_eq!(journal.durable().unwrap(), [record(1)]);
    journal.mend().unwrap();
    drop(journal);
    assert_eq!(open(&path).1, [record(1)]);
}
