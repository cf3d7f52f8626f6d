//! Marks of congestion on datagrams with packets of a tunnel (RFC 6040).

use std::cell::Cell;
use std::rc::Rc;

use crate::pair::{A, B, Pair, payload, tunnel, udp};
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::{Ecn, EcnCounts};

/// A packet from A with this type of service.
fn packet(n: u32, tos: u8) -> Vec<u8> {
    marked(udp(A, n as u16, &payload(n)), tos)
}

fn marked(mut packet: Vec<u8>, tos: u8) -> Vec<u8> {
    let fields = Packet::new_checked(&packet).unwrap().mutable_fields();
    restore(&mut packet, MutableFields { tos, ..fields });
    packet
}

fn ecn_of(packet: &[u8]) -> Ecn {
    Ecn::of(Packet::new_checked(packet).unwrap().mutable_fields().tos)
}

fn counts(pair: &Pair) -> EcnCounts {
    pair.status(B, |peer| peer.ingress.ecn)
}

/// Two gateways, and the mark that the path puts on all datagrams of A while there is one.
fn two() -> (Pair, Rc<Cell<Option<Ecn>>>) {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let mark = Rc::new(Cell::new(None));
    let cell = Rc::clone(&mark);
    pair.mark = Box::new(move |side, ecn| if side == A { cell.get().unwrap_or(ecn) } else { ecn });
    (pair, mark)
}

#[test]
fn datagrams_have_the_type_of_service_of_their_packets_and_nothing_changes_on_a_path_without_marks() {
    let (mut pair, _) = two();
    let sent: Vec<_> = (0..8).map(|n| packet(n, 0xb8 | (n % 4) as u8)).collect();
    let seen = Rc::new(Cell::new([0; 4]));
    let cell = Rc::clone(&seen);
    pair.mark = Box::new(move |side, ecn| {
        let mut counts = cell.get();
        counts[ecn as usize] += u32::from(side == A);
        cell.set(counts);
        ecn
    });
    pair.dscps[A].clear();
    for packet in &sent {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
    }
    assert_eq!(pair.recovered[B], sent);
    assert_eq!(counts(&pair), EcnCounts::default());
    assert!(seen.get()[1..] == [2, 2, 2], "{seen:?}");
    assert!(pair.dscps[A].iter().filter(|&&dscp| dscp == 46).count() >= 8);
}

#[test]
fn a_mark_of_the_path_reaches_the_packets_inside() {
    let (mut pair, mark) = two();
    mark.set(Some(Ecn::Ce));
    for (n, ecn) in (0..).zip([Ecn::Ect0, Ecn::Ect1, Ecn::Ce]) {
        let sent = packet(n, ecn.set(0x28));
        pair.send_by_tunnel(A, std::slice::from_ref(&sent));
        // All but the mark is as it was, and the checksum is right.
        assert_eq!(pair.recovered[B].pop(), Some(marked(sent, 0x2b)));
    }
    assert_eq!(counts(&pair), EcnCounts { marked: 2, ..EcnCounts::default() });
    mark.set(Some(Ecn::Ect1));
    pair.send_by_tunnel(A, &[packet(9, 2)]);
    assert_eq!(ecn_of(&pair.recovered[B][0]), Ecn::Ect1);
}

#[test]
fn a_packet_that_must_not_be_marked_is_dropped_with_its_mark_and_not_recovered() {
    let (mut pair, mark) = two();
    for n in 0..400 {
        let is_marked = n % 40 == 7;
        mark.set(is_marked.then_some(Ecn::Ce));
        pair.send_by_tunnel(A, &[packet(n, 0)]);
        mark.set(None);
        pair.advance(1_000);
    }
    pair.advance(2_000_000);
    assert_eq!(counts(&pair), EcnCounts { dropped: 10, ..EcnCounts::default() });
    assert_eq!(pair.recovered[B].len(), 390);
    let report = pair.status(B, |peer| peer.report);
    assert_eq!((report.lost, pair.status(B, |peer| peer.ingress.recovered_packets)), (0, 0));
}

#[test]
fn others_are_recovered_from_what_was_sent_and_not_from_what_was_marked() {
    let (mut pair, mark) = two();
    mark.set(Some(Ecn::Ce));
    let mut sent = Vec::new();
    for n in 0..1_000 {
        let packet = packet(n, 2);
        pair.lose_datagram = Box::new(move || n % 50 == 7);
        pair.send_by_tunnel(A, std::slice::from_ref(&packet));
        pair.lose_datagram = Box::new(|| false);
        pair.advance(1_000);
        sent.push(packet);
    }
    pair.advance(2_000_000);
    assert_eq!(pair.recovered[B].len(), 1_000);
    let plain: Vec<_> = pair.recovered[B].iter().filter(|packet| ecn_of(packet) == Ecn::Ect0).collect();
    assert_eq!(plain.len(), 20, "a lost datagram had no mark");
    assert!(plain.iter().all(|packet| sent.contains(packet)));
}

#[test]
fn the_mark_of_either_half_counts() {
    for half in [0, 1] {
        let (mut pair, _) = two();
        let mut count = 0;
        pair.mark = Box::new(move |side, ecn| {
            let is_marked = side == A && count == half;
            count += usize::from(side == A);
            if is_marked { Ecn::Ce } else { ecn }
        });
        // Too long for one datagram.
        pair.send_by_tunnel(A, &[marked(udp(A, 1, &[7; 1_472]), 2)]);
        assert_eq!((pair.recovered[B].len(), ecn_of(&pair.recovered[B][0])), (1, Ecn::Ce), "{half}");
    }
}

#[test]
fn fields_that_no_router_gives_are_counted_and_change_nothing() {
    let (mut pair, mark) = two();
    mark.set(Some(Ecn::Ect0));
    let sent = [packet(0, 0), packet(1, 1)];
    for packet in &sent {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
    }
    assert_eq!(pair.recovered[B], sent);
    assert_eq!(counts(&pair), EcnCounts { odd: 2, ..EcnCounts::default() });
}
