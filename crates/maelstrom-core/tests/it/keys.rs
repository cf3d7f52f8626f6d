//! Changes of the key that two gateways share, while packets flow and are lost.
//!
//! The gateways trust the path, because the link loses packets but no repairs.

use std::collections::BTreeSet;

use maelstrom_core::counters::Rejected;
use maelstrom_core::observe::{EventKind, Level, Observer};
use maelstrom_core::session::Opener;
use maelstrom_core::wire::Outer;
use maelstrom_core::{Config, ConfigError, Gateway, KeyState, PeerConfig, PeerKey, Trouble};

use crate::pair::keys::{hellos, openers};
use crate::pair::{A, B, Pair, address, coin, payload, trusting, udp};

const SECOND_US: u64 = 1_000_000;

fn key(number: u8) -> PeerKey {
    PeerKey::new([number; 32])
}

/// A gateway that accepts these keys: the present one, and the next one if there are two.
fn with_keys(side: usize, keys: &[u8]) -> Config {
    let config = trusting(side);
    let next_key = keys.get(1).map(|&number| key(number));
    let peer = PeerConfig { key: key(keys[0]), next_key, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

/// Two gateways with traffic both ways, of which the link loses one packet in forty. Each lost packet can be
/// recovered.
struct Change {
    pair: Pair,
    count: u32,
    lost: [Vec<Vec<u8>>; 2],
}

impl Change {
    fn new(keys: [&[u8]; 2]) -> Self {
        let pair = Pair::up([with_keys(A, keys[A]), with_keys(B, keys[B])]);
        Self { pair, count: 0, lost: Default::default() }
    }

    /// Lets the link lose this share of the Hellos, and nothing else of the repair channel.
    fn lose_hellos(&mut self, seed: u64, share: f64) {
        let mut lose = coin(seed, share);
        self.pair.alter = Box::new(move |_, datagram| {
            if matches!(Outer::read(datagram), Ok(Outer::Hello(_))) && lose() {
                datagram.clear();
            }
        });
    }

    fn reload(&mut self, side: usize, keys: &[u8]) {
        self.try_reload(side, keys).unwrap();
    }

    fn try_reload(&mut self, side: usize, keys: &[u8]) -> Result<(), ConfigError> {
        self.pair.gateways[side].reconfigure(with_keys(side, keys)).map(drop)
    }

    fn traffic(&mut self, us: u64) {
        for _ in 0..us / 1_000 {
            for from in [A, B] {
                let mut bytes = payload(self.count % 100);
                bytes.extend_from_slice(&self.count.to_be_bytes());
                let packet = udp(from, self.count as u16, &bytes);
                let is_lost = self.count % 40 == 7;
                self.pair.send(from, &packet, is_lost);
                if is_lost {
                    self.lost[1 - from].push(packet);
                }
            }
            self.count += 1;
            self.pair.advance(1_000);
        }
    }

    /// Sends packets until the keys are in these states.
    fn traffic_until(&mut self, states: [KeyState; 2]) {
        for _ in 0..200 {
            if self.states() == states {
                return;
            }
            self.traffic(100_000);
        }
        panic!("{:?} instead of {states:?}", self.states());
    }

    fn states(&self) -> [KeyState; 2] {
        [A, B].map(|side| self.pair.status(side, |peer| peer.keys))
    }

    /// Asserts that all packets were protected in one session, and that exactly those were recovered that the
    /// link has lost.
    fn assert_protected(&mut self) {
        self.pair.advance(SECOND_US);
        for side in [A, B] {
            let packets = self.pair.status(side, |peer| peer.egress.source_packets);
            assert_eq!(packets, u64::from(self.count), "side {side}");
            let unprotected = self.pair.gateways[side].unprotected().iter().map(|(_, count)| count);
            assert_eq!(unprotected.sum::<u64>(), 0, "side {side}");
            assert_eq!(self.pair.status(side, |peer| (peer.sessions, peer.wrong_key)), (1, 0), "side {side}");
            let [lost, recovered] = [&mut self.lost[side], &mut self.pair.recovered[side]];
            lost.sort();
            recovered.sort();
            assert!(lost.len() > 10 && lost == recovered, "{} of {}", recovered.len(), lost.len());
        }
    }
}

/// Names the next key at both ends and then leaves the old one out, each time at `first` and then at the
/// other end.
fn change(change: &mut Change, [names, drops]: [usize; 2]) {
    let state_of = |first: usize, states: [KeyState; 2]| {
        if first == A { states } else { [states[1], states[0]] }
    };
    change.traffic(SECOND_US);
    change.reload(names, &[5, 6]);
    change.traffic_until(state_of(names, [KeyState::Waiting, KeyState::Offered]));
    change.traffic(2 * SECOND_US);
    change.reload(1 - names, &[5, 6]);
    change.traffic_until([KeyState::Changed; 2]);
    change.traffic(SECOND_US);
    change.reload(drops, &[6]);
    change.traffic_until(state_of(drops, [KeyState::LeftOver, KeyState::Changed]));
    change.traffic(2 * SECOND_US);
    change.reload(1 - drops, &[6]);
    change.traffic_until([KeyState::Single; 2]);
    change.traffic(SECOND_US);
}

#[test]
fn a_key_is_changed_without_an_unprotected_packet_whichever_end_is_first() {
    for (seed, order) in [[A, A], [A, B], [B, A], [B, B]].into_iter().enumerate() {
        for (delay_us, hellos_lost) in [(0, 0.0), (40_000, 0.0), (40_000, 0.5)] {
            let mut run = Change::new([&[5], &[5]]);
            run.pair.delay_us = delay_us;
            run.lose_hellos(seed as u64, hellos_lost);
            change(&mut run, order);
            run.assert_protected();
            assert!([A, B].iter().all(|&side| run.pair.status(side, |peer| peer.renewals >= 4)));
        }
    }
}

/// Returns the epochs of all datagrams between the senders of the Hellos under one key, if they are sealed
/// with another one.
fn epochs(run: &Change, datagrams: &[Vec<u8>], hello_key: u8, number: u8) -> BTreeSet<u32> {
    let hellos = hellos(datagrams, &key(hello_key));
    let openers = openers(&hellos, &run.pair.drawn.lock().unwrap(), &key(number));
    openers.iter().map(Opener::epoch).collect()
}

#[test]
fn the_new_key_seals_everything_after_the_change_and_the_old_one_opens_nothing() {
    let mut run = Change::new([&[5], &[5]]);
    change(&mut run, [A, B]);
    run.pair.sent_datagrams = Some(Vec::new());
    run.traffic(3 * SECOND_US);
    let sent = run.pair.sent_datagrams.take().unwrap();
    let [old, new] = [5, 6].map(|number| epochs(&run, &sent, 6, number));
    let mut sealed = 0;
    for datagram in &sent {
        if let Ok(Outer::Sealed(header)) = Outer::read(datagram) {
            assert!(new.contains(&header.epoch) && !old.contains(&header.epoch));
            sealed += 1;
        }
    }
    assert!(sealed > 1_000, "{sealed}");
    assert!(epochs(&run, &sent, 5, 6).is_empty(), "no Hello is sealed with the old key");
    // A gateway with the old key alone is refused.
    let mut old = Gateway::new(with_keys(A, &[5]), [99; 32]).unwrap();
    let mut out = old.outbox();
    old.handle_timeout(run.pair.now_us, &mut out);
    let before = run.pair.gateways[B].rejected().count(Rejected::Forged);
    run.pair.inject(B, out.datagrams.iter().next().unwrap().1);
    assert_eq!(run.pair.gateways[B].rejected().count(Rejected::Forged), before + 1);
}

#[test]
fn a_key_is_changed_at_both_ends_at_about_the_same_time() {
    for after_ms in [0, 1, 10, 30, 60, 90, 150] {
        let mut run = Change::new([&[5], &[5]]);
        run.pair.delay_us = 20_000;
        run.traffic(SECOND_US);
        for keys in [&[5, 6][..], &[6]] {
            run.reload(A, keys);
            run.traffic(1_000 * after_ms);
            run.reload(B, keys);
            let end = if keys.len() == 2 { KeyState::Changed } else { KeyState::Single };
            run.traffic_until([end; 2]);
        }
        run.traffic(SECOND_US);
        run.assert_protected();
    }
}

#[test]
fn reloads_that_follow_each_other_change_their_mind_without_an_unprotected_packet() {
    for pause_ms in [0, 5, 20, 45, 120, 250] {
        let mut run = Change::new([&[5], &[5]]);
        run.pair.delay_us = 20_000;
        run.traffic(SECOND_US);
        run.reload(B, &[5, 7]);
        for keys in [&[5, 6][..], &[5], &[5, 7], &[5, 6], &[5, 7]] {
            run.reload(A, keys);
            run.traffic(1_000 * pause_ms);
        }
        run.traffic_until([KeyState::Changed; 2]);
        run.reload(A, &[7, 8]);
        run.traffic_until([KeyState::Behind, KeyState::Changed]);
        run.traffic(SECOND_US);
        run.assert_protected();
    }
}

#[test]
fn a_gateway_that_restarts_during_the_change_is_found_again() {
    let stages: [[&[u8]; 2]; 6] = [
        [&[5, 6], &[5]],
        [&[5], &[5, 6]],
        [&[5, 6], &[5, 6]],
        [&[6], &[5, 6]],
        [&[5, 6], &[6]],
        [&[6], &[6]],
    ];
    for (seed, keys) in stages.into_iter().enumerate() {
        for restarted in [A, B] {
            let mut run = Change::new(keys);
            run.pair.delay_us = 20_000;
            run.lose_hellos(seed as u64, 0.3);
            run.traffic(SECOND_US);
            let config = with_keys(restarted, keys[restarted]);
            run.pair.gateways[restarted] = Gateway::new(config, [99; 32]).unwrap();
            run.pair.advance(4 * SECOND_US);
            let up = [A, B].map(|side| run.pair.status(side, |peer| peer.is_up));
            assert_eq!(up, [true; 2], "{keys:?}, side {restarted}");
            let wrong = [A, B].map(|side| run.pair.status(side, |peer| peer.wrong_key));
            assert_eq!(wrong, [0; 2], "no Hello counts as one with a wrong key");
            run.pair.recovered = Default::default();
            run.lost = Default::default();
            run.traffic(SECOND_US);
            run.pair.advance(SECOND_US);
            for side in [A, B] {
                run.lost[side].sort();
                run.pair.recovered[side].sort();
                assert_eq!(run.lost[side], run.pair.recovered[side], "{keys:?}, side {restarted}");
            }
        }
    }
}

#[test]
fn a_gateway_that_stands_still_during_the_change_goes_on_with_it() {
    for stalled_us in [300_000, 12 * SECOND_US] {
        let mut run = Change::new([&[5], &[5, 6]]);
        run.pair.delay_us = 20_000;
        run.reload(A, &[5, 6]);
        run.pair.advance(30_000);
        run.pair.gateways[A].handle_stall(run.pair.now_us, stalled_us);
        run.traffic_until([KeyState::Changed; 2]);
        run.pair.advance(2 * SECOND_US);
        assert_eq!([A, B].map(|side| run.pair.status(side, |peer| peer.is_up)), [true; 2]);
    }
}

#[test]
fn a_change_that_would_end_protection_is_refused_and_changes_nothing() {
    let mut run = Change::new([&[5], &[5]]);
    let refused = |run: &mut Change, side, keys: &[u8]| match run.try_reload(side, keys) {
        Err(ConfigError::Unaccepted(peer)) => peer == address(1 - side),
        _ => false,
    };
    run.traffic(SECOND_US);
    assert!(refused(&mut run, A, &[6]), "the peer has the old key only");
    assert!(refused(&mut run, A, &[6, 7]));
    run.reload(A, &[5, 6]);
    run.traffic(3 * SECOND_US);
    assert!(refused(&mut run, A, &[6]), "the peer does not accept the next key yet");
    assert!(matches!(run.try_reload(A, &[5, 5]), Err(ConfigError::SameKey(_))));
    run.traffic(SECOND_US);
    run.assert_protected();
    // A peer that is down loses nothing.
    run.pair.mute = [true; 2];
    run.pair.advance(5 * SECOND_US);
    run.reload(A, &[6]);
    run.reload(B, &[6]);
    run.pair.mute = [false; 2];
    run.pair.advance(3 * SECOND_US);
    assert_eq!([A, B].map(|side| run.pair.status(side, |peer| peer.is_up)), [true; 2]);
}

#[test]
fn keys_in_the_opposite_order_are_told_and_cannot_be_dropped_at_both_ends() {
    let mut run = Change::new([&[5, 6], &[6, 5]]);
    run.traffic_until([KeyState::Crossed; 2]);
    run.traffic(5 * SECOND_US);
    assert!(run.pair.status(A, |peer| peer.renewals) <= 2, "the gateways do not change the key all the time");
    run.reload(A, &[6]);
    run.traffic(2 * SECOND_US);
    assert!(matches!(run.try_reload(B, &[5]), Err(ConfigError::Unaccepted(_))));
    run.reload(B, &[6]);
    run.traffic_until([KeyState::Single; 2]);
    run.assert_protected();
}

#[test]
fn next_keys_that_differ_are_told_and_the_present_key_stays_in_use() {
    let mut run = Change::new([&[5, 6], &[5, 7]]);
    run.traffic_until([KeyState::Different; 2]);
    run.reload(B, &[5, 6]);
    run.traffic_until([KeyState::Changed; 2]);
    run.reload(B, &[6, 7]);
    run.traffic_until([KeyState::Changed, KeyState::Behind]);
    run.assert_protected();
}

#[test]
fn a_key_that_is_named_again_opens_nothing_that_was_recorded() {
    let mut run = Change::new([&[5, 6], &[5, 6]]);
    run.traffic_until([KeyState::Changed; 2]);
    run.pair.sent_datagrams = Some(Vec::new());
    run.traffic(SECOND_US);
    let recorded = run.pair.sent_datagrams.take().unwrap();
    for keys in [&[5][..], &[5, 6]] {
        run.reload(B, keys);
        run.traffic(2 * SECOND_US);
    }
    run.traffic_until([KeyState::Changed; 2]);
    run.pair.advance(11 * SECOND_US);
    let sealed: Vec<_> =
        recorded.iter().filter(|one| matches!(Outer::read(one), Ok(Outer::Sealed(_)))).collect();
    let refused = |pair: &Pair| {
        [Rejected::UnknownEpoch, Rejected::Replayed].map(|why| pair.gateways[B].rejected().count(why))
    };
    let before = refused(&run.pair);
    sealed.iter().for_each(|datagram| run.pair.inject(B, datagram));
    let after = refused(&run.pair);
    assert_eq!(after[0] + after[1], before[0] + before[1] + sealed.len() as u64);
    assert!(sealed.len() > 100);
    run.assert_protected();
}

#[test]
fn a_change_is_told_step_by_step_and_never_as_a_wrong_key() {
    let mut run = Change::new([&[5], &[5]]);
    let mut observer = Observer::default();
    let mut wait = |run: &mut Change| {
        for _ in 0..40 {
            run.pair.advance(100_000);
            observer.observe(run.pair.now_us, &run.pair.gateways[B]);
        }
    };
    wait(&mut run);
    for (side, keys) in [(A, &[5, 6][..]), (B, &[5, 6]), (A, &[6]), (B, &[6])] {
        run.reload(side, keys);
        wait(&mut run);
    }
    let events: Vec<_> = observer.journal().since(0).map(|event| event.kind.clone()).collect();
    let told: Vec<_> = events.iter().filter(|kind| kind.id() == "key_change").collect();
    let expected = [KeyState::Offered, KeyState::Changed, KeyState::Single].map(EventKind::Keys);
    assert_eq!(told, expected.iter().collect::<Vec<_>>(), "{events:?}");
    assert!(told.iter().all(|kind| kind.level() == Level::Info));
    assert!(!events.iter().any(|kind| ["wrong_key", "peer_down"].contains(&kind.id())), "{events:?}");
    let different = EventKind::Keys(KeyState::Different);
    assert!(different.level() == Level::Warning && different.remedy().is_some());
}

#[test]
fn two_keys_of_which_the_peer_has_none_are_a_wrong_key() {
    let mut pair = Pair::new([with_keys(A, &[5, 6]), with_keys(B, &[7])]);
    pair.advance(5 * SECOND_US);
    for side in [A, B] {
        assert_eq!(pair.status(side, |peer| peer.trouble), Some(Trouble::WrongKey), "side {side}");
        assert!(pair.status(side, |peer| peer.wrong_key) > 5);
    }
}
