//! Packets that travel inside datagrams of ours.

use super::Egress;
use crate::identity::Name;
use crate::packet::Packet;
use crate::sender::Outlet;
use crate::symbol::{SYMBOL_HEADER, Symbol};
use crate::wire::Entry;

impl Egress {
    /// Number of repairs sent, and of those that wait for packets of a tunnel in front of them.
    pub(crate) fn repairs_begun(&self) -> u64 {
        self.sender.repairs_begun()
    }

    /// Sends a packet to the peer's site, at the latest at [`Egress::packets_due_us`], and codes it unless it
    /// `is_aside`. Repairs leave after the packets that they contain.
    pub(crate) fn handle_tunnelled(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        is_aside: bool,
        outlet: &mut Outlet<'_>,
    ) {
        let (bytes, fields) = (packet.as_slice(), packet.mutable_fields());
        // A longer one cannot be coded.
        if is_aside || bytes.len() + SYMBOL_HEADER > self.symbol_max {
            return self.sender.send_packet(bytes, fields.tos, None, outlet);
        }
        if self.floor.on_packet(now_us, bytes.len()) {
            self.on_floor(now_us);
        }
        let (symbol, entry) = (Symbol::whole(bytes), Entry { seq: self.next, name: Name(0), fields });
        self.sender.send_packet(bytes, fields.tos, Some(self.next), outlet);
        // The symbol is short enough.
        let _ = self.code_packet(now_us, entry, &symbol, outlet);
        self.tail.on_packet();
        self.answers.keep(outlet.now_us, entry, packet, &symbol);
        self.next = self.next.plus(1);
        self.quiet.on_packet(now_us, bytes.len());
        self.sender.on_left(now_us);
        self.sender.on_source(bytes.len());
    }

    /// Sends the packets that wait for others, if they need not wait any longer.
    pub(crate) fn flush_due_packets(&mut self, outlet: &mut Outlet<'_>) {
        self.sender.flush_due_packets(outlet);
    }

    /// Time at which [`Egress::flush_due_packets`] is due.
    pub(crate) fn packets_due_us(&self) -> Option<u64> {
        self.sender.packets_due_us()
    }

    /// Changes the longest time for which packets wait for others.
    pub(crate) fn set_aggregate(&mut self, aggregate_us: u64) {
        self.sender.set_aggregate(aggregate_us);
    }
}
