//! A probe of one of several paths between two gateways: a question, which the other end answers at once on
//! the same path, or an answer.

use super::header::{BodyKind, SendTime};
use crate::counters::Rejected;
use foundation::bytes::{Reader, Writer};

/// The send time of a question that nothing answers.
const NO_ECHO: u32 = u32::MAX;

/// A probe of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Number of the path at the end that asks, which the answer repeats.
    pub path: u8,
    /// Time of sending of the question that this probe answers; `None` if it is a question.
    pub echo: Option<SendTime>,
    /// Number of sealed datagrams that its sender has sent on the path before it, in this session.
    pub sent: u64,
    /// Number of sealed datagrams of the receiver that should have arrived on the path, by the numbers in the
    /// receiver's probes.
    pub expected: u64,
    /// Those that did not arrive.
    pub lost: u64,
}

impl Probe {
    /// Length on the wire in bytes.
    pub const LEN: usize = 2 + 4 + 3 * 8;

    /// Writes the body into `to`, which is [`Probe::LEN`] bytes or longer, and fills the rest with zeros.
    pub fn write(&self, to: &mut [u8]) {
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Probe.to_wire(), self.path]);
        writer.put(&self.echo.map_or(NO_ECHO, SendTime::to_wire).to_be_bytes());
        for count in [self.sent, self.expected, self.lost] {
            writer.put(&count.to_be_bytes());
        }
        to[Self::LEN..].fill(0);
    }

    /// Reads an authenticated body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for a wrong length, padding that is not zero or that of an answer, a time that
    /// is none, or more losses than datagrams.
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let [_kind, path] = reader.array()?;
        let echo = match reader.u32()? {
            NO_ECHO => None,
            time => Some(SendTime::from_wire(time).ok_or(Rejected::Malformed)?),
        };
        let probe = Self { path, echo, sent: reader.u64()?, expected: reader.u64()?, lost: reader.u64()? };
        let padding = reader.rest();
        let is_padded = padding.iter().any(|&byte| byte != 0) || probe.echo.is_some() && !padding.is_empty();
        if probe.lost > probe.expected || is_padded {
            return Err(Rejected::Malformed);
        }
        Ok(probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_wire() {
        for echo in [None, Some(SendTime::at(77_000))] {
            let probe = Probe { path: 3, echo, sent: 1 << 40, expected: 900, lost: 7 };
            let mut body = [0; Probe::LEN];
            probe.write(&mut body);
            assert_eq!(Probe::read(&body), Ok(probe));
            for cut in 0..body.len() {
                assert_eq!(Probe::read(&body[..cut]), Err(Rejected::Malformed));
            }
            // A question may be padded, with zeros.
            let mut long = vec![7; 1_400];
            probe.write(&mut long);
            let expected = if echo.is_none() { Ok(probe) } else { Err(Rejected::Malformed) };
            assert_eq!(Probe::read(&long), expected);
            long[1_000] = 1;
            assert_eq!(Probe::read(&long), Err(Rejected::Malformed));
            Probe { lost: 901, ..probe }.write(&mut body);
            assert_eq!(Probe::read(&body), Err(Rejected::Malformed));
            body[2] = 1;
            assert_eq!(Probe::read(&body), Err(Rejected::Malformed), "a time of more than 24 bits");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_reader(body: Vec<u8>) {
            let _ = Probe::read(&body);
        }
    }
}
