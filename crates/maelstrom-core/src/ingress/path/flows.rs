//! The flows whose packets arrive under their names.

use super::account::ONE;
use super::services::KNOWN_US;
use crate::flow::{Flow, Service};
use crate::tcp_time::Newest;
use foundation::Seq;

/// Number of sets; a power of two.
const SETS: usize = 2048;
/// Flows in each set. A new flow replaces the one that was silent longest.
const WAYS: usize = 2;
/// Number of packets of one flow that are recovered before one of a flow that is known arrives again. Packets
/// at the end of a flow are lost together, but a flow that takes another path from now on does not arrive
/// again either.
const RUN_MIN: u32 = 2;
/// The same on a link that loses many packets.
const RUN_MIN_LOSSY: u32 = 4;
/// One more for this number of arrivals.
const RUN_SHARE: u32 = 1024;
const RUN_MAX: u32 = 64;
/// Largest number of packets of a flow that arrived long after their recovery, less one for each 1,024
/// arrivals.
const SLOW_MAX: i32 = 8 * ONE as i32;
/// Age of a TCP SYN that arrived from which a missing one is not the same in another form, in microseconds.
/// Hosts retransmit a SYN after a second.
const REPEATED_US: u64 = 900_000;
/// Binary logarithm of the interval in microseconds in which a flow keeps its service known.
const REFRESH: u32 = 26;
/// Largest difference between the times of a SYN's arrival and of its name.
const REWRITTEN_US: u64 = 500_000;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its packets arrive.
    Present,
    /// No packet of it is known to have arrived.
    Unseen,
    /// Its packets arrived once, and do no more.
    Left,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    flow: Flow,
    /// Time of the last use, in uses of the table.
    used: u32,
    /// Packets that arrived under their names.
    arrived: u32,
    /// Newest place of these.
    newest: Seq,
    /// Packets recovered beyond it.
    run: u32,
    /// Whether a packet was recovered that may begin the flow, and none has arrived since.
    is_revived: bool,
    /// The last TCP packet that arrived and opened a connection.
    opened: Option<Opened>,
    /// Packets that arrived long after their recovery, in units of [`ONE`].
    slow: i32,
    /// The service that its packets keep known; `None` if none has arrived.
    service: Option<Service>,
    /// Time of the last arrival.
    at_us: u64,
    timestamp: Newest,
}

/// A TCP packet that opened a connection.
#[derive(Clone, Copy, Debug)]
struct Opened {
    number: u32,
    at_us: u64,
    /// Whether a repair has named it, so that it arrived as it was sent.
    is_named: bool,
}

/// Meaning of an arrival for the service of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the first one of its flow.
    First,
    /// Others have arrived lately.
    Further,
    /// The same, and the service should be told.
    Refresh(Service),
}

/// Relation of a missing SYN to those of its flow that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// It opens a connection of which nothing has arrived.
    New,
    /// It retransmits one that arrived.
    Repeated,
    /// One that opens the same connection arrived instead or after it.
    Arrived {
        /// Whether it is probably the same packet in another form.
        is_rewritten: bool,
    },
}

/// A bounded table of flows.
pub(super) struct Flows {
    known: Box<[[Known; WAYS]]>,
    uses: u32,
}

impl Flows {
    pub(super) fn new() -> Self {
        Self { known: vec![[Known::default(); WAYS]; SETS].into_boxed_slice(), uses: 0 }
    }

    /// Forgets all places, because a new session numbers them again.
    pub(super) fn restart(&mut self) {
        for known in self.known.iter_mut().flatten() {
            (known.newest, known.run) = (Seq(0), 0);
        }
    }

    fn set(flow: Flow) -> usize {
        flow.0 as usize & (SETS - 1)
    }

    fn find(&self, flow: Flow) -> Option<&Known> {
        self.known[Self::set(flow)].iter().find(|known| known.flow == flow && known.used > 0)
    }

    /// Returns the entry of a flow, which may be new.
    fn entry(&mut self, flow: Flow) -> &mut Known {
        self.uses = self.uses.checked_add(1).unwrap_or_else(|| self.forget_uses());
        let set = &mut self.known[Self::set(flow)];
        let way = set.iter().position(|known| known.flow == flow && known.used > 0).unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&way| set[way].used).unwrap_or(0);
            set[oldest] = Known { flow, ..Known::default() };
            oldest
        });
        set[way].used = self.uses;
        &mut set[way]
    }

    /// Makes all flows equally old, because the number of uses does not fit any more; returns the next use.
    #[cold]
    fn forget_uses(&mut self) -> u32 {
        for known in self.known.iter_mut().flatten() {
            known.used = known.used.min(1);
        }
        2
    }

    /// Notes that a packet of a flow arrived.
    pub(super) fn on_arrival(&mut self, now_us: u64, flow: Flow, timestamp: Option<u32>) -> Arrival {
        let set = &mut self.known[Self::set(flow)];
        let Some(known) = set.iter_mut().find(|known| known.flow == flow && known.used > 0) else {
            return Arrival::First;
        };
        let before_us = std::mem::replace(&mut known.at_us, now_us);
        known.timestamp.on_arrival(timestamp);
        match known.service {
            None => Arrival::First,
            Some(_) if now_us > before_us + KNOWN_US => Arrival::First,
            Some(service) if now_us >> REFRESH != before_us >> REFRESH => Arrival::Refresh(service),
            Some(_) => Arrival::Further,
        }
    }

    /// Notes the service of a flow of which the first packet arrived.
    pub(super) fn on_first(&mut self, now_us: u64, flow: Flow, service: Service) {
        let known = self.entry(flow);
        (known.service, known.at_us) = (Some(service), now_us);
    }

    /// Notes that a packet of a flow arrived under its name. `opens`: whether it opened a connection.
    pub(super) fn on_named_arrival(&mut self, flow: Flow, seq: Seq, opens: bool) {
        let known = self.entry(flow);
        known.arrived = known.arrived.saturating_add(1);
        known.is_revived = false;
        known.slow -= i32::from(known.slow > 0);
        if let Some(opened) = known.opened.as_mut().filter(|_| opens) {
            opened.is_named = true;
        }
        if seq >= known.newest {
            (known.newest, known.run) = (seq, 0);
        }
    }

    /// Notes the timestamp of a TCP segment that arrived under its name, or is injected.
    pub(super) fn on_named_timestamp(&mut self, flow: Flow, timestamp: Option<u32>) {
        if timestamp.is_some() {
            self.entry(flow).timestamp.on_named(timestamp);
        }
    }

    /// The newest timestamp of a TCP connection.
    pub(super) fn newest_timestamp(&self, flow: Flow) -> Newest {
        self.find(flow).map_or(Newest::default(), |known| known.timestamp)
    }

    /// Notes that a TCP packet arrived that opens a connection with this sequence number.
    pub(super) fn on_opening(&mut self, now_us: u64, flow: Flow, number: u32) {
        self.entry(flow).opened = Some(Opened { number, at_us: now_us, is_named: false });
    }

    /// Compares a missing TCP packet that opens a connection, named at `since_us`, with the last such packet
    /// of the flow that arrived.
    pub(super) fn opening(&self, flow: Flow, number: u32, since_us: u64) -> Opening {
        let opened = self.find(flow).and_then(|known| known.opened).filter(|opened| opened.number == number);
        match opened {
            None => Opening::New,
            Some(opened) if opened.is_named || since_us > opened.at_us + REPEATED_US => Opening::Repeated,
            Some(opened) => {
                Opening::Arrived { is_rewritten: since_us.abs_diff(opened.at_us) <= REWRITTEN_US }
            }
        }
    }

    /// Tells where the flow of a missing packet stands, on a link that loses few packets or not. The packet
    /// counts as recovered if the flow is present.
    pub(super) fn standing(&mut self, now_us: u64, flow: Flow, seq: Seq, is_lossy: bool) -> Standing {
        let is_known = |known: &&Known| known.arrived > 0 && now_us < known.at_us + KNOWN_US;
        let Some(known) = self.find(flow).filter(is_known) else { return Standing::Unseen };
        if seq < known.newest {
            return Standing::Present;
        }
        let run_min = if is_lossy { RUN_MIN_LOSSY } else { RUN_MIN };
        let run_max = (run_min + known.arrived / RUN_SHARE).min(RUN_MAX);
        let known = self.entry(flow);
        known.run = known.run.saturating_add(1);
        if known.run <= run_max { Standing::Present } else { Standing::Left }
    }

    /// Number of packets of a flow that arrived under their names.
    pub(super) fn arrived(&self, flow: Flow) -> u32 {
        self.find(flow).map_or(0, |known| known.arrived)
    }

    /// Whether a packet was recovered that may begin the flow, and none has arrived since.
    pub(super) fn is_revived(&self, flow: Flow) -> bool {
        self.find(flow).is_some_and(|known| known.is_revived)
    }

    /// Notes that such a packet is recovered.
    pub(super) fn on_revived(&mut self, flow: Flow) {
        self.entry(flow).is_revived = true;
    }

    /// Notes that a packet arrived long after its recovery. Returns whether that was news of its flow.
    pub(super) fn on_slow(&mut self, flow: Flow) -> bool {
        let known = self.entry(flow);
        let is_news = known.slow == 0;
        known.slow = (known.slow + ONE as i32).min(SLOW_MAX);
        is_news
    }

    /// Takes back that a packet was slow.
    pub(super) fn off_slow(&mut self, flow: Flow) {
        let known = self.entry(flow);
        known.slow = (known.slow - ONE as i32).max(0);
    }

    /// Whether a packet of a flow arrived long after its recovery, and fewer than 1,024 others have arrived
    /// since.
    pub(super) fn is_slow(&self, flow: Flow) -> bool {
        self.find(flow).is_some_and(|known| known.slow > 0)
    }

    /// Whether the last one of many such packets has just arrived.
    pub(super) fn is_often_slow(&self, flow: Flow) -> bool {
        self.find(flow).is_some_and(|known| known.slow == SLOW_MAX)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_present_while_later_packets_of_it_arrive() {
        let mut flows = Flows::new();
        assert_eq!(flows.standing(9, Flow(7), Seq(3), false), Standing::Unseen);
        flows.on_named_arrival(Flow(7), Seq(100), false);
        assert!((0..100).all(|at| flows.standing(9, Flow(7), Seq(at), false) == Standing::Present));
        let beyond: Vec<_> = (101..107).map(|at| flows.standing(9, Flow(7), Seq(at), false)).collect();
        assert_eq!(beyond[..2], [Standing::Present; 2]);
        assert_eq!(beyond[2..], [Standing::Left; 4]);
        assert_eq!(flows.standing(9, Flow(7), Seq(108), true), Standing::Left);
        flows.on_named_arrival(Flow(7), Seq(109), false);
        assert!((110..114).all(|at| flows.standing(9, Flow(7), Seq(at), true) == Standing::Present));
        assert_eq!(flows.standing(9, Flow(7), Seq(114), true), Standing::Left);
        flows.on_named_arrival(Flow(7), Seq(120), false);
        assert_eq!(flows.standing(9, Flow(7), Seq(121), false), Standing::Present);
        // An earlier packet says nothing about those at the end.
        assert_eq!(flows.standing(9, Flow(7), Seq(122), false), Standing::Present);
        flows.on_named_arrival(Flow(7), Seq(60), false);
        assert_eq!(flows.standing(9, Flow(7), Seq(123), false), Standing::Left);
        // A flow of which many have arrived is trusted for longer.
        (0..4 * 1_024).for_each(|n| flows.on_named_arrival(Flow(7), Seq(130 + n), false));
        let beyond = |at: u64| flows.standing(9, Flow(7), Seq(9_000 + at), false);
        assert_eq!((0..9).map(beyond).filter(|standing| *standing == Standing::Present).count(), 6);
    }

    #[test]
    fn a_flow_that_was_silent_for_long_is_unseen() {
        let mut flows = Flows::new();
        assert_eq!(flows.on_arrival(10, Flow(1), None), Arrival::First);
        flows.on_first(10, Flow(1), Service(5));
        flows.on_named_arrival(Flow(1), Seq(9), false);
        assert_eq!(flows.on_arrival(20, Flow(1), None), Arrival::Further);
        assert_eq!(flows.on_arrival(1 << REFRESH, Flow(1), None), Arrival::Refresh(Service(5)));
        assert_eq!(flows.standing(1 << REFRESH, Flow(1), Seq(8), false), Standing::Present);
        let late_us = (1 << REFRESH) + KNOWN_US;
        assert_eq!(flows.standing(late_us, Flow(1), Seq(8), false), Standing::Unseen);
        assert_eq!(flows.on_arrival(late_us + 1, Flow(1), None), Arrival::First);
    }

    #[test]
    fn a_syn_is_compared_with_the_last_one_that_arrived() {
        let (mut flows, flow, s) = (Flows::new(), Flow(1), 1_000_000);
        assert_eq!(flows.opening(flow, 7, s), Opening::New);
        flows.on_opening(s, flow, 7);
        assert_eq!(flows.opening(flow, 8, s), Opening::New);
        assert_eq!(flows.opening(flow, 7, s + 30_000), Opening::Arrived { is_rewritten: true });
        assert_eq!(flows.opening(flow, 7, s - 900_000), Opening::Arrived { is_rewritten: false });
        assert_eq!(flows.opening(flow, 7, 2 * s), Opening::Repeated);
        flows.on_named_arrival(flow, Seq(1), false);
        assert_eq!(flows.opening(flow, 7, s + 30_000), Opening::Arrived { is_rewritten: true });
        flows.on_named_arrival(flow, Seq(2), true);
        assert_eq!(flows.opening(flow, 7, s + 30_000), Opening::Repeated);
    }

    #[test]
    fn a_flow_is_revived_until_a_packet_of_it_arrives() {
        let mut flows = Flows::new();
        flows.on_revived(Flow(3));
        assert!(flows.is_revived(Flow(3)) && !flows.is_revived(Flow(4)));
        flows.on_named_arrival(Flow(3), Seq(7), false);
        assert!(!flows.is_revived(Flow(3)));
    }

    #[test]
    fn slow_packets_are_charged_to_their_flow() {
        let mut flows = Flows::new();
        assert!(flows.on_slow(Flow(1)) && !flows.on_slow(Flow(1)));
        assert!(flows.is_slow(Flow(1)) && !flows.is_often_slow(Flow(1)) && !flows.is_slow(Flow(2)));
        (0..2).for_each(|_| flows.off_slow(Flow(1)));
        assert!(!flows.is_slow(Flow(1)) && flows.on_slow(Flow(1)));
        (0..1_023).for_each(|seq| flows.on_named_arrival(Flow(1), Seq(seq), false));
        assert!(flows.is_slow(Flow(1)));
        flows.on_named_arrival(Flow(1), Seq(1_023), false);
        assert!(!flows.is_slow(Flow(1)));
        (0..7).for_each(|_| _ = flows.on_slow(Flow(1)));
        assert!(!flows.is_often_slow(Flow(1)));
        (0..99).for_each(|_| _ = flows.on_slow(Flow(1)));
        assert!(flows.is_often_slow(Flow(1)));
        (0..8 * 1_024).for_each(|seq| flows.on_named_arrival(Flow(1), Seq(seq), false));
        assert!(!flows.is_slow(Flow(1)), "the number is bounded");
    }

    #[test]
    fn a_full_table_forgets_the_flow_that_was_silent_longest() {
        let mut flows = Flows::new();
        let same_set = |n: u32| Flow(5 + n * SETS as u32);
        (0..3).for_each(|n| flows.on_named_arrival(same_set(n), Seq(u64::from(n)), false));
        assert_eq!(flows.standing(9, same_set(0), Seq(0), false), Standing::Unseen);
        assert_eq!(flows.standing(9, same_set(2), Seq(0), false), Standing::Present);
        flows.uses = u32::MAX;
        flows.on_named_arrival(same_set(9), Seq(0), false);
        assert_eq!(flows.standing(9, same_set(9), Seq(0), false), Standing::Present);
    }
}
