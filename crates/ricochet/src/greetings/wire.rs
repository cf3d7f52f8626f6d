//! Greetings on the wire (`docs/wire.md`).

use std::net::{IpAddr, Ipv6Addr};

use foundation::bytes::{Reader, Writer};
use ricochet_core::NodeId;
use ricochet_core::counters::Malformed;

/// First byte of every greeting: the version of the wire in the high half, kind 0.
pub(crate) const FIRST_BYTE: u8 = ricochet_core::wire::VERSION << 4;
/// Length of a question or an answer: first byte, form, sender (4), round (4), heard (8), flags, group port
/// (2), group addresses (1), first group address (16), longest datagram (2).
pub(crate) const GREETING_MAX: usize = 40;

const FORM_CALL: u8 = 1;
const FORM_QUESTION: u8 = 2;
const FORM_ANSWER: u8 = 3;
const FORM_FAREWELL: u8 = 4;

const UNICAST: u8 = 1;
const COPIES: u8 = 2;

/// Settings that should be the same in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) unicast: bool,
    pub(crate) group_port: u16,
    pub(crate) group_addresses: u8,
    pub(crate) groups_base: IpAddr,
    pub(crate) datagram_max: u16,
}

impl Settings {
    /// Returns the settings that differ: their names, and what they are here and at the other.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = [
            ("node.unicast", self.unicast.to_string(), other.unicast.to_string()),
            ("node.group_port", self.group_port.to_string(), other.group_port.to_string()),
            ("node.groups_base", self.groups_base.to_string(), other.groups_base.to_string()),
            ("node.group_addresses", self.group_addresses.to_string(), other.group_addresses.to_string()),
            ("buffers.datagram_max", self.datagram_max.to_string(), other.datagram_max.to_string()),
        ];
        let differ = pairs.into_iter().filter(|(_, ours, theirs)| ours != theirs);
        differ.map(|(name, ours, theirs)| format!("{name} is {ours} here and {theirs} there")).collect()
    }
}

/// A greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// A test of one multicast address.
    Call { from: NodeId, round: u32, address: u8 },
    /// Asks a member what it hears.
    Question(Body),
    /// The answer.
    Answer(Body),
    /// Says that the sender leaves.
    Farewell { from: NodeId },
}

/// Content of a question or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) from: NodeId,
    /// Of a question: the sender's latest round of calls. Of an answer: the latest round of the receiver's
    /// calls of which the sender heard any; 0 if there is none.
    pub(crate) round: u32,
    /// Of an answer: bit for each of the receiver's addresses at which the sender heard a call of the round.
    pub(crate) heard: u64,
    /// Of a question: whether the sender sends the receiver copies, because it does not hear the calls.
    pub(crate) copies: bool,
    pub(crate) settings: Settings,
}

impl Greeting {
    /// Writes the greeting to the front of `to`; returns the number of bytes.
    pub(crate) fn write(&self, to: &mut [u8; GREETING_MAX]) -> usize {
        let mut writer = Writer::new(to);
        let (form, body) = match self {
            Self::Call { from, round, address } => {
                writer.put(&[FIRST_BYTE, FORM_CALL]);
                writer.put(&from.0.to_be_bytes());
                writer.put(&round.to_be_bytes());
                writer.put(&[*address]);
                return writer.written();
            }
            Self::Farewell { from } => {
                writer.put(&[FIRST_BYTE, FORM_FAREWELL]);
                writer.put(&from.0.to_be_bytes());
                return writer.written();
            }
            Self::Question(body) => (FORM_QUESTION, body),
            Self::Answer(body) => (FORM_ANSWER, body),
        };
        let Body { from, round, heard, copies, settings } = body;
        writer.put(&[FIRST_BYTE, form]);
        writer.put(&from.0.to_be_bytes());
        writer.put(&round.to_be_bytes());
        writer.put(&heard.to_be_bytes());
        writer.put(&[(u8::from(settings.unicast) * UNICAST) | (u8::from(*copies) * COPIES)]);
        writer.put(&settings.group_port.to_be_bytes());
        writer.put(&[settings.group_addresses]);
        let base = match settings.groups_base {
            IpAddr::V4(base) => base.to_ipv6_mapped(),
            IpAddr::V6(base) => base,
        };
        writer.put(&base.octets());
        writer.put(&settings.datagram_max.to_be_bytes());
        writer.written()
    }

    /// Reads a greeting.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn read(datagram: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(datagram);
        if reader.u8()? != FIRST_BYTE {
            return Err(Malformed::Kind);
        }
        let form = reader.u8()?;
        let from = NodeId(reader.u32()?);
        if form == FORM_FAREWELL {
            reader.end()?;
            return Ok(Self::Farewell { from });
        }
        let round = reader.u32()?;
        if form == FORM_CALL {
            let address = reader.u8()?;
            reader.end()?;
            return if address < 64 {
                Ok(Self::Call { from, round, address })
            } else {
                Err(Malformed::Reserved)
            };
        }
        let heard = reader.u64()?;
        let flags = reader.flags(UNICAST | COPIES)?;
        let settings = Settings {
            unicast: flags & UNICAST != 0,
            group_port: reader.u16()?,
            group_addresses: reader.u8()?,
            groups_base: Ipv6Addr::from_bits(u128::from(reader.u64()?) << 64 | u128::from(reader.u64()?))
                .to_canonical(),
            datagram_max: reader.u16()?,
        };
        reader.end()?;
        let body = Body { from, round, heard, copies: flags & COPIES != 0, settings };
        match form {
            FORM_QUESTION => Ok(Self::Question(body)),
            FORM_ANSWER => Ok(Self::Answer(body)),
            _ => Err(Malformed::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_read_as_they_were_written() {
        let settings = Settings {
            unicast: true,
            group_port: 7911,
            group_addresses: 64,
            groups_base: "239.255.79.0".parse().unwrap(),
            datagram_max: 1452,
        };
        let body = Body { from: NodeId(7), round: 3, heard: 1 << 63 | 5, copies: true, settings };
        let v6 = Settings { unicast: false, groups_base: "ff15::4f00".parse().unwrap(), ..settings };
        let plain = Body { copies: false, settings: v6, ..body };
        let call = Greeting::Call { from: NodeId(7), round: 3, address: 63 };
        for (greeting, expected) in [
            (call, 11),
            (Greeting::Farewell { from: NodeId(7) }, 6),
            (Greeting::Question(body), GREETING_MAX),
            (Greeting::Answer(plain), GREETING_MAX),
        ] {
            let mut bytes = [0; GREETING_MAX];
            let length = greeting.write(&mut bytes);
            assert_eq!(length, expected);
            assert_eq!(Greeting::read(&bytes[..length]), Ok(greeting));
            (0..length).for_each(|cut| assert!(Greeting::read(&bytes[..cut]).is_err()));
        }
        assert_eq!(settings.differences(&settings), Vec::<String>::new());
        assert_eq!(settings.differences(&v6).len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_a_reader(bytes: Vec<u8>) {
            let _ = Greeting::read(&[&[FIRST_BYTE][..], &bytes].concat());
        }
    }
}
