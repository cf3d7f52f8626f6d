//! The connections of the loop: taken, opened, served, ended.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};

use maelstrom_core::split::{Ends, Event, Refusal, Role};
use netio::interface::Interface;
use netio::transparent;
use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
use tracing::{debug, warn};

use super::carrier::Carrier;
use super::driver::{DIAL_US, Driver, FLOW, SERVED_MAX, is_sound};
use super::flow::{Flow, Served, refusal};
use super::site::Unsplit;
use super::warmth;
use crate::passive::clock_us;

/// Maximum number of connections of a listener that are accepted at a time.
const ACCEPTS_MAX: usize = 32;
/// Index of the loopback interface in each network namespace.
const LOOPBACK: u32 = 1;

impl Driver {
    /// Takes connections of hosts of this site. If there is room for no more, those that the kernel has
    /// accepted already are still taken.
    pub(super) fn accept_connections(&mut self, site: usize, v6: usize) {
        self.accept_some(site, v6);
        if self.is_full() {
            self.follow_site(site, clock_us());
        }
    }

    fn accept_some(&mut self, site: usize, v6: usize) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.sites.get(site).and_then(|site| site.listeners[v6].as_ref()) else {
                return;
            };
            let (socket, client) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_exhausted(&error) => {
                    warn!("cannot take connections, which go unsplit for a second: {error}");
                    self.pause(DIAL_US, Unsplit::Exhausted);
                    return self.follow_site(site, clock_us());
                }
                // An error of this connection alone.
                Err(_) => continue,
            };
            if let Err(error) = self.take(site, socket, client) {
                debug!(%error, "cannot take a connection");
                self.counts.failed += 1;
            }
        }
    }

    pub(super) fn take(&mut self, site: usize, socket: TcpStream, client: SocketAddr) -> io::Result<()> {
        let server = socket.local_addr()?;
        let other = |text: &str| Err(io::Error::other(text.to_owned()));
        // Whoever connects to the listener itself wants no other machine.
        if !self.plan.sites[site].contains(server.ip()) {
            return other("the listener was addressed itself");
        }
        transparent::prepare(&socket)?;
        let ends = Ends { client, server };
        let place = match &mut self.late {
            Some(late) => late.claim(client, server),
            None => self.open_stream(site, ends),
        };
        let Some(place) = place else { return other("no carrier works, or none has room for a stream") };
        self.counts.taken += 1;
        self.add_flow(Flow::new(socket, site, place, false, clock_us()))
    }

    /// Asks the far gateway for a connection, on a carrier that is fast and has few. Returns carrier and
    /// stream.
    pub(super) fn open_stream(&mut self, site: usize, ends: Ends) -> Option<(usize, u32)> {
        let now_us = clock_us();
        let usable = self.carriers.iter().filter_map(|(index, carrier)| {
            let mux = carrier.mux().filter(|_| carrier.site == site && carrier.role == Role::Dialer)?;
            (is_sound(mux, now_us) && !mux.is_used_up()).then(|| (carrier.warmth, mux.streams(), index))
        });
        let index = warmth::choose(&usable.collect::<Vec<_>>())?;
        let mux = self.carriers.get_mut(index).and_then(Carrier::mux_mut)?;
        Some((index, mux.open(ends, &mut self.pool)?))
    }

    pub(super) fn add_flow(&mut self, flow: Flow) -> io::Result<()> {
        let key = (flow.carrier, flow.stream);
        let index = self.flows.insert(flow);
        self.by_stream.insert(key, index);
        let watched = self.flows.get(index).map(|flow| self.watch(&flow.socket, FLOW | index as u64));
        if let Some(Err(error)) = watched {
            self.reset(index);
            return Err(error);
        }
        Ok(())
    }

    pub(super) fn handle_event(&mut self, carrier: usize, event: Event) {
        let now_us = clock_us();
        if let Event::Refused(_, Refusal::Full) = event
            && let Some(carrier) = self.carriers.get(carrier)
        {
            self.sites[carrier.site].far_full_until_us = now_us + DIAL_US;
            self.follow_site(carrier.site, now_us);
        }
        let is_late = self.late.as_mut().is_some_and(|late| late.hear(carrier, event, now_us));
        let (stream, is_gone) = match event {
            Event::Open { stream, ends } => return self.open(carrier, stream, ends),
            Event::Opened(stream) | Event::Arrived(stream) | Event::Writable(stream) => (stream, false),
            Event::Refused(stream, reason) => {
                debug!("a connection was refused: {reason}");
                self.counts.refused += 1;
                (stream, true)
            }
            Event::Reset(stream) => {
                self.counts.reset_there += 1;
                (stream, true)
            }
            Event::Leaving => {
                if let Some(site) = self.carriers.get(carrier).map(|carrier| carrier.site) {
                    self.follow_site(site, clock_us());
                }
                return;
            }
        };
        let Some(&flow) = self.by_stream.get(&(carrier, stream)).filter(|_| !is_late) else { return };
        if is_gone {
            // Its socket resets the connection as it is dropped.
            self.forget(flow);
        } else {
            self.enqueue(flow);
        }
    }

    /// Opens a connection for the far gateway.
    pub(super) fn open(&mut self, carrier: usize, stream: u32, ends: Ends) {
        let Some(site) = self.carriers.get(carrier).map(|carrier| carrier.site) else { return };
        let opened = if self.plan.admits(site, &ends) && self.leads_to_site(&ends) {
            transparent::connect(ends.client, ends.server).map_err(|error| refusal(&error))
        } else {
            Err(Refusal::Foreign)
        };
        match opened {
            Ok(socket) => {
                self.counts.opened += 1;
                let flow = Flow::new(socket, site, (carrier, stream), true, clock_us());
                if let Err(error) = self.add_flow(flow) {
                    debug!(%error, "cannot watch a connection");
                }
            }
            Err(reason) => self.refuse(carrier, stream, reason),
        }
    }

    /// Whether a packet that arrives with these ends would be forwarded to this site. This machine's own
    /// sockets would answer to the client past the gateway.
    fn leads_to_site(&self, ends: &Ends) -> bool {
        let Ok(Some(wan)) = Interface::index_of(self.plan.wan()) else { return false };
        let out = self.routes.leaves_by(ends.client.ip(), ends.server.ip(), wan);
        matches!(out, Ok(Some(out)) if out != wan && out != LOOPBACK)
    }

    pub(super) fn refuse(&mut self, carrier: usize, stream: u32, reason: Refusal) {
        self.counts.refused_here += 1;
        if let Some(mux) = self.carriers.get_mut(carrier).and_then(Carrier::mux_mut) {
            mux.refuse(stream, reason, &mut self.pool);
        }
    }

    pub(super) fn enqueue(&mut self, index: usize) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        if !std::mem::replace(&mut flow.is_queued, true) {
            self.queue.push_back(index);
        }
    }

    pub(super) fn serve_flows(&mut self) {
        for _ in 0..SERVED_MAX {
            let Some(index) = self.queue.pop_front() else { return };
            if let Some(flow) = self.flows.get_mut(index) {
                flow.is_queued = false;
            }
            self.serve(index);
        }
    }

    pub(super) fn serve(&mut self, index: usize) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        let (site, number, stream) = (flow.site, flow.carrier, flow.stream);
        let Some(carrier) = self.carriers.get_mut(number) else { return };
        let Some(mux) = carrier.mux_mut() else { return };
        match flow.serve(mux, &mut self.pool, self.spool.as_mut(), &mut self.sites[site].moved) {
            Served::Waits => {}
            Served::Again => self.enqueue(index),
            Served::NeedsRoom => {
                if !std::mem::replace(&mut flow.awaits_room, true) {
                    carrier.waiting.push_back(index);
                }
            }
            Served::Done => {
                mux.close(stream, &mut self.pool);
                if let Err(error) = transparent::settle(&flow.socket) {
                    debug!(%error, "cannot let a connection finish");
                }
                self.counts.finished += 1;
                if let Some(flow) = self.forget(index) {
                    self.part(flow.socket, clock_us());
                }
            }
            Served::Reset => self.reset(index),
            Served::Refused(reason) => {
                self.refuse(number, stream, reason);
                self.forget(index);
            }
        }
    }

    /// Gives up a connection whose server has not answered in time. The kernel tries for longer; its message
    /// of a host that is not there goes to the client, whose address the socket has.
    pub(super) fn give_up_if_late(&mut self, index: usize, now_us: u64) {
        let patience_us = self.plan.connect.as_micros() as u64;
        let late = self.flows.get(index).filter(|flow| flow.is_connecting);
        let Some(flow) = late.filter(|flow| now_us >= flow.since_us + patience_us) else { return };
        self.refuse(flow.carrier, flow.stream, Refusal::Unreachable);
        self.forget(index);
    }

    /// Resets a connection at both ends.
    pub(super) fn reset(&mut self, index: usize) {
        let Some(flow) = self.flows.get(index) else { return };
        let stream = flow.stream;
        if let Some(mux) = self.carriers.get_mut(flow.carrier).and_then(Carrier::mux_mut) {
            mux.reset(stream, &mut self.pool);
        }
        self.counts.reset_here += 1;
        self.forget(index);
    }

    /// Removes a connection. Its socket resets it, unless it is settled.
    pub(super) fn forget(&mut self, index: usize) -> Option<Flow> {
        let flow = self.flows.remove(index)?;
        self.by_stream.remove(&(flow.carrier, flow.stream));
        if let Ok(state) = transparent::state(&flow.socket) {
            self.sites[flow.site].retransmits_lan += state.retransmits.saturating_sub(flow.retransmits);
        }
        Some(flow)
    }
}

/// Whether the system has no descriptors or memory left.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS | ENOMEM))
}
