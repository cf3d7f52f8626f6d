use super::*;
use crate::segment::cut;
use crate::segment::shape::{Shape, plain, shapes};
use proptest::prelude::*;

/// Returns the written super-packets, each cut into its wire packets.
fn joined(packets: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    joined_by(Coalescer::new(true), packets)
}

fn joined_by(mut coalescer: Coalescer, packets: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut written = Vec::new();
    let mut write = |offload: &Offload, packet: &[u8]| {
        let mut wire = Vec::new();
        let mut scratch = vec![0; PACKET_MAX];
        cut(packet, offload, &mut scratch, |segment| wire.push(segment.to_vec())).unwrap();
        written.push(wire);
    };
    for packet in packets {
        coalescer.push(packet, &mut write);
    }
    coalescer.flush(&mut write);
    assert!(coalescer.is_empty());
    written
}

fn sizes(packets: &[Vec<u8>]) -> Vec<usize> {
    joined(packets).iter().map(Vec::len).collect()
}

fn ack() -> Shape {
    Shape { flags: 0x10, ..plain() }
}

#[test]
fn a_train_of_segments_becomes_one_super_packet() {
    let payload: Vec<u8> = (0..50_000).map(|i| (i % 251) as u8).collect();
    for (v6, udp) in [(false, false), (true, false), (false, true), (true, true)] {
        let shape = Shape { v6, udp, ..ack() };
        let wire = shape.wire(&payload, 1300, false);
        assert_eq!(joined(&wire), [wire]);
    }
}

#[test]
fn in_order_keeps_the_order_between_flows_too() {
    let data = ack().wire(&[7; 6000], 1000, false);
    let repairs = Shape { udp: true, ..ack() }.wire(&[9; 3000], 1000, false);
    let mut link: Vec<Vec<u8>> = data[..3].to_vec();
    link.extend_from_slice(&repairs);
    link.extend_from_slice(&data[3..]);
    let written = joined_by(Coalescer::new(true).in_order(), &link);
    assert_eq!(written.concat(), link);
    assert_eq!(written.len(), 3, "consecutive packets are still joined");
    assert_ne!(joined(&link).concat(), link, "without `in_order`, flows overtake each other");
}

#[test]
fn a_packet_that_does_not_follow_begins_another_super_packet() {
    let wire = ack().wire(&[7; 5000], 1000, false);
    let shape = ack();
    // a gap, a repetition, another receive window
    assert_eq!(sizes(&[wire[0].clone(), wire[1].clone(), wire[3].clone(), wire[4].clone()]), [2, 2]);
    assert_eq!(sizes(&[wire[0].clone(), wire[0].clone()]), [1, 1]);
    let other = Shape { tcp_options: 0, ..shape.clone() }.packet(
        shape.id.wrapping_add(1),
        shape.sequence.wrapping_add(1000),
        0x10,
        &[7; 1000],
    );
    assert_eq!(sizes(&[wire[0].clone(), other]), [1, 1]);
    // longer than the first
    let longer = shape.packet(shape.id.wrapping_add(1), shape.sequence.wrapping_add(1000), 0x10, &[7; 1001]);
    assert_eq!(sizes(&[wire[0].clone(), longer]), [1, 1]);
}

#[test]
fn a_push_a_shorter_segment_and_a_full_packet_end_a_super_packet() {
    let shape = ack();
    let mut packets = shape.wire(&[7; 2500], 1000, false);
    let at = shape.sequence.wrapping_add(2500);
    packets.push(shape.packet(shape.id.wrapping_add(3), at, 0x18, &[1; 1000]));
    packets.push(shape.packet(shape.id.wrapping_add(4), at.wrapping_add(1000), 0x10, &[1; 1000]));
    assert_eq!(sizes(&packets), [3, 1, 1]);
    assert_eq!(sizes(&shape.wire(&[7; 100_000], 1000, false)), [65, 35]);
    assert_eq!(sizes(&Shape { udp: true, ..shape }.wire(&[7; 65_000], 1000, false)), [64, 1]);
}

#[test]
fn congestion_marks_stay_where_they_are() {
    let shape = Shape { flags: 0x90, ..plain() };
    let wire = shape.wire(&[7; 3000], 1000, false);
    assert_eq!(joined(&wire), [wire]);
    let shape = ack();
    let marked = shape.packet(shape.id.wrapping_add(1), shape.sequence.wrapping_add(1000), 0x90, &[7; 1000]);
    assert_eq!(sizes(&[shape.wire(&[7; 1000], 1000, false)[0].clone(), marked]), [1, 1]);
}

#[test]
fn a_damaged_packet_is_not_healed() {
    let wire = ack().wire(&[7; 3000], 1000, false);
    for at in [8, 13, 60, 500] {
        for which in 0..3 {
            let mut packets = wire.clone();
            packets[which][at] ^= 4;
            let written = joined(&packets).concat();
            assert!(written.contains(&packets[which]), "byte {at} of packet {which}");
        }
    }
}

#[test]
fn flows_are_joined_side_by_side_and_others_pass() {
    let one = ack();
    let two = Shape { v6: true, ..ack() };
    let (a, b) = (one.wire(&[1; 3000], 1000, false), two.wire(&[2; 3000], 1000, false));
    let bare = one.packet(77, one.sequence, 0x10, &[]);
    let mixed: Vec<Vec<u8>> = a.iter().zip(&b).flat_map(|(x, y)| [x.clone(), y.clone()]).collect();
    assert_eq!(joined(&mixed), [a.clone(), b.clone()]);
    // a bare acknowledgement of the same flow keeps its place
    let order = [a[0].clone(), bare.clone(), a[1].clone()];
    assert_eq!(joined(&order).concat(), order);
    // a packet without ports makes everything before it be written
    let odd = vec![0x45, 0, 0];
    assert_eq!(
        joined(&[a[0].clone(), b[0].clone(), odd.clone()]).concat(),
        [a[0].clone(), b[0].clone(), odd]
    );
}

proptest! {
    #[test]
    fn nothing_is_lost_or_changed(
        flows in proptest::collection::vec(
            (shapes(), proptest::collection::vec(any::<u8>(), 1..4000), 1..1500_usize), 1..4),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..70_usize, any::<u8>()), 0..4),
    ) {
        let mut packets = Vec::new();
        for (shape, payload, size) in &flows {
            packets.extend(shape.wire(payload, *size, false));
        }
        for (which, at, value) in damage {
            let which = which.index(packets.len());
            let at = at.min(packets[which].len() - 1);
            packets[which][at] = value;
        }
        let mut written = joined(&packets).concat();
        // padding is not part of the packet
        let mut expected: Vec<Vec<u8>> = packets
            .iter()
            .map(|packet| packet[..Layout::of(packet).map_or(packet.len(), |layout| layout.total)].to_vec())
            .collect();
        written.sort();
        expected.sort();
        prop_assert_eq!(written, expected);
    }
}
