//! The cluster key: who does not know it is not heard.
//!
//! Each datagram ends in a trailer, HMAC-SHA-256 of all bytes before it, of which the first 16 bytes are sent. Who knows the
//! key is trusted: the trailer does not tell members apart, nor does it hide anything.

use std::fmt;

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

/// Length of the trailer in bytes.
pub const TRAILER: usize = 16;
/// Length of a key as text: 32 bytes in hexadecimal.
const TEXT: usize = 64;

/// The secret that all nodes of a cluster share: 32 bytes.
///
/// ```
/// let key = ricochet::ClusterKey::generate()?;
/// let same = ricochet::ClusterKey::parse(&key.to_text())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; 32]>);

/// Why a text is no key. It never repeats what the text holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not 64 characters.
    #[error("key: expected {TEXT} hexadecimal characters, saw {0} characters")]
    Length(usize),
    /// Something else than a hexadecimal digit.
    #[error("key: expected {TEXT} hexadecimal characters, saw another at place {0}")]
    Character(usize),
    /// 32 zero bytes: a placeholder, never a key.
    #[error("key: expected a secret, saw nothing but zeros")]
    Zero,
    /// No randomness.
    #[error("key: the operating system's random source failed")]
    Random,
}

impl ClusterKey {
    /// The key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new key.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        SystemRandom::new().fill(&mut *bytes).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }

    /// Reads a key from text: 64 hexadecimal characters, blanks around them allowed.
    ///
    /// # Errors
    /// [`KeyError`], of which none repeats the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        let count = text.chars().count();
        if count != TEXT {
            return Err(KeyError::Length(count));
        }
        let mut bytes = Zeroizing::new([0u8; 32]);
        for (at, letter) in text.chars().enumerate() {
            let digit = letter.to_digit(16).ok_or(KeyError::Character(at + 1))?;
            bytes[at / 2] = bytes[at / 2] << 4 | digit as u8;
        }
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(KeyError::Zero);
        }
        Ok(Self(bytes))
    }

    /// The key as text, as [`ClusterKey::parse`] reads it.
    pub fn to_text(&self) -> Zeroizing<String> {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        let digits = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
        let mut text = Zeroizing::new(String::with_capacity(TEXT));
        text.extend(digits);
        text
    }

    pub(crate) fn seal(&self) -> Seal {
        Seal(hmac::Key::new(hmac::HMAC_SHA256, &*self.0))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

/// Makes and checks trailers.
#[derive(Clone)]
pub(crate) struct Seal(hmac::Key);

impl Seal {
    /// The trailer of a datagram.
    pub(crate) fn trailer(&self, datagram: &[u8]) -> [u8; TRAILER] {
        let tag = hmac::sign(&self.0, datagram);
        let mut trailer = [0; TRAILER];
        trailer.copy_from_slice(&tag.as_ref()[..TRAILER]);
        trailer
    }

    /// The datagram without its trailer, if that is right.
    pub(crate) fn open<'d>(&self, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let (body, trailer) = datagram.split_last_chunk::<TRAILER>()?;
        // Whatever the bytes, all are compared: the time tells nothing of where they differ.
        let differing = self.trailer(body).iter().zip(trailer).fold(0, |sum, (a, b)| sum | (a ^ b));
        (std::hint::black_box(differing) == 0).then_some(body)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(seal: &Seal, body: &[u8]) -> Vec<u8> {
        [body, &seal.trailer(body)].concat()
    }

    #[test]
    fn only_what_was_sealed_with_the_key_opens() {
        let seal = ClusterKey::new([7; 32]).seal();
        let other = ClusterKey::new([8; 32]).seal();
        let datagram = sealed(&seal, b"something");
        assert_eq!(seal.open(&datagram), Some(&b"something"[..]));
        assert_eq!(other.open(&datagram), None);
        for bit in 0..datagram.len() * 8 {
            let mut forged = datagram.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(&forged), None, "bit {bit}");
        }
        for length in 0..datagram.len() {
            assert_eq!(seal.open(&datagram[..length]), None);
        }
        assert_eq!(seal.open(&sealed(&seal, b"")), Some(&b""[..]));
    }

    #[test]
    fn the_trailer_is_the_first_half_of_rfc_4231_test_case_2() {
        let seal = Seal(hmac::Key::new(hmac::HMAC_SHA256, b"Jefe"));
        let expected =
            [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7];
        assert_eq!(seal.trailer(b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn a_key_survives_its_text_and_bad_texts_are_refused() {
        let key = ClusterKey::generate().unwrap();
        assert_eq!(*ClusterKey::parse(&format!(" {}\n", *key.to_text())).unwrap().0, *key.0);
        assert_eq!(ClusterKey::parse("ab").unwrap_err(), KeyError::Length(2));
        assert_eq!(ClusterKey::parse(&"0".repeat(64)).unwrap_err(), KeyError::Zero);
        assert_eq!(ClusterKey::parse(&format!("{}g", "a".repeat(63))).unwrap_err(), KeyError::Character(64));
        assert_eq!(format!("{key:?}"), "ClusterKey(secret)");
    }
}
