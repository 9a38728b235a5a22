//! Blobs: resumed, too long, too short, wrong.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use vk_oci::{Descriptor, Digest, Error};

use crate::server::{Reply, Request, Server};
use crate::{Served, client, image};

fn blob(bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: String::new(),
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        platform: None,
        annotations: Default::default(),
    }
}

fn file() -> File {
    File::from_std(tempfile::tempfile().unwrap())
}

async fn bytes(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().await.unwrap();
    file.read_to_end(&mut bytes).await.unwrap();
    bytes
}

fn from(request: &Request) -> usize {
    let range = request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="));
    range
        .and_then(|range| range.strip_suffix('-'))
        .map_or(0, |from| from.parse().unwrap())
}

#[tokio::test]
async fn a_blob_arrives_whole() {
    let content = Served::new().layers[1].clone();
    let wanted = blob(&content);
    let server = Server::new({
        let content = content.clone();
        move |_| Reply::ok(&content)
    });
    let mut file = file();
    let mut last = 0;
    client()
        .download(&image(&server), &wanted, &mut file, |received| {
            last = received
        })
        .await
        .unwrap();
    assert_eq!(last, wanted.size);
    assert!(bytes(file).await == content);
}

#[tokio::test]
async fn a_broken_transfer_goes_on_where_it_broke() {
    let content = Served::new().layers[1].clone();
    let wanted = blob(&content);
    let server = Server::new({
        let content = content.clone();
        move |request| {
            let rest = &content[from(request)..];
            let sent = &rest[..rest.len().min(500_000)];
            let status = if from(request) > 0 { 206 } else { 200 };
            Reply::status(status)
                .body(sent)
                .announcing(rest.len() as u64)
        }
    });
    let mut file = file();
    client()
        .download(&image(&server), &wanted, &mut file, |_| ())
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 3);
    // An earlier process' half is taken up as well.
    file.set_len(700_000).await.unwrap();
    client()
        .download(&image(&server), &wanted, &mut file, |_| ())
        .await
        .unwrap();
    assert_eq!(from(&server.requests()[3]), 700_000);
    assert!(bytes(file).await == content);
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_whole_file_needs_no_request() {
    let server = Server::new(|_| Reply::status(500));
    let mut file = file();
    tokio::io::AsyncWriteExt::write_all(&mut file, b"there")
        .await
        .unwrap();
    client()
        .download(&image(&server), &blob(b"there"), &mut file, |_| ())
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_registry_that_knows_no_ranges_sends_all_again() {
    let content = Served::new().layers[1].clone();
    let wanted = blob(&content);
    let count = AtomicUsize::new(0);
    let server = Server::new({
        let content = content.clone();
        move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::ok(&content[..1000]).announcing(content.len() as u64),
            _ => Reply::ok(&content),
        }
    });
    let mut file = file();
    client()
        .download(&image(&server), &wanted, &mut file, |_| ())
        .await
        .unwrap();
    assert!(bytes(file).await == content);
}

#[tokio::test]
async fn a_transfer_that_never_gets_on_ends() {
    let content = Served::new().layers[1].clone();
    let wanted = blob(&content);
    let server = Server::new(move |_| Reply::ok(b"").announcing(content.len() as u64));
    let error = client()
        .download(&image(&server), &wanted, &mut file(), |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn content_of_another_length_or_digest_is_thrown_away() {
    for (sent, is_size) in [(&b"too long"[..], true), (b"tiny", true), (b"other", false)] {
        let server = Server::new(move |_| Reply::ok(sent));
        let mut file = file();
        let error = client()
            .download(&image(&server), &blob(b"right"), &mut file, |_| ())
            .await
            .unwrap_err();
        assert_eq!(matches!(error, Error::Size { .. }), is_size, "{error}");
        assert_eq!(matches!(error, Error::Digest { .. }), !is_size, "{error}");
        if sent.len() != 4 {
            assert!(bytes(file).await.is_empty(), "{error}");
        }
    }
}
