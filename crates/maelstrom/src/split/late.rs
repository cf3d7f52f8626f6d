//! Connections whose clients are answered when their servers have been reached: their first packets wait in
//! the kernel meanwhile.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use maelstrom_core::split::{Ends, Event, Refusal};
use netio::divert::Fate;
use netio::queue::{FirstPacket, PACKETS_MAX, PacketId, Queue};
use tracing::debug;

use super::carrier::Carrier;
use super::driver::Driver;

/// Maximum number of first packets that are read at a time.
const READ_MAX: usize = 64;
/// Longest wait for a server: longer than a kernel tries to connect.
const PATIENCE_US: u64 = 150_000_000;
/// Time from the release of a first packet to the connection.
const HANDSHAKE_US: u64 = 20_000_000;

/// Maximum number of first packets that wait, of all and of one client. The kernel drops those that find its
/// queue full.
const WAITING_MAX: usize = PACKETS_MAX as usize * 3 / 4;
const WAITING_OF_CLIENT_MAX: usize = WAITING_MAX / 4;

/// Client and server.
type Key = (SocketAddr, SocketAddr);

/// Connections that have no socket yet.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) queue: Queue,
    mark: u32,
    asked: HashMap<Key, Asked>,
    by_stream: HashMap<(usize, u32), Key>,
    /// Numbers of first packets that wait, by client.
    waiting: HashMap<IpAddr, usize>,
    waiting_all: usize,
}

/// A connection that was asked of the far gateway.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The first packet, until it is released.
    waiting: Option<PacketId>,
    site: usize,
    carrier: usize,
    stream: u32,
    /// Time of the last step.
    since_us: u64,
}

impl Late {
    /// Takes the queue of this number, whose packets get marks beside this one.
    pub(super) fn open(number: u16, mark: u32) -> io::Result<Self> {
        let queue = Queue::open(number)?;
        Ok(Self {
            queue,
            mark,
            asked: HashMap::new(),
            by_stream: HashMap::new(),
            waiting: HashMap::new(),
            waiting_all: 0,
        })
    }

    /// Whether connections to this site have no socket yet.
    pub(super) fn awaits(&self, site: usize) -> bool {
        self.asked.values().any(|asked| asked.site == site)
    }

    /// Whether a further first packet of this client may wait.
    fn has_room(&self, client: IpAddr) -> bool {
        let of_client = self.waiting.get(&client).copied().unwrap_or_default();
        self.waiting_all < WAITING_MAX && of_client < WAITING_OF_CLIENT_MAX
    }

    fn insert(&mut self, key: Key, asked: Asked) {
        self.by_stream.insert((asked.carrier, asked.stream), key);
        self.asked.insert(key, asked);
        *self.waiting.entry(key.0.ip()).or_default() += 1;
        self.waiting_all += 1;
    }

    /// Notes that a first packet of this client has its decision.
    fn release(&mut self, client: IpAddr) {
        self.waiting_all -= 1;
        if let Some(count) = self.waiting.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&client);
            }
        }
    }

    fn decide(&self, packet: PacketId, fate: Fate) {
        // The kernel may have dropped the packet.
        if let Err(error) = self.queue.release(packet, fate.mark(self.mark)) {
            debug!(%error, "cannot release a first packet");
        }
    }

    fn discard(&self, packet: PacketId) {
        if let Err(error) = self.queue.discard(packet) {
            debug!(%error, "cannot drop a first packet");
        }
    }

    fn remove(&mut self, key: Key) -> Option<Asked> {
        let asked = self.asked.remove(&key)?;
        self.by_stream.remove(&(asked.carrier, asked.stream));
        if asked.waiting.is_some() {
            self.release(key.0.ip());
        }
        Some(asked)
    }

    /// The carrier and stream of a connection that was accepted.
    pub(super) fn claim(&mut self, client: SocketAddr, server: SocketAddr) -> Option<(usize, u32)> {
        let key = (client, server);
        self.asked.get(&key).filter(|asked| asked.waiting.is_none())?;
        self.remove(key).map(|asked| (asked.carrier, asked.stream))
    }

    /// Takes what the far gateway says about a stream. Returns whether the stream has no socket yet.
    pub(super) fn hear(&mut self, carrier: usize, event: Event, now_us: u64) -> bool {
        let (Event::Opened(stream)
        | Event::Arrived(stream)
        | Event::Writable(stream)
        | Event::Reset(stream)
        | Event::Refused(stream, _)) = event
        else {
            return false;
        };
        let Some(&key) = self.by_stream.get(&(carrier, stream)) else { return false };
        let fate = match event {
            Event::Opened(_) => {
                if let Some(asked) = self.asked.get_mut(&key) {
                    asked.since_us = now_us;
                    if let Some(packet) = asked.waiting.take() {
                        self.release(key.0.ip());
                        self.decide(packet, Fate::Taken);
                    }
                }
                return true;
            }
            Event::Refused(_, Refusal::Unreachable) => Fate::Unreachable,
            // The far gateway does not carry it.
            Event::Refused(_, Refusal::Foreign | Refusal::Full) => Fate::Forwarded,
            Event::Refused(..) | Event::Reset(_) => Fate::Refused,
            _ => return true,
        };
        if let Some(packet) = self.remove(key).and_then(|asked| asked.waiting) {
            self.decide(packet, fate);
        }
        true
    }

    /// Forgets a stream that is gone with its carrier. Its client sends its first packet again.
    pub(super) fn lose(&mut self, carrier: usize, stream: u32) {
        let Some(&key) = self.by_stream.get(&(carrier, stream)) else { return };
        if let Some(packet) = self.remove(key).and_then(|asked| asked.waiting) {
            self.discard(packet);
        }
    }

    /// Removes the connections that are older than this, or all of them. Returns their carriers and streams.
    fn expire(&mut self, now_us: u64, all: bool) -> Vec<(usize, u32)> {
        let is_old = |asked: &Asked| {
            let limit_us = if asked.waiting.is_some() { PATIENCE_US } else { HANDSHAKE_US };
            now_us >= asked.since_us + limit_us
        };
        let old: Vec<Key> =
            self.asked.iter().filter(|(_, asked)| all || is_old(asked)).map(|(&key, _)| key).collect();
        let removed: Vec<Asked> = old.into_iter().filter_map(|key| self.remove(key)).collect();
        removed.iter().filter_map(|asked| asked.waiting).for_each(|packet| self.discard(packet));
        removed.into_iter().map(|asked| (asked.carrier, asked.stream)).collect()
    }
}

impl Driver {
    /// Asks far gateways for the connections whose first packets wait.
    pub(super) fn ask_for_connections(&mut self, now_us: u64) {
        for _ in 0..READ_MAX {
            let Some(late) = &mut self.late else { return };
            match late.queue.recv() {
                Ok(Some(packet)) => self.ask(packet, now_us),
                Ok(None) => return,
                Err(error) => return debug!(%error, "cannot read first packets"),
            }
        }
    }

    fn ask(&mut self, packet: FirstPacket, now_us: u64) {
        let FirstPacket { id, client, server } = packet;
        let key = (client, server);
        if let Some(late) = &self.late
            && let Some(asked) = late.asked.get(&key)
        {
            // The client has sent it again.
            return if asked.waiting.is_some() { late.discard(id) } else { late.decide(id, Fate::Taken) };
        }
        let site = self.plan.sites.iter().position(|site| site.contains(server.ip()));
        let has_room = self.late.as_ref().is_some_and(|late| late.has_room(client.ip()));
        let takes = |site: usize| self.sites[site].is_listening() && self.sites[site].unsplit.is_none();
        let site = site.filter(|&site| has_room && takes(site));
        let opened = site.and_then(|site| Some((site, self.open_stream(site, Ends { client, server })?)));
        let Some(late) = &mut self.late else { return };
        let Some((site, (carrier, stream))) = opened else { return late.decide(id, Fate::Forwarded) };
        late.insert(key, Asked { waiting: Some(id), site, carrier, stream, since_us: now_us });
    }

    /// Gives up connections that have no socket yet: those that have waited for too long, or all.
    pub(super) fn expire_asked(&mut self, now_us: u64, all: bool) {
        let Some(late) = &mut self.late else { return };
        for (carrier, stream) in late.expire(now_us, all) {
            if let Some(mux) = self.carriers.get_mut(carrier).and_then(Carrier::mux_mut) {
                mux.reset(stream, &mut self.pool);
            }
        }
    }
}
