//! References to manifests, indexes, platforms, digests.

use vk_oci::{Digest, Error, Failure};

use crate::server::{Reply, Server};
use crate::{Served, client, image, platform};

#[tokio::test]
async fn an_image_is_found_by_tag_and_by_digest() {
    let served = Served::new();
    let digest = served.digest();
    let server = Server::new(move |request| served.answer(request));
    let image = image(&server);
    let found = client().resolve(&image, &platform()).await.unwrap();
    assert_eq!((found.named, found.digest), (digest, digest));
    assert_eq!(found.config.run.cmd, ["sh"]);
    assert_eq!(found.manifest.layers.len(), 2);
    assert_eq!(client().digest_of(&image).await.unwrap(), digest);
    let asked = server.requests();
    assert_eq!(asked.last().unwrap().method, "HEAD");
    assert!(
        asked[0]
            .header("accept")
            .unwrap()
            .contains("oci.image.index")
    );
    assert_eq!(
        client()
            .resolve(&image.at(digest), &platform())
            .await
            .unwrap()
            .digest,
        digest
    );
    assert_eq!(client().digest_of(&image.at(digest)).await.unwrap(), digest);
}

#[tokio::test]
async fn a_registry_that_does_not_say_the_digest_is_asked_for_the_document() {
    let served = Served::new();
    let digest = served.digest();
    let server = Server::new(move |_| Reply::ok(served.manifest.as_bytes()));
    assert_eq!(client().digest_of(&image(&server)).await.unwrap(), digest);
}

fn index(entries: &[(&str, Digest)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(architecture, digest)| {
            format!(r#"{{"digest":"{digest}","size":1,"platform":{{"os":"linux","architecture":"{architecture}"}}}}"#)
        })
        .collect();
    format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        entries.join(",")
    )
}

#[tokio::test]
async fn an_index_leads_to_this_platforms_manifest() {
    let served = Served::new();
    let digest = served.digest();
    let index = index(&[("arm64", Digest::of(b"other")), ("amd64", digest)]);
    let named = Digest::of(index.as_bytes());
    let server = Server::new(move |request| match request.path.as_str() {
        "/v2/a/b/manifests/1" => Reply::ok(index.as_bytes()),
        _ => served.answer(request),
    });
    let found = client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap();
    assert_eq!((found.named, found.digest), (named, digest));
    let error = client()
        .resolve(&image(&server), &"linux/riscv64".parse().unwrap())
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("linux/riscv64") && text.contains("linux/arm64, linux/amd64"),
        "{text}"
    );
    assert_eq!(error.failure(), Failure::Content);
}

#[tokio::test]
async fn a_lone_manifest_for_another_platform_is_refused() {
    let served = Served::new();
    let server = Server::new(move |request| served.answer(request));
    let error = client()
        .resolve(&image(&server), &"linux/arm64".parse().unwrap())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("only for linux/amd64"),
        "{error}"
    );
}

#[tokio::test]
async fn indexes_within_indexes_end() {
    // By digest a chain must end; by tag one that always points on would not.
    let inner: Vec<String> = (0..6).fold(vec![index(&[])], |mut chain, _| {
        let digest = Digest::of(chain.last().unwrap().as_bytes());
        chain.push(index(&[("amd64", digest)]));
        chain
    });
    let server = Server::new(move |request| {
        let named = |text: &&String| {
            request
                .path
                .ends_with(&Digest::of(text.as_bytes()).to_string())
        };
        Reply::ok(
            inner
                .iter()
                .find(named)
                .unwrap_or(inner.last().unwrap())
                .as_bytes(),
        )
    });
    let error = client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Document { .. }), "{error}");
}

#[tokio::test]
async fn content_that_is_not_its_digest_is_refused() {
    let served = Served::new();
    let image_digest = served.digest();
    let server = Server::new(move |request| match request.path.as_str() {
        path if path.contains("/blobs/") => Reply::ok(b"{}"),
        _ => Reply::ok(served.manifest.as_bytes()),
    });
    let error = client()
        .resolve(&image(&server), &platform())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Digest { .. }),
        "the configuration: {error}"
    );
    let other = image(&server).at(Digest::of(b"other"));
    let error = client().resolve(&other, &platform()).await.unwrap_err();
    assert!(
        matches!(error, Error::Digest { found, .. } if found == image_digest),
        "the manifest: {error}"
    );
}

#[tokio::test]
async fn documents_have_a_size_limit_whatever_they_announce() {
    let large = vec![b' '; (4 << 20) + 1];
    let honest = Server::new(move |_| Reply::ok(&large));
    let lying = Server::new(|_| Reply::ok(b"{}").announcing(1 << 40));
    for server in [honest, lying] {
        let error = client()
            .resolve(&image(&server), &platform())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_document_that_is_no_manifest_is_refused() {
    for text in ["{}", "[]", "<html>", r#"{"schemaVersion":1}"#] {
        let server = Server::new(move |_| Reply::ok(text.as_bytes()));
        let error = client()
            .resolve(&image(&server), &platform())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Document { .. }), "{text}: {error}");
        assert_eq!(error.failure(), Failure::Content);
    }
}
