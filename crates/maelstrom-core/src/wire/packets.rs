//! Packets of a tunnel: those that waited for the same peer share a datagram.
//!
//! kind (1) ‖ position of the first packet (4) ‖ for each packet its length (2) and itself. Packets that are
//! not in the stream have no position.

use super::header::BodyKind;
use crate::counters::Rejected;
use foundation::Seq;
use foundation::bytes::Reader;

/// Length of a packet's header in bytes: its length.
pub const PACKET_HEADER: usize = 2;

/// A body with packets, while it is composed.
#[derive(Debug, Default)]
pub struct Bundle {
    bytes: Vec<u8>,
    /// Type of service that all of its packets have.
    tos: u8,
    count: usize,
    /// Position of the packet that may follow; `None` if its packets have no positions.
    next: Option<Seq>,
}

impl Bundle {
    /// The body; empty if it has no packet.
    pub fn body(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of packets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no packet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Type of service of its packets.
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// Whether a packet of `len` bytes can share the datagram, whose body must not be longer than `max`
    /// bytes. Packets share one only if their types of service are equal and their positions consecutive.
    pub fn takes(&self, len: usize, tos: u8, position: Option<Seq>, max: usize) -> bool {
        let fits = self.bytes.len() + PACKET_HEADER + len <= max;
        self.is_empty() || (fits && self.tos == tos && self.next == position)
    }

    /// Adds a packet that it [takes](Bundle::takes).
    ///
    /// # Panics
    /// If the packet is longer than an IP packet can be.
    pub fn push(&mut self, packet: &[u8], tos: u8, position: Option<Seq>) {
        let len = u16::try_from(packet.len()).expect("an IP packet has at most 65,535 bytes");
        if self.is_empty() {
            let kind = if position.is_some() { BodyKind::Packets } else { BodyKind::Aside };
            self.bytes.push(kind.to_wire());
            if let Some(position) = position {
                self.bytes.extend_from_slice(&position.to_wire().to_be_bytes());
            }
            self.tos = tos;
        }
        self.bytes.extend_from_slice(&len.to_be_bytes());
        self.bytes.extend_from_slice(packet);
        self.count += 1;
        self.next = position.map(|position| position.plus(1));
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The packets of a datagram, each with its position if it has one; borrows the datagram.
#[derive(Clone, Debug)]
pub struct PacketsView<'a> {
    next: Option<Seq>,
    rest: Reader<'a>,
}

impl<'a> PacketsView<'a> {
    /// Reads an authenticated body of kind [`BodyKind::Packets`] or [`BodyKind::Aside`]. Positions are
    /// interpreted near `newest`.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] unless there is a packet, none is empty, and all end with the body.
    pub fn read(body: &'a [u8], newest: Seq) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let next = match BodyKind::read(body)? {
            BodyKind::Packets => {
                reader.u8()?;
                Some(Seq::from_wire(reader.u32()?, newest))
            }
            BodyKind::Aside => {
                reader.u8()?;
                None
            }
            _ => return Err(Rejected::Malformed),
        };
        let view = Self { next, rest: reader };
        if reader.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        while !reader.rest().is_empty() {
            let len = reader.u16()?;
            if len == 0 {
                return Err(Rejected::Malformed);
            }
            reader.take(usize::from(len))?;
        }
        Ok(view)
    }
}

impl<'a> Iterator for PacketsView<'a> {
    type Item = (Option<Seq>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // The lengths were checked.
        let len = self.rest.u16().ok()?;
        let packet = self.rest.take(usize::from(len)).ok()?;
        let position = self.next;
        self.next = position.map(|position| position.plus(1));
        Some((position, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_the_wire_with_their_positions() {
        for first in [None, Some(Seq(u64::from(u32::MAX))), Some(Seq(7))] {
            let mut bundle = Bundle::default();
            let packets: [&[u8]; 3] = [b"one", b"seven", b"2"];
            let position = |at: u64| first.map(|first| first.plus(at));
            for (packet, at) in packets.iter().zip(0..) {
                assert!(bundle.takes(packet.len(), 4, position(at), 100));
                bundle.push(packet, 4, position(at));
            }
            let view = PacketsView::read(bundle.body(), first.unwrap_or(Seq(0)).plus(2)).unwrap();
            let expected: Vec<_> =
                packets.iter().zip(0..).map(|(packet, at)| (position(at), *packet)).collect();
            assert_eq!(view.collect::<Vec<_>>(), expected);
            for cut in 0..bundle.body().len() {
                if let Ok(view) = PacketsView::read(&bundle.body()[..cut], Seq(0)) {
                    assert!(view.count() < packets.len(), "whole packets are missing at the end");
                }
            }
        }
    }

    #[test]
    fn only_packets_of_one_kind_share_a_datagram() {
        let mut bundle = Bundle::default();
        assert!(
            bundle.takes(5_000, 0, Some(Seq(3)), 1_400),
            "a first packet may be longer: it is cut in two"
        );
        bundle.push(&[1; 100], 0, Some(Seq(3)));
        let room = 1_400 - bundle.body().len() - PACKET_HEADER;
        assert!(
            bundle.takes(room, 0, Some(Seq(4)), 1_400) && !bundle.takes(room + 1, 0, Some(Seq(4)), 1_400)
        );
        assert!(!bundle.takes(100, 0, Some(Seq(5)), 1_400), "not the next one");
        assert!(!bundle.takes(100, 0, None, 1_400), "not in the stream");
        assert!(!bundle.takes(100, 8, Some(Seq(4)), 1_400), "another type of service");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_reader(body: Vec<u8>, newest: u64) {
            if let Ok(view) = PacketsView::read(&body, Seq(newest)) {
                let lengths: usize = view.map(|(_, packet)| PACKET_HEADER + packet.len()).sum();
                proptest::prop_assert!(lengths > 0 && lengths < body.len());
            }
        }
    }
}
