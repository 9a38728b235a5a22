//! SQLite: one file, WAL, `synchronous=FULL`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use vk_hub_core::{Keep, Principal, Record, Row, Subject};
use vk_hub_proto::hex::Hex;

use super::{AuditLine, Member, MemberKind, Redeemed, Store, StoreError};
use crate::members::unix_now;

/// The schema this program writes.
const SCHEMA: i64 = 1;

const CREATE: &str = "
CREATE TABLE row (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL,
    part TEXT NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (subject, part)
);
CREATE TABLE member (
    id BLOB PRIMARY KEY,
    kind TEXT NOT NULL,
    public_key BLOB NOT NULL,
    hostname TEXT NOT NULL,
    enrolled INTEGER NOT NULL,
    removed INTEGER
);
CREATE UNIQUE INDEX member_key ON member (kind, public_key) WHERE removed IS NULL;
CREATE TABLE token (
    hash BLOB PRIMARY KEY,
    kind TEXT NOT NULL,
    expires INTEGER NOT NULL,
    used INTEGER
);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    what TEXT NOT NULL,
    detail TEXT NOT NULL
);
";

/// Audit lines kept.
const AUDIT_LINES: i64 = 100_000;

/// The database.
pub struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

impl Sqlite {
    /// Opens the database, making it where it is missing.
    ///
    /// # Errors
    /// It cannot be opened, or a later version wrote it.
    pub fn open(path: &Path) -> Result<Sqlite, StoreError> {
        let fail = |action| fail(action, path);
        let connection = Connection::open(path).map_err(fail("open"))?;
        connection
            .busy_timeout(Duration::from_secs(10))
            .map_err(fail("set up"))?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;",
            )
            .map_err(fail("set up"))?;
        let found: i64 = connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(fail("read"))?;
        if found > SCHEMA {
            return Err(StoreError::TooNew {
                path: path.to_owned(),
                found,
                known: SCHEMA,
            });
        }
        if found == 0 {
            let create = format!("BEGIN; {CREATE} PRAGMA user_version = {SCHEMA}; COMMIT;");
            connection.execute_batch(&create).map_err(fail("create"))?;
        }
        Ok(Sqlite {
            path: path.to_owned(),
            connection,
        })
    }

    fn transaction<T>(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let run = |connection: &mut Connection| {
            // Members and records have a connection each. A transaction that reads before it writes
            // would fail at once where the other wrote in between; this one waits its turn.
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        run(&mut self.connection).map_err(fail(action, &self.path))
    }
}

fn fail(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Database {
        action,
        path,
        source,
    }
}

fn key(subject: Subject) -> String {
    match subject {
        Subject::Hub => "hub".to_owned(),
        Subject::Node(node) => format!("node/{node}"),
        Subject::Job(job) => format!("job/{job}"),
        Subject::Request(Principal::Relay(relay), request) => format!("request/{relay}/{request}"),
        Subject::Relay(relay) => format!("relay/{relay}"),
        Subject::Server(server) => format!("server/{server}"),
        Subject::Project(project) => format!("project/{project}"),
    }
}

fn put(transaction: &Transaction<'_>, row: Row, record: &Record) -> rusqlite::Result<()> {
    let json = serde_json::to_string(record)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    transaction
        .prepare_cached(
            "INSERT INTO row (subject, part, record) VALUES (?1, ?2, ?3)
             ON CONFLICT (subject, part) DO UPDATE SET record = excluded.record",
        )?
        .execute(params![key(row.subject), row.part, json])?;
    Ok(())
}

fn clear(transaction: &Transaction<'_>, subject: Subject) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM row WHERE subject = ?1")?
        .execute(params![key(subject)])?;
    Ok(())
}

fn keep(transaction: &Transaction<'_>, record: &Record) -> rusqlite::Result<()> {
    match record.row() {
        Keep::Put(row) => put(transaction, row, record),
        Keep::Remove(row) => {
            transaction
                .prepare_cached("DELETE FROM row WHERE subject = ?1 AND part = ?2")?
                .execute(params![key(row.subject), row.part])?;
            Ok(())
        }
        Keep::Clear(subject) => clear(transaction, subject),
        Keep::ClearAndPut(subject, row) => {
            clear(transaction, subject)?;
            put(transaction, row, record)
        }
        Keep::Audit => match record {
            Record::Audited { what, detail } => audit(transaction, unix_now(), what, detail),
            _ => Ok(()),
        },
    }
}

/// A line of the audit log, in the transaction of what it tells of.
fn audit(
    transaction: &Transaction<'_>,
    now: u64,
    what: &str,
    detail: &str,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO audit (at, what, detail) VALUES (?1, ?2, ?3)",
        params![signed(now), what, detail],
    )?;
    transaction.execute(
        "DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - ?1",
        params![AUDIT_LINES],
    )?;
    Ok(())
}

/// Seconds as SQLite has numbers.
fn signed(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn kind(word: &str) -> Option<MemberKind> {
    [MemberKind::Node, MemberKind::GitLab]
        .into_iter()
        .find(|kind| kind.word() == word)
}

fn member(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Member>> {
    let (id, word): ([u8; 16], String) = (row.get(0)?, row.get(1)?);
    let (key, hostname): ([u8; 32], String) = (row.get(2)?, row.get(3)?);
    Ok(kind(&word).map(|kind| Member {
        id,
        kind,
        public_key: Hex(key),
        hostname,
    }))
}

impl Store for Sqlite {
    fn records(&mut self) -> Result<Vec<Record>, StoreError> {
        let rows = self.transaction("read", |transaction| {
            let mut query =
                transaction.prepare("SELECT position, record FROM row ORDER BY position")?;
            let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, String)>>>()
        })?;
        let read = |(position, json): (i64, String)| {
            serde_json::from_str(&json).map_err(|error| StoreError::Damaged {
                row: position.to_string(),
                path: self.path.clone(),
                why: error.to_string(),
            })
        };
        rows.into_iter().map(read).collect()
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.transaction("write", |transaction| {
            records
                .iter()
                .try_for_each(|record| keep(transaction, record))
        })
    }

    fn members(&mut self) -> Result<Vec<Member>, StoreError> {
        let members = self.transaction("read", |transaction| {
            let mut query = transaction.prepare(
                "SELECT id, kind, public_key, hostname FROM member WHERE removed IS NULL",
            )?;
            let members = query.query_map([], member)?;
            members.collect::<rusqlite::Result<Vec<Option<Member>>>>()
        })?;
        Ok(members.into_iter().flatten().collect())
    }

    fn add_token(
        &mut self,
        hash: &[u8; 32],
        kind: MemberKind,
        expires: u64,
    ) -> Result<(), StoreError> {
        self.transaction("write", |transaction| {
            transaction.execute(
                "INSERT INTO token (hash, kind, expires) VALUES (?1, ?2, ?3)",
                params![hash, kind.word(), signed(expires)],
            )?;
            Ok(())
        })
    }

    fn redeem(
        &mut self,
        hash: &[u8; 32],
        now: u64,
        wanted: &Member,
    ) -> Result<Redeemed, StoreError> {
        self.transaction("write", |transaction| {
            let token: Option<(String, i64, Option<i64>)> = transaction
                .query_row(
                    "SELECT kind, expires, used FROM token WHERE hash = ?1",
                    [hash],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let pinned = transaction
                .query_row(
                    "SELECT id, kind, public_key, hostname FROM member
                     WHERE kind = ?1 AND public_key = ?2 AND removed IS NULL",
                    params![wanted.kind.word(), wanted.public_key.0],
                    member,
                )
                .optional()?
                .flatten();
            match (refused(token.as_ref(), wanted.kind, now), pinned) {
                // Its answer was lost, or the hub died over it: asked again it is the same enrolment.
                (Some(Refusal::Used), Some(pinned)) => return Ok(Redeemed::Member(pinned)),
                (Some(refusal), _) => return Ok(Redeemed::Refused(refusal.why())),
                (None, Some(pinned)) => {
                    use_up(transaction, hash, now)?;
                    return Ok(Redeemed::Member(pinned));
                }
                (None, None) => use_up(transaction, hash, now)?,
            }
            transaction.execute(
                "INSERT INTO member (id, kind, public_key, hostname, enrolled)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    wanted.id,
                    wanted.kind.word(),
                    wanted.public_key.0,
                    wanted.hostname,
                    signed(now)
                ],
            )?;
            let detail = format!("{} {}", wanted.node(), wanted.hostname);
            audit(
                transaction,
                now,
                &format!("{} enrolled", wanted.kind.word()),
                &detail,
            )?;
            Ok(Redeemed::Member(wanted.clone()))
        })
    }

    fn remove_member(&mut self, id: &[u8; 16], now: u64) -> Result<bool, StoreError> {
        self.transaction("write", |transaction| {
            let changed = transaction.execute(
                "UPDATE member SET removed = ?2 WHERE id = ?1 AND removed IS NULL",
                params![id, signed(now)],
            )?;
            if changed > 0 {
                let detail = vk_hub_proto::hex::encode(id);
                audit(transaction, now, "member removed", &detail)?;
            }
            Ok(changed > 0)
        })
    }

    fn audit(&mut self, most: u32) -> Result<Vec<AuditLine>, StoreError> {
        let mut lines = self.transaction("read", |transaction| {
            let mut query = transaction
                .prepare("SELECT at, what, detail FROM audit ORDER BY id DESC LIMIT ?1")?;
            let lines = query.query_map([most], |row| {
                let at: i64 = row.get(0)?;
                Ok(AuditLine {
                    at: u64::try_from(at).unwrap_or(0),
                    what: row.get(1)?,
                    detail: row.get(2)?,
                })
            })?;
            lines.collect::<rusqlite::Result<Vec<AuditLine>>>()
        })?;
        lines.reverse();
        Ok(lines)
    }
}

/// Why a token enrols nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Unknown,
    Used,
    Expired,
    /// It is for the other kind; here is the kind that was wanted.
    Kind(MemberKind),
}

impl Refusal {
    const fn why(self) -> &'static str {
        match self {
            Refusal::Unknown => "this hub made no such token",
            Refusal::Used => "the token was used already",
            Refusal::Expired => "the token has expired",
            Refusal::Kind(MemberKind::Node) => "the token is for a vk-gitlab, not for a node",
            Refusal::Kind(MemberKind::GitLab) => "the token is for a node, not for a vk-gitlab",
        }
    }
}

/// Whether a token is no good. A used one of the right kind is `Used` until it would have expired.
fn refused(
    token: Option<&(String, i64, Option<i64>)>,
    wanted: MemberKind,
    now: u64,
) -> Option<Refusal> {
    let Some((word, expires, used)) = token else {
        return Some(Refusal::Unknown);
    };
    if kind(word) != Some(wanted) {
        Some(Refusal::Kind(wanted))
    } else if *expires < signed(now) {
        Some(Refusal::Expired)
    } else {
        used.map(|_| Refusal::Used)
    }
}

fn use_up(transaction: &Transaction<'_>, hash: &[u8; 32], now: u64) -> rusqlite::Result<()> {
    let used = "UPDATE token SET used = ?2 WHERE hash = ?1";
    transaction.execute(used, params![hash, signed(now)])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::{JobId, NodeId};

    use super::*;

    fn open() -> (tempfile::TempDir, Sqlite) {
        let dir = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&dir.path().join("hub.db")).unwrap();
        (dir, store)
    }

    fn wanted(kind: MemberKind, id: u8, key: u8) -> Member {
        Member {
            id: [id; 16],
            kind,
            public_key: Hex([key; 32]),
            hostname: "host".into(),
        }
    }

    #[test]
    fn what_reads_before_it_writes_is_not_overtaken_by_the_other_connection() {
        let (dir, mut members) = open();
        let mut records = Sqlite::open(&dir.path().join("hub.db")).unwrap();
        let (told, done) = std::sync::mpsc::channel();
        let mut writer = None;
        let read_and_written = members.transaction("test", |transaction| {
            let count = "SELECT count(*) FROM token";
            let tokens: i64 = transaction.query_row(count, [], |row| row.get(0))?;
            writer = Some(std::thread::spawn(move || {
                let job = JobId::from_bytes([1; 16]);
                let written = records.append(&[Record::JobQueued { job }]);
                let _ = told.send(());
                written
            }));
            // As it must be, the other one waits; else it is through long before this is over.
            let _ = done.recv_timeout(Duration::from_millis(300));
            transaction.execute("DELETE FROM token", [])?;
            Ok(tokens)
        });
        assert_eq!(read_and_written.unwrap(), 0);
        writer.unwrap().join().unwrap().unwrap();
    }

    #[test]
    fn a_record_takes_its_rows_place_and_positions_stay() {
        let (dir, mut store) = open();
        let node = NodeId::from_bytes([1; 16]);
        let pools = |names: &[&str]| Record::NodePools {
            node,
            pools: names.iter().map(|name| name.parse().unwrap()).collect(),
        };
        let job = Record::JobQueued {
            job: JobId::from_bytes([2; 16]),
        };
        store
            .append(&[pools(&["a"]), job.clone(), pools(&["a", "b"])])
            .unwrap();
        drop(store);
        let mut store = Sqlite::open(&dir.path().join("hub.db")).unwrap();
        assert_eq!(store.records().unwrap(), [pools(&["a", "b"]), job.clone()]);
        store.append(&[Record::NodeRemoved { node }]).unwrap();
        assert_eq!(store.records().unwrap(), [job]);
    }

    #[test]
    fn an_audit_line_is_kept_with_what_it_tells_of_and_is_no_record() {
        let (_dir, mut store) = open();
        let line = Record::Audited {
            what: "GitLab server approved".into(),
            detail: "s1".into(),
        };
        let node = Record::NodePools {
            node: NodeId::from_bytes([1; 16]),
            pools: Vec::new(),
        };
        store.append(&[node.clone(), line]).unwrap();
        assert_eq!(store.records().unwrap(), [node]);
        let lines = store.audit(10).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].what, "GitLab server approved");
        assert_eq!(lines[0].detail, "s1");
        assert!(lines[0].at > 1_700_000_000);
    }

    /// ENR-13, ENR-14
    #[test]
    fn a_token_is_used_once_in_time_and_for_its_kind() {
        let (_dir, mut store) = open();
        store.add_token(&[1; 32], MemberKind::GitLab, 100).unwrap();
        let node = wanted(MemberKind::Node, 1, 1);
        let relay = wanted(MemberKind::GitLab, 2, 2);
        let refused = |redeemed| matches!(redeemed, Redeemed::Refused(_));
        assert!(
            refused(store.redeem(&[1; 32], 50, &node).unwrap()),
            "another kind"
        );
        assert!(
            refused(store.redeem(&[2; 32], 50, &relay).unwrap()),
            "nobody made it"
        );
        assert!(
            refused(store.redeem(&[1; 32], 101, &relay).unwrap()),
            "expired"
        );
        let good = store.redeem(&[1; 32], 100, &relay).unwrap();
        assert_eq!(good, Redeemed::Member(relay.clone()));
        let other = wanted(MemberKind::GitLab, 9, 9);
        assert!(
            refused(store.redeem(&[1; 32], 100, &other).unwrap()),
            "used"
        );
        assert_eq!(store.members().unwrap(), [relay]);
    }

    /// ENR-14
    #[test]
    fn a_used_token_enrols_its_own_key_again_and_no_other() {
        let (_dir, mut store) = open();
        store.add_token(&[1; 32], MemberKind::Node, 100).unwrap();
        let first = wanted(MemberKind::Node, 1, 7);
        let enrolled = Redeemed::Member(first.clone());
        assert_eq!(store.redeem(&[1; 32], 50, &first).unwrap(), enrolled);
        // The answer was lost: the same key comes again, with another ID drawn.
        let again = wanted(MemberKind::Node, 2, 7);
        assert_eq!(store.redeem(&[1; 32], 60, &again).unwrap(), enrolled);
        let refused = |redeemed| matches!(redeemed, Redeemed::Refused(_));
        let other = wanted(MemberKind::Node, 3, 8);
        assert!(refused(store.redeem(&[1; 32], 60, &other).unwrap()));
        assert!(
            refused(store.redeem(&[1; 32], 101, &again).unwrap()),
            "expired"
        );
        assert!(store.remove_member(&first.id, 70).unwrap());
        assert!(
            refused(store.redeem(&[1; 32], 80, &again).unwrap()),
            "removed"
        );
        assert_eq!(store.members().unwrap(), []);
    }

    /// ENR-15
    #[test]
    fn a_pinned_key_keeps_its_id_and_a_removed_member_gets_a_new_one() {
        let (_dir, mut store) = open();
        for hash in 1..=3 {
            store
                .add_token(&[hash; 32], MemberKind::GitLab, 100)
                .unwrap();
        }
        let first = wanted(MemberKind::GitLab, 1, 7);
        let again = wanted(MemberKind::GitLab, 2, 7);
        store.redeem(&[1; 32], 1, &first).unwrap();
        assert_eq!(
            store.redeem(&[2; 32], 1, &again).unwrap(),
            Redeemed::Member(first.clone())
        );
        assert!(store.remove_member(&first.id, 1).unwrap());
        assert!(!store.remove_member(&first.id, 1).unwrap());
        assert_eq!(
            store.redeem(&[3; 32], 1, &again).unwrap(),
            Redeemed::Member(again)
        );
    }

    #[test]
    fn a_database_of_a_later_version_is_left_alone() {
        let (dir, store) = open();
        store
            .connection
            .execute_batch("PRAGMA user_version = 99")
            .unwrap();
        drop(store);
        let error = Sqlite::open(&dir.path().join("hub.db")).err().unwrap();
        assert!(error.to_string().contains("newer vk-hub"), "{error}");
    }
}
