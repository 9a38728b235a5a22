use vk_hub_core::Record;
use vk_hub_proto::{JobId, NodeId};

use super::{Batch, Opened, Piece};
use crate::fleet::failing::Failing;

/// API-40, FAIL-23
#[tokio::test]
async fn output_outlives_a_settle_that_could_not_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let outputs = dir.path().join("jobs");
    let job = JobId::from_bytes([1; 16]);
    let store = Failing::default();
    let mut opened = Opened::open(store.boxed(), outputs.clone()).unwrap();
    let append = Piece::Append {
        job,
        offset: 0,
        bytes: b"kept".to_vec(),
    };
    let batch = Batch {
        output: vec![append],
        ..Batch::default()
    };
    opened.disk.write(batch).unwrap();
    let synced = opened.disk.done.recv().await.unwrap();
    assert_eq!(synced.unwrap(), [(job, 4)]);

    store.fail(true);
    let settle = || Batch {
        records: vec![Record::NodeRemoved {
            node: NodeId::from_bytes([2; 16]),
        }],
        output: vec![Piece::Drop(job)],
    };
    opened.disk.write(settle()).unwrap();
    assert!(opened.disk.done.recv().await.unwrap().is_err());
    store.fail(false);
    let mut again = Opened::open(store.boxed(), outputs).unwrap();
    assert_eq!(again.outputs, [(job, 4)].into(), "nothing said it may go");

    again.disk.write(settle()).unwrap();
    assert!(again.disk.done.recv().await.unwrap().is_ok());
    let read = again.disk.read(job, 0, 4).await.unwrap();
    assert!(read.is_err(), "it went with its settle");
}
