//! TCP beside losses, with and without gateways: Thesis Figures 3.11 and 3.12.
//!
//! Panels: goodput against loss at 50 ms, then against one-way latency at 0.1 and at 1 %. A transfer that has a place in
//! several panels is made once.

mod verdict;

use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use loss::LossModel;
use maelstrom::config::Schedule;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::{TcpTransfer, tcp_transfer};
use stage::gateways::{GatewayPair, Setting, between, sites};

use super::{gateways, has_congestion, stop, surroundings, watcher};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale};

/// As theirs first; the other two are what kernels run today.
const SENDERS: [&str; 3] = ["reno", "cubic", "bbr"];
/// Of the panel against loss.
const DELAY_MS: u32 = 50;
/// Of the panels against latency.
const PERCENTS: [f64; 2] = [0.1, 1.0];
/// Number of the panel of repairs.
const REPAIRS: usize = 3;
/// The code: packets in a repair, and interleaves.
const R: u8 = 8;
const INTERLEAVES: [u16; 3] = [1, 20, 40];
/// Of a packet of the sites: IPv4, TCP, timestamps.
const HEADER_BYTES: u32 = 20 + 20 + 12;
/// Version of the way from a transfer to its values, for the fingerprint: to be raised when [`Link::measure`] changes.
const MEASURE: u32 = 1;

const CLAIM: &str = "up to 2 % loss is masked without significant loss of throughput, two orders of magnitude above \
                     TCP alone at 1 % (1 Gbit/s); with gateways goodput follows the lossless line at all latencies \
                     and lags only where latency is low, without it collapses with either";

const WHY: &str = "repairs take their share of the link (41 % of the bytes) beside the data, so that with gateways \
                   hardly more than 0.71 of the lossless line can be had (more where repairs bring back what an overfull queue \
                   dropped, which took no time on the wire: up to 0.87, with bbr at 10 ms): masked means here at least half of that line \
                   up to 2 %, and 0.45 of it at each latency (a quick run asks for 0.3 and leaves out 2 %, cubic and bbr, \
                   and on the faster link the slope over latency). At 1 % TCP alone has a 57th of the lossless line at 100 Mbit/s \
                   and an 89th at 1 Gbit/s, so that gateways have some 40 and 60 times as much, not 100. Our hosts buffer more than a product of bandwidth and \
                   delay, so that the lossless line does not decline with latency as theirs on the faster link. A \
                   reno sender loses two products of bandwidth and delay when it first overfills the queue, which \
                   holds one; if it has to halve its window twice more before all of that has come, it has half the link, \
                   and at a packet more in a round trip needs most of a minute to get the rest: now and then a run \
                   of the lossless line, or one with gateways, is that low. Where losses are few, TCP alone is still \
                   on its way down. bbr hardly slows down where few are lost, or the link is short; at 1 % and \
                   250 ms it does, to 6 of 96 and 371 of 960 Mbit/s, where gateways have 68 and 560 (one run each)";

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "3.11",
            title: "TCP goodput on 100 Mbit/s against loss and latency, with and without gateways",
            source: "Thesis Figure 3.11, Maelstrom Figure 9",
            setup: "one TCP flow on a link of 100 Mbit/s, gateways (8; 1,20,40), MTU 1300 in the sites (theirs 1200) \
                    and 1500 on the link; loss is uniform and takes packets, repairs and acknowledgements, both ways \
                    alike; sockets may buffer 128 MiB; sites are new for each run; a transfer with gateways and one \
                    without go on at once, each on a link of its own. Theirs is the mean of whole runs of 10 s, with \
                    the standard error of ten; ours the median of runs of 2.4 to 19 s without their first third to two \
                    thirds, with the least and the most: a run counts from the moment in its middle third at which least \
                    had come that the receiver had not been handed yet, for it waited behind a gap. \
                    Panels: against loss at 50 ms one way; against latency at 0.1 % and at 1 % (0 ms: what the \
                    machine takes, a queue of 256 KiB, and each transfer by itself); repairs that the sender's gateway \
                    sent of all that were due, which are fewer where it does not keep up. Runs: reno five against loss and three against latency, \
                    cubic and bbr one",
            claim: CLAIM,
            why: WHY,
            plan: |scale| plan(scale, 100_000_000, 1),
            judge: verdict::judge,
        },
        Figure {
            id: "3.12",
            title: "TCP goodput on 1 Gbit/s against loss and latency, with and without gateways",
            source: "Thesis Figure 3.12, Maelstrom Figure 10",
            setup: "as 3.11, with eight TCP flows on a link of 1 Gbit/s, and one transfer at a time; cubic and bbr \
                    against latency at 10 and 250 ms only. Theirs were runs of 120 s, with 1500 bytes in the sites \
                    too and repairs in two fragments",
            claim: CLAIM,
            why: WHY,
            plan: |scale| plan(scale, 1_000_000_000, 8),
            judge: verdict::judge,
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

    /// What a transfer of this cell adds to the figure.
    fn samples(&self, measured: &Measured, scale: Scale) -> Vec<Sample> {
        let of_goodput = |(panel, x)| Sample { panel, series: self.series(), x, y: measured.mbps };
        let mut samples: Vec<Sample> = self.places(percents(scale)).into_iter().map(of_goodput).collect();
        if self.delay_ms == DELAY_MS {
            let of_repairs = |y| Sample { panel: REPAIRS, series: self.sender, x: self.percent, y };
            samples.extend(measured.repairs_percent.map(of_repairs));
        }
        samples
    }

    /// Long enough for a sender to have grown to the link's product of bandwidth and delay, and to have got over what it
    /// lost when it first overfilled the queue, before half of it is over.
    fn seconds(&self, scale: Scale) -> f64 {
        let usual = scale.pick(1.5, 2.4) + scale.pick(0.02, 0.04) * f64::from(self.delay_ms);
        let is_fully_alone = scale == Scale::Full && !self.masked;
        if is_fully_alone && self.percent == 0.0 {
            // What all else is held against.
            1.5 * usual
        } else if is_fully_alone && self.percent < PERCENTS[0] {
            // Where losses are few, TCP takes its time to fall.
            8.0 + usual
        } else {
            usual
        }
    }

    /// Which packets share a repair, if any do.
    fn setting(&self) -> Option<Setting> {
        let schedule = Schedule::Layered { r: R, interleaves: INTERLEAVES.to_vec() };
        self.masked.then(|| Setting { schedule, delayed: false, ..Setting::default() })
    }
}

/// Transfers that are made at once, each in sites of its own.
type Group = Vec<Cell>;

/// Losses of the first panel, in percent.
fn percents(scale: Scale) -> &'static [f64] {
    scale.pick(&PERCENTS, &[0.01, 0.1, 1.0, 2.0, 5.0, 10.0])
}

/// All that is measured; the quick run of eight flows has no room for a second latency.
///
/// On the slower link, which takes a tenth of what a machine can do, a transfer with gateways and that without are one group.
fn groups(scale: Scale, flows: usize) -> Vec<Group> {
    let quick: &[u32] = if flows == 1 { &[10, DELAY_MS] } else { &[DELAY_MS] };
    let delays = scale.pick(quick, &[0, 10, DELAY_MS, 100, 250]);
    let runs = |delay_ms| scale.pick(1, if delay_ms == DELAY_MS { 5 } else { 3 });
    let lossless =
        |&delay_ms: &u32| vec![Cell { runs: runs(delay_ms), ..Cell::new(0, 0.0, delay_ms, false) }];
    let mut groups: Vec<Group> = delays.iter().map(lossless).collect();
    let mut both = |sender, percent, delay_ms, runs| {
        let pair = [true, false].map(|masked| Cell { runs, ..Cell::new(sender, percent, delay_ms, masked) });
        // At 0 ms the machine itself is what holds a transfer back.
        let at_once = if flows == 1 && delay_ms > 0 { 2 } else { 1 };
        groups.extend(pair.chunks(at_once).map(<[Cell]>::to_vec));
    };
    for &percent in percents(scale) {
        both(0, percent, DELAY_MS, runs(DELAY_MS));
    }
    // Quick: at one loss rate only, and the sender of the papers alone.
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
        PanelPlan::new(
            "loss rate (%), link of 50 ms",
            "repairs sent of those due (%)",
            senders.iter().map(|name| format!("{name}, gateways")),
        )
        .log_x(),
    ];
    let link = Link { rate_bps, flows };
    let job = |group: Group| {
        let of = |cell: &Cell| {
            format!(
                "{:?} {cell:?} for {} s, {}",
                SENDERS[cell.sender],
                cell.seconds(scale),
                surroundings(cell.setting().as_ref())
            )
        };
        let setup =
            format!("{link:?}; measure {MEASURE}; {}", group.iter().map(of).collect::<Vec<_>>().join("; "));
        Job::real(setup, group[0].runs, move |seed, lab| {
            let measured = at_once(&group, |cell| link.measure(cell, cell.seconds(scale), seed, lab))?;
            Ok(group
                .iter()
                .zip(measured)
                .flat_map(|(cell, measured)| cell.samples(&measured, scale))
                .collect())
        })
    };
    Plan { panels, jobs: groups(scale, flows).into_iter().map(job).collect() }
}

fn at_once(
    group: &[Cell],
    transfer: impl Fn(&Cell) -> Result<Measured, RunError> + Sync,
) -> Result<Vec<Measured>, RunError> {
    let transfer = &transfer;
    thread::scope(|scope| {
        let running: Vec<_> = group.iter().map(|cell| scope.spawn(move || transfer(cell))).collect();
        let ended = running.into_iter().map(ScopedJoinHandle::join);
        ended.map(|measured| measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// What all transfers of a figure have in common.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate_bps: u64,
    flows: usize,
}

impl Link {
    /// Payload in bit/s that fits on the link beside repairs. More may arrive: a packet that an overfull queue drops takes no time
    /// on the wire, and repairs may bring it back.
    fn fits_bps(self, setting: Option<&Setting>) -> f64 {
        let packet_bytes = f64::from(TwoSitesConfig::default().lan_mtu);
        let repair_bytes = setting.map_or(0.0, |setting| {
            let repair_bytes = packet_bytes + setting.schedule.repair_overhead(false) as f64;
            INTERLEAVES.len() as f64 / f64::from(R) * repair_bytes
        });
        self.rate_bps as f64 * (packet_bytes - f64::from(HEADER_BYTES)) / (packet_bytes + repair_bytes)
    }

    /// Of one transfer.
    fn measure(self, cell: &Cell, seconds: f64, seed: u64, lab: &Lab<'_>) -> Result<Measured, RunError> {
        let congestion = SENDERS[cell.sender];
        has_congestion(congestion)?;
        let loss =
            if cell.percent == 0.0 { LossModel::None } else { LossModel::Uniform(cell.percent / 100.0) };
        let sites = sites(Some(self.rate_bps), u64::from(cell.delay_ms) * 1_000, &loss, seed)?;
        let setting = cell.setting();
        let pair = setting.as_ref().map(|setting| gateways(lab, &sites, setting)).transpose()?;
        let transfer = TcpTransfer {
            congestion: Some(congestion.to_owned()),
            duration: Duration::from_secs_f64(seconds),
            flows: self.flows,
            ..TcpTransfer::default()
        };
        let report = tcp_transfer(between(&sites), &transfer, &mut watcher(lab))?;
        lab.go_on()?;
        if let Some(offset) = report.mismatch {
            return Err(RunError::Failed(format!("byte {offset} of a transfer is not what was sent")));
        }
        let repairs_percent = pair.as_ref().map(repairs_percent).transpose()?;
        stop(pair)?;
        is_possible(report.forward.goodput_bps(), self.fits_bps(None))?;
        Ok(Measured {
            mbps: report.forward.settled_bps(self.fits_bps(setting.as_ref())) / 1e6,
            repairs_percent,
        })
    }
}

/// What a transfer came to.
struct Measured {
    mbps: f64,
    /// With gateways: of the repairs that were due at the sender's, how many it sent.
    repairs_percent: Option<f64>,
}

/// Of the packets that left, captured or not, so many repairs should have been sent.
fn repairs_percent(pair: &GatewayPair) -> Result<f64, RunError> {
    let status = pair.status(0).map_err(|error| RunError::Failed(format!("{error:#}")))?;
    let sent = status.peers.first().map(|peer| peer.egress.clone()).unwrap_or_default();
    let uncaptured = status.counters.get("captures dropped by the tap").copied().unwrap_or_default();
    let due = (sent.source_packets + uncaptured) as f64 * INTERLEAVES.len() as f64 / f64::from(R);
    Ok(if due > 0.0 { (100.0 * sent.repair_packets as f64 / due).min(100.0) } else { 100.0 })
}

/// That a whole run was not faster than its link.
fn is_possible(bps: f64, most_bps: f64) -> Result<(), RunError> {
    // Clocks are read one after another.
    if bps <= 1.02 * most_bps {
        return Ok(());
    }
    let (mbps, most) = (bps / 1e6, most_bps / 1e6);
    Err(RunError::Failed(format!(
        "expected at most {most:.1} Mbit/s of payload over a whole run, saw {mbps:.1}: the link does not keep its rate; \
         run it on a machine that does nothing else"
    )))
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
                // Sites and gateways take their time to come and go: so much was measured, most of it round trips.
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

    #[test]
    fn no_more_payload_is_possible_than_headers_and_repairs_leave() {
        let link = Link { rate_bps: 100_000_000, flows: 1 };
        let with = Cell::new(0, 1.0, 50, true).setting();
        assert_eq!(link.fits_bps(None) / 1e6, 96.0);
        assert!((68.0..68.3).contains(&(link.fits_bps(with.as_ref()) / 1e6)));
        assert!(is_possible(96.0e6, 96.0e6).is_ok());
        let error = is_possible(101.0e6, 96.0e6).unwrap_err().to_string();
        assert!(error.contains("at most 96.0") && error.contains("saw 101.0"), "{error}");
    }

    #[test]
    fn a_set_up_tells_code_delay_and_measure() {
        let plan = plan(Scale::Full, 100_000_000, 1);
        let setup = &plan.jobs.last().unwrap().setup;
        for part in [
            "100000000",
            "interleaves: [1, 20, 40]",
            "delayed: false",
            "lan_mtu: 1300",
            "mtu: 1500",
            "measure 1",
        ] {
            assert!(setup.contains(part), "{part}: {setup}");
        }
    }
}
