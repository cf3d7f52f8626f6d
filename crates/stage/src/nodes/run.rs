//! One run of the papers' setting with real nodes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use netlab::namespace::DeviceCounters;
use ricochet::{ClusterKey, Sender, Status};
use ricochet_core::{NodeId, StreamKey};
use sim::bench::{AFTER_US, SILENCE_US};
use sim::figures::Latency;
use sim::ledger::Outgoing;
use sim::{Figures, Ledger, Schedule, Setting};

use super::account;
use super::clock::{nodes_cpu_ns, thread_cpu_ns};
use super::stage::Stage;
use super::watch::{Step, Watcher};

/// Maximum number of nodes: the hosts of a bridge of `netlab`.
const NODES_MAX: usize = 64;
/// Wait after the last packet if there are no requests: repairs are exchanged by then.
const QUIET_US: u64 = 1_000_000;
/// Interval of progress reports and checks of the stop condition.
const PROGRESS_US: u64 = 100_000;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Real {
    /// Figures that a run in virtual time has too.
    pub figures: Figures,
    /// Figures of real runs alone.
    pub carried: Carried,
}

/// Figures that a run in virtual time lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Mean number of packets per second that a node had to receive.
    pub rate: f64,
    /// Delay of packets that were not lost, from the sender's call until the application has them.
    pub delay_ms: Latency,
    /// Bytes at the bridge's ports per message, in both directions, including membership and other groups.
    pub port_bytes_per_message: f64,
    /// Frames at the bridge's ports per message.
    pub port_frames_per_message: f64,
    /// Packets that never reached a node although no loss was injected.
    pub lost_elsewhere: u64,
    /// Datagrams that did not fit sockets, rings or queues.
    pub overflowed: u64,
    /// Whether a node did not know all members of all groups at the end.
    pub parted: bool,
}

/// Checks a setting, including the limits that [`Setting::check`] does not know.
///
/// # Errors
/// The first violated limit.
pub fn check(setting: &Setting) -> anyhow::Result<()> {
    setting.check()?;
    let nodes = setting.nodes + setting.outside_senders;
    anyhow::ensure!(
        nodes <= NODES_MAX,
        "expected at most {NODES_MAX} nodes, outside senders included, saw {nodes}"
    );
    Ok(())
}

/// Runs a setting once. Without root, the process must have entered a user namespace
/// ([`netlab::privilege::enter_user_namespace`]).
///
/// # Errors
/// The watcher's error; or if the network cannot be built, a node fails, or an unsent packet is delivered.
pub fn run(setting: &Setting, watcher: Watcher<'_>) -> anyhow::Result<Real> {
    run_with_key(setting, None, watcher)
}

/// Runs a setting once, with nodes that authenticate their datagrams if there is a key.
///
/// # Errors
/// As [`run`].
pub fn run_with_key(
    setting: &Setting,
    key: Option<&ClusterKey>,
    watcher: Watcher<'_>,
) -> anyhow::Result<Real> {
    watcher(Step::Building)?;
    let mut stage = Stage::build(setting, key, watcher)?;
    stage.wait_for_views(watcher)?;
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
    let parted = stage.unknown_member().is_some();
    let reports = stage.end()?;
    let duplicates = account::settle(&mut ledger, &stage, &reports)?;
    let cpu_ns = (nodes_ns > 0).then_some((nodes_ns + sending_ns) as f64);
    let figures = account::figures(&ledger, &stage, &status, duplicates, cpu_ns);
    let carried = Carried { rate, parted, ..Carried::of(&ledger, &stage, ports, &status) };
    Ok(Real { figures, carried })
}

impl Carried {
    /// Returns the median delay of packets that were not lost.
    pub fn median_delay_us(&self) -> u64 {
        (self.delay_ms.p50 * 1e3).round() as u64
    }

    fn of(ledger: &Ledger, stage: &Stage, ports: DeviceCounters, status: &[Status]) -> Self {
        let messages = ledger.sent().len().max(1) as f64;
        let overflowed = |of: &Status| {
            let unsent: u64 =
                of.sending.iter().filter(|(name, _)| *name != "sent").map(|(_, count)| count).sum();
            let queues: u64 = of.subscriptions.iter().map(|receiver| receiver.counts.dropped).sum();
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

/// The thread that sends for all nodes.
struct Sending<'a> {
    setting: &'a Setting,
    stage: &'a Stage,
    ledger: &'a mut Ledger,
    /// Processor time spent within the nodes.
    cpu_ns: u64,
}

impl Sending<'_> {
    /// Sends for the setting's time and two seconds more; returns the achieved rate.
    ///
    /// If sending is behind schedule, packets leave at once until it has caught up. Packets that are due
    /// after the end are never sent.
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
                    look_us = now_us + PROGRESS_US;
                }
                thread::sleep(Duration::from_micros(due_us.min(end_us).min(look_us) - now_us));
                now_us = clock.now_us();
            }
            if now_us >= look_us + PROGRESS_US {
                // The thread has not slept since the last report.
                watcher(Step::Still)?;
                look_us = now_us;
            }
            if now_us >= end_us {
                break;
            }
            planned += u64::from(due_us < measured_us);
            let Some((from, group)) = schedule.next(|group| groups.members(group)) else { continue };
            let is_counted = due_us < measured_us && now_us < measured_us + PROGRESS_US;
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

/// Waits until everything has arrived, or no more will.
fn wait_for_the_rest(
    setting: &Setting,
    stage: &Stage,
    ledger: &Ledger,
    watcher: Watcher<'_>,
) -> anyhow::Result<()> {
    let expected = account::expected(ledger);
    // Requests continue until a packet is given up.
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
