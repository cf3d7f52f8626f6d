//! Observation of a gateway: events, windows of counts, and a verdict about each peer.
//!
//! [`Observer::observe`] compares the state of all peers with the state at the last call. A change becomes an
//! [`Event`] in the [`Journal`], from which the log and the status take it. The counts of the last
//! seconds, minutes and hour are kept in rings of fixed size (`windows.rs`), and `verdict.rs` draws a verdict
//! from them. None of this runs for each packet.

mod event;
mod journal;
mod limit;
mod peer;
mod verdict;
mod windows;

pub use event::{Event, EventKind, Level, PauseReason, RackNews, Site};
pub use journal::{EVENTS_MAX, Journal};
pub use verdict::{Concern, Concerns, Condition, Verdict};
pub use windows::{DELAY_BUCKETS, Fates, SPANS_S, Sample, Step, Window, delay_bound_us, delay_counts};

use crate::config::PeerConfig;
use crate::gateway::Gateway;
use peer::{Watched, site};

/// Interval between comparisons.
const CHECK_US: u64 = 100_000;

/// Interval between events about stalls.
const STALLS_US: u64 = 60_000_000;

/// Stalls since the last event about them.
#[derive(Debug, Default)]
struct Stalls {
    count: u64,
    longest_us: u64,
    next_us: u64,
}

impl Stalls {
    /// Returns the event, if it is time for it.
    fn event(&mut self, now_us: u64) -> Option<EventKind> {
        if self.count == 0 || now_us < self.next_us {
            return None;
        }
        let Self { count, longest_us, .. } = std::mem::take(self);
        self.next_us = now_us + STALLS_US;
        Some(EventKind::Stalled { longest_us, count })
    }
}

/// Watches all peers of a gateway.
#[derive(Debug, Default)]
pub struct Observer {
    peers: Vec<Watched>,
    journal: Journal,
    stalls: Stalls,
    next_us: u64,
}

impl Observer {
    /// Compares the peers with their state at the last call, at most once in 100 ms.
    pub fn observe(&mut self, now_us: u64, gateway: &Gateway) {
        if now_us < self.next_us {
            return;
        }
        self.next_us = now_us + CHECK_US;
        self.journal_stalls(now_us);
        self.follow(&gateway.config().peers);
        for (watched, status) in self.peers.iter_mut().zip(gateway.peers()) {
            watched.observe(now_us, &status, &mut self.journal);
        }
    }

    /// Whether the last call of [`Observer::observe`] has looked at this time.
    pub fn has_looked(&self, now_us: u64) -> bool {
        self.next_us == now_us + CHECK_US
    }

    /// Notes an event that the core cannot see, such as a pause of recovery.
    pub fn note(&mut self, now_us: u64, kind: EventKind) {
        self.journal.push(now_us, None, kind);
    }

    /// Notes that the process stood still. Stalls that follow each other are one event a minute.
    pub fn on_stall(&mut self, now_us: u64, length_us: u64) {
        self.stalls.count += 1;
        self.stalls.longest_us = self.stalls.longest_us.max(length_us);
        self.journal_stalls(now_us);
    }

    fn journal_stalls(&mut self, now_us: u64) {
        if let Some(event) = self.stalls.event(now_us) {
            self.journal.push(now_us, None, event);
        }
    }

    /// The latest events.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Counts of a peer, given by its number in the configuration, in the last 10 s, 5 min and hour.
    pub fn windows(&self, peer: usize) -> [Window; SPANS_S.len()] {
        self.peers.get(peer).map(Watched::windows).unwrap_or_default()
    }

    /// Counts of a peer in the last hour by minute, the earliest first.
    pub fn course(&self, peer: usize) -> Vec<Step> {
        self.peers.get(peer).map(Watched::course).unwrap_or_default()
    }

    /// The verdict about a peer, given by its number in the configuration.
    pub fn verdict(&self, peer: usize) -> Verdict {
        self.peers.get(peer).map(Watched::verdict).unwrap_or_default()
    }

    /// Keeps the state of peers that the configuration still names, in its order.
    fn follow(&mut self, peers: &[PeerConfig]) {
        if peers.iter().map(site).eq(self.peers.iter().map(Watched::site)) {
            return;
        }
        let mut old = std::mem::take(&mut self.peers);
        self.peers.extend(peers.iter().map(
            |peer| match old.iter().position(|watched| watched.is_of(peer)) {
                Some(at) => old.swap_remove(at).with_site(peer),
                None => Watched::new(peer),
            },
        ));
    }
}
