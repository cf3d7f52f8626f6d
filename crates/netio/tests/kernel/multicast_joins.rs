//! Memberships of multicast nodes and limits of their sockets, while interfaces come and go.

use std::net::IpAddr;

use crate::lab::groups::{BOTH, BUFFER, PORT, address, group, join, listen, own, receive, to, waiting};
use crate::lab::pair::Pair;
use netio::interface::Interface;
use netio::multicast::{
    GroupSocket, InterfaceFacts, IpVersion, JoinError, Joiner, Limits, OpenError, Outbox, OwnConfig,
    OwnSocket,
};
use netlab::Namespace;

#[test]
fn memberships_survive_an_interface_that_is_down() {
    for version in BOTH {
        let Some(pair) = Pair::build("an interface that is off for a while") else { return };
        let group = group(version, 1);
        let mut listener = listen(&pair.b, version);
        let mut joiner = join(&pair.b, &[group]);
        let sending = own(&pair.b, address(version, 2)).sending();
        pair.b.set_down("eth0").unwrap();
        let _ = sending.send_now(to(group), &[b"off"]);
        pair.b.set_up("eth0").unwrap();
        if version == IpVersion::V6 {
            // the address is lost when the interface goes down
            pair.b.add_address("eth0", crate::lab::net("fd09::2/64")).unwrap();
        }
        let sending = own(&pair.b, address(version, 2)).sending();
        sending.send_now(to(group), &[b"on"]).unwrap();
        let got: Vec<_> = receive(&mut listener, 1).into_iter().map(|(_, _, bytes)| bytes).collect();
        assert_eq!(got.last().unwrap(), b"on", "{got:?}");
        assert!(joiner.leave(group).unwrap());
    }
}

#[test]
fn a_recreated_interface_is_used_once_its_index_is_set() {
    for version in BOTH {
        let Some(pair) = Pair::build("an interface that is made again") else { return };
        let [mut listener, mut others] = [&pair.b, &pair.a].map(|host| listen(host, version));
        let mut joiner = join(&pair.b, &[group(version, 1), group(version, 2)]);
        let sending = own(&pair.b, address(version, 2)).sending();
        pair.a.delete_interface("eth0").unwrap();
        pair.lay_cable();
        let index = |host: &Namespace| host.run(|| Interface::index_of("eth0")).unwrap().unwrap();
        let now = index(&pair.b);
        listener.set_interface(now);
        joiner.set_interface(now).unwrap();
        sending.set_interface(now).unwrap();
        others.set_interface(index(&pair.a));
        let _joiner = join(&pair.a, &[group(version, 1)]);
        for number in [1, 2] {
            let far = own(&pair.a, address(version, 1));
            far.sending().send_now(to(group(version, number)), &[b"to b"]).unwrap();
            let got = receive(&mut listener, 1);
            assert_eq!(got.last().unwrap().2, b"to b", "{got:?}");
        }
        sending.send_now(to(group(version, 1)), &[b"to a"]).unwrap();
        assert!(receive(&mut others, 1).iter().any(|(_, _, bytes)| bytes == b"to a"));
        assert_eq!(joiner.groups().count(), 2);
        assert!(joiner.leave(group(version, 1)).unwrap());
    }
}

#[test]
fn link_local_groups_are_received() {
    let Some(pair) = Pair::build("multicast within the network") else { return };
    for (version, group) in [(IpVersion::V4, "224.0.0.200"), (IpVersion::V6, "ff02::4711")] {
        let group: IpAddr = group.parse().unwrap();
        let mut listener = listen(&pair.b, version);
        let _joiner = join(&pair.b, &[group]);
        let near = own(&pair.a, address(version, 1));
        near.sending().send_now(to(group), &[b"heard"]).unwrap();
        assert_eq!(receive(&mut listener, 1), [(near.local_address(), group, b"heard".to_vec())]);
    }
}

#[test]
fn memberships_end_with_their_interface() {
    let Some(pair) = Pair::build("an interface that goes") else { return };
    for version in BOTH {
        let mut joiner = join(&pair.b, &[group(version, 1)]);
        pair.a.delete_interface("eth0").unwrap();
        let error = joiner.join(group(version, 2)).unwrap_err();
        assert!(matches!(error, JoinError::Interface { .. }), "{error:?}");
        assert!(joiner.leave(group(version, 1)).unwrap());
        pair.lay_cable();
    }
}

#[test]
fn a_full_send_buffer_drops_datagrams() {
    let Some(pair) = Pair::build("a full send buffer") else { return };
    let config = OwnConfig { send_buffer_bytes: 5_000, ..OwnConfig::new(address(IpVersion::V4, 1), "eth0") };
    let socket = pair.a.run(|| OwnSocket::bind(&config)).unwrap();
    assert!(socket.send_buffer_bytes() < 50_000);
    let (mut outbox, sending) = (Outbox::new(socket.sending()), socket.sending());
    // the kernel queues datagrams to this address until address resolution fails
    let nobody = "10.9.0.99:9".parse().unwrap();
    for len in 1..=100 {
        outbox.push(nobody, &[&vec![0; 1000 + len]]);
    }
    let dropped = outbox.flush();
    let counts = sending.counts();
    assert!((1..100).contains(&counts.sent), "{counts:?}");
    assert_eq!((counts.sent + counts.full, counts.full), (100, dropped));
    let error = sending.send_now(nobody, &[&[0; 1400]]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(sending.counts().full, dropped + 1);
}

#[test]
fn drops_of_a_full_receive_buffer_are_counted() {
    let Some(pair) = Pair::build("a full receive buffer") else { return };
    for version in BOTH {
        let group = group(version, 1);
        let mut listener = pair.b.run(|| GroupSocket::bind(PORT, version, "eth0", 20_000)).unwrap();
        assert!((4_000..40_000).contains(&listener.receive_buffer_bytes()));
        let _joiner = join(&pair.b, &[group]);
        let sending = own(&pair.a, address(version, 1)).sending();
        let send = |count: u64| (0..count).for_each(|_| sending.send_now(to(group), &[&[1; 1000]]).unwrap());
        send(100);
        let before = waiting(&mut listener).len() as u64;
        assert!((1..100).contains(&before), "{before}");
        // the next datagram carries the count
        send(1);
        let got = before + receive(&mut listener, 1).len() as u64;
        assert_eq!(listener.counts().received, got);
        assert_eq!(listener.counts().overflowed, 101 - got);
    }
}

#[test]
fn more_groups_than_a_socket_may_join_use_more_sockets() {
    let Some(pair) = Pair::build("more memberships than a socket may hold") else { return };
    for version in BOTH {
        let groups: Vec<IpAddr> = (1..=64).map(|number| group(version, number)).collect();
        let mut listener = listen(&pair.b, version);
        let mut joiner = join(&pair.b, &groups);
        assert_eq!(joiner.sockets(), if version == IpVersion::V4 { 4 } else { 1 });
        assert!(!joiner.join(groups[40]).unwrap(), "a group is joined once");
        let error = joiner.join(group(version, 65)).unwrap_err();
        assert!(matches!(error, JoinError::TooMany { groups_max: 64, .. }), "{error}");

        let mut outbox = Outbox::new(own(&pair.a, address(version, 1)).sending());
        let mut send_to_all = || {
            groups.iter().for_each(|&group| outbox.push(to(group), &[b"all"]));
            assert_eq!(outbox.flush(), 0);
        };
        send_to_all();
        assert_eq!(receive(&mut listener, 64).len(), 64);
        for group in &groups[1..63] {
            assert!(joiner.leave(*group).unwrap());
            assert!(!joiner.leave(*group).unwrap());
        }
        send_to_all();
        let got: Vec<_> = receive(&mut listener, 2).into_iter().map(|(_, group, _)| group).collect();
        assert_eq!(got, [groups[0], groups[63]]);
        for &group in &groups[1..63] {
            assert!(joiner.join(group).unwrap(), "a membership is free again");
        }
        assert_eq!(joiner.groups().count(), 64);
    }
}

#[test]
fn the_limit_that_is_hit_is_named() {
    if !netlab::privilege::namespaces_or_skip("limits of memberships") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    host.sysctl("net.ipv4.igmp_max_memberships", "1").unwrap();
    let mut joiner = host.run(|| Joiner::new("lo", IpVersion::V4, 3)).unwrap();
    for number in 1..=3 {
        host.run(|| joiner.join(group(IpVersion::V4, number))).unwrap();
    }
    assert_eq!(joiner.sockets(), 3);
    host.sysctl("net.ipv4.igmp_max_memberships", "0").unwrap();
    let mut joiner = host.run(|| Joiner::new("lo", IpVersion::V4, 3)).unwrap();
    let error = host.run(|| joiner.join(group(IpVersion::V4, 1))).unwrap_err();
    assert!(error.to_string().contains("sysctl -w net.ipv4.igmp_max_memberships=20"), "{error}");
    for wrong in ["10.0.0.1", "ff15::1"] {
        let error = joiner.join(wrong.parse().unwrap()).unwrap_err();
        assert!(matches!(error, JoinError::NotAGroup { .. }), "{error}");
    }
}

#[test]
fn a_socket_that_cannot_be_opened_names_the_reason() {
    let Some(pair) = Pair::build("sockets that cannot be made") else { return };
    let bind = |address: &str, interface: &str| {
        let config = OwnConfig::new(address.parse().unwrap(), interface);
        pair.a.run(|| OwnSocket::bind(&config)).map(drop).unwrap_err()
    };
    let error = bind("10.9.0.1:0", "eth7");
    assert!(matches!(error, OpenError::Interface { .. }), "{error}");
    let error = bind("10.9.0.77:0", "eth0");
    assert!(matches!(error, OpenError::Address(_)), "{error}");
    let taken = own(&pair.a, address(IpVersion::V4, 1));
    let error = bind(&taken.local_address().to_string(), "eth0");
    assert!(matches!(error, OpenError::PortTaken(_)), "{error}");
    let _alone = pair.a.run(|| std::net::UdpSocket::bind(("0.0.0.0", PORT))).unwrap();
    let error = pair.a.run(|| GroupSocket::bind(PORT, IpVersion::V4, "eth0", BUFFER)).map(drop).unwrap_err();
    assert!(error.to_string().contains("ss -ulnp"), "{error}");
    let error = GroupSocket::bind(0, IpVersion::V4, "lo", BUFFER).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::NoPort), "{error}");
}

#[test]
fn limits_are_those_of_the_calling_threads_namespace() {
    let Some(pair) = Pair::build("limits of a namespace") else { return };
    for (key, value) in [
        ("net.ipv4.igmp_max_memberships", "7"),
        ("net.ipv4.ip_local_port_range", "20000 30000"),
        ("net.ipv4.ip_local_reserved_ports", "25000,26000-26010"),
        ("net.ipv4.conf.eth0.rp_filter", "2"),
    ] {
        pair.a.sysctl(key, value).unwrap();
    }
    let limits = pair.a.run(|| Limits::read("eth0")).unwrap();
    let other = pair.b.run(|| Limits::read("eth0")).unwrap();
    assert_eq!(limits.igmp_max_memberships, Some(7));
    assert_ne!(other.igmp_max_memberships, Some(7));
    assert_eq!(limits.ephemeral_ports, Some(20_000..=30_000));
    for (port, is_ephemeral) in
        [(19_999, false), (20_000, true), (25_000, false), (26_005, false), (26_011, true), (30_001, false)]
    {
        assert_eq!(limits.is_ephemeral(port), Some(is_ephemeral), "{port}");
    }
    assert_eq!((limits.reverse_path_filter, other.reverse_path_filter.is_some()), (Some(2), true));
    assert!(limits.optmem_max_bytes.is_some_and(|bytes| bytes > 1000));
    for buffer in [limits.receive_buffer, limits.send_buffer] {
        assert!(buffer.max_bytes >= 4096 && buffer.default_bytes >= 4096, "{buffer:?}");
    }

    let facts = &limits.interface;
    assert!(facts.is_up && facts.is_running && facts.is_multicast && !facts.is_loopback);
    assert_eq!((facts.mtu_bytes, &facts.name[..], &facts.bridge), (1500, "eth0", &None));
    for address in [address(IpVersion::V4, 1), address(IpVersion::V6, 1)] {
        assert!(facts.addresses.contains(&address.ip()), "{:?}", facts.addresses);
    }
    pair.a.set_down("eth0").unwrap();
    let facts = pair.a.run(|| InterfaceFacts::read("eth0")).unwrap();
    assert!(!facts.is_up && !facts.is_running);
    let error = pair.a.run(|| Limits::read("eth7")).unwrap_err();
    assert!(matches!(error, OpenError::Interface { .. }), "{error}");
}

#[test]
fn granted_buffers_match_the_limits() {
    let Some(pair) = Pair::build("granted buffers") else { return };
    let limits = pair.a.run(|| Limits::read("eth0")).unwrap();
    let requested = limits.receive_buffer.max_bytes + (1 << 20);
    let socket = pair.a.run(|| GroupSocket::bind(PORT, IpVersion::V4, "eth0", requested)).unwrap();
    let expected = if limits.receive_buffer.may_exceed { requested } else { limits.receive_buffer.max_bytes };
    assert_eq!(socket.receive_buffer_bytes(), expected);
}

#[test]
fn bridges_are_seen_from_their_ports_and_as_themselves() {
    let Some(pair) = Pair::build("bridges") else { return };
    let read = |name: &str| pair.a.run(|| InterfaceFacts::read(name)).unwrap().bridge;
    if let Err(error) = pair.a.add_bridge("br0", 1500) {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "SKIPPED: bridges: {error}");
        return;
    }
    assert_eq!(read("eth0"), None);
    pair.a.set_bridge("eth0", "br0").unwrap();
    let [port, bridge] = ["eth0", "br0"].map(|name| read(name).unwrap());
    assert_eq!((&port.name[..], port.is_port, bridge.is_port), ("br0", true, false));
    assert!(port.snooping && !port.querier && port.querier_v4.is_none(), "{port:?}");
    assert!(port.groups_max.is_some_and(|groups| groups > 0));
    let settings = [("multicast_querier", "1"), ("multicast_snooping", "0")]
        .map(|(name, value)| (format!("class/net/br0/bridge/{name}"), value));
    let settings = settings.each_ref().map(|(path, value)| (&path[..], *value));
    pair.a.run(|| crate::lab::write_sysfs(&settings)).unwrap();
    for facts in ["eth0", "br0"].map(|name| read(name).unwrap()) {
        assert!(!facts.snooping && facts.querier, "{facts:?}");
    }
}
