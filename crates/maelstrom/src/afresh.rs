//! A fresh start after the process stood still (`pulse.rs`).
//!
//! Output that was ready, datagrams and captures that waited: all of it is old and is discarded. The core
//! renews its sessions with new streams, so that no repair of before is used.

use std::{io, iter};

use netio::tap::Tap;
use tracing::debug;

use crate::lag::Lag;
use crate::passive::{Passive, clock_us};
use crate::pause::Reason;
use crate::ports::Outlets;

/// Maximum number of captures that are discarded at a time.
const CAPTURES_MAX: usize = 4_096;
/// Maximum number of times that captures or datagrams are discarded: more than fit into the buffers. If they
/// come faster than they are discarded, recovery pauses.
const ROUNDS_MAX: usize = 256;

impl Passive {
    /// Discards all that waited during a stall of `stall_us`, and starts new streams.
    pub(crate) fn start_afresh(&mut self, stall_us: u64) {
        self.engine.discard_output();
        self.inbox.clear();
        let is_empty = self.discard_datagrams() & self.discard_captures();
        self.engine.now_us = clock_us();
        self.engine.gateway.handle_stall(self.engine.now_us, stall_us);
        self.engine.counts.stalls += 1;
        self.watch.on_stall(self.engine.now_us, stall_us, &self.config);
        self.behind = false;
        self.lag = Lag::new(self.engine.now_us);
        self.missed = self.ports.tap.as_ref().map_or(0, |tap| tap.missed().incoming);
        self.end_pause();
        if !is_empty {
            self.pause(Reason::Missed);
        }
    }

    /// Discards the datagrams that wait; returns whether all are gone.
    fn discard_datagrams(&mut self) -> bool {
        let Outlets { socket, doors, .. } = &mut self.ports.outlets;
        let further = doors.iter_mut().filter_map(|door| door.socket.as_mut());
        let mut count = 0;
        let mut is_empty = true;
        for socket in iter::once(socket).chain(further) {
            is_empty &= ends((0..ROUNDS_MAX).map(|_| socket.recv(|_, _| count += 1)));
        }
        self.engine.counts.discarded += count;
        is_empty
    }

    /// Discards the captures that wait; returns whether all are gone.
    fn discard_captures(&mut self) -> bool {
        let groups = self.ports.outlets.groups.iter_mut();
        self.engine.counts.discarded += groups.map(|port| port.discard(ROUNDS_MAX)).sum::<u64>();
        let Some(tap) = &mut self.ports.tap else { return false };
        let mut count = 0;
        let mut discard = |tap: &mut Tap| tap.drain(CAPTURES_MAX, |_| count += 1).map(|drained| drained.more);
        let rounds = (0..ROUNDS_MAX).map(|_| discard(tap));
        let is_empty = ends(rounds);
        self.engine.counts.discarded += count;
        is_empty
    }
}

/// Whether one of the rounds leaves nothing.
fn ends(mut rounds: impl Iterator<Item = io::Result<bool>>) -> bool {
    rounds.any(|more| match more {
        Ok(more) => !more,
        Err(error) => {
            debug!(%error, "cannot read what waits");
            false
        }
    })
}
