//! Super-packets of a VXLAN tunnel are cut at their inner packets, whatever port and checksum: every packet
//! from a tap was on the wire.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lab::pair::{Pair, config, skipped};
use crate::lab::{Collector, MERGING, switch, switch_offloads_off};
use netio::multicast::IpVersion;
use netio::tap::{Attach, TapConfig, TapKind};
use netlab::Namespace;
use netlab::traffic::{Between, Direction, TcpTransfer, tcp_transfer, unwatched};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A VXLAN tunnel between the two hosts.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    port: u16,
    checksum: bool,
    version: IpVersion,
}

/// Makes the tunnel; returns `false` if the machine does not support it.
fn dig(pair: &Pair, tunnel: Tunnel) -> bool {
    let Tunnel { port, checksum, version } = tunnel;
    [(&pair.a, 1, 2), (&pair.b, 2, 1)].into_iter().all(|(host, near, far)| {
        let prefix = if version == IpVersion::V6 { "fd09::" } else { "10.9.0." };
        let sum = match (checksum, version) {
            (true, IpVersion::V4) => "udpcsum",
            (false, IpVersion::V4) => "noudpcsum",
            (true, IpVersion::V6) => "noudp6zerocsumtx",
            (false, IpVersion::V6) => "udp6zerocsumtx",
        };
        let command = format!(
            "link add vx0 mtu 1400 type vxlan id 5 local {prefix}{near} remote {prefix}{far} dstport {port} dev eth0 \
             {sum} udp6zerocsumrx"
        );
        let run = || Command::new("ip").args(command.split_whitespace()).status();
        if !host.run(run).is_ok_and(|status| status.success()) {
            return false;
        }
        for address in [format!("10.50.0.{near}/24"), format!("fd50::{near}/64")] {
            host.add_address("vx0", address.parse().unwrap()).unwrap();
        }
        host.set_up("vx0").unwrap();
        true
    })
}

/// Opens taps of this kind at both ends.
fn collectors(pair: &Pair, kind: TapKind) -> Vec<Collector> {
    let mut open = Vec::new();
    for (host, end) in [(&pair.a, "a"), (&pair.b, "b")] {
        let config = TapConfig { kind, attach: Attach::Auto, buffer_bytes: 64 << 20, ..config() };
        match Collector::open(&format!("{kind} at {end}"), host, &config) {
            Ok(collector) => open.push(collector),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                skipped(&format!("{kind} tap of tunnels: {error}"));
            }
            Err(error) => panic!("{error}"),
        }
    }
    open
}

/// Sends TCP and trains of datagrams through the tunnel.
fn traffic(pair: &Pair) {
    for address in ["10.50.0.2", "fd50::2"] {
        let address: IpAddr = address.parse().unwrap();
        let between = Between { from: &pair.a, to: &pair.b, address };
        let transfer = TcpTransfer {
            congestion: Some("cubic".to_owned()),
            duration: Duration::from_millis(30),
            least_bytes: 1,
            direction: Direction::Both,
            verify: true,
            ..TcpTransfer::default()
        };
        assert_eq!(tcp_transfer(between, &transfer, &mut unwatched).unwrap().mismatch, None);
        let sink = pair.b.run(|| std::net::UdpSocket::bind(SocketAddr::new(address, 0)).unwrap());
        quinn_udp::UdpSocketState::new(quinn_udp::UdpSockRef::from(&sink)).unwrap();
        let sink = sink.local_addr().unwrap();
        pair.a.run(|| send_trains(sink));
    }
}

fn send_trains(to: SocketAddr) {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.connect(&SockAddr::from(to)).unwrap();
    let state = quinn_udp::UdpSocketState::new(quinn_udp::UdpSockRef::from(&socket)).unwrap();
    for size in [100, 999, 1200] {
        // a short last datagram, so that the number of segments matches the outer payload too
        let contents: Vec<u8> = (0..size * 9 + 1).map(|i| (i % 249) as u8).collect();
        let (ecn, src_ip) = (None, None);
        let train = quinn_udp::Transmit {
            destination: to,
            ecn,
            contents: &contents,
            segment_size: Some(size),
            src_ip,
        };
        state.try_send(quinn_udp::UdpSockRef::from(&socket), &train).unwrap();
        socket.send(&contents[..size]).unwrap();
    }
}

/// Collects the traffic by all taps. The first two are packet sockets, which see outgoing packets after the
/// kernel has cut them. Because they were opened first, they have seen everything that the others saw.
fn collect_all(pair: &Pair) -> Vec<Collector> {
    let kinds = [TapKind::Packet, TapKind::Packet, TapKind::Ebpf];
    let mut taps: Vec<Collector> = kinds.into_iter().flat_map(|kind| collectors(pair, kind)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let mut last = false;
            while !last {
                last = done.load(Ordering::Acquire);
                let any = taps.iter_mut().fold(false, |any, tap| tap.collect() | any);
                if !any {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let done = Done(&done);
        traffic(pair);
        std::thread::sleep(Duration::from_millis(20));
        drop(done);
        collecting.join().unwrap();
    });
    // The reference is read last, once more: an eBPF tap sees outgoing packets before they are queued, the
    // reference after that.
    std::thread::sleep(Duration::from_millis(50));
    for tap in &mut taps[..2] {
        tap.collect();
    }
    taps
}

/// Ends the collecting thread, even if an assertion fails.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns whether this is a neighbor solicitation: it comes from the other host, but goes to a multicast
/// address, which no tap captures in the outgoing direction.
fn is_neighbor_solicitation(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6 && packet[24] == 0xff
}

/// Returns the packet with one spelling of an inner TCP checksum of zero, which has two.
fn one_spelling(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let inner = if packet[0] >> 4 == 4 { 20 } else { 40 } + 8 + 8 + 14;
    let (protocol, transport) = match packet.get(inner).map(|byte| byte >> 4) {
        Some(4) => (inner + 9, inner + 20),
        Some(6) => (inner + 6, inner + 40),
        _ => return packet,
    };
    let is_tcp = packet.get(protocol) == Some(&6);
    // Beside TCP, hosts send short packets into the tunnel, such as those of neighbor discovery.
    if let Some(checksum @ [0xff, 0xff]) = packet.get_mut(transport + 16..transport + 18).filter(|_| is_tcp) {
        checksum.fill(0);
    }
    packet
}

/// Tells the packet of the wire that differs least, and where.
fn nearest(packet: &[u8], wire: &BTreeSet<Vec<u8>>) -> String {
    let differing = |other: &[u8]| {
        let both = packet.iter().zip(other).enumerate();
        both.filter(|(_, (one, other))| one != other).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let of_this_length = wire.iter().filter(|other| other.len() == packet.len());
    of_this_length
        .map(|other| (differing(other), other))
        .min_by_key(|(places, _)| places.len())
        .map_or("no packet of the wire has its length".to_owned(), |(places, other)| {
            format!("the nearest differs at {places:?}: {other:02x?}")
        })
}

/// How the ends of the cable handle packets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cable {
    /// Super-packets pass unchanged.
    Whole,
    /// Single packets pass, and stay single or are merged at the far end.
    Single { merging: bool },
}

fn a_tunnel_is_cut(cable: Cable, tunnel: Tunnel) {
    let what = format!("tunnels ({cable:?}, {tunnel:?})");
    let Some(pair) = Pair::build(&what) else { return };
    if let Cable::Single { merging } = cable {
        let off = |host: &Namespace| host.run(|| switch_offloads_off("eth0").unwrap());
        off(&pair.a);
        off(&pair.b);
        if merging {
            for host in [&pair.a, &pair.b] {
                host.run(|| switch("eth0", MERGING, true).unwrap());
            }
        }
    }
    if !dig(&pair, tunnel) {
        return skipped(&format!("{what}: this version of ip cannot make them"));
    }
    // on a busy machine the reference may be incomplete; such a run is repeated
    let complete =
        |taps: &Vec<Collector>| cable == Cable::Whole || taps[..2].iter().all(|tap| tap.tap.dropped() == 0);
    let Some(taps) = (0..5).map(|_| collect_all(&pair)).find(complete) else {
        panic!("expected a run without lost packets, saw none; the machine is too busy");
    };
    // only packets that end at a tunnel travel between these hosts
    for tap in &taps {
        println!("{what}, {}: supers {:?}, {} refused, {:?}", tap.name, tap.supers, tap.refused, tap.counted);
        assert_eq!(tap.refused, 0, "{what}, {}", tap.name);
    }
    if cable == Cable::Whole {
        return assert!(taps.iter().all(|tap| tap.supers[0] + tap.supers[1] > 0));
    }
    let [a, b, others @ ..] = &taps[..] else { return };
    assert_eq!((a.supers[0], b.supers[0]), (0, 0));
    for tap in others {
        let (here, there) = if tap.name.ends_with('a') { (a, b) } else { (b, a) };
        for (emitted, wire) in [(&tap.outgoing, &here.outgoing), (&tap.incoming, &there.outgoing)] {
            let (name, all) = (&tap.name, emitted.len());
            let wire: BTreeSet<Vec<u8>> = wire.keys().map(|packet| one_spelling(packet)).collect();
            let wrong: Vec<_> = emitted
                .keys()
                .filter(|packet| !is_neighbor_solicitation(packet) && !wire.contains(&one_spelling(packet)))
                .collect();
            assert!(all > 0, "{what}, {name}");
            assert!(
                wrong.is_empty(),
                "{what}, {name}: {} of {all} not on the wire: {:02x?}; {}",
                wrong.len(),
                wrong[0],
                nearest(wrong[0], &wire)
            );
        }
    }
}

#[test]
fn a_tunnels_super_packets_are_cut() {
    for port in [4789, 5555] {
        for (checksum, version) in [(true, IpVersion::V4), (false, IpVersion::V4), (true, IpVersion::V6)] {
            a_tunnel_is_cut(Cable::Whole, Tunnel { port, checksum, version });
        }
    }
}

#[test]
fn captures_of_a_tunnel_are_what_the_wire_carries() {
    for (port, checksum, version) in [
        (4789, true, IpVersion::V4),
        (5555, false, IpVersion::V4),
        (5555, true, IpVersion::V4),
        (4789, true, IpVersion::V6),
    ] {
        for merging in [false, true] {
            a_tunnel_is_cut(Cable::Single { merging }, Tunnel { port, checksum, version });
        }
    }
}
