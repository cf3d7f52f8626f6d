//! The share of our repairs that the link loses, from the counts in the peer's reports.

use std::collections::VecDeque;

/// Number of times at which the repairs sent are remembered: 4 s, which no usual round trip exceeds.
const TIMES: usize = 4_096;
/// Shortest interval between them: reports leave at any time, and a coarse interval looks like a loss.
const INTERVAL_US: u64 = 1_000;
/// Number of repairs of one sample.
const SAMPLE: u64 = 32;
/// Weight of the latest sample in the average, and in the steady one.
const LATEST: f64 = 0.5;
const LATEST_STEADY: f64 = 1.0 / 16.0;

/// Compares the repairs sent with those that arrived.
#[derive(Debug)]
pub(crate) struct RepairLoss {
    /// Number of repairs sent in this session.
    sent: u64,
    /// Times, and the repairs sent up to each, oldest first.
    history: VecDeque<(u64, u64)>,
    /// Repairs sent and arrived at the begin of the sample.
    begin: (u64, u64),
    average: f64,
    steady: f64,
}

impl Default for RepairLoss {
    fn default() -> Self {
        Self { sent: 0, history: VecDeque::with_capacity(TIMES), begin: (0, 0), average: 0.0, steady: 0.0 }
    }
}

impl RepairLoss {
    /// Begins a session.
    pub(crate) fn restart(&mut self) {
        (self.sent, self.begin) = (0, (0, 0));
        self.history.clear();
    }

    /// Continues a session in which `arrived` repairs of another process have arrived.
    pub(crate) fn continue_at(&mut self, arrived: u64) {
        self.restart();
        self.begin = (0, arrived);
    }

    /// Forgets the share, because the next repairs say nothing about those before.
    pub(crate) fn forget(&mut self) {
        (self.average, self.steady) = (0.0, 0.0);
    }

    /// The share of repairs lost in the last sixteen samples or so. It follows a change late, and hardly
    /// varies where the link does not.
    pub(crate) fn steady(&self) -> f64 {
        self.steady.max(0.0)
    }

    /// Notes that a repair was sent.
    pub(crate) fn on_sent(&mut self, now_us: u64) {
        self.sent += 1;
        match self.history.back_mut() {
            Some((at_us, sent)) if now_us < *at_us + INTERVAL_US => *sent = self.sent,
            _ => self.note(now_us),
        }
    }

    /// Must be called each tick.
    pub(crate) fn on_tick(&mut self, now_us: u64) {
        self.note(now_us);
    }

    fn note(&mut self, now_us: u64) {
        if self.history.len() == TIMES {
            self.history.pop_front();
        }
        self.history.push_back((now_us, self.sent));
    }

    /// Takes the number of repairs of this session that had arrived when a report left, and the time at which
    /// the latest datagram was sent that had arrived then; returns the average share of repairs lost if there
    /// is a new sample.
    ///
    /// Repairs sent later were in flight. A time that follows from the round trip would not do: while a queue
    /// fills, more repairs are in flight than usual, and would look lost.
    pub(crate) fn on_report(&mut self, sent_us: u64, arrived: u64) -> Option<f64> {
        let &(_, sent) = self.history.iter().rev().find(|&&(at_us, _)| at_us <= sent_us)?;
        let sample = sent.checked_sub(self.begin.0).filter(|&sample| sample >= SAMPLE)?;
        let there = arrived.saturating_sub(self.begin.1);
        self.begin = (sent, arrived);
        // Repairs that one sample misses are in the next one, whose loss is below 0 then.
        let loss = 1.0 - (there as f64 / sample as f64).min(2.0);
        self.average += (loss - self.average) * LATEST;
        self.steady += (loss - self.steady) * LATEST_STEADY;
        Some(self.average.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_in_flight_do_not_count_as_lost() {
        let mut loss = RepairLoss::default();
        let (mut arrived, mut stated) = (0, Vec::new());
        // A link with a round trip of 400 ms, which loses nothing, and then each second repair.
        for tick in 0..200_u64 {
            let now_us = tick * 50_000;
            (0..10).for_each(|_| loss.on_sent(now_us));
            loss.on_tick(now_us);
            arrived += if tick < 9 {
                0
            } else if tick < 100 {
                10
            } else {
                5
            };
            let sent_us = now_us.saturating_sub(400_000);
            stated.extend(loss.on_report(sent_us, arrived).map(|loss| (tick, loss)));
        }
        assert!(stated.iter().all(|&(tick, loss)| tick >= 100 || loss < 0.2), "{stated:?}");
        let (_, last) = stated[stated.len() - 1];
        assert!(stated.len() > 30 && (0.45..0.55).contains(&last), "{stated:?}");
    }

    #[test]
    fn the_steady_share_hardly_varies_where_one_repair_in_a_hundred_is_lost() {
        let mut loss = RepairLoss::default();
        let (mut arrived, mut steady, mut latest) = (0, Vec::new(), Vec::new());
        for tick in 0..400_u64 {
            let now_us = tick * 50_000;
            (0..40).for_each(|_| loss.on_sent(now_us));
            loss.on_tick(now_us);
            // One of a hundred, at irregular times.
            arrived += if tick % 5 < 2 { 39 } else { 40 };
            if let Some(share) = loss.on_report(now_us, arrived) {
                latest.push(share);
                steady.push(loss.steady());
            }
        }
        assert!(steady[80..].iter().all(|share| (0.007..0.013).contains(share)), "{steady:?}");
        assert!(latest[80..].iter().any(|share| *share < 0.007), "{latest:?}");
        loss.forget();
        assert_eq!(loss.steady(), 0.0);
    }

    #[test]
    fn reports_may_leave_at_any_time() {
        let (mut loss, mut stated) = (RepairLoss::default(), Vec::new());
        // A repair each 3 ms, all of which arrive at once, and reports after 200 to 300 ms.
        for sent in 1..3_000_u64 {
            let now_us = 3_000 * sent;
            loss.on_sent(now_us);
            if now_us.is_multiple_of(99_000) {
                loss.on_tick(now_us);
            }
            if sent % 100 == sent / 100 * 37 % 60 {
                stated.extend(loss.on_report(now_us, sent));
            }
        }
        assert!(stated.len() > 20 && stated.iter().all(|&loss| loss < 0.05), "{stated:?}");
    }

    #[test]
    fn repairs_that_wait_in_a_queue_do_not_count_as_lost() {
        let (mut loss, mut stated) = (RepairLoss::default(), Vec::new());
        // Four repairs each millisecond. The queue grows by 100 ms within 100 ms, and ebbs again.
        let delay_us = |at_us: u64| 50_000 + if at_us % 400_000 < 200_000 { at_us % 400_000 / 2 } else { 0 };
        let (mut sent, mut arrived) = (Vec::new(), 0);
        for ms in 0..4_000_u64 {
            let now_us = 1_000 * ms;
            (0..4).for_each(|_| loss.on_sent(now_us));
            sent.push(now_us + delay_us(now_us));
            if ms % 10 == 0 {
                // The report is there at once.
                arrived = sent.iter().take_while(|&&there_us| there_us <= now_us).count().max(arrived);
                let latest_us = (arrived as u64).saturating_sub(1) * 1_000;
                stated.extend(loss.on_report(latest_us, 4 * arrived as u64));
            }
        }
        assert!(stated.len() > 50 && stated.iter().all(|&loss| loss < 0.1), "{stated:?}");
    }
}
