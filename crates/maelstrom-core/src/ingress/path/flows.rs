//! The flows whose packets arrive under their names.

use crate::flow::Flow;
use foundation::Seq;

/// Number of sets; a power of two.
const SETS: usize = 2048;
/// Flows in each set. A new flow replaces the one that was silent longest.
const WAYS: usize = 2;
/// Number of packets of one flow that are recovered before one of a flow that is known arrives again. Packets
/// at the end of a flow are lost together, but a flow that takes another path from now on does not arrive
/// again either.
const RUN_MIN: u32 = 4;
/// One more for this number of arrivals.
const RUN_SHARE: u32 = 1024;
const RUN_MAX: u32 = 64;
/// Number of packets that are recovered of a flow of which none has arrived.
const UNSEEN_MAX: u8 = 1;

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
    /// Packets recovered before any arrived.
    unseen: u8,
    /// Sequence number of the last TCP packet that arrived and opened a connection.
    opened: Option<u32>,
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

    /// Notes that a packet of a flow arrived under its name.
    pub(super) fn on_named_arrival(&mut self, flow: Flow, seq: Seq) {
        let known = self.entry(flow);
        known.arrived = known.arrived.saturating_add(1);
        if seq >= known.newest {
            (known.newest, known.run) = (seq, 0);
        }
    }

    /// Notes that a TCP packet arrived that opens a connection with this sequence number.
    pub(super) fn on_opening(&mut self, flow: Flow, number: u32) {
        self.entry(flow).opened = Some(number);
    }

    /// Whether such a packet arrived.
    pub(super) fn has_opened(&self, flow: Flow, number: u32) -> bool {
        self.find(flow).is_some_and(|known| known.opened == Some(number))
    }

    /// Tells where the flow of a missing packet stands. The packet counts as recovered if the flow is
    /// present.
    pub(super) fn standing(&mut self, flow: Flow, seq: Seq) -> Standing {
        let Some(known) = self.find(flow).filter(|known| known.arrived > 0) else { return Standing::Unseen };
        if seq < known.newest {
            return Standing::Present;
        }
        let run_max = (RUN_MIN + known.arrived / RUN_SHARE).min(RUN_MAX);
        let known = self.entry(flow);
        known.run = known.run.saturating_add(1);
        if known.run <= run_max { Standing::Present } else { Standing::Left }
    }

    /// Whether another packet of an unseen flow may be recovered; it counts as such.
    pub(super) fn may_recover_unseen(&mut self, flow: Flow) -> bool {
        let known = self.entry(flow);
        known.unseen = known.unseen.saturating_add(1);
        known.unseen <= UNSEEN_MAX
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
        assert_eq!(flows.standing(Flow(7), Seq(3)), Standing::Unseen);
        flows.on_named_arrival(Flow(7), Seq(100));
        assert!((0..100).all(|at| flows.standing(Flow(7), Seq(at)) == Standing::Present));
        let beyond: Vec<_> = (101..107).map(|at| flows.standing(Flow(7), Seq(at))).collect();
        assert_eq!(beyond[..4], [Standing::Present; 4]);
        assert_eq!(beyond[4..], [Standing::Left; 2]);
        flows.on_named_arrival(Flow(7), Seq(110));
        assert_eq!(flows.standing(Flow(7), Seq(111)), Standing::Present);
    }

    #[test]
    fn one_packet_of_an_unseen_flow_may_be_recovered() {
        let mut flows = Flows::new();
        assert!(flows.may_recover_unseen(Flow(1)) && !flows.may_recover_unseen(Flow(1)));
        assert!(flows.may_recover_unseen(Flow(2)));
        assert_eq!(flows.standing(Flow(1), Seq(9)), Standing::Unseen);
    }

    #[test]
    fn a_full_table_forgets_the_flow_that_was_silent_longest() {
        let mut flows = Flows::new();
        let same_set = |n: u32| Flow(5 + n * SETS as u32);
        (0..3).for_each(|n| flows.on_named_arrival(same_set(n), Seq(u64::from(n))));
        assert_eq!(flows.standing(same_set(0), Seq(0)), Standing::Unseen);
        assert_eq!(flows.standing(same_set(2), Seq(0)), Standing::Present);
        flows.uses = u32::MAX;
        flows.on_named_arrival(same_set(9), Seq(0));
        assert_eq!(flows.standing(same_set(9), Seq(0)), Standing::Present);
    }
}
