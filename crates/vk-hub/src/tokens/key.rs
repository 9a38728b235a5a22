//! A key that signs tokens, and the certificates that say whose it is.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::secret_file::read;
use crate::config::{ConfigError, RegistryConfig};

/// Bytes of an RSA key's modulus at least.
const RSA_BYTES: usize = 256;
/// Certificates of a chain at most: all of them stand in every token.
const CHAIN: usize = 4;

/// The key.
pub(super) struct SigningKey {
    pair: Pair,
    chain: Vec<String>,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl SigningKey {
    /// Reads key and certificates, and sees whether they belong together.
    pub(super) fn open(of: &RegistryConfig) -> Result<SigningKey, ConfigError> {
        let bytes = read(&of.key_file, true).map_err(|why| of.error("key_file", why))?;
        let shown = of.key_file.display();
        let key = PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_| of.error("key_file", format!("{shown} holds no private key in PEM")))?;
        let pair = Pair::read(&key).ok_or_else(|| {
            let why = format!(
                "the key in {shown} cannot sign tokens: make one of ECDSA P-256 or P-384, or of \
                 RSA with 2048 bits and more"
            );
            of.error("key_file", why)
        })?;
        let file = &of.certificate_file;
        let wrong = |why: String| of.error("certificate_file", why);
        let bytes = read(file, false).map_err(wrong)?;
        let shown = file.display();
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let chain = chain.unwrap_or_default();
        let Some(leaf) = chain.first() else {
            return Err(wrong(format!("{shown} holds no certificate in PEM")));
        };
        if chain.len() > CHAIN {
            let why = format!(
                "{shown} holds {} certificates, {CHAIN} are taken",
                chain.len()
            );
            return Err(wrong(why));
        }
        let of_leaf = vk_hub_client::spki_sha256(leaf);
        let own = pair.public_der().map(|der| digest(&SHA256, der.as_ref()));
        let is_own = own.is_some_and(|own| of_leaf.is_some_and(|leaf| leaf == own.as_ref()));
        if !is_own {
            return Err(wrong(format!(
                "the first certificate in {shown} is not of the key in {}: name the certificate \
                 that was made for it",
                of.key_file.display()
            )));
        }
        let chain = chain.iter().map(|one| STANDARD.encode(one)).collect();
        Ok(SigningKey { pair, chain })
    }

    /// Its name in a token.
    pub(super) const fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Rsa(_) => "RS256",
        }
    }

    /// The certificates as they stand in a token, the key's own first.
    pub(super) fn chain(&self) -> &[String] {
        &self.chain
    }

    /// Signs; none where that fails.
    pub(super) fn sign(&self, text: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(key) | Pair::P384(key) => {
                Some(key.sign(&random, text).ok()?.as_ref().to_vec())
            }
            Pair::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }
}

impl Pair {
    fn read(key: &PrivateKeyDer<'_>) -> Option<Pair> {
        let der = key.secret_der();
        let ecdsa = |with| EcdsaKeyPair::from_private_key_der(with, der).ok();
        if let Some(key) = ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING) {
            return Some(Pair::P256(key));
        }
        if let Some(key) = ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING) {
            return Some(Pair::P384(key));
        }
        let rsa = match key {
            PrivateKeyDer::Pkcs1(_) => RsaKeyPair::from_der(der),
            _ => RsaKeyPair::from_pkcs8(der),
        };
        let is_large = |key: &RsaKeyPair| key.public_modulus_len() >= RSA_BYTES;
        rsa.ok().filter(is_large).map(Pair::Rsa)
    }

    fn public_der(&self) -> Option<PublicKeyX509Der<'static>> {
        match self {
            Pair::P256(key) | Pair::P384(key) => key.public_key().as_der().ok(),
            Pair::Rsa(key) => key.public_key().as_der().ok(),
        }
    }
}
