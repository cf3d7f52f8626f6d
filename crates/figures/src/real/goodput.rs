//! TCP beside losses, with and without gateways: Thesis Figures 3.11 and 3.12.
//!
//! Panels: goodput against loss at 50 ms, then against one-way latency at 0.1 and at 1 %. A transfer that has a place in
//! several panels is made once.

use std::fmt::Write as _;
use std::time::Duration;

use maelstrom::config::Schedule;
use maelstrom_lab::{Setting, between, sites};
use netlab::LossModel;
use netlab::traffic::{TcpTransfer, tcp_transfer};

use super::{gateways, has_congestion, stop, watcher};
use crate::outcome::{Panel, Point, Series};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

/// As theirs first; the other two are what kernels run today.
const SENDERS: [&str; 3] = ["reno", "cubic", "bbr"];
/// Of the panel against loss.
const DELAY_MS: u32 = 50;
/// Of the panels against latency.
const PERCENTS: [f64; 2] = [0.1, 1.0];
/// Where a verdict looks.
const JUDGED_PERCENT: f64 = 1.0;
/// Up to here all is masked, says the source.
const MASKED_PERCENT: f64 = 2.0;

const CLAIM: &str = "up to 2 % loss is masked without significant loss of throughput, two orders of magnitude above TCP \
                     alone at 1 % (1 Gbit/s); with gateways goodput follows the lossless line at all latencies, without \
                     it collapses with either";

const WHY: &str = "repairs take their share of the link (41 % of the bytes) beside the data, so that goodput stays below the \
                   lossless line by as much; our hosts buffer more than a product of bandwidth and delay, so that the lossless \
                   line does not decline with latency as theirs on the faster link. Runs are shorter than theirs, so that where losses are few \
                   TCP alone is still on its way down, and reno with gateways on its way up again from its first overfull queue. \
                   bbr does not slow down for losses and needs no help against few of them";

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "3.11",
            title: "TCP goodput on 100 Mbit/s against loss and latency, with and without gateways",
            source: "Thesis Figure 3.11, Maelstrom Figure 9",
            setup: "one TCP flow on a link of 100 Mbit/s, gateways (8; 1,20,40), MTU 1300 in the sites and 1500 on the link; \
                    loss is uniform and takes packets, repairs and acknowledgements, both ways alike; sockets may buffer 128 \
                    MiB; sites are new for each run, and what the receiver was handed in its second half counts. Panels: \
                    against loss at 50 ms one way; against latency at 0.1 % and at 1 %. Runs of 5 to 24 s: five for reno \
                    against loss, as there are error bars in the source, all else one",
            claim: CLAIM,
            why: WHY,
            plan: |scale| plan(scale, 100_000_000, 1),
            judge,
        },
        Figure {
            id: "3.12",
            title: "TCP goodput on 1 Gbit/s against loss and latency, with and without gateways",
            source: "Thesis Figure 3.12, Maelstrom Figure 10",
            setup: "as 3.11, with eight TCP flows on a link of 1 Gbit/s; theirs had 1500 bytes in the sites too, and repairs \
                    in two fragments",
            claim: CLAIM,
            why: WHY,
            plan: |scale| plan(scale, 1_000_000_000, 8),
            judge,
        },
    ]
}

/// One transfer's circumstances.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    /// Of [`SENDERS`].
    sender: usize,
    /// Loss.
    percent: f64,
    delay_ms: u32,
    masked: bool,
    runs: u64,
}

impl Cell {
    const fn new(sender: usize, percent: f64, delay_ms: u32, masked: bool) -> Self {
        Self { sender, percent, delay_ms, masked, runs: 1 }
    }

    /// The lossless line, then of each sender with gateways and without.
    fn series(&self) -> usize {
        if self.percent == 0.0 { 0 } else { 1 + 2 * self.sender + usize::from(!self.masked) }
    }

    /// Where a value of this cell belongs: panel and place there.
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

    /// Long enough for a sender to have grown to the link's product of bandwidth and delay, and to have got over what it
    /// lost when it first overfilled the queue, before half of it is over.
    fn seconds(&self, scale: Scale) -> f64 {
        let usual = scale.pick(1.5, 2.6) + scale.pick(0.02, 0.045) * f64::from(self.delay_ms);
        let is_fully_alone = scale == Scale::Full && !self.masked;
        if is_fully_alone && self.percent == 0.0 {
            // What was handed over late, behind a gap from before, is not to lift the line above the link's rate.
            1.7 * usual
        } else if is_fully_alone && self.percent < PERCENTS[0] {
            // Where losses are few, TCP takes its time to fall.
            8.0 + usual
        } else {
            usual
        }
    }
}

/// Losses of the first panel, in percent.
fn percents(scale: Scale) -> &'static [f64] {
    scale.pick(&PERCENTS, &[0.01, 0.1, 1.0, 2.0, 5.0, 10.0])
}

/// All that is measured; the quick run of eight flows has no room for a second latency.
fn cells(scale: Scale, flows: usize) -> Vec<Cell> {
    let quick: &[u32] = if flows == 1 { &[10, DELAY_MS] } else { &[DELAY_MS] };
    let delays = scale.pick(quick, &[10, DELAY_MS, 100, 250]);
    let mut cells: Vec<Cell> = delays.iter().map(|&delay_ms| Cell::new(0, 0.0, delay_ms, false)).collect();
    let mut both = |sender, percent, delay_ms, runs| {
        for masked in [true, false] {
            cells.push(Cell { runs, ..Cell::new(sender, percent, delay_ms, masked) });
        }
    };
    for &percent in percents(scale) {
        both(0, percent, DELAY_MS, scale.pick(1, 5));
    }
    // Quick: at one loss rate only, and the sender of the papers alone.
    for &percent in scale.pick(&PERCENTS[1..], &PERCENTS) {
        for &delay_ms in delays.iter().filter(|&&delay_ms| delay_ms != DELAY_MS) {
            both(0, percent, delay_ms, 1);
        }
    }
    if scale == Scale::Full {
        for sender in 1..SENDERS.len() {
            for (percent, delay_ms) in [(0.1, 50), (1.0, 50), (5.0, 50), (0.1, 250), (1.0, 250)] {
                both(sender, percent, delay_ms, 1);
            }
        }
    }
    cells
}

fn plan(scale: Scale, rate_bps: u64, flows: usize) -> Plan {
    let senders = &SENDERS[..scale.pick(1, SENDERS.len())];
    let series = || {
        let of = |name: &&str| [format!("{name}, gateways"), format!("{name} alone")];
        std::iter::once("reno, no loss".to_owned()).chain(senders.iter().flat_map(of))
    };
    let against_latency = |y| PanelPlan::new("one-way latency of the link (ms)", y, series()).log_y();
    let panels = vec![
        PanelPlan::new("loss rate (%), link of 50 ms", "goodput (Mbit/s)", series()).log_x().log_y(),
        against_latency("goodput at 0.1 % loss (Mbit/s)"),
        against_latency("goodput at 1 % loss (Mbit/s)"),
    ];
    let job = |cell: Cell| {
        let seconds = cell.seconds(scale);
        let setup = format!("{rate_bps} bit/s, {flows} flows, {seconds} s, {cell:?}");
        Job::real(setup, cell.runs, move |seed, lab| {
            let y = goodput(cell, &Course { rate_bps, flows, seconds, seed }, lab)?;
            let sample = |(panel, x)| Sample { panel, series: cell.series(), x, y };
            Ok(cell.places(percents(scale)).into_iter().map(sample).collect())
        })
    };
    Plan { panels, jobs: cells(scale, flows).into_iter().map(job).collect() }
}

/// What a cell does not tell of a transfer.
struct Course {
    rate_bps: u64,
    flows: usize,
    seconds: f64,
    seed: u64,
}

/// Of one transfer, in Mbit/s.
fn goodput(cell: Cell, course: &Course, lab: &Lab<'_>) -> Result<f64, RunError> {
    let congestion = SENDERS[cell.sender];
    has_congestion(congestion)?;
    let loss = if cell.percent == 0.0 { LossModel::None } else { LossModel::Uniform(cell.percent / 100.0) };
    let delay_us = u64::from(cell.delay_ms) * 1_000;
    let sites = sites(Some(course.rate_bps), delay_us, &loss, course.seed)?;
    let code = Schedule::Layered { r: 8, interleaves: vec![1, 20, 40] };
    let setting = Setting { schedule: code, delayed: false, ..Setting::default() };
    let pair = if cell.masked { Some(gateways(lab, &sites, &setting)?) } else { None };
    let transfer = TcpTransfer {
        congestion: Some(congestion.to_owned()),
        duration: Duration::from_secs_f64(course.seconds),
        flows: course.flows,
        ..TcpTransfer::default()
    };
    let report = tcp_transfer(between(&sites), &transfer, &mut watcher(lab))?;
    lab.go_on()?;
    if let Some(offset) = report.mismatch {
        return Err(RunError::Failed(format!("byte {offset} of a transfer is not what was sent")));
    }
    stop(pair)?;
    Ok(report.forward.second_half_bps() / 1e6)
}

fn judge(panels: &[Panel]) -> Verdict {
    let [loss, _, latency] = panels else { unreachable!("three panels are planned") };
    let [lossless, with, without, beside @ ..] = &loss.series[..] else {
        unreachable!("three series at the least")
    };
    let [_, with_far, without_far, ..] = &latency.series[..] else { unreachable!("as before") };
    let at = |series: &Series| series.at(JUDGED_PERCENT);
    let mut ours = format!(
        "Mbit/s, reno: no loss {}; at {} % loss {} with gateways, {} alone: {:.0} times as much at 1 %; at 1 % and {} ms {} with, \
         {} alone",
        short(at(lossless)),
        list(with, |point| point.x.to_string()),
        list(with, |point| short(point.median)),
        list(without, |point| short(point.median)),
        at(with) / at(without),
        with_far.points.last().map_or(f64::NAN, |point| point.x),
        short(with_far.last()),
        short(without_far.last()),
    );
    for (name, pair) in SENDERS[1..].iter().zip(beside.chunks_exact(2)) {
        let (with, alone) = (short(at(&pair[0])), short(at(&pair[1])));
        let _ = write!(ours, "; {name} at 1 % {with} with, {alone} alone");
    }
    // Wide, since gateways and hosts share two cores with whatever else runs; the numbers are in the row.
    let masked = |point: &&Point| point.x <= MASKED_PERCENT;
    let masks = with.points.iter().filter(masked).all(|point| point.median > 0.25 * at(lossless));
    let collapses = at(without) < 0.25 * at(with) && without.last() < without.first();
    let reaches = with_far.last() > 3.0 * without_far.last();
    Verdict { ours, holds: masks && collapses && reaches }
}

fn list(series: &Series, text: impl Fn(&Point) -> String) -> String {
    series.points.iter().map(text).collect::<Vec<_>>().join(" / ")
}

/// As many digits as are of use.
fn short(mbps: f64) -> String {
    if mbps < 10.0 { format!("{mbps:.1}") } else { format!("{mbps:.0}") }
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
            let cells = cells(Scale::Full, flows);
            for (at, cell) in cells.iter().enumerate() {
                let same = |other: &Cell| Cell { runs: 0, ..*other } == Cell { runs: 0, ..*cell };
                assert!(!cells[..at].iter().any(same), "{cell:?}");
                // Sites and gateways take about a second to come and go.
                seconds += cell.runs as f64 * (cell.seconds(Scale::Full) + 1.0);
            }
        }
        assert!(seconds < 25.0 * 60.0, "{seconds} s");
    }

    /// A quick figure's panels with these medians at 0.1 and 1 %.
    fn panels(with: [f64; 2], alone: [f64; 2]) -> Vec<Panel> {
        let series = |values: [f64; 2]| Series {
            name: String::new(),
            points: PERCENTS.iter().zip(values).map(|(&x, y)| Point::of(x, vec![y])).collect(),
        };
        let panel = || Panel {
            x: String::new(),
            y: String::new(),
            x_log: true,
            y_log: true,
            series: vec![series([96.0, 96.0]), series(with), series(alone)],
        };
        vec![panel(), panel(), panel()]
    }

    #[test]
    fn a_verdict_wants_losses_masked_and_tcp_alone_brought_down() {
        assert!(judge(&panels([68.0, 68.0], [5.0, 1.0])).holds);
        assert!(!judge(&panels([68.0, 20.0], [5.0, 1.0])).holds, "gateways that do not mask");
        assert!(!judge(&panels([68.0, 68.0], [60.0, 40.0])).holds, "TCP that needs no help");
        assert!(!judge(&panels([68.0, 68.0], [1.0, 1.0])).holds, "goodput that does not fall with loss");
    }
}
