//! The part of a trace that codes run over.

use maelstrom::config::{Targets, WINDOW_LONG};

use super::{HISTORY, PACKETS, code, schedules};

/// Longer than every code remembers.
const GAP_MAX: u32 = HISTORY as u32 + WINDOW_LONG as u32;

/// The latest part of a trace, with its long gaps shortened: packets that no repair connects with a loss
/// change nothing.
///
/// Outages, which no code recovers, are left out: their packets would outweigh the differences between the
/// codes. Each is a long gap in place of it, which keeps the losses around it apart.
#[derive(Debug, Default)]
pub(super) struct Latest {
    /// Runs of packets that arrived and that were lost, in turn.
    pub(super) runs: Vec<u32>,
    /// Packets of these runs, and those that they stand for.
    pub(super) packets: u64,
    pub(super) recorded: u64,
    /// Lost packets of these runs.
    pub(super) lost: u64,
    /// Bursts that no window recovers, the outages too.
    pub(super) hopeless: Bursts,
    pub(super) outages: Bursts,
}

/// Bursts, and the lost packets in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bursts {
    pub(super) count: u64,
    pub(super) packets: u64,
}

impl Latest {
    pub(super) fn of(trace: &[u32]) -> Self {
        let longest = longest_recovered();
        let mut latest = Self::default();
        for run in trace.chunks(2).rev() {
            let (arrived, lost) = (run[0], run.get(1).copied().unwrap_or(0));
            let is_outage = u64::from(lost) > longest;
            // Runs are in reverse: the last number is the gap before the next burst.
            let open = latest.runs.last().copied().unwrap_or(0);
            let packets = if is_outage {
                u64::from(GAP_MAX - open)
            } else {
                u64::from(arrived.min(GAP_MAX)) + u64::from(lost)
            };
            if latest.lost > 0 && latest.packets + packets > PACKETS[1] {
                break;
            }
            if is_outage {
                latest.outages.add(lost);
                latest.runs.pop();
                if latest.runs.is_empty() {
                    latest.runs.push(0);
                }
                latest.runs.push(GAP_MAX);
            } else {
                latest.runs.extend([lost, arrived.min(GAP_MAX)]);
                latest.lost += u64::from(lost);
                latest.recorded += u64::from(lost);
            }
            if u64::from(lost) > longest_of_windows() {
                latest.hopeless.add(lost);
            }
            latest.packets += packets;
            latest.recorded += u64::from(arrived);
        }
        latest.runs.reverse();
        latest
    }

    /// Share of all packets that a share of the packets of these runs is.
    pub(super) fn of_all(&self, share: f64) -> f64 {
        share * self.packets as f64 / self.recorded.max(1) as f64
    }
}

impl Bursts {
    fn add(&mut self, lost: u32) {
        self.count += 1;
        self.packets += u64::from(lost);
    }
}

/// Number of packets in the longest burst that a window at the highest rate recovers. Each of them is in as
/// many repairs after the burst as the rate sends for a window, or in nearly as many.
pub(super) fn longest_of_windows() -> u64 {
    (f64::from(WINDOW_LONG) * Targets::RATE_MAX.as_f64()) as u64
}

/// Number of packets in the longest burst that any of the codes recovers.
pub(super) fn longest_recovered() -> u64 {
    let others = schedules().iter().map(|schedule| code(schedule).longest_burst() as u64).max();
    others.unwrap_or(0).max(longest_of_windows())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_losses_count_and_long_gaps_are_short() {
        // Days with hardly any loss, and then one packet in twenty.
        let quiet = std::iter::repeat_n([80_000_000, 1], 2_000);
        let bad = std::iter::repeat_n([19, 1], 6_000);
        let trace: Vec<u32> = quiet.chain(bad).flatten().collect();
        let latest = Latest::of(&trace);
        assert!(latest.lost >= 4_900 && latest.packets <= PACKETS[1], "{}", latest.lost);
        // A single loss, and ten million packets since then.
        let single = Latest::of(&[50, 1, 10_000_000, 0]);
        assert_eq!((single.lost, single.recorded, single.runs.len()), (1, 10_000_051, 4));
        // Two losses without any gap between the first and the packets before it.
        assert_eq!(Latest::of(&[0, 2]).runs, [0, 2]);
        assert_eq!((Latest::of(&[7, 0]).lost, Latest::of(&[]).lost), (0, 0));
    }

    #[test]
    fn outages_are_long_gaps_between_the_losses_around_them() {
        let latest = Latest::of(&[70, 2, 30, 402, 60, 401, 5, 9_000, 40, 1, 300, 5_000_000, 200, 0]);
        assert_eq!(latest.runs, [70, 2, GAP_MAX, 401, GAP_MAX, 1, GAP_MAX, 0]);
        assert_eq!(latest.packets, latest.runs.iter().map(|&run| u64::from(run)).sum::<u64>());
        assert_eq!((latest.lost, latest.recorded), (404, 404 + 705));
        assert_eq!(latest.outages, Bursts { count: 3, packets: 5_009_402 });
        assert_eq!(latest.hopeless, Bursts { count: 4, packets: 5_009_803 });
        // Older losses count however long the outages take since then.
        let many = Latest::of(&[vec![9, 1], [1, 5_000].repeat(1_000)].concat());
        assert_eq!((&many.runs[..], many.lost), (&[9, 1, GAP_MAX, 0][..], 1));
        // Outages that are older than the packets of a simulation count nowhere.
        let old = Latest::of(&[vec![9, 5_000], [5_000, 1].repeat(100)].concat());
        assert_eq!((old.outages, old.hopeless), (Bursts::default(), Bursts::default()));
    }
}
