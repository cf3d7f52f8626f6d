//! A fresh start after the process stood still (`pulse.rs`).
//!
//! Toward peers in passive mode, output that was ready, datagrams and captures that waited are old, and are
//! discarded. The core renews these sessions with new streams, so that no repair of before is used. Packets
//! of tunnels have no other way, so that those that waited go on, as through any router.

use std::{io, iter};

use maelstrom_core::Inbound;
use netio::tap::Tap;
use tracing::debug;

use crate::doors::keep;
use crate::lag::Lag;
use crate::passive::{Channel, Passive, clock_us};
use crate::pause::Reason;
use crate::ports::Outlets;

/// Maximum number of captures that are discarded at a time.
const CAPTURES_MAX: usize = 4_096;
/// Maximum number of times that captures or datagrams are discarded: more than fit into the buffers. If they
/// come faster than they are discarded, recovery pauses.
const ROUNDS_MAX: usize = 256;

impl Passive {
    /// Discards all that is old after a stall of `stall_us`, and starts new streams.
    pub(crate) fn start_afresh(&mut self, stall_us: u64) {
        self.engine.discard_output();
        self.engine.now_us = clock_us();
        self.engine.gateway.handle_stall(self.engine.now_us, stall_us);
        self.engine.counts.stalls += 1;
        self.watch.on_stall(self.engine.now_us, stall_us, &self.config);
        if !self.config.has_passive_peer() {
            return;
        }
        self.ports.wans.iter_mut().for_each(|wan| wan.behind = false);
        let is_empty = self.discard_datagrams() & self.discard_captures();
        self.engine.now_us = clock_us();
        self.lag = Lag::new(self.engine.now_us);
        for wan in 0..self.ports.wans.len() {
            self.ports.wans[wan].excuse_missed();
            self.end_pause(wan);
            if !is_empty {
                self.pause(wan, Reason::Missed);
            }
        }
    }

    /// Discards the datagrams that wait, but for those of tunnels, which are decoded; returns whether all are
    /// gone.
    fn discard_datagrams(&mut self) -> bool {
        let gateway = &self.engine.gateway;
        let lasts = |inbound: &Inbound| gateway.outlasts_stalls(inbound.source.address);
        self.engine.counts.discarded += self.inbox.retain(lasts) as u64;
        for _ in 0..ROUNDS_MAX {
            // Nothing is known of the packets that arrived before them.
            self.channel = Channel::More;
            self.decode();
            let Outlets { socket, doors, .. } = &mut self.ports.outlets;
            let further = doors.iter_mut().filter_map(|door| Some((door.number, door.socket.as_mut()?)));
            let (mut count, mut more) = (0, false);
            for (door, socket) in iter::once((0, socket)).chain(further) {
                let received = socket.recv_noted(|received, datagram| {
                    let lasts = self.engine.gateway.outlasts_stalls(received.from);
                    count += u64::from(!lasts || !keep(&mut self.inbox, door, received, datagram));
                });
                more |= has_more(received);
            }
            self.engine.counts.discarded += count;
            if !more {
                return true;
            }
        }
        false
    }

    /// Discards the captures that wait; returns whether all are gone.
    fn discard_captures(&mut self) -> bool {
        let (mut count, mut is_empty) = (0, true);
        let mut discard = |tap: &mut Tap| tap.drain(CAPTURES_MAX, |_| count += 1).map(|drained| drained.more);
        for wan in &mut self.ports.wans {
            let tap = wan.tap.as_mut();
            let is_drained = tap.is_some_and(|tap| (0..ROUNDS_MAX).any(|_| !has_more(discard(tap))));
            is_empty &= is_drained || !wan.is_watched;
        }
        self.engine.counts.discarded += count;
        is_empty
    }
}

/// Whether more may wait after a round. A port that cannot be read may hold more.
fn has_more(round: io::Result<bool>) -> bool {
    round.unwrap_or_else(|error| {
        debug!(%error, "cannot read what waits");
        true
    })
}
