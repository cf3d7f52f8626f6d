//! The file format pcapng, as far as captures need it: one interface, packets with comments, and a count of
//! those that are missing.

use std::io::{self, Write};

/// Link type of packets without a link header (LINKTYPE_RAW).
const RAW: u32 = 101;
/// Kinds of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Options of any block, of the section, of the interface, of a packet and of statistics.
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;

/// A file that is being written. It is valid after each call.
pub(super) struct Pcapng<W>(W);

impl<W: Write> Pcapng<W> {
    /// Begins a file of packets at an interface, with times in microseconds.
    pub(super) fn begin(to: W, interface: &str) -> io::Result<Self> {
        let mut file = Self(to);
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend_from_slice(&[1, 0, 0, 0]);
        // The length of the section is not known.
        section.extend_from_slice(&[0xff; 8]);
        option(&mut section, APPLICATION, concat!("undrop ", env!("CARGO_PKG_VERSION")).as_bytes());
        file.block(SECTION, section)?;
        let mut described = RAW.to_le_bytes().to_vec();
        described.extend_from_slice(&0_u32.to_le_bytes());
        option(&mut described, NAME, interface.as_bytes());
        file.block(INTERFACE, described)?;
        Ok(file)
    }

    /// Adds an IP packet that was seen at this time, in microseconds since 1970.
    pub(super) fn packet(
        &mut self,
        at_us: u64,
        packet: &[u8],
        is_incoming: bool,
        comment: &str,
    ) -> io::Result<()> {
        let length = (packet.len() as u32).to_le_bytes();
        let mut body = [[0; 4], high(at_us), low(at_us), length, length].concat();
        body.extend_from_slice(packet);
        pad(&mut body);
        option(&mut body, COMMENT, comment.as_bytes());
        let flags: u32 = if is_incoming { 1 } else { 2 };
        option(&mut body, FLAGS, &flags.to_le_bytes());
        self.block(PACKET, body)
    }

    /// Adds the number of packets seen, and of those among them that the file lacks.
    pub(super) fn end(&mut self, at_us: u64, seen: u64, dropped: u64) -> io::Result<()> {
        let mut body = [[0; 4], high(at_us), low(at_us)].concat();
        option(&mut body, RECEIVED, &seen.to_le_bytes());
        option(&mut body, DROPPED, &dropped.to_le_bytes());
        self.block(STATISTICS, body)?;
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// Writes a block whose body ends with options, if it has any.
    fn block(&mut self, kind: u32, mut body: Vec<u8>) -> io::Result<()> {
        // End of the options.
        body.extend_from_slice(&[0; 4]);
        let length = (body.len() as u32 + 12).to_le_bytes();
        for part in [&kind.to_le_bytes()[..], &length, &body, &length] {
            self.0.write_all(part)?;
        }
        Ok(())
    }
}

fn high(at_us: u64) -> [u8; 4] {
    ((at_us >> 32) as u32).to_le_bytes()
}

fn low(at_us: u64) -> [u8; 4] {
    (at_us as u32).to_le_bytes()
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Adds an option of at most 65,535 bytes.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_states_its_length_twice_and_is_aligned() {
        let mut bytes = Vec::new();
        let mut file = Pcapng::begin(&mut bytes, "wan0").unwrap();
        for length in 20..28 {
            file.packet(1_700_000_000_123_456, &vec![0x45; length], length % 2 == 0, "left").unwrap();
        }
        file.end(1_700_000_000_123_457, 10, 2).unwrap();
        let (mut rest, mut kinds) = (&bytes[..], Vec::new());
        while let Some((kind, behind)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*behind.first_chunk().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(rest[length - 4..length], rest[4..8]);
            kinds.push(u32::from_le_bytes(*kind));
            rest = &rest[length..];
        }
        let expected = [&[SECTION, INTERFACE][..], &[PACKET; 8], &[STATISTICS]].concat();
        assert_eq!(kinds, expected);
    }
}
