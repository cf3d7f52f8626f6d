//! Time per wire packet of cutting and of joining super-packets, without system calls:
//! `cargo run --release -p netio --example packet_speed [PAYLOAD]`

#![allow(clippy::disallowed_methods, reason = "measuring is reading the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use netio::coalesce::Coalescer;
use netio::segment::cut;
use netio::tun::leave_checksum;
use netio::{Gso, Offload};

fn main() {
    let size: usize =
        std::env::args().nth(1).map_or(1248, |text| text.parse().expect("payload bytes of a segment"));
    println!("TCP over IPv4, {size} bytes of payload in a segment; nanoseconds per wire packet");
    let (packet, offload) = super_packet(size);
    let mut scratch = vec![0; 65_536];
    let count = cut(&packet, &offload, &mut scratch, |_| {}).expect("a good super-packet");
    report("cut, checksums computed", count, || {
        cut(black_box(&packet), &offload, &mut scratch, |wire| {
            black_box(wire);
        })
        .expect("a good super-packet");
    });
    let mut wire = Vec::new();
    cut(&packet, &offload, &mut scratch, |packet| wire.push(packet.to_vec())).expect("a good super-packet");
    report("pass a finished packet", wire.len(), || {
        for packet in &wire {
            cut(black_box(packet), &Offload::default(), &mut scratch, |wire| {
                black_box(wire);
            })
            .expect("a single packet");
        }
    });
    // single datagrams are searched for a tunnel's packet
    let mut datagrams = wire.clone();
    for packet in &mut datagrams {
        packet[9] = 17;
    }
    report("pass a datagram", datagrams.len(), || {
        for packet in &datagrams {
            cut(black_box(packet), &Offload::default(), &mut scratch, |wire| {
                black_box(wire);
            })
            .expect("a single packet");
        }
    });
    let mut unfinished = wire.clone();
    unfinished.iter_mut().for_each(|packet| assert!(leave_checksum(packet)));
    report("finish a packet left to the card", wire.len(), || {
        for packet in &unfinished {
            cut(black_box(packet), &Offload::default(), &mut scratch, |wire| {
                black_box(wire);
            })
            .expect("a single packet");
        }
    });
    let mut coalescer = Coalescer::new(true);
    report("join, checksums verified", wire.len(), || {
        let mut write = |_: &Offload, packet: &[u8]| {
            black_box(packet);
        };
        for packet in &wire {
            coalescer.push(black_box(packet), &mut write);
        }
        coalescer.flush(&mut write);
    });
}

fn super_packet(size: usize) -> (Vec<u8>, Offload) {
    let payload = size * (65_000 / size);
    let mut packet = vec![0; 52];
    packet.extend((0..payload).map(|i| (i * 7 % 251) as u8));
    packet[0] = 0x45;
    let total = u16::try_from(packet.len()).expect("at most 65,052 bytes");
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[8] = 64;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 1, 0, 1, 10, 2, 0, 1]);
    packet[32] = 0x80;
    packet[33] = 0x10;
    let size = u16::try_from(size).expect("a segment of at most 65,000 bytes");
    (packet, Offload::segments(Gso::Tcp4, size))
}

/// Reports the best of many short runs: the cost without disturbance.
fn report(what: &str, packets: usize, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..300 {
        let start = Instant::now();
        for _ in 0..20 {
            work();
        }
        best = best.min(start.elapsed());
    }
    println!("{what:>36}: {:6.1}", best.as_nanos() as f64 / 20.0 / packets as f64);
}
