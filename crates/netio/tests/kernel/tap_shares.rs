//! Flows that a tap does not copy.

use crate::lab::pair::Pair;
use netio::tap::{Direction, Tap, TapKind};

/// Hashes of the flows between the sockets of [`Pair`], there and back, as in maelstrom-core/src/share.rs.
const HASHES: [(u8, u16, u16); 2] = [(4, 45173, 16193), (6, 53893, 45973)];

/// Sends a datagram each way and returns how many of them the tap captured, there and back.
fn captured(pair: &Pair, tap: &mut Tap, version: u8) -> [usize; 2] {
    let (a, b) = pair.sockets(version);
    a.send(b"there").unwrap();
    b.recv(&mut [0; 9]).unwrap();
    b.send(b"back").unwrap();
    a.recv(&mut [0; 9]).unwrap();
    let mut counts = [0; 2];
    tap.drain(1_000, |captured| {
        let content: &[u8] = if captured.direction == Direction::Outgoing { b"there" } else { b"back" };
        let is_ours = captured.packet.ends_with(content);
        counts[usize::from(captured.direction == Direction::Incoming)] += usize::from(is_ours);
    })
    .unwrap();
    counts
}

/// Hashes of the flow from the second socket to the first over IPv4: with ports, and of fragments.
const BACK: u16 = HASHES[0].2;
const BACK_FRAGMENTS: u16 = 51171;

/// Sends a datagram of three fragments to the tap's host, and returns the offsets of those captured in units
/// of eight bytes.
fn captured_fragments(pair: &Pair, tap: &mut Tap) -> Vec<u16> {
    let (a, b) = pair.sockets(4);
    b.send(&[7; 3_000]).unwrap();
    assert_eq!(a.recv(&mut [0; 4_000]).unwrap(), 3_000);
    let mut offsets = Vec::new();
    tap.drain(1_000, |captured| {
        let bytes = captured.packet;
        if captured.direction == Direction::Incoming && bytes[0] >> 4 == 4 && bytes[9] == 17 {
            offsets.push(u16::from_be_bytes([bytes[6] & 0x1f, bytes[7]]));
        }
    })
    .unwrap();
    offsets
}

/// A router may have made fragments of a packet in the share, and the first one tells it.
#[test]
fn the_first_fragment_of_a_flow_in_the_share_is_copied() {
    let Some(pair) = Pair::build("fragments and shares of flows") else { return };
    for mut tap in pair.taps(|_| {}).filter(|tap| tap.kind() == TapKind::Ebpf) {
        for (share, expected) in [
            (u16::MAX, &[0, 185, 370][..]),
            (BACK_FRAGMENTS, &[0, 185, 370][..]),
            (BACK_FRAGMENTS - 1, &[0][..]),
            (BACK, &[0][..]),
            (BACK - 1, &[][..]),
        ] {
            tap.set_shares(u16::MAX, share).unwrap();
            assert_eq!(captured_fragments(&pair, &mut tap), expected, "{tap:?} {share}");
        }
    }
}

#[test]
fn flows_outside_the_share_are_not_copied() {
    let Some(pair) = Pair::build("shares of flows") else { return };
    for mut tap in pair.taps(|_| {}).filter(|tap| tap.kind() == TapKind::Ebpf) {
        for (version, there, back) in HASHES {
            assert_eq!(captured(&pair, &mut tap, version), [1, 1]);
            for (shares, expected) in [
                ((there, back), [1, 1]),
                ((there - 1, back), [0, 1]),
                ((there, back - 1), [1, 0]),
                ((0, 0), [0, 0]),
                ((u16::MAX, u16::MAX), [1, 1]),
            ] {
                let shed = tap.shed()[0];
                tap.set_shares(shares.0, shares.1).unwrap();
                assert_eq!(captured(&pair, &mut tap, version), expected, "{tap:?} {shares:?}");
                // The machine sends other packets as well.
                assert!(tap.shed()[0] - shed >= 1 - expected[0] as u64);
                assert_eq!(tap.dropped(), 0, "nothing is missing by mistake");
            }
        }
    }
}
