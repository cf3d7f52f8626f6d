//! Guards of a run: whether the machine was disturbed while it was measured.
//!
//! A disturbed run does not count and is repeated.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use netlab::emulator::DirectionCounters;

use undrop::output;

use super::{standstill, stop};

/// Ticks of the kernel's counters of processor time per second.
const TICKS_PER_S: f64 = 100.0;
/// Most processor time that the host may take, of all.
const STEAL_PERCENT_MAX: f64 = 1.0;
/// Most processor time that other programs may use, of one processor.
const FOREIGN_PERCENT_MAX: f64 = 10.0;
/// Most processor time in which the machine stood still, of all.
const STOPPED_PERCENT_MAX: f64 = 2.0;
/// Largest share of packets that the emulator may hand over late.
const LATE_PERCENT_MAX: f64 = 1.0;
/// Longest time between two looks at the traffic, which come every 100 ms.
const GAP_US_MAX: u64 = 600_000;
/// Parent of the kernel's threads.
const KTHREADD: u64 = 2;

/// Most attempts of a measurement that is disturbed again and again.
const ATTEMPTS_MAX: u32 = 4;

/// Load of the machine, by others than the measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Processor time that the host took, of all.
    pub(crate) steal_percent: f64,
    /// Processor time in which the machine stood still, of all.
    pub(crate) stopped_percent: f64,
    /// Processor time of other programs, of one processor.
    pub(crate) foreign_percent: f64,
    /// Reasons of the host why a measurement does not count.
    pub(crate) of_host: Vec<String>,
    /// The same of other programs.
    pub(crate) of_others: Option<String>,
}

impl Load {
    /// Returns all reasons why a measurement does not count; none if it does.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.of_host.iter().chain(&self.of_others).cloned().collect()
    }
}

/// Processor time up to a moment.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    at: Instant,
    /// Time in microseconds in which processors stood still.
    still_us: u64,
    /// Ticks of all processors: those that the host took, and those in which a program or the kernel ran.
    stolen: u64,
    busy: u64,
    /// Ticks of this process and its running children.
    own: u64,
    /// Name and ticks of each process that belongs neither to this measurement nor to the kernel.
    others: BTreeMap<u64, (String, u64)>,
}

impl Machine {
    /// Returns the present state.
    ///
    /// # Errors
    /// If the kernel does not show its counters.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let [stolen, busy] = ticks(&stat).context("expected a first line `cpu` in /proc/stat")?;
        let (own, others) = processes();
        Ok(Self { at: Instant::now(), still_us: standstill::total_us(), stolen, busy, own, others })
    }

    /// Returns the load since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Load {
        let processors = thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let wall = self.at.duration_since(before.at).as_secs_f64() * TICKS_PER_S;
        let all = (wall * processors).max(1.0);
        let steal = (self.stolen - before.stolen) as f64 * 100.0 / all;
        let stopped = (self.still_us - before.still_us) as f64 / 1e6 * TICKS_PER_S * 100.0 / all;
        let used = |(pid, (name, ticks)): (&u64, &(String, u64))| {
            let earlier = before.others.get(pid).map_or(0, |(_, ticks)| *ticks);
            (ticks.saturating_sub(earlier), name.clone())
        };
        let others: Vec<(u64, String)> = self.others.iter().map(used).collect();
        let by_process: u64 = others.iter().map(|(ticks, _)| *ticks).sum();
        // A process gets the time of a child as the child ends, also the time before this measurement.
        let at_most = (self.busy - before.busy).saturating_sub(self.own.saturating_sub(before.own));
        let foreign = by_process.min(at_most) as f64 * 100.0 / wall.max(1.0);
        let mut of_host = Vec::new();
        if steal > STEAL_PERCENT_MAX {
            of_host.push(format!("the host took {steal:.1} % of the processor time"));
        }
        if stopped > STOPPED_PERCENT_MAX {
            of_host.push(format!("the machine stood still for {stopped:.1} % of the time"));
        }
        let of_others = (foreign > FOREIGN_PERCENT_MAX).then(|| {
            let most = others.iter().max().map_or("", |(_, name)| name.as_str());
            format!("other programs used {foreign:.0} % of a processor, mostly {most}")
        });
        Load { steal_percent: steal, stopped_percent: stopped, foreign_percent: foreign, of_host, of_others }
    }
}

/// Returns the share of packets that an emulator handed over late, in percent, and the reasons why a run does
/// not count, from its counters in both directions.
/// `gap_us` is the longest time between two looks at the traffic; `has_rate`: whether the link has a rate.
pub(crate) fn emulator(counters: &[DirectionCounters], gap_us: u64, has_rate: bool) -> (f64, Vec<String>) {
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
    (late, reasons)
}

/// Makes a measurement again while the machine is disturbed; returns it and the number of repetitions.
///
/// The last attempt counts in any case, with a note.
///
/// # Errors
/// Those of the measurement.
pub(crate) fn undisturbed<T>(measure: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<(T, u32)> {
    for attempt in 1.. {
        let before = Machine::now()?;
        let measured = measure()?;
        stop::check()?;
        let reasons = Machine::now()?.since(&before).reasons().join("; ");
        if reasons.is_empty() {
            return Ok((measured, attempt - 1));
        }
        if attempt == ATTEMPTS_MAX {
            output::note(format_args!("  disturbed again, counted all the same: {reasons}"));
            return Ok((measured, attempt - 1));
        }
        output::note(format_args!("  disturbed, repeated: {reasons}"));
    }
    unreachable!("the last attempt returns")
}

/// Returns the stolen ticks and the busy ones of the line `cpu`: user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn ticks(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|ticks| ticks.parse().ok()).collect();
    let ticks = ticks.get(..8)?;
    let total: u64 = ticks.iter().sum();
    let (idle, stolen) = (ticks[3] + ticks[4], ticks[7]);
    Some([stolen, total - idle - stolen])
}

/// Returns the ticks of this process and its children, and name and ticks of each other process. To the
/// latter belong the ticks of children that have ended.
fn processes() -> (u64, BTreeMap<u64, (String, u64)>) {
    let (mut own, mut others) = (0, BTreeMap::new());
    let this = u64::from(std::process::id());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok()) else {
            continue;
        };
        // A process may end at any time.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some(Process { name, parent, ticks, of_children }) = process(&stat) else { continue };
        if pid == this || parent == this {
            own += ticks;
        } else if pid != KTHREADD && parent != KTHREADD {
            others.insert(pid, (name, ticks + of_children));
        }
    }
    (own, others)
}

/// A line `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct Process {
    name: String,
    parent: u64,
    ticks: u64,
    /// Ticks of children that have ended.
    of_children: u64,
}

fn process(stat: &str) -> Option<Process> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // ppid; utime and stime; cutime and cstime
    Some(Process {
        name: name.to_owned(),
        parent: number(1)?,
        ticks: number(11)? + number(12)?,
        of_children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn machine(seconds: u64, still_us: u64, stolen: u64, others: &[(u64, &str, u64)]) -> Machine {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let others = others.iter().map(|&(pid, name, ticks)| (pid, (name.to_owned(), ticks)));
        let at = *START + Duration::from_secs(seconds);
        Machine { at, still_us, stolen, busy: 50_000 + 100 * seconds, own: 0, others: others.collect() }
    }

    #[test]
    fn an_idle_machine_is_not_disturbed_and_each_disturbance_has_its_reason() {
        let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let all = 1_000 * processors;
        let before = machine(0, 500, 10, &[(7, "cron", 3), (9, "shell", 500)]);
        let quiet = machine(10, 90_500 * processors, 10, &[(7, "cron", 5), (9, "shell", 510)]);
        let load = quiet.since(&before);
        assert!(load.reasons().is_empty(), "{load:?}");
        assert!((load.foreign_percent - 1.2).abs() < 1e-9, "{load:?}");
        for (machine, needle) in [
            (machine(10, 500, 10 + all / 20, &[]), "the host took 5.0 %"),
            (machine(10, 500 + 1_000_000 * processors, 10, &[]), "stood still for 10.0 % of the time"),
            (machine(10, 500, 10, &[(9, "shell", 510), (11, "cargo", 700)]), "mostly cargo"),
        ] {
            let reasons = machine.since(&before).reasons();
            assert!(reasons.len() == 1 && reasons[0].contains(needle), "{needle}: {reasons:?}");
        }
    }

    #[test]
    fn a_child_s_time_before_the_measurement_does_not_count() {
        let before = machine(0, 0, 0, &[(9, "shell", 0)]);
        // A child of the shell has ended after an hour, and the processors were busy for a tenth of the time.
        let mut after = machine(10, 0, 0, &[(9, "shell", 100_000)]);
        (after.busy, after.own) = (before.busy + 200, before.own + 195);
        assert!((after.since(&before).foreign_percent - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_measurement_counts_in_the_end_and_its_errors_are_passed_on() {
        let (value, repetitions) = undisturbed(|| Ok(5)).unwrap();
        assert!(value == 5 && repetitions < ATTEMPTS_MAX);
        assert!(undisturbed(|| -> anyhow::Result<()> { anyhow::bail!("no link") }).is_err());
    }

    #[test]
    fn a_late_emulator_is_a_disturbance_where_the_link_has_a_rate() {
        let mut counters = DirectionCounters::default();
        counters.link.delivered_packets = 1_000;
        counters.late = 9;
        assert!(emulator(&[counters], 110_000, true).1.is_empty());
        counters.late = 30;
        counters.device_drops = 5;
        let (late, reasons) = emulator(&[counters], 900_000, true);
        assert!((late - 3.0).abs() < 1e-9);
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(emulator(&[counters], 0, false).1.is_empty());
    }

    #[test]
    fn the_kernel_s_lines_are_read() {
        assert_eq!(ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), Some([8, 19]));
        assert_eq!(ticks("intr 5\n"), None);
        let line = "42 (a (b) c) S 7 42 42 0 -1 4 0 0 0 0 10 20 30 40 20 0 1 0 100";
        let expected = Process { name: "a (b) c".to_owned(), parent: 7, ticks: 30, of_children: 70 };
        assert_eq!(process(line), Some(expected));
        assert_eq!(process("42 (cut) S 7"), None);
        assert!(Machine::now().unwrap().busy > 0);
    }
}
