//! State of the requests: when each missing packet is requested next, which packets are in flight, and what
//! each node may be asked for.

use hashbrown::HashMap;

use super::config::NakConfig;
use super::denials::Denials;
use super::expiry::{Expiry, Lapse};
use super::holders::Holders;
use super::in_flight::{InFlight, Requested};
use crate::buffer::PacketKey;
use crate::ids::{NodeId, StreamKey};
use crate::limits::Limits;
use crate::tracker::Interval;
use crate::view::{Member, View};
use crate::wire::Range;

/// Maximum number of intervals handled in one turn.
pub(super) const TURN_MAX: usize = 256;
/// Shortest time between two turns, in microseconds.
pub(super) const TURN_US: u64 = 1_000;
/// Number of remembered packets that digests led to request, to keep the next digest from requesting them
/// again.
const RECENT_MAX: usize = 4_096;

/// Maximum number of requests for a packet in one round, less those that were denied. Each goes to another
/// node, and only if the one before was not answered in time. Where requests and answers are lost too, one
/// request of a round gets through.
const ROUND: u8 = 4;
/// Number of pauses between rounds that are equally long. Each later pause is twice as long as the one
/// before, so that 64 requests take 24 s if none is answered.
const EQUAL_PAUSES: u8 = 4;
/// Maximum number of times that the pause is doubled.
const DOUBLINGS_MAX: u8 = 20;

/// State of the packets of a missing interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Time at which they were found missing.
    pub(super) since_us: u64,
    /// Time of their next request.
    pub(super) due_us: u64,
    /// Their requests, if there were any.
    pub(super) requested: Option<Requested>,
    /// Number of their requests, less those that were denied.
    pub(super) tries: u8,
    /// Number of denials since the last pause.
    pub(super) denied: u8,
    /// End of their life, if they are taken to expire.
    pub(super) lapse: Option<Lapse>,
}

/// State of the requests of a node.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) config: NakConfig,
    pub(super) next_turn_us: Option<u64>,
    /// Whether packets are kept from being given up for the time being.
    pub(super) holds_losses: bool,
    /// Rate limit of the packets requested of each node.
    pub(super) limits: Limits,
    pub(super) expiry: Expiry,
    /// The nodes of the view, in order.
    present: Vec<NodeId>,
    /// Buffer for the intervals of one turn.
    pub(super) due: Vec<(StreamKey, Interval<Mark>)>,
    /// Requests gathered and not yet sent.
    pub(super) gathered: Vec<(NodeId, Range)>,
    pub(super) in_flight: InFlight,
    pub(super) holders: Holders,
    pub(super) denials: Denials,
    /// Packets that were requested because of a digest.
    recent: HashMap<PacketKey, Requested>,
    swept_us: u64,
}

impl Requester {
    pub(super) fn new(config: &NakConfig, view: &View) -> Self {
        let mut requester = Self {
            config: *config,
            next_turn_us: None,
            holds_losses: false,
            limits: Limits::new(config.packets_per_second),
            expiry: Expiry::new(config.expires_after_us),
            present: Vec::new(),
            due: Vec::with_capacity(TURN_MAX),
            gathered: Vec::with_capacity(TURN_MAX),
            in_flight: InFlight::new(config.holder_us, config.in_flight_max),
            holders: Holders::new(config.in_flight_max),
            denials: Denials::new(),
            recent: HashMap::with_capacity(2 * RECENT_MAX),
            swept_us: 0,
        };
        requester.change_view(view);
        requester
    }

    /// Takes the nodes of a view; returns those that the last view lacked, in order.
    pub(super) fn change_view(&mut self, view: &View) -> Vec<NodeId> {
        let present = view.members().iter().map(Member::id).collect();
        let before = std::mem::replace(&mut self.present, present);
        self.present.iter().copied().filter(|node| before.binary_search(node).is_err()).collect()
    }

    /// Returns the nodes of the view.
    pub(super) fn present(&self) -> &[NodeId] {
        &self.present
    }

    pub(super) fn is_present(&self, node: NodeId) -> bool {
        self.present.binary_search(&node).is_ok()
    }

    /// Returns the mark of packets whose successor in the stream has come, so that they are late already.
    pub(super) fn mark_of_gap(&self, now_us: u64, lapse: Option<Lapse>) -> Mark {
        let wait_us = self.config.gap_us.unwrap_or(self.config.first_us);
        Mark { since_us: now_us, due_us: now_us + wait_us, requested: None, tries: 0, denied: 0, lapse }
    }

    /// Returns the mark of packets that a repair has named.
    pub(super) fn mark_of_name(&self, now_us: u64, lapse: Option<Lapse>) -> Mark {
        let due_us = now_us + self.config.first_us;
        Mark { since_us: now_us, due_us, requested: None, tries: 0, denied: 0, lapse }
    }

    /// Notes that packets were found missing: the next turn may have to come earlier.
    pub(super) fn on_missing(&mut self, now_us: u64) {
        let (gap, name) = (self.mark_of_gap(now_us, None), self.mark_of_name(now_us, None));
        let due_us = self.next_us(&gap).min(self.next_us(&name)).min(self.expiry.soonest_us(now_us));
        self.next_turn_us = Some(self.next_turn_us.map_or(due_us, |turn_us| turn_us.min(due_us)));
    }

    /// Lets the next turn come at once, if one is due at all.
    pub(super) fn look_again(&mut self, now_us: u64) {
        self.next_turn_us = self.next_turn_us.map(|turn_us| turn_us.min(now_us));
    }

    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.next_turn_us
    }

    /// Returns when packets with this mark are requested or given up next.
    pub(super) fn next_us(&self, mark: &Mark) -> u64 {
        let given_up_us = mark.since_us + self.config.give_up_us;
        let end_us = mark.lapse.map_or(given_up_us, |lapse| lapse.at_us.min(given_up_us));
        let is_requested = self.config.enabled && mark.lapse.is_none_or(|lapse| lapse.is_requested);
        if is_requested { mark.due_us.min(end_us) } else { end_us }
    }

    /// Notes that a packet came on request.
    pub(super) fn on_answer(&mut self, now_us: u64, key: PacketKey, missed: Option<Mark>) {
        let requested =
            [missed.and_then(|mark| mark.requested), self.recent.remove(&key)].into_iter().flatten();
        let both = |one: Requested, other: Requested| Requested {
            first_us: one.first_us.min(other.first_us),
            last_us: one.last_us.max(other.last_us),
            holder: if one.last_us < other.last_us { other.holder } else { one.holder },
        };
        if let Some(requested) = requested.reduce(both) {
            self.holders.on_answer(requested.holder);
            self.in_flight.on_answer(now_us, key, requested);
        }
    }

    /// Notes that a packet came on request that had come before.
    pub(super) fn on_duplicate_answer(&mut self, key: PacketKey) {
        self.in_flight.on_duplicate_answer(key);
    }

    /// Notes that a node has sent a repair or a request to this node.
    pub(super) fn on_heard(&mut self, node: NodeId) {
        self.holders.on_heard(node);
    }

    pub(super) fn patience_us(&self) -> u64 {
        self.in_flight.patience_us()
    }

    pub(super) fn round_trip_us(&self) -> Option<u64> {
        self.in_flight.round_trip_us()
    }

    /// Returns how long to wait after the request number `tries` for a packet.
    pub(super) fn wait_us(&self, tries: u8) -> u64 {
        let patience_us = self.in_flight.patience_us();
        if !tries.is_multiple_of(ROUND) {
            return patience_us;
        }
        let doublings = (tries / ROUND).saturating_sub(EQUAL_PAUSES).min(DOUBLINGS_MAX);
        (self.config.retry_us << doublings).max(patience_us)
    }

    /// Returns until when an answer is awaited, if one still is. The wait follows the time that answers take
    /// at present, which may have grown since the request.
    pub(super) fn awaited_until_us(&self, now_us: u64, requested: Option<Requested>) -> Option<u64> {
        let until_us = requested?.last_us + self.in_flight.patience_us();
        (until_us > now_us).then_some(until_us)
    }

    /// Returns whether a pause has ended, in which these packets were not requested.
    pub(super) fn is_after_pause(mark: &Mark) -> bool {
        mark.requested.is_some() && mark.tries.is_multiple_of(ROUND)
    }

    /// Returns whether packets with this mark are in flight.
    pub(super) fn is_in_flight(&self, now_us: u64, mark: &Mark) -> bool {
        self.awaited_until_us(now_us, mark.requested).is_some()
    }

    /// Returns whether a packet that was requested because of a digest is in flight.
    pub(super) fn is_recent(&self, now_us: u64, key: PacketKey) -> bool {
        self.awaited_until_us(now_us, self.recent.get(&key).copied()).is_some()
    }

    /// Remembers that a packet is requested because of a digest; returns false if there is no room.
    pub(super) fn remember(&mut self, now_us: u64, key: PacketKey, holder: NodeId) -> bool {
        let keep_us = self.config.retry_us.max(self.in_flight.patience_us());
        if self.recent.len() >= RECENT_MAX && now_us.saturating_sub(self.swept_us) >= TURN_US {
            self.swept_us = now_us;
            self.recent.retain(|_, requested| requested.last_us + keep_us > now_us);
        }
        if self.recent.len() >= RECENT_MAX && !self.recent.contains_key(&key) {
            return false;
        }
        let new = Requested { first_us: now_us, last_us: now_us, holder };
        let requested = self.recent.entry(key).or_insert(new);
        (requested.last_us, requested.holder) = (now_us, holder);
        true
    }
}
