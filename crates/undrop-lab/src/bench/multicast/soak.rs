//! Ricochet for an hour: memory of the nodes, and whether each message came once.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use clap::Args;
use loss::LossModel;

use super::Lose;
use super::message::Name;
use super::participant::System;
use super::run::{Cell, Stage};
use crate::bench::{rig, stop};

/// Number of messages of a sender after a missing one that are remembered singly.
const AHEAD_MAX: usize = 1 << 16;

/// Memory of Ricochet nodes over time, on one bridge with losses. The exit code is 1 if a message did not
/// come, or came twice.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Number of hosts that receive; each joins all groups.
    #[arg(long, default_value_t = 4)]
    receivers: usize,
    /// Number of hosts that send.
    #[arg(long, default_value_t = 1)]
    senders: usize,
    /// Number of groups.
    #[arg(long, default_value_t = 8)]
    groups: u32,
    /// Messages per second, of all senders together.
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Size of a message in bytes.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Loss model, of all packets that arrive anywhere.
    #[arg(long, default_value = "uniform:1%")]
    loss: LossModel,
    /// Settings of the nodes, such as `repair=auto,policy=block`.
    #[arg(long, default_value = "policy=block")]
    settings: String,
    /// Number of rows of the table.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rows: u32,
}

/// Messages that a receiver has had, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Seen {
    streams: HashMap<u32, Stream>,
    delivered: u64,
    doubles: u64,
    corrupt: u64,
    /// Messages that the node reported as lost.
    pub(super) lost: u64,
}

/// Messages of one sender.
#[derive(Debug, Default)]
struct Stream {
    /// All earlier messages have come, or are not awaited.
    next: u64,
    /// Later ones that have come.
    ahead: BTreeSet<u64>,
}

impl Seen {
    /// Notes a message; `None` if its content was wrong.
    pub(super) fn note(&mut self, name: Option<Name>) {
        let Some(Name { sender, number }) = name else { return self.corrupt += 1 };
        let stream = self.streams.entry(sender).or_default();
        if number < stream.next || !stream.ahead.insert(number) {
            return self.doubles += 1;
        }
        self.delivered += 1;
        if stream.ahead.len() > AHEAD_MAX {
            stream.next = stream.ahead.first().copied().unwrap_or(stream.next);
        }
        while stream.ahead.remove(&stream.next) {
            stream.next += 1;
        }
    }

    /// Returns the counts by names that are none of the counters of a node.
    pub(super) fn stats(&self) -> [(&'static str, u64); 4] {
        [
            ("soak_delivered", self.delivered),
            ("soak_doubles", self.doubles),
            ("soak_altered", self.corrupt),
            ("soak_told_lost", self.lost),
        ]
    }
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let cell = plan.cell();
    let separator = if plan.settings.is_empty() { "" } else { ":" };
    let system: System =
        format!("soak{separator}{}=@ricochet --soak", plan.settings).parse().map_err(anyhow::Error::msg)?;
    let mut stage = Stage::build(&cell, &system)?;
    stage.wait_until_ready()?;
    println!(
        "{} messages/s of {} bytes from {} to {} hosts in {} groups for {} minutes; {} of all packets; {}\n",
        plan.rate,
        plan.size,
        plan.senders,
        plan.receivers,
        plan.groups,
        plan.minutes,
        plan.loss,
        plan.settings
    );
    println!("| at min | MiB of a receiver, median | least | most | MiB of a sender, most |");
    println!("|--:|--:|--:|--:|--:|");
    stage.lose(&cell.loss)?;
    stage.begin(&cell)?;
    let mut medians = Vec::new();
    for row in 0..=plan.rows {
        if row > 0 {
            stop::pause(Duration::from_secs_f64(plan.minutes * 60.0 / f64::from(plan.rows)))?;
        }
        let (receivers, senders) = stage.participants.split_at(cell.receivers);
        let mib = |participant: &super::participant::Participant| {
            Ok(participant.resident_bytes()? as f64 / f64::from(1 << 20))
        };
        let (median, least, most) = rig::spread(receivers.iter().map(mib).collect::<anyhow::Result<_>>()?);
        let (_, _, of_sender) = rig::spread(senders.iter().map(mib).collect::<anyhow::Result<_>>()?);
        let at_min = plan.minutes * f64::from(row) / f64::from(plan.rows);
        println!("| {at_min:.1} | {median:.1} | {least:.1} | {most:.1} | {of_sender:.1} |");
        medians.push(median);
    }
    stage.wait_until_sent(&cell)?;
    stage.end()?;
    let sum =
        |name| stage.participants.iter().filter_map(|participant| participant.stat(name)).sum::<f64>() as u64;
    let (delivered, expected) = (sum("soak_delivered"), cell.messages() * cell.receivers as u64);
    let (doubles, corrupt) = (sum("soak_doubles"), sum("soak_altered"));
    let half = medians.len() / 2;
    println!(
        "\ndelivered {delivered} of {expected}, doubles {doubles}, altered {corrupt}, told lost {}; repaired {}, requested \
         {}; memory of a receiver in the second half of the time {:+.1} MiB",
        sum("soak_told_lost"),
        sum("repaired"),
        sum("requested"),
        medians[medians.len() - 1] - medians[half],
    );
    anyhow::ensure!(
        delivered == expected && doubles == 0 && corrupt == 0,
        "expected each of {expected} messages once, saw {delivered}, {doubles} twice and {corrupt} altered"
    );
    Ok(())
}

impl Plan {
    fn cell(&self) -> Cell {
        let rate = self.rate / self.senders.max(1) as f64;
        Cell {
            lose: Lose::All,
            receivers: self.receivers,
            senders: self.senders,
            groups: self.groups,
            loss: self.loss.clone(),
            rate,
            size: self.size,
            count: (rate * self.minutes * 60.0).round() as u64,
            tail_s: 12.0,
            seed: 1,
            kill_s: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_counts_once_and_memory_is_bounded() {
        let mut seen = Seen::default();
        let name = |sender, number| Some(Name { sender, number });
        for number in [0, 1, 3, 2, 3, 0, 5] {
            seen.note(name(7, number));
        }
        seen.note(name(8, 0));
        seen.note(None);
        assert_eq!(seen.stats().map(|(_, count)| count), [6, 2, 1, 0]);
        // Message 4 never comes.
        let many = AHEAD_MAX as u64 + 100;
        (6..6 + many).for_each(|number| seen.note(name(7, number)));
        assert_eq!((seen.delivered, seen.doubles), (6 + many, 2));
        assert!(seen.streams[&7].ahead.len() <= AHEAD_MAX);
    }
}
