use super::*;
use crate::shape::{Shape, plain, shapes};
use proptest::prelude::*;

fn cut_all(packet: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut scratch = vec![0xee; 65_536];
    let mut wire = Vec::new();
    let count = cut(packet, offload, &mut scratch, |segment| wire.push(segment.to_vec()))?;
    assert_eq!(count, wire.len());
    Ok(wire)
}

#[test]
fn a_tcp_super_packet_becomes_what_the_wire_carries() {
    let payload: Vec<u8> = (0..3000).map(|i| (i % 251) as u8).collect();
    let shape = plain();
    let wire = cut_all(&shape.unfinished(&payload), &Offload::segments(Gso::Tcp4, 1248)).unwrap();
    assert_eq!(wire, shape.wire(&payload, 1248, false));
    let flags: Vec<u8> = wire.iter().map(|packet| packet[33]).collect();
    assert_eq!(flags, [0x90, 0x10, 0x19], "CWR first, FIN and PSH last");
    let ids: Vec<&[u8]> = wire.iter().map(|packet| &packet[4..6]).collect();
    assert_eq!(ids, [[0xff, 0xfe], [0xff, 0xff], [0, 0]]);
}

#[test]
fn a_fixed_identification_stays() {
    let payload = [5; 3000];
    let shape = Shape { id: 0, ..plain() };
    let offload = Offload { fixed_id: true, ..Offload::segments(Gso::Tcp4, 1000) };
    assert_eq!(cut_all(&shape.unfinished(&payload), &offload).unwrap(), shape.wire(&payload, 1000, true));
}

#[test]
fn a_checksum_left_to_the_card_is_finished_without_being_told() {
    let shape = plain();
    let right = shape.packet(shape.id, shape.sequence, shape.flags, b"some payload");
    let unfinished = shape.unfinished(b"some payload");
    assert_ne!(right, unfinished);
    let told = Offload { needs_checksum: true, ..Offload::default() };
    let placed = Offload { checksum_start: 20, checksum_offset: 16, ..told };
    for offload in [Offload::default(), told, placed] {
        assert_eq!(cut_all(&unfinished, &offload).unwrap(), std::slice::from_ref(&right));
    }
    assert_eq!(cut_all(&right, &Offload::default()).unwrap(), std::slice::from_ref(&right));
}

#[test]
fn a_wrong_checksum_passes_untouched() {
    let shape = plain();
    let mut packet = shape.packet(1, 2, 0x10, b"some payload");
    packet[40] ^= 0x10;
    assert_eq!(cut_all(&packet, &Offload::default()).unwrap(), [packet.clone()]);
    // UDP over IPv4 without a checksum
    let shape = Shape { udp: true, ..plain() };
    let mut packet = shape.packet(1, 0, 0, b"some payload");
    packet[26..28].fill(0);
    assert_eq!(cut_all(&packet, &Offload::default()).unwrap(), [packet.clone()]);
}

#[test]
fn padding_of_the_link_is_cut_off() {
    let packet = plain().packet(1, 2, 0x10, &[]);
    let mut padded = packet.clone();
    padded.extend_from_slice(&[0; 6]);
    assert_eq!(cut_all(&padded, &Offload::default()).unwrap(), [packet]);
}

#[test]
fn an_inner_checksum_is_finished_where_the_offload_says() {
    // a TCP packet in UDP in IPv4; only the inner checksum is left to the card
    let inner = plain();
    let outer = Shape { udp: true, ..plain() };
    let right = inner.packet(inner.id, inner.sequence, inner.flags, b"inner");
    let mut packet = outer.packet(7, 0, 0, &inner.unfinished(b"inner"));
    packet[26..28].fill(0);
    let mut expected = packet.clone();
    expected[28..].copy_from_slice(&right);
    let offload =
        Offload { needs_checksum: true, checksum_start: 48, checksum_offset: 16, ..Offload::default() };
    assert_eq!(cut_all(&packet, &offload).unwrap(), [expected]);
}

#[test]
fn refusals_say_why() {
    let packet = plain().unfinished(&[1; 3000]);
    let tcp = Offload::segments(Gso::Tcp4, 1000);
    let refused = |packet: &[u8], offload: &Offload| cut_all(packet, offload).unwrap_err();
    assert_eq!(refused(&packet, &Offload { gso: Gso::Unknown, ..tcp }), Refusal::Kind);
    assert_eq!(refused(&packet, &Offload { segment_size: 0, ..tcp }), Refusal::SegmentSize);
    let mismatch = Refusal::Mismatch { expected: Gso::Udp4, version: 4, protocol: 6 };
    assert_eq!(refused(&packet, &Offload { gso: Gso::Udp4, ..tcp }), mismatch);
    assert_eq!(refused(&packet[..2000], &tcp), Refusal::Malformed { seen: 2000 });
    let mut fragment = packet.clone();
    fragment[6] |= 0x20;
    assert_eq!(refused(&fragment, &tcp), Refusal::Indirect);
    let mut short = [0; 1051];
    let refusal = cut(&packet, &tcp, &mut short, |_| panic!("nothing is emitted")).unwrap_err();
    assert_eq!(refusal, Refusal::Scratch { needed: 1052, seen: 1051 });
    assert_eq!(cut(&packet, &tcp, &mut [0; 1052], |_| {}), Ok(3));
}

proptest! {
    #[test]
    fn any_super_packet_becomes_what_the_wire_carries(
        shape in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 1..6000),
        size in 1..3000_u16,
        fixed_id: bool,
    ) {
        let offload = Offload { fixed_id, ..Offload::segments(shape.gso(), size) };
        let mut expected = shape.wire(&payload, usize::from(size), fixed_id);
        if expected.len() == 1 {
            // one segment keeps its flags
            expected = vec![shape.packet(shape.id, shape.sequence, shape.flags, &payload)];
        }
        prop_assert_eq!(cut_all(&shape.unfinished(&payload), &offload).unwrap(), expected);
    }

    #[test]
    fn damaged_input_never_panics(
        shape in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        keep in any::<prop::sample::Index>(),
        size: u16,
        gso in 0..6_usize,
        needs_checksum: bool,
        checksum_start: u16,
        checksum_offset: u16,
    ) {
        let mut packet = shape.unfinished(&payload);
        packet.truncate(keep.index(packet.len()) + 1);
        for (at, value) in damage {
            // mostly headers
            let at = at.index(packet.len().min(80));
            packet[at] = value;
        }
        let kinds = [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6, Gso::Unknown];
        let offload = Offload {
            gso: kinds[gso],
            segment_size: size,
            needs_checksum,
            checksum_start: checksum_start % 200,
            checksum_offset: checksum_offset % 20,
            fixed_id: false,
        };
        let mut scratch = [0; 700];
        let _ = cut(&packet, &offload, &mut scratch, |_| {});
        let _ = cut(&packet, &offload, &mut scratch[..30], |_| {});
    }

    #[test]
    fn noise_passes_untouched(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
        if Layout::of(&packet).is_none() {
            prop_assert_eq!(cut_all(&packet, &Offload::default()).unwrap(), [packet]);
        }
    }
}
