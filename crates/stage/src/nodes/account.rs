//! Computes figures from the reports of the nodes and the network.

use anyhow::{anyhow, bail};
use ricochet::Status;
use ricochet_core::StreamKey;
use ricochet_core::bins::BinsCounts;
use ricochet_core::message::How;
use sim::cluster::{HEADERS, Wire};
use sim::figures::{Account, Latency};
use sim::ledger::Sent;
use sim::{Fate, Figures, Ledger, Violation};

use super::stage::{Report, Stage, What, print};

/// Records the fates of the packets in the ledger.
pub(crate) fn settle(ledger: &mut Ledger, stage: &Stage, reports: &[Vec<Report>]) -> anyhow::Result<u64> {
    let ids = stage.ids();
    let in_ledger = |key: StreamKey| {
        let at = ids
            .get(&key.sender)
            .ok_or_else(|| anyhow!("expected a node as the sender of a packet, saw {}", key.sender))?;
        Ok::<_, anyhow::Error>(StreamKey {
            sender: ricochet_core::NodeId(*at as u32),
            group: stage.groups.number(key.group),
        })
    };
    let mut duplicates = 0;
    let mut payload = Vec::new();
    for (at, node_reports) in reports.iter().enumerate() {
        for missed in &stage.tap(at).arrivals().missed {
            ledger.note_missed(missed.now_us, at, in_ledger(missed.key)?, missed.seq);
        }
        for Report { now_us, key, what } in node_reports {
            let key = in_ledger(*key)?;
            let noted = match *what {
                What::Message { seq, how, print: seen } => {
                    let is_sound = |ledger: &Ledger, number, length| {
                        ledger.payload(number, length, &mut payload);
                        print(&payload) == seen
                    };
                    let noted = ledger.deliver(*now_us, at, (key, seq, how), is_sound);
                    noted.map_err(|violation| (seq, violation))
                }
                What::Lost { first, packets } => (0..packets).try_for_each(|step| {
                    let seq = first.wrapping_add(step as u32);
                    ledger.report(*now_us, at, key, seq).map_err(|violation| (seq, violation))
                }),
            };
            match noted {
                Ok(()) => {}
                Err((_, Violation::Twice)) => duplicates += 1,
                Err((seq, violation)) => {
                    let group = stage.groups.name(key.group);
                    bail!("packet {seq} of node {} to {group} at node {at}: {violation}", key.sender.0);
                }
            }
        }
    }
    Ok(duplicates)
}

/// Computes the figures that a run in virtual time has too.
pub(crate) fn figures(
    ledger: &Ledger,
    stage: &Stage,
    status: &[Status],
    duplicates: u64,
    cpu_ns: Option<f64>,
) -> Figures {
    let of_bins = |key| status.iter().map(|status| status.bins.get(key).copied().unwrap_or(0)).sum();
    let received_again = status.iter().map(|status| status.counts.get("duplicates").copied().unwrap_or(0));
    Figures::compute(&Account {
        ledger,
        wires: &wires(stage, status),
        bins: BinsCounts {
            additions: of_bins("additions"),
            packets: of_bins("packets"),
            ..BinsCounts::default()
        },
        received_again: received_again.sum(),
        duplicates,
        cpu_ns,
    })
}

/// Counts as in virtual time: each datagram once at its sender, and once at each member that it reached, even
/// if lost there.
fn wires(stage: &Stage, status: &[Status]) -> [Wire; 16] {
    let mut wires = [Wire::default(); 16];
    for (at, status) in status.iter().enumerate() {
        for (wire, counted) in wires.iter_mut().zip(&stage.tap(at).arrivals().wires) {
            wire.copies += counted.copies;
            wire.arrived += counted.arrived;
            wire.bytes += counted.bytes;
        }
        let sent = &status.sent;
        let kinds = [sent.data, sent.retransmissions, sent.repairs, sent.requests, sent.heartbeats];
        for (wire, sent) in wires[1..].iter_mut().zip(kinds) {
            wire.sent += sent.packets;
            wire.bytes += sent.bytes + sent.packets * HEADERS as u64;
        }
    }
    wires
}

/// Returns the number of packets expected at receivers.
pub(crate) fn expected(ledger: &Ledger) -> u64 {
    let others = |sent: &Sent| {
        let own = sent.members.binary_search(&(sent.key.sender.0 as usize)).is_ok();
        (sent.members.len() - usize::from(own)) as u64
    };
    ledger.sent().iter().map(others).sum()
}

/// Returns the number of packets that did not reach the place of injected loss.
pub(crate) fn lost_elsewhere(ledger: &Ledger, stage: &Stage) -> u64 {
    let came = (0..stage.nodes().count()).map(|at| stage.tap(at).arrivals().wires[1].copies);
    expected(ledger).saturating_sub(came.sum())
}

/// Returns the delay of measured packets that arrived by multicast, from before sending until the application
/// has them.
pub(crate) fn delay(ledger: &Ledger) -> Latency {
    let counted = ledger.sent().iter().filter(|sent| sent.counted);
    let came = counted.flat_map(|sent| ledger.entries(sent).map(move |(_, entry)| (sent.sent_us, entry)));
    let mut delays_us: Vec<u64> = came
        .filter(|(_, entry)| entry.fate == Fate::Delivered(How::Multicast))
        .map(|(sent_us, entry)| entry.settled_us.saturating_sub(sent_us))
        .collect();
    Latency::of(&mut delays_us)
}
