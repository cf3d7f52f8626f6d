//! TCP under loss, with and without gateways: Thesis Figures 3.11 and 3.12.
//!
//! Panels: goodput against loss at 50 ms, then against one-way latency at 0.1 and at 1 %. A transfer with
//! places in several panels is made once. `cells.rs` lists the transfers, `verdict.rs` judges them.

mod cells;
pub(crate) mod verdict;

use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use loss::LossModel;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::{TcpTransfer, tcp_transfer};
use stage::gateways::{GatewayPair, Setting, between, sites};

use self::cells::{Cell, Group, INTERLEAVES, Measured, R, SENDERS, groups};
use super::rig::{gateways, require_congestion, stop, surroundings, watcher};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Scale};

/// Header bytes of a packet of the sites: IPv4, TCP, timestamps.
const HEADER_BYTES: u32 = 20 + 20 + 12;
/// Version of the way from a transfer to its values, for the fingerprint: to be raised when [`Link::measure`]
/// changes.
const MEASURE: u32 = 1;

pub(super) fn figures() -> Vec<Figure> {
    let slow = |scale| plan(scale, 100_000_000, 1);
    let fast = |scale| plan(scale, 1_000_000_000, 8);
    vec![
        Figure::new("3.11", slow, |panels| verdict::judge(panels, verdict::LEAD)),
        Figure::new("3.12", fast, |panels| verdict::judge(panels, verdict::TWO_ORDERS)),
    ]
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

/// The link of all transfers of a figure.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate_bps: u64,
    flows: usize,
}

impl Link {
    /// Returns the payload in bit/s that the link carries besides repairs. More may arrive: a packet that a
    /// full queue drops takes no time on the wire, and repairs may restore it.
    fn fits_bps(self, setting: Option<&Setting>) -> f64 {
        let packet_bytes = f64::from(TwoSitesConfig::default().lan_mtu);
        let repair_bytes = setting.map_or(0.0, |setting| {
            let repair_bytes = packet_bytes + setting.schedule.repair_overhead(false) as f64;
            INTERLEAVES.len() as f64 / f64::from(R) * repair_bytes
        });
        self.rate_bps as f64 * (packet_bytes - f64::from(HEADER_BYTES)) / (packet_bytes + repair_bytes)
    }

    /// Makes one transfer.
    fn measure(self, cell: &Cell, seconds: f64, seed: u64, lab: &Lab<'_>) -> Result<Measured, RunError> {
        let congestion = SENDERS[cell.sender];
        require_congestion(congestion)?;
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
            return Err(RunError::Failed(format!(
                "expected the bytes that were sent, saw another one at {offset}"
            )));
        }
        let repairs_percent = pair.as_ref().map(repairs_percent).transpose()?;
        stop(pair)?;
        require_possible(report.forward.goodput_bps(), self.fits_bps(None))?;
        Ok(Measured {
            mbps: report.forward.settled_bps(self.fits_bps(setting.as_ref())) / 1e6,
            repairs_percent,
        })
    }
}

/// Returns the share of the repairs due for the packets that left, captured or not, that the sender's gateway
/// sent.
fn repairs_percent(pair: &GatewayPair) -> Result<f64, RunError> {
    let status = pair.status(0).map_err(|error| RunError::Failed(format!("{error:#}")))?;
    let sent = status.peers.first().map(|peer| peer.egress.clone()).unwrap_or_default();
    let uncaptured = status.counters.get("tap_dropped").copied().unwrap_or_default();
    let due = (sent.source_packets + uncaptured) as f64 * INTERLEAVES.len() as f64 / f64::from(R);
    Ok(if due > 0.0 { (100.0 * sent.repair_packets as f64 / due).min(100.0) } else { 100.0 })
}

/// Fails if a whole run was faster than its link.
fn require_possible(bps: f64, most_bps: f64) -> Result<(), RunError> {
    // The clocks are read one after another.
    if bps <= 1.02 * most_bps {
        return Ok(());
    }
    let (mbps, most) = (bps / 1e6, most_bps / 1e6);
    Err(RunError::Failed(format!(
        "expected at most {most:.1} Mbit/s of payload over a whole run, saw {mbps:.1}: the link does not keep its rate; \
         run it on an idle machine"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_repairs_bound_the_payload() {
        let link = Link { rate_bps: 100_000_000, flows: 1 };
        let with = Cell::new(0, 1.0, 50, true).setting();
        assert_eq!(link.fits_bps(None) / 1e6, 96.0);
        assert!((68.0..68.3).contains(&(link.fits_bps(with.as_ref()) / 1e6)));
        assert!(require_possible(96.0e6, 96.0e6).is_ok());
        let error = require_possible(101.0e6, 96.0e6).unwrap_err().to_string();
        assert!(error.contains("at most 96.0") && error.contains("saw 101.0"), "{error}");
    }

    #[test]
    fn a_set_up_contains_code_delay_and_measure() {
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
