//! The announcement of the shares of flows that a gateway protects, and that it can recover.

use foundation::bytes::{Reader, Writer};

use super::header::BodyKind;
use crate::counters::Rejected;
use crate::share::Share;

/// Bits of the flags.
const ASKS: u8 = 1;
const THIN: u8 = 2;

/// The body of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Whether the sender does not know yet that this announcement was received, and asks for an answer.
    pub asks: bool,
    /// Whether the sender may name a sample of its packets only ([`crate::thinning`]).
    pub is_thin: bool,
    /// Number of the announcement in the session, or 0 if it changes nothing.
    pub number: u32,
    /// Number of the newest announcement that the sender received, or 0.
    pub received: u32,
    /// Flows that the sender may protect: it protects no packet of others.
    pub protects: Share,
    /// Flows that the sender has time to recover.
    pub recovers: Share,
}

impl Announcement {
    /// Length on the wire in bytes.
    pub const LEN: usize = 2 + 4 + 4 + 2 + 2;

    /// Writes the body.
    pub fn write(&self, to: &mut [u8]) {
        let mut writer = Writer::new(to);
        let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
        writer.put(&[BodyKind::Share.to_wire(), flag(self.asks, ASKS) | flag(self.is_thin, THIN)]);
        writer.put(&self.number.to_be_bytes());
        writer.put(&self.received.to_be_bytes());
        writer.put(&self.protects.0.to_be_bytes());
        writer.put(&self.recovers.0.to_be_bytes());
    }

    /// Reads an authenticated body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a wrong length or flag.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        reader.u8()?;
        let flags = reader.u8()?;
        if flags > ASKS | THIN {
            return Err(Rejected::Malformed);
        }
        let number = u32::from_be_bytes(reader.array()?);
        let received = u32::from_be_bytes(reader.array()?);
        let protects = Share(u16::from_be_bytes(reader.array()?));
        let recovers = Share(u16::from_be_bytes(reader.array()?));
        if !reader.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        let (asks, is_thin) = (flags & ASKS != 0, flags & THIN != 0);
        Ok(Self { asks, is_thin, number, received, protects, recovers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let mut body = [0; Announcement::LEN];
        for (asks, is_thin) in [(true, false), (false, true), (true, true)] {
            let (protects, recovers) = (Share(9), Share::ALL);
            let announcement = Announcement { asks, is_thin, number: 7, received: 6, protects, recovers };
            announcement.write(&mut body);
            assert_eq!(Announcement::read(&body), Ok(announcement));
        }
        for cut in 1..body.len() {
            assert_eq!(Announcement::read(&body[..cut]), Err(Rejected::Malformed));
        }
    }
}
