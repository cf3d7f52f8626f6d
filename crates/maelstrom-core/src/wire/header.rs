//! The outer header of a datagram, and the kind of its body.

use crate::counters::Rejected;

/// Version of the wire format, the high half of a datagram's first byte.
pub const VERSION: u8 = 2;
/// Length of an AEAD tag in bytes.
pub const TAG: usize = 16;
/// Length of a sealed datagram's header in bytes: kind, reserved, epoch (4), counter (6).
pub const SEALED_HEADER: usize = 12;
/// Length of a Hello's header in bytes: kind, reserved, nonce (12).
pub const HELLO_HEADER: usize = 14;

const KIND_HELLO: u8 = VERSION << 4 | 1;
const KIND_SEALED: u8 = VERSION << 4 | 2;

/// The kind of a datagram by its outer header, before authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// A [`Hello`](super::Hello) behind its header and nonce.
    Hello,
    /// A body sealed under a session key.
    Sealed(SealedHeader),
}

impl Outer {
    /// Reads the outer header.
    ///
    /// # Errors
    /// [`Rejected::OtherVersion`]; [`Rejected::Malformed`] for an unknown kind, or a datagram that is too
    /// short.
    pub fn read(datagram: &[u8]) -> Result<Self, Rejected> {
        match datagram.first() {
            Some(&KIND_HELLO) if datagram.len() >= HELLO_HEADER + TAG => Ok(Outer::Hello),
            Some(&KIND_SEALED) if datagram.len() > SEALED_HEADER + TAG => {
                SealedHeader::read(datagram).map(Outer::Sealed).ok_or(Rejected::Malformed)
            }
            Some(kind)
                if matches!(kind & 0x0f, 1 | 2) && matches!(kind >> 4, 1..=8) && kind >> 4 != VERSION =>
            {
                Err(Rejected::OtherVersion)
            }
            _ => Err(Rejected::Malformed),
        }
    }
}

/// Header of a sealed datagram; authenticated with the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// Identifies the session and direction.
    pub epoch: u32,
    /// Number of the datagram in the session; 48 bits travel.
    pub counter: u64,
}

impl SealedHeader {
    /// Writes the header into the first [`SEALED_HEADER`] bytes of `to`.
    pub fn write(&self, to: &mut [u8]) {
        to[0] = KIND_SEALED;
        to[1] = 0;
        to[2..6].copy_from_slice(&self.epoch.to_be_bytes());
        to[6..12].copy_from_slice(&self.counter.to_be_bytes()[2..]);
    }

    /// Reads the header; `None` if `from` is too short or of another kind.
    pub fn read(from: &[u8]) -> Option<Self> {
        let head: &[u8; SEALED_HEADER] = from.first_chunk()?;
        let [KIND_SEALED, _, e0, e1, e2, e3, counter @ ..] = *head else { return None };
        let [c0, c1, c2, c3, c4, c5] = counter;
        Some(Self {
            epoch: u32::from_be_bytes([e0, e1, e2, e3]),
            counter: u64::from_be_bytes([0, 0, c0, c1, c2, c3, c4, c5]),
        })
    }
}

/// Writes a Hello's header with its random nonce.
pub fn write_hello_header(to: &mut [u8], nonce: [u8; 12]) {
    to[0] = KIND_HELLO;
    to[1] = 0;
    to[2..HELLO_HEADER].copy_from_slice(&nonce);
}

/// The kinds of sealed bodies, given by their first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A whole repair.
    Repair,
    /// One half of a repair that does not fit the WAN MTU.
    Half,
    /// A loss report.
    Report,
    /// An announcement of shares.
    Share,
}

impl BodyKind {
    /// Returns the byte on the wire.
    pub fn to_wire(self) -> u8 {
        match self {
            BodyKind::Repair => 1,
            BodyKind::Half => 2,
            BodyKind::Report => 3,
            BodyKind::Share => 4,
        }
    }

    /// Reads the first byte of a sealed body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for an unknown kind or an empty body.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        match body.first() {
            Some(1) => Ok(BodyKind::Repair),
            Some(2) => Ok(BodyKind::Half),
            Some(3) => Ok(BodyKind::Report),
            Some(4) => Ok(BodyKind::Share),
            _ => Err(Rejected::Malformed),
        }
    }
}
