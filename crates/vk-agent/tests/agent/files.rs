//! Single files.

use std::os::unix::fs::{MetadataExt, symlink};

use vk_guest_proto::*;

use crate::host::{Host, path};

fn file_in(host: &Host, name: &str) -> FileIn {
    FileIn {
        path: path(&host.dir.path().join(name)),
        mode: 0o640,
        owner: vec![],
        create_parents: true,
        append: false,
    }
}

#[test]
fn a_file_of_any_size_and_content_is_written_whole_with_its_mode() {
    let mut host = Host::start();
    let content: Vec<u8> = (0..400 * 1024_u32).map(|i| i.to_le_bytes()[1]).collect();
    let file = file_in(&host, "a/b/secret.txt");
    let heard = host.run(&Request::FileIn { file }, &content);
    assert_eq!(
        heard.done(),
        &TransferEnd {
            entries: 1,
            bytes: 400 * 1024
        }
    );
    let written = host.dir.path().join("a/b/secret.txt");
    assert_eq!(std::fs::read(&written).unwrap(), content);
    assert_eq!(std::fs::metadata(&written).unwrap().mode() & 0o7777, 0o640);
    let beside: Vec<_> = std::fs::read_dir(host.dir.path().join("a/b"))
        .unwrap()
        .collect();
    assert_eq!(beside.len(), 1, "nothing is left beside it");
}

#[test]
fn a_file_is_replaced_and_never_written_through_a_symlink() {
    let mut host = Host::start();
    let outside = host.dir.path().join("outside");
    std::fs::write(&outside, "kept").unwrap();
    symlink(&outside, host.dir.path().join("link")).unwrap();
    let file = file_in(&host, "link");
    host.run(&Request::FileIn { file }, b"new").done();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");
    assert_eq!(
        std::fs::read_to_string(host.dir.path().join("link")).unwrap(),
        "new"
    );
}

#[test]
fn append_adds() {
    let mut host = Host::start();
    for part in [b"one\n".as_slice(), b"two\n"] {
        let file = FileIn {
            append: true,
            ..file_in(&host, "log")
        };
        host.run(&Request::FileIn { file }, part).done();
    }
    assert_eq!(
        std::fs::read_to_string(host.dir.path().join("log")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn a_write_that_breaks_off_leaves_what_was_there() {
    let mut host = Host::start();
    std::fs::write(host.dir.path().join("f"), "old").unwrap();
    let file = file_in(&host, "f");
    let (_, mut stream) = host.open(&Request::FileIn { file });
    stream.send(&StreamToAgent::Data {
        bytes: b"ne"[..].into(),
    });
    stream.conn.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(
        crate::host::hear(&mut stream).failure().code,
        FailureCode::Protocol
    );
    assert_eq!(
        std::fs::read_to_string(host.dir.path().join("f")).unwrap(),
        "old"
    );
    let names: Vec<_> = std::fs::read_dir(host.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_str().unwrap().starts_with(".vk-")),
        "{names:?}"
    );
}

#[test]
fn a_file_is_read_whole_or_refused() {
    let mut host = Host::start();
    let dir = host.dir.path().to_owned();
    std::fs::write(dir.join("f"), vec![7; 200_000]).unwrap();
    let mut read = |name: &str, max_bytes| {
        let file = FileOut {
            path: path(&dir.join(name)),
            max_bytes,
        };
        host.run(&Request::FileOut { file }, b"")
    };
    assert_eq!(read("f", 200_000).content, vec![7; 200_000]);
    assert_eq!(read("f", 199_999).failure().code, FailureCode::TooLarge);
    assert_eq!(read("none", 1).failure().code, FailureCode::NotFound);
    assert_eq!(read(".", 1).failure().code, FailureCode::Invalid);
    // Nobody ever writes to it.
    let pipe = host.dir.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let file = FileOut {
        path: path(&pipe),
        max_bytes: 1,
    };
    let heard = host.run(&Request::FileOut { file }, b"");
    assert_eq!(heard.failure().code, FailureCode::Invalid);
}
