//! The side that hands out: the messages of other relays become datagrams of this host.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netio::multicast::{OpenError, PlainTalker};
use ricochet::{Event, Message, RecvTimeoutError, Subscription};

use super::counts::add;
use super::frame::Frame;
use super::hear::{now, own_addresses};
use super::memory::Way;
use super::{Shared, Ttl};

/// Interval between checks for a stop request.
const CHECK: Duration = Duration::from_millis(100);

/// Time for which a datagram waits for a copy by the network itself, if that brings datagrams of other hosts.
const HOLD: Duration = Duration::from_millis(20);

/// Maximum number of datagrams that wait. A further one makes the oldest leave at once.
const HELD_MAX: usize = 4_096;

/// Time after which a talker that fails is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// Hands out the datagrams of all groups at all interfaces.
pub(super) struct Mouth<'a> {
    shared: &'a Shared,
    subscription: &'a Subscription,
    /// Index of a group by its name.
    by_name: HashMap<&'a str, usize>,
    talkers: Vec<Talker<'a>>,
    held: VecDeque<(Instant, Held)>,
    addresses: (HashSet<IpAddr>, Instant),
    /// Whether another relay on this network has been reported.
    has_warned: bool,
}

/// A datagram before it is handed out.
struct Held {
    group: usize,
    way: Way,
    source: SocketAddr,
    ttl: u8,
    payload: Vec<u8>,
}

/// A group at an interface.
struct Talker<'a> {
    group: usize,
    interface: &'a str,
    socket: PlainTalker,
    opened: Instant,
}

impl<'a> Mouth<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        interfaces: &'a [String],
        subscription: &'a Subscription,
    ) -> Result<Self, OpenError> {
        let mut talkers = Vec::new();
        for (group, of) in shared.groups.iter().enumerate() {
            for interface in interfaces {
                let socket = PlainTalker::bind(of.address, interface, shared.port)?;
                talkers.push(Talker { group, interface, socket, opened: now() });
            }
        }
        let by_name = shared.groups.iter().enumerate().map(|(at, group)| (&*group.name, at)).collect();
        let (held, addresses) = (VecDeque::new(), (own_addresses(), now()));
        Ok(Self { shared, subscription, by_name, talkers, held, addresses, has_warned: false })
    }

    /// Waits for the next message, and hands out what is due. Returns false once no further message can come.
    pub(super) fn turn(&mut self) -> Result<bool, RecvTimeoutError> {
        let until_due = self.held.front().map(|(due, _)| due.saturating_duration_since(now()));
        let wait = until_due.unwrap_or(CHECK).min(CHECK);
        match self.subscription.recv_event_timeout(wait) {
            Ok(Event::Message(message)) => self.take(&message),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Closed) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.hand_out_due();
        self.warn_of_relays();
        Ok(true)
    }

    fn take(&mut self, message: &Message) {
        let Some(&group) = self.by_name.get(message.group()) else { return };
        let counts = &self.shared.groups[group].counts;
        let Some(Frame { source, ttl, payload }) = Frame::read(message.payload()) else {
            add(&counts.malformed);
            return;
        };
        // Programs of this host have heard their neighbours without a relay. Another relay of this host, or
        // one that heard them by the network, has carried it.
        let may_be_own = self.is_own(source.ip());
        let is_by_this_host = message.address().is_some_and(|relay| self.is_own(relay.ip()));
        if source.ip() == self.shared.node.ip() || (may_be_own && is_by_this_host) {
            add(&counts.duplicates);
            return;
        }
        let held =
            Held { group, way: Way::Relay(message.sender().0), source, ttl, payload: payload.to_vec() };
        // Other addresses may be those of several hosts, such as that of a bridge for containers. Whether
        // this host has heard the datagram itself is in the memory a moment later. None overtakes one that
        // waits.
        let waits = may_be_own || !self.held.is_empty() || self.shared.has_other_way.load(Ordering::Relaxed);
        if !waits {
            return self.hand_out(&held);
        }
        if self.held.len() >= HELD_MAX
            && let Some((_, oldest)) = self.held.pop_front()
        {
            self.hand_out(&oldest);
        }
        self.held.push_back((now() + HOLD, held));
    }

    fn is_own(&mut self, ip: IpAddr) -> bool {
        let (addresses, read) = &mut self.addresses;
        if read.elapsed() >= REOPEN {
            (*addresses, *read) = (own_addresses(), now());
        }
        addresses.contains(&ip)
    }

    fn hand_out_due(&mut self) {
        while self.held.front().is_some_and(|(due, _)| *due <= now())
            && let Some((_, held)) = self.held.pop_front()
        {
            self.hand_out(&held);
        }
    }

    fn hand_out(&mut self, held: &Held) {
        let Held { group, way, source, ttl, payload } = held;
        let of = &self.shared.groups[*group];
        if !self.shared.note(*group, *source, payload, *way) {
            add(&of.counts.duplicates);
            return;
        }
        of.counts.note_source(*source, *ttl, false);
        let ttl = match self.shared.ttl {
            Ttl::Keep => *ttl,
            Ttl::Fixed(ttl) => ttl,
        };
        for talker in self.talkers.iter_mut().filter(|talker| talker.group == *group) {
            match talker.socket.send(ttl, payload) {
                Ok(()) => add(&of.counts.handed_out),
                Err(error) => {
                    add(&of.counts.not_handed_out);
                    talker.reopen(of.address, self.shared.port, &error);
                }
            }
        }
    }

    /// Warns once if another relay hands out at an interface of this one.
    fn warn_of_relays(&mut self) {
        let heard = |group: &super::Group| group.counts.from_relays.load(Ordering::Relaxed) > 0;
        if !self.has_warned
            && let Some(group) = self.shared.groups.iter().find(|group| heard(group))
        {
            self.has_warned = true;
            tracing::warn!(
                group = %group.address,
                "a relay of another host hands out at an interface of this relay, so that programs hear each \
                 datagram twice; of the relays at one network, let one have `--ttl`"
            );
        }
    }
}

impl Talker<'_> {
    /// Opens the socket again, since its interface may have been replaced.
    fn reopen(&mut self, group: SocketAddr, port: u16, error: &std::io::Error) {
        if self.opened.elapsed() < REOPEN {
            return;
        }
        tracing::warn!(%group, interface = self.interface, %error, "a datagram cannot be handed out");
        self.opened = now();
        if let Ok(socket) = PlainTalker::bind(group, self.interface, port) {
            self.socket = socket;
        }
    }
}
