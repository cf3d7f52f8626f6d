//! The kernel's knowledge of the sockets of the loop: segments sent again, round trips, rates, and ends of
//! connections.

use std::net::TcpStream;

use netio::transparent;

use super::driver::Driver;

/// Number of looks in which each connection is seen once: a second.
const LOOKS: usize = 10;
/// Maximum number of sockets that are kept until their hosts have everything.
const PARTING_MAX: usize = 1_024;
/// Time after which such a socket is left to the kernel.
const PARTING_US: u64 = 10_000_000;

impl Driver {
    /// Looks at all carriers, at a part of the connections, and at the sockets that part.
    pub(super) fn look(&mut self, now_us: u64) {
        self.sites.iter_mut().for_each(|site| site.rtt_min_us = None);
        for index in self.carriers.indices() {
            let Some(carrier) = self.carriers.get_mut(index) else { continue };
            let Ok(state) = transparent::state(&carrier.socket) else { continue };
            let before = std::mem::replace(&mut carrier.retransmits, state.retransmits);
            let site = &mut self.sites[carrier.site];
            site.retransmits_wan += state.retransmits.saturating_sub(before);
            site.rtt_min_us = site.rtt_min_us.into_iter().chain(state.rtt_min_us).min();
            carrier.follow_rate(state.rate.unwrap_or_default());
            carrier.warmth.follow(&state);
        }
        self.look = (self.look + 1) % LOOKS;
        for index in (self.look..self.flows.bound()).step_by(LOOKS) {
            let Some(flow) = self.flows.get_mut(index) else { continue };
            let Ok(state) = transparent::state(&flow.socket) else { continue };
            let before = std::mem::replace(&mut flow.retransmits, state.retransmits);
            self.sites[flow.site].retransmits_lan += state.retransmits.saturating_sub(before);
            // Nothing else wakes a host whose bytes found no room on disk.
            if self.spool.is_some() && flow.awaits_disk() {
                self.enqueue(index);
            }
            self.give_up_if_late(index, now_us);
        }
        self.parting.retain(|(since_us, socket)| {
            let is_over = transparent::state(socket).map_or(true, |state| state.is_over);
            !is_over && now_us < since_us + PARTING_US
        });
    }

    /// Keeps the socket of a connection that has ended in both directions until its host has everything. A
    /// process that ends takes the rules of nftables with it, and the host's last words would not reach the
    /// socket.
    pub(super) fn part(&mut self, socket: TcpStream, now_us: u64) {
        if transparent::state(&socket).is_ok_and(|state| state.is_over) || self.ignore(&socket).is_err() {
            return;
        }
        if self.parting.len() == PARTING_MAX {
            self.parting.pop_front();
        }
        self.parting.push_back((now_us, socket));
    }
}
