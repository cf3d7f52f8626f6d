//! Hosts on a bridge of the real kernel: reachability and the counters of the wires.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use netlab::privilege;
use socket2::{Domain, SockRef, Socket, Type};

const PORT: u16 = 7800;
/// Far longer than needed, so that a busy machine does not matter.
const PATIENCE: Duration = Duration::from_secs(20);

fn lan(name: &str, config: &BridgeLanConfig) -> Option<BridgeLan> {
    privilege::namespaces_or_skip(name).then(|| BridgeLan::build(config).unwrap())
}

fn eth0() -> u32 {
    nix::net::if_::if_nametoindex(HOST).unwrap()
}

/// Opens a socket in a host that receives from the port, and joins the group if `join` is set.
fn listener(lan: &BridgeLan, host: usize, group: IpAddr, join: bool) -> UdpSocket {
    lan.host(host).run(|| {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, PORT)).unwrap();
        match group {
            IpAddr::V4(group) if join => {
                // by the route, as for programs that name no interface
                socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED).unwrap();
            }
            IpAddr::V6(group) if join => socket.join_multicast_v6(&group, eth0()).unwrap(),
            _ => {}
        }
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

fn sender(lan: &BridgeLan, host: usize, to: IpAddr) -> UdpSocket {
    lan.host(host).run(|| {
        let (domain, from) = match to {
            IpAddr::V4(_) => (Domain::IPV4, lan.address_v4(host)),
            IpAddr::V6(_) => (Domain::IPV6, lan.address_v6(host)),
        };
        let socket = Socket::new(domain, Type::DGRAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        match to {
            IpAddr::V4(_) => socket.set_multicast_loop_v4(false).unwrap(),
            IpAddr::V6(_) => {
                socket.set_multicast_loop_v6(false).unwrap();
                socket.set_multicast_if_v6(eth0()).unwrap();
            }
        }
        UdpSocket::from(socket)
    })
}

fn heard(socket: &UdpSocket) -> (Vec<u8>, IpAddr) {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..length].to_vec(), from.ip())
}

#[test]
fn multicast_reaches_every_member_and_unicast_one_host_over_both_ip_versions() {
    let name = "multicast_reaches_every_member_and_unicast_one_host_over_both_ip_versions";
    let Some(lan) = lan(name, &BridgeLanConfig { hosts: 4, ..BridgeLanConfig::default() }) else { return };
    assert_eq!(lan.len(), 4);
    for group in ["239.88.1.1", "ff15::88:1"] {
        let group: IpAddr = group.parse().unwrap();
        let listeners: Vec<_> = (1..4).map(|host| listener(&lan, host, group, host < 3)).collect();
        let address = |host| if group.is_ipv4() { lan.address_v4(host) } else { lan.address_v6(host) };
        assert!(lan.networks().iter().any(|network| network.contains(&address(3))));
        let socket = sender(&lan, 0, group);
        socket.send_to(b"to all", (group, PORT)).unwrap();
        for member in &listeners[..2] {
            assert_eq!(heard(member), (b"to all".to_vec(), address(0)));
        }
        // A host that is not a member receives the unicast first.
        for (index, member) in listeners.iter().enumerate() {
            let text = format!("to {}", index + 1);
            socket.send_to(text.as_bytes(), (address(index + 1), PORT)).unwrap();
            assert_eq!(heard(member), (text.into_bytes(), address(0)));
        }
    }
}

#[test]
fn wires_count_every_copy_and_carry_no_address_resolution() {
    let name = "wires_count_every_copy_and_carry_no_questions_for_neighbours";
    let Some(lan) = lan(name, &BridgeLanConfig { hosts: 5, ..BridgeLanConfig::default() }) else { return };
    let group: IpAddr = "239.88.1.1".parse().unwrap();
    let member = listener(&lan, 1, lan.address_v4(1), false);
    let socket = sender(&lan, 0, group);
    let before = lan.wires().unwrap();
    socket.send_to(&[7; 1000], (group, PORT)).unwrap();
    socket.send_to(&[7; 1000], (lan.address_v4(1), PORT)).unwrap();
    assert_eq!(heard(&member).0.len(), 1000);
    let after = lan.wires().unwrap();
    // Ethernet, IP and UDP headers
    let size = 14 + 20 + 8 + 1000;
    let carried: Vec<_> = after.iter().zip(&before).map(|(after, before)| after.since(*before)).collect();
    // IPv6 may rarely send small packets of its own; in units of large packets the lower bound is exact
    let large = |bytes: u64| bytes / size;
    assert_eq!(large(carried[0].received_bytes), 2);
    assert_eq!(large(carried[1].sent_bytes), 2);
    for wire in &carried[2..] {
        assert_eq!((large(wire.sent_bytes), large(wire.received_bytes)), (1, 0));
    }
    let table = lan.host(0).run(|| std::fs::read_to_string("/proc/thread-self/net/arp").unwrap());
    // 0x6: permanent and complete
    assert_eq!(table.lines().filter(|line| line.contains("0x6")).count(), 4, "{table}");
    let sum = lan.wires_total().unwrap();
    assert!(sum.bytes() >= 7 * size && sum.packets() >= 7, "{sum:?}");
}

#[test]
fn super_packets_are_cut_before_they_reach_the_wire_unless_they_may_stay_whole() {
    const BYTES: usize = 2_000_000;
    let name = "super_packets_are_cut_before_they_reach_the_wire_unless_they_may_stay_whole";
    for super_packets in [false, true] {
        let config = BridgeLanConfig { hosts: 2, super_packets, ..BridgeLanConfig::default() };
        let Some(lan) = lan(name, &config) else { return };
        let server = lan.host(1).run(|| TcpListener::bind((lan.address_v4(1), 0))).unwrap();
        let to = server.local_addr().unwrap();
        let before = lan.wires().unwrap()[0];
        let mut client = lan.host(0).run(|| TcpStream::connect(to)).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&vec![1; BYTES]).unwrap());
            accepted.read_exact(&mut vec![0; BYTES]).unwrap();
        });
        let packets = lan.wires().unwrap()[0].since(before).received_packets;
        assert_eq!(packets < BYTES as u64 / 1460, super_packets, "{packets}");
    }
}

#[test]
fn a_bridge_that_snoops_without_a_querier_still_reaches_members() {
    let name = "a_bridge_that_snoops_without_a_querier_still_reaches_members";
    let config = BridgeLanConfig { hosts: 3, snooping: true, ..BridgeLanConfig::default() };
    let Some(lan) = lan(name, &config) else { return };
    let group: IpAddr = "239.88.1.2".parse().unwrap();
    let member = listener(&lan, 1, group, true);
    let socket = sender(&lan, 0, group);
    SockRef::from(&socket).set_multicast_ttl_v4(1).unwrap();
    socket.send_to(&[1; 1000], (group, PORT)).unwrap();
    assert_eq!(heard(&member).0.len(), 1000);
}

#[test]
fn sixty_four_hosts_fit_and_more_are_refused() {
    let name = "sixty_four_hosts_fit_and_more_are_refused";
    for hosts in [0, 65] {
        let error = BridgeLan::build(&BridgeLanConfig { hosts, ..BridgeLanConfig::default() }).unwrap_err();
        assert!(error.to_string().contains("1 to 64"), "{error}");
    }
    let Some(lan) = lan(name, &BridgeLanConfig { hosts: 64, ..BridgeLanConfig::default() }) else { return };
    let last = listener(&lan, 63, lan.address_v4(63), false);
    for host in 0..63 {
        sender(&lan, host, lan.address_v4(63)).send_to(b"x", (lan.address_v4(63), PORT)).unwrap();
    }
    let mut from: Vec<_> = (0..63).map(|_| heard(&last).1).collect();
    from.sort();
    from.dedup();
    assert_eq!(from.len(), 63);
}
