//! Fuzz target, shared with the test that replays its corpus.
#![allow(unreachable_pub, missing_docs, reason = "each user takes a part of it")]

use netio::coalesce::Coalescer;
use netio::segment::{Refusal, cut};
use netio::{Gso, Offload};

const KINDS: [Gso; 6] = [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6, Gso::Unknown];

/// Cuts and joins a packet with an arbitrary offload. Input: kind, flags and segment count, segment size,
/// checksum start, checksum offset, packet.
pub fn segment(data: &[u8]) {
    let Some((head, packet)) = data.split_first_chunk::<8>() else { return };
    let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let offload = Offload {
        gso: KINDS[usize::from(head[0]) % KINDS.len()],
        segment_size: field(2),
        segment_count: u16::from(head[1] >> 2),
        needs_checksum: head[1] & 1 != 0,
        counting: head[1] >> 1 & 1,
        checksum_start: field(4),
        checksum_offset: field(6),
    };
    let packet = &packet[..packet.len().min(65_535)];
    let Ok(wire) = cut_all(packet, &offload) else { return };
    assert!(!wire.is_empty() && wire.iter().all(|segment| segment.len() <= packet.len()));
    if offload.is_super() && wire.len() > 1 {
        let headers = wire[0].len() - usize::from(offload.segment_size);
        let payload: usize = wire.iter().map(|segment| segment.len() - headers).sum();
        assert!(headers + payload <= packet.len());
    }
    if offload.checksum_start > 0 {
        return; // the offload may have changed any two bytes
    }
    for segment in &wire {
        assert_eq!(cut_all(segment, &Offload::default()).as_deref(), Ok(std::slice::from_ref(segment)));
    }
    match join_and_cut(&wire) {
        Ok(again) => assert_eq!(again, wire),
        // the first datagram holds what looks like an IP packet that spans all of them
        Err(refusal) => assert!(matches!(refusal, Refusal::Tunnel(_)), "{refusal}"),
    }
}

fn cut_all(packet: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut scratch = vec![0; 65_536];
    let mut wire = Vec::new();
    let count = cut(packet, offload, &mut scratch, |segment| wire.push(segment.to_vec()))?;
    assert_eq!(count, wire.len());
    Ok(wire)
}

fn join_and_cut(wire: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut coalescer = Coalescer::new(true);
    let mut again = Ok(Vec::new());
    let mut write = |offload: &Offload, packet: &[u8]| match (&mut again, cut_all(packet, offload)) {
        (Ok(again), Ok(cut)) => again.extend(cut),
        (Ok(_), Err(refusal)) => again = Err(refusal),
        (Err(_), _) => {}
    };
    for segment in wire {
        coalescer.push(segment, &mut write);
    }
    coalescer.flush(&mut write);
    again
}
