//! Key material: the key that two gateways share, the tokens of their starts, and secrets that follow from
//! them.

use std::fmt;

use ring::hkdf;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Length of a session token in bytes.
pub const TOKEN_LEN: usize = 16;

/// Random mark that a gateway draws at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token(pub [u8; TOKEN_LEN]);

impl Token {
    /// Placeholder that a Hello carries while the other's token is unknown.
    pub const UNKNOWN: Token = Token([0; TOKEN_LEN]);
}

/// The key that two gateways share, wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PeerKey([u8; 32]);

impl PeerKey {
    /// Creates the key from 32 secret random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives a key by HKDF-SHA-256 (RFC 5869) for the purpose that `info` states.
    pub(crate) fn derive<K: hkdf::KeyType>(&self, info: &[&[u8]], length: K, out: &mut [u8]) {
        derive(&self.0, info, length, out);
    }

    /// Derives a key as [`PeerKey::derive`], which follows from `secret` too.
    pub(crate) fn derive_with<K: hkdf::KeyType>(
        &self,
        secret: &Secret,
        info: &[&[u8]],
        length: K,
        out: &mut [u8],
    ) {
        let mut both = [0; 64];
        both[..32].copy_from_slice(&self.0);
        both[32..].copy_from_slice(&secret.0);
        derive(&both, info, length, out);
        both.zeroize();
    }
}

/// 32 secret bytes, wiped when dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes the bytes, of which the caller wipes its copy.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Length of a derived secret in bytes.
pub(crate) struct Length(pub(crate) usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives a secret from another one by HKDF-SHA-256 (RFC 5869) for the purpose that `info` states.
pub(crate) fn derive<K: hkdf::KeyType>(secret: &[u8], info: &[&[u8]], length: K, out: &mut [u8]) {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"undrop maelstrom 1");
    salt.extract(secret)
        .expand(info, length)
        .and_then(|okm| okm.fill(out))
        .expect("the requested length is far below HKDF's limit");
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerKey(…)")
    }
}

impl PartialEq for PeerKey {
    fn eq(&self, other: &Self) -> bool {
        // Constant time is not needed: keys are compared when a configuration is read again, never with
        // network input.
        self.0 == other.0
    }
}
