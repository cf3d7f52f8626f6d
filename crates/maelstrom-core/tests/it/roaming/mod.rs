//! Peers whose address nothing states: they call from anywhere, and move.

mod net;

use std::net::SocketAddr;

use maelstrom_core::counters::Rejected;
use maelstrom_core::observe::Observer;
use maelstrom_core::{Config, PeerConfig, PeerKey, Requests, Trouble, Whereabouts};
use testkit::Random;

use net::{Flight, HELLO, HUB, Net, SPOKE, at, hub, spoke_at};

const SECOND_US: u64 = 1_000_000;

/// An address of the attacker.
fn elsewhere() -> SocketAddr {
    at("192.0.2.66:666")
}

fn hellos(flights: &[Flight], from: SocketAddr) -> Vec<Vec<u8>> {
    let of = flights.iter().filter(|flight| flight.from == from && flight.bytes[0] == HELLO);
    of.map(|flight| flight.bytes.clone()).collect()
}

#[test]
fn a_peer_that_calls_from_an_unknown_address_is_found_and_protected() {
    let mut net = Net::new(1);
    net.nodes[SPOKE].is_off = true;
    net.advance(3 * SECOND_US);
    assert_eq!(net.status(HUB, 0, |peer| peer.trouble), Some(Trouble::Uncalled));
    assert!(net.sent.iter().all(|flight| flight.from == spoke_at(SPOKE)), "the hub sends nothing");
    net.nodes[SPOKE].is_off = false;
    net.run_until_up();
    assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
    net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    net.advance(SECOND_US);
    assert_eq!(net.status(HUB, 0, |peer| (peer.trouble, peer.moves, peer.sessions)), (None, 1, 1));
}

#[test]
fn a_session_goes_on_when_a_nat_gives_the_peer_another_port() {
    for delay_us in [1_000, 20_000, 150_000] {
        let mut net = Net::new(1);
        net.delay_us = delay_us;
        net.run_until_up();
        net.advance(SECOND_US);
        for moves in 2..6 {
            net.nodes[SPOKE].place.set_port(30_000 + moves as u16);
            // Repairs of the spoke arrive all the time, and name the same stream.
            net.assert_recovery(SPOKE, &[HUB]);
            net.advance_up(2 * SECOND_US);
            assert_eq!(net.known(SPOKE), net.nodes[SPOKE].place);
            assert_eq!(net.status(HUB, 0, |peer| (peer.moves, peer.sessions)), (moves, 1));
            net.assert_recovery(SPOKE, &[HUB, SPOKE]);
        }
        assert_eq!(net.status(SPOKE, 0, |peer| (peer.renewals, peer.sessions)), (4, 1));
        assert_eq!(net.nodes[HUB].gateway.moves(), 5);
    }
}

#[test]
fn a_move_while_either_side_renews_the_session_does_not_end_it() {
    for side in [HUB, SPOKE] {
        for step in 0..20 {
            let mut net = Net::up();
            net.advance(SECOND_US);
            let now_us = net.now_us;
            net.nodes[side].gateway.handle_stall(now_us, 500_000);
            net.advance(step * 5_000);
            net.nodes[SPOKE].place.set_port(30_000);
            net.advance(4 * SECOND_US);
            assert!(net.is_up(), "side {side}, step {step}");
            assert_eq!(net.known(SPOKE), net.nodes[SPOKE].place);
            net.assert_recovery(SPOKE, &[HUB, SPOKE]);
        }
    }
}

/// The spoke still receives what goes to its former address, and takes over a token that was told there while
/// the hub tells another one where its datagrams come from.
#[test]
fn a_renewal_that_a_move_cuts_short_leaves_both_ends_with_the_same_streams() {
    for step in 0..12 {
        let mut net = Net::new(1);
        net.delay_us = 200_000;
        net.run_until_up();
        (0..4).for_each(|_| net.assert_recovery(SPOKE, &[HUB, SPOKE]));
        (net.racer, net.relays) = (Some(elsewhere()), true);
        net.advance(180_000 + step * 10_000);
        let peer = PeerConfig { next_key: Some(PeerKey::new([77; 32])), ..hub(1).peers.remove(0) };
        net.nodes[HUB].gateway.reconfigure(Config { peers: vec![peer], ..hub(1) }).unwrap();
        net.assert_recovery(SPOKE, &[]);
        net.advance(5 * SECOND_US);
        assert!(net.is_up() && net.known(SPOKE) == elsewhere(), "step {step}");
        let sessions = [HUB, SPOKE].map(|node| net.status(node, 0, |peer| peer.sessions));
        assert_eq!(sessions[HUB], sessions[SPOKE], "step {step}");
        net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    }
}

#[test]
fn a_peer_that_restarts_at_another_address_is_found_again() {
    let mut net = Net::up();
    for seed in 50..53 {
        net.nodes[SPOKE].place = at(&format!("203.0.113.{seed}:4700"));
        net.restart(SPOKE, seed);
        net.advance(SECOND_US);
        assert!(net.is_up());
        assert_eq!(net.known(SPOKE), net.nodes[SPOKE].place);
        net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    }
}

#[test]
fn a_gateway_that_restarts_finds_the_peer_again() {
    let mut net = Net::up();
    net.advance(10 * SECOND_US);
    net.restart(HUB, 99);
    net.advance(2 * SECOND_US);
    assert!(net.is_up());
    net.assert_recovery(SPOKE, &[HUB, SPOKE]);
}

#[test]
fn recorded_datagrams_from_elsewhere_move_nothing() {
    let mut net = Net::up();
    net.advance(5 * SECOND_US);
    net.restart(SPOKE, 60);
    net.advance(5 * SECOND_US);
    let recorded: Vec<_> = net
        .sent
        .iter()
        .filter(|flight| flight.from == spoke_at(SPOKE))
        .map(|flight| flight.bytes.clone())
        .collect();
    assert!(recorded.len() > 40);
    let replay = |net: &mut Net| {
        for datagram in &recorded {
            net.inject(HUB, elsewhere(), datagram);
            net.advance(10_000);
            assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
        }
    };
    replay(&mut net);
    assert!(net.is_up());
    // The hub restarts while the spoke is away, and knows none of these datagrams.
    net.nodes[SPOKE].is_off = true;
    net.advance(12 * SECOND_US);
    replay(&mut net);
    net.restart(HUB, 98);
    let multiplications = |net: &Net| net.status(HUB, 0, |peer| peer.multiplications);
    assert_eq!(multiplications(&net), 1);
    let answers = net.sent.len();
    for datagram in &recorded {
        net.inject(HUB, elsewhere(), datagram);
        net.advance(10_000);
        assert!(net.known(SPOKE).ip().is_unspecified());
    }
    let answers = net.sent[answers..].iter().filter(|flight| flight.to == elsewhere()).count();
    assert!((1..=20).contains(&answers), "{answers} answers to {} replays", recorded.len());
    assert_eq!(multiplications(&net), 2, "all answers have one ephemeral key");
    // They do not delay the spoke when it returns from a third address.
    net.nodes[SPOKE].is_off = false;
    net.nodes[SPOKE].place = at("203.0.113.77:7777");
    for datagram in recorded.iter().cycle().take(200) {
        net.inject(HUB, elsewhere(), datagram);
        net.advance(10_000);
    }
    assert!(net.is_up());
    assert_eq!(net.known(SPOKE), net.nodes[SPOKE].place);
}

/// An attacker on the path can be faster than the peer. The gateway asks at the other address, and nobody
/// answers there.
#[test]
fn who_sends_the_datagrams_of_the_peer_first_moves_nothing() {
    let mut net = Net::up();
    net.racer = Some(elsewhere());
    for _ in 0..30 {
        net.advance_up(SECOND_US);
        assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
    }
    let asked = net.sent.iter().filter(|flight| flight.to == elsewhere()).count();
    assert!((20..=150).contains(&asked), "{asked} Hellos");
    // A try that nobody answers becomes a renewal like others.
    assert!(net.status(SPOKE, 0, |peer| peer.renewals) >= 2);
    net.racer = None;
    net.advance_up(3 * SECOND_US);
    net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    assert_eq!(net.status(HUB, 0, |peer| (peer.moves, peer.sessions)), (1, 1));
}

/// Datagrams that are in flight when a NAT changes its mapping, or that somebody sends first now and then.
#[test]
fn a_few_datagrams_from_elsewhere_begin_nothing() {
    let mut net = Net::up();
    for _ in 0..10 {
        net.racer = Some(elsewhere());
        net.advance_up(250_000);
        net.racer = None;
        net.advance_up(500_000);
    }
    assert!(net.sent.iter().all(|flight| flight.to != elsewhere()), "nothing is sent there");
    assert_eq!(net.status(HUB, 0, |peer| (peer.moves, peer.renewals, peer.sessions)), (1, 0, 1));
}

#[test]
fn who_forwards_all_datagrams_keeps_the_address_only_while_he_does() {
    let mut net = Net::up();
    (net.racer, net.relays) = (Some(elsewhere()), true);
    net.advance_up(3 * SECOND_US);
    assert_eq!(net.known(SPOKE), elsewhere(), "nothing tells him from a NAT");
    net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    (net.racer, net.relays) = (None, false);
    net.advance_up(2 * SECOND_US);
    assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
    net.assert_recovery(SPOKE, &[HUB, SPOKE]);
}

/// A Hello of an earlier start is answered where it came from. The answer, forwarded to the peer, makes it
/// say Hello again, from its own address.
#[test]
fn an_answer_that_is_forwarded_to_the_peer_moves_nothing() {
    let mut net = Net::up();
    let old = hellos(&net.sent, spoke_at(SPOKE));
    net.restart(SPOKE, 61);
    net.restart(HUB, 97);
    net.run_until_up();
    let before = net.sent.len();
    net.inject(HUB, elsewhere(), &old[0]);
    net.advance(1_000);
    let answers: Vec<_> = net.sent[before..]
        .iter()
        .filter(|flight| flight.to == elsewhere())
        .map(|flight| flight.bytes.clone())
        .collect();
    assert_eq!(answers.len(), 1);
    // The reply of the spoke arrives from where the old Hello came, ahead of the spoke.
    net.racer = Some(elsewhere());
    net.inject(SPOKE, net::hub_at(), &answers[0]);
    net.advance_up(100_000);
    net.racer = None;
    net.advance_up(3 * SECOND_US);
    assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
}

#[test]
fn peers_behind_one_address_are_told_apart_also_when_they_exchange_their_ports() {
    let mut net = Net::new(2);
    let places = ["203.0.113.5:20001", "203.0.113.5:20002"].map(at);
    for (spoke, place) in [1, 2].into_iter().zip(places) {
        net.nodes[spoke].place = place;
    }
    net.run_until_up();
    for spoke in [1, 2] {
        net.assert_recovery(spoke, &[HUB, spoke]);
    }
    (net.nodes[1].place, net.nodes[2].place) = (places[1], places[0]);
    net.advance_up(2 * SECOND_US);
    assert_eq!([net.known(1), net.known(2)], [places[1], places[0]]);
    // One restarts at the former address of the other.
    net.nodes[1].is_off = true;
    net.nodes[2].place = places[1];
    net.restart(2, 62);
    net.advance(2 * SECOND_US);
    net.nodes[1].is_off = false;
    net.nodes[1].place = places[0];
    net.restart(1, 63);
    net.advance(2 * SECOND_US);
    assert!(net.is_up());
    assert_eq!([net.known(1), net.known(2)], places);
    for spoke in [1, 2] {
        assert_eq!(net.status(HUB, spoke - 1, |peer| peer.wrong_key), 0);
        net.assert_recovery(spoke, &[HUB, spoke]);
    }
}

#[test]
fn an_address_in_a_protected_network_or_our_own_is_not_the_peers() {
    for place in ["10.82.1.9:4700", "198.51.100.1:4700"].map(at) {
        let mut net = Net::new(1);
        net.nodes[SPOKE].place = place;
        net.advance(4 * SECOND_US);
        assert_eq!(net.status(HUB, 0, |peer| peer.trouble), Some(Trouble::UnusableAddress(place)));
        assert!(net.sent.iter().all(|flight| flight.to == net::hub_at()), "the hub sends nothing");
    }
}

#[test]
fn a_peer_that_is_silent_for_a_minute_is_not_called_at_its_last_address() {
    let mut net = Net::up();
    net.nodes[SPOKE].is_off = true;
    net.advance(61 * SECOND_US);
    let before = net.sent.len();
    net.advance(60 * SECOND_US);
    assert!(net.sent[before..].iter().all(|flight| flight.to == net::hub_at()), "the hub sends nothing");
    net.nodes[SPOKE].is_off = false;
    net.run_until_up();
}

#[test]
fn hellos_that_nobody_can_open_are_counted_and_do_not_keep_the_peer_away() {
    let mut net = Net::new(1);
    let mut random = Random(5);
    for _ in 0..30_000 {
        let mut forged = random.bytes(140);
        (forged[0], forged[1]) = (HELLO, 0);
        net.inject(HUB, at(&format!("192.0.2.{}:4700", random.below(256))), &forged);
        net.advance(30);
    }
    let rejected = net.nodes[HUB].gateway.rejected();
    assert!(rejected.count(Rejected::Unopened) > 5_000 && rejected.count(Rejected::UnknownSender) > 15_000);
    net.run_until_up();
}

#[test]
fn a_peer_with_a_name_is_followed_and_one_with_a_stated_address_is_not() {
    let with = |whereabouts| {
        let peer = PeerConfig { address: spoke_at(SPOKE), whereabouts, ..hub(1).peers.remove(0) };
        Config { peers: vec![peer], ..hub(1) }
    };
    for (whereabouts, follows) in [(Whereabouts::Named, true), (Whereabouts::Stated, false)] {
        let mut net = Net::new(1);
        net.nodes[HUB].gateway.reconfigure(with(whereabouts)).unwrap();
        net.run_until_up();
        net.nodes[SPOKE].place = at("203.0.113.99:999");
        net.advance(4 * SECOND_US);
        assert_eq!(net.is_up(), follows);
        assert_eq!(net.known(SPOKE) == net.nodes[SPOKE].place, follows);
    }
}

#[test]
fn a_reload_keeps_the_address_that_the_peer_has_shown() {
    let mut net = Net::up();
    let config = Config { requests: Requests::All, ..hub(1) };
    net.nodes[HUB].gateway.reconfigure(config).unwrap();
    assert_eq!(net.known(SPOKE), spoke_at(SPOKE));
    net.advance(3 * SECOND_US);
    assert!(net.is_up());
}

#[test]
fn moves_without_end_are_told_now_and_then() {
    let mut net = Net::up();
    let mut observer = Observer::default();
    for n in 0..60 {
        net.nodes[SPOKE].place.set_port(30_000 + n);
        for _ in 0..20 {
            net.advance(100_000);
            observer.observe(net.now_us, &net.nodes[HUB].gateway);
        }
    }
    assert_eq!(net.status(HUB, 0, |peer| peer.moves), 61);
    let told = observer.journal().since(0).filter(|event| event.kind.id() == "peer_moved").count();
    assert!((8..=14).contains(&told), "{told} events in two minutes");
}

/// Whatever has happened, the gateways find each other as soon as it ends. `Net` asserts that no nonce is
/// used twice.
#[test]
fn after_any_moves_restarts_stalls_and_outages_the_peer_is_found() {
    for seed in 0..80 {
        let mut net = Net::up();
        let mut random = Random(seed);
        for step in 0..12 {
            let seed = 110 + step as u8;
            let (now_us, stalled_us) = (net.now_us, 300_000 + random.below(12 * SECOND_US));
            match random.below(8) {
                0 => net.restart(HUB, seed),
                1 => net.restart(SPOKE, seed),
                2 => net.nodes[HUB].gateway.handle_stall(now_us, stalled_us),
                3 => net.nodes[SPOKE].gateway.handle_stall(now_us, stalled_us),
                4 => net.nodes[SPOKE].is_off ^= true,
                5 => net.racer = net.racer.xor(Some(elsewhere())),
                _ => net.nodes[SPOKE].place.set_port(40_000 + step),
            }
            net.advance(random.below(3 * SECOND_US));
        }
        (net.nodes[SPOKE].is_off, net.racer) = (false, None);
        net.advance(16 * SECOND_US);
        assert!(net.is_up(), "seed {seed}");
        assert_eq!(net.known(SPOKE), net.nodes[SPOKE].place, "seed {seed}");
        net.assert_recovery(SPOKE, &[HUB, SPOKE]);
    }
}
