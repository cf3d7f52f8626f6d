//! Sockets of multicast nodes, on one host and on two hosts joined by a cable.

use std::net::SocketAddr;
use std::time::Duration;

use crate::lab::groups::{
    BOTH, BUFFER, Got, PORT, address, group, join, listen, own, receive, receive_own, to, waiting,
};
use crate::lab::pair::Pair;
use netio::multicast::{
    GroupSocket, IpVersion, Joiner, Outbox, OwnConfig, OwnSocket, ReceiveCounts, Sending,
};
use netio::poll::{Interest, Poller};
use netlab::Namespace;

#[test]
fn a_group_socket_receives_exactly_the_groups_joined_on_its_host() {
    let Some(pair) = Pair::build("multicast without memberships") else { return };
    for version in BOTH {
        let [heard, unheard] = [group(version, 1), group(version, 2)];
        let mut sockets = [listen(&pair.b, version), listen(&pair.b, version)];
        let _joiner = join(&pair.b, &[heard]);
        let near = own(&pair.a, address(version, 1));
        let sending = near.sending();
        sending.send_now(to(unheard), &[b"not for us"]).unwrap();
        sending.send_now(to(heard), &[b"he", b"", b"ard"]).unwrap();
        for socket in &mut sockets {
            let expected = (near.local_address(), heard, b"heard".to_vec());
            assert_eq!(receive(socket, 1), [expected]);
            assert_eq!((socket.counts().received, socket.counts().not_multicast), (1, 0));
        }
        assert_eq!(sending.counts().sent, 2);
    }
}

#[test]
fn a_node_receives_from_its_own_host_unless_loopback_is_off() {
    let Some(pair) = Pair::build("multicast on one host") else { return };
    for version in BOTH {
        let group = group(version, 1);
        let mut sockets = [listen(&pair.a, version), listen(&pair.a, version)];
        let _joiner = join(&pair.a, &[group]);
        let mute = OwnConfig { heard_here: false, ..OwnConfig::new(address(version, 1), "eth0") };
        let mute = pair.a.run(|| OwnSocket::bind(&mute)).unwrap();
        mute.sending().send_now(to(group), &[b"unheard"]).unwrap();
        own(&pair.a, address(version, 1)).sending().send_now(to(group), &[b"heard"]).unwrap();
        for socket in &mut sockets {
            let got: Vec<_> = receive(socket, 1).into_iter().map(|(_, _, bytes)| bytes).collect();
            assert_eq!(got, [b"heard"]);
        }
    }
}

#[test]
fn the_loopback_interface_carries_multicast() {
    if !netlab::privilege::namespaces_or_skip("multicast over the loopback interface") {
        return;
    }
    let host = Namespace::create("host").unwrap();
    let version = IpVersion::V4;
    let mut socket = host.run(|| GroupSocket::bind(PORT, version, "lo", BUFFER)).unwrap();
    let mut joiner = host.run(|| Joiner::new("lo", version, 64)).unwrap();
    joiner.join(group(version, 1)).unwrap();
    let config = OwnConfig::new("127.0.0.1:0".parse().unwrap(), "lo");
    let own = host.run(|| OwnSocket::bind(&config)).unwrap();
    own.sending().send_now(to(group(version, 1)), &[b"heard"]).unwrap();
    assert_eq!(receive(&mut socket, 1), [(own.local_address(), group(version, 1), b"heard".to_vec())]);
}

#[test]
fn trains_to_groups_arrive_as_datagrams() {
    for offload in [true, false] {
        let Some(pair) = Pair::build("trains to multicast groups") else { return };
        if !offload {
            pair.a.run(|| crate::lab::switch_offloads_off("eth0")).unwrap();
        }
        for version in BOTH {
            let groups = [group(version, 1), group(version, 2)];
            let (mut near, mut far) = (listen(&pair.a, version), listen(&pair.b, version));
            let _joiners = [join(&pair.a, &groups), join(&pair.b, &groups)];
            let socket = own(&pair.a, address(version, 1));
            let mut outbox = Outbox::new(socket.sending());
            let mut sent = Vec::new();
            for n in 0..400_usize {
                let datagram = vec![n as u8; 1400 - n % 50 / 49 * 300];
                let group = groups[n / 90 % 2];
                outbox.push(to(group), &[&datagram[..7], &datagram[7..]]);
                sent.push((socket.local_address(), group, datagram));
            }
            assert_eq!(outbox.flush(), 0);
            // the kernel merges per group, so the order holds within groups only
            let sorted = |mut got: Got| {
                got.sort_by_key(|(_, group, _)| *group);
                got
            };
            let sent = sorted(sent);
            assert!(sorted(receive(&mut near, 400)) == sent, "on the same host");
            assert!(sorted(receive(&mut far, 400)) == sent, "on the other host");
            assert_eq!(socket.sending().counts().sent, 400);
        }
    }
}

#[test]
fn one_flush_reaches_many_addresses() {
    let Some(pair) = Pair::build("many destinations in one flush") else { return };
    for version in BOTH {
        let group = group(version, 1);
        let mut listener = listen(&pair.b, version);
        let _joiner = join(&pair.b, &[group]);
        let near = own(&pair.a, address(version, 1));
        let mut nodes: Vec<_> = (0..100).map(|_| own(&pair.b, address(version, 2))).collect();
        let mut outbox = Outbox::new(near.sending());
        for round in 0..3_u8 {
            for node in &nodes {
                outbox.push(node.local_address(), &[&[round]]);
            }
            outbox.push(to(group), &[&[round]]);
        }
        assert_eq!(outbox.flush(), 0);
        assert!(outbox.is_empty());
        for node in &mut nodes {
            assert_eq!(receive_own(node, 3), [[0], [1], [2]]);
        }
        assert_eq!(receive(&mut listener, 3).len(), 3);
        assert_eq!(near.sending().counts().sent, 303);
    }
}

#[test]
fn a_datagram_too_long_is_dropped_and_the_others_leave() {
    let Some(pair) = Pair::build("multicast beyond the MTU") else { return };
    for (version, header) in [(IpVersion::V4, 28), (IpVersion::V6, 48)] {
        let group = group(version, 1);
        let mut listener = listen(&pair.b, version);
        let _joiner = join(&pair.b, &[group]);
        let sending = own(&pair.a, address(version, 1)).sending();
        let (fits, beyond) = (vec![1; 1500 - header], vec![2; 1501 - header]);
        let mut outbox = Outbox::new(sending.clone());
        for datagram in [&beyond, &beyond, &fits, &beyond, &fits, &vec![3; 65_530]] {
            outbox.push(to(group), &[datagram]);
        }
        assert_eq!(outbox.flush(), 4);
        let error = sending.send_now(to(group), &[&beyond]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(receive(&mut listener, 2).len(), 2);
        assert_eq!((sending.counts().too_long, sending.counts().sent), (5, 2));
    }
}

#[test]
fn without_a_route_datagrams_are_dropped_one_by_one() {
    let Some(pair) = Pair::build("multicast without a route") else { return };
    let mut far = own(&pair.b, address(IpVersion::V4, 2));
    let sending = own(&pair.a, address(IpVersion::V4, 1)).sending();
    let nowhere = "192.0.2.1:9".parse().unwrap();
    let mut outbox = Outbox::new(sending.clone());
    for to in [nowhere, far.local_address(), nowhere, nowhere, far.local_address(), nowhere] {
        outbox.push(to, &[b"datagram"]);
    }
    assert_eq!(outbox.flush(), 4);
    assert_eq!(outbox.flush(), 0);
    assert_eq!(receive_own(&mut far, 2).len(), 2);
    assert_eq!((sending.counts().refused, sending.counts().sent), (4, 2));
}

#[test]
fn threads_send_while_another_receives() {
    let Some(pair) = Pair::build("sending from many threads") else { return };
    let mut far = own(&pair.b, address(IpVersion::V4, 2));
    let (near, to) = (own(&pair.a, address(IpVersion::V4, 1)), far.local_address());
    let send = |sending: Sending, mark: u8| {
        for _ in 0..100 {
            sending.send_now(to, &[&[mark]]).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for mark in 0..4 {
            let sending = near.sending();
            scope.spawn(move || send(sending, mark));
        }
        let got = receive_own(&mut far, 400);
        for mark in 0..4_u8 {
            assert_eq!(got.iter().filter(|datagram| datagram[..] == [mark]).count(), 100);
        }
    });
    assert_eq!(near.sending().counts().sent, 400);
}

#[test]
fn the_group_socket_drops_unicast_and_other_interfaces() {
    let Some(pair) = Pair::build("what a group socket drops") else { return };
    pair.a.add_veth("eth1", &pair.b, "eth1", 1500).unwrap();
    for (host, number) in [(&pair.a, 1), (&pair.b, 2)] {
        host.add_address("eth1", crate::lab::net(&format!("10.10.0.{number}/24"))).unwrap();
        host.add_address("eth1", crate::lab::net(&format!("fd10::{number}/64"))).unwrap();
    }
    for version in BOTH {
        let group = group(version, 1);
        let mut listener = listen(&pair.b, version);
        let _joiner = join(&pair.b, &[group]);
        let mut elsewhere = pair.b.run(|| Joiner::new("eth1", version, 1)).unwrap();
        elsewhere.join(group).unwrap();
        let other = SocketAddr::new(
            if version == IpVersion::V4 { "10.10.0.1" } else { "fd10::1" }.parse().unwrap(),
            0,
        );
        let other = pair.a.run(|| OwnSocket::bind(&OwnConfig::new(other, "eth1"))).unwrap();
        other.sending().send_now(to(group), &[b"other interface"]).unwrap();
        let near = own(&pair.a, address(version, 1)).sending();
        near.send_now((address(version, 2).ip(), PORT).into(), &[b"unicast"]).unwrap();
        near.send_now(to(group), &[b"heard"]).unwrap();
        // the two cables have no common order
        let mut expected = ReceiveCounts::default();
        (expected.received, expected.not_multicast, expected.other_interface) = (1, 1, 1);
        let mut got = Got::new();
        let mut poller = Poller::new().unwrap();
        poller.add(&listener, 1, Interest::Readable).unwrap();
        while listener.counts() != expected {
            let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
            assert!(ready > 0, "{:?}", listener.counts());
            got.extend(waiting(&mut listener));
        }
        assert_eq!(got[0].2, b"heard");
    }
}
