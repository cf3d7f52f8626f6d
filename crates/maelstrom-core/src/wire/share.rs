//! The announcement of the shares of flows that a gateway protects, and that it can recover.

use foundation::bytes::{Reader, Writer};

use super::header::BodyKind;
use crate::counters::Rejected;
use crate::share::Share;

/// The body of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Whether the sender does not know yet that this announcement was received, and asks for an answer.
    pub asks: bool,
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
        writer.put(&[BodyKind::Share.to_wire(), u8::from(self.asks)]);
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
        let asks = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Rejected::Malformed),
        };
        let number = u32::from_be_bytes(reader.array()?);
        let received = u32::from_be_bytes(reader.array()?);
        let protects = Share(u16::from_be_bytes(reader.array()?));
        let recovers = Share(u16::from_be_bytes(reader.array()?));
        if !reader.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        Ok(Self { asks, number, received, protects, recovers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        let announcement =
            Announcement { asks: true, number: 7, received: 6, protects: Share(9), recovers: Share::ALL };
        let mut body = [0; Announcement::LEN];
        announcement.write(&mut body);
        assert_eq!(Announcement::read(&body), Ok(announcement));
        for cut in 1..body.len() {
            assert_eq!(Announcement::read(&body[..cut]), Err(Rejected::Malformed));
        }
    }
}
