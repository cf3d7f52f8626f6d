//! The figures of a run, from the records of the receivers and the losses that the kernel reports.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;
use serde::Serialize;

use super::message::Name;
use super::run::Cell;
use crate::bench::rig::quantile;

/// A delivery in the records of a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    group: u32,
    name: Name,
    send_ns: u64,
    receive_ns: u64,
}

impl Record {
    /// Parses `group sender number send_ns receive_ns`.
    pub(crate) fn parse(line: &str) -> anyhow::Result<Self> {
        let wrong = || format!("expected `group sender number send_ns receive_ns`, saw {line:?}");
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).with_context(wrong);
        let group = u32::try_from(number()?).with_context(wrong)?;
        let sender = u32::try_from(number()?).with_context(wrong)?;
        let name = Name { sender, number: number()? };
        Ok(Self { group, name, send_ns: number()?, receive_ns: number()? })
    }
}

/// Deliveries and losses of one receiver.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// Deliveries, in order.
    pub(crate) records: Vec<Record>,
    /// Messages lost on its wire, each with the time of the loss. A message occurs again if a repetition was
    /// lost too.
    pub(crate) lost: Vec<(Name, u64)>,
    /// Lost packets in which the kernel found no message, or that it could not report.
    pub(crate) lost_untold: u64,
}

/// A distribution of latencies in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Spread {
    fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let at = |share| quantile(&ns, share) as f64 / 1e6;
        let sum: u128 = ns.iter().map(|&ns| u128::from(ns)).sum();
        let mean = sum as f64 / ns.len().max(1) as f64 / 1e6;
        Self { count: ns.len(), mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }

    pub(crate) fn p50_p99_max(&self) -> [f64; 3] {
        [self.p50, self.p99, self.max]
    }

    pub(crate) fn p50_p99_p999(&self) -> [f64; 3] {
        [self.p50, self.p99, self.p999]
    }
}

/// Figures of a run.
///
/// Messages are counted at each receiver, so a message that two receivers lost counts as lost twice.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// Messages sent.
    pub(crate) sent: u64,
    /// Messages lost on the wire before their delivery, or lost and never delivered.
    pub(crate) lost: u64,
    /// Lost packets in which the kernel found no message, or that it could not report. The former are control
    /// packets of the systems, or repetitions in another form.
    pub(crate) lost_untold: u64,
    /// Latency from sending to delivery of the messages that were lost.
    pub(crate) recovered_ms: Spread,
    /// Latency of all other messages.
    pub(crate) straight_ms: Spread,
    /// Latency of all messages, lost or not.
    pub(crate) all_ms: Spread,
    /// Latency of the last message of each group, lost or not.
    pub(crate) last_ms: Spread,
    /// Latency of the last messages that were lost.
    pub(crate) last_recovered_ms: Spread,
    /// Last messages of their groups that were never delivered.
    pub(crate) last_undelivered: u64,
    /// Share of the messages that were delivered, in percent.
    pub(crate) delivered_percent: f64,
    /// Messages that were never delivered.
    pub(crate) undelivered: u64,
    /// Messages that were never delivered although the kernel reported no loss of them.
    pub(crate) undelivered_not_lost: u64,
    /// Messages delivered in a second at each receiver on average, from the first message sent to the last
    /// one delivered.
    pub(crate) messages_per_s: f64,
    /// The same in megabytes of payload.
    pub(crate) megabytes_per_s: f64,
    /// Deliveries of a message after its first delivery.
    pub(crate) duplicates: u64,
    /// Deliveries that the first receiver had in another order, of the same group.
    pub(crate) reordered: u64,
    /// Longest time in milliseconds between two deliveries at a receiver.
    pub(crate) pause_ms: f64,
    /// Deliveries of messages that were never sent, or were sent to another group.
    pub(crate) foreign: u64,
    /// Time from when a message was due until it was sent.
    pub(crate) lateness_ms: Spread,
    /// Processor time of all participants per message sent.
    pub(crate) cpu_us_per_message: f64,
    /// Packets on all wires per message sent. A packet that crosses two wires counts twice.
    pub(crate) packets_per_message: f64,
    /// Bytes on all wires per message sent, including Ethernet headers.
    pub(crate) bytes_per_message: f64,
    /// Sums of the participants' own counters.
    pub(crate) stats: BTreeMap<String, f64>,
}

/// Times at which messages are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Time of the first sender's first message.
    pub(crate) start_ns: u64,
}

impl Schedule {
    /// Returns the time of a sender's first message. Senders are counted from 0, and take turns.
    pub(crate) fn start_of(self, cell: &Cell, sender: usize) -> u64 {
        self.start_ns + (sender as f64 * 1e9 / (cell.rate * cell.senders as f64)) as u64
    }

    fn due_ns(self, cell: &Cell, name: Name) -> u64 {
        let sender = (name.sender as usize).saturating_sub(cell.receivers);
        self.start_of(cell, sender) + (name.number as f64 * 1e9 / cell.rate) as u64
    }
}

/// Latencies at all receivers, in nanoseconds.
#[derive(Default)]
struct Latencies {
    recovered: Vec<u64>,
    straight: Vec<u64>,
    last: Vec<u64>,
    last_recovered: Vec<u64>,
    lateness: Vec<u64>,
}

/// Computes all figures except traffic, processor time and the participants' counters.
pub(crate) fn judge(cell: &Cell, schedule: Schedule, receivers: &[Receiver]) -> Figures {
    let mut figures = Figures { sent: cell.messages(), ..Figures::default() };
    let mut latencies = Latencies::default();
    let last = last_of_groups(cell, schedule);
    for receiver in receivers {
        figures.lost_untold += receiver.lost_untold;
        judge_one(cell, schedule, receiver, &last, &mut figures, &mut latencies);
    }
    let due = cell.messages() * receivers.len() as u64;
    figures.delivered_percent = (due - figures.undelivered) as f64 * 100.0 / due.max(1) as f64;
    let all = [&latencies.recovered[..], &latencies.straight].concat();
    figures.all_ms = Spread::of(all);
    figures.recovered_ms = Spread::of(latencies.recovered);
    figures.straight_ms = Spread::of(latencies.straight);
    figures.last_ms = Spread::of(latencies.last);
    figures.last_recovered_ms = Spread::of(latencies.last_recovered);
    figures.lateness_ms = Spread::of(latencies.lateness);
    figures.messages_per_s = throughput(receivers);
    figures.megabytes_per_s = figures.messages_per_s * cell.size as f64 / 1e6;
    figures.reordered = reordered(receivers);
    figures.pause_ms = longest_pause_ns(receivers) as f64 / 1e6;
    figures
}

/// Returns the number of deliveries that the first receiver had in another order. In total order there is
/// none.
fn reordered(receivers: &[Receiver]) -> u64 {
    let Some((first, others)) = receivers.split_first() else { return 0 };
    let places: HashMap<Name, usize> =
        first.records.iter().enumerate().rev().map(|(place, record)| (record.name, place)).collect();
    let of_one = |receiver: &Receiver| {
        let mut latest: HashMap<u32, usize> = HashMap::new();
        let is_early = |record: &&Record| {
            let Some(&place) = places.get(&record.name) else { return false };
            let latest = latest.entry(record.group).or_insert(place);
            let is_early = place < *latest;
            *latest = place.max(*latest);
            is_early
        };
        receiver.records.iter().filter(is_early).count() as u64
    };
    others.iter().map(of_one).sum()
}

/// Returns the longest time between two deliveries at a receiver.
fn longest_pause_ns(receivers: &[Receiver]) -> u64 {
    let of_one = |receiver: &Receiver| {
        let pauses =
            receiver.records.windows(2).map(|pair| pair[1].receive_ns.saturating_sub(pair[0].receive_ns));
        pauses.max().unwrap_or(0)
    };
    receivers.iter().map(of_one).max().unwrap_or(0)
}

/// Returns the messages delivered in a second at each receiver on average.
fn throughput(receivers: &[Receiver]) -> f64 {
    let records = || receivers.iter().flat_map(|receiver| &receiver.records);
    let first_ns = records().map(|record| record.send_ns).min().unwrap_or(0);
    let last_ns = records().map(|record| record.receive_ns).max().unwrap_or(0);
    let seconds = last_ns.saturating_sub(first_ns).max(1) as f64 / 1e9;
    records().count() as f64 / receivers.len().max(1) as f64 / seconds
}

fn judge_one(
    cell: &Cell,
    schedule: Schedule,
    receiver: &Receiver,
    last: &HashMap<u32, Name>,
    figures: &mut Figures,
    latencies: &mut Latencies,
) {
    let mut first_lost: HashMap<Name, u64> = HashMap::new();
    for &(name, time_ns) in &receiver.lost {
        first_lost.entry(name).and_modify(|first| *first = time_ns.min(*first)).or_insert(time_ns);
    }
    let mut delivered: HashMap<Name, Record> = HashMap::new();
    for record in &receiver.records {
        if !cell.was_sent(record.name) || record.name.group(cell.seed, cell.groups) != record.group {
            figures.foreign += 1;
        } else if let Entry::Vacant(first) = delivered.entry(record.name) {
            first.insert(*record);
        } else {
            figures.duplicates += 1;
        }
    }
    for name in cell.names() {
        let is_last = last.get(&name.group(cell.seed, cell.groups)) == Some(&name);
        let lost_ns = first_lost.get(&name);
        let Some(record) = delivered.get(&name) else {
            figures.lost += u64::from(lost_ns.is_some());
            figures.undelivered += 1;
            figures.undelivered_not_lost += u64::from(lost_ns.is_none());
            figures.last_undelivered += u64::from(is_last);
            continue;
        };
        let latency = record.receive_ns.saturating_sub(record.send_ns);
        latencies.lateness.push(record.send_ns.saturating_sub(schedule.due_ns(cell, name)));
        // A packet that is lost after the delivery is a repetition for another receiver.
        let was_lost = lost_ns.is_some_and(|&lost_ns| lost_ns <= record.receive_ns);
        figures.lost += u64::from(was_lost);
        let of_kind = if was_lost { &mut latencies.recovered } else { &mut latencies.straight };
        of_kind.push(latency);
        if is_last {
            latencies.last.push(latency);
        }
        if is_last && was_lost {
            latencies.last_recovered.push(latency);
        }
    }
}

/// Returns the message of each group that is due last.
fn last_of_groups(cell: &Cell, schedule: Schedule) -> HashMap<u32, Name> {
    let mut last: HashMap<u32, Name> = HashMap::new();
    for name in cell.names() {
        let group = name.group(cell.seed, cell.groups);
        let of_group = last.entry(group).or_insert(name);
        if schedule.due_ns(cell, name) > schedule.due_ns(cell, *of_group) {
            *of_group = name;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::super::Lose;
    use super::*;

    fn cell() -> Cell {
        Cell {
            lose: Lose::Data,
            receivers: 2,
            senders: 1,
            groups: 1,
            loss: loss::LossModel::None,
            rate: 1_000.0,
            size: 1_024,
            count: 4,
            tail_s: 0.0,
            seed: 1,
            kill_s: None,
        }
    }

    fn record(number: u64, send_ns: u64, receive_ns: u64) -> Record {
        Record::parse(&format!("0 2 {number} {send_ns} {receive_ns}")).unwrap()
    }

    #[test]
    fn a_message_lost_before_its_delivery_is_recovered_and_one_lost_afterwards_is_not() {
        let name = |number| Name { sender: 2, number };
        let receiver = Receiver {
            records: vec![
                record(0, 1_000_000, 1_100_000),
                record(1, 2_000_000, 5_000_000),
                record(1, 2_000_000, 5_500_000),
                record(3, 4_000_500, 4_100_500),
            ],
            lost: vec![
                (name(1), 2_050_000),
                (name(1), 2_040_000),
                (name(3), 9_000_000),
                (name(2), 3_010_000),
            ],
            lost_untold: 5,
        };
        let figures = judge(&cell(), Schedule { start_ns: 1_000_000 }, &[receiver]);
        assert_eq!((figures.sent, figures.lost, figures.lost_untold), (4, 2, 5));
        assert_eq!((figures.undelivered, figures.undelivered_not_lost, figures.duplicates), (1, 0, 1));
        assert_eq!((figures.recovered_ms.count, figures.recovered_ms.max), (1, 3.0));
        assert_eq!((figures.straight_ms.count, figures.straight_ms.p50), (2, 0.1));
        assert_eq!((figures.all_ms.count, figures.all_ms.max, figures.delivered_percent), (3, 3.0, 75.0));
        assert_eq!((figures.last_ms.count, figures.last_recovered_ms.count), (1, 0));
        assert_eq!(figures.lateness_ms.max, 0.0005);
    }

    #[test]
    fn another_order_and_a_pause_are_seen() {
        let of = |records: &[(u64, u64)]| Receiver {
            records: records.iter().map(|&(number, receive_ns)| record(number, 1, receive_ns)).collect(),
            ..Receiver::default()
        };
        let first = of(&[(0, 1_000_000), (1, 2_000_000), (2, 3_000_000), (3, 4_000_000)]);
        let same = of(&[(0, 1_000_000), (2, 9_500_000), (3, 10_000_000)]);
        let other = of(&[(0, 1_000_000), (2, 2_000_000), (1, 3_000_000), (3, 4_000_000)]);
        let judged = |receivers: &[Receiver]| {
            let figures = judge(&cell(), Schedule { start_ns: 0 }, receivers);
            (figures.reordered, figures.pause_ms)
        };
        assert_eq!(judged(&[first, same]), (0, 8.5));
        let first = of(&[(0, 1_000_000), (1, 2_000_000), (2, 3_000_000), (3, 4_000_000)]);
        assert_eq!(judged(&[first, other]), (1, 1.0));
        assert_eq!(judged(&[]), (0, 0.0));
    }

    #[test]
    fn a_delivery_of_an_unsent_message_is_foreign() {
        let records = [(0, 2, 9), (0, 7, 1), (1, 2, 1)]
            .map(|(group, sender, number)| format!("{group} {sender} {number} 1 2"))
            .map(|line| Record::parse(&line).unwrap());
        let receiver = Receiver { records: records.to_vec(), ..Receiver::default() };
        let figures = judge(&cell(), Schedule { start_ns: 0 }, &[receiver]);
        assert_eq!((figures.foreign, figures.undelivered, figures.undelivered_not_lost), (3, 4, 4));
        assert_eq!(figures.last_undelivered, 1);
        assert!(Record::parse("1 2 3 4").is_err() && Record::parse("1 2 x 4 5").is_err());
    }
}
