//! One tick for all work at a high packet rate.
//!
//! At a low rate each packet, each datagram and each due repair wakes the process, which costs more than the
//! work itself. Above some 6,000 of them per second the loop turns once a tick instead, and reads everything
//! that has come. Nothing else wakes it but signals and status requests: the tap is told not to, and the
//! repair socket is in no set that the loop waits for.
//!
//! A tick delays repairs by half its length on average. It is a 400th of the round-trip time, which is far
//! less than TCP takes for reordering, a quarter of it.

use std::io;
use std::time::Duration;

use daemon::control::Control;
use daemon::signals::Signals;
use netio::poll::{Interest, Poller};
use tracing::debug;

use crate::passive::{CONTROL, Passive, SIGNALS, clock_us};

/// Length of a tick while the round-trip time is not known.
const PERIOD_US: u64 = 250;
/// Shortest and longest tick.
const PERIOD_RANGE: std::ops::RangeInclusive<u64> = 100..=500;
/// Number of ticks in a round-trip time.
const PER_ROUND_TRIP: u64 = 400;
/// Interval over which the rate is measured.
const MEASURE_US: u64 = 2_000;
/// Twice the number of packets and datagrams in a tick from which ticks are cheaper.
const TWICE_HOT: u64 = 3;

/// Measures the rate of packets and datagrams, and decides whether the loop turns by ticks.
#[derive(Debug)]
struct Rate {
    period_us: u64,
    from_us: u64,
    count: u64,
}

impl Rate {
    /// Whether the interval is over for which the rate is measured.
    fn is_measured(&self, now_us: u64) -> bool {
        now_us.saturating_sub(self.from_us) >= MEASURE_US
    }

    /// Returns whether ticks are to begin or to end, if the rate calls for a change.
    fn measure(&mut self, now_us: u64, is_ticking: bool) -> Option<bool> {
        if !self.is_measured(now_us) {
            return None;
        }
        let elapsed_us = now_us - self.from_us;
        let twice = 2 * self.count * self.period_us;
        (self.from_us, self.count) = (now_us, 0);
        let is_hot = twice >= TWICE_HOT * elapsed_us;
        // They end at half the rate at which they begin.
        let is_cool = 2 * twice < TWICE_HOT * elapsed_us;
        (is_hot && !is_ticking || is_cool && is_ticking).then_some(is_hot)
    }
}

/// The tick of the loop.
#[derive(Debug)]
pub(crate) struct Tick {
    rate: Rate,
    /// Waits for signals and status requests while the loop turns by ticks.
    poller: Option<Poller>,
    next_us: u64,
    /// Number of times that the loop began to turn by ticks.
    starts: u64,
}

impl Default for Tick {
    fn default() -> Self {
        Self {
            rate: Rate { period_us: PERIOD_US, from_us: 0, count: 0 },
            poller: None,
            next_us: 0,
            starts: 0,
        }
    }
}

impl Tick {
    /// Notes captures or datagrams that were read.
    pub(crate) fn on_input(&mut self, count: usize) {
        self.rate.count += count as u64;
    }

    /// Length of a tick in microseconds, if the loop turns by ticks.
    pub(crate) fn period_us(&self) -> Option<u64> {
        self.poller.is_some().then_some(self.rate.period_us)
    }

    /// Number of times that the loop began to turn by ticks.
    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    /// Changes the round-trip time, the shortest to any peer.
    pub(crate) fn set_rtt(&mut self, rtt_us: Option<u64>) {
        let period_us = rtt_us.map_or(PERIOD_US, |rtt_us| rtt_us / PER_ROUND_TRIP);
        self.rate.period_us = period_us.clamp(*PERIOD_RANGE.start(), *PERIOD_RANGE.end());
    }

    /// Waits for the next tick, if the loop turns by ticks; returns whether it does. With `is_busy` it only
    /// looks for signals.
    pub(crate) fn wait(&mut self, is_busy: bool) -> io::Result<bool> {
        let Some(poller) = &mut self.poller else { return Ok(false) };
        let until_us = if is_busy { 0 } else { self.next_us.saturating_sub(clock_us()) };
        poller.wait(Some(Duration::from_micros(until_us)))?.for_each(drop);
        let now_us = clock_us();
        if now_us >= self.next_us {
            self.next_us = (self.next_us + self.rate.period_us).max(now_us);
        }
        Ok(true)
    }
}

impl Passive {
    /// Begins or ends to turn by ticks, as the rate of packets calls for.
    pub(crate) fn adapt_tick(&mut self) {
        let now_us = self.engine.now_us;
        let is_ticking = self.tick.poller.is_some();
        if self.tick.rate.is_measured(now_us) {
            // A session that begins, ends or takes another path has another round trip.
            let rtt_us = self.engine.gateway.peers().filter_map(|peer| peer.rtt_us).min();
            self.tick.set_rtt(rtt_us);
        }
        let Some(begins) = self.tick.rate.measure(now_us, is_ticking) else { return };
        // Each datagram of a tunnel carries a packet that somebody waits for.
        if begins && (!self.config.gateway.tick || self.ports.outlets.tunnel.is_some()) {
            return;
        }
        if let Err(error) = self.set_ticking(begins) {
            debug!(%error, "cannot change the tick");
        }
    }

    /// Begins or ends to turn by ticks. A tap that is opened or replaced wakes the loop, until ticks begin.
    pub(crate) fn set_ticking(&mut self, is_ticking: bool) -> io::Result<()> {
        if is_ticking {
            self.tick.next_us = clock_us();
            self.tick.starts += 1;
        }
        // Before the tap is silenced: after a failure the loop is still woken.
        self.tick.poller = if is_ticking { Some(rarely(&self.signals, &self.control)?) } else { None };
        self.ports.taps_mut().try_for_each(|tap| tap.set_unwatched(is_ticking))
    }
}

/// Returns an epoll set of what must be handled at once at any rate.
fn rarely(signals: &Signals, control: &Control) -> io::Result<Poller> {
    let poller = Poller::new()?;
    poller.add(signals, SIGNALS, Interest::Readable)?;
    poller.add(control, CONTROL, Interest::Readable)?;
    Ok(poller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_begin_above_6000_inputs_a_second_and_end_below_half_of_it() {
        let mut rate = Rate { period_us: PERIOD_US, from_us: 0, count: 0 };
        let (mut is_ticking, mut now_us) = (false, 0);
        for (per_second, expected) in
            [(5_900, false), (6_100, true), (3_100, true), (2_900, false), (0, false)]
        {
            for _ in 0..10 {
                now_us += 10_000;
                rate.count += per_second / 100;
                is_ticking = rate.measure(now_us, is_ticking).unwrap_or(is_ticking);
            }
            assert_eq!(is_ticking, expected, "{per_second} a second");
        }
        rate.count += 1_000_000;
        assert_eq!(rate.measure(now_us + 1_999, false), None, "too short to tell");
    }

    #[test]
    fn a_tick_is_a_small_part_of_the_round_trip() {
        let mut tick = Tick::default();
        for (rtt_us, period_us) in [
            (None, 250),
            (Some(1_000), 100),
            (Some(100_000), 250),
            (Some(120_000), 300),
            (Some(900_000), 500),
        ] {
            tick.set_rtt(rtt_us);
            assert_eq!(tick.rate.period_us, period_us);
        }
        assert_eq!(tick.period_us(), None, "ticks have not begun");
    }
}
