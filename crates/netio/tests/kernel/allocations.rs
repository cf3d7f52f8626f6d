//! The path of a packet does not allocate: cutting, joining, draining a tap, and sending and receiving
//! repairs and multicast.

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use netio::coalesce::Coalescer;
use netio::multicast::{GroupSocket, IpVersion, Joiner, Outbox, OwnConfig, OwnSocket};
use netio::poll::{Interest, Poller};
use netio::segment::cut;
use netio::tap::{Tap, TapConfig, TapKind};
use netio::tun::{BUFFER_LEN, Tun, TunOptions};
use netio::udp::RepairSocket;
use netio::{Gso, Offload};
use netlab::Namespace;

/// Longest wait for packets that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work` twice, the first time to let it set up, and counts the allocations of the second run.
fn allocations(mut work: impl FnMut()) -> u64 {
    work();
    allocation_counter::measure(work).count_total
}

fn super_packet() -> Vec<u8> {
    let mut packet = vec![7; 40 + 20_000];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1]);
    packet[2..4].copy_from_slice(&20_040_u16.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = 0x10;
    packet
}

#[test]
fn cutting_and_joining_do_not_allocate() {
    let (packet, offload) = (super_packet(), Offload::segments(Gso::Tcp4, 1200));
    let (mut scratch, mut coalescer) = (vec![0; 65_536], Coalescer::new(true));
    let (mut cut_packets, mut written) = (0, 0);
    let count = allocations(|| {
        let mut write = |offload: &Offload, _: &[u8]| written += usize::from(offload.is_super());
        cut_packets += cut(&packet, &offload, &mut scratch, |wire| coalescer.push(wire, &mut write)).unwrap();
        coalescer.flush(&mut write);
    });
    assert_eq!((cut_packets, written, count), (34, 2, 0));
}

#[test]
fn repairs_are_sent_and_received_without_allocating() {
    if !netlab::privilege::namespaces_or_skip("allocations of the repair socket") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    let bind = || host.run(|| RepairSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let (mut a, mut b) = (bind(), bind());
    let to = b.local_address().unwrap();
    let datagrams = [[1; 1300]; 100];
    let mut received = 0;
    let count = allocations(|| {
        assert_eq!(a.send(datagrams.iter().map(|datagram| (to, &datagram[..]))), 0);
        b.recv(|_, _| received += 1).unwrap();
    });
    assert_eq!((received, count), (200, 0));
}

#[test]
fn multicast_is_sent_and_received_without_allocating() {
    if !netlab::privilege::namespaces_or_skip("allocations of multicast sockets") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    let group = "239.192.0.1".parse().unwrap();
    let mut joiner = host.run(|| Joiner::new("lo", IpVersion::V4, 1)).unwrap();
    joiner.join(group).unwrap();
    let mut all = host.run(|| GroupSocket::bind(4711, IpVersion::V4, "lo", 4 << 20)).unwrap();
    let config = OwnConfig::new("127.0.0.1:0".parse().unwrap(), "lo");
    let mut own = host.run(|| OwnSocket::bind(&config)).unwrap();
    let (to_group, to_own) = ((group, 4711).into(), own.local_address());
    let nowhere = "192.0.2.1:9".parse().unwrap();
    let (sending, mut outbox) = (own.sending(), Outbox::new(own.sending()));
    let (mut grouped, mut alone) = (0, 0);
    let count = allocations(|| {
        for _ in 0..100 {
            outbox.push(to_group, &[&[1; 40], &[2; 1200]]);
        }
        for _ in 0..100 {
            outbox.push(to_own, &[&[1; 40]]);
            outbox.push(nowhere, &[&[1; 40]]);
        }
        assert_eq!(outbox.flush(), 100);
        sending.send_now(to_group, &[&[1; 40], &[2; 1200]]).unwrap();
        while all.recv(|_, _, _| grouped += 1).unwrap() {}
        while own.recv(|_, _| alone += 1).unwrap() {}
    });
    assert_eq!((grouped, alone, count), (202, 200, 0));
}

#[test]
fn taps_and_tun_devices_do_not_allocate() {
    if !netlab::privilege::available_or_skip("allocations of taps") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    let options = TunOptions { offload: true, mtu: Some(1300), transmit_queue: None, up: true };
    let tun = host.run(|| Tun::open("tun0", &options).unwrap());
    host.add_address("tun0", "10.9.0.1/24".parse().unwrap()).unwrap();
    let mut socket = host.run(|| RepairSocket::bind("10.9.0.1:0".parse().unwrap()).unwrap());
    for kind in [TapKind::Ebpf, TapKind::Packet] {
        let config = TapConfig {
            interface: "tun0".to_owned(),
            outgoing_to: vec!["10.9.0.2/32".parse().unwrap()],
            kind,
            ..TapConfig::default()
        };
        let mut tap = match host.run(|| Tap::open(&config)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: allocations of the {kind} tap: {error}");
                continue;
            }
            tap => tap.unwrap(),
        };
        let mut poller = Poller::new().unwrap();
        poller.add(&tap, 1, Interest::Readable).unwrap();
        let (mut buffer, mut scratch) = (vec![0; BUFFER_LEN], vec![0; BUFFER_LEN]);
        let (datagrams, to) = ([[1; 1200]; 20], "10.9.0.2:9".parse().unwrap());
        let (mut captured_packets, mut read) = (0, 0);
        let count = allocations(|| {
            assert_eq!(socket.send(datagrams.iter().map(|datagram| (to, &datagram[..]))), 0);
            assert!(poller.wait(Some(PATIENCE)).unwrap().count() > 0, "{tap:?} wakes its reader");
            let drained = tap.drain(1000, |captured| {
                let cut = cut(captured.packet, &captured.offload, &mut scratch, |_| captured_packets += 1);
                cut.unwrap();
            });
            assert!(!drained.unwrap().more);
            while let Some((offload, packet)) = tun.recv(&mut buffer).unwrap() {
                read += cut(packet, &offload, &mut scratch, |_| {}).unwrap();
            }
        });
        assert_eq!((captured_packets, count), (40, 0), "{kind}");
        assert!(read >= 40);
    }
}
