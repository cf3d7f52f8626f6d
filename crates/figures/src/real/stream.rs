//! A stream of UDP packets through real gateways, over a link that loses exactly the packets that a figure
//! names.
//!
//! The link itself records each loss: a packet that is recovered before the next one arrives is not late by
//! anything that its receiver could see.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loss::LossModel;
use loss::Trace;
use netlab::drop_log::{DropRecord, read_drop_log};
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Pace, UdpReport, UdpStream, udp_stream};
use simnet::link::{Fate, LinkConfig};
use stage::fresh::make_new;
use stage::gateways::{Setting, between};

use super::rig::{Program, behaviour, gateways, stop, watcher};
use crate::plan::{Lab, RunError};

/// Interval between packets, as in the simulated figures: 10 Mbit/s of packets of 1,000 bytes.
pub(super) const INTERVAL_MS: f64 = 0.8;
/// Payload bytes: with headers 1,000.
const PAYLOAD: usize = 972;
const HEADERS: u16 = 28;
const DELAY_US: u64 = 50_000;
const RATE_BPS: u64 = 1_000_000_000;
/// Wait after the last packet for recovered ones.
const PATIENCE: Duration = Duration::from_millis(700);
/// Packets after the last loss, more than any code here needs to recover it.
const TAIL: u64 = 450;
/// Packets that pass after all losses.
const EVER: u64 = 1 << 40;

/// Returns everything that decides the latencies except the losses, for the fingerprint.
pub(super) fn setup(setting: &Setting, sources_share: f64) -> String {
    format!(
        "real {setting:?} {}, {PAYLOAD} + {HEADERS} bytes each {INTERVAL_MS} ms, {DELAY_US} us at {RATE_BPS} bit/s, \
         {sources_share} of the link, {TAIL} packets more, patience {PATIENCE:?}",
        behaviour(Program::Gateways(setting))
    )
}

/// A burst: `after` packets of the link pass, repairs included, and `length` in a row are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) after: u64,
    pub(super) length: u64,
}

/// A packet of the stream that the link lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lost {
    /// The burst that took it.
    pub(super) burst: usize,
    /// When it was sent, in seconds since the first packet.
    pub(super) sent_s: f64,
    /// Its latency beyond that of packets that were not lost; none: it never arrived.
    pub(super) late_ms: Option<f64>,
}

/// Sends packets through gateways of this setting until all bursts are over; returns the losses in their
/// order.
///
/// `sources_share` is the share of source packets on the link.
pub(super) fn run(
    setting: &Setting,
    bursts: &[Burst],
    sources_share: f64,
    lab: &Lab<'_>,
) -> Result<Vec<Lost>, RunError> {
    let folder = Folder::make()?;
    let failed = |error: &dyn std::fmt::Display| RunError::Failed(error.to_string());
    let loss = folder.trace(bursts)?;
    let clean = LinkConfig { rate_bps: Some(RATE_BPS), delay_us: DELAY_US, ..LinkConfig::default() };
    let link = EmulatorConfig {
        a_to_b: LinkConfig { loss, ..clean.clone() },
        drop_log: Some(folder.log()),
        ..EmulatorConfig::symmetric(clean)
    };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).map_err(|error| failed(&error))?;
    let pair = gateways(lab, &sites, setting)?;
    let on_link: u64 = bursts.iter().map(|burst| burst.after + burst.length).sum();
    let packets = (on_link as f64 * sources_share) as u64 + TAIL;
    let stream = UdpStream {
        pace: Pace::Packets(1e3 / INTERVAL_MS),
        payload_bytes: PAYLOAD,
        identical: false,
        duration: Duration::from_secs_f64(packets as f64 * INTERVAL_MS / 1e3),
        patience: PATIENCE,
    };
    let report = udp_stream(between(&sites), &stream, &mut watcher(lab)).map_err(|error| failed(&error))?;
    lab.go_on()?;
    stop(Some(pair))?;
    if report.altered > 0 {
        return Err(RunError::Failed(format!(
            "expected only packets that were sent, saw {} others",
            report.altered
        )));
    }
    let missed = sites.link.drop_log_missed();
    sites.link.stop().map_err(|error| failed(&error))?;
    if missed > 0 {
        return Err(RunError::Failed(format!(
            "expected a whole record of the link's losses, saw {missed} missing"
        )));
    }
    let drops = read_drop_log(folder.log()).map_err(|error| failed(&error))?;
    Ok(lost(&drops, bursts, &report))
}

fn lost(drops: &[DropRecord], bursts: &[Burst], report: &UdpReport) -> Vec<Lost> {
    let drops = drops.iter().filter(|drop| drop.direction == Direction::AToB && drop.fate == Fate::Lost);
    let of_burst = bursts.iter().enumerate().flat_map(|(at, burst)| (0..burst.length).map(move |_| at));
    let usual_us = median_us(report);
    let of_stream = drops.zip(of_burst).filter(|(drop, _)| drop.length == PAYLOAD as u16 + HEADERS);
    let found = of_stream.filter_map(|(drop, burst)| {
        let number = usize::try_from(drop.number).ok()?;
        let (sent_us, took_us) = (*report.sent_us.get(number)?, *report.latencies_us.get(number)?);
        let late_ms = took_us.map(|us| us.saturating_sub(usual_us) as f64 / 1e3);
        Some(Lost { burst, sent_s: sent_us as f64 / 1e6, late_ms })
    });
    found.collect()
}

/// Returns the latency of a packet that is not lost, as nearly all are.
fn median_us(report: &UdpReport) -> u64 {
    let sorted = report.sorted_latencies_us();
    sorted.get(sorted.len() / 2).copied().unwrap_or(DELAY_US)
}

/// The folder of a run: the losses that the link makes, and its record of them.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, RunError> {
        let make = |path: &Path| fs::create_dir(path);
        let made = make_new(&std::env::temp_dir(), "undrop-stream", "", make);
        let (path, ()) = made.map_err(|error| RunError::Failed(format!("{error:#}")))?;
        Ok(Self(path))
    }

    fn log(&self) -> PathBuf {
        self.0.join("lost.csv")
    }

    fn trace(&self, bursts: &[Burst]) -> Result<LossModel, RunError> {
        let path = self.0.join("trace");
        let mut text = "runs".to_owned();
        for Burst { after, length } in bursts {
            text += &format!(" {after} {length}");
        }
        text += &format!(" {EVER}");
        fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
        Trace::read(&path).map(LossModel::Trace).map_err(|error| RunError::Failed(error.to_string()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> RunError {
    RunError::Failed(format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lost_packet_has_its_burst_and_its_delay() {
        let drop = |number, length| DropRecord {
            time_us: 0,
            direction: Direction::AToB,
            fate: Fate::Lost,
            length,
            hash: 0,
            number,
        };
        let back = DropRecord { direction: Direction::BToA, ..drop(0, 1_000) };
        // A burst of two, of which one was a repair, and one of one.
        let drops = [drop(1, 1_000), back, drop(9, 1_100), drop(3, 1_000)];
        let report = UdpReport {
            sent_us: vec![0, 800, 1_600, 2_400, 3_200],
            latencies_us: vec![Some(50_000), Some(53_000), Some(50_000), None, Some(50_000)],
            ..UdpReport::default()
        };
        let bursts = [Burst { after: 5, length: 2 }, Burst { after: 5, length: 1 }];
        let expected = [
            Lost { burst: 0, sent_s: 0.000_8, late_ms: Some(3.0) },
            Lost { burst: 1, sent_s: 0.002_4, late_ms: None },
        ];
        assert_eq!(lost(&drops, &bursts, &report), expected);
    }
}
