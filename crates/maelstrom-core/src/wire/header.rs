//! The outer header of a datagram, and the kind of its body.

use crate::counters::Rejected;

/// Version of the wire format, the high half of a datagram's first byte.
pub const VERSION: u8 = 9;
/// The highest version that a datagram is told by. Higher numbers are those of other protocols.
const NEXT: u8 = VERSION + 1;
/// Length of an AEAD tag in bytes.
pub const TAG: usize = 16;
/// Length of a sealed datagram's header in bytes: kind, time of sending (3), epoch (4), counter (4).
pub const SEALED_HEADER: usize = 12;
/// Length of a Hello's header in bytes: kind, part of the key, nonce (12).
pub const HELLO_HEADER: usize = 14;

const KIND_HELLO: u8 = VERSION << 4 | 1;
const KIND_SEALED: u8 = VERSION << 4 | 2;

/// The kind of a datagram by its outer header, before authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// A [`Hello`](super::Hello) behind its header and nonce, sealed with a key that plays this part for its
    /// sender.
    Hello(KeyPart),
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
            Some(&KIND_HELLO) if datagram.len() >= HELLO_HEADER + TAG => {
                KeyPart::from_wire(datagram[1]).map(Outer::Hello).ok_or(Rejected::Malformed)
            }
            Some(&KIND_SEALED) if datagram.len() > SEALED_HEADER + TAG => {
                SealedHeader::read(datagram).map(Outer::Sealed).ok_or(Rejected::Malformed)
            }
            Some(kind)
                if matches!(kind & 0x0f, 1 | 2) && matches!(kind >> 4, 1..=NEXT) && kind >> 4 != VERSION =>
            {
                Err(Rejected::OtherVersion)
            }
            _ => Err(Rejected::Malformed),
        }
    }
}

/// The part that the key of a Hello plays for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The only key that the sender accepts.
    Only,
    /// The present one of two keys that the sender accepts.
    Present,
    /// The next one of two keys that the sender accepts.
    Next,
}

impl KeyPart {
    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Self::Only => 0,
            Self::Present => 1,
            Self::Next => 2,
        }
    }

    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        [Self::Only, Self::Present, Self::Next].into_iter().find(|part| part.to_wire() == byte)
    }
}

/// Bound on the time from the newest protected packet to the repair behind it, as repairs and names carry it.
///
/// An egress that is short of time emits repairs long after their packets have left. The ingress must know,
/// because these packets may have arrived before it saw any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag(u8);

impl Lag {
    /// Nothing is known of the lag.
    pub const UNKNOWN: Self = Self(15);
    /// Microseconds below which the lag is the smallest one, 0. Each following number stands for twice as
    /// much.
    const UNIT_US: u64 = 1_000;

    /// Returns the smallest bound on this time.
    pub fn of(us: u64) -> Self {
        let bounds = (0..Self::UNKNOWN.0).map(Self);
        bounds.into_iter().find(|lag| us < lag.shift_us()).unwrap_or(Self::UNKNOWN)
    }

    /// Returns the bound in microseconds; `None` if it is unknown.
    pub fn bound_us(self) -> Option<u64> {
        (self != Self::UNKNOWN).then(|| self.shift_us())
    }

    fn shift_us(self) -> u64 {
        Self::UNIT_US << self.0
    }

    /// Writes the lag beside the kind of a body.
    pub(super) fn beside(self, kind: BodyKind) -> u8 {
        self.0 << 4 | kind.to_wire()
    }

    /// Reads the lag beside the kind of a body.
    pub(super) fn read(byte: u8) -> Self {
        Self(byte >> 4)
    }
}

/// Header of a sealed datagram; authenticated with the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// Time of sending.
    pub sent: SendTime,
    /// Identifies the session and direction.
    pub epoch: u32,
    /// Number of the datagram in the session; 32 bits travel.
    pub counter: u64,
}

impl SealedHeader {
    /// Writes the header into the first [`SEALED_HEADER`] bytes of `to`.
    pub fn write(&self, to: &mut [u8]) {
        to[0] = KIND_SEALED;
        to[1..4].copy_from_slice(&self.sent.0.to_be_bytes()[1..]);
        to[4..8].copy_from_slice(&self.epoch.to_be_bytes());
        to[8..12].copy_from_slice(&self.counter.to_be_bytes()[4..]);
    }

    /// Reads the header; `None` if `from` is too short or of another kind.
    pub fn read(from: &[u8]) -> Option<Self> {
        let head: &[u8; SEALED_HEADER] = from.first_chunk()?;
        let [KIND_SEALED, s0, s1, s2, e0, e1, e2, e3, counter @ ..] = *head else { return None };
        Some(Self {
            sent: SendTime(u32::from_be_bytes([0, s0, s1, s2])),
            epoch: u32::from_be_bytes([e0, e1, e2, e3]),
            counter: u64::from(u32::from_be_bytes(counter)),
        })
    }
}

/// Time at which a datagram was sealed, on the clock of its sender: a multiple of 16 µs, modulo 2²⁴ of them
/// (268 s).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTime(u32);

impl SendTime {
    const BITS: u32 = 24;
    const MASK: u32 = (1 << Self::BITS) - 1;
    /// Microseconds of a unit, as a power of two.
    const UNIT: u32 = 4;
    /// Time after which send times repeat, in microseconds.
    pub const PERIOD_US: u64 = 1 << (Self::BITS + Self::UNIT);

    /// Returns the send time of `now_us`.
    pub fn at(now_us: u64) -> Self {
        Self((now_us >> Self::UNIT) as u32 & Self::MASK)
    }

    /// Microseconds from this time to `now_us`, modulo [`SendTime::PERIOD_US`]. They are a duration only if
    /// both times are of one clock.
    pub fn until_us(self, now_us: u64) -> u64 {
        let units = ((now_us >> Self::UNIT) as u32).wrapping_sub(self.0) & Self::MASK;
        u64::from(units) << Self::UNIT
    }

    /// Microseconds by which a delay exceeds another one, both modulo [`SendTime::PERIOD_US`]. They differ by
    /// less than half of that.
    pub fn difference_us(delay_us: u64, reference_us: u64) -> i64 {
        const HALF_US: u64 = SendTime::PERIOD_US / 2;
        let ahead_us = delay_us.wrapping_sub(reference_us).wrapping_add(HALF_US) % Self::PERIOD_US;
        ahead_us as i64 - HALF_US as i64
    }

    /// Microseconds from `earlier` to this time, both of one clock; negative if this time is the earlier one.
    pub fn since_us(self, earlier: Self) -> i64 {
        Self::difference_us(u64::from(self.0) << Self::UNIT, u64::from(earlier.0) << Self::UNIT)
    }

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u32 {
        self.0
    }

    /// Reads a number of the wire; `None` if it has more than 24 bits.
    pub fn from_wire(number: u32) -> Option<Self> {
        (number <= Self::MASK).then_some(Self(number))
    }
}

/// Writes a Hello's header with its random nonce.
pub fn write_hello_header(to: &mut [u8], part: KeyPart, nonce: [u8; 12]) {
    to[0] = KIND_HELLO;
    to[1] = part.to_wire();
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
    /// A request for packets.
    Request,
    /// Names of packets.
    Names,
    /// Packets of a tunnel, with their positions in the stream.
    Packets,
    /// Packets of a tunnel that are not in the stream, because no repair contains them.
    Aside,
    /// A probe of one of several paths.
    Probe,
    /// The IP groups that a site wants.
    Wants,
}

impl BodyKind {
    /// Returns the byte on the wire.
    pub fn to_wire(self) -> u8 {
        match self {
            BodyKind::Repair => 1,
            BodyKind::Half => 2,
            BodyKind::Report => 3,
            BodyKind::Share => 4,
            BodyKind::Request => 5,
            BodyKind::Names => 6,
            BodyKind::Packets => 7,
            BodyKind::Aside => 8,
            BodyKind::Probe => 9,
            BodyKind::Wants => 10,
        }
    }

    /// Reads the first byte of a sealed body. That of a repair and of names holds a [`Lag`] too.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for an unknown kind or an empty body.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        match body.first() {
            Some(byte) if byte & 0x0f == 1 => Ok(BodyKind::Repair),
            Some(2) => Ok(BodyKind::Half),
            Some(3) => Ok(BodyKind::Report),
            Some(4) => Ok(BodyKind::Share),
            Some(5) => Ok(BodyKind::Request),
            Some(byte) if byte & 0x0f == 6 => Ok(BodyKind::Names),
            Some(7) => Ok(BodyKind::Packets),
            Some(8) => Ok(BodyKind::Aside),
            Some(9) => Ok(BodyKind::Probe),
            Some(10) => Ok(BodyKind::Wants),
            _ => Err(Rejected::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_states_the_part_of_its_key_and_nothing_else() {
        let mut hello = [0; HELLO_HEADER + TAG];
        for part in [KeyPart::Only, KeyPart::Present, KeyPart::Next] {
            write_hello_header(&mut hello, part, [7; 12]);
            assert_eq!(Outer::read(&hello), Ok(Outer::Hello(part)));
        }
        hello[1] = 3;
        assert_eq!(Outer::read(&hello), Err(Rejected::Malformed));
    }

    #[test]
    fn a_sealed_header_survives_the_wire_with_its_time() {
        let sent = SendTime::at(123_456_789);
        let header = SealedHeader { sent, epoch: 0x0102_0304, counter: (1 << 32) - 2 };
        let mut bytes = [0; SEALED_HEADER];
        header.write(&mut bytes);
        assert_eq!(SealedHeader::read(&bytes), Some(header));
        // The time is exact to 16 µs, also where the numbers start again.
        for (at_us, later_us) in [(123_456_789, 40_000), (SendTime::PERIOD_US - 5, 100_000)] {
            let elapsed_us = SendTime::at(at_us).until_us(at_us + later_us);
            assert!(elapsed_us.abs_diff(later_us) <= 16, "{elapsed_us}");
        }
        assert_eq!(SendTime::from_wire(1 << 24), None);
    }

    #[test]
    fn a_lag_is_bounded_by_twice_itself_and_survives_the_wire_beside_a_kind() {
        for us in [0, 999, 1_000, 7_999, 8_000, 123_456, 16_383_999] {
            let bound_us = Lag::of(us).bound_us().unwrap();
            assert!(us < bound_us && bound_us <= (2 * us).max(1_000), "{us} us: {bound_us}");
            for kind in [BodyKind::Repair, BodyKind::Names] {
                let byte = Lag::of(us).beside(kind);
                assert_eq!((BodyKind::read(&[byte]), Lag::read(byte)), (Ok(kind), Lag::of(us)));
            }
        }
        assert_eq!((Lag::of(16_384_000), Lag::UNKNOWN.bound_us()), (Lag::UNKNOWN, None));
        // No other kind has one.
        assert_eq!(BodyKind::read(&[0x13]), Err(Rejected::Malformed));
    }

    #[test]
    fn the_difference_of_two_times_has_a_sign_also_where_numbers_start_again() {
        for at_us in [5_000_000, SendTime::PERIOD_US - 20_000] {
            let [earlier, later] = [at_us, at_us + 64_000].map(SendTime::at);
            assert_eq!([later.since_us(earlier), earlier.since_us(later)], [64_000, -64_000]);
        }
    }
}
