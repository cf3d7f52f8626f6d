//! Captured packets, once cut, equal those on the wire. One suite covers every kind of tap, at an Ethernet
//! interface and at one without a link header, for TCP and UDP of the real kernel, with and without offloads.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lab::pair::skipped;
use crate::lab::{Collector, Lab, Offloads, Packets, far};
use netio::tap::{Attach, TapConfig, TapKind};
use netlab::traffic::{Between, Direction, TcpTransfer, tcp_transfer, unwatched};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Opens every kind of tap that this machine supports.
fn collectors(lab: &Lab) -> Vec<Collector> {
    let kinds = [
        ("ebpf by tcx", TapKind::Ebpf, Attach::Tcx),
        ("ebpf by clsact", TapKind::Ebpf, Attach::Clsact),
        ("packet", TapKind::Packet, Attach::Auto),
    ];
    let mut open = Vec::new();
    let places = [(&lab.a, "eth0", "cable"), (&lab.r, "tun0", "tun"), (&lab.r, "tun1", "way back")];
    for (place, interface, where_) in places {
        for (kind_name, kind, attach) in kinds {
            let config = TapConfig {
                interface: interface.to_owned(),
                outgoing_to: far(),
                incoming_from: far(),
                kind,
                attach,
                buffer_bytes: 64 << 20,
                ..TapConfig::default()
            };
            let name = format!("{kind_name} at the {where_}");
            match Collector::open(&name, place, &config) {
                Ok(collector) => open.push(collector),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    skipped(&format!("{name}: {error}"));
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    open
}

/// Sends TCP both ways with cubic, and UDP singly, in trains and in fragments, over IPv4 and IPv6.
fn traffic(lab: &Lab) {
    for address in ["10.2.0.1", "fd02::1"] {
        let address: IpAddr = address.parse().unwrap();
        let between = Between { from: &lab.a, to: &lab.b, address };
        let transfer = TcpTransfer {
            congestion: Some("cubic".to_owned()),
            duration: Duration::from_millis(150),
            least_bytes: 1 << 20,
            direction: Direction::Both,
            verify: true,
            ..TcpTransfer::default()
        };
        let report = tcp_transfer(between, &transfer, &mut unwatched).unwrap();
        assert_eq!(report.mismatch, None);
        assert!(report.forward.received_bytes() > 0 && report.backward.received_bytes() > 0);
        let sink = lab.b.run(|| std::net::UdpSocket::bind(SocketAddr::new(address, 0)).unwrap());
        let sink = sink.local_addr().unwrap();
        lab.a.run(|| send_datagrams(sink));
    }
    for address in ["10.1.0.1", "fd01::1"] {
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        let sink = lab.a.run(|| std::net::UdpSocket::bind(address).unwrap());
        // the socket accepts trains, so its kernel merges datagrams (UDP_GRO)
        quinn_udp::UdpSocketState::new(quinn_udp::UdpSockRef::from(&sink)).unwrap();
        let sink = sink.local_addr().unwrap();
        lab.b.run(|| send_datagrams(sink));
    }
}

fn send_datagrams(to: SocketAddr) {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.connect(&SockAddr::from(to)).unwrap();
    for size in (0..1200).step_by(7).chain([5000, 20_000]) {
        let payload: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
        socket.send(&payload).unwrap();
    }
    // trains, cut by the kernel or by a card that supports it (UDP_SEGMENT)
    let state = quinn_udp::UdpSocketState::new(quinn_udp::UdpSockRef::from(&socket)).unwrap();
    assert!(state.max_gso_segments() > 1);
    for size in [1, 100, 999, 1200] {
        let contents: Vec<u8> = (0..size * 30 + size / 2 + 1).map(|i| (i % 249) as u8).collect();
        let train = quinn_udp::Transmit {
            destination: to,
            ecn: None,
            contents: &contents,
            segment_size: Some(size),
            src_ip: None,
        };
        state.try_send(quinn_udp::UdpSockRef::from(&socket), &train).unwrap();
    }
}

fn differences(expected: &Packets, seen: &Packets) -> (usize, usize) {
    let missing = expected.iter().map(|(packet, n)| n.saturating_sub(*seen.get(packet).unwrap_or(&0)));
    let foreign = seen.iter().map(|(packet, n)| n.saturating_sub(*expected.get(packet).unwrap_or(&0)));
    (missing.sum(), foreign.sum())
}

/// Ends the collecting thread, even if an assertion fails.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs once. An error describes the difference, and whether a tap or the kernel reports losses of its own.
fn compare(offloads: Offloads) -> Result<(), (bool, String)> {
    let mut lab = match Lab::build(offloads) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            skipped(&format!("taps with offloads {offloads:?}: {error}"));
            return Ok(());
        }
        lab => lab.unwrap(),
    };
    let mut taps = collectors(&lab);
    let done = AtomicBool::new(false);
    let (wire, taps) = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let mut last = false;
            while !last {
                last = done.load(Ordering::Acquire);
                let mut any = false;
                for tap in &mut taps {
                    any |= tap.collect();
                }
                if !any {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            taps
        });
        let done = Done(&done);
        traffic(&lab);
        let wire = lab.finish();
        // gives packets time to travel from the wire to the near end
        std::thread::sleep(Duration::from_millis(50));
        drop(done);
        (wire, collecting.join().unwrap())
    });
    let device_drops: u64 = [&lab.a, &lab.r, &lab.b].into_iter().map(|end| end.run(device_drops)).sum();
    let total = |packets: &Packets| packets.values().sum::<usize>();
    assert!(total(&wire.outgoing) > 1000 && total(&wire.incoming) > 300);
    for tap in &taps {
        let name = &tap.name;
        let counts = tap.tap.counts();
        println!(
            "{name}: {} out, {} in, supers {:?} {:?}, {counts:?}",
            total(&tap.outgoing),
            total(&tap.incoming),
            tap.supers,
            tap.counted
        );
        assert_eq!((tap.refused, counts.unreadable, counts.oversize), (0, 0, 0), "{name}");
        let compare = |which: &str, wire: &Packets, tap: &Packets| match differences(wire, tap) {
            (0, 0) => Ok(()),
            (missing, foreign) => {
                let difference = format!("{name}, {which}: {missing} missing, {foreign} foreign packets");
                Err((counts.full > 0 || device_drops > 0, difference))
            }
        };
        if !name.contains("way back") {
            compare("outgoing", &wire.outgoing, &tap.outgoing)?;
        }
        if !name.ends_with("tun") {
            compare("incoming", &wire.incoming, &tap.incoming)?;
        }
        // the kernel knows the number of segments, except for packets that came with a virtio-net header
        let knows = tap.tap.kind() == TapKind::Ebpf && !name.contains("way back");
        assert!(tap.counted.values().all(|n| n[usize::from(knows)] == 0), "{name}: {:?}", tap.counted);
        if name.contains("cable") {
            // outgoing packets: an eBPF tap sees them before the kernel cuts them for the device, a packet
            // socket after
            let [out, back] = tap.supers.map(|supers| supers > 0);
            assert_eq!(out, offloads == Offloads::On || tap.tap.kind() == TapKind::Ebpf, "{name}");
            assert_eq!(back, offloads != Offloads::Off, "{name}");
        }
    }
    Ok(())
}

/// Compares captures with the wire, and repeats runs in which the machine itself lost packets.
///
/// On a busy machine the kernel's backlog between the two ends of a cable may overflow, or this process may
/// get too little time to read the taps. Then tap and wire differ, and the kernel's or the tap's counters
/// report it.
fn captures_are_what_the_wire_carries(offloads: Offloads) {
    // the buffers are large, so only one run may be active
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    for _ in 0..5 {
        let before = backlog_drops();
        match compare(offloads) {
            Ok(()) => return,
            Err((tap_was_full, difference)) => {
                assert!(tap_was_full || backlog_drops() != before, "{difference}");
            }
        }
    }
    panic!("expected a run without lost packets, saw none; the machine is too busy");
}

/// Returns the number of packets that this machine dropped between devices, on all processors.
fn backlog_drops() -> u64 {
    let table = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    table.lines().map(dropped).sum()
}

/// Returns the number of packets dropped by the devices of this thread's namespace; a merging cable has a
/// short queue.
fn device_drops() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let counts = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    // received bytes, packets, errors, drops and four more; then the same for sent packets
    let drops = |fields: &str| {
        let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        fields[3] + fields[11]
    };
    counts.map(|(_, fields)| drops(fields)).sum()
}

#[test]
fn with_offloads_captures_are_what_the_wire_carries() {
    if netlab::privilege::available_or_skip("taps with offloads") {
        captures_are_what_the_wire_carries(Offloads::On);
    }
}

#[test]
fn without_offloads_captures_are_what_the_wire_carries() {
    if netlab::privilege::available_or_skip("taps without offloads") {
        captures_are_what_the_wire_carries(Offloads::Off);
    }
}

#[test]
fn behind_a_merging_device_captures_are_what_the_wire_carries() {
    if netlab::privilege::available_or_skip("taps behind a merging device") {
        captures_are_what_the_wire_carries(Offloads::Merging);
    }
}

#[test]
fn behind_a_merging_device_and_with_fixed_ids_captures_are_what_the_wire_carries() {
    if netlab::privilege::available_or_skip("taps behind a merging device, fixed identifications") {
        captures_are_what_the_wire_carries(Offloads::MergingFixedIds);
    }
}
