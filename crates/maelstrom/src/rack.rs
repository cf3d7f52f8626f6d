//! The rack of this gateway: heartbeats over the LAN, and the parts that it holds (docs/adr/0032).
//!
//! The core's [`Rack`] decides. This file gives it the datagrams and the standing of each part, and passes on
//! what it decides: to the other members, to the gateway ([`maelstrom_core::Gateway::hold`]), and to the log.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use ipnet::IpNet;
use maelstrom_core::Gateway;
use maelstrom_core::observe::{EventKind, RackNews};
use maelstrom_core::rack::{BEAT_LEN, Part, Rack, RackEvent, RackHandover, Standing};
use tracing::debug;

use crate::config;
use crate::error::StartError;
use crate::passive::Passive;
use crate::random::entropy;
use crate::status::{MemberStatus, PartStatus, RackStatus, counts};

/// Maximum number of datagrams that are read in one turn of the loop.
const DATAGRAMS_MAX: usize = 64;
/// Interval between looks at the socket while the loop turns by ticks, which it does not interrupt.
const LOOK_US: u64 = 2_000;

/// This gateway as a member of a rack.
pub(crate) struct Racked {
    rack: Rack,
    pub(crate) socket: UdpSocket,
    next_look_us: u64,
    /// Heartbeats that the socket refused.
    unsent: u64,
}

/// Opens the socket for heartbeats.
pub(crate) fn open_socket(rack: &config::Rack) -> Result<UdpSocket, StartError> {
    let address: SocketAddr = rack.address();
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    };
    open().map_err(|error| StartError::new(format!("listen for heartbeats of the rack on {address}"), error))
}

impl Racked {
    pub(crate) fn new(now_us: u64, rack: &config::Rack, socket: UdpSocket) -> Result<Self, StartError> {
        let rack = Rack::new(now_us, rack.core(), entropy()?);
        Ok(Self { rack, socket, next_look_us: 0, unsent: 0 })
    }

    /// Continues as the member that another process was, with its socket.
    pub(crate) fn resume(
        now_us: u64,
        rack: &config::Rack,
        (socket, left): (UdpSocket, RackHandover),
    ) -> Result<Self, StartError> {
        let rack = Rack::resume(now_us, rack.core(), entropy()?, &left);
        Ok(Self { rack, socket, next_look_us: 0, unsent: 0 })
    }

    /// Keeps the parts as they are while another process takes over; returns the networks that are held.
    pub(crate) fn begin_handover(&mut self) -> Vec<IpNet> {
        self.rack.begin_handover()
    }

    /// The state for the next process.
    pub(crate) fn hand_over(&self) -> RackHandover {
        self.rack.hand_over()
    }

    /// Goes on alone after an upgrade that has failed.
    pub(crate) fn take_back(&mut self) {
        self.rack.take_back();
    }

    /// Time of the next heartbeat.
    pub(crate) fn due_us(&self) -> u64 {
        self.rack.poll_timeout()
    }

    /// Passes the datagrams that have arrived to the core.
    fn receive(&mut self, now_us: u64) {
        // One byte more shows datagrams that are longer than a heartbeat.
        let mut datagram = [0; BEAT_LEN + 1];
        for _ in 0..DATAGRAMS_MAX {
            match self.socket.recv_from(&mut datagram) {
                Ok((len, from)) => self.rack.handle_datagram(now_us, from, &mut datagram[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The host of another member refuses heartbeats while its gateway does not run.
                Err(error) => debug!(%error, "cannot receive heartbeats"),
            }
        }
    }

    fn send(&mut self) {
        while let Some((to, datagram)) = self.rack.poll_datagram() {
            if let Err(error) = self.socket.send_to(&datagram, to) {
                self.unsent += 1;
                debug!(%error, %to, "cannot send a heartbeat");
            }
        }
    }

    /// The rack in the status of the gateway.
    pub(crate) fn status(&self, now_us: u64) -> RackStatus {
        let config = self.rack.config();
        let name = |member: usize| config.members[member].name.clone();
        let members = config.members.iter().enumerate().map(|(number, member)| MemberStatus {
            name: member.name.clone(),
            address: member.address,
            present: self.rack.is_present(number),
            differs: self.rack.differs(number),
            last_heard_ms: self.rack.silence_us(now_us, number).map(|us| us / 1_000),
        });
        let parts = config.parts.iter().enumerate().map(|(number, part)| PartStatus {
            name: part.name.clone(),
            networks: part.networks.clone(),
            members: part.order.iter().map(|&member| name(member)).collect(),
            held: self.rack.holds(number),
            protected_by: self.rack.protectors(number).map(name).collect(),
        });
        RackStatus {
            member: name(config.own),
            members: members.collect(),
            parts: parts.collect(),
            unheeded: counts(self.rack.unheeded().iter()),
            unsent: self.unsent,
        }
    }
}

/// Ability of the gateway to protect a part.
fn standing(gateway: &Gateway, part: &Part, is_complete: bool) -> Standing {
    let mut ready = part.networks.iter().filter(|network| gateway.is_ready_for(**network)).peekable();
    let is_ready = is_complete && ready.peek().is_some();
    Standing { is_ready, is_protected: is_ready && ready.all(|network| gateway.protects(*network)) }
}

impl Passive {
    /// Takes and leaves parts, and sends heartbeats.
    pub(crate) fn follow_rack(&mut self) {
        let now_us = self.engine.now_us;
        let is_complete = self.ports.are_watched_complete();
        if self.ports.outlets.is_silent {
            // Another process is the member.
            return;
        }
        let Some(racked) = &mut self.rack else { return };
        if self.tick.period_us().is_none() || now_us >= racked.next_look_us {
            racked.next_look_us = now_us + LOOK_US;
            racked.receive(now_us);
        }
        let gateway = &self.engine.gateway;
        racked.rack.handle_timeout(now_us, |part| standing(gateway, part, is_complete));
        racked.send();
        let mut has_changed = false;
        while let Some(event) = racked.rack.poll_event() {
            let config = racked.rack.config();
            let (news, name) = match event {
                RackEvent::Present(member) => (RackNews::MemberPresent, &config.members[member].name),
                RackEvent::Gone(member) => (RackNews::MemberGone, &config.members[member].name),
                RackEvent::Differs(member) => (RackNews::MemberDiffers, &config.members[member].name),
                RackEvent::Taken(part) => (RackNews::PartTaken, &config.parts[part].name),
                RackEvent::Released(part) => (RackNews::PartReleased, &config.parts[part].name),
            };
            has_changed |= matches!(news, RackNews::PartTaken | RackNews::PartReleased);
            self.watch.note(now_us, EventKind::Rack { news, name: name.clone() }, &self.config);
        }
        if has_changed {
            self.engine.gateway.hold(now_us, Some(racked.rack.held()));
        }
    }

    /// Tells the other members that this gateway stops.
    pub(crate) fn leave_rack(&mut self) {
        if let Some(racked) = &mut self.rack {
            racked.rack.leave();
            racked.send();
        }
    }

    /// Becomes a member of the rack of a new configuration, or of none. `socket` is for a new address.
    pub(crate) fn join_rack(&mut self, rack: Option<&config::Rack>, socket: Option<UdpSocket>) {
        let now_us = crate::passive::clock_us();
        // The others take its parts at once.
        self.leave_rack();
        let present = self.rack.take().map(|racked| racked.socket);
        let joined = rack.zip(socket.or(present)).map(|(rack, socket)| Racked::new(now_us, rack, socket));
        match joined.transpose() {
            Ok(racked) => {
                self.engine.gateway.hold(now_us, racked.is_some().then(Vec::new));
                self.rack = racked;
            }
            // Nothing is held without heartbeats: the other members take all parts.
            Err(error) => {
                self.engine.gateway.hold(now_us, Some(Vec::new()));
                tracing::warn!("the rack is left: {error}");
            }
        }
    }
}
