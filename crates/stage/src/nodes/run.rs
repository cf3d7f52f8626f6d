//! One run of the papers' setting with real nodes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use netlab::namespace::DeviceCounters;
use ricochet::{Sender, Status};
use ricochet_core::{NodeId, StreamKey};
use sim::bench::{AFTER_US, SILENCE_US};
use sim::figures::Latency;
use sim::ledger::Outgoing;
use sim::{Figures, Ledger, Schedule, Setting};

use super::account;
use super::clock::{nodes_cpu_ns, thread_cpu_ns};
use super::stage::Stage;

/// Most nodes: the hosts that a bridge of `netlab` has.
const NODES_MAX: usize = 64;
/// Without requests nothing more comes once repairs have been exchanged.
const QUIET_US: u64 = 1_000_000;
/// How often is looked whether to stop, and progress told.
const LOOK_EVERY_US: u64 = 100_000;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// It lays out the network and starts the nodes.
    Building,
    /// It sends, and has sent this share of all, from 0 to 1.
    Sending(f64),
    /// It waits for what is still to come.
    Waiting,
    /// What it did when it told last.
    Still,
}

/// Told many times a second what a run does; an error ends it, and is what the run returns.
pub type Watcher<'a> = &'a mut dyn FnMut(Step) -> anyhow::Result<()>;

/// A watcher that never looks.
///
/// # Errors
/// None.
pub fn unwatched(_: Step) -> anyhow::Result<()> {
    Ok(())
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Real {
    /// What a run in virtual time has, too.
    pub figures: Figures,
    /// What it has not.
    pub carried: Carried,
}

/// What a run in virtual time has no word for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Packets that a node was to receive in a second, on average.
    pub rate: f64,
    /// How long packets took that were not lost, from the sender's call until they were taken out of the subscription.
    pub delay_ms: Latency,
    /// Bytes at the ports of the bridge for each message, both directions, membership and foreign groups included.
    pub port_bytes_per_message: f64,
    /// Frames there.
    pub port_frames_per_message: f64,
    /// Packets that never came to a node, dropped by nobody on purpose.
    pub lost_elsewhere: u64,
    /// Datagrams for which sockets, rings or queues had no room.
    pub overflowed: u64,
    /// Whether a node did not know all members of all groups in the end.
    pub parted: bool,
}

/// Checks a setting, and what [`Setting::check`] cannot know.
///
/// # Errors
/// The first mistake.
pub fn check(setting: &Setting) -> anyhow::Result<()> {
    setting.check()?;
    let nodes = setting.nodes + setting.outside_senders;
    anyhow::ensure!(
        nodes <= NODES_MAX,
        "expected at most {NODES_MAX} nodes, outside senders included, saw {nodes}"
    );
    Ok(())
}

/// Runs a setting once. Without root the process must have entered a user namespace
/// ([`netlab::privilege::enter_user_namespace`]).
///
/// # Errors
/// Of the watcher; or if the network cannot be built, a node fails, or something is delivered that nobody sent.
pub fn run(setting: &Setting, watcher: Watcher<'_>) -> anyhow::Result<Real> {
    watcher(Step::Building)?;
    let mut stage = Stage::build(setting, watcher)?;
    stage.meet(watcher)?;
    let before = (nodes_cpu_ns(), stage.lan.wires_total()?);
    let mut ledger = Ledger::new();
    let mut sending = Sending { setting, stage: &stage, ledger: &mut ledger, cpu_ns: 0 };
    let rate = sending.send(watcher)?;
    let sending_ns = sending.cpu_ns;
    watcher(Step::Waiting)?;
    wait_for_the_rest(setting, &stage, &ledger, watcher)?;

    let nodes_ns = nodes_cpu_ns().saturating_sub(before.0);
    let ports = stage.lan.wires_total()?.since(before.1);
    let status: Vec<Status> = stage.nodes().map(ricochet::Node::status).collect();
    if let Some((at, why)) = status.iter().enumerate().find_map(|(at, of)| Some((at, of.failed.as_ref()?))) {
        anyhow::bail!("node {at} has failed: {why}");
    }
    let parted = stage.stranger().is_some();
    let told = stage.end()?;
    let duplicates = account::settle(&mut ledger, &stage, &told)?;
    let cpu_ns = (nodes_ns > 0).then_some((nodes_ns + sending_ns) as f64);
    let figures = account::figures(&ledger, &stage, &status, duplicates, cpu_ns);
    let carried = Carried { rate, parted, ..Carried::of(&ledger, &stage, ports, &status) };
    Ok(Real { figures, carried })
}

impl Carried {
    /// How long half of the packets that were not lost took at most.
    #[must_use]
    pub fn median_delay_us(&self) -> u64 {
        (self.delay_ms.p50 * 1e3).round() as u64
    }

    fn of(ledger: &Ledger, stage: &Stage, ports: DeviceCounters, status: &[Status]) -> Self {
        let messages = ledger.sent().len().max(1) as f64;
        let overflowed = |of: &Status| {
            let unsent: u64 =
                of.sending.iter().filter(|(name, _)| *name != "sent").map(|(_, count)| count).sum();
            let queues: u64 = of.subscriptions.iter().map(|taker| taker.counts.dropped).sum();
            of.kernel.overflowed + of.ring.dropped + unsent + queues
        };
        Self {
            port_bytes_per_message: ports.bytes() as f64 / messages,
            port_frames_per_message: ports.packets() as f64 / messages,
            delay_ms: account::delay(ledger),
            lost_elsewhere: account::lost_elsewhere(ledger, stage),
            overflowed: status.iter().map(overflowed).sum(),
            ..Self::default()
        }
    }
}

/// The one thread that sends for all nodes.
struct Sending<'a> {
    setting: &'a Setting,
    stage: &'a Stage,
    ledger: &'a mut Ledger,
    /// Processor time within the nodes.
    cpu_ns: u64,
}

impl Sending<'_> {
    /// Sends for as long as the setting says and two seconds more; returns the rate that was reached.
    ///
    /// Who is behind its schedule sends at once until it has caught up; what was not sent in time never is.
    fn send(&mut self, watcher: Watcher<'_>) -> anyhow::Result<f64> {
        netio::poll::precise_timeouts().context("setting the precision of timers")?;
        let (setting, groups, clock) = (self.setting, &self.stage.groups, self.stage.clock);
        let grouping: Vec<_> = groups.grouping.iter().map(Vec::as_slice).collect();
        let members = |group| groups.members(group).len();
        let start_us = clock.now_us();
        let mut schedule = Schedule::new(&grouping, members, setting.rate, start_us, setting.traffic_seed());
        let measured_us = start_us + (setting.seconds * 1e6) as u64;
        let end_us = measured_us + AFTER_US;
        let (mut planned, mut counted, mut look_us) = (0u64, 0u64, 0);
        let mut payload = Vec::with_capacity(setting.size);
        loop {
            let due_us = schedule.due_us();
            let mut now_us = clock.now_us();
            while now_us < due_us.min(end_us) {
                if now_us >= look_us {
                    watcher(Step::Sending((now_us - start_us) as f64 / (end_us - start_us) as f64))?;
                    look_us = now_us + LOOK_EVERY_US;
                }
                thread::sleep(Duration::from_micros(due_us.min(end_us).min(look_us) - now_us));
                now_us = clock.now_us();
            }
            if now_us >= look_us + LOOK_EVERY_US {
                // No rest since then.
                watcher(Step::Still)?;
                look_us = now_us;
            }
            if now_us >= end_us {
                break;
            }
            planned += u64::from(due_us < measured_us);
            let Some((from, group)) = schedule.next(|group| groups.members(group)) else { continue };
            let is_counted = due_us < measured_us && now_us < measured_us + LOOK_EVERY_US;
            counted += u64::from(is_counted);
            self.ledger.next_payload(setting.size, &mut payload);
            self.send_one((from, group), &payload, is_counted)?;
        }
        let all = schedule.packets_per_second() * setting.seconds;
        let all = if counted == planned { planned as f64 } else { all };
        Ok(setting.rate * (counted as f64 / all.max(1.0)).min(1.0))
    }

    fn send_one(
        &mut self,
        (from, group): (usize, ricochet_core::GroupId),
        payload: &[u8],
        counted: bool,
    ) -> anyhow::Result<()> {
        let sender: Sender = self.stage.node(from).sender(self.stage.groups.name(group))?;
        let now_us = self.stage.clock.now_us();
        let before_ns = thread_cpu_ns();
        let seq = sender.send(payload).with_context(|| format!("node {from} sends"))?;
        self.cpu_ns += thread_cpu_ns().saturating_sub(before_ns);
        let key = StreamKey { sender: NodeId(from as u32), group };
        let sent = Outgoing { now_us, key, seq, length: payload.len(), counted };
        self.ledger.note_sent(from, sent, self.stage.groups.members(group));
        Ok(())
    }
}

/// Until all has come, or no more will.
fn wait_for_the_rest(
    setting: &Setting,
    stage: &Stage,
    ledger: &Ledger,
    watcher: Watcher<'_>,
) -> anyhow::Result<()> {
    let expected = account::expected(ledger);
    // Requests go on until a packet is given up.
    let quiet_us = if setting.nak { SILENCE_US } else { QUIET_US + setting.max_delay_us.unwrap_or(0) };
    let start_us = stage.clock.now_us();
    let (mut last, mut last_us) = (0, start_us);
    loop {
        watcher(Step::Still)?;
        let (delivered, now_us) = (stage.delivered.load(Ordering::Relaxed), stage.clock.now_us());
        if delivered > last {
            (last, last_us) = (delivered, now_us);
        }
        if delivered >= expected || now_us - last_us > quiet_us || now_us - start_us > 2 * SILENCE_US {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
}
