use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vk_hub_proto::client::Envelope;
use vk_hub_proto::job::JobSpec;

use super::*;

const URL: &str = "https://r.example.com:5000";
const NOW: u64 = 1_900_000_000;

/// A directory with a key, its certificate, and where they are named.
struct Place {
    dir: tempfile::TempDir,
    key: rcgen::KeyPair,
    config: RegistryConfig,
}

impl Place {
    fn new() -> Place {
        Place::with(&rcgen::PKCS_ECDSA_P256_SHA256)
    }

    fn with(algorithm: &'static rcgen::SignatureAlgorithm) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let config = RegistryConfig {
            place: "hub.toml: registries[0]".to_owned(),
            url: URL.to_owned(),
            service: "registry".to_owned(),
            issuer: "hub".to_owned(),
            key_file: dir.path().join("r.key"),
            certificate_file: dir.path().join("r.pem"),
            cache_prefix: "ci-cache".to_owned(),
            read: Vec::new(),
        };
        let place = Place { dir, key, config };
        place.write("r.key", &place.key.serialize_pem(), 0o600);
        place.write("r.pem", &certificate(&place.key), 0o644);
        place
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn open(&self) -> Result<Tokens, ConfigError> {
        Tokens::open(std::slice::from_ref(&self.config))
    }

    /// What is said of its files.
    fn error(&self) -> String {
        self.open().unwrap_err().to_string()
    }
}

fn certificate(key: &rcgen::KeyPair) -> String {
    let params = rcgen::CertificateParams::new(vec!["hub".to_owned()]).unwrap();
    params.self_signed(key).unwrap().pem()
}

fn scope() -> TokenScope {
    TokenScope {
        registry: URL.to_owned(),
        repository: "ci-cache/gitlab.example.com/12/protected".to_owned(),
        read: vec!["images/base".to_owned(), "tools".to_owned()],
        life: Duration::from_secs(4_200),
    }
}

fn job() -> JobId {
    JobId::from_bytes([9; 16])
}

fn make(tokens: &Tokens, scope: &TokenScope) -> Result<RegistryGrant, TokenError> {
    tokens.make(scope, job(), UNIX_EPOCH + Duration::from_secs(NOW))
}

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// REG-16, REG-21
#[test]
fn a_token_is_signed_by_the_certificates_key_and_says_exactly_what_it_grants() {
    let (p256, p384) = (
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
    );
    let algorithms: [(_, _, &dyn VerificationAlgorithm); 3] = [
        (p256, "ES256", &ECDSA_P256_SHA256_FIXED),
        (p384, "ES384", &ECDSA_P384_SHA384_FIXED),
        (
            &rcgen::PKCS_RSA_SHA256,
            "RS256",
            &RSA_PKCS1_2048_8192_SHA256,
        ),
    ];
    for (algorithm, name, verifying) in algorithms {
        let place = Place::with(algorithm);
        let tokens = place.open().unwrap();
        let grant = make(&tokens, &scope()).unwrap();
        let repository = "ci-cache/gitlab.example.com/12/protected";
        assert_eq!((&*grant.url, &*grant.username), (URL, "vk-job"));
        assert_eq!(grant.cache_repository.as_deref(), Some(repository));
        let rights = grant.namespaces.iter();
        let rights: Vec<_> = rights.map(|one| (&*one.prefix, &*one.rights)).collect();
        assert_eq!(
            rights,
            [(repository, "rw"), ("images/base", "r"), ("tools", "r")]
        );
        assert_eq!(grant.expires_in_secs, 4_200);
        let (text, signature) = grant.token.expose().rsplit_once('.').unwrap();
        let key = UnparsedPublicKey::new(verifying, place.key.public_key_raw());
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        key.verify(text.as_bytes(), &signature).unwrap();
        let (header, claims) = text.split_once('.').unwrap();
        let pem = fs::read(&place.config.certificate_file).unwrap();
        let own = <rustls::pki_types::CertificateDer<'_> as
            rustls::pki_types::pem::PemObject>::from_pem_slice(&pem).unwrap();
        let header = decoded(header);
        assert_eq!(
            header,
            json!({ "typ": "JWT", "alg": name, "x5c": [STANDARD.encode(&own)] })
        );
        let mut claims = decoded(claims);
        let jti = claims["jti"].take();
        assert_eq!(jti.as_str().unwrap().len(), 32);
        let read = |name: &str| json!({ "type": "repository", "name": name, "actions": ["pull"] });
        assert_eq!(
            claims,
            json!({
                "iss": "hub", "sub": format!("vk-job-{}", job()), "aud": "registry",
                "exp": NOW + 4_200, "nbf": NOW - 60, "iat": NOW, "jti": null,
                "access": [
                    { "type": "repository", "name": repository, "actions": ["pull", "push"] },
                    read("images/base"),
                    read("tools"),
                ],
            })
        );
        let again = make(&tokens, &scope()).unwrap();
        assert_ne!(again.token, grant.token, "each has a number of its own");
    }
}

/// What comes to a node of a start with this scope.
fn sent(tokens: &Tokens, token: Option<TokenScope>) -> Option<Box<RegistryGrant>> {
    let golden = include_str!("../../../vk-hub-proto/tests/golden/start.json");
    let start: HubMessage = serde_json::from_str(golden).unwrap();
    let HubMessage::Job(HubJobMessage::Start { spec, .. }) = start else {
        panic!("a start")
    };
    let JobSpec::GitlabCi(_) = &spec;
    let effect = Effect::Start {
        session: vk_hub_core::SessionHandle(1),
        job: job(),
        reservation: None,
        envelope: Envelope {
            mem_mib: 1,
            cpus: 1,
            disk_bytes: 0,
        },
        spec: std::sync::Arc::new(spec),
        token: token.map(Box::new),
    };
    let (_, mut message) = effect.message().unwrap();
    tokens.put(&effect, &mut message);
    match message {
        HubMessage::Job(HubJobMessage::Start { registry, .. }) => registry,
        other => panic!("{other:?}"),
    }
}

/// REG-01, REG-16
#[test]
fn a_start_carries_the_token_and_where_none_can_be_made_it_goes_without() {
    let place = Place::new();
    let tokens = place.open().unwrap();
    let grant = sent(&tokens, Some(scope())).unwrap();
    assert_eq!(
        grant.cache_repository.as_deref(),
        Some(scope().repository.as_str())
    );
    assert_eq!(sent(&tokens, None), None);
    assert_eq!(sent(&Tokens::default(), Some(scope())), None);
    let odd = TokenScope {
        repository: "ci-cache/gitlab.example.com/~user/12/protected".to_owned(),
        ..scope()
    };
    let error = make(&tokens, &odd).unwrap_err().to_string();
    assert!(error.contains("~user"), "{error}");
    assert_eq!(sent(&tokens, Some(odd)), None);
    let many = TokenScope {
        read: (0..64)
            .map(|n| format!("{n}/{}", "a".repeat(239)))
            .collect(),
        ..scope()
    };
    let error = make(&tokens, &many).unwrap_err().to_string();
    assert!(
        error.contains("16384 bytes") && error.contains("fewer"),
        "{error}"
    );
    let before = tokens.make(&scope(), job(), UNIX_EPOCH - Duration::from_secs(1));
    assert!(matches!(before, Err(TokenError::Clock)));
    // No log has the key, or the token.
    let shown = format!("{tokens:?} {grant:?}");
    let token = grant.token.expose();
    assert!(
        !shown.contains(token) && shown.contains("[secret]"),
        "{shown}"
    );
}

#[test]
fn a_key_that_others_may_read_or_replace_is_refused_with_what_to_do() {
    let place = Place::new();
    let key = &place.config.key_file;
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        place.open().map(drop).map_err(|error| error.to_string())
    };
    for (bits, what) in [
        (0o604, "by everybody"),
        (0o620, "written"),
        (0o602, "written"),
    ] {
        let error = mode(key, bits).unwrap_err();
        let begins = "hub.toml: registries[0].key_file: ";
        assert!(error.starts_with(begins) && error.contains(what), "{error}");
        assert!(
            error.contains(&format!("{bits:04o}")) && error.contains(": chmod "),
            "{error}"
        );
    }
    assert_eq!(mode(key, 0o640), Ok(()));
    let certificate = &place.config.certificate_file;
    let error = mode(certificate, 0o664).unwrap_err();
    assert!(error.contains("registries[0].certificate_file") && error.contains("written"));
    assert_eq!(mode(certificate, 0o444), Ok(()));
    fs::remove_file(key).unwrap();
    assert!(place.error().contains("r.key does not exist: create it"));
    fs::create_dir(key).unwrap();
    assert!(place.error().contains("is no file"), "{}", place.error());
}

#[test]
fn a_key_that_cannot_sign_and_one_of_another_certificate_are_refused() {
    let place = Place::new();
    let key = place.key.serialize_pem();
    let says = |name: &str, text: &str, what: &str| {
        place.write(name, text, 0o600);
        let error = place.error();
        assert!(error.contains(what), "{error}");
        assert!(!error.contains("PRIVATE"), "{error}");
    };
    says("r.key", "no key", "r.key holds no private key in PEM");
    says("r.key", &certificate(&place.key), "holds no private key");
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    says("r.key", &ed25519.serialize_pem(), "make one of ECDSA P-256");
    says("r.key", &"x".repeat(70_000), "is larger than 65536 bytes");
    place.write("r.key", &key, 0o600);
    says("r.pem", &key, "r.pem holds no certificate in PEM");
    let other = rcgen::KeyPair::generate().unwrap();
    says("r.pem", &certificate(&other), "is not of the key in");
    let own = certificate(&place.key);
    says("r.pem", &own.repeat(5), "5 certificates, 4 are taken");
    place.write("r.pem", &own.repeat(4), 0o600);
    place.open().unwrap();
}
