//! The core with what surrounds it: captures go in, and what the core wants sent goes out at once.

use std::io;

use maelstrom_core::{Gateway, Outbox};
use netio::segment;
use netio::tap::{Captured, Direction, Tap};

use crate::ports::Outlets;

/// Captured packets, each up to a whole super-packet, taken off the tap at a time.
const CAPTURES_MAX: usize = 16;
/// Wire packets taken off the tap in one round.
const PACKETS_MAX: usize = 2048;

/// So much later than its last packet was captured may a repair leave. The capture comes before the packet has been queued
/// for the wire, and is read on another processor: a repair that does not wait gets ahead of a whole super-packet now and
/// then, and at the far end all of that looks lost for as long as it takes on the wire.
const HEAD_START_US: u64 = 50;
/// While captures follow each other, repairs are held back for so long at the most.
const HELD_BACK_MAX_US: u64 = 100;

/// The core, its outbox, and what is counted besides.
pub(crate) struct Engine {
    pub(crate) gateway: Gateway,
    pub(crate) out: Outbox,
    held_back: Option<HeldBack>,
    /// One wire packet, cut from a captured super-packet.
    scratch: Box<[u8]>,
    pub(crate) counts: DriverCounts,
    pub(crate) now_us: u64,
    /// What leaves has been handled already, by another tap.
    pub(crate) skips_outgoing: bool,
}

/// What a round at the tap has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// The budget was used up: more may wait.
    pub(crate) more: bool,
    /// What counted towards it: wire packets of either direction, and captures that made none.
    pub(crate) packets: usize,
    /// Packets arrived of which we know nothing.
    pub(crate) unseen: bool,
}

impl Engine {
    pub(crate) fn new(gateway: Gateway, now_us: u64) -> Self {
        Self {
            out: gateway.outbox(),
            held_back: None,
            scratch: vec![0; 1 << 16].into_boxed_slice(),
            counts: DriverCounts::default(),
            now_us,
            skips_outgoing: false,
            gateway,
        }
    }

    /// Takes captures off the tap, cuts them into what is on the wire, and hands that to the core.
    pub(crate) fn drain(&mut self, tap: &mut Tap, outlets: &mut Outlets) -> io::Result<Round> {
        let Self { gateway, out, held_back, scratch, counts, now_us, skips_outgoing } = self;
        let mut round = Round { more: true, packets: 0, unseen: false };
        while round.more && round.packets < PACKETS_MAX {
            let drained = tap.drain(CAPTURES_MAX, |captured| {
                let captured_us = captured.time_ns.map_or(*now_us, |ns| ns / 1000);
                // If we come late, what may leave already must not take along what may not.
                if held_back.take_if(|held_back| held_back.due_us() <= captured_us).is_some() {
                    flush(out, gateway, outlets, counts);
                }
                let datagrams = out.datagrams.len();
                let cut = segment::cut(captured.packet, &captured.offload, scratch, |packet| match captured
                    .direction
                {
                    Direction::Outgoing if *skips_outgoing => {}
                    Direction::Outgoing => gateway.handle_outgoing(*now_us, packet, out),
                    Direction::Incoming => gateway.handle_incoming(*now_us, packet, out),
                });
                // Every capture counts, so that the round ends whatever they are.
                round.packets += cut.unwrap_or(0).max(1);
                if cut.is_err() {
                    round.unseen |= counts.uncut(&captured);
                }
                if out.is_nearly_full() {
                    flush(out, gateway, outlets, counts);
                    *held_back = None;
                } else if out.datagrams.len() > datagrams {
                    held_back.get_or_insert(HeldBack { first_us: captured_us, last_us: 0 }).last_us =
                        captured_us;
                }
            })?;
            inject(out, outlets, counts);
            round.more = drained.more;
        }
        Ok(round)
    }

    /// Sends all that the core wants sent.
    pub(crate) fn flush(&mut self, outlets: &mut Outlets) {
        self.held_back = None;
        flush(&mut self.out, &self.gateway, outlets, &mut self.counts);
    }

    /// Sends what may be sent at `now_us`: all but repairs that must let their packets go ahead.
    pub(crate) fn flush_due(&mut self, now_us: u64, outlets: &mut Outlets) {
        // A time that cannot be is another clock's: a process may live in a time namespace of its own.
        let waits = |due_us: u64| due_us > now_us && due_us <= now_us + HELD_BACK_MAX_US;
        if self.held_back_until_us().is_some_and(waits) && !self.out.is_nearly_full() {
            return inject(&mut self.out, outlets, &mut self.counts);
        }
        self.flush(outlets);
    }

    /// When [`Engine::flush_due`] has something to send that it holds back now.
    pub(crate) fn held_back_until_us(&self) -> Option<u64> {
        self.held_back.as_ref().map(HeldBack::due_us)
    }
}

/// Repairs that wait in the outbox: when the first, and the last, packet was captured that made one.
struct HeldBack {
    first_us: u64,
    last_us: u64,
}

impl HeldBack {
    fn due_us(&self) -> u64 {
        (self.last_us + HEAD_START_US).min(self.first_us + HELD_BACK_MAX_US)
    }
}

fn flush(out: &mut Outbox, gateway: &Gateway, outlets: &mut Outlets, counts: &mut DriverCounts) {
    inject(out, outlets, counts);
    let peers = &gateway.config().peers;
    counts.unsent +=
        outlets.socket.send(out.datagrams.iter().map(|(peer, datagram)| (peers[peer].address, datagram)));
    out.datagrams.clear();
}

fn inject(out: &mut Outbox, outlets: &mut Outlets, counts: &mut DriverCounts) {
    for ((), packet) in out.recovered.iter() {
        let taken = outlets.tun.as_ref().is_some_and(|tun| tun.send(packet).unwrap_or(false));
        counts.uninjected += u64::from(!taken);
    }
    out.recovered.clear();
}

/// Counts of the driver: what the core cannot see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounts {
    /// Captured packets that left and could not be cut into what is on the wire: they are not protected.
    pub(crate) uncut_outgoing: u64,
    /// The same of those that arrived: what came in them is not known.
    pub(crate) uncut_incoming: u64,
    /// Times that recovery paused because the tap was not to be relied on.
    pub(crate) pauses: u64,
    /// Datagrams on the repair channel that came while the inbox was full.
    pub(crate) inbox_full: u64,
    /// Repairs that the socket did not take.
    pub(crate) unsent: u64,
    /// Recovered packets that the kernel did not take.
    pub(crate) uninjected: u64,
    /// Packets missed by taps that are closed.
    pub(crate) missed_before: u64,
    /// Files with mistakes that a reload refused.
    pub(crate) reloads_refused: u64,
}

impl DriverCounts {
    /// Counts a capture that could not be cut. True if packets were in it that may be named by repairs: a single packet
    /// that makes no sense is none of them, for the kernel takes it no more than we do.
    fn uncut(&mut self, captured: &Captured<'_>) -> bool {
        match captured.direction {
            Direction::Outgoing => self.uncut_outgoing += 1,
            Direction::Incoming => self.uncut_incoming += 1,
        }
        captured.direction == Direction::Incoming && captured.offload.is_super()
    }
}
