//! The cluster key, which authenticates datagrams.
//!
//! Each datagram ends in a trailer: the first 16 bytes of the HMAC-SHA-256 of all bytes before it. Every
//! holder of the key is trusted: the trailer neither tells members apart nor encrypts anything.

use std::fmt;
use std::io;
use std::path::Path;

pub use keyfile::KeyError;
use keyfile::KeyText;
use ring::hmac;
use zeroize::Zeroizing;

/// Length of the trailer in bytes.
pub const TRAILER: usize = 16;

/// The secret of 32 bytes that all nodes of a cluster share.
///
/// ```
/// let key = ricochet::ClusterKey::generate()?;
/// let same = ricochet::ClusterKey::parse(key.to_text().as_str())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; 32]>);

impl ClusterKey {
    /// Creates a key from its bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Generates a new key.
    ///
    /// # Errors
    /// If the operating system's random source fails.
    pub fn generate() -> io::Result<Self> {
        Self::parse(KeyText::generate()?.as_str()).map_err(io::Error::other)
    }

    /// Parses a key from text: 32 bytes in base64, surrounded by any whitespace.
    ///
    /// # Errors
    /// [`KeyError`], whose messages never contain the text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        keyfile::parse(text).map(|secret| Self::new(*secret.bytes()))
    }

    /// Reads a key from a file as `undrop multicast genkey` writes it. Only the owner
    /// may have access to the file.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(file: &Path) -> Result<Self, KeyError> {
        keyfile::read(file).map(|secret| Self::new(*secret.bytes()))
    }

    /// Returns the key as text that [`ClusterKey::parse`] reads.
    pub fn to_text(&self) -> KeyText {
        KeyText::new(&self.0)
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

/// Creates and checks trailers.
#[derive(Clone)]
pub(crate) struct Seal(hmac::Key);

impl Seal {
    /// Returns the trailer of a datagram.
    pub(crate) fn trailer(&self, datagram: &[u8]) -> [u8; TRAILER] {
        let tag = hmac::sign(&self.0, datagram);
        let mut trailer = [0; TRAILER];
        trailer.copy_from_slice(&tag.as_ref()[..TRAILER]);
        trailer
    }

    /// Returns the datagram without its trailer, if the trailer is right.
    pub(crate) fn open<'d>(&self, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let (body, trailer) = datagram.split_last_chunk::<TRAILER>()?;
        // Compares all bytes, so that the time does not reveal where they differ.
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
    fn only_datagrams_sealed_with_the_key_open() {
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
    fn a_key_survives_its_text() {
        let key = ClusterKey::generate().unwrap();
        assert_eq!(*ClusterKey::parse(key.to_text().as_str()).unwrap().0, *key.0);
        assert!(matches!(ClusterKey::parse("ab"), Err(KeyError::Length { seen: 2 })));
        assert_eq!(format!("{key:?}"), "ClusterKey(secret)");
    }
}
