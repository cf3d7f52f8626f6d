//! Packets for peers in tunnel mode.

use std::net::SocketAddr;

use super::Gateway;
use crate::counters::Unprotected;
use crate::outbox::Outbox;
use crate::packet::Packet;

impl Gateway {
    /// Takes a packet for the site of a peer that is reached by a tunnel, from its IP header on. It leaves
    /// with [`Gateway::flush_tunnels`], or later if the configuration lets packets wait for others; packets
    /// of one type of service may share a datagram.
    pub fn handle_tunnelled(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) {
        if let Err(reason) = self.tunnel(now_us, packet, out) {
            self.refused.add(reason);
        }
    }

    fn tunnel(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) -> Result<(), Unprotected> {
        let packet = Packet::new_whole(packet)?;
        let index = self.sites.find(packet.destination()).ok_or(Unprotected::NoPeer)?;
        let care = match self.classes.judge(&packet) {
            Err(Unprotected::Class) => None,
            other => Some(other?),
        };
        let peer = &mut self.peers[index];
        if !peer.config.is_tunnel {
            return Err(Unprotected::NoPeer);
        }
        let repairs = peer.egress.repairs_begun();
        peer.handle_tunnelled(now_us, &packet, care, out)?;
        if let Some(care) = care {
            self.classes.on_protected(&care);
            self.classes.on_repairs(care.class, peer.egress.repairs_begun().saturating_sub(repairs));
        }
        Ok(())
    }

    /// Sends the packets for tunnels that wait for others to share a datagram with. The driver calls it when
    /// no more of them wait for it. Returns whether all that were due are in the outbox; if not, the driver
    /// empties it and calls again.
    pub fn flush_tunnels(&mut self, now_us: u64, out: &mut Outbox) -> bool {
        for peer in self.peers.iter_mut().filter(|peer| peer.config.is_tunnel) {
            if out.is_nearly_full() {
                return false;
            }
            peer.flush_due_packets(now_us, out);
        }
        true
    }

    /// Whether packets travel to a peer, given by its number, in a tunnel.
    pub(super) fn is_tunnel(&self, peer: usize) -> bool {
        self.peers[peer].config.is_tunnel
    }

    /// Whether a datagram from this address is of use after the gateway stood still: it may carry packets of
    /// a tunnel, which nothing else delivers.
    pub fn outlasts_stalls(&self, from: SocketAddr) -> bool {
        let mut peers = self.config.peers.iter();
        peers.any(|peer| peer.is_tunnel && peer.addresses().any(|address| address == from))
    }
}
