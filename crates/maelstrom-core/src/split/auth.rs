//! How the two ends of a carrier prove to each other that they have the key.
//!
//! The gateway that dials sends a *greeting* with a random number. The other one answers with a *challenge*:
//! a random number of its own, and a proof under each key that it accepts (docs/adr/0023). The dialing one
//! finds the key that it accepts too, and sends its *proof* under that. A proof covers role, version and both
//! numbers, so that none is of use in another connection or at the other end.
//!
//! | message | bytes |
//! |---|---|
//! | greeting | preamble (12), number (32) |
//! | challenge | preamble (12), number (32), proofs under the present key and the next (32 each) |
//! | proof | place of the key in the challenge (1), proof (32) |

use ring::{hkdf, hmac};
use zeroize::Zeroize as _;

use crate::key::PeerKey;

/// Length of a random number in bytes.
pub const NONCE_LEN: usize = 32;
/// Length of a greeting in bytes.
pub const GREETING_LEN: usize = PREAMBLE.len() + NONCE_LEN;
/// Length of a challenge in bytes.
pub const CHALLENGE_LEN: usize = GREETING_LEN + KEYS * PROOF;
/// Length of a proof in bytes.
pub const PROOF_LEN: usize = 1 + PROOF;

/// Name and version of the protocol on carriers.
const PREAMBLE: [u8; 12] = *b"undropsplit\x03";
/// Version of the protocol on carriers, the last byte of the preamble.
const VERSION: u8 = PREAMBLE[11];
/// Number of keys in a challenge.
const KEYS: usize = 2;
/// Length of a proof under one key.
const PROOF: usize = 32;

/// Why a carrier is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The other end speaks another protocol, or another version of this one.
    #[error("expected an end of a carrier of version {VERSION}, saw another protocol or version")]
    Protocol,
    /// The other end does not have the key.
    #[error("expected the key of this pair of gateways, saw a proof under another key")]
    Key,
}

/// The key under which the ends of carriers prove themselves, derived from a key that two gateways share.
#[derive(Clone, Debug)]
pub struct CarrierKey(hmac::Key);

impl CarrierKey {
    /// Derives the key.
    pub fn of(key: &PeerKey) -> Self {
        let mut bytes = [0; 32];
        key.derive(&[b"split carrier"], hkdf::HKDF_SHA256, &mut bytes);
        let derived = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        bytes.zeroize();
        Self(derived)
    }
}

/// The role in a proof.
#[derive(Clone, Copy, Debug)]
enum Prover {
    Dialer = 1,
    Acceptor = 2,
}

/// The numbers that a proof covers.
#[derive(Clone, Debug)]
struct Transcript {
    dialer: [u8; NONCE_LEN],
    acceptor: [u8; NONCE_LEN],
}

impl Transcript {
    fn text(&self, prover: Prover, place: u8) -> Vec<u8> {
        [&PREAMBLE[..], &[prover as u8, place], &self.dialer, &self.acceptor].concat()
    }

    fn prove(&self, prover: Prover, place: u8, key: &CarrierKey) -> hmac::Tag {
        hmac::sign(&key.0, &self.text(prover, place))
    }

    fn is_proof(&self, prover: Prover, place: u8, key: &CarrierKey, proof: &[u8]) -> bool {
        hmac::verify(&key.0, &self.text(prover, place), proof).is_ok()
    }
}

/// The end that dialed and has sent its greeting.
#[derive(Clone, Debug)]
pub struct Greeted {
    number: [u8; NONCE_LEN],
}

impl Greeted {
    /// Begins with a random number that is used once.
    pub fn new(number: [u8; NONCE_LEN]) -> Self {
        Self { number }
    }

    /// Returns the greeting.
    pub fn greeting(&self) -> [u8; GREETING_LEN] {
        let mut greeting = [0; GREETING_LEN];
        greeting[..PREAMBLE.len()].copy_from_slice(&PREAMBLE);
        greeting[PREAMBLE.len()..].copy_from_slice(&self.number);
        greeting
    }

    /// Checks a challenge, and returns the proof that answers it.
    ///
    /// # Errors
    /// [`AuthError`]: the other end is not the far gateway.
    pub fn answer(
        &self,
        challenge: &[u8; CHALLENGE_LEN],
        keys: &[CarrierKey],
    ) -> Result<[u8; PROOF_LEN], AuthError> {
        let (greeting, proofs) = challenge.split_at(GREETING_LEN);
        let transcript = Transcript { dialer: self.number, acceptor: number(greeting)? };
        for (place, proof) in proofs.chunks_exact(PROOF).enumerate() {
            let place = place as u8; // below KEYS
            let key = keys.iter().find(|key| transcript.is_proof(Prover::Acceptor, place, key, proof));
            if let Some(key) = key {
                let mut answer = [place; PROOF_LEN];
                answer[1..].copy_from_slice(transcript.prove(Prover::Dialer, place, key).as_ref());
                return Ok(answer);
            }
        }
        Err(AuthError::Key)
    }
}

/// The end that was dialed and has sent its challenge.
#[derive(Clone, Debug)]
pub struct Challenged(Transcript);

impl Challenged {
    /// Takes a greeting, and returns the challenge that answers it. `own` is a random number that is used
    /// once; `keys` are one or two.
    ///
    /// # Errors
    /// [`AuthError::Protocol`], or [`AuthError::Key`] if there is no key.
    pub fn new(
        greeting: &[u8; GREETING_LEN],
        own: [u8; NONCE_LEN],
        keys: &[CarrierKey],
    ) -> Result<(Self, [u8; CHALLENGE_LEN]), AuthError> {
        let transcript = Transcript { dialer: number(greeting)?, acceptor: own };
        let mut challenge = [0; CHALLENGE_LEN];
        challenge[..PREAMBLE.len()].copy_from_slice(&PREAMBLE);
        challenge[PREAMBLE.len()..GREETING_LEN].copy_from_slice(&own);
        for (place, proof) in challenge[GREETING_LEN..].chunks_exact_mut(PROOF).enumerate() {
            let place = place as u8; // below KEYS
            let key = key_at(keys, place).ok_or(AuthError::Key)?;
            proof.copy_from_slice(transcript.prove(Prover::Acceptor, place, key).as_ref());
        }
        Ok((Self(transcript), challenge))
    }

    /// Checks the proof of the end that dialed.
    ///
    /// # Errors
    /// [`AuthError::Key`].
    pub fn verify(&self, proof: &[u8; PROOF_LEN], keys: &[CarrierKey]) -> Result<(), AuthError> {
        let [place, proof @ ..] = proof;
        let key = key_at(keys, *place).ok_or(AuthError::Key)?;
        if self.0.is_proof(Prover::Dialer, *place, key, proof) { Ok(()) } else { Err(AuthError::Key) }
    }
}

/// The key at a place of the challenge. An end with one key uses it at both places.
fn key_at(keys: &[CarrierKey], place: u8) -> Option<&CarrierKey> {
    let place = usize::from(place);
    keys.get(place).or_else(|| keys.first().filter(|_| place < KEYS))
}

/// The random number in a greeting.
fn number(greeting: &[u8]) -> Result<[u8; NONCE_LEN], AuthError> {
    let number = greeting.strip_prefix(&PREAMBLE).ok_or(AuthError::Protocol)?;
    number.first_chunk().copied().ok_or(AuthError::Protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> CarrierKey {
        CarrierKey::of(&PeerKey::new([byte; 32]))
    }

    /// Runs a whole exchange.
    fn exchange(dialer: &[CarrierKey], acceptor: &[CarrierKey]) -> Result<(), AuthError> {
        let greeted = Greeted::new([1; NONCE_LEN]);
        let (challenged, challenge) = Challenged::new(&greeted.greeting(), [2; NONCE_LEN], acceptor)?;
        challenged.verify(&greeted.answer(&challenge, dialer)?, acceptor)
    }

    #[test]
    fn both_ends_are_sure_if_they_share_a_key_in_any_place() {
        assert_eq!(exchange(&[key(1)], &[key(1)]), Ok(()));
        assert_eq!(exchange(&[key(1)], &[key(2), key(1)]), Ok(()));
        assert_eq!(exchange(&[key(2), key(1)], &[key(1)]), Ok(()));
        assert_eq!(exchange(&[key(1), key(2)], &[key(2), key(3)]), Ok(()));
        assert_eq!(exchange(&[key(1)], &[key(2)]), Err(AuthError::Key));
        assert_eq!(exchange(&[key(1), key(2)], &[key(3), key(4)]), Err(AuthError::Key));
        assert_eq!(exchange(&[key(1)], &[]), Err(AuthError::Key));
    }

    #[test]
    fn a_proof_is_of_no_use_elsewhere() {
        let keys = [key(1)];
        let greeted = Greeted::new([1; NONCE_LEN]);
        let (challenged, challenge) = Challenged::new(&greeted.greeting(), [2; NONCE_LEN], &keys).unwrap();
        let proof = greeted.answer(&challenge, &keys).unwrap();
        // In another connection, to which the acceptor gives another number.
        let (other, _) = Challenged::new(&greeted.greeting(), [3; NONCE_LEN], &keys).unwrap();
        assert_eq!(other.verify(&proof, &keys), Err(AuthError::Key));
        // The acceptor's own proof sent back, at both places.
        for place in 0..2 {
            let mut mirrored = [place as u8; PROOF_LEN];
            let at = GREETING_LEN + place * PROOF;
            mirrored[1..].copy_from_slice(&challenge[at..at + PROOF]);
            assert_eq!(challenged.verify(&mirrored, &keys), Err(AuthError::Key));
        }
        // A challenge for another greeting.
        assert_eq!(Greeted::new([9; NONCE_LEN]).answer(&challenge, &keys), Err(AuthError::Key));
        // At a place that does not exist.
        let mut beyond = proof;
        beyond[0] = 2;
        assert_eq!(challenged.verify(&beyond, &keys), Err(AuthError::Key));
        assert_eq!(challenged.verify(&proof, &keys), Ok(()));
    }

    #[test]
    fn another_protocol_is_told_from_another_key() {
        let keys = [key(1)];
        let mut greeting = Greeted::new([1; NONCE_LEN]).greeting();
        greeting[0] ^= 1;
        assert_eq!(Challenged::new(&greeting, [2; NONCE_LEN], &keys).map(drop), Err(AuthError::Protocol));
        assert_eq!(Greeted::new([1; NONCE_LEN]).answer(&[0; CHALLENGE_LEN], &keys), Err(AuthError::Protocol));
    }
}
