//! The core with its input and output: captures go in, and the core's output leaves at once.

use std::io;

use maelstrom_core::counters::Uninjected;
use maelstrom_core::{Gateway, Outbox};
use netio::segment;
use netio::tap::{Direction, Tap};

use crate::capture::Capturing;
use crate::doors;
use crate::groups;
use crate::ports::Outlets;
use crate::pulse::{Pulse, boot_us};
use crate::taps::Unshown;
use crate::uncut::UncutLog;

/// Maximum number of captured packets that are read from the tap at a time, each up to a whole super-packet.
const CAPTURES_MAX: usize = 16;
/// Maximum number of wire packets in one round at the tap.
const PACKETS_MAX: usize = 2048;

/// Delay of a repair after the capture of its last packet. The capture precedes the packet's place in the
/// queue of the wire, and is read on another processor. Without this delay a repair sometimes overtakes a
/// whole super-packet, and the far end counts all of its packets as lost until they arrive.
const HEAD_START_US: u64 = 50;
/// Longest time that repairs are held back while captures follow each other.
const HELD_BACK_MAX_US: u64 = 100;

/// Time of all captures that are ignored.
pub(crate) const ALL_OUTGOING: u64 = u64::MAX;

/// Longest time for which a capture can have waited.
const AGE_MAX_US: u64 = 10_000_000;

/// The core, its outbox, and the counters of the driver.
pub(crate) struct Engine {
    pub(crate) gateway: Gateway,
    pub(crate) out: Outbox,
    held_back: Option<HeldBack>,
    /// Tells whether the output is old.
    pub(crate) pulse: Pulse,
    /// One wire packet, cut from a captured super-packet.
    scratch: Box<[u8]>,
    /// The same for packets of groups.
    pub(crate) group_scratch: Vec<u8>,
    pub(crate) counts: DriverCounts,
    uncut: UncutLog,
    pub(crate) now_us: u64,
    /// Time at which the latest packets were read that leave by a tunnel.
    pub(crate) leaving_us: u64,
    /// Time of capture up to which outgoing packets are ignored, because another tap has shown them.
    pub(crate) skips_outgoing_until_us: u64,
    pub(crate) capturing: Capturing,
}

/// Result of a round at the tap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Whether the budget was used up, so that more packets may wait.
    pub(crate) more: bool,
    /// Use of the budget: wire packets of either direction, and captures without any.
    pub(crate) packets: usize,
    /// Captures read, each a packet or a super-packet.
    pub(crate) captures: usize,
    /// Time of the latest capture, if the tap tells it.
    pub(crate) latest_us: Option<u64>,
}

impl Engine {
    pub(crate) fn new(gateway: Gateway, now_us: u64) -> Self {
        Self {
            out: gateway.outbox(),
            held_back: None,
            pulse: Pulse::new(boot_us()),
            scratch: vec![0; 1 << 16].into_boxed_slice(),
            group_scratch: Vec::new(),
            counts: DriverCounts::default(),
            uncut: UncutLog::default(),
            now_us,
            leaving_us: now_us,
            skips_outgoing_until_us: 0,
            capturing: Capturing::default(),
            gateway,
        }
    }

    /// Reads captures from the tap, cuts them into wire packets, and passes these to the core.
    pub(crate) fn drain(&mut self, tap: &mut Tap, outlets: &mut Outlets) -> io::Result<Round> {
        let (now_us, skips_until_us) = (self.now_us, self.skips_outgoing_until_us);
        let Self { gateway, out, held_back, pulse, scratch, counts, uncut, capturing, .. } = self;
        let mut round = Round { more: true, packets: 0, captures: 0, latest_us: None };
        while round.more && round.packets < PACKETS_MAX {
            // Repairs state when they leave, and a round takes tens of milliseconds on a busy machine.
            let leaving_us = crate::passive::clock_us().max(now_us);
            let drained = tap.drain(CAPTURES_MAX, |captured| {
                let captured_us = captured.time_ns.map_or(now_us, |ns| ns / 1000);
                counts.on_age(now_us.saturating_sub(captured_us));
                // An implausible time is that of another clock.
                let age_us = leaving_us.abs_diff(captured_us);
                let shown_us = captured.time_ns.filter(|_| age_us < AGE_MAX_US).map(|ns| ns / 1000);
                round.latest_us = round.latest_us.max(shown_us);
                // No later than the datagrams of this round, which the tap has overtaken by its end.
                let arrived_us = shown_us.map_or(now_us, |shown_us| shown_us.min(now_us));
                if captured.is_of_vlan() {
                    counts.of_vlans += 1;
                    round.packets += 1;
                    return;
                }
                // Repairs that are due leave first, so that later ones do not leave with them.
                if held_back.take_if(|held_back| held_back.due_us() <= captured_us).is_some() {
                    flush(out, pulse, gateway, outlets, counts, capturing);
                }
                let datagrams = out.datagrams.len();
                let cut = segment::cut(captured.packet, &captured.offload, scratch, |packet| match captured
                    .direction
                {
                    Direction::Outgoing if captured_us <= skips_until_us => {}
                    Direction::Outgoing => leave(leaving_us, captured_us, packet, gateway, out, capturing),
                    Direction::Incoming => {
                        capturing.on_arrived(captured_us, packet);
                        gateway.handle_incoming(arrived_us, packet, out);
                    }
                });
                // Every capture counts, so that the round ends for any input.
                round.packets += cut.unwrap_or(0).max(1);
                if let Err(refusal) = cut {
                    counts.on_uncut(captured.direction);
                    // A single malformed packet is never named, because the kernel drops it too.
                    if captured.offload.is_super() {
                        uncut.note(now_us, &captured, &refusal);
                    }
                    if captured.offload.is_super() && captured.direction == Direction::Incoming {
                        gateway.handle_unseen(now_us, captured.packet);
                    }
                }
                if out.is_nearly_full() {
                    flush(out, pulse, gateway, outlets, counts, capturing);
                    *held_back = None;
                } else if out.datagrams.len() > datagrams {
                    held_back.get_or_insert(HeldBack { first_us: captured_us, last_us: 0 }).last_us =
                        captured_us;
                }
            })?;
            inject(out, pulse, gateway, outlets, counts, capturing);
            round.captures += drained.packets;
            round.more = drained.more;
        }
        Ok(round)
    }

    /// Notes that the work begins, after a while in which another process did it.
    pub(crate) fn begin(&mut self) {
        self.now_us = crate::passive::clock_us();
        self.pulse = Pulse::new(boot_us());
    }

    /// Reads captures of packets that arrived, while another process sends and recovers; returns whether more
    /// may wait.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn watch_arrivals(&mut self, tap: &mut Tap) -> io::Result<bool> {
        let Self { gateway, out, scratch, counts, .. } = self;
        let now_us = crate::passive::clock_us();
        let drained = tap.drain(PACKETS_MAX, |captured| {
            if captured.is_of_vlan() || captured.direction == Direction::Outgoing {
                return;
            }
            let cut = segment::cut(captured.packet, &captured.offload, scratch, |packet| {
                gateway.handle_incoming(now_us, packet, out);
            });
            if cut.is_err() {
                counts.on_uncut(captured.direction);
                if captured.offload.is_super() {
                    gateway.handle_unseen(now_us, captured.packet);
                }
            }
        })?;
        Ok(drained.more)
    }

    /// Reads packets for peers in tunnel mode, passes them to the core, and sends the datagrams that carry
    /// them. Returns whether more may wait.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn drain_tunnel(&mut self, outlets: &mut Outlets) -> io::Result<bool> {
        let (mut packets, mut taken) = (0, 0);
        self.leaving_us = self.leaving_us.max(self.now_us);
        while packets < PACKETS_MAX {
            // Datagrams state when they leave.
            if taken % CAPTURES_MAX == 0 {
                self.leaving_us = crate::passive::clock_us().max(self.leaving_us);
            }
            taken += 1;
            let Self { gateway, out, scratch, counts, leaving_us, capturing, .. } = self;
            let Some(tunnel) = &mut outlets.tunnel else { return Ok(false) };
            let Some((offload, packet)) = tunnel.recv()? else {
                self.flush_tunnels(outlets);
                if packets > 0 {
                    self.flush(outlets);
                }
                return Ok(false);
            };
            let cut = segment::cut(packet, &offload, scratch, |packet| {
                enter_tunnel(*leaving_us, packet, gateway, out, capturing);
            });
            packets += cut.unwrap_or(0).max(1);
            if cut.is_err() {
                counts.uncut_outgoing += 1;
            }
            if out.is_nearly_full() {
                self.flush(outlets);
            }
        }
        self.flush_tunnels(outlets);
        self.flush(outlets);
        Ok(true)
    }

    /// Puts the packets for tunnels that wait for others, and need not wait any longer, into the outbox.
    pub(crate) fn flush_tunnels(&mut self, outlets: &mut Outlets) {
        // An empty outbox takes those of one peer at least.
        while !self.gateway.flush_tunnels(self.leaving_us, &mut self.out) {
            self.flush(outlets);
        }
    }

    /// Sends repairs of all packets that wait for one.
    pub(crate) fn finish_codes(&mut self, outlets: &mut Outlets) {
        for peer in 0..self.gateway.config().peers.len() {
            self.gateway.finish_stream(self.now_us, peer, &mut self.out);
            self.flush(outlets);
        }
    }

    /// Sends the last packets and repairs of this process to all peers, and hands on those that are held.
    pub(crate) fn finish_streams(&mut self, outlets: &mut Outlets) {
        for peer in 0..self.gateway.config().peers.len() {
            self.gateway.finish_stream(self.now_us, peer, &mut self.out);
            self.flush(outlets);
            while self.gateway.release_held(self.now_us, peer, &mut self.out) {
                self.flush(outlets);
            }
        }
        self.flush(outlets);
    }

    /// Sends all output of the core.
    pub(crate) fn flush(&mut self, outlets: &mut Outlets) {
        self.held_back = None;
        let Self { out, pulse, gateway, counts, capturing, .. } = self;
        flush(out, pulse, gateway, outlets, counts, capturing);
    }

    /// Drops the output of the core that has not been sent, and is of no use any more.
    pub(crate) fn discard_output(&mut self) {
        self.held_back = None;
        self.counts.discarded += discard(&mut self.out, &mut self.gateway);
    }

    /// Sends the output that is due at `now_us`: all but repairs that must not overtake their packets.
    pub(crate) fn flush_due(&mut self, now_us: u64, outlets: &mut Outlets) {
        // An implausible time is that of another clock: a process may be in its own time namespace.
        let waits = |due_us: u64| due_us > now_us && due_us <= now_us + HELD_BACK_MAX_US;
        if self.held_back_until_us().is_some_and(waits) && !self.out.is_nearly_full() {
            let Self { out, pulse, gateway, counts, capturing, .. } = self;
            return inject(out, pulse, gateway, outlets, counts, capturing);
        }
        self.flush(outlets);
    }

    /// Time until which [`Engine::flush_due`] holds repairs back.
    pub(crate) fn held_back_until_us(&self) -> Option<u64> {
        self.held_back.as_ref().map(HeldBack::due_us)
    }
}

/// Repairs that wait in the outbox, with the capture times of the first and the last packet that completed
/// one.
struct HeldBack {
    first_us: u64,
    last_us: u64,
}

impl HeldBack {
    fn due_us(&self) -> u64 {
        (self.last_us + HEAD_START_US).min(self.first_us + HELD_BACK_MAX_US)
    }
}

/// Passes a packet that left this site to the core.
fn leave(
    now_us: u64,
    captured_us: u64,
    packet: &[u8],
    gateway: &mut Gateway,
    out: &mut Outbox,
    capturing: &mut Capturing,
) {
    let before = capturing.is_active().then(|| *gateway.unprotected());
    // An implausible time is that of another clock.
    let is_plausible = now_us.saturating_sub(captured_us) < AGE_MAX_US;
    gateway.handle_departed(now_us, if is_plausible { captured_us } else { now_us }, packet, out);
    if let Some(before) = before {
        capturing.on_left(captured_us, packet, &before, gateway.unprotected());
    }
}

/// Passes a packet for the site of a peer in tunnel mode to the core.
fn enter_tunnel(
    now_us: u64,
    packet: &[u8],
    gateway: &mut Gateway,
    out: &mut Outbox,
    capturing: &mut Capturing,
) {
    let before = capturing.is_active().then(|| *gateway.refused());
    gateway.handle_tunnelled(now_us, packet, out);
    if let Some(before) = before {
        capturing.on_tunnelled(now_us, packet, &before, gateway.refused());
    }
}

fn flush(
    out: &mut Outbox,
    pulse: &Pulse,
    gateway: &mut Gateway,
    outlets: &mut Outlets,
    counts: &mut DriverCounts,
    capturing: &mut Capturing,
) {
    inject(out, pulse, gateway, outlets, counts, capturing);
    if out.datagrams.is_empty() {
        return;
    }
    if outlets.is_silent {
        // The sessions are another process's.
        out.datagrams.clear();
        return;
    }
    if pulse.stall_us(boot_us()).is_some() {
        counts.discarded += discard(out, gateway);
    }
    let peers = &gateway.config().peers;
    if capturing.is_active() {
        for (envelope, datagram) in out.datagrams.iter() {
            for (_, to) in doors::copies(peers, envelope) {
                capturing.on_sent(envelope.peer, to, datagram);
            }
        }
    }
    counts.unsent += doors::send(&mut outlets.socket, &mut outlets.doors, peers, &out.datagrams);
    out.datagrams.clear();
}

fn inject(
    out: &mut Outbox,
    pulse: &Pulse,
    gateway: &mut Gateway,
    outlets: &mut Outlets,
    counts: &mut DriverCounts,
    capturing: &mut Capturing,
) {
    if out.recovered.is_empty() {
        return;
    }
    // The process may have been stopped since the packets were recovered.
    if pulse.stall_us(boot_us()).is_some() {
        counts.discarded += discard(out, gateway);
    }
    for (origin, packet) in out.recovered.iter() {
        if gateway.config().peers[origin.peer].is_tunnel {
            // The next process has or recovers the packets that this one has not handed on.
            if outlets.is_silent {
                continue;
            }
            let mut result = Ok(());
            if groups::is_to_group(packet) {
                groups::hand_out(&mut outlets.groups, gateway, packet);
            } else if let Some(tunnel) = &mut outlets.tunnel {
                tunnel.send(packet);
            } else {
                result = Err(Uninjected::Untaken);
                gateway.handle_uninjected(origin, Uninjected::Untaken);
            }
            capturing.on_handed_on(origin, packet, result);
            continue;
        }
        let wan = outlets.wan_of.get(origin.peer).copied().unwrap_or_default();
        let inlet = outlets.inlets.get_mut(wan).and_then(Option::as_mut);
        let result = inlet.map_or(Err(Uninjected::Untaken), |inlet| inlet.send(packet));
        capturing.on_recovered(origin, packet, result);
        if let Err(reason) = result {
            counts.uninjected += u64::from(reason == Uninjected::Untaken);
            gateway.handle_uninjected(origin, reason);
        }
    }
    if let Some(tunnel) = &mut outlets.tunnel {
        tunnel.flush();
    }
    out.recovered.clear();
}

/// Drops all output that is of no use if it leaves late, and returns its number: all but that of tunnels,
/// whose packets have no other way.
fn discard(out: &mut Outbox, gateway: &mut Gateway) -> u64 {
    let datagrams = out.datagrams.retain(|envelope| gateway.config().peers[envelope.peer].is_tunnel);
    let recovered = out.recovered.retain(|origin| {
        let is_kept = gateway.config().peers[origin.peer].is_tunnel;
        if !is_kept {
            gateway.handle_uninjected(*origin, Uninjected::Stalled);
        }
        is_kept
    });
    (datagrams + recovered) as u64
}

/// Counters of the driver, for what the core does not see.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverCounts {
    /// Outgoing captures that could not be cut into wire packets, and are not protected.
    pub(crate) uncut_outgoing: u64,
    /// Incoming captures that could not be cut, so that their packets are unknown.
    pub(crate) uncut_incoming: u64,
    /// Captures of packets that belong to a VLAN on top of the WAN interface, and not to the link of the
    /// peers.
    pub(crate) of_vlans: u64,
    /// Number of times that the process stood still.
    pub(crate) stalls: u64,
    /// Input and output that was old after a stall.
    pub(crate) discarded: u64,
    /// Longest time for which a capture waited since the last measurement of the load.
    pub(crate) oldest_us: u64,
    /// Datagrams of the repair channel that found the inbox full.
    pub(crate) inbox_full: u64,
    /// Datagrams of senders that sent more than their share while the gateway was behind.
    pub(crate) beyond_share: u64,
    /// Repairs that the socket refused.
    pub(crate) unsent: u64,
    /// Recovered packets that the kernel refused.
    pub(crate) uninjected: u64,
    /// Packets that closed taps had not shown.
    pub(crate) unshown_before: Unshown,
    /// Number of reloads that were refused because of mistakes in the file.
    pub(crate) reloads_refused: u64,
}

impl DriverCounts {
    /// Notes the time for which a capture waited.
    fn on_age(&mut self, age_us: u64) {
        // An implausible time is that of another clock.
        if age_us < AGE_MAX_US {
            self.oldest_us = self.oldest_us.max(age_us);
        }
    }

    /// Counts a capture that could not be cut.
    fn on_uncut(&mut self, direction: Direction) {
        match direction {
            Direction::Outgoing => self.uncut_outgoing += 1,
            Direction::Incoming => self.uncut_incoming += 1,
        }
    }
}
