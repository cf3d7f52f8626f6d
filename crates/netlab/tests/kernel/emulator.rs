//! The emulated link under the traffic of real kernels.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use loss::LossModel;
use netlab::Direction;
use netlab::Emulator;
use netlab::EmulatorConfig;
use netlab::Namespace;
use netlab::TwoSites;
use netlab::TwoSitesConfig;
use netlab::drop_log::{packet_hash, read_drop_log};
use netlab::privilege;
use netlab::traffic::{Between, Pace, TcpTransfer, UdpStream, now_us, tcp_transfer, udp_stream, unwatched};
use simnet::LinkConfig;
use simnet::link::Fate;
use testkit::wait_until;

const NEAR: Ipv6Addr = Ipv6Addr::new(0xfd81, 0, 0, 9, 0, 0, 0, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0xfd81, 0, 0, 9, 0, 0, 0, 2);

/// Two namespaces with only the link between them.
struct Line {
    link: Emulator,
    a: Namespace,
    b: Namespace,
}

impl Line {
    fn build(config: &EmulatorConfig) -> Self {
        let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
        let link = Emulator::start(&a, &b, config).unwrap();
        for (end, v4, v6) in [(&a, "10.81.9.1/24", NEAR), (&b, "10.81.9.2/24", FAR)] {
            end.add_address(&config.interface, v4.parse().unwrap()).unwrap();
            end.add_address(&config.interface, format!("{v6}/64").parse().unwrap()).unwrap();
        }
        Self { link, a, b }
    }

    fn between(&self, address: &str) -> Between<'_> {
        Between { from: &self.a, to: &self.b, address: address.parse().unwrap() }
    }
}

fn millis(milliseconds: u64) -> LinkConfig {
    LinkConfig { delay_us: milliseconds * 1_000, ..LinkConfig::default() }
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("netlab-{name}-{}.csv", std::process::id()))
}

fn bind(namespace: &Namespace, address: impl Into<IpAddr>, port: u16) -> UdpSocket {
    let address = SocketAddr::new(address.into(), port);
    let socket = namespace.run(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

#[test]
fn every_host_reaches_every_host_of_the_other_site() {
    if !privilege::available_or_skip("every_host_reaches_every_host_of_the_other_site") {
        return;
    }
    let config = TwoSitesConfig { hosts: 3, ..TwoSitesConfig::default() };
    let sites = TwoSites::build(&config, &EmulatorConfig::symmetric(millis(1))).unwrap();
    for (near, far) in (0..9).map(|pair| (pair / 3, pair % 3)) {
        let pairs =
            [(sites.a.host_v4(near), sites.b.host_v4(far)), (sites.a.host_v6(near), sites.b.host_v6(far))];
        for (from, to) in pairs {
            let sender = bind(&sites.a.hosts[near], from, 0);
            let receiver = bind(&sites.b.hosts[far], to, 0);
            let mut buffer = [0; 64];
            sender.send_to(b"question", receiver.local_addr().unwrap()).unwrap();
            let (length, asker) = receiver.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..length], asker), (&b"question"[..], sender.local_addr().unwrap()));
            receiver.send_to(b"answer", asker).unwrap();
            let length = sender.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"answer");
        }
    }
}

#[test]
fn a_round_trip_takes_at_least_the_delay_of_both_ways() {
    if !privilege::available_or_skip("a_round_trip_takes_the_delay_of_both_ways_at_least") {
        return;
    }
    let line = Line::build(&EmulatorConfig::symmetric(millis(20)));
    let (near, far) = (bind(&line.a, NEAR, 0), bind(&line.b, FAR, 0));
    let mut buffer = [0; 64];
    for _ in 0..5 {
        let start_us = now_us();
        near.send_to(b"ping", far.local_addr().unwrap()).unwrap();
        let (length, asker) = far.recv_from(&mut buffer).unwrap();
        assert!(now_us() - start_us >= 20_000);
        far.send_to(&buffer[..length], asker).unwrap();
        near.recv(&mut buffer).unwrap();
        assert!(now_us() - start_us >= 40_000);
    }
}

#[test]
fn tcp_arrives_bit_for_bit_through_loss_reordering_and_corruption() {
    if !privilege::available_or_skip("tcp_arrives_bit_for_bit_through_loss_disorder_and_corruption") {
        return;
    }
    let rough = LinkConfig {
        rate_bps: Some(200_000_000),
        jitter_us: 300,
        loss: LossModel::Uniform(0.002),
        reorder: Some("0.002:1ms".parse().unwrap()),
        duplicate: 0.002,
        corrupt: 0.002,
        ..millis(1)
    };
    for offload in [true, false] {
        let line = Line::build(&EmulatorConfig { offload, ..EmulatorConfig::symmetric(rough.clone()) });
        for address in ["10.81.9.2", "fd81:0:0:9::2"] {
            let plan = TcpTransfer {
                congestion: Some("cubic".to_owned()),
                duration: Duration::from_secs(1),
                least_bytes: 5_000_000,
                ..TcpTransfer::default()
            };
            let report = tcp_transfer(line.between(address), &plan, &mut unwatched).unwrap();
            assert_eq!(report.mismatch, None);
            assert!(report.forward.received_bytes() > 100_000, "{report:?}");
        }
        let counters = line.link.counters(Direction::AToB);
        let link = counters.link;
        assert!(link.lost > 0 && link.duplicated > 0 && link.corrupted > 0 && link.reordered > 0, "{link:?}");
        assert_eq!((counters.uncut, link.overflow), (0, 0), "{counters:?}");
    }
}

/// Returns a UDP packet as the kernel of `NEAR` puts it on the wire.
fn udp_packet(from_port: u16, to_port: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let mut udp = Vec::new();
    for field in [from_port, to_port, length, 0] {
        udp.extend_from_slice(&field.to_be_bytes());
    }
    udp.extend_from_slice(payload);
    let pseudo =
        [&NEAR.octets()[..], &FAR.octets()[..], &u32::from(length).to_be_bytes(), &[0, 0, 0, 17]].concat();
    let mut sum: u32 = [pseudo, udp.clone()]
        .concat()
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !u16::try_from(sum).unwrap() {
        0 => 0xffff,
        checksum => checksum,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    let header =
        [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[17, 64], &NEAR.octets(), &FAR.octets()].concat();
    [header, udp].concat()
}

#[test]
fn the_drop_log_lists_exactly_the_missing_packets() {
    const PACKETS: u32 = 5_000;
    if !privilege::available_or_skip("the_drop_log_names_exactly_the_packets_that_are_missing") {
        return;
    }
    let log = temporary("ground-truth");
    let a_to_b = LinkConfig { loss: LossModel::bursty(0.1, 5).unwrap(), ..millis(1) };
    let config = EmulatorConfig {
        a_to_b,
        b_to_a: millis(1),
        drop_log: Some(log.clone()),
        ..EmulatorConfig::symmetric(millis(1))
    };
    let line = Line::build(&config);
    line.a.sysctl("net.ipv6.auto_flowlabels", "0").unwrap();
    let (near, far) = (bind(&line.a, NEAR, 4001), bind(&line.b, FAR, 4002));
    let payload = |number: u32| {
        let length = 4 + number as usize % 1_000;
        [&number.to_be_bytes()[..], &vec![7; length]].concat()
    };
    let mut arrived = HashSet::new();
    let mut receive = |wait_ms| {
        let mut buffer = [0; 2048];
        far.set_read_timeout(Some(Duration::from_millis(wait_ms))).unwrap();
        while let Ok(length) = far.recv(&mut buffer) {
            let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            assert_eq!(buffer[..length], payload(number));
            assert!(arrived.insert(number), "{number} arrived twice");
        }
    };
    for number in 0..PACKETS {
        near.send_to(&payload(number), far.local_addr().unwrap()).unwrap();
        if number % 50 == 49 {
            // Not faster than the link accepts packets, or a busy machine would lose some before the link.
            wait_until("the link has taken the packets", || {
                line.link.counters(Direction::AToB).link.offered_packets > u64::from(number)
            });
            receive(1);
        }
    }
    receive(500);
    let [forward, _] = line.link.stop().unwrap();
    assert_eq!((forward.device_drops, forward.refused, forward.uncut), (0, 0, 0));
    let records = read_drop_log(&log).unwrap();
    fs::remove_file(&log).unwrap();
    assert!(records.iter().all(|record| record.fate == Fate::Lost && record.direction == Direction::AToB));
    assert_eq!(forward.link.lost, records.len() as u64);
    let logged: HashSet<u64> = records.iter().map(|record| record.hash).collect();
    let lost = |number: &u32| logged.contains(&packet_hash(&udp_packet(4001, 4002, &payload(*number))));
    let expected: HashSet<u32> = (0..PACKETS).filter(|number| !lost(number)).collect();
    let differ: Vec<_> = arrived.symmetric_difference(&expected).take(10).collect();
    assert!(differ.is_empty(), "missing packets and records differ: {differ:?} …");
    // 10 % in bursts of 5; the kernel itself sends only a few packets.
    let missing = PACKETS as usize - arrived.len();
    assert!((300..=750).contains(&missing), "{missing}");
    assert!((missing..missing + 10).contains(&records.len()), "{missing} {}", records.len());
}

#[test]
fn packets_beyond_the_rate_wait_and_then_drop_and_are_counted() {
    if !privilege::available_or_skip("packets_beyond_the_rate_wait_and_then_drop_and_are_counted") {
        return;
    }
    let slow = LinkConfig { rate_bps: Some(10_000_000), queue_bytes: Some(100_000), ..millis(1) };
    let line = Line::build(&EmulatorConfig::symmetric(slow));
    let plan = UdpStream {
        pace: Pace::Bits(40e6),
        payload_bytes: 1200,
        duration: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let report = udp_stream(line.between("10.81.9.2"), &plan, &mut unwatched).unwrap();
    let counters = line.link.counters(Direction::AToB);
    let (missing, dropped) = (report.missing() as u64, counters.link.queue_full + counters.device_drops);
    assert!(counters.link.queue_full > 100, "{counters:?}");
    assert_eq!(counters.link.offered_packets, counters.link.delivered_packets + counters.link.queue_full);
    // A few of the kernel's own packets may be among those dropped.
    assert!((missing..missing + 10).contains(&dropped), "{missing} {counters:?}");
}

#[test]
fn the_loss_model_changes_while_the_link_runs() {
    if !privilege::available_or_skip("the_loss_model_changes_while_the_link_runs") {
        return;
    }
    let line = Line::build(&EmulatorConfig::symmetric(millis(1)));
    let (near, far) = (bind(&line.a, NEAR, 0), bind(&line.b, FAR, 0));
    let mut buffer = [0; 64];
    near.send_to(b"before", far.local_addr().unwrap()).unwrap();
    assert_eq!(far.recv(&mut buffer).unwrap(), 6);
    line.link.set_loss(Direction::AToB, &LossModel::Uniform(1.0));
    // The change takes effect with the thread's next turn: after the first loss, every packet is lost.
    let mut sent = 1;
    wait_until("a packet is lost", || {
        sent += 1;
        near.send_to(b"x", far.local_addr().unwrap()).unwrap();
        line.link.counters(Direction::AToB).link.lost > 0
    });
    near.send_to(b"during", far.local_addr().unwrap()).unwrap();
    wait_until("the link has taken the packet", || {
        line.link.counters(Direction::AToB).link.offered_packets > sent
    });
    line.link.set_loss(Direction::AToB, &LossModel::None);
    far.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut heard = Vec::new();
    wait_until("a packet arrives", || {
        near.send_to(b"after", far.local_addr().unwrap()).unwrap();
        heard.extend(far.recv(&mut buffer).map(|length| buffer[..length].to_vec()));
        heard.last().is_some_and(|last| last == b"after")
    });
    assert!(!heard.iter().any(|message| message == b"during"));
}

#[test]
fn a_device_that_goes_down_and_up_is_served_again() {
    if !privilege::available_or_skip("a_device_that_goes_down_and_up_again_is_served_again") {
        return;
    }
    let line = Line::build(&EmulatorConfig::symmetric(millis(1)));
    let exchange = || {
        let (near, far) = (bind(&line.a, [10, 81, 9, 1], 0), bind(&line.b, [10, 81, 9, 2], 0));
        near.send_to(b"hello", far.local_addr().unwrap()).unwrap();
        assert_eq!(far.recv(&mut [0; 64]).unwrap(), 5);
    };
    exchange();
    for end in [&line.a, &line.b] {
        end.set_down("wan0").unwrap();
        std::thread::sleep(Duration::from_millis(10));
        end.set_up("wan0").unwrap();
        exchange();
    }
}

#[test]
fn nothing_is_left_however_a_link_ends() {
    if !privilege::available_or_skip("nothing_is_left_when_a_link_ends_in_whatever_way") {
        return;
    }
    let config = EmulatorConfig::symmetric(millis(50));
    let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
    for way in 0..3 {
        let link = Emulator::start(&a, &b, &config).unwrap();
        assert_eq!(a.interfaces().unwrap(), ["lo", "wan0"]);
        let twice = Emulator::start(&a, &b, &config).unwrap_err().to_string();
        assert!(twice.contains("wan0"), "{twice}");
        match way {
            0 => drop(link.stop().unwrap()),
            1 => drop(link),
            _ => {
                let panic = std::thread::spawn(move || {
                    let _kept = link;
                    panic!("a failing test");
                });
                assert!(panic.join().is_err());
            }
        }
        // Each thread holds both devices, so they disappear only when both threads have ended. A process that
        // another test starts holds them for a moment.
        wait_until("both devices are gone", || {
            [&a, &b].iter().all(|site| site.interfaces().unwrap() == ["lo"])
        });
    }
}

#[test]
fn wrong_settings_are_refused_before_anything_is_made() {
    if !privilege::available_or_skip("wrong_settings_are_refused_before_anything_is_made") {
        return;
    }
    let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
    let config = EmulatorConfig::symmetric(LinkConfig { duplicate: 2.0, ..millis(1) });
    assert!(Emulator::start(&a, &b, &config).unwrap_err().to_string().contains("duplicate"));
    let config =
        EmulatorConfig { drop_log: Some("/no/such/dir/log".into()), ..EmulatorConfig::symmetric(millis(1)) };
    assert!(Emulator::start(&a, &b, &config).unwrap_err().to_string().contains("/no/such/dir/log"));
    let config = EmulatorConfig {
        interface: "a-name-that-is-too-long".to_owned(),
        ..EmulatorConfig::symmetric(millis(1))
    };
    assert!(Emulator::start(&a, &b, &config).unwrap_err().to_string().contains("a-name-that-is-too-long"));
    assert_eq!(a.interfaces().unwrap(), ["lo"]);
    let hosts = TwoSites::build(
        &TwoSitesConfig { hosts: 0, ..TwoSitesConfig::default() },
        &EmulatorConfig::symmetric(millis(1)),
    );
    assert!(hosts.unwrap_err().to_string().contains("hosts"));
}
