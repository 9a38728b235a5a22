//! Jobs that came with a token for the registry: a Distribution token, which a registry as it is
//! enforces.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::{Value, json};
use vk_driver::{CacheGrant, JobContext};
use vk_oci::{Credential, Password};

use crate::registry::Registry;
use crate::support::{Ran, Started, add, variable};
use crate::{Bench, assert_says, cache, cached};

const REPOSITORY: &str = "caches/g/p/unprotected";

/// Who signs tokens.
struct Issuer {
    key: EcdsaKeyPair,
    certificate: String,
}

impl Issuer {
    /// An issuer, and a node whose registry believes it alone.
    fn new() -> Option<(Issuer, Bench)> {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["hub".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let registry = Registry::start(|dir| {
            std::fs::write(dir.join("root.pem"), certificate.pem()).unwrap();
            "auth: {token: {realm: \"http://127.0.0.1:9/token\", service: registry, issuer: hub, \
             rootcertbundle: root.pem}}\n"
                .to_owned()
        })?;
        let der = key.serialize_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).unwrap();
        let certificate = BASE64_STANDARD.encode(certificate.der());
        Some((Issuer { key, certificate }, Bench::at(registry)?))
    }

    /// A token for reading and writing one repository.
    fn token(&self, repository: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = now.as_secs();
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [self.certificate] });
        let claims = json!({
            "iss": "hub", "sub": "job", "aud": "registry", "jti": "1",
            "iat": now, "nbf": now - 60, "exp": now + 3600,
            "access": [{
                "type": "repository", "name": repository, "actions": ["pull", "push"]
            }]
        });
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.unwrap());
        format!("{signed}.{signature}")
    }
}

fn grant(token: &str, repository: &str) -> CacheGrant {
    CacheGrant {
        username: "job".to_owned(),
        token: Password::new(token.to_owned()),
        expires_at: Instant::now() + Duration::from_secs(3600),
        repository: Some(repository.to_owned()),
    }
}

async fn good(context: JobContext) -> Ran {
    let ran = Started::new(context).end().await;
    assert_eq!(ran.result.failure, None, "{}", ran.output);
    ran
}

/// CACHE-10, CACHE-11, REG-02
#[tokio::test]
async fn a_job_with_a_token_has_its_caches_in_exactly_the_repository_it_came_with() {
    let Some((issuer, bench)) = Issuer::new() else {
        return;
    };
    let token = issuer.token(REPOSITORY);
    let mut job = cached(
        &["mkdir deps && echo $TOKEN > deps/a && cat deps/a"],
        cache("k"),
    );
    add(&mut job, "variables", variable("TOKEN", &token));
    let mut context = bench.context(job);
    context.caches.granted = Some(grant(&token, REPOSITORY));
    // Under "job", too.
    context.caches.job_token_only = true;
    let ran = good(context).await;
    assert_says(&ran, &["Cache k is saved: "]);
    assert!(ran.has("[MASKED]"), "{}", ran.output);
    let asked = bench.registry.asked();
    // printf k | sha256sum
    let tag = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a";
    let put = format!("PUT /v2/{REPOSITORY}/manifests/{tag}");
    assert!(asked.contains(&put), "{asked:?}");
    let own = format!(" /v2/{REPOSITORY}/");
    assert!(asked.iter().all(|line| line.contains(&own)), "{asked:?}");
    // Not the node's credential, were it any good.
    let mut context = bench.context(cached(&["cat deps/a"], cache("k")));
    context.caches.granted = Some(grant(&token, REPOSITORY));
    context.caches.credential = Some(Credential {
        username: "node".to_owned(),
        password: Password::new("none of a job's".to_owned()),
    });
    let ran = good(context).await;
    assert_says(&ran, &["Cache hit for k"]);
}

/// CACHE-10, CACHE-13, OPEN-02
#[tokio::test]
async fn what_a_token_does_not_grant_is_an_error_and_an_expired_one_is_not_sent() {
    let Some((issuer, bench)) = Issuer::new() else {
        return;
    };
    let job = || cached(&["mkdir -p deps && echo x > deps/a"], cache("k"));
    let other = issuer.token("caches/g/other/unprotected");
    let mut context = bench.context(job());
    context.caches.granted = Some(grant(&other, REPOSITORY));
    let ran = good(context).await;
    assert_says(&ran, &["Cache error for k: denied by ", "with credentials"]);
    // None of the node's own stands in for it, and a token service is not asked.
    let mut context = bench.context(job());
    let mut expired = grant(&issuer.token(REPOSITORY), REPOSITORY);
    expired.expires_at = Instant::now();
    context.caches.granted = Some(expired);
    bench.registry.asked();
    let ran = good(context).await;
    assert_says(
        &ran,
        &["Cache k is not restored: the job's registry token has expired"],
    );
    assert_says(
        &ran,
        &["Cache k is not saved: the job's registry token has expired"],
    );
    assert_eq!(bench.registry.asked(), Vec::<String>::new());
}
