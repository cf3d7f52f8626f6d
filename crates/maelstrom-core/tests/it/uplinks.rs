//! Sessions that begin by any of several uplinks, also where nothing states the addresses of a site.

use std::net::SocketAddr;

use crate::pair::{A, B, Pair, address, address_on, two_paths, udp};
use maelstrom_core::{Config, Gateway, PathConfig, PathUse, PeerConfig, Source, Trouble, Whereabouts};

const MS: u64 = 1_000;

/// An address that is not known.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

/// Address of an uplink behind a NAT.
fn place(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, (port % 7) as u8 + 1], port))
}

fn with_peer(side: usize, peer: PeerConfig) -> Config {
    Config { peers: vec![peer], ..two_paths(side, PathUse::Failover) }
}

/// A path on which the peer may be anywhere.
fn anywhere(door: usize) -> PathConfig {
    PathConfig { door, address: nowhere(), whereabouts: Whereabouts::Unstated }
}

/// A gateway that knows no address of its peer, and whose second path ends at this socket.
fn server(door: usize) -> Config {
    let peer = two_paths(A, PathUse::Failover).peers.remove(0);
    let (address, whereabouts, paths) = (nowhere(), Whereabouts::Unstated, vec![anywhere(door)]);
    with_peer(A, PeerConfig { address, whereabouts, paths, ..peer })
}

/// A gateway with two uplinks to one address of its peer, or to two.
fn site(addresses: usize) -> Config {
    let peer = two_paths(B, PathUse::Failover).peers.remove(0);
    let address = address_on(addresses - 1, A);
    let paths = vec![PathConfig { door: 1, address, whereabouts: Whereabouts::Stated }];
    with_peer(B, PeerConfig { paths, ..peer })
}

/// Two gateways, the second of which has two uplinks behind NATs. No session has begun.
fn pair_of(server: Config, site: Config) -> Pair {
    let doors = [0, server.peers[0].paths[0].door];
    let mut pair = Pair::new([server, site]);
    pair.doors[A] = doors;
    pair.places[A][1] = address_on(doors[1], A);
    pair.places[B] = [place(20_000), place(20_001)];
    pair.path_us = [10 * MS, 25 * MS];
    pair
}

/// Two gateways whose second path ends at this socket of the first.
fn at_door(door: usize) -> Pair {
    pair_of(server(door), site(1 + door))
}

fn is_up(pair: &Pair) -> bool {
    [A, B].iter().all(|&side| pair.status(side, |peer| peer.is_up))
}

fn places(pair: &Pair) -> [SocketAddr; 2] {
    pair.status(A, |peer| [peer.config.address, peer.config.paths[0].address])
}

fn alive(pair: &Pair, side: usize) -> Vec<bool> {
    pair.status(side, |peer| peer.paths.iter().map(|path| path.is_alive).collect())
}

/// Asserts that packets arrive in both directions.
fn assert_carries(pair: &mut Pair) {
    for from in [A, B] {
        let before = pair.recovered[1 - from].len();
        for n in 0..100 {
            pair.send_by_tunnel(from, &[udp(from, n, b"a packet of a host")]);
            pair.advance(MS);
        }
        pair.advance(200 * MS);
        assert_eq!(pair.recovered[1 - from].len() - before, 100);
    }
}

#[test]
fn a_session_begins_by_the_socket_of_a_further_path_while_the_first_path_is_dead() {
    let mut pair = at_door(1);
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.run_until_up();
    assert_eq!(places(&pair), [nowhere(), place(20_001)]);
    assert_carries(&mut pair);
    // Either gateway restarts.
    for (side, config) in [(A, server(1)), (B, site(2))] {
        pair.gateways[side] = Gateway::new(config, [90 + side as u8; 32]).unwrap();
        pair.advance(3_000 * MS);
        assert!(is_up(&pair), "after the restart of side {side}");
        assert_carries(&mut pair);
    }
    pair.lose_on = Box::new(|_, _| false);
    pair.advance(3_000 * MS);
    assert_eq!((places(&pair), alive(&pair, A)), (pair.places[B], vec![true; 2]));
}

#[test]
fn a_site_whose_uplinks_all_return_with_other_addresses_is_found_by_the_one_that_works() {
    let mut pair = at_door(1);
    pair.run_until_up();
    pair.advance(1_000 * MS);
    assert_eq!(places(&pair), pair.places[B]);
    pair.lose_on = Box::new(|_, _| true);
    pair.advance(12_000 * MS);
    pair.places[B] = [place(30_000), place(30_001)];
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.advance(2_000 * MS);
    assert!(is_up(&pair));
    assert_eq!(places(&pair)[1], place(30_001));
    assert_carries(&mut pair);
}

#[test]
fn a_first_path_with_a_stated_address_that_is_dead_does_not_keep_the_peer_away() {
    for door in [0, 1] {
        let peer = server(door).peers.remove(0);
        let stated = PeerConfig { address: place(20_000), whereabouts: Whereabouts::Stated, ..peer };
        let mut pair = pair_of(with_peer(A, stated), site(1 + door));
        pair.lose_on = Box::new(|path, _| path == 0);
        pair.advance(2_000 * MS);
        assert!(is_up(&pair), "socket {door}");
        assert_eq!(places(&pair), pair.places[B]);
        assert_carries(&mut pair);
    }
}

/// Returns a Hello of the site that did not arrive, as an attacker may record it.
fn recorded(pair: &mut Pair) -> Vec<u8> {
    pair.mute[B] = true;
    pair.sent_datagrams = Some(Vec::new());
    pair.advance(50 * MS);
    pair.sent_datagrams.take().unwrap().remove(0)
}

#[test]
fn a_recorded_hello_at_the_socket_of_a_further_path_moves_nothing() {
    for door in [0, 1] {
        let mut pair = at_door(door);
        let hello = recorded(&mut pair);
        for n in 0..5_000 {
            pair.inject_from(Source { door, address: place(40_000 + n % 500) }, A, &hello);
            pair.advance(MS);
            assert_eq!(places(&pair), [nowhere(); 2]);
        }
        pair.mute[B] = false;
        pair.advance(2_000 * MS);
        assert!(is_up(&pair));
        assert_eq!(places(&pair), pair.places[B]);
    }
}

#[test]
fn an_uplink_that_is_faster_and_dead_in_one_direction_does_not_keep_the_site_away() {
    for door in [0, 1] {
        let mut pair = at_door(door);
        pair.lose_on = Box::new(|path, side| path == 0 && side == A);
        pair.advance(3_000 * MS);
        assert!(is_up(&pair), "socket {door}");
        assert_carries(&mut pair);
        pair.lose_on = Box::new(|_, _| false);
        pair.advance(3_000 * MS);
        assert_eq!((places(&pair), alive(&pair, A)), (pair.places[B], vec![true; 2]));
        assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.sessions)), [1; 2]);
    }
}

#[test]
fn uplinks_of_any_delay_begin_one_session() {
    for delays_ms in [[10, 10], [10, 25], [25, 10], [5, 300], [300, 5], [300, 50]] {
        for door in [0, 1] {
            let mut pair = at_door(door);
            pair.path_us = delays_ms.map(|ms| ms * MS);
            pair.advance(6_000 * MS);
            assert_eq!((places(&pair), alive(&pair, A)), (pair.places[B], vec![true; 2]), "{delays_ms:?}");
            let sessions = [A, B].map(|side| pair.status(side, |peer| peer.sessions));
            assert_eq!(sessions, [1; 2], "{delays_ms:?} at socket {door}");
        }
    }
}

#[test]
fn copies_of_a_hello_from_many_addresses_get_few_answers() {
    for door in [0, 1] {
        let mut pair = at_door(door);
        let hello = recorded(&mut pair);
        let mut answers = 0;
        for n in 0..10_000_u16 {
            pair.inject_from(Source { door, address: place(40_000 + n % 2_000) }, A, &hello);
            let elsewhere = pair.out[A].datagrams.iter().filter(|(envelope, _)| envelope.elsewhere.is_some());
            answers += elsewhere.inspect(|(_, answer)| assert!(answer.len() <= hello.len())).count();
            pair.advance(MS);
        }
        assert!((1..=120).contains(&answers), "{answers} answers in ten seconds");
    }
}

#[test]
fn a_peer_is_called_on_a_further_path_while_its_address_on_the_first_is_not_known() {
    for whereabouts in [Whereabouts::Named, Whereabouts::Unstated] {
        let peer = site(1).peers.remove(0);
        let mut pair =
            pair_of(server(0), with_peer(B, PeerConfig { address: nowhere(), whereabouts, ..peer }));
        pair.frozen[A] = true;
        pair.advance(2_000 * MS);
        assert_eq!(pair.status(B, |peer| peer.trouble), Some(Trouble::Silent), "{whereabouts:?}");
        pair.frozen[A] = false;
        pair.run_until_up();
        assert_carries(&mut pair);
        pair.gateways[B].set_address((0, 0), address(A));
        pair.advance(2_000 * MS);
        assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2]);
    }
}

/// Nothing of the peer has been heard, and it does not call: only the name leads to it.
#[test]
fn a_peer_with_a_name_on_a_further_path_is_called_there_while_it_may_be_anywhere_on_the_first() {
    let named = PathConfig { door: 1, address: address_on(1, A), whereabouts: Whereabouts::Named };
    let peer = site(2).peers.remove(0);
    let (address, whereabouts) = (nowhere(), Whereabouts::Unstated);
    let caller = with_peer(B, PeerConfig { address, whereabouts, paths: vec![named], ..peer });
    let mut pair = pair_of(server(1), caller);
    pair.run_until_up();
    assert_carries(&mut pair);
}

#[test]
fn a_session_that_begins_by_the_second_uplink_spoils_no_count_of_losses() {
    let mut pair = at_door(0);
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.run_until_up();
    pair.advance(5_000 * MS);
    assert_eq!(places(&pair), [nowhere(), place(20_001)]);
    for side in [A, B] {
        let path = pair.status(side, |peer| peer.paths[1]);
        let shares = [path.incoming, path.outgoing].map(|loss| loss.share());
        assert!(shares.iter().all(|&share| share < 0.01), "{shares:?}");
        assert!(path.incoming.lost < 20 && path.incoming.expected > 50, "{path:?}");
    }
    pair.lose_on = Box::new(|_, _| false);
    pair.advance(3_000 * MS);
    assert_eq!((places(&pair), alive(&pair, A)), (pair.places[B], vec![true; 2]));
    assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.sessions)), [1; 2]);
    assert_carries(&mut pair);
}
