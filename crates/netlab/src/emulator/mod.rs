//! A long-haul link between two namespaces of the real kernel: a TUN device at each end, a [`Link`] for each
//! direction.
//!
//! The path of a packet, with one thread per direction (`worker.rs`):
//! 1. the kernel at one end routes it to the device; the thread reads it, perhaps within a super-packet;
//! 2. a super-packet is cut into wire packets (`netio::segment`), each with a fate of its own;
//! 3. [`Link::offer`]; packets that do not arrive go to the drop log;
//! 4. a packet that is due is joined with its neighbours (`netio::coalesce`, bit for bit) and written to the
//!    other device.
//!
//! `control.rs` holds the counters and settings that other threads may read and change while it runs.

mod control;
mod worker;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use netio::tun::{Tun, TunOptions};

pub use crate::direction::Direction;
pub use control::DirectionCounters;

use crate::drop_log::DropLog;
use crate::error::LabError;
use crate::middlebox::MiddleBox;
use crate::namespace::Namespace;
use control::Control;
use loss::LossModel;
use simnet::link::{Link, LinkConfig};
use worker::Worker;

/// Packets or super-packets that may wait in the kernel for a thread to be scheduled. A longer queue would
/// not help: it slows the senders down, as any card does.
const TRANSMIT_QUEUE: u32 = 2_000;

/// Settings of an emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    /// Name of the device at both ends, e.g. `wan0`.
    pub interface: String,
    /// Size of the largest IP packet of the devices, in bytes.
    pub mtu: u32,
    /// Link from the first namespace to the second.
    pub a_to_b: LinkConfig,
    /// Link from the second namespace to the first.
    pub b_to_a: LinkConfig,
    /// Whether super-packets are exchanged with the kernel (the packets on the emulated wire are the same).
    pub offload: bool,
    /// Period in microseconds with which a stream of packets is handled; rare packets are handled at once. 0
    /// handles every packet as precisely as the kernel wakes the thread.
    pub granularity_us: u64,
    /// Whether the threads of the link run before all usual ones, as a wire waits for no program, if the
    /// kernel allows it (CAP_SYS_NICE). This is for measurements: several such links at once starve the
    /// rest.
    pub is_urgent: bool,
    /// Path of the drop log, if any.
    pub drop_log: Option<PathBuf>,
}

impl EmulatorConfig {
    /// Returns the same link both ways, with a device `wan0` and an MTU of 1500; the way back has a random
    /// seed of its own.
    ///
    /// Packets are handed over every 100 µs, or every 20th part of a shorter delay. TCP does not take such
    /// batches for bursts of the link, and they are rare enough to be cheap.
    pub fn symmetric(link: LinkConfig) -> Self {
        let granularity_us = (link.delay_us / 20).min(100);
        let b_to_a = LinkConfig { seed: link.seed.wrapping_add(0x9e37_79b9), ..link.clone() };
        let interface = "wan0".to_owned();
        Self {
            interface,
            mtu: 1500,
            a_to_b: link,
            b_to_a,
            offload: true,
            granularity_us,
            is_urgent: false,
            drop_log: None,
        }
    }

    /// Returns the same link, which is urgent if it has a rate. One without could keep all processors busy.
    #[must_use]
    pub fn for_measurement(self) -> Self {
        let is_urgent = self.a_to_b.rate_bps.is_some() && self.b_to_a.rate_bps.is_some();
        Self { is_urgent, ..self }
    }
}

/// A running link. Dropping it stops the threads and removes the devices.
#[derive(Debug)]
pub struct Emulator {
    ends: [Namespace; 2],
    interface: String,
    controls: [Arc<Control>; 2],
    workers: Vec<JoinHandle<io::Result<()>>>,
    drop_log: Option<DropLog>,
}

impl Emulator {
    /// Starts the link. On return the devices exist and are up, without addresses.
    ///
    /// # Errors
    /// If a setting is out of range, a device of that name exists, the log cannot be written, or privilege is
    /// missing.
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
        let is_urgent = config.is_urgent;
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
            emulator
                .workers
                .push(thread.spawn(move || worker.run(is_urgent)).map_err(|e| LabError::system(what, e))?);
        }
        Ok(emulator)
    }

    /// Returns the counters of a direction.
    ///
    /// Each call reads the kernel's own drops at the device; they stay 0 if that fails.
    pub fn counters(&self, direction: Direction) -> DirectionCounters {
        let mut counters = self.controls[direction.index()].counters();
        counters.device_drops = self.ends[direction.index()].transmit_drops(&self.interface).unwrap_or(0);
        counters
    }

    /// Returns whether both directions still run; [`Emulator::stop`] gives the reason if one does not.
    pub fn is_running(&self) -> bool {
        !self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Returns the number of packets that the drop log lacks because its writer could not keep up.
    pub fn drop_log_missed(&self) -> u64 {
        self.drop_log.as_ref().map_or(0, DropLog::missed)
    }

    /// Sets another loss model for the packets that follow.
    pub fn set_loss(&self, direction: Direction, model: &LossModel) {
        self.controls[direction.index()].set_loss(model.clone());
    }

    /// Sets another rate for the packets that follow (`None`: no limit); see [`Link::set_rate`].
    pub fn set_rate(&self, direction: Direction, rate_bps: Option<u64>) {
        self.controls[direction.index()].set_rate(rate_bps);
    }

    /// Puts a box on the way of the packets that follow, in front of the link, or removes it.
    pub fn set_middle_box(&self, direction: Direction, middle_box: Option<MiddleBox>) {
        self.controls[direction.index()].set_middle_box(middle_box);
    }

    /// Ends the link. On return its devices are gone and its log is complete. Packets in flight are
    /// discarded.
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
        // `stop` reports errors of the threads.
        let _ = self.halt();
    }
}

/// Makes the device of one end. Its name precedes its activation, so that IPv6 assigns no address.
fn open_end(namespace: &Namespace, config: &EmulatorConfig) -> Result<Tun, LabError> {
    let name = &config.interface;
    let what = || format!("cannot make the device {name} in {:?}", namespace.label());
    let options = TunOptions { offload: config.offload, mtu: Some(config.mtu), ..TunOptions::default() };
    let tun = namespace.run(|| Tun::open(name, &options)).map_err(|e| LabError::system(what(), e))?;
    namespace.set_transmit_queue(name, TRANSMIT_QUEUE)?;
    // A kernel without IPv6 lacks this setting.
    let _ = namespace.sysctl(&format!("net/ipv6/conf/{name}/addr_gen_mode"), "1");
    tun.interface().set_up(true).map_err(|e| LabError::system(what(), e))?;
    Ok(tun)
}
