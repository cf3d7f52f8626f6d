//! The cost of one source packet in a gateway, by wall clock or by `valgrind --tool=callgrind`.
//!
//! `gateway_cost egress|ingress [PACKETS] [LOSS_PERCENT]` runs 1,300-byte packets through the core with (8;
//! 1,11,19). `ingress` prepares the repairs first, then measures arrivals and repairs together. Under
//! callgrind, pass `--toggle-collect='*measured*'` to count only the measured part.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

use std::time::Instant;

use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerKey, Schedule};

const PACKET: usize = 1300;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let direction = arguments.next().unwrap_or_else(|| "egress".into());
    let packets: usize = arguments.next().map_or(100_000, |n| n.parse().expect("PACKETS is a number"));
    let loss: f64 = arguments.next().map_or(0.0, |n| n.parse().expect("LOSS_PERCENT is a number"));
    let mut pair = Pair::up();
    let template = template();
    match direction.as_str() {
        "egress" => {
            let start = Instant::now();
            measured_egress(&mut pair, &template, packets);
            report("egress", packets, start);
        }
        "ingress" => {
            let trace = pair.record(&template, packets, loss / 100.0);
            let start = Instant::now();
            measured_ingress(&mut pair, &trace);
            report("ingress", packets, start);
            let peer = pair.b.peers().next().expect("one peer");
            println!("recovered {}", peer.ingress.recovered_packets);
        }
        other => panic!("expected egress or ingress, saw {other}"),
    }
}

fn report(what: &str, packets: usize, start: Instant) {
    let elapsed = start.elapsed();
    println!(
        "{what}: {:.0} ns per source packet of {PACKET} bytes",
        elapsed.as_nanos() as f64 / packets as f64
    );
}

struct Pair {
    a: Gateway,
    b: Gateway,
    out_a: Outbox,
    out_b: Outbox,
    now_us: u64,
}

enum Event {
    Source(usize),
    Repair(Vec<u8>),
}

#[inline(never)]
fn measured_egress(pair: &mut Pair, template: &[u8], packets: usize) {
    let mut packet = template.to_vec();
    for n in 0..packets {
        number(&mut packet, n);
        pair.a.handle_outgoing(pair.now_us, &packet, &mut pair.out_a);
        if pair.out_a.datagrams.is_nearly_full() {
            pair.out_a.datagrams.clear();
        }
    }
}

#[inline(never)]
fn measured_ingress(pair: &mut Pair, trace: &[Event]) {
    let mut packet = template();
    let mut datagram = vec![0; 2048];
    for event in trace {
        match event {
            Event::Source(n) => {
                number(&mut packet, *n);
                pair.b.handle_incoming(pair.now_us, &packet, &mut pair.out_b);
            }
            Event::Repair(sealed) => {
                let datagram = &mut datagram[..sealed.len()];
                datagram.copy_from_slice(sealed);
                pair.b.handle_datagram(pair.now_us, pair.a.config().listen, datagram, &mut pair.out_b);
                pair.now_us += 12;
                pair.b.handle_timeout(pair.now_us, &mut pair.out_b);
                pair.out_b.recovered.clear();
                pair.out_b.datagrams.clear();
            }
        }
    }
}

/// Makes packet number `n` of the stream different from all others.
fn number(packet: &mut [u8], n: usize) {
    packet[4..6].copy_from_slice(&(n as u16).to_be_bytes());
    packet[100..108].copy_from_slice(&(n as u64).to_be_bytes());
}

fn template() -> Vec<u8> {
    let mut packet: Vec<u8> = (0..PACKET).map(|k| (k * 31) as u8).collect();
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 63, 6, 0, 0, 10, 81, 1, 10, 10, 81, 2, 10]);
    packet[2..4].copy_from_slice(&(PACKET as u16).to_be_bytes());
    packet
}

impl Pair {
    fn up() -> Self {
        let config = |side: u8| Config {
            listen: ([10, 81, 9, side], 4700).into(),
            wan_mtu: 1500,
            schedule: Schedule::layered(),
            targets: maelstrom_core::controller::Targets::default(),
            delayed: false,
            max_delay_us: 20_000,
            requests: maelstrom_core::Requests::All,
            repair_dscp: maelstrom_core::RepairDscp::default(),
            on_congestion: maelstrom_core::congestion::OnCongestion::Leave,
            name_bits: 32,
            classes: Vec::new(),
            local_networks: Vec::new(),
            multicast: Vec::new(),
            peers: vec![PeerConfig {
                address: ([10, 81, 9, 3 - side], 4700).into(),
                whereabouts: Default::default(),
                networks: vec![format!("10.81.{}.0/24", 3 - side).parse().expect("a network")],
                key: PeerKey::new([5; 32]),
                next_key: None,
                is_of_rack: false,
                trusts_path: false,
                is_tunnel: false,
                paths: Vec::new(),
                path_use: Default::default(),
                tunnel: Default::default(),
            }],
        };
        let a = Gateway::new(config(1), [1; 32]).expect("a valid configuration");
        let b = Gateway::new(config(2), [2; 32]).expect("a valid configuration");
        let mut pair = Self { out_a: a.outbox(), out_b: b.outbox(), a, b, now_us: 1 };
        for _ in 0..40 {
            pair.now_us += 50_000;
            pair.a.handle_timeout(pair.now_us, &mut pair.out_a);
            pair.b.handle_timeout(pair.now_us, &mut pair.out_b);
            pair.exchange();
        }
        pair
    }

    fn exchange(&mut self) {
        let (a, b) = (self.a.config().listen, self.b.config().listen);
        for (_, datagram) in self.out_a.datagrams.iter() {
            self.b.handle_datagram(self.now_us, a, &mut datagram.to_vec(), &mut self.out_b);
        }
        self.out_a.datagrams.clear();
        for (_, datagram) in self.out_b.datagrams.iter() {
            self.a.handle_datagram(self.now_us, b, &mut datagram.to_vec(), &mut self.out_a);
        }
        self.out_b.datagrams.clear();
    }

    /// Returns what B receives of `packets` packets over a link that loses packets and repairs alike.
    fn record(&mut self, template: &[u8], packets: usize, loss: f64) -> Vec<Event> {
        let mut lost = testkit::coin(0, loss);
        let mut packet = template.to_vec();
        let mut trace = Vec::new();
        for n in 0..packets {
            number(&mut packet, n);
            self.a.handle_outgoing(self.now_us, &packet, &mut self.out_a);
            if !lost() {
                trace.push(Event::Source(n));
            }
            for (_, datagram) in self.out_a.datagrams.iter() {
                if !lost() {
                    trace.push(Event::Repair(datagram.to_vec()));
                }
            }
            self.out_a.datagrams.clear();
        }
        trace
    }
}
