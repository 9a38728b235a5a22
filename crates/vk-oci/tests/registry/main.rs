//! The client against registries that are scripted here, honest and hostile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod access;
mod documents;
mod pushes;
mod server;
mod transfers;

use std::time::Duration;

use vk_oci::{Client, Config, Credential, Digest, Keychain, Password, Platform, Reference};

use server::{Reply, Request, Server};

/// An image of two layers as a registry would serve it.
struct Served {
    manifest: String,
    config: String,
    layers: [Vec<u8>; 2],
}

impl Served {
    fn new() -> Self {
        let layers = [
            b"layer one".to_vec(),
            (0..300_000u32).flat_map(u32::to_le_bytes).collect(),
        ];
        let digests: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let config = format!(
            r#"{{"os":"linux","architecture":"amd64","config":{{"Cmd":["sh"]}},
                "rootfs":{{"diff_ids":["{}","{}"]}}}}"#,
            digests[0], digests[1]
        );
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[
                {{"digest":"{}","size":{}}},{{"digest":"{}","size":{}}}]}}"#,
            Digest::of(config.as_bytes()),
            config.len(),
            digests[0],
            layers[0].len(),
            digests[1],
            layers[1].len()
        );
        Self {
            manifest,
            config,
            layers,
        }
    }

    fn digest(&self) -> Digest {
        Digest::of(self.manifest.as_bytes())
    }

    /// What an honest registry without access control answers.
    fn answer(&self, request: &Request) -> Reply {
        let manifests = [
            format!("/v2/a/b/manifests/{}", self.digest()),
            "/v2/a/b/manifests/1".into(),
        ];
        if manifests.contains(&request.path) {
            let digest = self.digest().to_string();
            return Reply::ok(self.manifest.as_bytes()).header("docker-content-digest", &digest);
        }
        let blobs = [self.config.as_bytes(), &self.layers[0], &self.layers[1]];
        let named = |blob: &&&[u8]| request.path == format!("/v2/a/b/blobs/{}", Digest::of(blob));
        match blobs.iter().find(named) {
            Some(blob) => Reply::ok(blob),
            None => Reply::status(404).body(br#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#),
        }
    }
}

fn config() -> Config {
    Config {
        attempts: 3,
        back_off: Duration::from_millis(1),
        idle_timeout: Duration::from_secs(5),
        ..Config::default()
    }
}

fn client() -> Client {
    Client::new(config()).unwrap()
}

fn client_with(server: &Server, username: &str, password: &str) -> Client {
    let mut keychain = Keychain::default();
    keychain.add(&server.host(), credential(username, password));
    Client::new(Config {
        keychain,
        ..config()
    })
    .unwrap()
}

fn credential(username: &str, password: &str) -> Credential {
    Credential {
        username: username.into(),
        password: Password::new(password.into()),
    }
}

fn image(server: &Server) -> Reference {
    format!("{}/a/b:1", server.host()).parse().unwrap()
}

fn platform() -> Platform {
    Platform::default()
}
