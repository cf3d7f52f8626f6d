//! A datagram of another program as a Ricochet message: its source and time to live, then its bytes
//! (`docs/wire.md`).

use std::net::{IpAddr, SocketAddr};

/// First byte of every frame.
const VERSION: u8 = 1;

/// Longest header of a frame, in bytes.
pub(super) const HEADER_MAX: usize = 5 + 16;

/// A datagram that a relay carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Address of the program that sent it. That of the relay's host stands for a loopback address.
    pub(super) source: SocketAddr,
    /// Time to live with which the relay heard it.
    pub(super) ttl: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Writes the frame into a buffer, which is emptied first.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend([VERSION, self.ttl]);
        to.extend(self.source.port().to_be_bytes());
        match self.source.ip() {
            IpAddr::V4(ip) => {
                to.push(4);
                to.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                to.push(16);
                to.extend(ip.octets());
            }
        }
        to.extend(self.payload);
    }

    /// Reads a frame. `None` if it is not one.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, ttl, high, low, length], rest) = bytes.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let (ip, payload): (IpAddr, _) = match length {
            4 => rest.split_first_chunk::<4>().map(|(ip, payload)| ((*ip).into(), payload))?,
            16 => rest.split_first_chunk::<16>().map(|(ip, payload)| ((*ip).into(), payload))?,
            _ => return None,
        };
        Some(Self { source: SocketAddr::new(ip, u16::from_be_bytes([high, low])), ttl, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_a_part_of_it_does_not() {
        for source in ["10.0.0.7:5000", "[fd00::7]:65535"] {
            let frame = Frame { source: source.parse().unwrap(), ttl: 31, payload: b"hello" };
            let mut bytes = b"from last time".to_vec();
            frame.write(&mut bytes);
            assert!(bytes.len() <= HEADER_MAX + 5);
            assert_eq!(Frame::read(&bytes), Some(frame));
            let header = bytes.len() - 5;
            assert_eq!(Frame::read(&bytes[..header]), Some(Frame { payload: b"", ..frame }));
            for end in 0..header {
                assert_eq!(Frame::read(&bytes[..end]), None, "{end}");
            }
            bytes[0] = 2;
            assert_eq!(Frame::read(&bytes), None);
        }
        assert_eq!(Frame::read(&[1, 1, 0, 1, 5, 1, 2, 3, 4, 5, 6]), None);
    }
}
