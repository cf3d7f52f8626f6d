//! One run: a bridge, a participant in each host, losses, and the resulting figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use loss::LossModel;
use netlab::Dropper;
use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use nix::time::{ClockId, clock_gettime};

use super::Lose;
use super::judge::{Figures, Receiver, Record, Schedule, judge};
use super::message::{MAGIC, Name};
use super::participant::{Participant, System};

const READY_PATIENCE: Duration = Duration::from_secs(60);
const DONE_PATIENCE: Duration = Duration::from_secs(10);
/// Time from the line `go` to the first message.
const HEAD_START: Duration = Duration::from_millis(200);

/// Parameters of a run. The receivers are the first hosts, the senders the others.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) lose: Lose,
    pub(crate) receivers: usize,
    pub(crate) senders: usize,
    pub(crate) groups: u32,
    pub(crate) loss: LossModel,
    /// Messages per second of each sender.
    pub(crate) rate: f64,
    pub(crate) size: usize,
    /// Number of messages of each sender.
    pub(crate) count: u64,
    pub(crate) tail_s: f64,
    pub(crate) seed: u64,
}

impl Cell {
    fn hosts(&self) -> usize {
        self.receivers + self.senders
    }

    /// Returns the number of messages of all senders.
    pub(crate) fn messages(&self) -> u64 {
        self.count * self.senders as u64
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = Name> + use<> {
        let (first, last, count) = (self.receivers as u32, self.hosts() as u32, self.count);
        (first..last).flat_map(move |sender| (0..count).map(move |number| Name { sender, number }))
    }

    pub(crate) fn was_sent(&self, name: Name) -> bool {
        (self.receivers..self.hosts()).contains(&(name.sender as usize)) && name.number < self.count
    }

    pub(crate) fn title(&self) -> String {
        format!(
            "{:?} lost, {} receivers, {} senders, {} groups",
            self.lose, self.receivers, self.senders, self.groups
        )
    }
}

/// A directory in memory that is removed at the end of the run.
struct Scratch(PathBuf);

impl Scratch {
    fn create() -> anyhow::Result<Self> {
        let path = PathBuf::from(format!("/dev/shm/undrop-multicast-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    fn of(&self, host: usize) -> PathBuf {
        self.0.join(host.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Resources of a run. The participants are the first field, so that they are dropped before the bridge.
struct Stage {
    participants: Vec<Participant>,
    droppers: Vec<Dropper>,
    lan: BridgeLan,
    scratch: Scratch,
}

pub(crate) fn run(cell: &Cell, system: &System) -> anyhow::Result<Figures> {
    let mut stage = Stage::build(cell, system)?;
    for participant in &mut stage.participants {
        participant.expect("ready", READY_PATIENCE)?;
    }
    let before = (stage.cpu_s()?, stage.lan.wires_total()?);
    for dropper in &mut stage.droppers {
        dropper.set_model(&cell.loss)?;
    }
    let schedule = stage.send(cell)?;
    let cpu_s = stage.cpu_s()? - before.0;
    let wires = stage.lan.wires_total()?.since(before.1);
    // Loss ends here, so that the systems can leave in good order.
    for dropper in &mut stage.droppers {
        dropper.set_model(&LossModel::None)?;
    }
    for participant in &mut stage.participants {
        participant.send("stop")?;
    }
    for participant in &mut stage.participants {
        participant.expect("done", DONE_PATIENCE)?;
    }
    let receivers = stage.receivers(cell)?;
    let mut figures = judge(cell, schedule, &receivers);
    let messages = cell.messages().max(1) as f64;
    figures.cpu_us_per_message = cpu_s * 1e6 / messages;
    figures.packets_per_message = wires.packets() as f64 / messages;
    figures.bytes_per_message = wires.bytes() as f64 / messages;
    for (name, value) in stage.participants.iter().flat_map(|participant| &participant.stats) {
        *figures.stats.entry(name.clone()).or_default() += value;
    }
    Ok(figures)
}

impl Stage {
    fn build(cell: &Cell, system: &System) -> anyhow::Result<Self> {
        let hosts = u8::try_from(cell.hosts())
            .with_context(|| format!("expected at most 255 hosts, saw {}", cell.hosts()))?;
        let lan = BridgeLan::build(&BridgeLanConfig { hosts, ..BridgeLanConfig::default() })?;
        let mut stage =
            Self { participants: Vec::new(), droppers: Vec::new(), lan, scratch: Scratch::create()? };
        let losing = match cell.lose {
            Lose::None => 0,
            Lose::Data => cell.receivers,
            Lose::All => cell.hosts(),
        };
        for index in 0..cell.hosts() {
            let host = stage.lan.host(index);
            host.sysctl("net.ipv4.igmp_max_memberships", "1024")?;
            if index < losing {
                // The model drops nothing until the messages begin.
                let filter = cell.lose.filter();
                let dropper = Dropper::attach_reporting(host, HOST, &LossModel::None, &filter, Some(MAGIC))?;
                stage.droppers.push(dropper);
            }
        }
        for index in 0..cell.hosts() {
            let directory = stage.scratch.of(index);
            fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
            let mut command = system.command();
            let address = stage.lan.address_v4(index).to_string();
            arguments(cell, system, index, &address, &directory, &mut command);
            let label = format!("{} in host {index}", system.name);
            stage.participants.push(Participant::start(stage.lan.host(index), label, command, &directory)?);
        }
        Ok(stage)
    }

    /// Lets the senders send, and waits until the end of the tail.
    fn send(&mut self, cell: &Cell) -> anyhow::Result<Schedule> {
        let schedule = Schedule { start_ns: now_ns()? + HEAD_START.as_nanos() as u64 };
        for (index, participant) in self.participants.iter_mut().enumerate() {
            let sender = index.saturating_sub(cell.receivers);
            participant.send(&format!("go {}", schedule.start_of(cell, sender)))?;
        }
        let patience = Duration::from_secs_f64(cell.count as f64 / cell.rate) + READY_PATIENCE;
        for sender in &mut self.participants[cell.receivers..] {
            sender.expect("sent", patience)?;
        }
        std::thread::sleep(Duration::from_secs_f64(cell.tail_s));
        Ok(schedule)
    }

    fn cpu_s(&self) -> anyhow::Result<f64> {
        self.participants.iter().map(Participant::cpu_s).sum()
    }

    /// Returns the receivers' records, and the messages lost at them.
    fn receivers(&mut self, cell: &Cell) -> anyhow::Result<Vec<Receiver>> {
        let mut receivers = Vec::new();
        for index in 0..cell.receivers {
            let file = records_file(&self.scratch.of(index));
            let text =
                fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let records = text.lines().map(Record::parse).collect::<anyhow::Result<_>>()?;
            let mut receiver = Receiver { records, ..Receiver::default() };
            if let Some(dropper) = self.droppers.get_mut(index) {
                let counts = dropper.counts()?;
                receiver.lost_untold = counts.unmarked + counts.unreported;
                while let Some(packet) = dropper.next_lost() {
                    receiver.lost.extend(Name::read(&packet.report).map(|name| (name, packet.time_ns)));
                }
            }
            receivers.push(receiver);
        }
        Ok(receivers)
    }
}

fn arguments(
    cell: &Cell,
    system: &System,
    index: usize,
    address: &str,
    directory: &Path,
    command: &mut std::process::Command,
) {
    let role = if index < cell.receivers { "recv" } else { "send" };
    let pairs = [
        ("--role", role.to_owned()),
        ("--index", index.to_string()),
        ("--receivers", cell.receivers.to_string()),
        ("--senders", cell.senders.to_string()),
        ("--groups", cell.groups.to_string()),
        ("--interface", HOST.to_owned()),
        ("--address", address.to_owned()),
        ("--size", cell.size.to_string()),
        ("--rate", cell.rate.to_string()),
        ("--count", cell.count.to_string()),
        ("--seed", cell.seed.to_string()),
        ("--settings", system.settings.clone()),
    ];
    for (name, value) in pairs {
        command.arg(name).arg(value);
    }
    command.arg("--dir").arg(directory).arg("--out").arg(records_file(directory));
}

fn records_file(directory: &Path) -> PathBuf {
    directory.join("records")
}

pub(crate) fn now_ns() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
