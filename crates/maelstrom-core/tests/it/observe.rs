//! Events, windows of counts, and the verdict about a peer, for an operator.

use maelstrom_core::observe::{Concern, Condition, EventKind, Level, Observer, PauseReason};
use maelstrom_core::{Config, PeerConfig, PeerKey, Trouble};

use crate::pair::{A, B, Pair, address, config, payload, trusting, udp};
use crate::path;

/// A flow that repeats its packets, byte for byte. Some of them are lost and recovered, and their repetitions
/// look like duplicates until repairs name them.
#[test]
fn the_highest_count_of_duplicates_does_not_fall_with_their_count() {
    let mut pair = Pair::up([A, B].map(trusting));
    let (mut falls, mut before) = (0, (0, 0));
    for round in 0..6 {
        for n in 0..64_u16 {
            pair.send(A, &udp(A, n, &payload(n.into())), round % 2 == 0 && n % 8 == 3);
            pair.advance(2_000);
            let counts = pair.status(B, |peer| (peer.ingress.after_recovery, peer.ingress.duplicates));
            assert!(counts.1 >= before.1.max(counts.0), "{counts:?} after {before:?}");
            falls += u64::from(counts.0 < before.0);
            before = counts;
        }
    }
    assert!(falls > 0 && before.1 > before.0, "{falls} {before:?}");
}

/// Interval at which a driver lets the observer look.
const LOOK_US: u64 = 100_000;

/// A pair of gateways with an observer beside the one of site B.
struct Watched {
    pair: Pair,
    observer: Observer,
}

impl Watched {
    fn new(pair: Pair) -> Self {
        Self { pair, observer: Observer::default() }
    }

    fn wait(&mut self, us: u64) {
        for _ in 0..us / LOOK_US {
            self.pair.advance(LOOK_US);
            self.observer.observe(self.pair.now_us, &self.pair.gateways[B]);
        }
    }

    /// Sends `count` packets to site B, a thousand in a second, of which the link loses those that `loses`.
    fn send(&mut self, count: u32, mut loses: impl FnMut(u32) -> bool) {
        for n in 0..count {
            self.pair.send(A, &udp(A, n as u16, &payload(n)), loses(n));
            self.pair.advance(1_000);
            if n % 100 == 0 {
                self.observer.observe(self.pair.now_us, &self.pair.gateways[B]);
            }
        }
    }

    fn events(&self) -> Vec<EventKind> {
        self.observer.journal().since(0).map(|event| event.kind.clone()).collect()
    }

    fn count(&self, id: &str) -> usize {
        self.events().iter().filter(|kind| kind.id() == id).count()
    }
}

#[test]
fn a_peer_that_falls_silent_and_returns_is_two_events_with_lengths_and_reason() {
    let mut watched = Watched::new(Pair::up([config(A), config(B)]));
    watched.wait(60_000_000);
    assert_eq!(watched.observer.verdict(0).condition, Condition::Protected);
    watched.pair.mute = [true; 2];
    watched.wait(20_000_000);
    assert_eq!(watched.observer.verdict(0).condition, Condition::Down);
    watched.pair.mute = [false; 2];
    watched.wait(10_000_000);
    let events = watched.events();
    let downs = events.iter().filter_map(|kind| match kind {
        EventKind::Down { after_us, trouble, .. } => Some((after_us / 1_000_000, *trouble)),
        _ => None,
    });
    let seconds: Vec<_> = downs.collect();
    assert!(matches!(seconds[..], [(61..=63, Some(Trouble::Silent))]), "{events:?}");
    let ups = events.iter().filter_map(|kind| match kind {
        EventKind::Up { after_us } => Some(after_us.map(|us| us / 1_000_000)),
        _ => None,
    });
    let ups: Vec<_> = ups.collect();
    assert!(matches!(ups[..], [None, Some(16..=20)]), "{events:?}");
    assert_eq!(watched.count("session_began"), 1, "a session is given up after 10 s: {events:?}");
    let network = Some("10.81.1.0/24".parse().unwrap());
    let named =
        watched.observer.journal().since(0).all(|event| event.peer.map(|site| site.network) == network);
    assert!(named, "each event names its peer");
}

#[test]
fn a_wrong_key_is_told_with_the_number_of_datagrams_and_their_source() {
    let peer = PeerConfig { key: PeerKey::new([6; 32]), ..config(A).peers[0].clone() };
    let other = Config { peers: vec![peer], ..config(A) };
    let mut watched = Watched::new(Pair::new([other, config(B)]));
    watched.wait(200_000_000);
    let told: Vec<_> = watched
        .events()
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::WrongKey { count, from } => Some((count, from)),
            _ => None,
        })
        .collect();
    assert!((3..=5).contains(&told.len()), "one a minute: {told:?}");
    assert!(told.iter().all(|&(count, from)| count >= 5 && from == address(A)), "{told:?}");
    let refused = watched.pair.status(B, |peer| peer.wrong_key);
    let sum = told.iter().map(|(count, _)| count).sum::<u64>();
    assert!(sum <= refused && sum + 320 > refused, "{sum} of {refused}");
    assert_eq!(watched.count("peer_up"), 0);
    assert!(watched.events().contains(&EventKind::Trouble(Trouble::WrongKey)), "{:?}", watched.events());
}

#[test]
fn loss_that_stays_is_an_event_when_it_begins_and_when_it_ends() {
    let mut watched = Watched::new(Pair::up([trusting(A), trusting(B)]));
    watched.send(12_000, |n| n % 50 == 7);
    assert_eq!(watched.count("residual_loss"), 0, "single losses are recovered: {:?}", watched.events());
    let verdict = watched.observer.verdict(0).to_string();
    assert!(verdict.starts_with("protected, 2.0 % lost, all recovered, +"), "{verdict}");
    // Bursts that this code cannot recover.
    watched.send(6_000, |n| n % 1_000 < 100);
    let verdict = watched.observer.verdict(0);
    assert_eq!(
        (verdict.condition, verdict.concerns.as_slice()),
        (Condition::Degraded, &[Concern::ResidualIn][..])
    );
    let event = watched.events().into_iter().find(|kind| kind.id() == "residual_loss");
    let Some(EventKind::Residual { is_outgoing: false, residual, lost, packets }) = event else {
        panic!("{:?}", watched.events());
    };
    assert!(residual <= lost && lost <= packets && 1_000 * residual > packets, "{residual} {lost} {packets}");
    watched.send(25_000, |_| false);
    assert_eq!((watched.count("residual_loss"), watched.count("residual_loss_over")), (1, 1));
    // A check once in five minutes still sees it.
    assert_eq!(watched.observer.verdict(0).condition, Condition::Degraded);
    watched.wait(310_000_000);
    assert_eq!(watched.observer.verdict(0).to_string(), "protected, no traffic");
    let [seconds, minutes, hour] = watched.observer.windows(0);
    assert_eq!([seconds, minutes].map(|window| window.counts.here.packets), [0; 2]);
    assert!(hour.counts.here.lost > 600 && hour.covered_us > 350_000_000, "{hour:?}");
}

/// Returns the concerns of a verdict as sentences, if the peer is degraded.
fn sentences(observer: &Observer) -> Vec<String> {
    let verdict = observer.verdict(0);
    assert_eq!(verdict.condition, Condition::Degraded, "{verdict:?}");
    verdict.concerns.iter().map(|&concern| verdict.sentence(concern)).collect()
}

#[test]
fn a_path_that_differs_degrades_both_ends_which_name_the_cause() {
    for (is_rewritten, cause) in
        [(true, "packets are rewritten on the way"), (false, "packets take another path")]
    {
        let mut watched = Watched::new(path::pair());
        let mut at_a = Observer::default();
        for n in 0..1_000 {
            let mut packet = path::packet(7, n);
            watched.pair.leave(A, &packet);
            packet[20] ^= 0x40;
            if is_rewritten {
                watched.pair.arrive(B, &packet);
            }
            watched.wait(LOOK_US);
            at_a.observe(watched.pair.now_us, &watched.pair.gateways[A]);
        }
        for (observer, way) in [(&watched.observer, "from"), (&at_a, "to")] {
            let expected = format!("the path {way} the peer differs from the configuration: {cause}");
            assert!(sentences(observer).contains(&expected), "{:?}", sentences(observer));
        }
    }
}

#[test]
fn short_pauses_of_recovery_that_repeat_are_a_concern_for_five_minutes() {
    let mut watched = Watched::new(Pair::up([trusting(A), trusting(B)]));
    let pause = |watched: &mut Watched| {
        watched.pair.gateways[B].handle_gap();
        watched.send(300, |_| false);
        watched.pair.gateways[B].handle_caught_up(watched.pair.now_us);
        watched.send(4_000, |_| false);
    };
    pause(&mut watched);
    let verdict = watched.observer.verdict(0);
    assert_eq!(verdict.condition, Condition::Protected, "a single one: {verdict:?}");
    pause(&mut watched);
    let sentences = sentences(&watched.observer);
    let [sentence] = &sentences[..] else { panic!("{sentences:?}") };
    let seconds = sentence.strip_prefix("recovery pauses: for ").unwrap().split(' ').next().unwrap();
    let seconds: f64 = seconds.parse().unwrap();
    assert!((3.6..6.0).contains(&seconds), "two pauses of 1.8 s or more: {sentence}");
    watched.send(4_000, |_| false);
    assert_eq!(watched.observer.verdict(0).concerns, [Concern::RecoveryPaused]);
    watched.wait(310_000_000);
    assert_eq!(watched.observer.verdict(0).condition, Condition::Protected);
}

#[test]
fn a_pause_that_waits_for_a_silent_peer_is_no_concern() {
    let mut watched = Watched::new(Pair::up([trusting(A), trusting(B)]));
    watched.send(2_000, |_| false);
    watched.pair.gateways[B].handle_gap();
    watched.pair.gateways[B].handle_caught_up(watched.pair.now_us);
    watched.wait(60_000_000);
    assert!(watched.pair.status(B, |peer| peer.is_paused), "no repair has ended it");
    watched.send(2_000, |_| false);
    assert_eq!(watched.observer.verdict(0).condition, Condition::Protected);
    assert!(!watched.pair.status(B, |peer| peer.is_paused));
}

#[test]
fn repairs_that_are_cut_in_two_and_renewals_are_counted_in_events() {
    let mut watched = Watched::new(Pair::up([config(A), config(B)]));
    watched.pair.advance(LOOK_US);
    watched.observer.observe(watched.pair.now_us, &watched.pair.gateways[B]);
    for n in 0..400 {
        watched.pair.send(B, &udp(B, n, &[7; 1_472]), false);
        watched.pair.advance(1_000);
    }
    watched.wait(3_000_000);
    let cut = watched.pair.status(B, |peer| peer.egress.cut_in_two);
    assert!(cut > 0 && watched.events().contains(&EventKind::Fragmented { count: cut }), "{cut}");
    let [.., hour] = watched.observer.windows(0);
    let repairs = (hour.counts.repairs, hour.counts.there.repairs);
    assert!(repairs.0 >= cut && repairs.0 == repairs.1, "none is lost: {repairs:?}");
    watched.wait(2 * 3_600_000_000);
    let renewals = watched.pair.status(B, |peer| peer.renewals);
    let told = watched.events().into_iter().map(|kind| match kind {
        EventKind::Renewed { count } => count,
        _ => 0,
    });
    assert!(renewals > 0, "a session is renewed after an hour");
    assert_eq!(told.sum::<u64>(), renewals, "{:?}", watched.events());
    assert_eq!(watched.count("peer_down"), 0, "{:?}", watched.events());
}

#[test]
fn a_peer_that_goes_up_and_down_all_the_time_does_not_fill_the_journal() {
    let mut watched = Watched::new(Pair::up([config(A), config(B)]));
    for _ in 0..100 {
        watched.pair.mute = [true; 2];
        watched.wait(3_000_000);
        watched.pair.mute = [false; 2];
        watched.wait(2_000_000);
    }
    let changes = watched.count("peer_up") + watched.count("peer_down");
    assert!((20..=40).contains(&changes), "{changes} in 500 s");
    watched.wait(60_000_000);
    let last = watched.events().into_iter().rev().find(|kind| ["peer_up", "peer_down"].contains(&kind.id()));
    assert!(matches!(last, Some(EventKind::Up { .. })), "the state that lasts is told: {last:?}");
}

#[test]
fn stalls_that_follow_each_other_are_one_event_a_minute() {
    let mut observer = Observer::default();
    for at in 0..150_u64 {
        observer.on_stall(1_000_000 * at, 1_000 * at);
    }
    let gateway = Pair::new([config(A), config(B)]).gateways;
    observer.observe(400_000_000, &gateway[A]);
    let stalled = |longest_ms: u64, count| EventKind::Stalled { longest_us: 1_000 * longest_ms, count };
    let events: Vec<_> = observer.journal().since(0).map(|event| event.kind.clone()).collect();
    assert_eq!(events, [stalled(0, 1), stalled(60, 60), stalled(120, 60), stalled(149, 29)]);
}

#[test]
fn what_only_the_driver_knows_is_an_event_without_a_peer() {
    let mut observer = Observer::default();
    observer.note(7, EventKind::Paused { reason: PauseReason::Missed, unnoted: 0 });
    let event = observer.journal().since(0).next().unwrap();
    assert_eq!((event.at_us, event.peer, event.kind.level()), (7, None, Level::Warning));
    assert_eq!(observer.verdict(0).condition, Condition::Down, "there is no such peer");
}
