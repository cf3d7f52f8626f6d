//! The repair channel's socket on a real interface: MTU, missing offloads, and an interface that disappears.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use netio::poll::{Interest, Poller};
use netio::udp::RepairSocket;
use netlab::Namespace;
use socket2::SockRef;
use testkit::wait_until;

const MTU: u32 = 1500;

fn pair() -> (Namespace, Namespace) {
    let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
    a.add_veth("eth0", &b, "eth0", MTU).unwrap();
    for (host, number) in [(&a, 1), (&b, 2)] {
        host.add_address("eth0", crate::lab::net(&format!("10.9.0.{number}/24"))).unwrap();
        host.add_address("eth0", crate::lab::net(&format!("fd09::{number}/64"))).unwrap();
    }
    (a, b)
}

fn bind(host: &Namespace, address: &str) -> RepairSocket {
    let address: SocketAddr = address.parse().unwrap();
    host.run(|| RepairSocket::bind(address)).unwrap()
}

fn receive(socket: &mut RepairSocket, count: usize) -> Vec<Vec<u8>> {
    let mut poller = Poller::new().unwrap();
    poller.add(socket, 1, Interest::Readable).unwrap();
    let mut got = Vec::new();
    while got.len() < count {
        let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
        assert!(ready > 0, "{} of {count} datagrams arrived", got.len());
        socket.recv(|_, datagram| got.push(datagram.to_vec())).unwrap();
    }
    got
}

#[test]
fn trains_cross_with_offloads_and_without() {
    if !netlab::privilege::namespaces_or_skip("UDP trains") {
        return;
    }
    for offload in [true, false] {
        let (a, b) = pair();
        if !offload {
            a.run(|| crate::lab::switch_offloads_off("eth0")).unwrap();
        }
        for (near, far) in [("10.9.0.1:0", "10.9.0.2:0"), ("[fd09::1]:0", "[fd09::2]:0")] {
            let (mut a, mut b) = (bind(&a, near), bind(&b, far));
            let to = b.local_address().unwrap();
            // until addresses are resolved, the kernel queues only few packets
            a.send([(to, &b"first"[..])]);
            receive(&mut b, 1);
            let sent: Vec<Vec<u8>> =
                (0..300_usize).map(|n| vec![n as u8; 1400 - n % 50 / 49 * 300]).collect();
            assert_eq!(a.send(sent.iter().map(|datagram| (to, &datagram[..]))), 0);
            assert_eq!(receive(&mut b, sent.len()), sent);
            assert_eq!(a.counts().sent, 301);
        }
    }
}

#[test]
fn merged_datagrams_keep_their_marks() {
    if !netlab::privilege::namespaces_or_skip("marks of merged UDP datagrams") {
        return;
    }
    let (a, b) = pair();
    // Single datagrams cross the link, and the kernel merges what arrives.
    a.run(|| crate::lab::switch_offloads_off("eth0")).unwrap();
    let merge = || {
        crate::lab::switch("eth0", crate::lab::MERGING, true)
            .and_then(|()| crate::lab::wait_before_merging("eth0"))
    };
    if let Err(error) = b.run(merge) {
        eprintln!("SKIPPED: marks of merged UDP datagrams: {error}");
        return;
    }
    for (near, far) in [("10.9.0.1:0", "10.9.0.2:0"), ("[fd09::1]:0", "[fd09::2]:0")] {
        let (mut a, mut b) = (bind(&a, near), bind(&b, far));
        let to = b.local_address().unwrap();
        a.send([(to, &b"first"[..])]);
        receive(&mut b, 1);
        let sent: Vec<(u8, Vec<u8>)> =
            (0..200_u8).map(|n| (if n % 7 == 3 { 3 } else { 2 }, vec![n; 1_200])).collect();
        assert_eq!(a.send_marked(sent.iter().map(|(tos, datagram)| (to, *tos, &datagram[..]))), 0);
        let mut poller = Poller::new().unwrap();
        poller.add(&b, 1, Interest::Readable).unwrap();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let ready = poller.wait(Some(Duration::from_secs(10))).unwrap().count();
            assert!(ready > 0, "{} of {} datagrams arrived", got.len(), sent.len());
            b.recv_noted(|received, datagram| got.push((received.tos, datagram.to_vec()))).unwrap();
        }
        assert!(got == sent, "{near}: {:?}", got.iter().map(|(tos, _)| tos).collect::<Vec<_>>());
    }
}

#[test]
fn datagrams_beyond_the_mtu_are_refused_and_trains_continue() {
    if !netlab::privilege::namespaces_or_skip("UDP beyond the MTU") {
        return;
    }
    let (a, b) = pair();
    for (near, far, header) in [("10.9.0.1:0", "10.9.0.2:0", 28), ("[fd09::1]:0", "[fd09::2]:0", 48)] {
        let (mut a, mut b) = (bind(&a, near), bind(&b, far));
        let to = b.local_address().unwrap();
        let fits = vec![1; MTU as usize - header];
        let beyond = vec![2; fits.len() + 1];
        let mixed = [&beyond, &beyond, &beyond, &fits, &fits, &beyond, &fits];
        assert_eq!(a.send(mixed.map(|datagram| (to, &datagram[..]))), 4);
        assert_eq!(receive(&mut b, 3), vec![fits.clone(); 3]);
        assert_eq!((a.counts().too_long, a.counts().sent), (4, 3));
        let cut_here = a.counts().cut_here;
        assert_eq!(a.send([&fits; 60].map(|datagram| (to, &datagram[..]))), 0);
        assert_eq!(receive(&mut b, 60), vec![fits; 60]);
        assert_eq!(a.counts().cut_here, cut_here, "trains are tried again");
    }
}

#[test]
fn an_interface_that_is_down_is_not_an_error() {
    if !netlab::privilege::namespaces_or_skip("UDP while an interface is off") {
        return;
    }
    let (host, far) = pair();
    let (mut a, mut b) = (bind(&host, "10.9.0.1:0"), bind(&far, "10.9.0.2:0"));
    let to = b.local_address().unwrap();
    host.set_down("eth0").unwrap();
    assert_eq!(a.send([(to, &b"lost"[..]), (to, b"lost")]), 2);
    assert_eq!(a.counts().refused, 2);
    host.set_up("eth0").unwrap();
    assert_eq!(a.send([(to, &b"heard"[..])]), 0);
    assert_eq!(receive(&mut b, 1), [b"heard"]);
}

#[test]
fn datagrams_of_strangers_are_dropped_before_they_take_room() {
    if !netlab::privilege::namespaces_or_skip("filter of senders") {
        return;
    }
    let (a, b) = pair();
    for (near, far, own, other) in [
        ("10.9.0.2:0", "10.9.0.1:0", "10.9.0.1", "10.9.0.77"),
        ("[fd09::2]:0", "[fd09::1]:0", "fd09::1", "fd09::77"),
    ] {
        let (mut receiver, mut sender) = (bind(&b, near), bind(&a, far));
        let to = receiver.local_address().unwrap();
        receiver.accept_from(&[other.parse().unwrap()]).unwrap();
        let mut arrived = 0;
        for _ in 0..1_600 {
            sender.send([(to, &b"stranger"[..])]);
        }
        receiver.accept_from(&[other.parse().unwrap(), own.parse().unwrap()]).unwrap();
        sender.send([(to, &b"peer"[..])]);
        let mut poller = Poller::new().unwrap();
        poller.add(&receiver, 1, Interest::Readable).unwrap();
        let mut is_over = false;
        while !is_over {
            assert!(
                poller.wait(Some(Duration::from_secs(10))).unwrap().count() > 0,
                "the peer's datagram arrives"
            );
            receiver
                .recv(|_, datagram| if datagram == b"peer" { is_over = true } else { arrived += 1 })
                .unwrap();
        }
        // One in sixteen, by chance.
        assert!((20..400).contains(&arrived), "{arrived} of 1600 strangers' datagrams passed");
    }
}

#[test]
fn datagrams_that_find_the_buffer_full_are_counted_and_those_of_strangers_are_not() {
    if !netlab::privilege::namespaces_or_skip("UDP beyond the buffer") {
        return;
    }
    let (a, b) = pair();
    for (near, far, other) in
        [("10.9.0.1:0", "10.9.0.2:0", "10.9.0.77"), ("[fd09::1]:0", "[fd09::2]:0", "fd09::77")]
    {
        let (mut sender, mut receiver) = (bind(&a, near), bind(&b, far));
        let to = receiver.local_address().unwrap();
        sender.send([(to, &b"first"[..])]);
        receive(&mut receiver, 1);
        SockRef::from(&receiver).set_recv_buffer_size(1 << 14).unwrap();
        assert_eq!(receiver.overflowed(), 0);
        // One by one, because a train is dropped as a whole.
        let mut send = |count| (0..count).for_each(|_| assert_eq!(sender.send([(to, &b"one"[..])]), 0));
        send(400);
        let mut read = 0;
        wait_until("each datagram is read or counted", || {
            receiver.recv(|_, _| read += 1).unwrap();
            read + receiver.overflowed() == 400
        });
        let before = receiver.overflowed();
        assert!(before > 0 && read > 0, "{before} of 400 found no room, {read} were read");
        receiver.accept_from(&[other.parse().unwrap()]).unwrap();
        send(1_600);
        receiver.accept_from_all();
        assert_eq!(receiver.overflowed(), before, "strangers");
        send(400);
        let beyond = receiver.overflowed() - before;
        assert!((1..=400).contains(&beyond), "{beyond} of 400 found no room");
        let adopted = RepairSocket::adopt(receiver.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(adopted.overflowed(), 0, "those of another process");
    }
}
