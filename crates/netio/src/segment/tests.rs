use super::*;
use crate::segment::shape::{Shape, plain, shapes};
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
    let offload = Offload::segments(Gso::Tcp4, 1000);
    assert_eq!(cut_all(&shape.unfinished(&payload), &offload).unwrap(), shape.wire(&payload, 1000, true));
    // the count of a flow that was seen counting has wrapped
    let offload = Offload { counting: 1, ..offload };
    assert_eq!(cut_all(&shape.unfinished(&payload), &offload).unwrap(), shape.wire(&payload, 1000, false));
}

#[test]
fn a_checksum_left_to_the_card_is_finished_without_a_mark() {
    let shape = plain();
    let right = shape.packet(shape.id, shape.sequence, shape.flags, b"some payload");
    let unfinished = shape.unfinished(b"some payload");
    assert_ne!(right, unfinished);
    let marked = Offload { needs_checksum: true, ..Offload::default() };
    let placed = Offload { checksum_start: 20, checksum_offset: 16, ..marked };
    for offload in [Offload::default(), marked, placed] {
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
fn padding_of_the_link_is_removed() {
    let packet = plain().packet(1, 2, 0x10, &[]);
    let mut padded = packet.clone();
    padded.extend_from_slice(&[0; 6]);
    assert_eq!(cut_all(&padded, &Offload::default()).unwrap(), [packet]);
}

#[test]
fn an_inner_checksum_is_finished_at_the_place_in_the_offload() {
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
fn an_inner_checksum_is_finished_without_a_mark() {
    let inner = plain();
    let (right, unfinished) =
        (inner.packet(inner.id, inner.sequence, inner.flags, b"inner"), inner.unfinished(b"inner"));
    let udp = Shape { udp: true, ..plain() };
    for checksum in [true, false] {
        for between in [0, 8 + 14, 62] {
            // the kernel computes the outer checksum for the finished packet
            let payload = |inner: &[u8]| [&vec![8; between], inner].concat();
            let mut expected = udp.packet(7, 0, 0, &payload(&right));
            if !checksum {
                expected[26..28].fill(0);
            }
            let mut packet = expected.clone();
            packet[28 + between..].copy_from_slice(&unfinished);
            assert_ne!(packet, expected);
            assert_eq!(cut_all(&packet, &Offload::default()).unwrap(), [expected.clone()]);
            assert_eq!(cut_all(&expected, &Offload::default()).unwrap(), [expected]);
        }
    }
    // in GRE, in VXLAN
    let in_gre = |inner: &[u8]| {
        let mut packet = udp.packet(7, 0, 0, &[&[0; 4], inner].concat());
        packet.drain(20..28);
        let total = u16::try_from(packet.len()).unwrap();
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[9] = 47;
        packet[10..12].fill(0);
        let sum = Sum::of(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    let twice = |inner: &[u8]| {
        let mut packet = udp.packet(7, 0, 0, &[&[8; 22], &in_gre(inner)[..]].concat());
        packet[26..28].fill(0);
        packet
    };
    assert_eq!(cut_all(&twice(&unfinished), &Offload::default()).unwrap(), [twice(&right)]);
}

#[test]
fn a_refusal_names_its_reason() {
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

/// Builds a tunnel's packet: `between` bytes, as in VXLAN or Geneve, and the inner packet.
fn tunnelled(outer: &Shape, between: usize, inner: &[u8], with_checksum: bool) -> Vec<u8> {
    let outer = Shape { udp: true, ..outer.clone() };
    let mut header = vec![8; between];
    if let Some(ethertype) = header.len().checked_sub(2).filter(|_| between > 16) {
        header[ethertype..].copy_from_slice(if inner[0] >> 4 == 4 { &[8, 0] } else { &[0x86, 0xdd] });
    }
    let mut packet = outer.unfinished(&[&header, inner].concat());
    if !with_checksum {
        let field = outer.transport_at() + 6;
        packet[field..field + 2].fill(0);
    }
    packet
}

/// Builds the wire packets of a tunnel over UDP around these inner packets, without using `cut`.
fn udp_wire(outer: &Shape, between: usize, inner: &[Vec<u8>], with_checksum: bool) -> Vec<Vec<u8>> {
    let around = |(index, inner): (u16, &Vec<u8>)| {
        let step = if outer.id == 0 { 0 } else { index };
        let outer = Shape { udp: true, id: outer.id.wrapping_add(step), ..outer.clone() };
        let mut packet = tunnelled(&outer, between, inner, with_checksum);
        if with_checksum {
            let at = outer.transport_at();
            packet = outer.packet(outer.id, 0, 0, &packet[at + 8..]);
        }
        packet
    };
    (0..).zip(inner).map(around).collect()
}

#[test]
fn a_count_of_one_or_zero_is_not_a_contradiction() {
    let packet = plain().unfinished(&[1; 3000]);
    for segment_count in [0, 1, 3] {
        let offload = Offload { segment_count, ..Offload::segments(Gso::Tcp4, 1000) };
        assert_eq!(cut_all(&packet, &offload).unwrap().len(), 3);
    }
    // a payload of one segment with a count of several
    let offload = Offload { segment_count: 2, ..Offload::segments(Gso::Tcp4, 3000) };
    assert_eq!(cut_all(&packet, &offload), Err(Refusal::SegmentCount { expected: 1, seen: 2 }));
    // every segment has its own size
    assert_eq!(cut_all(&packet, &Offload::segments(Gso::Tcp4, 0xffff)), Err(Refusal::Kind));
}

#[test]
fn a_tunnels_short_last_segment_does_not_hide_it() {
    // 1000 and 100 bytes inside: two segments inside as outside
    let (outer, inner) = (plain(), plain());
    let packet = tunnelled(&outer, 22, &inner.unfinished(&[1; 1100]), true);
    let wire = udp_wire(&outer, 22, &inner.wire(&[1; 1100], 1000, false), true);
    for segment_count in [0, 2] {
        let offload = Offload { segment_count, ..Offload::segments(Gso::Udp4, 1000) };
        assert_eq!(cut_all(&packet, &offload).as_ref(), Ok(&wire));
    }
    // a virtio-net header gives the place of the inner checksum, and the kind of the inner packet
    let offload =
        Offload { checksum_start: 28 + 42, checksum_offset: 16, ..Offload::segments(Gso::Tcp4, 1000) };
    assert_eq!(cut_all(&packet, &offload), Ok(wire));
}

#[test]
fn a_tunnel_without_an_ip_packet_inside_is_refused() {
    let mut packet = Shape { udp: true, ..plain() }.unfinished(&[7; 3000]);
    let offload = Offload::segments(Gso::Udp4, 1000);
    packet[26..28].fill(0);
    assert_eq!(cut_all(&packet, &offload), Err(Refusal::Tunnel(Sign::NoChecksum)));
    let placed = Offload { checksum_start: 90, checksum_offset: 16, ..offload };
    packet[26..28].fill(1);
    assert_eq!(cut_all(&packet, &placed), Err(Refusal::Tunnel(Sign::InnerChecksum)));
}

/// Outer headers of a tunnel that is not over UDP.
#[derive(Clone, Debug)]
struct Around {
    v6: bool,
    /// GRE flags, and whether an Ethernet header with one VLAN tag follows; `None` for IP in IP.
    gre: Option<(u16, bool)>,
    id: u16,
    dont_fragment: bool,
}

impl Around {
    fn packet(&self, index: u16, inner: &[u8]) -> Vec<u8> {
        let ethertype: u16 = if inner[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let mut gre = Vec::new();
        if let Some((flags, is_bridged)) = self.gre {
            gre.extend(flags.to_be_bytes());
            gre.extend(if is_bridged { 0x6558_u16 } else { ethertype }.to_be_bytes());
            gre.extend(vec![0; if flags & 0x8000 != 0 { 4 } else { 0 }]);
            gre.extend(if flags & 0x2000 != 0 { &[1, 2, 3, 4][..] } else { &[] });
            if is_bridged {
                gre.extend(
                    [&[6; 12][..], &0x8100_u16.to_be_bytes(), &[0, 9], &ethertype.to_be_bytes()].concat(),
                );
            }
        }
        gre.extend_from_slice(inner);
        if self.gre.is_some_and(|(flags, _)| flags & 0x8000 != 0) {
            let sum = shape::checksum(&[&gre]);
            gre[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        let protocol = match (self.gre, inner[0] >> 4) {
            (Some(_), _) => 47,
            (None, 4) => 4,
            _ => 41,
        };
        let mut header = if self.v6 { vec![0x60; 40] } else { vec![0x45; 20] };
        if self.v6 {
            header[4..6].copy_from_slice(&u16::try_from(gre.len()).unwrap().to_be_bytes());
            header[6] = protocol;
        } else {
            header[2..4].copy_from_slice(&u16::try_from(gre.len() + 20).unwrap().to_be_bytes());
            let is_fixed = self.dont_fragment && self.id == 0;
            let id = if is_fixed { 0 } else { self.id.wrapping_add(index) };
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6..8].copy_from_slice(if self.dont_fragment { &[0x40, 0] } else { &[0, 0] });
            header[9] = protocol;
            header[10..12].fill(0);
            let sum = shape::checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        [header, gre].concat()
    }
}

fn arounds() -> impl Strategy<Value = Around> {
    let gre = proptest::option::of((prop::sample::select(vec![0, 0x2000, 0x8000, 0xa000]), any::<bool>()));
    (any::<bool>(), gre, prop::sample::select(vec![0, 1, 0xffff]), any::<bool>())
        .prop_map(|(v6, gre, id, dont_fragment)| Around { v6, gre, id, dont_fragment })
}

#[test]
fn gre_that_no_kernel_merges_is_refused() {
    let offload = Offload::segments(Gso::Tcp4, 1000);
    let inner = plain().unfinished(&[1; 3000]);
    for flags in [0x1000, 0x4000, 0x0001, 0x0800] {
        let around = Around { v6: false, gre: Some((flags, false)), id: 7, dont_fragment: true };
        let refusal = Refusal::Gre { flags, protocol: 0x0800 };
        assert_eq!(cut_all(&around.packet(0, &inner), &offload), Err(refusal));
    }
    let around = Around { v6: false, gre: Some((0, false)), id: 7, dont_fragment: true };
    let mut packet = around.packet(0, &inner);
    packet[22..24].copy_from_slice(&[0x88, 0x47]);
    assert_eq!(cut_all(&packet, &offload), Err(Refusal::Gre { flags: 0, protocol: 0x8847 }));
    for length in 20..24 {
        let mut short = packet[..length].to_vec();
        short[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        assert_eq!(cut_all(&short, &offload), Err(Refusal::Malformed { seen: length }));
    }
}

#[test]
fn a_train_of_a_tunnels_datagrams_is_cut_if_marked_as_one() {
    let shape = Shape { udp: true, ..plain() };
    // each datagram holds a whole packet
    let datagram = [&[8; 22], &plain().packet(1, 2, 0x10, &[7; 900])[..]].concat();
    let size = u16::try_from(datagram.len()).unwrap();
    let payload = datagram.repeat(5);
    let mut packet = shape.unfinished(&payload);
    let unknown = Offload::segments(Gso::Udp4, size);
    let counted = Offload { segment_count: 5, ..unknown };
    let placed = Offload { checksum_start: 20, checksum_offset: 6, ..unknown };
    for offload in [unknown, counted, placed] {
        assert_eq!(cut_all(&packet, &offload).unwrap(), shape.wire(&payload, datagram.len(), false));
    }
    for port in [4789_u16, 4790, 6081, 8472] {
        for at in [20, 22] {
            packet[20..24].copy_from_slice(&[0x12, 0x34, 0x12, 0x34]);
            packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
            assert_eq!(cut_all(&packet, &unknown), Err(Refusal::Tunnel(Sign::Port(port))));
            for offload in [counted, placed] {
                assert_eq!(cut_all(&packet, &offload).map(|wire| wire.len()), Ok(5));
            }
        }
    }
}

#[test]
fn a_payload_that_resembles_an_inner_packet_is_not_a_tunnel() {
    let shape = Shape { udp: true, ..plain() };
    let offload = Offload::segments(Gso::Udp4, 1000);
    let mut payload = vec![1; 5000];
    // version, length and protocol of an IPv6 packet up to the end, without a header that announces it
    payload[180] = 0x69;
    payload[184..186].copy_from_slice(&4780_u16.to_be_bytes());
    payload[186] = 6;
    assert_eq!(cut_all(&shape.unfinished(&payload), &offload).map(|wire| wire.len()), Ok(5));
    payload[178..180].copy_from_slice(&[0x86, 0xdd]);
    assert!(cut_all(&shape.unfinished(&payload), &offload).is_err());
    // version and length of an IPv4 packet up to the end, with a wrong header checksum
    payload[180] = 0x45;
    payload[182..184].copy_from_slice(&4820_u16.to_be_bytes());
    assert_eq!(cut_all(&shape.unfinished(&payload), &offload).map(|wire| wire.len()), Ok(5));
}

/// Whether all segments of a TCP packet share its identification. The kernel always counts those of UDP.
fn has_fixed_id(shape: &Shape, counting: u8) -> bool {
    !shape.v6 && !shape.udp && shape.id == 0 && counting & 1 == 0
}

proptest! {
    #[test]
    fn any_super_packet_becomes_what_the_wire_carries(
        shape in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 1..6000),
        size in 1..3000_u16,
        is_zero: bool,
        counting in 0..2_u8,
        has_count: bool,
    ) {
        let shape = Shape { id: if is_zero { 0 } else { shape.id }, ..shape };
        let mut expected = shape.wire(&payload, usize::from(size), has_fixed_id(&shape, counting));
        let segment_count = if has_count { u16::try_from(expected.len()).unwrap() } else { 0 };
        let offload = Offload { counting, segment_count, ..Offload::segments(shape.gso(), size) };
        if expected.len() == 1 {
            // a single segment keeps its flags
            expected = vec![shape.packet(shape.id, shape.sequence, shape.flags, &payload)];
        }
        prop_assert_eq!(cut_all(&shape.unfinished(&payload), &offload).unwrap(), expected);
    }

    #[test]
    fn a_wrong_number_of_segments_is_refused(
        shape in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 0..6000),
        size in 1..3000_u16,
        seen in 2..100_u16,
    ) {
        let expected = payload.len().div_ceil(usize::from(size)).max(1);
        let offload = Offload { segment_count: seen, ..Offload::segments(shape.gso(), size) };
        let cut = cut_all(&shape.unfinished(&payload), &offload);
        if expected == usize::from(seen) {
            prop_assert_eq!(cut.map(|wire| wire.len()), Ok(expected));
        } else {
            prop_assert_eq!(cut, Err(Refusal::SegmentCount { expected, seen }));
        }
    }

    #[test]
    fn a_super_packet_of_a_tunnel_over_udp_becomes_what_the_wire_carries(
        outer in shapes(),
        inner in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 2..6000),
        size in any::<prop::sample::Index>(),
        between in prop::sample::select(vec![0, 4, 8, 8 + 14, 8 + 18, 12 + 14, 8 + 252 + 22]),
        has_count: bool,
        with_checksum: bool,
        is_zero: bool,
        counting in prop::sample::select(vec![0_u8, 2]),
    ) {
        let inner = Shape { id: if is_zero { 0 } else { inner.id }, ..inner };
        let size = size.index(payload.len() - 1) + 1; // at least two segments
        let packet = tunnelled(&outer, between, &inner.unfinished(&payload), with_checksum);
        let count = u16::try_from(payload.len().div_ceil(size)).unwrap();
        let gso = if outer.v6 { Gso::Udp6 } else { Gso::Udp4 };
        let offload = Offload::segments(gso, u16::try_from(size).unwrap());
        let offload = Offload { counting, segment_count: if has_count { count } else { 0 }, ..offload };
        let fixed = has_fixed_id(&inner, counting >> 1);
        let wire = udp_wire(&outer, between, &inner.wire(&payload, size, fixed), with_checksum);
        prop_assert_eq!(cut_all(&packet, &offload), Ok(wire));
    }

    #[test]
    fn a_super_packet_of_another_tunnel_becomes_what_the_wire_carries(
        arounds in proptest::collection::vec(arounds(), 1..=2),
        inner in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 2..6000),
        size in any::<prop::sample::Index>(),
        has_count: bool,
        is_guess: bool,
    ) {
        let size = size.index(payload.len() - 1) + 1;
        let around = |index: u16, inner: Vec<u8>| {
            arounds.iter().fold(inner, |inner, around| around.packet(index, &inner))
        };
        let packet = around(0, inner.unfinished(&payload));
        let count = u16::try_from(payload.len().div_ceil(size)).unwrap();
        let gso = if is_guess { kind_of(&packet) } else { inner.gso() };
        let offload = Offload::segments(gso, u16::try_from(size).unwrap());
        let offload = Offload { segment_count: if has_count { count } else { 0 }, ..offload };
        let fixed = has_fixed_id(&inner, 0);
        let wire = inner.wire(&payload, size, fixed);
        let wire: Vec<_> = (0..).zip(wire).map(|(index, inner)| around(index, inner)).collect();
        prop_assert_eq!(cut_all(&packet, &offload), Ok(wire));
        let wrong = Offload { segment_count: count + 1, ..offload };
        prop_assert_eq!(
            cut_all(&packet, &wrong),
            Err(Refusal::SegmentCount { expected: usize::from(count), seen: count + 1 })
        );
    }

    #[test]
    fn a_damaged_tunnel_never_panics(
        arounds in proptest::collection::vec(arounds(), 1..=4),
        damage in proptest::collection::vec((0..160_usize, any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        size in 1..200_u16,
    ) {
        let inner = plain().unfinished(&[3; 600]);
        let mut packet = arounds.iter().fold(inner, |inner, around| around.packet(0, &inner));
        packet.truncate(keep.index(packet.len()) + 1);
        for (at, value) in damage {
            let at = at.min(packet.len() - 1);
            packet[at] = value;
        }
        let mut scratch = [0; 700];
        for gso in [kind_of(&packet), Gso::Tcp4, Gso::Udp6] {
            let _ = cut(&packet, &Offload::segments(gso, size), &mut scratch, |_| {});
            let _ = cut(&packet, &Offload::segments(gso, size), &mut scratch[..60], |_| {});
        }
    }

    #[test]
    fn damaged_input_never_panics(
        shape in shapes(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        keep in any::<prop::sample::Index>(),
        size: u16,
        segment_count: u16,
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
            segment_count,
            needs_checksum,
            checksum_start: checksum_start % 200,
            checksum_offset: checksum_offset % 20,
            counting: 0,
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
