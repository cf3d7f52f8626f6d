//! The hearing side: a thread for each group and interface, which sends what programs of this host say to the
//! other relays.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netio::multicast::{Heard, OpenError, PlainListener};
use netio::poll::{Interest, Poller};
use nix::net::if_::if_nametoindex;
use ricochet::{SendError, Sender};

use super::Shared;
use super::alive::Pulse;
use super::counts::{Counts, add};
use super::frame::{Frame, HEADER_MAX};
use super::memory::Way;

/// Interval between checks for a stop request, for another interface of the name, and for addresses.
const CHECK: Duration = Duration::from_millis(100);
/// Requested receive buffer.
const BUFFER_BYTES: usize = 8 << 20;
/// Time to live of a datagram for which the kernel does not tell one.
const TTL_DEFAULT: u8 = 1;

/// Hears one group at one interface.
pub(super) struct Ear<'a> {
    shared: &'a Shared,
    /// Index of the group.
    group: usize,
    interface: &'a str,
    sender: Sender,
    listener: PlainListener,
    rate: Rate,
    /// Datagrams that the kernel dropped, as counted so far.
    overflowed: u64,
    /// Addresses of this host, and the time at which they were read.
    addresses: (HashSet<IpAddr>, Instant),
    buffer: Vec<u8>,
    pulse: &'a Pulse,
}

impl<'a> Ear<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        group: usize,
        interface: &'a str,
        sender: Sender,
        pulse: &'a Pulse,
    ) -> Result<Self, OpenError> {
        let listener = PlainListener::bind(shared.groups[group].address, interface, BUFFER_BYTES)?;
        Ok(Self {
            shared,
            group,
            interface,
            sender: sender.fragments(true),
            listener,
            rate: Rate::new(shared.rate_mbit),
            overflowed: 0,
            addresses: (own_addresses(), now()),
            buffer: Vec::new(),
            pulse,
        })
    }

    /// Hears until a stop is requested.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let mut poller = Poller::new()?;
        poller.add(&self.listener, 0, Interest::Readable)?;
        while !self.shared.is_stopped() {
            let _ = poller.wait(Some(CHECK))?;
            self.pulse.beat(self.shared.now_us());
            self.hear()?;
            if self.is_replaced()
                && let Ok(listener) = PlainListener::bind(self.address(), self.interface, BUFFER_BYTES)
            {
                tracing::info!(
                    interface = self.interface,
                    "the interface was replaced; the relay joins again"
                );
                self.listener = listener;
                self.overflowed = 0;
                poller = Poller::new()?;
                poller.add(&self.listener, 0, Interest::Readable)?;
            }
        }
        Ok(())
    }

    fn address(&self) -> SocketAddr {
        self.shared.groups[self.group].address
    }

    fn counts(&self) -> &'a Counts {
        &self.shared.groups[self.group].counts
    }

    /// Returns whether the name stands for another interface than that of the listener.
    fn is_replaced(&self) -> bool {
        if_nametoindex(self.interface).is_ok_and(|index| index != self.listener.interface())
    }

    /// Carries all datagrams that wait.
    fn hear(&mut self) -> anyhow::Result<()> {
        // A batch, so that the listener is free while a datagram waits for its readers.
        let mut batch: Vec<(SocketAddr, u8, Vec<u8>)> = Vec::new();
        loop {
            let take = |heard: Heard<'_>| {
                batch.push((heard.from, heard.ttl.unwrap_or(TTL_DEFAULT), heard.payload.to_vec()));
            };
            let may_wait = self.listener.recv(take)?;
            let dropped = self.listener.counts().overflowed;
            self.counts().overflowed.fetch_add(dropped - self.overflowed, Ordering::Relaxed);
            self.overflowed = dropped;
            for (from, ttl, payload) in batch.drain(..) {
                self.carry(from, ttl, &payload)?;
            }
            if !may_wait || self.shared.is_stopped() {
                return Ok(());
            }
        }
    }

    /// Sends a datagram to the other relays, unless it must not be carried.
    fn carry(&mut self, from: SocketAddr, ttl: u8, payload: &[u8]) -> anyhow::Result<()> {
        let counts = self.counts();
        // Each relay hands out from this port, so what any of them has handed out goes no further.
        let is_here = self.is_here(from.ip());
        if from.port() == self.shared.port {
            if !is_here {
                add(&counts.from_relays);
            }
            return Ok(());
        }
        add(&counts.heard);
        let source = self.shared.outside(from);
        counts.note_source(source, ttl, is_here);
        if !self.shared.note(self.group, source, payload, Way::Here) {
            add(&counts.duplicates);
            return Ok(());
        }
        if !is_here {
            self.shared.has_other_way.store(true, Ordering::Relaxed);
            if !self.shared.any_source {
                add(&counts.from_other_hosts);
                return Ok(());
            }
        }
        if !self.rate.takes(payload.len() + HEADER_MAX) {
            add(&counts.over_rate);
            return Ok(());
        }
        Frame { source, ttl, payload }.write(&mut self.buffer);
        self.send()
    }

    /// Returns whether an address is one of this host.
    fn is_here(&mut self, ip: IpAddr) -> bool {
        let (addresses, read) = &mut self.addresses;
        // An address that is unknown may be new.
        if !ip.is_loopback() && !addresses.contains(&ip) && read.elapsed() >= CHECK {
            (*addresses, *read) = (own_addresses(), now());
        }
        ip.is_loopback() || addresses.contains(&ip)
    }

    fn send(&self) -> anyhow::Result<()> {
        // Readers without room for more hold this loop up, which is no fault of it.
        while !self.shared.is_stopped() {
            self.pulse.beat(self.shared.now_us());
            match self.sender.send_timeout(&self.buffer, CHECK) {
                Ok(_) => {
                    add(&self.counts().carried);
                    return Ok(());
                }
                Err(SendError::WouldBlock) => {}
                Err(SendError::TooLong { .. }) => {
                    add(&self.counts().too_long);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the addresses of this host.
pub(super) fn own_addresses() -> HashSet<IpAddr> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return HashSet::new() };
    let ip = |address: nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let storage = address.address?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    all.filter_map(ip).collect()
}

/// A limit of bytes per second: a bucket that holds a tenth of a second.
#[derive(Debug)]
struct Rate {
    bytes_per_second: u64,
    room: u64,
    filled: Instant,
}

impl Rate {
    fn new(mbit: u32) -> Self {
        let bytes_per_second = u64::from(mbit) * 125_000;
        Self { bytes_per_second, room: bytes_per_second / 10, filled: now() }
    }

    fn takes(&mut self, bytes: usize) -> bool {
        let elapsed = self.filled.elapsed();
        self.takes_after(elapsed, bytes)
    }

    /// Takes bytes `elapsed` after the bucket was filled. Returns whether there is room.
    fn takes_after(&mut self, elapsed: Duration, bytes: usize) -> bool {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).min(1_000_000);
        let more = self.bytes_per_second * micros / 1_000_000;
        if more > 0 {
            self.filled += elapsed;
            // One datagram of any length fits a bucket that is full.
            self.room = (self.room + more).min((self.bytes_per_second / 10).max(1 << 16));
        }
        let bytes = bytes as u64;
        let has_room = self.bytes_per_second == 0 || self.room >= bytes;
        if has_room {
            self.room = self.room.saturating_sub(bytes);
        }
        has_room
    }
}

#[expect(clippy::disallowed_methods, reason = "no core: datagrams come by the clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_through_its_share_and_a_rate_of_zero_lets_through_all() {
        let mut rate = Rate::new(8);
        let millisecond = Duration::from_millis(1);
        // 8 Mbit/s are 1,000 bytes in each millisecond, beside the 100,000 of a full bucket.
        let taken = (0..1_000)
            .map(|_| (0..4).filter(|_| rate.takes_after(millisecond / 4, 1_000)).count())
            .sum::<usize>();
        assert!((1_090..=1_110).contains(&taken), "{taken}");
        let mut all = Rate::new(0);
        assert!((0..10_000).all(|_| all.takes_after(Duration::ZERO, 1_400)));
        let mut slow = Rate::new(1);
        assert!(slow.takes_after(Duration::from_secs(5), 60_000), "a long datagram fits a full bucket");
    }
}
