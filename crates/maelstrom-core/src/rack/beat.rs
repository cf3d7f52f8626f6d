//! The heartbeat of a member to another one, byte for byte.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind and version of the format |
//! | 1 | 0 |
//! | 12 | nonce |
//! | 8, 8 | sender and receiver: numbers of their names |
//! | 8 | number of the rack: of its members and parts |
//! | 16 | token of the sender |
//! | 16 | token of the receiver that the sender has heard, or 0 |
//! | 8 | number of the heartbeat |
//! | 3 × 32 | parts for which the sender is ready, that it protects, and that it yields, one bit each |
//! | 16 | tag |
//!
//! Nonce, encryption and tag are those of a Hello, under a key of their own. All numbers are big-endian.

use foundation::bytes::{Reader, Writer};

use super::parts::PARTS_MAX;
use crate::counters::Unheeded;
use crate::key::{TOKEN_LEN, Token};
use crate::session::HelloKey;
use crate::wire::{HELLO_HEADER, TAG};

/// Kind of the datagram, with version 1 of its format.
const KIND: u8 = 0xb1;
/// Length of the body in bytes.
const BODY: usize = 3 * 8 + 2 * TOKEN_LEN + 8 + 3 * Bits::LEN;
/// Length of a heartbeat in bytes, without IP and UDP headers.
pub const BEAT_LEN: usize = HELLO_HEADER + BODY + TAG;

/// One bit for each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits([u64; PARTS_MAX / 64]);

impl Bits {
    const LEN: usize = PARTS_MAX / 8;

    pub(super) fn get(&self, part: usize) -> bool {
        self.0[part / 64] >> (part % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, part: usize, value: bool) {
        let bit = 1 << (part % 64);
        if value { self.0[part / 64] |= bit } else { self.0[part / 64] &= !bit }
    }
}

/// Statements of a member about its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Says {
    /// It can protect these.
    pub(super) ready: Bits,
    /// It protects these, and the far gateways know it.
    pub(super) protects: Bits,
    /// Of these, a member that comes before it may take these.
    pub(super) yields: Bits,
}

impl Says {
    /// Whether the next statements of the same member lack a part for which it was ready.
    pub(super) fn loses(&self, next: &Self) -> bool {
        self.ready.0.iter().zip(next.ready.0).any(|(before, after)| before & !after != 0)
    }
}

/// The body of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) rack: u64,
    pub(super) token: Token,
    pub(super) echo: Token,
    pub(super) number: u64,
    pub(super) says: Says,
}

impl Beat {
    /// Returns the datagram. `nonce` is random.
    pub(super) fn seal(&self, key: &HelloKey, nonce: [u8; 12]) -> [u8; BEAT_LEN] {
        let mut datagram = [0; BEAT_LEN];
        datagram[0] = KIND;
        datagram[2..HELLO_HEADER].copy_from_slice(&nonce);
        let mut writer = Writer::new(&mut datagram[HELLO_HEADER..BEAT_LEN - TAG]);
        for number in [self.from, self.to, self.rack] {
            writer.put(&number.to_be_bytes());
        }
        writer.put(&self.token.0);
        writer.put(&self.echo.0);
        writer.put(&self.number.to_be_bytes());
        for bits in [self.says.ready, self.says.protects, self.says.yields] {
            bits.0.iter().for_each(|word| writer.put(&word.to_be_bytes()));
        }
        key.seal(&mut datagram);
        datagram
    }

    /// Opens a datagram in place.
    pub(super) fn open(key: &HelloKey, datagram: &mut [u8]) -> Result<Self, Unheeded> {
        match datagram.first() {
            Some(&KIND) if datagram.len() == BEAT_LEN => {}
            Some(kind) if kind >> 4 == KIND >> 4 && *kind != KIND => return Err(Unheeded::OtherVersion),
            _ => return Err(Unheeded::Malformed),
        }
        let body = key.open(datagram).map_err(|_| Unheeded::Forged)?;
        Self::read(body).ok_or(Unheeded::Malformed)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let [from, to, rack] = [reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?];
        let (token, echo) = (Token(reader.array().ok()?), Token(reader.array().ok()?));
        let number = reader.u64().ok()?;
        let mut bits = || {
            let mut bits = Bits::default();
            for word in &mut bits.0 {
                *word = reader.u64().ok()?;
            }
            Some(bits)
        };
        let says = Says { ready: bits()?, protects: bits()?, yields: bits()? };
        (token != Token::UNKNOWN).then_some(Self { from, to, rack, token, echo, number, says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PeerKey;

    #[test]
    fn survives_the_wire_and_no_changed_byte_does() {
        let key = HelloKey::of_rack(&PeerKey::new([3; 32]));
        let mut says = Says::default();
        says.ready.set(0, true);
        says.protects.set(255, true);
        says.yields.set(64, true);
        let (token, echo) = (Token([7; TOKEN_LEN]), Token([9; TOKEN_LEN]));
        let beat = Beat { from: 1, to: 2, rack: 3, token, echo, number: 4, says };
        let datagram = beat.seal(&key, [5; 12]);
        assert_eq!(Beat::open(&key, &mut { datagram }), Ok(beat));
        for at in 0..BEAT_LEN {
            let (mut changed, mut cut) = (datagram, datagram);
            changed[at] ^= 1;
            assert!(Beat::open(&key, &mut changed).is_err(), "byte {at}");
            assert!(Beat::open(&key, &mut cut[..at]).is_err(), "{at} bytes");
        }
        // A Hello under the same secret is none, and the reverse.
        let hello = HelloKey::new(&PeerKey::new([3; 32]));
        assert_eq!(Beat::open(&hello, &mut { datagram }), Err(Unheeded::Forged));
        assert!((0..PARTS_MAX).all(|part| says.ready.get(part) == (part == 0)));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_reader(bytes: Vec<u8>) {
            let key = HelloKey::of_rack(&PeerKey::new([3; 32]));
            let _ = Beat::read(&bytes);
            let _ = Beat::open(&key, &mut bytes.clone());
        }
    }
}
