//! Timestamps of TCP segments (RFC 7323).
//!
//! A receiver discards a segment whose timestamp is older than that of a segment it has accepted at the left
//! edge of its window (PAWS, RFC 7323 section 5). A recovered segment arrives a few packets later than it
//! would have. If a retransmission that was sent after it has filled a gap in between, its receiver would
//! discard it, and the sender would take it for lost. [`raise`] gives it the timestamp of the newest segment
//! of its flow that has arrived.

use crate::packet::Packet;

const TCP: u8 = 6;
/// Length of a TCP header without options.
const HEADER: usize = 20;
const CHECKSUM: usize = 16;

/// Options that a change of the timestamp does not concern: end, padding, MSS, window scale, selective
/// acknowledgements, and timestamps themselves. An option that authenticates the header is not among them.
const HARMLESS: [u8; 7] = [0, 1, 2, 3, 4, 5, TIMESTAMPS];
const TIMESTAMPS: u8 = 8;

/// Largest difference between two timestamps of packets that overtook each other: 10 s in milliseconds, the
/// unit of most hosts.
const APART_MAX: u32 = 10_000;

/// Largest difference by which a segment that no repair has named yet may be ahead of those that were named.
/// Strangers could send such a segment, and a timestamp ahead of the sender's clock makes the receiver
/// discard segments until that clock has caught up.
const AHEAD_MAX: u32 = 8;

/// The newest timestamp of the segments of one flow that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest {
    /// Of those that repairs have named, so that they are the sender's.
    named: Option<u32>,
    /// Of all.
    seen: u32,
}

impl Newest {
    /// Notes the timestamp of a segment that has arrived, and that a repair has named.
    pub(crate) fn on_named(&mut self, timestamp: Option<u32>) {
        let Some(timestamp) = timestamp else { return };
        let is_older = self.named.is_some_and(|newest| newest.wrapping_sub(timestamp) <= APART_MAX);
        if !is_older {
            // A timestamp that is far from the newest one is that of another connection.
            self.named = Some(timestamp);
        }
    }

    /// Notes the timestamp of a segment that has arrived.
    pub(crate) fn on_arrival(&mut self, timestamp: Option<u32>) {
        let (Some(timestamp), Some(named)) = (timestamp, self.named) else { return };
        let ahead = timestamp.wrapping_sub(named);
        if ahead <= AHEAD_MAX && ahead > self.ahead_of(named) {
            self.seen = timestamp;
        }
    }

    /// By how much the newest segment is ahead of those that were named.
    fn ahead_of(self, named: u32) -> u32 {
        Some(self.seen.wrapping_sub(named)).filter(|&ahead| ahead <= AHEAD_MAX).unwrap_or(0)
    }

    /// Returns the newest timestamp, if it is newer than this one.
    pub(crate) fn newer_than(self, timestamp: u32) -> Option<u32> {
        let named = self.named?;
        let newest = named.wrapping_add(self.ahead_of(named));
        (1..=APART_MAX).contains(&newest.wrapping_sub(timestamp)).then_some(newest)
    }
}

/// Returns the time of sending that a TCP segment states; `None` if it states none, or is no TCP segment.
pub(crate) fn timestamp(protocol: u8, transport: &[u8]) -> Option<u32> {
    /// Most hosts put the option first, behind two bytes of padding.
    const USUAL: [u8; 4] = [1, 1, TIMESTAMPS, 10];
    if protocol != TCP {
        return None;
    }
    let at = match transport.get(HEADER..HEADER + 4) {
        Some(start) if start == USUAL && header_len(transport) >= HEADER + 12 => HEADER + 4,
        _ => find(transport)?,
    };
    value(transport, at)
}

/// Gives the TCP segment in a packet a newer timestamp, with its checksum; returns whether it has.
///
/// Segments that open or reset a connection, and those with an option that authenticates the header, are left
/// as they are.
pub(crate) fn raise(packet: &mut [u8], to: u32) -> bool {
    const SYN_OR_RST: u8 = 6;
    let transport = Packet::new_checked(packet).ok().and_then(|checked| checked.transport());
    let Some((TCP, start)) = transport else { return false };
    let Some(segment) = packet.get_mut(start..) else { return false };
    let Some(at) = find(segment).filter(|at| at % 2 == 0) else { return false };
    let Some(from) = value(segment, at) else { return false };
    if segment[13] & SYN_OR_RST != 0 {
        return false;
    }
    segment[at..at + 4].copy_from_slice(&to.to_be_bytes());
    let before = u16::from_be_bytes([segment[CHECKSUM], segment[CHECKSUM + 1]]);
    let after = update_checksum(before, from, to);
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&after.to_be_bytes());
    true
}

/// Length of a TCP header with its options; 0 if it is cut off.
fn header_len(transport: &[u8]) -> usize {
    let len = transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
    if len <= transport.len() { len } else { 0 }
}

fn value(transport: &[u8], at: usize) -> Option<u32> {
    transport.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Returns the offset of the sender's timestamp, if all options are known to be harmless.
fn find(transport: &[u8]) -> Option<usize> {
    let options = transport.get(HEADER..header_len(transport))?;
    let (mut at, mut found) = (0, None);
    while let Some(&kind) = options.get(at).filter(|kind| **kind != 0) {
        if !HARMLESS.contains(&kind) {
            return None;
        }
        let len = if kind == 1 { 1 } else { usize::from(*options.get(at + 1)?) };
        if kind != 1 && len < 2 || at + len > options.len() {
            return None;
        }
        if kind == TIMESTAMPS && len == 10 {
            found = Some(HEADER + at + 2);
        }
        at += len;
    }
    found
}

/// Changes an Internet checksum for a change of four bytes at an even offset (RFC 1624).
fn update_checksum(checksum: u16, from: u32, to: u32) -> u16 {
    let halves = |value: u32| [value >> 16, value & 0xffff];
    let mut sum = u32::from(!checksum);
    sum += halves(from).into_iter().map(|half| !half & 0xffff).sum::<u32>();
    sum += halves(to).into_iter().sum::<u32>();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP segment over IPv4 or IPv6 with these options, and a right checksum.
    fn packet(is_v6: bool, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        assert!(options.len().is_multiple_of(4));
        let mut segment = vec![0; HEADER];
        segment[..8].copy_from_slice(&[0x13, 0x88, 0x13, 0x89, 1, 2, 3, 4]);
        segment[12] = (((HEADER + options.len()) / 4) << 4) as u8;
        segment[13] = flags;
        segment.extend_from_slice(options);
        segment.extend_from_slice(payload);
        let len = segment.len() as u16;
        let mut packet = if is_v6 {
            let mut header = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, TCP, 64];
            header.extend([0xfd; 32]);
            header
        } else {
            let total = len + 20;
            let mut header = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, TCP, 0, 0];
            header.extend([10, 81, 1, 10, 10, 81, 2, 10]);
            header
        };
        let sum = checksum(&packet, &segment);
        segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(segment);
        packet
    }

    /// The checksum over pseudo-header and segment; 0 if that in the segment is right.
    fn checksum(header: &[u8], segment: &[u8]) -> u16 {
        let addresses = if header.len() == 40 { &header[8..40] } else { &header[12..20] };
        let mut bytes = addresses.to_vec();
        bytes.extend([0, TCP]);
        bytes.extend((segment.len() as u16).to_be_bytes());
        bytes.extend_from_slice(segment);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    fn option(timestamp: u32) -> Vec<u8> {
        [&[TIMESTAMPS, 10][..], &timestamp.to_be_bytes(), &9_u32.to_be_bytes()].concat()
    }

    fn split(packet: &[u8]) -> (&[u8], &[u8]) {
        packet.split_at(if packet[0] >> 4 == 6 { 40 } else { 20 })
    }

    proptest! {
        #[test]
        fn a_raised_timestamp_has_a_right_checksum(is_v6: bool, from: u32, to: u32, payload: Vec<u8>, way in 0..3) {
            let options = match way {
                0 => [&[1, 1][..], &option(from)].concat(),
                1 => [&option(from)[..], &[0, 0]].concat(),
                _ => [&[1, 1][..], &option(from), &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat(),
            };
            let mut raised = packet(is_v6, 0x10, &options, &payload);
            prop_assert_eq!(timestamp(TCP, split(&raised).1), Some(from));
            prop_assert!(raise(&mut raised, to));
            let (header, segment) = split(&raised);
            prop_assert_eq!(timestamp(TCP, segment), Some(to));
            prop_assert_eq!(checksum(header, segment), 0);
            prop_assert_eq!(&segment[HEADER + options.len()..], &payload[..]);
        }

        #[test]
        fn no_bytes_panic(mut bytes: Vec<u8>, protocol: u8) {
            let _ = timestamp(protocol, &bytes);
            let _ = raise(&mut bytes, 7);
        }
    }

    #[test]
    fn segments_that_must_not_change_do_not() {
        let authentic = [&[29, 4, 1, 1][..], &[1, 1], &option(5)].concat();
        let odd = [&[1][..], &option(5), &[1]].concat();
        let cut = [&[1, 1, TIMESTAMPS, 10][..], &[0, 0, 0, 5]].concat();
        for (flags, options) in [
            (0x10, authentic),
            (0x10, odd),
            (0x10, cut),
            (0x10, vec![]),
            (0x02, [&[1, 1][..], &option(5)].concat()),
            (0x14, [&[1, 1][..], &option(5)].concat()),
        ] {
            let before = packet(false, flags, &options, b"content");
            let mut after = before.clone();
            assert!(!raise(&mut after, 9), "{options:?}");
            assert_eq!(after, before);
        }
        let mut fragment = packet(false, 0x10, &[&[1, 1][..], &option(5)].concat(), b"content");
        fragment[7] = 3;
        assert!(!raise(&mut fragment, 9));
    }

    #[test]
    fn only_timestamps_that_are_a_little_newer_are_taken() {
        let mut newest = Newest::default();
        assert_eq!(newest.newer_than(5), None);
        for timestamp in [Some(1_000), Some(990), None, Some(1_001)] {
            newest.on_named(timestamp);
        }
        assert_eq!([1_000, 1_001, 1_002].map(|one| newest.newer_than(one)), [Some(1_001), None, None]);
        assert_eq!(newest.newer_than(0_u32.wrapping_sub(APART_MAX)), None, "far away");
        // Timestamps wrap, and another connection of the same ports may begin anywhere.
        let mut newest = Newest::default();
        newest.on_named(Some(u32::MAX));
        newest.on_named(Some(3));
        assert_eq!(newest.newer_than(u32::MAX), Some(3));
        newest.on_named(Some(900_000));
        newest.on_named(Some(20_000));
        assert_eq!(newest.newer_than(19_999), Some(20_000));
    }

    #[test]
    fn a_segment_without_a_name_is_believed_if_it_is_a_little_ahead() {
        let mut newest = Newest::default();
        newest.on_arrival(Some(50));
        assert_eq!(newest.newer_than(40), None, "nothing is named");
        newest.on_named(Some(50));
        for timestamp in [51, 53, 52, 50 + AHEAD_MAX + 1, 49, 40_000] {
            newest.on_arrival(Some(timestamp));
        }
        assert_eq!((newest.newer_than(50), newest.newer_than(53)), (Some(53), None));
        newest.on_named(Some(60));
        assert_eq!(newest.newer_than(50), Some(60));
    }
}
