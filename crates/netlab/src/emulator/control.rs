//! State that a direction's thread shares with the rest: counters to read, settings to change, the stop flag.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::middlebox::MiddleBox;
use loss::LossModel;
use simnet::link::{Link, LinkCounters};

/// Counters of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Counters of the link.
    pub link: LinkCounters,
    /// Super-packets dropped because they could not be cut into wire packets.
    pub uncut: u64,
    /// Packets or super-packets refused by the receiving kernel (e.g. a corrupted IP version, a device that
    /// is down).
    pub refused: u64,
    /// Packets handed over in turns of the thread that came more than 2 ms after the first of them was due.
    pub late: u64,
    /// Packets dropped by the sending kernel at the device, because the emulator did not read fast enough.
    pub device_drops: u64,
    /// Processor time of the direction's thread, in microseconds.
    pub cpu_us: u64,
}

const FIELDS: usize = 14;

impl DirectionCounters {
    /// Returns all but `device_drops`, which the kernel counts.
    fn to_array(self) -> [u64; FIELDS] {
        let link = self.link;
        [
            link.offered_packets,
            link.offered_bytes,
            link.delivered_packets,
            link.delivered_bytes,
            link.lost,
            link.queue_full,
            link.overflow,
            link.duplicated,
            link.corrupted,
            link.reordered,
            self.uncut,
            self.refused,
            self.late,
            self.cpu_us,
        ]
    }

    fn from_array(array: [u64; FIELDS]) -> Self {
        let [
            offered_packets,
            offered_bytes,
            delivered_packets,
            delivered_bytes,
            lost,
            queue_full,
            overflow,
            duplicated,
            corrupted,
            reordered,
            uncut,
            refused,
            late,
            cpu_us,
        ] = array;
        let link = LinkCounters {
            offered_packets,
            offered_bytes,
            delivered_packets,
            delivered_bytes,
            lost,
            queue_full,
            overflow,
            duplicated,
            corrupted,
            reordered,
        };
        Self { link, uncut, refused, late, device_drops: 0, cpu_us }
    }
}

/// State shared by the thread and the handle of one direction.
#[derive(Debug)]
pub(super) struct Control {
    published: [AtomicU64; FIELDS],
    stop: AtomicBool,
    /// Set while `changes` has content. The thread checks this flag and takes the lock only if it is set.
    changed: AtomicBool,
    changes: Mutex<Changes>,
    wake: EventFd,
}

#[derive(Default)]
struct Changes {
    loss: Option<LossModel>,
    rate_bps: Option<Option<u64>>,
    middle_box: Option<Option<MiddleBox>>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Changes({:?}, {:?}, middle box: {})", self.loss, self.rate_bps, self.middle_box.is_some())
    }
}

impl Control {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            published: [const { AtomicU64::new(0) }; FIELDS],
            stop: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            changes: Mutex::default(),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
        })
    }

    /// Returns counters of one moment, or of two moments close together.
    pub(super) fn counters(&self) -> DirectionCounters {
        DirectionCounters::from_array(std::array::from_fn(|field| {
            self.published[field].load(Ordering::Relaxed)
        }))
    }

    pub(super) fn publish(&self, counters: &DirectionCounters) {
        for (cell, value) in self.published.iter().zip(counters.to_array()) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    pub(super) fn set_loss(&self, model: LossModel) {
        self.changes().loss = Some(model);
        self.notify();
    }

    pub(super) fn set_rate(&self, rate_bps: Option<u64>) {
        self.changes().rate_bps = Some(rate_bps);
        self.notify();
    }

    pub(super) fn set_middle_box(&self, middle_box: Option<MiddleBox>) {
        self.changes().middle_box = Some(middle_box);
        self.notify();
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        // No code under this lock can panic half-way.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.store(true, Ordering::Release);
        self.wake_up();
    }

    /// Applies the requested changes; called by the thread.
    pub(super) fn apply(&self, link: &mut Link, middle_box: &mut Option<MiddleBox>) {
        if !self.changed.swap(false, Ordering::Acquire) {
            return;
        }
        let Changes { loss, rate_bps, middle_box: wanted } = std::mem::take(&mut *self.changes());
        if let Some(model) = loss {
            link.set_loss(&model);
        }
        if let Some(rate_bps) = rate_bps {
            link.set_rate(rate_bps);
        }
        if let Some(wanted) = wanted {
            *middle_box = wanted;
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_up();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn wake_up(&self) {
        // This fails only if the counter is full, and then the thread is being woken already.
        let _ = self.wake.write(1);
    }

    /// Returns the descriptor that becomes readable when the thread is needed.
    pub(super) fn wake(&self) -> &EventFd {
        &self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simnet::link::LinkConfig;

    #[test]
    fn published_counters_are_read_back_field_by_field() {
        let array: [u64; FIELDS] = std::array::from_fn(|field| field as u64 + 1);
        let counters = DirectionCounters::from_array(array);
        assert_eq!(counters.to_array(), array);
        let control = Control::new().unwrap();
        control.publish(&counters);
        assert_eq!(control.counters(), counters);
    }

    #[test]
    fn a_change_is_applied_once() {
        let control = Control::new().unwrap();
        let mut link = Link::new(&LinkConfig::default()).unwrap();
        control.set_loss(LossModel::Uniform(1.0));
        control.apply(&mut link, &mut None);
        assert!(link.offer(0, &[0; 40]).is_loss());
        link.set_loss(&LossModel::None);
        control.apply(&mut link, &mut None);
        assert!(!link.offer(0, &[0; 40]).is_loss());
    }
}
