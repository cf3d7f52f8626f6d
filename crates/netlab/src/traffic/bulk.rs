//! Bulk TCP at the full speed of the connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::between::Between;
use super::connection::{Connection, Ends};
use super::pattern::Pattern;
use super::retransmits::tcp_retransmits;
use super::watch::{Progress, Stop, Watcher, is_timeout, micros, watch};
use crate::clock::now_us;
use crate::error::LabError;
use crate::process::give_way;

/// Longest time that a transfer takes beyond its duration, if it waits for [`TcpTransfer::least_bytes`].
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum number of flows in one direction; each uses two threads.
const FLOWS_MAX: usize = 256;

/// Settings of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpTransfer {
    /// Congestion control of both ends by its kernel name (`cubic`, `reno`, `bbr`); `None` uses the kernel's
    /// default.
    pub congestion: Option<String>,
    /// Time of sending, from the moment when all connections are up.
    pub duration: Duration,
    /// Payload in bytes that must arrive in each direction before the transfer ends. It takes longer than the
    /// duration on a busy machine, by a minute at most.
    pub least_bytes: u64,
    /// Number of connections in each direction, 1 to 256.
    pub flows: usize,
    /// Sending hosts.
    pub direction: Direction,
    /// Whether every byte is compared with the one sent.
    pub verify: bool,
    /// Port of the listening host; 0 for any.
    pub port: u16,
    /// Receive buffer of both ends in bytes; `None` for the kernel's default, which grows.
    pub receive_buffer: Option<usize>,
}

impl Default for TcpTransfer {
    fn default() -> Self {
        Self {
            congestion: None,
            duration: Duration::from_secs(10),
            least_bytes: 0,
            flows: 1,
            direction: Direction::Forward,
            verify: true,
            port: 0,
            receive_buffer: None,
        }
    }
}

/// Sending hosts of a transfer. The connecting host is always [`Between::from`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The host that connects.
    Forward,
    /// The host that listens.
    Backward,
    /// Both, on separate connections.
    Both,
}

/// Result of a transfer.
#[derive(Clone, Debug, Default)]
pub struct TcpReport {
    /// Traffic received by the listening host.
    pub forward: Throughput,
    /// Traffic received by the connecting host.
    pub backward: Throughput,
    /// TCP segments retransmitted by both hosts during the transfer, by any of their connections.
    pub retransmits: u64,
    /// Payload of each connection in the second half of the run, in bytes; in all of it if nobody looked in
    /// between.
    pub flow_bytes: Vec<u64>,
    /// Offset of the first byte of a connection that differs from the one sent, if any.
    pub mismatch: Option<u64>,
}

/// Traffic received in one direction.
#[derive(Clone, Debug, Default)]
pub struct Throughput {
    /// One sample every 100 ms; empty if nothing was sent.
    pub samples: Vec<Sample>,
}

/// Bytes received up to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Microseconds since the traffic began.
    pub elapsed_us: u64,
    /// Payload received until then, in bytes.
    pub received_bytes: u64,
}

impl Throughput {
    /// Returns the total payload received, in bytes.
    pub fn received_bytes(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.received_bytes)
    }

    /// Returns the payload per second over the whole run, in bit/s.
    pub fn goodput_bps(&self) -> f64 {
        self.goodput_since(0)
    }

    /// Returns the payload per second over the second half of the run, in bit/s, which excludes the slow
    /// start.
    pub fn second_half_bps(&self) -> f64 {
        self.goodput_since(self.samples.last().map_or(0, |last| last.elapsed_us / 2))
    }

    /// Returns the payload per second in bit/s over the last part of the run. `most_bps` is the rate of the
    /// link's payload.
    ///
    /// A receiver gets nothing while it waits for a lost packet, then everything at once. A measurement that
    /// begins within such a wait would count data that arrived before. So this one begins within the middle
    /// third of the run, at a moment when the receiver had received all data that had arrived; if there is
    /// none, at the moment with the shortest backlog. Data that waits at the end does not count.
    pub fn settled_bps(&self, most_bps: f64) -> f64 {
        let end_us = self.samples.last().map_or(0, |last| last.elapsed_us);
        let middle = end_us / 3..=end_us / 3 * 2;
        let caught_up_bytes = |(at, from): &(usize, &Sample)| {
            let faster = |to: &Sample| {
                let carried_bytes = most_bps * (to.elapsed_us - from.elapsed_us) as f64 / 8e6;
                (to.received_bytes - from.received_bytes) as f64 - carried_bytes
            };
            self.samples[*at..].iter().map(faster).fold(0.0, f64::max)
        };
        let starts =
            self.samples.iter().enumerate().filter(|(_, sample)| middle.contains(&sample.elapsed_us));
        let start = starts.min_by(|a, b| caught_up_bytes(a).total_cmp(&caught_up_bytes(b)));
        self.goodput_since(start.map_or(end_us / 2, |(_, start)| start.elapsed_us))
    }

    fn goodput_since(&self, start_us: u64) -> f64 {
        let Some(last) = self.samples.last() else { return 0.0 };
        let before = self.samples.iter().rfind(|sample| sample.elapsed_us <= start_us);
        let (from_us, bytes_before) = before.map_or((0, 0), |s| (s.elapsed_us, s.received_bytes));
        if last.elapsed_us == from_us {
            return 0.0;
        }
        (last.received_bytes - bytes_before) as f64 * 8e6 / (last.elapsed_us - from_us) as f64
    }
}

/// Sends at TCP's full speed for the given time and reports what arrived.
///
/// # Errors
/// If a connection does not come up or breaks, or the kernel refuses the congestion control.
pub fn tcp_transfer(
    between: Between<'_>,
    plan: &TcpTransfer,
    watcher: Watcher<'_>,
) -> Result<TcpReport, LabError> {
    if !(1..=FLOWS_MAX).contains(&plan.flows) {
        return Err(LabError::Invalid(format!("expected 1 to {FLOWS_MAX} flows, saw {}", plan.flows)));
    }
    let retransmits_before = tcp_retransmits(between.from)? + tcp_retransmits(between.to)?;
    let flows = open_flows(between, plan)?;
    let mut report = carry(&flows, plan, watcher)?;
    let retransmits = tcp_retransmits(between.from)? + tcp_retransmits(between.to)?;
    report.retransmits = retransmits - retransmits_before;
    Ok(report)
}

/// A connection used in one direction.
struct Flow {
    sender: TcpStream,
    receiver: TcpStream,
    is_forward: bool,
    received_bytes: AtomicU64,
}

fn open_flows(between: Between<'_>, plan: &TcpTransfer) -> Result<Vec<Flow>, LabError> {
    let directions: &[bool] = match plan.direction {
        Direction::Forward => &[true],
        Direction::Backward => &[false],
        Direction::Both => &[true, false],
    };
    let ends =
        Ends { congestion: plan.congestion.as_deref(), port: plan.port, receive_buffer: plan.receive_buffer };
    let mut flows = Vec::new();
    for &is_forward in directions {
        for _ in 0..plan.flows {
            let Connection { client, server } = Connection::open(between, ends)?;
            let (sender, receiver) = if is_forward { (client, server) } else { (server, client) };
            flows.push(Flow { sender, receiver, is_forward, received_bytes: AtomicU64::new(0) });
        }
    }
    Ok(flows)
}

fn carry(flows: &[Flow], plan: &TcpTransfer, watcher: Watcher<'_>) -> Result<TcpReport, LabError> {
    let pattern = &Pattern::new();
    let stop = &Stop::default();
    thread::scope(|scope| {
        let stopper = stop.on_drop();
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for flow in flows {
            senders.push(scope.spawn(move || flow.send(pattern, stop)));
            receivers.push(scope.spawn(move || flow.receive(pattern, plan.verify, stop)));
        }
        let mut report = sample(flows, plan, watcher, stop);
        drop(stopper);
        for sender in senders {
            finish(sender)?;
        }
        for receiver in receivers {
            let mismatch = finish(receiver)?;
            report.mismatch = report.mismatch.or(mismatch);
        }
        Ok(report)
    })
}

/// Samples both directions until the time is over and enough has arrived.
fn sample(flows: &[Flow], plan: &TcpTransfer, watcher: Watcher<'_>, stop: &Stop) -> TcpReport {
    let start_us = now_us();
    let end_us = start_us + micros(plan.duration);
    let total = |is_forward: bool| -> u64 {
        let of_direction = flows.iter().filter(|flow| flow.is_forward == is_forward);
        of_direction.map(|flow| flow.received_bytes.load(Ordering::Relaxed)).sum()
    };
    let mut report = TcpReport::default();
    let each = || flows.iter().map(|flow| flow.received_bytes.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let mut first_half = None;
    let mut sampled = |progress: Progress| {
        for (throughput, is_forward) in [(&mut report.forward, true), (&mut report.backward, false)] {
            if flows.iter().any(|flow| flow.is_forward == is_forward) {
                let received_bytes = total(is_forward);
                throughput.samples.push(Sample { elapsed_us: progress.elapsed_us, received_bytes });
            }
        }
        // On a busy machine, the first look may come when all is over.
        let is_half = progress.elapsed_us >= micros(plan.duration) / 2;
        if first_half.is_none() && is_half && progress.elapsed_us < micros(plan.duration) {
            first_half = Some(each());
        }
        watcher(progress)
    };
    let both = || total(true) + total(false);
    if !watch(start_us, end_us, &mut sampled, both, || stop.is_set()) {
        let is_enough = || stop.is_set() || has_least(flows, plan.least_bytes);
        watch(start_us, end_us + micros(PATIENCE), &mut sampled, both, is_enough);
    }
    let before = first_half.unwrap_or_else(|| vec![0; flows.len()]);
    report.flow_bytes = each().iter().zip(before).map(|(bytes, before)| bytes - before).collect();
    report
}

/// Returns whether every direction has carried `least_bytes`.
fn has_least(flows: &[Flow], least_bytes: u64) -> bool {
    [true, false].into_iter().all(|is_forward| {
        let mut of_direction = flows.iter().filter(|flow| flow.is_forward == is_forward).peekable();
        of_direction.peek().is_none()
            || of_direction.map(|flow| flow.received_bytes.load(Ordering::Relaxed)).sum::<u64>()
                >= least_bytes
    })
}

/// Returns the result of a worker, or resumes its panic.
fn finish<T>(worker: ScopedJoinHandle<'_, io::Result<T>>) -> Result<T, LabError> {
    match worker.join() {
        Ok(result) => result.map_err(|e| LabError::system("a TCP connection broke during the transfer", e)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

impl Flow {
    fn send(&self, pattern: &Pattern, stop: &Stop) -> io::Result<()> {
        give_way()?;
        let mut offset = 0;
        while !stop.is_set() {
            match (&self.sender).write(pattern.at(offset)) {
                Ok(length) => offset += length as u64,
                Err(e) if is_timeout(&e) => {}
                Err(e) => {
                    stop.set();
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Returns the offset of the first wrong byte.
    fn receive(&self, pattern: &Pattern, verify: bool, stop: &Stop) -> io::Result<Option<u64>> {
        give_way()?;
        let mut buffer = vec![0; Pattern::PIECE_MAX];
        let mut offset = 0;
        let mut mismatch = None;
        while !stop.is_set() {
            let length = match (&self.receiver).read(&mut buffer) {
                Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(e) if is_timeout(&e) => continue,
                other => other,
            };
            let length = length.inspect_err(|_| stop.set())?;
            if verify && mismatch.is_none() {
                mismatch = pattern.first_mismatch(offset, &buffer[..length]);
            }
            offset += length as u64;
            self.received_bytes.store(offset, Ordering::Relaxed);
        }
        Ok(mismatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_of_the_second_half_excludes_the_slow_start() {
        let at = |elapsed_us, received_bytes| Sample { elapsed_us, received_bytes };
        let slow_then_fast =
            Throughput { samples: vec![at(500_000, 0), at(1_000_000, 1_000), at(2_000_000, 126_000)] };
        assert!((slow_then_fast.goodput_bps() - 504_000.0).abs() < 1.0);
        assert!((slow_then_fast.second_half_bps() - 1_000_000.0).abs() < 1.0);
        assert_eq!(Throughput::default().second_half_bps(), 0.0);
        assert_eq!(Throughput { samples: vec![at(0, 0)] }.goodput_bps(), 0.0);
    }

    #[test]
    fn data_behind_a_gap_does_not_count_twice() {
        // 9 Mbit/s (1,125,000 bytes/s) arrived all the time; nothing was handed over from 1.3 to 1.8 s.
        let handed = |tenth: u64| if (13..18).contains(&tenth) { 13 } else { tenth };
        let samples = |handed: fn(u64) -> u64| {
            let at = |tenth| Sample { elapsed_us: 100_000 * tenth, received_bytes: 112_500 * handed(tenth) };
            Throughput { samples: (1..=30).map(at).collect() }
        };
        let (steady, gap) = (samples(|tenth| tenth), samples(handed));
        assert!((gap.second_half_bps() - 10.2e6).abs() < 1.0, "data of the first half must be counted");
        for throughput in [&steady, &gap] {
            assert!((throughput.settled_bps(9e6) - 9e6).abs() < 1.0, "{}", throughput.settled_bps(9e6));
        }
        // A rate above the assumed one is not cut off.
        assert!((steady.settled_bps(8e6) - 9e6).abs() < 1.0);
        // Without a moment free of backlog, the measurement begins where the backlog is shortest.
        let waiting = samples(|tenth| if tenth < 25 { 5 } else { tenth });
        assert!((waiting.settled_bps(9e6) - 112_500.0 * 8.0 * 25.0 / 2.0).abs() < 1.0);
        assert_eq!(Throughput::default().settled_bps(8e6), 0.0);
        assert_eq!(
            Throughput { samples: vec![Sample { elapsed_us: 0, received_bytes: 0 }] }.settled_bps(8e6),
            0.0
        );
    }
}
