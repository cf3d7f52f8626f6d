//! The sockets of the repair channel: that of `listen`, and one for each local end of further paths.
//!
//! The end of a further path may be missing: an uplink that is being dialled has neither interface nor
//! address. The gateway then goes on without that path, and tries again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};

use maelstrom_core::outbox::{Envelope, Queue};
use maelstrom_core::{Ecn, Inbound, PeerConfig, Source};
use netio::interface::Interface;
use netio::udp::{Received, RepairSocket};
use tracing::{debug, info, warn};

use crate::config::{GatewayConfig, PeerPath};
use crate::inbox::Inbox;
use crate::passive::{Passive, clock_us};
use crate::ports::Outlets;

/// Interval between checks whether the interfaces of further paths are the same.
const CHECK_US: u64 = 1_000_000;

/// The interface by which nothing reaches another machine.
const LOOPBACK: &str = "lo";

/// Local end of further paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DoorAt {
    local: SocketAddr,
    interface: Option<String>,
}

impl DoorAt {
    /// The end of a path; `None` if it is `listen`.
    fn of(path: &PeerPath, listen: SocketAddr) -> Option<Self> {
        let at = Self { local: path.local.unwrap_or(listen), interface: path.interface.clone() };
        (at.local != listen || at.interface.is_some()).then_some(at)
    }

    /// Number of the socket here. A reload that adds or removes other ends does not change it, so that the
    /// sessions of all peers go on: a hash, in which two of a few ends do not collide.
    fn number(&self) -> usize {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        // 0 is the socket of `listen`.
        (hasher.finish() as usize).max(1)
    }

    /// Number of its interface, which another one of the same name does not have.
    fn index(&self) -> Option<u32> {
        Interface::index_of(self.interface.as_deref()?).ok().flatten()
    }
}

/// The local ends of all further paths.
pub(crate) fn ends(config: &GatewayConfig) -> Vec<DoorAt> {
    let listen = config.gateway.listen;
    let mut ends = Vec::new();
    for path in config.peers.iter().flat_map(|peer| &peer.paths) {
        ends.extend(DoorAt::of(path, listen).filter(|at| !ends.contains(at)));
    }
    ends
}

/// Number of the socket of a path.
pub(crate) fn number(config: &GatewayConfig, path: &PeerPath) -> usize {
    DoorAt::of(path, config.gateway.listen).map_or(0, |at| at.number())
}

/// A socket of further paths.
pub(crate) struct Door {
    pub(crate) at: DoorAt,
    pub(crate) number: usize,
    /// `None` while its address or interface is missing.
    pub(crate) socket: Option<RepairSocket>,
    /// Number of the interface to which it is bound.
    index: Option<u32>,
    /// Datagrams that found the buffers of earlier sockets full.
    overflowed_before: u64,
}

impl Door {
    pub(crate) fn open(at: DoorAt) -> Self {
        let (number, index) = (at.number(), at.index());
        let by = at.interface.clone().map(|name| format!(" by {name}")).unwrap_or_default();
        let socket = match RepairSocket::bind_to(at.local, at.interface.as_deref()) {
            Ok(socket) => Some(socket),
            Err(error) => {
                warn!("cannot use the path from {}{by} yet: {error}", at.local);
                None
            }
        };
        Self { at, number, socket, index, overflowed_before: 0 }
    }

    /// Number of datagrams that found no room here.
    fn overflowed(&self) -> u64 {
        self.overflowed_before + self.socket.as_ref().map_or(0, RepairSocket::overflowed)
    }

    /// Opens the socket if it is missing, or again if its interface has been replaced; returns whether it is
    /// another one.
    fn follow(&mut self) -> bool {
        let index = self.at.index();
        if self.socket.is_some() && index == self.index {
            return false;
        }
        match RepairSocket::bind_to(self.at.local, self.at.interface.as_deref()) {
            Ok(socket) => {
                info!("the path from {} can be used again", self.at.local);
                self.overflowed_before = self.overflowed();
                (self.socket, self.index) = (Some(socket), index);
                true
            }
            Err(error) => {
                debug!(%error, "a path has no local end");
                false
            }
        }
    }
}

/// Puts a datagram that came to a door into the inbox; returns whether there was room. Its time of arrival is
/// by the gateway's clock.
pub(crate) fn keep(inbox: &mut Inbox, door: usize, received: Received, datagram: &[u8]) -> bool {
    let source = Source { door, address: received.from };
    let arrived_us = received.arrived.as_micros() as u64;
    // The clock is read after the socket: a packet that is captured later arrived after the datagram.
    inbox.push(Inbound { source, ecn: Ecn::of(received.tos), arrived_us }, clock_us(), datagram)
}

/// Sends datagrams by the paths that they take; returns how many the socket of `listen` refused. Others
/// are missed on their paths, of which the status tells.
pub(crate) fn send(
    listen: &mut RepairSocket,
    doors: &mut [Door],
    peers: &[PeerConfig],
    datagrams: &Queue<Envelope>,
) -> u64 {
    let by = |door: usize| {
        let copies = datagrams.iter().flat_map(move |(envelope, datagram)| {
            copies(peers, envelope).map(move |(own, to)| (own, to, envelope.tos(), datagram))
        });
        copies.filter(move |&(own, ..)| own == door).map(|(_, to, tos, datagram)| (to, tos, datagram))
    };
    let refused = listen.send_marked(by(0));
    for door in doors {
        if let Some(socket) = &mut door.socket {
            let _ = socket.send_marked(by(door.number));
        }
    }
    refused
}

/// Socket and address of each copy of a datagram.
pub(crate) fn copies(
    peers: &[PeerConfig],
    envelope: Envelope,
) -> impl Iterator<Item = (usize, SocketAddr)> + '_ {
    let elsewhere = envelope.elsewhere.map(|to| (to.door, to.address));
    let paths = envelope.paths.iter().filter(move |_| elsewhere.is_none());
    let by_paths = paths.filter_map(move |path| peers[envelope.peer].path(path));
    elsewhere.into_iter().chain(by_paths.filter(|(_, to)| !to.ip().is_unspecified()))
}

/// The interfaces by which the datagrams of `listen` come and leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenBy {
    /// All, as the routes say.
    Any,
    /// None, because the one that the file names is missing.
    Nowhere,
    /// The one with this number.
    Index(u32),
}

impl Outlets {
    /// Lets the datagrams of `listen` pass by one interface alone, or by all. While there is no interface of
    /// this name none leaves, so that the first path never shares the uplink of another.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn bind_listen(&mut self, interface: Option<&str>) -> io::Result<()> {
        let by = match interface {
            Some(name) => Interface::index_of(name)?.map_or(ListenBy::Nowhere, ListenBy::Index),
            None => ListenBy::Any,
        };
        if self.listen_by == Some(by) {
            return Ok(());
        }
        self.socket.bind_interface(if by == ListenBy::Nowhere { Some(LOOPBACK) } else { interface })?;
        self.listen_by = Some(by);
        match (by, interface) {
            (ListenBy::Nowhere, Some(name)) => {
                warn!("there is no interface {name}: no datagram of `listen` leaves until there is one");
            }
            (_, Some(name)) => info!("datagrams of `listen` come and leave by {name} alone"),
            (_, None) => {}
        }
        Ok(())
    }
}

/// Counts of datagrams that found the buffer of a socket full.
impl Outlets {
    /// Replaces the socket of `listen`.
    pub(crate) fn replace_listen(&mut self, socket: RepairSocket) {
        self.overflowed_before += self.socket.overflowed();
        (self.socket, self.listen_by) = (socket, None);
    }

    /// Adds the doors that were `opened`, and closes those that the configuration lacks. Returns whether
    /// their number has changed.
    pub(crate) fn replace_doors(&mut self, config: &GatewayConfig, opened: Vec<Door>) -> bool {
        let (ends, before) = (ends(config), self.doors.len());
        let doors = std::mem::take(&mut self.doors).into_iter().chain(opened);
        let (kept, closed): (Vec<_>, Vec<_>) = doors.partition(|door| ends.contains(&door.at));
        self.overflowed_before += closed.iter().map(Door::overflowed).sum::<u64>();
        self.doors = kept;
        before != self.doors.len()
    }

    /// Number of datagrams that found no room at any socket.
    pub(crate) fn overflowed(&self) -> u64 {
        let at_doors: u64 = self.doors.iter().map(Door::overflowed).sum();
        self.overflowed_before + self.socket.overflowed() + at_doors
    }

    /// Takes the kernel's counts over, which wrap.
    fn note_overflow(&mut self) {
        self.socket.note_overflow();
        self.doors.iter_mut().filter_map(|door| door.socket.as_mut()).for_each(RepairSocket::note_overflow);
    }
}

impl Passive {
    /// Reads the datagrams that wait at the sockets of further paths into the inbox; returns whether more may
    /// wait.
    pub(crate) fn collect_at_doors(&mut self) -> bool {
        let (inbox, counts) = (&mut self.inbox, &mut self.engine.counts);
        let mut more = false;
        for door in &mut self.ports.outlets.doors {
            let Some(socket) = &mut door.socket else { continue };
            let received = socket.recv_noted(|received, datagram| {
                if !keep(inbox, door.number, received, datagram) {
                    counts.inbox_full += 1;
                }
            });
            match received {
                Ok(here) => more |= here,
                Err(error) => debug!(%error, "cannot receive on a path"),
            }
        }
        more
    }

    /// Follows interfaces and addresses that come and go.
    pub(crate) fn follow_doors(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.next_door_check_us {
            return;
        }
        self.next_door_check_us = now_us + CHECK_US;
        self.ports.outlets.note_overflow();
        let by = self.config.gateway.listen_interface.as_deref();
        if let Err(error) = self.ports.outlets.bind_listen(by) {
            debug!(%error, "cannot bind the socket of `listen` to its interface");
        }
        for door in &mut self.ports.outlets.doors {
            if door.follow()
                && let Some(socket) = &door.socket
                && let Err(error) =
                    self.poller.add(socket, crate::passive::SOCKET, netio::poll::Interest::Readable)
            {
                warn!("cannot watch the path from {}: {error}", door.at.local);
            }
        }
    }
}

/// Addresses of all peers on all paths.
pub(crate) fn far_ends(peers: &[PeerConfig]) -> impl Iterator<Item = IpAddr> + '_ {
    peers.iter().flat_map(|peer| peer.addresses().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "[gateway]\nmode = \"tunnel\"\nwan = \"wan0\"\nlisten = \"203.0.113.1:4700\"\n";

    /// A peer with a further path from each of these ports.
    fn peer(last: u8, ports: &[u16]) -> String {
        let path = |port: &u16| {
            format!("{{ address = \"198.51.100.{last}:4700\", local = \"203.0.113.1:{port}\" }}")
        };
        let paths: Vec<String> = ports.iter().map(path).collect();
        let (networks, paths) = (format!("10.82.{last}.0/24"), paths.join(", "));
        format!(
            "[[peer]]\naddress = \"203.0.113.{last}:4700\"\nnetworks = [\"{networks}\"]\n\
             key_file = \"{last}.key\"\npaths = [{paths}]\n"
        )
    }

    /// Numbers of the sockets of all paths.
    fn numbers(peers: &[String]) -> Vec<usize> {
        let directory = std::env::temp_dir().join(format!("undrop-doors-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for last in 2..5 {
            let key = directory.join(format!("{last}.key"));
            let _ = std::fs::remove_file(&key);
            keyfile::KeyText::new(&[last; 32]).write_new(&key).unwrap();
        }
        let text = HEAD.to_owned() + &peers.concat();
        let config = crate::config::parse(&directory.join("gateway.toml"), &text).config().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        config.peers.iter().flat_map(|peer| &peer.paths).map(|path| number(&config, path)).collect()
    }

    #[test]
    fn the_sockets_of_a_peer_keep_their_numbers_while_paths_of_others_come_and_go() {
        let own = peer(3, &[4701, 4702, 4700]);
        let before = numbers(std::slice::from_ref(&own));
        assert!(before[0] > 0 && before[1] > 0 && before[0] != before[1], "{before:?}");
        assert_eq!(before[2], 0, "the socket of `listen`");
        let after = numbers(&[peer(2, &[4703, 4702]), own, peer(4, &[4704])]);
        assert_eq!(after[2..5], before[..]);
        assert_eq!(after[1], before[1], "paths from one end share a socket");
    }
}
