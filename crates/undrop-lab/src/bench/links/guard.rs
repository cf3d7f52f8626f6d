//! Guards of a run: whether the machine was disturbed while it was measured.
//!
//! A disturbed run is kept in the file with its reasons, does not count, and is repeated.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use netlab::emulator::DirectionCounters;

use super::figure::{Figure, Figures};

/// Ticks of the kernel's counters of processor time per second.
const TICKS_PER_S: f64 = 100.0;
/// Most processor time that the host may take, of all.
const STEAL_PERCENT_MAX: f64 = 1.0;
/// Most processor time that other programs may use, of one processor.
const FOREIGN_PERCENT_MAX: f64 = 10.0;
/// Most time that may be missing in the kernel's counters, because the whole machine stood still.
const STOPPED_PERCENT_MAX: f64 = 2.0;
/// Largest share of packets that the emulator may hand over late.
const LATE_PERCENT_MAX: f64 = 1.0;
/// Longest time between two looks at the traffic, which come every 100 ms.
const GAP_US_MAX: u64 = 600_000;
/// Parent of the kernel's threads.
const KTHREADD: u64 = 2;

/// Processor time up to a moment.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    at: Instant,
    /// All ticks of all processors, and those that the host took.
    total: u64,
    stolen: u64,
    /// Name and ticks of each process that belongs neither to this measurement nor to the kernel.
    others: BTreeMap<u64, (String, u64)>,
}

impl Machine {
    /// Returns the present state. `own` are the processes of the measurement besides this one.
    ///
    /// # Errors
    /// If the kernel does not show its counters.
    pub(super) fn now(own: &[u32]) -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let (total, stolen) = ticks(&stat).context("expected a first line `cpu` in /proc/stat")?;
        Ok(Self { at: Instant::now(), total, stolen, others: others(own) })
    }

    /// Returns figures and reasons of a disturbance since an earlier state.
    pub(super) fn since(&self, before: &Self) -> (Figures, Vec<String>) {
        let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let wall = self.at.duration_since(before.at).as_secs_f64() * TICKS_PER_S;
        let all = (wall * processors).max(1.0);
        let steal = (self.stolen - before.stolen) as f64 * 100.0 / all;
        let stopped = (100.0 - (self.total - before.total) as f64 * 100.0 / all).max(0.0);
        let used = |(pid, (name, ticks)): (&u64, &(String, u64))| {
            let earlier = before.others.get(pid).map_or(0, |(_, ticks)| *ticks);
            (ticks.saturating_sub(earlier), name.clone())
        };
        let others: Vec<(u64, String)> = self.others.iter().map(used).collect();
        let foreign = others.iter().map(|(ticks, _)| *ticks).sum::<u64>() as f64 * 100.0 / wall.max(1.0);
        let mut reasons = Vec::new();
        if steal > STEAL_PERCENT_MAX {
            reasons.push(format!("the host took {steal:.1} % of the processor time"));
        }
        if stopped > STOPPED_PERCENT_MAX {
            reasons.push(format!("{stopped:.1} % of the processor time is missing"));
        }
        if foreign > FOREIGN_PERCENT_MAX {
            let most = others.iter().max().map_or("", |(_, name)| name.as_str());
            reasons.push(format!("other programs used {foreign:.0} % of a processor, mostly {most}"));
        }
        let figures =
            Figures::from([(Figure::Steal, steal), (Figure::Stopped, stopped), (Figure::Foreign, foreign)]);
        (figures, reasons)
    }
}

/// Returns figures and reasons of an emulator that was late in a run, from its counters in both directions.
/// `gap_us` is the longest time between two looks at the traffic; `has_rate`: whether the link has a rate.
pub(super) fn emulator(
    counters: &[DirectionCounters],
    gap_us: u64,
    has_rate: bool,
) -> (Figures, Vec<String>) {
    let sum = |read: fn(&DirectionCounters) -> u64| counters.iter().map(read).sum::<u64>();
    let delivered = sum(|counters| counters.link.delivered_packets).max(1) as f64;
    let late = sum(|counters| counters.late) as f64 * 100.0 / delivered;
    // Without a rate, senders are faster than the emulator, and the kernel drops packets before it.
    let missed = sum(|counters| counters.device_drops + counters.link.overflow);
    let mut reasons = Vec::new();
    if late > LATE_PERCENT_MAX && has_rate {
        reasons.push(format!("the emulator handed over {late:.1} % of the packets late"));
    }
    if missed as f64 > delivered * 1e-4 && has_rate {
        reasons.push(format!("{missed} packets were lost before the emulator read them"));
    }
    if gap_us > GAP_US_MAX {
        reasons.push(format!("this program did not run for {:.1} s", gap_us as f64 / 1e6));
    }
    (Figures::from([(Figure::Late, late)]), reasons)
}

/// Returns all ticks and the stolen ones of the line `cpu`: user, nice, system, idle, iowait, irq, softirq,
/// steal.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    Some((ticks.get(..8)?.iter().sum(), ticks[7]))
}

/// Returns the ticks of other processes, those of their ended children included.
fn others(own: &[u32]) -> BTreeMap<u64, (String, u64)> {
    let mut others = BTreeMap::new();
    let this = std::process::id();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == this || own.contains(&pid) {
            continue;
        }
        // A process may end at any time.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((name, ticks)) = process(&stat) {
            others.insert(u64::from(pid), (name, ticks));
        }
    }
    others
}

/// Returns name and ticks of a line `/proc/PID/stat`; `None` for a thread of the kernel.
fn process(stat: &str) -> Option<(String, u64)> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (pid, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    if number(1)? == KTHREADD || pid.trim().parse() == Ok(KTHREADD) {
        return None;
    }
    // utime, stime, cutime, cstime
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some((name.to_owned(), ticks))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn machine(seconds: u64, total: u64, stolen: u64, others: &[(u64, &str, u64)]) -> Machine {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let others = others.iter().map(|&(pid, name, ticks)| (pid, (name.to_owned(), ticks)));
        let at = *START + Duration::from_secs(seconds);
        Machine { at, total, stolen, others: others.collect() }
    }

    #[test]
    fn an_idle_machine_is_not_disturbed_and_each_disturbance_has_its_reason() {
        let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let all = 1_000 * processors;
        let before = machine(0, 5_000, 10, &[(7, "cron", 3), (9, "shell", 500)]);
        let quiet = machine(10, 5_000 + all, 10, &[(7, "cron", 5), (9, "shell", 510)]);
        let (figures, reasons) = quiet.since(&before);
        assert!(reasons.is_empty(), "{reasons:?}");
        assert!((figures[&Figure::Foreign] - 1.2).abs() < 1e-9, "{figures:?}");
        for (machine, needle) in [
            (machine(10, 5_000 + all, 10 + all / 20, &[]), "the host took 5.0 %"),
            (machine(10, 5_000 + all * 9 / 10, 10, &[]), "10.0 % of the processor time is missing"),
            (machine(10, 5_000 + all, 10, &[(9, "shell", 510), (11, "cargo", 700)]), "mostly cargo"),
        ] {
            let (_, reasons) = machine.since(&before);
            assert!(reasons.len() == 1 && reasons[0].contains(needle), "{needle}: {reasons:?}");
        }
    }

    #[test]
    fn a_late_emulator_is_a_disturbance_where_the_link_has_a_rate() {
        let mut counters = DirectionCounters::default();
        counters.link.delivered_packets = 1_000;
        counters.late = 9;
        assert!(emulator(&[counters], 110_000, true).1.is_empty());
        counters.late = 30;
        counters.device_drops = 5;
        let (figures, reasons) = emulator(&[counters], 900_000, true);
        assert!((figures[&Figure::Late] - 3.0).abs() < 1e-9);
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(emulator(&[counters], 0, false).1.is_empty());
    }

    #[test]
    fn the_kernel_s_lines_are_read() {
        assert_eq!(ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some((36, 8)));
        assert_eq!(ticks("intr 5\n"), None);
        let line = "42 (a (b) c) S 1 42 42 0 -1 4 0 0 0 0 10 20 30 40 20 0 1 0 100";
        assert_eq!(process(line), Some(("a (b) c".to_owned(), 100)));
        assert_eq!(process("9 (kworker/0:1) I 2 0 0 0 -1 4 0 0 0 0 10 20 30 40 20"), None);
        let now = Machine::now(&[]).unwrap();
        assert!(now.total > 0);
    }
}
