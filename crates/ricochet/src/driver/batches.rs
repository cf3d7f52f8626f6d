//! Datagrams on their way from the rings to the core, in batches by urgency.
//!
//! Packets come first: an application waits for each of them, and for the recovery of few. Requests come
//! next. They deliver nothing, so that they are processed under backpressure too. Repairs follow when no
//! packet waits, and rarely otherwise: under overload they yield to packets. Messages that application
//! threads could not pass on meanwhile, because this thread had the core, leave with the batch.

use std::sync::{Mutex, PoisonError};

use super::MembershipDriver;
use crate::clock;
use crate::ring::Ring;
use crate::shared::{Batch, Core, Shared};

/// Number of packets processed before other threads may have the core.
const BATCH: usize = 32;
/// Number of repairs, and of requests, processed beside a full batch of packets.
const SHARE: usize = BATCH / 4;

/// Number of full batches of packets after which repairs get a turn.
const DEFERRED_MAX: u32 = 256;
/// Number of packets in the ring from which the node makes no repairs.
const OVERLOAD: usize = 256;

/// Datagrams taken from the rings.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    packets: Batch,
    repairs: Batch,
    requests: Batch,
    /// Whether backpressure was active when packets were last to be processed.
    blocked: bool,
    /// Number of batches for which repairs have waited.
    deferred: u32,
    /// Number of packets left in the ring.
    waiting: usize,
    /// Number of packets that came during backpressure and are not processed yet.
    backlog: usize,
}

impl Batches {
    /// Returns whether packets that arrived are held back.
    pub(super) fn holds_packets(&self) -> bool {
        self.blocked || self.backlog > 0
    }

    /// Moves a batch of datagrams from the rings to the core. Returns whether more wait that may be processed
    /// at once.
    pub(super) fn process(&mut self, shared: &Shared, membership: &mut MembershipDriver) -> bool {
        let mut more = take(&shared.requests, BATCH, &mut self.requests);
        let mut is_open = !shared.backpressure.arm_if_active();
        if is_open {
            more |= self.take_packets(shared);
        } else {
            self.blocked = true;
        }
        let waiting = |batch: &Batch| !batch.waiting.is_empty();
        if !waiting(&self.requests) && !(is_open && (waiting(&self.packets) || waiting(&self.repairs))) {
            return more;
        }
        let mut core = shared.core_for_node();
        let now_us = clock::now_us();
        core.hold_losses(now_us, self.holds_packets());
        core.node.set_overloaded(self.waiting > OVERLOAD);
        for batch in [&mut self.packets, &mut self.repairs] {
            while is_open && let Some(slot) = batch.waiting.pop_front() {
                if core.is_of_new_group(&slot) {
                    membership.regroup(now_us, &mut core, shared);
                }
                core.handle_datagram(now_us, &slot);
                batch.done.push(slot);
                self.backlog = self.backlog.saturating_sub(1);
                // The rest of the batch waits until a reader makes room, which wakes this thread.
                is_open = !shared.backpressure.arm_if_active();
                self.blocked |= !is_open;
            }
            // After the packets; none are left after the repairs.
            handle(&mut core, now_us, &mut self.requests);
        }
        if shared.outgoing.is_fresh() {
            // The rest follows with the timers of the same round.
            core.pass_on(clock::now_us(), &shared.outgoing);
        }
        shared.release(core);
        give_back(&shared.ring, &mut self.packets);
        give_back(&shared.repairs, &mut self.repairs);
        give_back(&shared.requests, &mut self.requests);
        more && is_open
    }

    /// Fills the batches of packets and repairs. Returns whether more wait.
    fn take_packets(&mut self, shared: &Shared) -> bool {
        let mut more = {
            let mut ring = lock(&shared.ring);
            if std::mem::take(&mut self.blocked) {
                self.backlog = ring.len() + self.packets.waiting.len();
            }
            let had_room = ring.has_room();
            ring.take(BATCH - self.packets.waiting.len().min(BATCH), &mut self.packets.waiting);
            if !had_room && ring.has_room() {
                shared.ring_has_room.notify_all();
            }
            self.waiting = ring.len();
            !ring.is_empty()
        };
        if self.packets.waiting.is_empty() {
            self.backlog = 0;
        }
        // A repair names packets that may wait in the ring. Before those, it would only lead to requests for
        // them. Under steady overload, repairs get a turn from time to time.
        self.deferred = if more { self.deferred + 1 } else { 0 };
        if !more || self.deferred >= DEFERRED_MAX {
            self.deferred = 0;
            let free = BATCH - self.packets.waiting.len().min(BATCH);
            more |= take(&shared.repairs, free.max(SHARE), &mut self.repairs);
        }
        more
    }
}

fn handle(core: &mut Core, now_us: u64, batch: &mut Batch) {
    while let Some(slot) = batch.waiting.pop_front() {
        core.handle_datagram(now_us, &slot);
        batch.done.push(slot);
    }
}

/// Fills a batch up to `count` datagrams. Returns whether more wait.
fn take(ring: &Mutex<Ring>, count: usize, batch: &mut Batch) -> bool {
    let mut ring = lock(ring);
    ring.take(count.saturating_sub(batch.waiting.len()), &mut batch.waiting);
    !ring.is_empty()
}

fn give_back(ring: &Mutex<Ring>, batch: &mut Batch) {
    if !batch.done.is_empty() {
        lock(ring).give_back(&mut batch.done);
    }
}

fn lock(ring: &Mutex<Ring>) -> std::sync::MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}
