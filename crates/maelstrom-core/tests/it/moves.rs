//! Peers whose address is not known at first, or changes.

use maelstrom_core::observe::{EventKind, Observer};
use maelstrom_core::{Config, Gateway, PeerConfig, Trouble};

use crate::pair::{A, B, Pair, address, config, trusting, udp};

/// Gateway A without the address of its peer.
fn without_address() -> Config {
    let peer = PeerConfig { address: "0.0.0.0:4700".parse().unwrap(), ..trusting(A).peers[0].clone() };
    Config { peers: vec![peer], ..trusting(A) }
}

#[test]
fn nothing_is_sent_to_a_peer_before_its_address_is_known() {
    let mut pair = Pair::new([without_address(), trusting(B)]);
    pair.sent_datagrams = Some(Vec::new());
    pair.frozen[B] = true;
    pair.advance(5_000_000);
    assert_eq!(pair.sent_datagrams.take().unwrap().len(), 0);
    assert_eq!(pair.status(A, |peer| peer.trouble), Some(Trouble::NoAddress));
    assert!(pair.gateways[A].poll_timeout().unwrap() > pair.now_us - 200_000, "no timer runs all the time");
    pair.frozen[B] = false;
    pair.gateways[A].set_address((0, 0), address(B));
    pair.run_until_up();
    pair.advance(200_000);
    assert_eq!(pair.status(A, |peer| peer.trouble), None);
    for n in 0..16 {
        pair.send(A, &udp(A, n, b"protected"), n == 3);
    }
    pair.advance(100_000);
    assert_eq!(pair.recovered[B], [udp(A, 3, b"protected")]);
}

/// Counters and events are those of the site, whatever address its gateway has.
#[test]
fn a_peer_that_moves_keeps_its_counters_and_is_one_event() {
    let elsewhere = "203.0.113.7:4700".parse().unwrap();
    for by_reload in [false, true] {
        let mut pair = Pair::up([trusting(A), trusting(B)]);
        let mut observer = Observer::default();
        observer.observe(pair.now_us, &pair.gateways[A]);
        (0..100).for_each(|n| pair.send(A, &udp(A, n, b"before"), false));
        if by_reload {
            let peer = PeerConfig { address: elsewhere, ..trusting(A).peers[0].clone() };
            pair.gateways[A].reconfigure(Config { peers: vec![peer], ..trusting(A) }).unwrap();
        } else {
            pair.gateways[A].set_address((0, 0), elsewhere);
        }
        pair.advance(200_000);
        observer.observe(pair.now_us, &pair.gateways[A]);
        assert_eq!(pair.status(A, |peer| (peer.egress.source_packets, peer.sessions)), (100, 1));
        assert!(pair.status(A, |peer| peer.is_up), "the session continues");
        let moved = observer.journal().since(0).filter(|event| event.kind.id() == "peer_moved");
        let moved: Vec<_> =
            moved.map(|event| (event.kind.clone(), event.peer.map(|site| site.network))).collect();
        let site = Some("10.81.2.0/24".parse().unwrap());
        assert_eq!(moved, [(EventKind::Moved { to: elsewhere }, site)]);
        assert_eq!(observer.journal().since(0).filter(|event| event.kind.id() == "peer_up").count(), 1);
    }
}

#[test]
fn events_continue_when_the_networks_of_a_peer_change() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let mut observer = Observer::default();
    observer.observe(pair.now_us, &pair.gateways[A]);
    let networks = vec!["10.99.0.0/16".parse().unwrap(), "10.81.2.0/24".parse().unwrap()];
    let peer = PeerConfig { networks, ..trusting(A).peers[0].clone() };
    pair.gateways[A].reconfigure(Config { peers: vec![peer], ..trusting(A) }).unwrap();
    pair.run_until_up();
    pair.advance(1_000_000);
    observer.observe(pair.now_us, &pair.gateways[A]);
    let ups = observer.journal().since(0).filter(|event| event.kind.id() == "peer_up").count();
    assert_eq!(ups, 1, "{:?}", observer.journal().since(0).collect::<Vec<_>>());
}

#[test]
fn hellos_from_the_old_address_of_a_peer_are_those_of_a_stranger() {
    let mut pair = Pair::new([config(A), config(B)]);
    pair.gateways[A].set_address((0, 0), "203.0.113.7:4700".parse().unwrap());
    pair.advance(2_000_000);
    assert!(!pair.status(A, |peer| peer.is_up));
    assert_eq!(pair.status(A, |peer| peer.trouble), Some(Trouble::OtherAddress(address(B))));
    pair.gateways[A] = Gateway::new(config(A), [7; 32]).unwrap();
    pair.run_until_up();
}
