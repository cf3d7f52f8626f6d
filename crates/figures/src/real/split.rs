//! TCP that ends at the gateways, beside passive gateways and none: Thesis Figure 3.13, and the time of short
//! connections.
//!
//! Panels: goodput against one-way latency without loss and at 1 %, then the time of a fetch against its
//! length, for each of two latencies and both losses.

use std::fmt;
use std::time::Duration;

use loss::LossModel;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::Course;
use stage::gateways::{Way, WayPlan};

use super::rig::{require_congestion, surroundings, watcher};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Samples, Scale, Verdict};

const RATE_BPS: u64 = 1_000_000_000;
/// Losses of the panels in percent.
const PERCENTS: [f64; 2] = [0.0, 1.0];
const WAYS: [Way; 3] = [Way::Split, Way::Passive, Way::Direct];
/// Receive buffers of the hosts in bytes: one that an application has set, and the kernel's, which grows.
const BUFFERS: [(Option<usize>, &str); 2] = [(Some(64 << 10), "64 KiB"), (None, "default")];
/// Bytes up to which the kernel's buffers grow: its own default.
const BUFFER_MAX: u64 = 6 << 20;
/// Buffer of the gateways: four times the bytes in flight on the longest link.
const SPLIT_BUFFER: &str = "256MiB";
/// Congestion control of hosts of long transfers.
const SENDER: &str = "cubic";
/// The same of fetches.
const SENDERS: [&str; 2] = ["cubic", "bbr"];
/// Latencies of the panels about fetches, in milliseconds.
const FETCH_DELAYS_MS: [u32; 2] = [50, 250];
/// Length of the first fetch of a link, which does not count.
const WARM_UP_BYTES: u64 = 10_000_000;
/// Longest time of a fetch; one that takes longer counts as much.
const PATIENCE: Duration = Duration::from_secs(30);
/// Version of the way from a transfer or fetch to its values, for the fingerprint: to be raised when
/// [`goodput`] or [`fetch_times`] changes.
const MEASURE: u32 = 1;
/// Least goodput of split mode at any latency, of its greatest, that is insensitive to latency: of a full
/// run, and of a quick one, which shares its processors with other work.
const INSENSITIVE: [f64; 2] = [0.75, 0.5];

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("3.13", plan, judge)]
}

fn plan(scale: Scale) -> Plan {
    let of_buffers =
        || WAYS.iter().flat_map(|way| BUFFERS.map(|(_, buffer)| format!("{}, {buffer}", way.name())));
    let of_senders = || WAYS.iter().flat_map(|way| SENDERS.map(|name| format!("{}, {name}", way.name())));
    let latency = "one-way latency of the link (ms)";
    let fetch = |y| PanelPlan::new("length of a fetch (KB)", y, of_senders()).log_x().log_y();
    let panels = vec![
        PanelPlan::new(latency, "goodput without loss (Mbit/s)", of_buffers()).log_y(),
        PanelPlan::new(latency, "goodput at 1 % loss (Mbit/s)", of_buffers()).log_y(),
        fetch("time at 50 ms without loss (ms)"),
        fetch("time at 50 ms and 1 % loss (ms)"),
        fetch("time at 250 ms without loss (ms)"),
        fetch("time at 250 ms and 1 % loss (ms)"),
    ];
    let mut jobs = Vec::new();
    // A quick run has loss, one latency of fetches and one sender.
    let percents = scale.pick(&PERCENTS[1..], &PERCENTS);
    for (at, way) in WAYS.into_iter().enumerate() {
        for &percent in percents {
            let loss = PERCENTS.iter().position(|&one| one == percent).unwrap_or(0);
            for (buffer, &(receive_buffer, _)) in BUFFERS.iter().enumerate() {
                for &delay_ms in scale.pick(&[10, 50][..], &[10, 50, 100, 175, 250]) {
                    let cell = WayPlan { receive_buffer, ..cell(way, percent, delay_ms, SENDER) };
                    let place = (loss, at * BUFFERS.len() + buffer, f64::from(delay_ms));
                    jobs.push(goodput_job(scale, cell, place));
                }
            }
            for (number, &delay_ms) in FETCH_DELAYS_MS[..scale.pick(1, 2)].iter().enumerate() {
                for (sender, name) in SENDERS[..scale.pick(1, 2)].iter().enumerate() {
                    let place = (2 + 2 * number + loss, at * SENDERS.len() + sender);
                    jobs.push(fetch_job(scale, cell(way, percent, delay_ms, name), place));
                }
            }
        }
    }
    Plan { panels, jobs }
}

fn cell(way: Way, percent: f64, delay_ms: u32, congestion: &str) -> WayPlan {
    WayPlan {
        way,
        rate_bps: RATE_BPS,
        delay_us: u64::from(delay_ms) * 1_000,
        loss: if percent == 0.0 { LossModel::None } else { LossModel::Uniform(percent / 100.0) },
        congestion: congestion.to_owned(),
        receive_buffer: None,
        buffer_max: BUFFER_MAX,
        split_buffer: SPLIT_BUFFER.to_owned(),
    }
}

/// Returns everything that decides the values of a cell.
fn setup(what: &str, cell: &WayPlan) -> String {
    format!("{what} of {cell:?}; measure {MEASURE}; {}", surroundings(cell.setting().as_ref()))
}

fn goodput_job(scale: Scale, cell: WayPlan, (panel, series, x): (usize, usize, f64)) -> Job {
    // In the first half a sender fills the link.
    let seconds = scale.pick(2.0, 6.0) + cell.delay_us as f64 / 1e6 * scale.pick(40.0, 60.0);
    Job::real(setup(&format!("transfer for {seconds} s"), &cell), scale.pick(1, 2), move |seed, lab| {
        Ok(vec![Sample { panel, series, x, y: goodput(&cell, seconds, seed, lab)? }])
    })
}

/// Returns the goodput in Mbit/s.
fn goodput(cell: &WayPlan, seconds: f64, seed: u64, lab: &Lab<'_>) -> Result<f64, RunError> {
    require_congestion(&cell.congestion)?;
    let stage = cell.build(lab.program, seed).map_err(|error| failed(&error))?;
    let report = stage.transfer(1, Duration::from_secs_f64(seconds), &mut watcher(lab))?;
    lab.go_on()?;
    if let Some(offset) = report.mismatch {
        return Err(RunError::Failed(format!(
            "expected the bytes that were sent, saw another one at {offset}"
        )));
    }
    stage.close().map_err(|error| failed(&error))?;
    let packet_bytes = f64::from(TwoSitesConfig::default().lan_mtu);
    // IPv4, TCP, timestamps.
    let most_bps = RATE_BPS as f64 * (packet_bytes - 52.0) / packet_bytes;
    Ok(report.forward.settled_bps(most_bps) / 1e6)
}

fn fetch_job(scale: Scale, cell: WayPlan, (panel, series): (usize, usize)) -> Job {
    let lengths: &[u64] = scale.pick(&[10_000, 1_000_000], &[10_000, 100_000, 1_000_000, 10_000_000]);
    let fetches = scale.pick(1, 5);
    let what = format!("{fetches} fetches of {lengths:?} bytes within {PATIENCE:?} after {WARM_UP_BYTES}");
    Job::real(setup(&what, &cell), 1, move |seed, lab| -> Samples {
        let times = fetch_times(&cell, lengths, fetches, seed, lab)?;
        let sample = |(bytes, y): (u64, f64)| Sample { panel, series, x: bytes as f64 / 1e3, y };
        Ok(times.into_iter().map(sample).collect())
    })
}

/// Returns the lengths of the fetches with their times in milliseconds. After one that exceeds the patience
/// no other of its length is made.
fn fetch_times(
    cell: &WayPlan,
    lengths: &[u64],
    fetches: usize,
    seed: u64,
    lab: &Lab<'_>,
) -> Result<Vec<(u64, f64)>, RunError> {
    require_congestion(&cell.congestion)?;
    let stage = cell.build(lab.program, seed).map_err(|error| failed(&error))?;
    stage.fetch(WARM_UP_BYTES, Course::Asked, PATIENCE, &mut watcher(lab))?;
    let mut times = Vec::new();
    for &bytes in lengths {
        for _ in 0..fetches {
            let time_us = stage.fetch(bytes, Course::Asked, PATIENCE, &mut watcher(lab))?;
            lab.go_on()?;
            times.push((bytes, time_us.map_or(PATIENCE.as_secs_f64() * 1e3, |us| us as f64 / 1e3)));
            if time_us.is_none() {
                break;
            }
        }
    }
    stage.close().map_err(|error| failed(&error))?;
    Ok(times)
}

fn failed(error: &dyn fmt::Display) -> RunError {
    RunError::Failed(format!("{error:#}"))
}

/// The goodput of split mode does not depend on the latency, that of a host with a small window does, and
/// short connections are sooner with split mode than without gateways.
fn judge(panels: &[Panel]) -> Verdict {
    let is_quick = panels[0].series[0].points.is_empty();
    let flat = flat(panels);
    let is_flat = flat >= INSENSITIVE[usize::from(is_quick)];
    Verdict::new(is_flat && others_suffer(panels)).number("flat", flat, 2)
}

/// Split mode loses up to half of its goodput where its carriers overflow the queue of a long link.
pub(crate) fn half_of_the_goodput_is_left(panels: &[Panel]) -> bool {
    flat(panels) >= INSENSITIVE[1] && others_suffer(panels)
}

/// The panels of goodput that were drawn.
fn drawn(panels: &[Panel]) -> impl Iterator<Item = &Panel> {
    panels[..2].iter().filter(|panel| !panel.series[0].points.is_empty())
}

/// Least goodput of split mode at any latency, of its greatest.
fn flat(panels: &[Panel]) -> f64 {
    let splits = drawn(panels).flat_map(|panel| &panel.series[..BUFFERS.len()]);
    splits.map(|series| series.least() / series.most()).fold(1.0, f64::min)
}

/// Whether a host with a small window slows down without split mode, and its short connections take longer.
fn others_suffer(panels: &[Panel]) -> bool {
    let direct = (WAYS.len() - 1) * BUFFERS.len();
    let slows = |panel: &Panel| panel.series[direct].last() < panel.series[direct].first() / 2.0;
    let is_sooner = |panel: &Panel| {
        let (split, direct) = (&panel.series[0], &panel.series[(WAYS.len() - 1) * SENDERS.len()]);
        split.points.iter().all(|point| point.median < direct.at(point.x))
    };
    drawn(panels).all(slows) && panels[2..].iter().all(is_sooner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Point, Series};

    /// Panels in which split mode has these values of goodput by latency, and times by length.
    fn panels(split: [f64; 3], times_ms: [f64; 2], is_quick: bool) -> Vec<Panel> {
        let series = |places: &[f64], values: &[f64]| Series {
            name: String::new(),
            points: places.iter().zip(values).map(|(&x, &y)| Point::of(x, vec![y])).collect(),
        };
        let panel = |series: Vec<Series>| Panel { series, ..Panel::drawn(&[]) };
        let latencies = [10.0, 50.0, 250.0];
        let goodput = || {
            let slow = [26.0, 5.2, 1.0];
            panel([split, split, slow, slow, slow, slow].map(|values| series(&latencies, &values)).to_vec())
        };
        let fetch = || {
            let rows = [times_ms, times_ms, [200.0, 900.0], [200.0, 900.0], [200.0, 900.0], [200.0, 900.0]];
            panel(rows.map(|values| series(&[10.0, 1_000.0], &values)).to_vec())
        };
        let empty = || panel(vec![series(&[], &[]); 6]);
        let or_empty = |panel: Panel| if is_quick { empty() } else { panel };
        vec![or_empty(goodput()), goodput(), or_empty(fetch()), fetch(), or_empty(fetch()), or_empty(fetch())]
    }

    #[test]
    fn the_claim_holds_where_split_mode_is_flat_and_short_connections_are_sooner() {
        for is_quick in [false, true] {
            let verdict = judge(&panels([900.0, 880.0, 850.0], [105.0, 120.0], is_quick));
            assert!(verdict.holds);
            assert_eq!(verdict.value("flat"), Some("0.94"));
            let poor = panels([900.0, 880.0, if is_quick { 400.0 } else { 600.0 }], [105.0, 120.0], is_quick);
            assert!(!judge(&poor).holds, "it falls");
            assert_eq!(half_of_the_goodput_is_left(&poor), !is_quick);
            assert!(!judge(&panels([900.0, 880.0, 850.0], [205.0, 120.0], is_quick)).holds, "it is later");
        }
    }

    #[test]
    fn each_cell_has_its_place_and_no_place_has_two() {
        let plan = plan(Scale::Full);
        assert_eq!(plan.jobs.len(), 3 * 2 * (2 * 5 + 2 * 2));
        let mut setups: Vec<&String> = plan.jobs.iter().map(|job| &job.setup).collect();
        setups.sort_unstable();
        setups.dedup();
        assert_eq!(setups.len(), plan.jobs.len(), "no cell is measured twice");
        assert!(setups.iter().any(|setup| setup.contains("256MiB") && setup.contains("measure 1")));
    }
}
