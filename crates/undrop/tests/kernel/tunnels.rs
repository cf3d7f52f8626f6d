//! Tunnels between the sites, and forged ones, whose packets the kernel merges at the far gateway.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netio::checksum::Sum;
use netio::tap::{Tap, TapConfig, TapKind};
use netio::tun::{Tun, TunOptions};
use netio::{Gso, Offload};
use netlab::topology::{HOST, LAN};
use netlab::{Namespace, privilege};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use crate::interfaces::{FAR_HOST, Lab};
use crate::pair::wait_for_peer;

/// Packets that are sent at once, so that the kernel merges some of them.
const BURST: usize = 6;
const SEGMENT: usize = 200;

fn far() -> Ipv4Addr {
    FAR_HOST.parse().unwrap()
}

/// Makes the kernel merge packets that arrive at the far gateway, and wait a moment for further ones.
fn merge(lab: &Lab) {
    // A cable merges nothing that comes from an end with segmentation offloads.
    for kind in ["tcp", "tcp6", "tcp-ecn", "tcp-mangleid"] {
        lab.sites.b.gateway.set_feature(LAN, &format!("tx-{kind}-segmentation"), false).unwrap();
    }
    let far: &Namespace = &lab.sites.b.hosts[0];
    far.set_feature(HOST, "rx-gro", true).unwrap();
    far.run(|| {
        // A sysfs of this namespace, which only this thread sees.
        let nothing: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), nothing).unwrap();
        for (file, value) in [("napi_defer_hard_irqs", "10"), ("gro_flush_timeout", "20000000")] {
            std::fs::write(format!("/sys/class/net/{HOST}/{file}"), value).unwrap();
        }
    });
}

fn ip(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(20 + payload.len()).unwrap().to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[6] = 0x40;
    packet[8..10].copy_from_slice(&[60, protocol]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    let sum = Sum::of(&packet).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// Packet number `index` of a burst of IP in IP with TCP inside.
fn ip_in_ip(from: Ipv4Addr, burst: u32, index: usize) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[..4].copy_from_slice(&[0x12, 0x34, 0x00, 0x50]);
    let sequence = u32::try_from(index * SEGMENT).unwrap() + burst * 10_000;
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    segment[12..16].copy_from_slice(&[0x50, 0x10, 0x20, 0]);
    segment.extend((0..SEGMENT).map(|at| (at * 3 + index) as u8));
    let (source, destination) = (Ipv4Addr::new(172, 16, 0, 1), Ipv4Addr::new(172, 16, 0, 2));
    let pseudo = Sum::of(&source.octets()).bytes(&destination.octets()).word(6);
    let sum = pseudo.word(u16::try_from(segment.len()).unwrap()).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let id = (burst as u16).wrapping_mul(64).wrapping_add(index as u16);
    ip(from, far(), 4, id, &ip(source, destination, 6, id.wrapping_add(7), &segment))
}

/// Sends a burst every 50 ms until it is told to stop.
fn send_bursts(stop: &AtomicBool, mut send: impl FnMut(u32, usize)) {
    for burst in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        (0..BURST).for_each(|index| send(burst, index));
        thread::sleep(Duration::from_millis(50));
    }
}

/// Counts the super-packets of this protocol that arrive at the far gateway until it is told to stop.
fn count_merged(lab: &Lab, stop: &AtomicBool, protocol: u8) -> u64 {
    let config = TapConfig {
        interface: HOST.to_owned(),
        incoming_from: vec!["10.81.1.0/24".parse().unwrap()],
        kind: TapKind::Packet,
        ..TapConfig::default()
    };
    let mut tap = lab.sites.b.hosts[0].run(|| Tap::open(&config).unwrap());
    let mut merged = 0;
    while !stop.load(Ordering::Relaxed) {
        tap.drain(1_000, |captured| {
            merged += u64::from(captured.offload.is_super() && captured.packet[9] == protocol);
        })
        .unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    merged
}

/// Protects a stream beside bursts of packets by `send`. Returns the number of super-packets of
/// this protocol.
fn protect_beside(lab: &Lab, protocol: u8, send: impl FnMut(u32, usize) + Send, work: impl FnOnce()) -> u64 {
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let merged = scope.spawn(move || count_merged(lab, stop, protocol));
        scope.spawn(move || send_bursts(stop, send));
        let stopping = Stop(stop);
        work();
        drop(stopping);
        merged.join().unwrap()
    })
}

/// Ends the threads, also if an assertion fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn a_merged_tunnel_pauses_no_recovery(test: &str, tap: &'static str) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::build();
    merge(&lab);
    let pair = lab.start(tap);
    let IpAddr::V4(from) = lab.sites.a.host_v4(0) else { unreachable!() };
    let raw = raw_socket(&lab);
    let to = SockaddrIn::from(std::net::SocketAddrV4::new(far(), 0));
    let send = |burst, index| {
        let packet = ip_in_ip(from, burst, index);
        sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
    };
    let merged = protect_beside(&lab, 4, send, || lab.assert_protected(&pair));
    assert!(merged > 0, "the kernel must merge some of them");
    let status = pair.status(1).unwrap();
    assert_eq!(status.counters["incoming_uncut"], 0);
    assert_eq!(status.peers[0].ingress.paused_flows, 0);
    pair.stop().unwrap();
}

testkit::cases! { a_merged_tunnel_pauses_no_recovery:
    a_tunnel_whose_packets_are_merged_pauses_no_recovery("auto");
    a_tunnel_whose_packets_are_merged_pauses_no_recovery_with_the_packet_tap("packet");
}

fn packets_that_cannot_be_cut_pause_one_flow(test: &str, tap: &'static str) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start(tap);
    let forger = Forger::new(&lab.sites.b.gateway);
    let IpAddr::V4(from) = lab.sites.a.host_v4(0) else { unreachable!() };
    let raw = raw_socket(&lab);
    let to = SockaddrIn::from(std::net::SocketAddrV4::new(far(), 0));
    let send = |burst: u32, index: usize| {
        forger.send(from);
        // Packets of the same flow, some of which the link loses.
        let id = (burst as u16).wrapping_mul(64).wrapping_add(index as u16);
        let packet = ip(from, far(), 17, id, &datagram(SEGMENT));
        sendto(raw.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
    };
    let mut paused_flows = 0;
    let merged = protect_beside(&lab, 17, send, || {
        lab.assert_protected(&pair);
        paused_flows = pair.status(1).unwrap().peers[0].ingress.paused_flows;
        wait_for_peer(&pair, 1, "lost packets of the flow are not injected", |peer| {
            peer.ingress.withheld["doubtful"] > 0
        });
    });
    let status = pair.status(1).unwrap();
    assert!(merged > 0 && status.counters["incoming_uncut"] > 0, "{merged} arrived: {status:?}");
    assert_eq!(paused_flows, 1);
    let line = format!("cannot cut a super-packet from {} to {FAR_HOST}", lab.sites.a.host_v4(0));
    assert!(pair.logs().contains(&line), "{}", pair.logs());
    pair.stop().unwrap();
}

testkit::cases! { packets_that_cannot_be_cut_pause_one_flow:
    packets_that_cannot_be_cut_pause_their_own_flow_alone("auto");
    packets_that_cannot_be_cut_pause_their_own_flow_alone_with_the_packet_tap("packet");
}

fn raw_socket(lab: &Lab) -> OwnedFd {
    lab.sites.a.hosts[0].run(|| {
        socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw).unwrap()
    })
}

/// Returns a datagram of the forged flow: its port is VXLAN's, and it carries no IP packet.
fn datagram(content: usize) -> Vec<u8> {
    let mut datagram = vec![0x12, 0x34, 0x12, 0xb5, 0, 0, 0, 0];
    datagram.resize(8 + content, 0x66);
    let length = u16::try_from(datagram.len()).unwrap();
    datagram[4..6].copy_from_slice(&length.to_be_bytes());
    datagram
}

/// A device on the path that sends super-packets of a tunnel over UDP without an IP packet inside.
struct Forger(Tun);

impl Forger {
    fn new(router: &Namespace) -> Self {
        let options = TunOptions { mtu: Some(1_300), transmit_queue: None, up: false, offload: true };
        let tun = router.run(|| {
            let tun = Tun::open("forger", &options).unwrap();
            tun.interface().set_ipv4_address(Ipv4Addr::new(192, 0, 0, 9)).unwrap();
            tun.interface().set_up(true).unwrap();
            tun
        });
        Self(tun)
    }

    /// Sends a super-packet of three datagrams whose checksum field is zero, in the name of a host of site A.
    fn send(&self, from: Ipv4Addr) {
        let packet = ip(from, far(), 17, 77, &datagram(3 * SEGMENT));
        let offload = Offload {
            checksum_start: 20,
            checksum_offset: 6,
            ..Offload::segments(Gso::Udp4, u16::try_from(SEGMENT).unwrap())
        };
        self.0.send_super(&offload, &[IoSlice::new(&packet)]).unwrap();
    }
}
