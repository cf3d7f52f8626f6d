//! A long-haul link between two namespaces of the real kernel: a TUN device at each end, a [`Link`] for each direction.
//!
//! The path of a packet, one thread per direction (`emulator/direction.rs`):
//! 1. the kernel of one end routes it to the device; the thread reads it, perhaps within a super-packet;
//! 2. a super-packet is cut into the packets of the wire (`netio::segment`), each has a fate of its own;
//! 3. [`Link::offer`]; what does not arrive goes to the drop log;
//! 4. when it is due, it is joined with its neighbours (`netio::coalesce`, bit for bit) and written to the other device.
//!
//! What others may ask or change while it runs is in `emulator/control.rs`.

mod control;
mod direction;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use netio::tun::{Tun, TunOptions};

pub use control::DirectionCounters;

use crate::drop_log::DropLog;
use crate::{LabError, Namespace};
use control::Control;
use direction::Worker;
use loss::LossModel;
use simnet::link::{Link, LinkConfig};

/// Packets or super-packets that may wait in the kernel for a thread to be scheduled. More would not help: the senders
/// are slowed down by it as by any card.
const TRANSMIT_QUEUE: u32 = 2_000;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the first namespace to the second.
    AToB,
    /// From the second to the first.
    BToA,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::AToB, Self::BToA];

    /// The word for logs and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AToB => "a_to_b",
            Self::BToA => "b_to_a",
        }
    }

    /// The direction of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::BOTH.into_iter().find(|direction| direction.name() == name)
    }

    fn index(self) -> usize {
        match self {
            Self::AToB => 0,
            Self::BToA => 1,
        }
    }
}

/// What an emulated link is like.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    /// Name of the device at either end, e.g. `wan0`.
    pub interface: String,
    /// Largest IP packet of the devices, in bytes.
    pub mtu: u32,
    /// The direction from the first namespace to the second.
    pub a_to_b: LinkConfig,
    /// The direction from the second namespace to the first.
    pub b_to_a: LinkConfig,
    /// Exchange super-packets with the kernel (the packets on the emulated wire are the same).
    pub offload: bool,
    /// A stream of packets is dealt with once in so many microseconds; what comes rarely is dealt with at once.
    /// 0: everything as exactly as the kernel wakes us.
    pub granularity_us: u64,
    /// Where to write what did not arrive.
    pub drop_log: Option<PathBuf>,
}

impl EmulatorConfig {
    /// The same link both ways, by a device `wan0` with an MTU of 1500; the way back has a seed of its own.
    ///
    /// Packets are handed over every 100 µs, or every 20th part of the delay where that is shorter: often enough that TCP
    /// does not take the batches for bursts of the link, and rarely enough to be cheap.
    #[must_use]
    pub fn symmetric(link: LinkConfig) -> Self {
        let granularity_us = (link.delay_us / 20).min(100);
        let b_to_a = LinkConfig { seed: link.seed.wrapping_add(0x9e37_79b9), ..link.clone() };
        let interface = "wan0".to_owned();
        Self { interface, mtu: 1500, a_to_b: link, b_to_a, offload: true, granularity_us, drop_log: None }
    }
}

/// A running link. Dropping it stops the threads and takes the devices away.
#[derive(Debug)]
pub struct Emulator {
    ends: [Namespace; 2],
    interface: String,
    controls: [Arc<Control>; 2],
    workers: Vec<JoinHandle<io::Result<()>>>,
    drop_log: Option<DropLog>,
}

impl Emulator {
    /// Lays the link: the devices are there and up when this returns, without addresses.
    ///
    /// # Errors
    /// When a setting is out of range, a device of that name exists, the log cannot be written, or privilege is missing.
    pub fn start(a: &Namespace, b: &Namespace, config: &EmulatorConfig) -> Result<Self, LabError> {
        let link = |settings: &LinkConfig| Link::new(settings).map_err(|e| LabError::Invalid(e.to_string()));
        let links = [link(&config.a_to_b)?, link(&config.b_to_a)?];
        let tuns = [Arc::new(open_end(a, config)?), Arc::new(open_end(b, config)?)];
        let mut drop_log = None;
        if let Some(path) = &config.drop_log {
            let log = DropLog::create(path);
            drop_log =
                Some(log.map_err(|e| LabError::system(format!("cannot write {}", path.display()), e))?);
        }
        let what = "cannot start the link";
        let control = || Control::new().map(Arc::new).map_err(|e| LabError::system(what, e));
        let mut emulator = Self {
            ends: [a.clone(), b.clone()],
            interface: config.interface.clone(),
            controls: [control()?, control()?],
            workers: Vec::new(),
            drop_log,
        };
        for (direction, link) in Direction::BOTH.into_iter().zip(links) {
            let (from, to) = (direction.index(), 1 - direction.index());
            let worker = Worker::new(
                direction,
                link,
                [Arc::clone(&tuns[from]), Arc::clone(&tuns[to])],
                Arc::clone(&emulator.controls[from]),
                emulator.drop_log.as_ref().and_then(DropLog::sink),
                config.granularity_us,
            );
            let worker = worker.map_err(|e| LabError::system(what, e))?;
            let thread = thread::Builder::new().name(format!("link-{}", direction.name()));
            emulator.workers.push(thread.spawn(|| worker.run()).map_err(|e| LabError::system(what, e))?);
        }
        Ok(emulator)
    }

    /// What a direction has done so far.
    ///
    /// The kernel's own drops at the device are asked for at each call; without an answer they stay 0.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> DirectionCounters {
        let mut counters = self.controls[direction.index()].counters();
        counters.device_drops = self.ends[direction.index()].transmit_drops(&self.interface).unwrap_or(0);
        counters
    }

    /// Whether both directions are still served; [`Emulator::stop`] tells why one is not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Packets that the drop log misses because its writer could not keep up.
    #[must_use]
    pub fn drop_log_missed(&self) -> u64 {
        self.drop_log.as_ref().map_or(0, DropLog::missed)
    }

    /// Packets are lost by another model from now on.
    pub fn set_loss(&self, direction: Direction, model: &LossModel) {
        self.controls[direction.index()].set_loss(model.clone());
    }

    /// The wire has another rate from now on (`None`: no limit); see [`Link::set_rate`].
    pub fn set_rate(&self, direction: Direction, rate_bps: Option<u64>) {
        self.controls[direction.index()].set_rate(rate_bps);
    }

    /// Ends the link: its devices are gone and its log is complete when this returns. Packets on the way are forgotten.
    ///
    /// # Errors
    /// The error that ended a direction early, or that of writing the log.
    pub fn stop(mut self) -> Result<[DirectionCounters; 2], LabError> {
        let kernel = Direction::BOTH.map(|direction| self.counters(direction).device_drops);
        self.halt().map_err(|e| LabError::system("the link ended by itself", e))?;
        if let Some(log) = self.drop_log.take() {
            log.finish().map_err(|e| LabError::system("cannot write the drop log", e))?;
        }
        let counters = |direction: Direction| DirectionCounters {
            device_drops: kernel[direction.index()],
            ..self.controls[direction.index()].counters()
        };
        Ok(Direction::BOTH.map(counters))
    }

    fn halt(&mut self) -> io::Result<()> {
        self.controls.iter().for_each(|control| control.stop());
        let mut result = Ok(());
        for worker in self.workers.drain(..) {
            match worker.join() {
                Ok(ended) => result = result.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.halt();
    }
}

/// Makes the device of one end. It is named before it is up, so that IPv6 does not give it an address of its own.
fn open_end(namespace: &Namespace, config: &EmulatorConfig) -> Result<Tun, LabError> {
    let name = &config.interface;
    let what = || format!("cannot make the device {name} in {:?}", namespace.label());
    let options = TunOptions { offload: config.offload, mtu: Some(config.mtu), ..TunOptions::default() };
    let tun = namespace.run(|| Tun::open(name, &options)).map_err(|e| LabError::system(what(), e))?;
    namespace.set_transmit_queue(name, TRANSMIT_QUEUE)?;
    // Without IPv6 in the kernel there is nothing to switch off.
    let _ = namespace.sysctl(&format!("net/ipv6/conf/{name}/addr_gen_mode"), "1");
    tun.interface().set_up(true).map_err(|e| LabError::system(what(), e))?;
    Ok(tun)
}
