//! Routes that become longer and lose packets, and queues that fill and stand full: packets of constant rate
//! whose losses begin with the delay.

use maelstrom_core::Seq;
use maelstrom_core::congestion::OnCongestion::Leave;
use maelstrom_core::congestion::{Congestion, Verdict};
use maelstrom_core::wire::SendTime;
use testkit::Random;

const SECOND: u64 = 1_000_000;
/// A repair for 40 packets, at 5,000 packets a second.
const PER_REPAIR: u64 = 40;
const REPAIR_US: u64 = 8_000;

#[derive(Clone, Copy, Debug)]
struct Route {
    /// Delay by the time since it began.
    delay_us: fn(u64) -> u64,
    /// Average of a random delay that is added.
    jitter_us: f64,
    /// Share of packets lost at a delay without jitter.
    loss: fn(u64) -> f64,
}

const CLEAN: Route = Route { delay_us: |_| 0, jitter_us: 0.0, loss: |_| 0.0 };
const LONGER: Route = Route { delay_us: |_| 40_000, jitter_us: 0.0, loss: |_| 0.01 };

/// A queue that fills to this many milliseconds within 0.2 s each second, drops one packet in twenty while
/// it is full, and ebbs.
fn overflows<const FULL_MS: u64>() -> Route {
    Route {
        delay_us: |us| match us % SECOND {
            us if us < 400_000 => FULL_MS * us.min(200_000) / 200,
            _ => 0,
        },
        jitter_us: 0.0,
        loss: |delay_us| if delay_us >= FULL_MS * 1_000 { 0.05 } else { 0.0 },
    }
}

/// A queue of 50 ms that fills within this many milliseconds, and then drops one packet in eleven.
fn fills<const WITHIN_MS: u64>() -> Route {
    Route {
        delay_us: |us| if us < WITHIN_MS * 1_000 { 50 * us / WITHIN_MS.max(1) } else { 50_000 },
        jitter_us: 0.0,
        loss: |delay_us| if delay_us >= 50_000 { 1.0 / 11.0 } else { 0.0 },
    }
}

struct Link {
    congestion: Congestion,
    random: Random,
    now_us: u64,
    next: u64,
}

/// Fates of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    lost: u64,
    left: u64,
    /// Number of losses before the first one that was left.
    recovered_first: u64,
    /// Number of repairs that found a queue standing.
    standing: u64,
}

impl Link {
    fn new(seed: u64) -> Self {
        Self { congestion: Congestion::new(Leave), random: Random(seed), now_us: 3_600 * SECOND, next: 0 }
    }

    /// Sends packets over a route for a time.
    fn run(&mut self, us: u64, route: Route) -> Fates {
        let (begin_us, mut fates) = (self.now_us, Fates::default());
        while self.now_us < begin_us + us {
            self.now_us += REPAIR_US;
            let delay_us = (route.delay_us)(self.now_us - begin_us);
            let share = self.random.below(1 << 20) as f64 / f64::from(1 << 20);
            let jitter_us = (-(1.0 - share).ln() * route.jitter_us) as u64;
            self.congestion.on_datagram(self.now_us, 0, SendTime::at(self.now_us - delay_us - jitter_us));
            fates.standing += u64::from(self.congestion.is_standing());
            let first = self.next;
            self.next += PER_REPAIR;
            self.congestion.on_packet(Seq(self.next - 1));
            let loss = (route.loss)(delay_us);
            if loss == 0.0 {
                self.congestion.on_arrived(Seq(first), PER_REPAIR);
            }
            for seq in (first..self.next).map(Seq).filter(|_| loss > 0.0) {
                if !self.random.chance(loss) {
                    self.congestion.on_arrived(seq, 1);
                    continue;
                }
                fates.lost += 1;
                self.congestion.on_lost(seq);
                fates.left += u64::from(self.congestion.judge(seq) == Verdict::Leave);
                fates.recovered_first += u64::from(fates.left == 0);
            }
            self.congestion.on_tick(self.now_us);
        }
        fates
    }
}

#[test]
fn a_route_that_becomes_longer_and_lossy_is_recovered_after_seconds() {
    let jitter_us = 5_000.0;
    let lossy = Route { loss: |_| 0.001, ..CLEAN };
    let jittery = Route { jitter_us, ..LONGER };
    // Knowledge of the link, its route, and the longer one.
    let cases = [
        ("nothing known", CLEAN, CLEAN, LONGER),
        ("a queue of 9 ms", overflows::<9>(), CLEAN, LONGER),
        ("a queue of 38 ms", overflows::<38>(), CLEAN, LONGER),
        ("a lossy link", CLEAN, lossy, LONGER),
        ("jitter of the longer route", CLEAN, CLEAN, jittery),
        ("jitter of both", CLEAN, Route { jitter_us, ..CLEAN }, jittery),
        ("a queue of 9 ms, and jitter", overflows::<9>(), CLEAN, jittery),
        ("a longer route that loses more", CLEAN, CLEAN, Route { loss: |_| 0.05, ..LONGER }),
        ("a route that is 3 ms longer", CLEAN, CLEAN, Route { delay_us: |_| 3_000, ..LONGER }),
    ];
    for seed in 1..4 {
        for (name, known, route, longer) in cases {
            let mut link = Link::new(seed);
            link.run(60 * SECOND, known);
            link.run(600 * SECOND, route);
            link.run(30 * SECOND, longer);
            let fates = link.run(60 * SECOND, longer);
            let state = link.congestion.state();
            // Jitter beyond the queue that is known looks like it.
            assert!(20 * fates.left <= fates.lost, "{name}, seed {seed}: {fates:?}, {state}");
            assert_eq!(fates.standing, 0, "{name}, seed {seed}: {state}");
        }
    }
}

#[test]
fn a_queue_that_fills_and_stands_full_is_left_for_as_long_as_it_stands() {
    for (name, queue) in [("0.5 s", fills::<500>()), ("0.2 s", fills::<200>())] {
        let mut link = Link::new(5);
        link.run(60 * SECOND, CLEAN);
        let fates = link.run(600 * SECOND, queue);
        assert!(fates.recovered_first < 40 && fates.left + 40 > fates.lost, "{name}: {fates:?}");
        assert!(fates.standing > 590 * SECOND / REPAIR_US, "{name}: {fates:?}");
        // One datagram that meets less ends it at once.
        assert_eq!(link.run(SECOND, CLEAN).standing, 0, "{name}");
    }
}

/// However fast the queue fills, and before it has ebbed.
#[test]
fn the_first_overflow_of_a_queue_is_known_after_a_few_losses() {
    for (name, queue) in [("0.2 s", fills::<200>()), ("20 ms", fills::<20>()), ("at once", fills::<0>())] {
        let mut link = Link::new(6);
        link.run(10 * SECOND, CLEAN);
        let fates = link.run(SECOND, queue);
        assert!(fates.recovered_first < 40 && fates.left > 200, "{name}: {fates:?}");
    }
}
