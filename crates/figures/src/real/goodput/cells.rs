//! The transfers of a figure of goodput, and their places in its panels.

use maelstrom::config::Schedule;
use stage::gateways::Setting;

use crate::plan::{Sample, Scale};

/// TCP senders: that of the papers, then those of today's kernels.
pub(super) const SENDERS: [&str; 3] = ["reno", "cubic", "bbr"];
/// Latency of the panel against loss.
const DELAY_MS: u32 = 50;
/// Loss rates of the panels against latency.
pub(super) const PERCENTS: [f64; 2] = [0.1, 1.0];
/// Number of the panel of repairs.
const REPAIRS: usize = 3;
/// The code: packets in a repair, and interleaves.
pub(super) const R: u8 = 8;
pub(super) const INTERLEAVES: [u16; 3] = [1, 20, 40];

/// The values of a transfer.
pub(super) struct Measured {
    pub(super) mbps: f64,
    /// With gateways: the share of the due repairs that the sender's gateway sent.
    pub(super) repairs_percent: Option<f64>,
}

/// The circumstances of one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// Index into [`SENDERS`].
    pub(super) sender: usize,
    /// Loss.
    pub(super) percent: f64,
    pub(super) delay_ms: u32,
    /// Whether gateways mask the loss.
    pub(super) masked: bool,
    pub(super) runs: u64,
}

impl Cell {
    pub(super) const fn new(sender: usize, percent: f64, delay_ms: u32, masked: bool) -> Self {
        Self { sender, percent, delay_ms, masked, runs: 1 }
    }

    /// Returns the series: the lossless line, then each sender with gateways and without.
    fn series(&self) -> usize {
        if self.percent == 0.0 { 0 } else { 1 + 2 * self.sender + usize::from(!self.masked) }
    }

    /// Returns the panels and places of a value of this cell.
    fn places(&self, percents: &[f64]) -> Vec<(usize, f64)> {
        let is_lossless = self.percent == 0.0;
        let against_loss = percents.iter().filter(|_| self.delay_ms == DELAY_MS);
        let against_loss = against_loss.filter(|&&percent| is_lossless || percent == self.percent);
        let against_latency = PERCENTS.iter().enumerate();
        let against_latency = against_latency.filter(|&(_, &percent)| is_lossless || percent == self.percent);
        against_loss
            .map(|&percent| (0, percent))
            .chain(against_latency.map(|(at, _)| (1 + at, f64::from(self.delay_ms))))
            .collect()
    }

    /// Returns what a transfer of this cell adds to the figure.
    pub(super) fn samples(&self, measured: &Measured, scale: Scale) -> Vec<Sample> {
        let of_goodput = |(panel, x)| Sample { panel, series: self.series(), x, y: measured.mbps };
        let mut samples: Vec<Sample> = self.places(percents(scale)).into_iter().map(of_goodput).collect();
        if self.delay_ms == DELAY_MS {
            let of_repairs = |y| Sample { panel: REPAIRS, series: self.sender, x: self.percent, y };
            samples.extend(measured.repairs_percent.map(of_repairs));
        }
        samples
    }

    /// Returns the length of the run. In its first half a sender grows to the link's bandwidth-delay product
    /// and recovers from the losses when it first overfills the queue.
    pub(super) fn seconds(&self, scale: Scale) -> f64 {
        let usual = scale.pick(1.5, 2.4) + scale.pick(0.02, 0.04) * f64::from(self.delay_ms);
        let is_fully_alone = scale == Scale::Full && !self.masked;
        if is_fully_alone && self.percent == 0.0 {
            // The line with which all others are compared.
            1.5 * usual
        } else if is_fully_alone && self.percent < PERCENTS[0] {
            // Where losses are few, TCP falls slowly.
            8.0 + usual
        } else {
            usual
        }
    }

    /// Returns the gateways, if there are any.
    pub(super) fn setting(&self) -> Option<Setting> {
        let schedule = Schedule::Layered { r: R, interleaves: INTERLEAVES.to_vec() };
        self.masked.then(|| Setting { schedule, delayed: false, ..Setting::default() })
    }
}

/// Simultaneous transfers, each in sites of its own.
pub(super) type Group = Vec<Cell>;

/// Returns the losses of the first panel in percent.
fn percents(scale: Scale) -> &'static [f64] {
    scale.pick(&PERCENTS, &[0.01, 0.1, 1.0, 2.0, 5.0, 10.0])
}

/// Returns all transfers. A quick run of eight flows has a single latency.
///
/// On the slower link, which needs a tenth of a machine, a transfer with gateways and the one without are a
/// group.
pub(super) fn groups(scale: Scale, flows: usize) -> Vec<Group> {
    let quick: &[u32] = if flows == 1 { &[10, DELAY_MS] } else { &[DELAY_MS] };
    let delays = scale.pick(quick, &[0, 10, DELAY_MS, 100, 250]);
    let runs = |delay_ms| scale.pick(1, if delay_ms == DELAY_MS { 5 } else { 3 });
    let lossless =
        |&delay_ms: &u32| vec![Cell { runs: runs(delay_ms), ..Cell::new(0, 0.0, delay_ms, false) }];
    let mut groups: Vec<Group> = delays.iter().map(lossless).collect();
    let mut both = |sender, percent, delay_ms, runs| {
        let pair = [true, false].map(|masked| Cell { runs, ..Cell::new(sender, percent, delay_ms, masked) });
        // At 0 ms the machine itself limits a transfer.
        let at_once = if flows == 1 && delay_ms > 0 { 2 } else { 1 };
        groups.extend(pair.chunks(at_once).map(<[Cell]>::to_vec));
    };
    for &percent in percents(scale) {
        both(0, percent, DELAY_MS, runs(DELAY_MS));
    }
    // Quick: at one loss rate only, and only with the papers' sender.
    for &percent in scale.pick(&PERCENTS[1..], &PERCENTS) {
        for &delay_ms in delays.iter().filter(|&&delay_ms| delay_ms != DELAY_MS) {
            both(0, percent, delay_ms, runs(delay_ms));
        }
    }
    if scale == Scale::Full {
        let far: &[u32] = if flows == 1 { &[10, 100, 250] } else { &[10, 250] };
        let of_loss = percents(scale).iter().map(|&percent| (percent, DELAY_MS));
        let of_latency =
            PERCENTS.iter().flat_map(|&percent| far.iter().map(move |&delay_ms| (percent, delay_ms)));
        for (percent, delay_ms) in of_loss.chain(of_latency) {
            (1..SENDERS.len()).for_each(|sender| both(sender, percent, delay_ms, 1));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_all_its_places() {
        let percents = percents(Scale::Full);
        assert_eq!(Cell::new(0, 0.0, 50, false).places(percents).len(), percents.len() + 2);
        assert_eq!(Cell::new(0, 0.0, 100, false).places(percents), [(1, 100.0), (2, 100.0)]);
        assert_eq!(Cell::new(1, 1.0, 50, true).places(percents), [(0, 1.0), (2, 50.0)]);
        assert_eq!(Cell::new(1, 0.1, 250, true).places(percents), [(1, 250.0)]);
        assert_eq!(Cell::new(2, 5.0, 50, true).places(percents), [(0, 5.0)]);
    }

    #[test]
    fn no_transfer_is_made_twice_and_the_full_run_of_both_figures_has_its_time() {
        let mut seconds = 0.0;
        for flows in [1, 8] {
            let groups = groups(Scale::Full, flows);
            let cells: Vec<Cell> = groups.concat();
            for (at, cell) in cells.iter().enumerate() {
                let same = |other: &Cell| Cell { runs: 0, ..*other } == Cell { runs: 0, ..*cell };
                assert!(!cells[..at].iter().any(same), "{cell:?}");
            }
            for group in groups {
                assert!(group.iter().all(|cell| cell.runs == group[0].runs), "{group:?}");
                // Sites and gateways take their time to come and go: so much was measured, most of it round
                // trips.
                let around = |cell: &Cell| {
                    let (once, per_ms) = if cell.masked { (1.2, 0.005) } else { (0.7, 0.003) };
                    cell.seconds(Scale::Full) + once + per_ms * f64::from(cell.delay_ms)
                };
                let longest = group.iter().map(around).fold(0.0, f64::max);
                seconds += group[0].runs as f64 * longest;
            }
        }
        assert!(seconds < 33.0 * 60.0, "{seconds} s");
    }
}
