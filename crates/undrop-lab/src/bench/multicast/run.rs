//! One run: a bridge, a participant in each host, losses, and the resulting figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use loss::LossModel;
use netlab::Dropper;
use netlab::bridge::{BridgeLan, BridgeLanConfig, HOST};
use nix::time::{ClockId, clock_gettime};
use stage::fresh::make_new;

use super::Lose;
use super::judge::{Figures, Receiver, Record, Schedule, judge};
use super::message::{MAGIC, Name};
use super::participant::{Participant, System};
use crate::bench::stop;

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
    /// Time after the first message at which a receiver is killed.
    pub(crate) kill_s: Option<f64>,
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
        let memory = Path::new("/dev/shm");
        let (path, ()) = make_new(memory, "undrop-multicast", "", |path| fs::create_dir(path))?;
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
pub(super) struct Stage {
    pub(super) participants: Vec<Participant>,
    /// The participant that was killed.
    dead: Option<usize>,
    droppers: Vec<Dropper>,
    lan: BridgeLan,
    scratch: Scratch,
}

pub(crate) fn run(cell: &Cell, system: &System) -> anyhow::Result<Figures> {
    let mut stage = Stage::build(cell, system)?;
    stage.wait_until_ready()?;
    let before = (stage.cpu_s()?, stage.lan.wires_total()?);
    stage.lose(&cell.loss)?;
    let schedule = stage.begin(cell)?;
    stage.kill(cell, schedule)?;
    stage.wait_until_sent(cell)?;
    let cpu_s: f64 =
        stage.cpu_s()?.iter().zip(&before.0).map(|(after, before)| (after - before).max(0.0)).sum();
    let wires = stage.lan.wires_total()?.since(before.1);
    stage.end()?;
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
    pub(super) fn build(cell: &Cell, system: &System) -> anyhow::Result<Self> {
        let hosts = u8::try_from(cell.hosts())
            .with_context(|| format!("expected at most 255 hosts, saw {}", cell.hosts()))?;
        let lan = BridgeLan::build(&BridgeLanConfig { hosts, ..BridgeLanConfig::default() })?;
        let mut stage = Self {
            participants: Vec::new(),
            dead: None,
            droppers: Vec::new(),
            lan,
            scratch: Scratch::create()?,
        };
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

    pub(super) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.participants.iter_mut().try_for_each(|participant| participant.expect("ready", READY_PATIENCE))
    }

    pub(super) fn lose(&mut self, loss: &LossModel) -> anyhow::Result<()> {
        self.droppers.iter_mut().try_for_each(|dropper| Ok(dropper.set_model(loss)?))
    }

    /// Lets the senders send.
    pub(super) fn begin(&mut self, cell: &Cell) -> anyhow::Result<Schedule> {
        let schedule = Schedule { start_ns: now_ns()? + HEAD_START.as_nanos() as u64 };
        for (index, participant) in self.participants.iter_mut().enumerate() {
            let sender = index.saturating_sub(cell.receivers);
            participant.send(&format!("go {}", schedule.start_of(cell, sender)))?;
        }
        Ok(schedule)
    }

    /// Kills a receiver when it is time: the sequencer if there is one, else the first.
    fn kill(&mut self, cell: &Cell, schedule: Schedule) -> anyhow::Result<()> {
        let Some(kill_s) = cell.kill_s else { return Ok(()) };
        let at_ns = schedule.start_ns + (kill_s * 1e9) as u64;
        stop::pause(Duration::from_nanos(at_ns.saturating_sub(now_ns()?)))?;
        let is_sequencer = |participant: &Participant| participant.stat("sequencer") == Some(1.0);
        let dead = self.participants[..cell.receivers].iter().position(is_sequencer).unwrap_or(0);
        self.participants[dead].kill()?;
        self.dead = Some(dead);
        Ok(())
    }

    /// Waits until all messages are sent, and then until the end of the tail.
    pub(super) fn wait_until_sent(&mut self, cell: &Cell) -> anyhow::Result<()> {
        let patience = Duration::from_secs_f64(cell.count as f64 / cell.rate) + READY_PATIENCE;
        for sender in &mut self.participants[cell.receivers..] {
            sender.expect("sent", patience)?;
        }
        stop::pause(Duration::from_secs_f64(cell.tail_s))
    }

    /// Ends loss, so that the systems can leave in good order, and then the participants.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.lose(&LossModel::None)?;
        self.living().try_for_each(|participant| participant.send("stop"))?;
        self.living().try_for_each(|participant| participant.expect("done", DONE_PATIENCE))
    }

    fn living(&mut self) -> impl Iterator<Item = &mut Participant> {
        let dead = self.dead;
        let all = self.participants.iter_mut().enumerate();
        all.filter(move |(index, _)| dead != Some(*index)).map(|(_, participant)| participant)
    }

    /// Returns the processor time of each participant; that of one that was killed is 0.
    fn cpu_s(&self) -> anyhow::Result<Vec<f64>> {
        let all = self.participants.iter().enumerate();
        all.map(|(index, participant)| if self.dead == Some(index) { Ok(0.0) } else { participant.cpu_s() })
            .collect()
    }

    /// Returns the receivers' records, and the messages lost at them.
    fn receivers(&mut self, cell: &Cell) -> anyhow::Result<Vec<Receiver>> {
        let mut receivers = Vec::new();
        for index in (0..cell.receivers).filter(|index| self.dead != Some(*index)) {
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
