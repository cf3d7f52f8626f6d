//! The carriers of the loop: taken, dialed, read, filled, ended.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use maelstrom_core::split::{Mux, Role};
use netio::transparent;
use tracing::{debug, warn};

use super::carrier::{Broken, Carrier};
use super::driver::{CARRIER, DIAL_US, Driver, SERVED_MAX};
use crate::passive::clock_us;

/// Number of carriers that a gateway dials to each far site.
pub(super) const CARRIERS: usize = 4;
/// Maximum number of carriers from one far site: those of a gateway that has restarted may come before the
/// old ones are known to be dead.
const ACCEPTED_MAX: usize = 2 * CARRIERS;
/// Maximum number of carriers whose far end has not proven itself.
const STRANGERS_MAX: usize = 16;
/// Maximum number of carriers that are accepted at a time.
const ACCEPTS_MAX: usize = 16;
/// Wait after a carrier could not be accepted, for example for lack of descriptors: it stays at the door.
const BREATH: Duration = Duration::from_millis(10);

impl Driver {
    /// Takes carriers of far gateways. Sockets of other addresses are closed at once.
    pub(super) fn accept_carriers(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let (socket, from) = match self.door.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    debug!(%error, "cannot accept a carrier");
                    thread::sleep(BREATH);
                    return;
                }
            };
            let is_unproven = |carrier: &Carrier| carrier.role == Role::Acceptor && carrier.mux().is_none();
            let unproven = self.carriers.iter().filter(|(_, carrier)| is_unproven(carrier)).count();
            if self.is_draining() {
                continue;
            }
            let Some(site) = self.plan.site_of(from.ip().to_canonical()).filter(|_| unproven < STRANGERS_MAX)
            else {
                self.counts.strangers += 1;
                continue;
            };
            if let Err(error) = transparent::prepare_carrier(&socket, &self.options) {
                debug!(%error, "cannot prepare a carrier");
                continue;
            }
            self.add_carrier(Carrier::new(socket, site, Role::Acceptor, clock_us()));
        }
    }

    pub(super) fn add_carrier(&mut self, carrier: Carrier) {
        let index = self.carriers.insert(carrier);
        let added =
            self.carriers.get(index).map(|carrier| self.watch(&carrier.socket, CARRIER | index as u64));
        if let Some(Err(error)) = added {
            debug!(%error, "cannot watch a carrier");
            self.carriers.remove(index);
        }
    }

    /// Dials the carriers that a site lacks.
    pub(super) fn dial(&mut self, site: usize, now_us: u64) {
        let dialed = |carrier: &Carrier| carrier.site == site && carrier.role == Role::Dialer;
        let present = self.carriers.iter().filter(|(_, carrier)| dialed(carrier)).count();
        let is_wanted = !self.plan.ports.is_empty() && !self.is_draining();
        if present >= CARRIERS || now_us < self.sites[site].next_dial_us || !is_wanted {
            return;
        }
        self.sites[site].next_dial_us = now_us + DIAL_US;
        for _ in present..CARRIERS {
            let to = self.plan.sites[site].carrier;
            match transparent::dial(self.plan.listen.ip(), to, &self.options) {
                Ok(socket) => {
                    let carrier = Carrier::new(socket, site, Role::Dialer, now_us);
                    self.add_carrier(carrier.with_advance(!self.plan.is_late));
                }
                Err(error) => return self.tell(site, &error.to_string()),
            }
        }
    }

    /// Tells the operator why a site has no carrier, each reason once.
    pub(super) fn tell(&mut self, site: usize, reason: &str) {
        let told = &mut self.sites[site].told;
        if told.as_deref() != Some(reason) {
            let far = &self.plan.sites[site];
            warn!(peer = far.label, carrier = %far.carrier, "a carrier failed: {reason}");
            *told = Some(reason.to_owned());
        }
    }

    pub(super) fn read_carriers(&mut self, now_us: u64) {
        let mut events = Vec::new();
        for index in self.carriers.indices() {
            let Some(carrier) = self.carriers.get_mut(index) else { continue };
            let was_up = carrier.mux().is_some();
            let (site, role) = (carrier.site, carrier.role);
            let received = carrier.receive(now_us, &self.keys[site], &mut self.pool, &mut events);
            let is_up = carrier.mux().is_some();
            if is_up && !was_up && role == Role::Acceptor {
                self.limit_accepted(site, index);
            }
            for event in events.drain(..) {
                self.handle_event(index, event);
            }
            if let Err(reason) = received {
                self.end_carrier(index, &reason);
            }
        }
    }

    /// Closes the carrier of a site that was silent for longest, if there are too many.
    pub(super) fn limit_accepted(&mut self, site: usize, newest: usize) {
        let accepted = self.carriers.iter().filter_map(|(index, carrier)| {
            let is_other = carrier.site == site && carrier.role == Role::Acceptor && index != newest;
            Some((carrier.mux().filter(|_| is_other)?.heard_us(), index))
        });
        let accepted: Vec<(u64, usize)> = accepted.collect();
        if accepted.len() >= ACCEPTED_MAX
            && let Some(&(_, oldest)) = accepted.iter().min()
        {
            self.end_carrier(oldest, &Broken::Silent);
        }
    }

    /// Closes a carrier, and resets the connections on it.
    pub(super) fn end_carrier(&mut self, index: usize, reason: &Broken) {
        let Some(carrier) = self.carriers.remove(index) else { return };
        let (site, role) = (carrier.site, carrier.role);
        if let Ok(state) = transparent::state(&carrier.socket) {
            self.sites[site].retransmits_wan += state.retransmits.saturating_sub(carrier.retransmits);
        }
        debug!(carrier = %self.plan.sites[site].carrier, "a carrier has ended: {reason}");
        self.counts.carriers_ended += 1;
        for (stream, rest) in carrier.end(&mut self.pool) {
            if let Some(late) = &mut self.late {
                late.lose(index, stream);
            }
            let Some(&flow) = self.by_stream.get(&(index, stream)) else { continue };
            let Some(flow) = self.forget(flow) else { continue };
            let is_whole = rest.is_some_and(|rest| self.hand_over_rest(flow, rest));
            self.counts.reset_with_carrier += u64::from(!is_whole);
        }
        if role == Role::Dialer {
            self.tell(site, &reason.to_string());
            self.follow_site(site, clock_us());
        }
    }

    /// Fills carriers with the bytes of flows that wait for room, in turn, and sends.
    pub(super) fn fill_carriers(&mut self) {
        for index in self.carriers.indices() {
            for _ in 0..SERVED_MAX {
                let Some(carrier) = self.carriers.get_mut(index) else { break };
                let has_room = carrier.mux().is_some_and(Mux::has_room);
                if let Some(flow) = has_room.then(|| carrier.waiting.pop_front()).flatten() {
                    if let Some(flow) = self.flows.get_mut(flow) {
                        flow.awaits_room = false;
                    }
                    self.serve(flow);
                    continue;
                }
                if let Err(reason) = carrier.transmit() {
                    self.end_carrier(index, &reason);
                    break;
                }
                let Some(carrier) = self.carriers.get(index) else { break };
                if !carrier.is_writable || carrier.waiting.is_empty() {
                    break;
                }
            }
        }
    }
}
