//! The first three acts. Each builds its own two sites, so that none inherits the state of another in the
//! kernel.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context as _, bail};
use loss::LossModel;
use maelstrom::status::PeerStatus;
use netlab::drop_log::{DropRecord, read_drop_log};
use netlab::emulator::{Direction, Emulator, EmulatorConfig};
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{MessageStream, Progress, TcpTransfer, message_stream, tcp_transfer};
use simnet::LinkConfig;
use simnet::link::Fate;
use stage::fresh::make_new;
use stage::gateways::{End, GatewayPair, Setting, between};

use crate::course::Course;

use super::outcome::{ActOutcome, Bulk, Gateways, LinkLosses, Messages};
use super::progress::Display;
use super::table::percent_text;
use undrop::interrupt::Interrupt;

const MESSAGES_PER_SECOND: f64 = 100.0;
const MESSAGE_BYTES: usize = 1024;
const MESSAGES_TIME_MAX: Duration = Duration::from_secs(8);
/// Wait beyond the delay of the link, in which the queues of a busy machine empty.
const SETTLING_TIME: Duration = Duration::from_millis(500);

/// One part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// No loss, no gateways.
    Lossless,
    /// Loss, no gateways.
    Alone,
    /// Loss, and gateways that mask it.
    Masked,
}

/// The settings of all acts.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Congestion control of the hosts.
    pub(super) congestion: String,
    /// Loss of the second and the third act.
    pub(super) loss: LossModel,
    /// Rate of the link, in bit/s.
    pub(super) rate_bps: u64,
    /// One-way delay of the link, in microseconds.
    pub(super) delay_us: u64,
    /// Loss of the last two acts; `None`: they are left out.
    pub(super) changes: Option<Course>,
    /// Length of a bulk transfer.
    pub(super) bulk_time: Duration,
    /// Random seed of the losses.
    pub(super) seed: u64,
    /// Setting of the gateways.
    pub(super) gateways: Setting,
    /// Program of the gateways.
    pub(super) program: PathBuf,
}

impl Act {
    /// All acts in order.
    pub(super) const ALL: [Self; 3] = [Self::Lossless, Self::Alone, Self::Masked];

    /// Returns the title for tables and labels.
    pub(super) fn title(self, loss_rate: f64) -> String {
        match self {
            Self::Lossless => "no loss, no gateways".to_owned(),
            Self::Alone => format!("{} loss, no gateways", percent_text(loss_rate)),
            Self::Masked => format!("{} loss, with gateways", percent_text(loss_rate)),
        }
    }

    fn loss(self, plan: &Plan) -> LossModel {
        if self == Self::Lossless { LossModel::None } else { plan.loss.clone() }
    }
}

/// Performs one act: a bulk transfer, then a message stream.
///
/// # Errors
/// If the sites cannot be built, a connection breaks, a gateway fails, or the user interrupts.
pub(super) fn perform(
    act: Act,
    plan: &Plan,
    display: &mut Display,
    interrupt: &Interrupt,
) -> anyhow::Result<ActOutcome> {
    display.stage("building two sites");
    let drop_log = Scratch::new("drops.csv")?;
    let sites = build(act.loss(plan), plan, Some(&drop_log))?;
    let gateways = if act == Act::Masked {
        display.stage("starting gateways");
        Some(start_gateways(&sites, plan)?)
    } else {
        None
    };
    interrupt.check()?;
    let bulk = bulk(&sites, plan, display, interrupt)?;
    settle(plan, interrupt)?;
    let messages = messages(&sites, plan, display, interrupt)?;
    settle(plan, interrupt)?;
    let outcome = ActOutcome {
        bulk,
        messages,
        link: link_losses(&sites.link),
        gateways: gateways.as_ref().map(|pair| gateway_counts(pair, &drop_log)).transpose()?,
    };
    if let Some(gateways) = gateways {
        display.stage("stopping gateways");
        gateways.stop()?;
    }
    Ok(outcome)
}

pub(super) fn build(loss: LossModel, plan: &Plan, drop_log: Option<&Scratch>) -> anyhow::Result<TwoSites> {
    let link = LinkConfig {
        rate_bps: Some(plan.rate_bps),
        delay_us: plan.delay_us,
        loss,
        seed: plan.seed,
        ..LinkConfig::default()
    };
    let link =
        EmulatorConfig { drop_log: drop_log.map(|log| log.path.clone()), ..EmulatorConfig::symmetric(link) };
    TwoSites::build(&TwoSitesConfig::default(), &link).context("building two sites")
}

pub(super) fn start_gateways(sites: &TwoSites, plan: &Plan) -> anyhow::Result<GatewayPair> {
    GatewayPair::start(&plan.program, &End::of(sites), &plan.gateways).context("starting the gateways")
}

/// Returns an observer that shows the progress and ends the traffic on an interrupt.
fn watcher<'a>(
    display: &'a mut Display,
    interrupt: &'a Interrupt,
) -> impl FnMut(Progress) -> ControlFlow<()> + 'a {
    |progress| {
        display.tick(progress);
        if interrupt.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn bulk(sites: &TwoSites, plan: &Plan, display: &mut Display, interrupt: &Interrupt) -> anyhow::Result<Bulk> {
    display.stage("bulk TCP");
    let transfer = TcpTransfer {
        congestion: Some(plan.congestion.clone()),
        duration: plan.bulk_time,
        ..TcpTransfer::default()
    };
    let report = tcp_transfer(between(sites), &transfer, &mut watcher(display, interrupt))
        .context("during the bulk transfer")?;
    interrupt.check()?;
    if let Some(offset) = report.mismatch {
        bail!("expected the bytes that were sent, saw another one at {offset} of the bulk transfer");
    }
    Ok(Bulk::of(&report))
}

fn messages(
    sites: &TwoSites,
    plan: &Plan,
    display: &mut Display,
    interrupt: &Interrupt,
) -> anyhow::Result<Messages> {
    display.stage("1 KB messages");
    let stream = MessageStream {
        congestion: Some(plan.congestion.clone()),
        rate_hz: MESSAGES_PER_SECOND,
        message_bytes: MESSAGE_BYTES,
        duration: (plan.bulk_time * 2 / 3).min(MESSAGES_TIME_MAX),
        ..MessageStream::default()
    };
    let report = message_stream(between(sites), &stream, &mut watcher(display, interrupt))
        .context("during the message stream")?;
    interrupt.check()?;
    Ok(Messages::of(&report.messages))
}

/// Waits until no packet is in flight, so that the counters are final.
pub(super) fn settle(plan: &Plan, interrupt: &Interrupt) -> anyhow::Result<()> {
    thread::sleep(2 * Duration::from_micros(plan.delay_us) + SETTLING_TIME);
    interrupt.check()
}

fn link_losses(link: &Emulator) -> LinkLosses {
    Direction::BOTH.iter().fold(LinkLosses::default(), |sum, &direction| {
        let counters = link.counters(direction);
        let drops = counters.link.queue_full + counters.link.overflow + counters.device_drops;
        LinkLosses {
            packets: sum.packets + counters.link.offered_packets,
            lost: sum.lost + counters.link.lost,
            queue_drops: sum.queue_drops + drops,
        }
    })
}

fn gateway_counts(gateways: &GatewayPair, drop_log: &Scratch) -> anyhow::Result<Gateways> {
    let (a, b) = (peer_of(gateways, 0)?, peer_of(gateways, 1)?);
    let drops = read_drop_log(&drop_log.path).context("reading the link's record of drops")?;
    Ok(count(&a, &b, &drops))
}

fn peer_of(gateways: &GatewayPair, side: usize) -> anyhow::Result<PeerStatus> {
    gateways.status(side)?.peers.into_iter().next().context("expected a gateway with a peer, saw none")
}

/// Counts as lost every packet that left one gateway and did not arrive at the other, whether or not the
/// decoder noticed.
fn count(a: &PeerStatus, b: &PeerStatus, drops: &[DropRecord]) -> Gateways {
    let lost = |from: &PeerStatus, to: &PeerStatus| {
        from.egress.source_packets.saturating_sub(to.ingress.source_packets)
    };
    // The queue is full only under bulk data, whose repairs are longer than any packet of a site.
    let lan_mtu = TwoSitesConfig::default().lan_mtu;
    let is_source_in_queue =
        |drop: &&DropRecord| drop.fate == Fate::QueueFull && u32::from(drop.length) <= lan_mtu;
    Gateways {
        source_packets: a.egress.source_packets + b.egress.source_packets,
        lost: lost(a, b) + lost(b, a),
        queue_drops: drops.iter().filter(is_source_in_queue).count() as u64,
        recovered: a.ingress.injected_packets + b.ingress.injected_packets,
        repair_packets: a.egress.repair_packets + b.egress.repair_packets,
        overhead_percent: a.egress.overhead_percent,
    }
}

/// A temporary file.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(name: &str) -> anyhow::Result<Self> {
        // A new file: no link is followed and nothing is overwritten.
        let make = |path: &Path| fs::File::create_new(path);
        let (path, _) = make_new(&env::temp_dir(), "undrop-demo", &format!("-{name}"), make)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use maelstrom::status::{EgressStatus, HealthStatus, IngressStatus, LossStatus, PathStatus};

    use super::*;

    fn peer(sent: u64, arrived: u64, injected: u64, overhead_percent: f64) -> PeerStatus {
        PeerStatus {
            name: None,
            address: ([10, 81, 9, 1], 4700).into(),
            host: None,
            up: true,
            trouble: None,
            wrong_key: 0,
            keys: Default::default(),
            rtt_us: None,
            last_heard_ms: Some(0),
            sessions: 1,
            renewals: 0,
            moves: 0,
            networks: Vec::new(),
            networks_named_there: Vec::new(),
            differences: Vec::new(),
            difference_ids: Vec::new(),
            egress: EgressStatus { source_packets: sent, overhead_percent, ..EgressStatus::default() },
            ingress: IngressStatus {
                source_packets: arrived,
                injected_packets: injected,
                ..IngressStatus::default()
            },
            far: LossStatus::default(),
            far_path: PathStatus::default(),
            health: HealthStatus::default(),
            windows: Vec::new(),
        }
    }

    #[test]
    fn packets_that_left_one_gateway_and_did_not_reach_the_other_are_lost() {
        let drop = |fate, length| DropRecord {
            time_us: 0,
            direction: Direction::AToB,
            fate,
            length,
            hash: 0,
            number: 0,
        };
        let drops = [drop(Fate::Lost, 1300), drop(Fate::QueueFull, 1300), drop(Fate::QueueFull, 1340)];
        let counts = count(&peer(1000, 495, 4, 38.0), &peer(500, 990, 9, 77.0), &drops);
        assert_eq!((counts.source_packets, counts.lost, counts.recovered), (1500, 15, 13));
        assert_eq!(counts.queue_drops, 1);
        assert_eq!(counts.overhead_percent, 38.0);
    }

    #[test]
    fn a_file_that_a_killed_demo_left_is_no_obstacle() {
        let left = Scratch::new("left.csv").unwrap();
        let made = Scratch::new("left.csv").unwrap();
        assert_ne!(made.path, left.path);
    }

    #[test]
    fn titles_name_the_loss() {
        assert_eq!(
            Act::ALL.map(|act| act.title(0.001)),
            ["no loss, no gateways", "0.1 % loss, no gateways", "0.1 % loss, with gateways"]
        );
    }
}
