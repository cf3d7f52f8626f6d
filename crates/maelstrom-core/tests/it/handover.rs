//! A process of a gateway that hands its sessions over to the next one, under traffic in both directions.
//!
//! The path is trusted: the tests lose packets but no repairs.

use maelstrom_core::counters::Rejected;
use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerHandover, PeerKey, Schedule};

use crate::pair::{A, B, Pair, coin, payload, trusting, tunnel, udp};
use crate::stalls::Streams;

/// A gateway that chooses its code.
fn auto(side: usize) -> Config {
    Config { schedule: Schedule::Auto, ..trusting(side) }
}

/// Lets a gateway with one peer send what waits, for the outbox of one call.
pub(crate) fn finish_streams(gateway: &mut Gateway, now_us: u64, out: &mut Outbox) {
    gateway.finish_stream(now_us, 0, out);
    assert!(!gateway.release_held(now_us, 0, out));
}

fn sessions(streams: &Streams) -> [u64; 2] {
    [A, B].map(|side| streams.pair.status(side, |peer| peer.sessions))
}

/// Starts the next process of a side, which watches from here on.
fn prepare(streams: &mut Streams, side: usize, config: Config) {
    let pair = &mut streams.pair;
    // Each process draws its own tokens.
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&pair.now_us.to_be_bytes());
    let mut next = Gateway::new(config, seed).unwrap();
    next.watch_for(pair.now_us, &pair.gateways[side].describe_sessions());
    let out = next.outbox();
    pair.next[side] = Some((next, out));
}

/// Asks for new streams, and waits until the peer sends them.
fn ask(streams: &mut Streams, side: usize) {
    streams.pair.gateways[side].begin_handover(streams.pair.now_us);
    for _ in 0..1_000 {
        if streams.pair.gateways[side].may_hand_over() {
            return;
        }
        streams.run(1_000);
    }
    panic!("the peer does not begin a new stream");
}

/// Lets the next process take over; returns how many sessions it continues.
fn take_over(streams: &mut Streams, side: usize) -> usize {
    take_over_with(streams, side, |_| {})
}

/// The same, after a change of what the next process is told.
fn take_over_with(streams: &mut Streams, side: usize, change: impl FnOnce(&mut PeerHandover)) -> usize {
    let pair = &mut streams.pair;
    finish_streams(&mut pair.gateways[side], pair.now_us, &mut pair.out[side]);
    pair.exchange();
    let mut left = pair.gateways[side].hand_over();
    change(&mut left[0]);
    let (mut next, out) = pair.next[side].take().unwrap();
    let resumed = next.resume(pair.now_us, &left);
    (pair.gateways[side], pair.out[side]) = (next, out);
    resumed
}

#[test]
fn the_next_process_continues_the_session_and_nothing_stays_lost_or_comes_twice() {
    for (seed, config) in [(1, trusting as fn(usize) -> Config), (2, auto), (3, auto)] {
        let mut streams = Streams::with(seed, [config(A), config(B)]);
        streams.run(1_000_000);
        let (before, rate) = (sessions(&streams), streams.pair.status(B, |peer| peer.decision.cloned()));
        let (begin_us, mut cuts_us) = (streams.pair.now_us, Vec::new());
        for _ in 0..3 {
            prepare(&mut streams, B, config(B));
            streams.run(50_000);
            ask(&mut streams, B);
            cuts_us.push(streams.pair.now_us);
            assert_eq!(take_over(&mut streams, B), 1);
            assert!(streams.pair.status(B, |peer| peer.is_up), "seed {seed}");
            streams.run(300_000);
        }
        let end_us = streams.pair.now_us;
        streams.run(400_000);
        assert_eq!(sessions(&streams), before, "seed {seed}");
        // The last packets of a stream are in fewer repairs. The one from A ends 20 ms before the hand-over.
        let (lost, missing) = streams.lost(begin_us, end_us);
        assert!(lost > 400 && missing.len() <= 12, "{} of {lost} stay lost, seed {seed}", missing.len());
        let is_at_end = |sent_us| cuts_us.iter().any(|cut_us| (cut_us - 60_000..*cut_us).contains(sent_us));
        // A rate that was chosen leaves some of the losses that come together.
        assert!(seed > 1 || missing.iter().all(is_at_end), "{missing:?} and {cuts_us:?}");
        let after = streams.pair.status(B, |peer| peer.decision.cloned());
        let limits = [rate, after].map(|decision| decision.map(|decision| decision.limit));
        assert_eq!(limits[0], limits[1], "the next process knows the link, seed {seed}");
    }
}

/// No test seals as many datagrams; the next process of the gateway is told that the earlier one has.
#[test]
fn a_session_is_renewed_before_2_to_the_28_datagrams_are_exceeded_by_much() {
    const LEFT: u64 = 3_000;
    let mut streams = Streams::with(4, [trusting(A), trusting(B)]);
    let renewals = |streams: &Streams| [A, B].map(|side| streams.pair.status(side, |peer| peer.renewals));
    streams.run(300_000);
    prepare(&mut streams, A, trusting(A));
    streams.run(50_000);
    ask(&mut streams, A);
    assert_eq!(take_over_with(&mut streams, A, |left| left.seals.1 = (1 << 28) - LEFT), 1);
    let (sessions_before, before) = (sessions(&streams), renewals(&streams));
    let sealed = |streams: &Streams| streams.pair.status(A, |peer| peer.egress.repair_packets);
    let (first, begin_us) = (sealed(&streams), streams.pair.now_us);
    // Reports and Hellos are sealed with the same key, and are few.
    while sealed(&streams) < first + LEFT / 2 {
        streams.run(1_000);
        assert_eq!(renewals(&streams), before);
    }
    while sealed(&streams) < first + LEFT {
        streams.run(1_000);
    }
    // A round trip, and the answer.
    streams.run(100_000);
    assert_eq!(renewals(&streams), before.map(|count| count + 1));
    let end_us = streams.pair.now_us;
    streams.run(400_000);
    assert_eq!(sessions(&streams), sessions_before);
    streams.assert_whole(begin_us, end_us);
    assert_eq!(renewals(&streams), before.map(|count| count + 1), "the count begins again");
}

#[test]
fn both_ends_may_hand_over_at_once_over_a_link_that_loses_datagrams() {
    for seed in 0..10 {
        let mut streams = Streams::with(seed, [auto(A), auto(B)]);
        streams.run(300_000);
        streams.pair.lose_datagram = Box::new(coin(seed, 0.3));
        let before = sessions(&streams);
        [A, B].into_iter().for_each(|side| prepare(&mut streams, side, auto(side)));
        streams.run(10_000);
        let now_us = streams.pair.now_us;
        streams.pair.gateways.iter_mut().for_each(|gateway| gateway.begin_handover(now_us));
        for side in [A, B] {
            ask(&mut streams, side);
            assert_eq!(take_over(&mut streams, side), 1, "seed {seed}");
        }
        streams.pair.lose_datagram = Box::new(|| false);
        streams.run(400_000);
        let us = streams.pair.now_us;
        streams.run(800_000);
        assert_eq!(sessions(&streams), before, "seed {seed}");
        streams.assert_whole(us, us + 600_000);
    }
}

#[test]
fn a_hand_over_that_fails_at_any_step_leaves_the_first_process_at_work() {
    for step in 0..4 {
        let mut streams = Streams::with(20 + step, [trusting(A), trusting(B)]);
        streams.run(200_000);
        let before = sessions(&streams);
        prepare(&mut streams, B, trusting(B));
        if step > 0 {
            streams.pair.gateways[B].begin_handover(streams.pair.now_us);
            // The new stream begins 20 ms later and arrives another 20 ms later.
            streams.run([0, 5_000, 30_000, 60_000][step as usize]);
        }
        streams.pair.next[B] = None;
        streams.pair.gateways[B].cancel_handover(streams.pair.now_us);
        streams.run(300_000);
        let us = streams.pair.now_us;
        streams.run(800_000);
        assert_eq!(sessions(&streams), before, "step {step}");
        streams.assert_whole(us, us + 600_000);
    }
}

#[test]
fn a_process_whose_successor_ends_early_begins_another_session() {
    let mut streams = Streams::with(24, [trusting(A), trusting(B)]);
    streams.run(200_000);
    let before = sessions(&streams);
    prepare(&mut streams, B, trusting(B));
    ask(&mut streams, B);
    let number = streams.pair.gateways[B].hand_over()[0].seals;
    streams.pair.next[B] = None;
    streams.pair.frozen[B] = true;
    streams.run(30_000);
    streams.pair.frozen[B] = false;
    streams.pair.gateways[B].take_back();
    streams.pair.run_until_up();
    assert_ne!(streams.pair.gateways[B].describe_sessions()[0].seals.0, number.0, "no number seals twice");
    assert_eq!(sessions(&streams), before.map(|count| count + 1));
    let us = streams.pair.now_us;
    streams.run(800_000);
    streams.assert_whole(us, us + 600_000);
}

#[test]
fn a_datagram_of_before_the_hand_over_is_refused_as_a_replay() {
    let mut streams = Streams::with(5, [trusting(A), trusting(B)]);
    streams.run(100_000);
    prepare(&mut streams, B, trusting(B));
    ask(&mut streams, B);
    streams.run(20_000);
    streams.pair.sent_datagrams = Some(Vec::new());
    streams.run(100_000);
    let recorded = streams.pair.sent_datagrams.take().unwrap();
    streams.run(30_000);
    assert_eq!(take_over(&mut streams, B), 1);
    let replayed = |streams: &Streams| streams.pair.gateways[B].rejected().count(Rejected::Replayed);
    assert_eq!(replayed(&streams), 0);
    recorded.iter().for_each(|datagram| streams.pair.inject(B, datagram));
    // Half of them are its own.
    assert!(replayed(&streams) > recorded.len() as u64 / 4, "{} of {}", replayed(&streams), recorded.len());
}

#[test]
fn a_session_that_the_next_process_does_not_know_begins_again() {
    let other_key = |side: usize| {
        let config = trusting(side);
        let next_key = Some(PeerKey::new([6; 32]));
        let peer = PeerConfig { next_key, ..config.peers[0].clone() };
        Config { peers: vec![peer], ..config }
    };
    let mut streams = Streams::with(6, [trusting(A), trusting(B)]);
    streams.run(100_000);
    let before = sessions(&streams);
    prepare(&mut streams, B, other_key(B));
    ask(&mut streams, B);
    assert_eq!(take_over(&mut streams, B), 0, "a token stands for the keys of its process");
    streams.pair.run_until_up();
    assert_eq!(sessions(&streams), [before[A] + 1, 1]);
    // A session that began after the next process had started to watch.
    let mut streams = Streams::with(7, [trusting(A), trusting(B)]);
    streams.run(100_000);
    prepare(&mut streams, B, trusting(B));
    streams.pair.gateways[A] = Gateway::new(trusting(A), [10; 32]).unwrap();
    streams.pair.run_until_up();
    ask(&mut streams, B);
    assert_eq!(take_over(&mut streams, B), 0);
    streams.run(300_000);
    let us = streams.pair.now_us;
    streams.run(800_000);
    streams.assert_whole(us, us + 600_000);
}

/// Packets of both sites that travel in a tunnel.
struct Tunnelled {
    pair: Pair,
    sent: [Vec<Vec<u8>>; 2],
}

impl Tunnelled {
    fn run(&mut self, packets: usize) {
        for _ in 0..packets {
            let n = self.sent[A].len() as u32;
            for from in [A, B] {
                let packet = udp(from, n as u16, &payload(n));
                self.pair.send_by_tunnel(from, std::slice::from_ref(&packet));
                self.sent[from].push(packet);
            }
            self.pair.advance(500);
        }
    }

    /// Begins to hand side B over to a process of this configuration, and goes on until it may take over.
    fn begin_handover(&mut self, config: Config, round: u8) -> Gateway {
        let mut next = Gateway::new(config, [50 + round; 32]).unwrap();
        next.watch_for(self.pair.now_us, &self.pair.gateways[B].describe_sessions());
        self.pair.gateways[B].begin_handover(self.pair.now_us);
        while !self.pair.gateways[B].may_hand_over() {
            self.run(1);
        }
        next
    }

    /// Lets the next process of side B take over; returns the one before.
    fn take_over(&mut self, mut next: Gateway) -> Gateway {
        let pair = &mut self.pair;
        finish_streams(&mut pair.gateways[B], pair.now_us, &mut pair.out[B]);
        pair.exchange();
        let left = pair.gateways[B].hand_over();
        assert_eq!(next.resume(pair.now_us, &left), 1);
        pair.out[B] = next.outbox();
        std::mem::replace(&mut pair.gateways[B], next)
    }

    /// Packets to a side that have not come, and number of those that came twice.
    fn fates(&self, to: usize) -> (usize, usize) {
        let (sent, mut arrived) = (&self.sent[1 - to], self.pair.recovered[to].clone());
        arrived.sort();
        let all = arrived.len();
        arrived.dedup();
        let missing = sent.iter().filter(|packet| arrived.binary_search(packet).is_err()).count();
        (missing, all - arrived.len())
    }
}

/// Repairs wait for packets that others may have overtaken.
#[test]
fn what_repairs_recover_that_a_process_of_a_tunnel_holds_is_handed_on_before_the_next_one_takes_over() {
    let mut streams = Tunnelled { pair: Pair::up([tunnel(A), tunnel(B)]), sent: Default::default() };
    streams.pair.delay_us = 10_000;
    streams.pair.lose_datagram = Box::new(coin(8, 0.05));
    let mut is_late = coin(9, 0.05);
    streams.pair.extra_us = Box::new(move |_, _| if is_late() { 12_000 } else { 0 });
    streams.run(2_000);
    assert!(streams.pair.status(B, |peer| peer.wait_us) > 10_000);
    for round in 0..10 {
        let next = streams.begin_handover(tunnel(B), round);
        streams.run(200);
        let mut old = streams.take_over(next);
        let mut out = old.outbox();
        // It goes on for a moment.
        old.handle_timeout(streams.pair.now_us + 50_000, &mut out);
        assert!(out.recovered.is_empty(), "round {round}");
        streams.run(400);
    }
    streams.pair.lose_datagram = Box::new(|| false);
    streams.pair.advance(2_000_000);
    assert_eq!(streams.fates(B).1, 0, "nothing comes twice");
}

#[test]
fn the_next_process_of_a_tunnel_hands_on_each_packet_once() {
    for (seed, resequence_us) in [(1, 0), (2, 0), (3, 40_000)] {
        let with = |side: usize| {
            let mut config = tunnel(side);
            config.peers[0].tunnel.resequence_us = resequence_us;
            config
        };
        let mut streams = Tunnelled { pair: Pair::up([with(A), with(B)]), sent: Default::default() };
        streams.pair.delay_us = 10_000;
        streams.pair.lose_datagram = Box::new(coin(seed, 0.02));
        streams.run(1_000);
        let before = [A, B].map(|side| streams.pair.status(side, |peer| peer.sessions));
        for round in 0..3 {
            let next = streams.begin_handover(with(B), round);
            // Another peer is late.
            streams.run([0, 50, 700][usize::from(round)]);
            drop(streams.take_over(next));
            streams.run(1_000);
        }
        streams.pair.lose_datagram = Box::new(|| false);
        streams.pair.advance(2_000_000);
        assert_eq!([A, B].map(|side| streams.pair.status(side, |peer| peer.sessions)), before);
        for to in [A, B] {
            let (missing, twice) = streams.fates(to);
            // The link has lost some 80. The last ones of a stream are in fewer repairs.
            assert!(twice == 0 && missing <= 6, "seed {seed}, to {to}: {missing} missing, {twice} twice");
        }
    }
}
