//! Connections whose clients are answered when their servers have been reached: their first packets wait in
//! the kernel meanwhile.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use maelstrom_core::split::{Ends, Event, Refusal};
use netio::divert::Fate;
use netio::queue::{FirstPacket, PacketId, Queue};
use tracing::debug;

use super::carrier::Carrier;
use super::driver::Driver;

/// Maximum number of first packets that are read at a time.
const PACKETS_MAX: usize = 64;
/// Longest wait for a server: longer than a kernel tries to connect.
const PATIENCE_US: u64 = 150_000_000;
/// Time from the release of a first packet to the connection.
const HANDSHAKE_US: u64 = 20_000_000;

/// Client and server.
type Key = (SocketAddr, SocketAddr);

/// Connections that have no socket yet.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) queue: Queue,
    mark: u32,
    asked: HashMap<Key, Asked>,
    by_stream: HashMap<(usize, u32), Key>,
}

/// A connection that was asked of the far gateway.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The first packet, until it is released.
    waiting: Option<PacketId>,
    carrier: usize,
    stream: u32,
    /// Time of the last step.
    since_us: u64,
}

impl Late {
    /// Takes the queue of this number, whose packets get marks beside this one.
    pub(super) fn open(number: u16, mark: u32) -> io::Result<Self> {
        let queue = Queue::open(number)?;
        Ok(Self { queue, mark, asked: HashMap::new(), by_stream: HashMap::new() })
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
        for _ in 0..PACKETS_MAX {
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
        let site = site.filter(|&site| self.sites[site].is_listening());
        let opened = site.and_then(|site| self.open_stream(site, Ends { client, server }));
        let Some(late) = &mut self.late else { return };
        let Some((carrier, stream)) = opened else { return late.decide(id, Fate::Forwarded) };
        late.asked.insert(key, Asked { waiting: Some(id), carrier, stream, since_us: now_us });
        late.by_stream.insert((carrier, stream), key);
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
