//! Key material: the key that two gateways share, and the tokens of their starts.

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
}

/// Derives a secret from the tokens of both gateways, whichever of them is `one`. Only who can open Hellos
/// knows tokens.
pub(crate) fn derive_from_tokens<K: hkdf::KeyType>(
    [one, other]: [Token; 2],
    info: &[&[u8]],
    length: K,
    out: &mut [u8],
) {
    let (low, high) = if one.0 <= other.0 { (one, other) } else { (other, one) };
    let mut secret = [0; 2 * TOKEN_LEN];
    secret[..TOKEN_LEN].copy_from_slice(&low.0);
    secret[TOKEN_LEN..].copy_from_slice(&high.0);
    derive(&secret, info, length, out);
    secret.zeroize();
}

fn derive<K: hkdf::KeyType>(secret: &[u8], info: &[&[u8]], length: K, out: &mut [u8]) {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"undrop maelstrom 1");
    salt.extract(secret)
        .expand(info, length)
        .and_then(|okm| okm.fill(out))
        .expect("the requested length is far below HKDF's limit");
}

impl std::fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
