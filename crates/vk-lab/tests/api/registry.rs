//! The container registry and the dependency proxy: one password, while the job runs.

use std::path::Path;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::lab::{Lab, hello};
use crate::raw::Answer;

fn blob(layout: &Path, bytes: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, bytes);
    let hex: String = sum
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let dir = layout.join("blobs/sha256");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(&hex), bytes).unwrap();
    format!("sha256:{hex}")
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A layout of one image with the tag `1.0`: its manifest's digest and its layer's.
fn layout(at: &Path) -> (String, String) {
    let layer = blob(at, b"a layer");
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [{"digest": layer}]});
    let digest = blob(at, manifest.to_string().as_bytes());
    let name = json!({"org.opencontainers.image.ref.name": "build:1.0"});
    let index =
        json!({"manifests": [{"mediaType": MANIFEST, "digest": digest, "annotations": name}]});
    std::fs::write(at.join("index.json"), index.to_string()).unwrap();
    (digest, layer)
}

fn get(lab: &Lab, path: &str, authorization: &str) -> Answer {
    lab.call("GET", path, &[("Authorization", authorization)], "")
}

/// Logs in for a repository; the answer.
fn login(lab: &Lab, password: &str, name: &str) -> Answer {
    let basic = format!(
        "Basic {}",
        STANDARD.encode(format!("gitlab-ci-token:{password}"))
    );
    let path = format!("/jwt/auth?service=container_registry&scope=repository%3A{name}%3Apull");
    get(lab, &path, &basic)
}

fn bearer(answer: &Answer) -> String {
    format!("Bearer {}", answer.json()["token"].as_str().unwrap())
}

fn serve(lab: &Lab, name: &str) -> (String, String) {
    let at = lab.dir.path().join(name.replace('/', "-"));
    std::fs::create_dir(&at).unwrap();
    let digests = layout(&at);
    lab.admin(&json!({"cmd": "image", "name": name, "layout": at}));
    digests
}

#[test]
fn a_running_jobs_token_pulls_its_projects_images_and_its_groups_proxied_ones() {
    let lab = Lab::start();
    let (digest, layer) = serve(&lab, "acme/web/build");
    serve(&lab, "acme/dependency_proxy/containers/debian");
    serve(&lab, "other/web/build");
    let (id, token) = lab.running();
    let base = lab.call("GET", "/v2/", &[], "");
    let realm = format!(
        "Bearer realm=\"http://{}/jwt/auth\",service=\"container_registry\"",
        lab.addr
    );
    assert_eq!(
        (base.status, base.header("WWW-Authenticate")),
        (401, Some(realm.as_str()))
    );
    for (name, status) in [
        ("acme/web/build", 200),
        ("acme/dependency_proxy/containers/debian", 200),
        ("other/web/build", 401),
    ] {
        let refused = lab.call("GET", &format!("/v2/{name}/manifests/1.0"), &[], "");
        let challenge = refused.header("WWW-Authenticate").unwrap().to_owned();
        assert!(
            challenge.contains(&format!("scope=\"repository:{name}:pull\"")),
            "{challenge}"
        );
        assert_eq!(
            challenge.contains("dependency_proxy\""),
            name.contains("proxy"),
            "{challenge}"
        );
        let pull = bearer(&login(&lab, &token, name));
        let got = get(&lab, &format!("/v2/{name}/manifests/1.0"), &pull);
        assert_eq!(got.status, status, "{name}");
    }
    let pull = bearer(&login(&lab, &token, "acme/web/build"));
    for reference in ["1.0", &digest] {
        let got = get(
            &lab,
            &format!("/v2/acme/web/build/manifests/{reference}"),
            &pull,
        );
        assert_eq!(got.header("Docker-Content-Digest"), Some(digest.as_str()));
        assert_eq!(got.header("Content-Type"), Some(MANIFEST));
        assert_eq!(got.json()["layers"][0]["digest"], layer);
    }
    let got = get(&lab, &format!("/v2/acme/web/build/blobs/{layer}"), &pull);
    assert_eq!(got.text(), "a layer");
    let head = lab.call(
        "HEAD",
        &format!("/v2/acme/web/build/blobs/{layer}"),
        &[("Authorization", &pull)],
        "",
    );
    assert_eq!(
        (head.status, head.header("Content-Length")),
        (200, Some("7"))
    );
    let none = format!("/v2/acme/web/build/blobs/sha256:{}", "0".repeat(64));
    assert_eq!(get(&lab, &none, &pull).status, 404);
    assert_eq!(
        get(&lab, "/v2/acme/web/build/blobs/../../index.json", &pull).status,
        404
    );
    // Another image needs another token; an ended job gets none.
    let other = "/v2/acme/dependency_proxy/containers/debian/manifests/1.0";
    assert_eq!(get(&lab, other, &pull).status, 401);
    lab.finish(id, &token, "success");
    assert_eq!(login(&lab, &token, "acme/web/build").status, 401);
    assert_eq!(
        get(&lab, "/v2/acme/web/build/manifests/1.0", &pull).status,
        200,
        "for five minutes"
    );
    lab.admin(&json!({"cmd": "advance", "secs": 300}));
    assert_eq!(
        get(&lab, "/v2/acme/web/build/manifests/1.0", &pull).status,
        401
    );
}

#[test]
fn a_job_is_given_credentials_and_names_once_there_is_an_image() {
    let lab = Lab::start();
    lab.trigger(&hello());
    assert_eq!(lab.take()["credentials"], json!([]));
    serve(&lab, "acme/web");
    lab.trigger(&hello());
    let job = lab.take();
    let host = lab.addr.to_string();
    let want = json!([{"type": "registry", "url": host, "username": "gitlab-ci-token",
                       "password": job["token"]}]);
    assert_eq!(job["credentials"], want);
    let variables: Vec<Value> = job["variables"].as_array().unwrap().clone();
    let value = |key: &str| variables.iter().find(|v| v["key"] == key).unwrap()["value"].clone();
    assert_eq!(value("CI_REGISTRY_IMAGE"), format!("{host}/acme/web"));
    let prefix = value("CI_DEPENDENCY_PROXY_GROUP_IMAGE_PREFIX");
    assert_eq!(prefix, format!("{host}/acme/dependency_proxy/containers"));
}

#[test]
fn pulls_fail_and_then_come_and_what_is_no_layout_is_refused() {
    let lab = Lab::start();
    let (_, layer) = serve(&lab, "acme/web");
    let (_, token) = lab.running();
    let pull = bearer(&login(&lab, &token, "acme/web"));
    let path = format!("/v2/acme/web/blobs/{layer}");
    lab.admin(
        &json!({"cmd": "inject", "on": "registry", "action": {"status": 429}, "retry_after": 2}),
    );
    let hit = get(&lab, &path, &pull);
    assert_eq!((hit.status, hit.header("Retry-After")), (429, Some("2")));
    lab.admin(&json!({"cmd": "inject", "on": "registry", "action": "truncate"}));
    let cut = get(&lab, &path, &pull);
    assert!(cut.status == 200 && !cut.whole);
    assert_eq!(get(&lab, &path, &pull).text(), "a layer");
    let empty = lab.dir.path();
    let bad = lab.try_admin(&json!({"cmd": "image", "name": "acme/web", "layout": empty}));
    assert_eq!(bad["error"]["code"], "invalid");
}
