//! Packets of a tunnel in the order in which they were sent, for hosts that take reordering for loss.

use super::Peer;
use crate::config::{IngressConfig, PeerConfig, TunnelConfig};
use crate::outbox::{Origin, Outbox, Queue, recovered};
use crate::resequence::{ResequenceState, Resequencer};
use foundation::Seq;

/// Shortest interval between looks whether repairs can still bring the awaited packet back.
const LOOK_US: u64 = 1_000;

/// The packets that have come, and those that are held.
pub(crate) struct InOrder {
    /// Output of the ingress.
    pub(super) incoming: Queue<Origin>,
    line: Resequencer,
    /// Time of the next look at what can still come.
    next_look_us: u64,
}

impl InOrder {
    /// `None` if packets are handed on as they come.
    pub(super) fn of(config: &PeerConfig, sizes: &IngressConfig) -> Option<Self> {
        let limit_us = config.tunnel.resequence_us;
        let incoming = || recovered(sizes.packet_max, sizes.equations);
        (config.is_tunnel && limit_us > 0).then(|| Self {
            incoming: incoming(),
            line: Resequencer::new(limit_us),
            next_look_us: 0,
        })
    }

    /// Drops what is held, and begins with the packet of this place: those before it wait for nothing.
    pub(super) fn begin(&mut self, first: Seq) {
        self.incoming.clear();
        self.line.begin(first);
    }

    /// Drops what is held, and begins with the next packet.
    pub(super) fn restart(&mut self) {
        self.incoming.clear();
        self.line.restart();
    }

    /// Changes the number of the peer, which packets that wait have with them.
    pub(super) fn renumber(&mut self, peer: usize) {
        self.line.renumber(peer);
    }

    /// Time at which [`Peer::put_in_order`] is due.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.line.due_us()
    }

    pub(crate) fn state(&self) -> ResequenceState {
        self.line.state()
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.incoming.memory_bytes() + self.line.memory_bytes()
    }
}

impl Peer {
    /// Holds packets from the first place on of which nothing has come. If that one is lost, those behind it
    /// wait.
    pub(super) fn begin_order(&mut self) {
        let first = self.ingress.first_unheard();
        self.order.iter_mut().for_each(|order| order.begin(first));
    }

    /// Milliseconds for which packets that came early are held at most; 0 if they are not.
    pub(super) fn hold_ms(&self) -> u16 {
        let limit_us = if self.order.is_some() { self.config.tunnel.resequence_us } else { 0 };
        u16::try_from(limit_us.div_ceil(1_000)).unwrap_or(u16::MAX)
    }

    /// Changes how packets are carried; the session stays.
    pub(super) fn set_tunnel(&mut self, tunnel: TunnelConfig) {
        self.config.tunnel = tunnel;
        self.egress.set_aggregate(tunnel.aggregate_us);
        match &mut self.order {
            Some(order) => order.line.set_limit(tunnel.resequence_us),
            None => {
                self.order = InOrder::of(&self.config, &self.ingress_config);
                self.begin_order();
            }
        }
    }

    /// Hands on the packets that are held, because another process goes on, as far as the outbox has room;
    /// returns whether there are more. Repairs of a tunnel that are held are used before: what they recover
    /// later, the next process would recover too.
    pub(crate) fn release_held(&mut self, now_us: u64, out: &mut Outbox) -> bool {
        if self.config.is_tunnel && self.use_waiting(now_us, out) {
            return true;
        }
        let Self { order: Some(order), ingress, identity, .. } = self else { return false };
        let (line, identity) = (&mut order.line, &*identity);
        while line.awaited().is_some() {
            line.give_up();
        }
        let mut stamp = |origin: &Origin, packet: &mut [u8]| ingress.on_handed_on(identity, origin, packet);
        line.drain(&mut out.recovered, &mut stamp);
        line.state().waiting > 0
    }

    /// Hands on the packets of the ingress whose turn it is, and holds those that came early.
    pub(super) fn put_in_order(&mut self, now_us: u64, out: &mut Outbox) {
        let Self { order: Some(order), ingress, identity, .. } = self else { return };
        let InOrder { incoming, line, next_look_us } = order;
        let (queue, identity) = (&mut out.recovered, &*identity);
        let mut stamp = |origin: &Origin, packet: &mut [u8]| ingress.on_handed_on(identity, origin, packet);
        for (origin, packet) in incoming.iter() {
            match origin.seq {
                Some(seq) => line.push(now_us, seq, (origin, packet), queue, &mut stamp),
                None => line.pass_by((origin, packet), queue, &mut stamp),
            }
        }
        incoming.clear();
        line.expire(now_us);
        let mut gone = None;
        while let Some(seq) = line.awaited() {
            if gone.is_none() && !ingress.is_decided(seq) && now_us >= *next_look_us {
                *next_look_us = now_us + LOOK_US;
                gone = ingress.out_of_reach(seq);
            }
            if !ingress.is_decided(seq) && gone.is_none_or(|last| seq > last) {
                break;
            }
            line.give_up();
        }
        line.drain(queue, &mut |origin, packet| ingress.on_handed_on(identity, origin, packet));
    }
}
