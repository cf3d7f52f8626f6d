//! Whether the packets of the far site arrive here as its gateway sends them.
//!
//! A packet that takes another road, or that a box on the way rewrites, never arrives under its name. It
//! looks lost, and a recovered copy of it would be a duplicate. A duplicate is worse than a loss, so a solved
//! packet is injected only while nothing speaks against a loss ([`Path::admit`]):
//! - Packets of the far site have arrived under their names: the path is *proven*.
//! - Packets of the same flow have arrived under their names (`flows.rs`). Routers share load by flow, and
//!   packet filters decide by flow. The first packet of a flow is judged by its service (`services.rs`).
//! - Not more packets are missing than the loss of repairs explains (`account.rs`). Repairs take the same
//!   link, and their counters show how many of them it loses. If most of the others belong to a few flows,
//!   only those are not recovered (`lossy.rs`).
//!
//! Windows of some hundred packets give the reasons names ([`Finding`]), for operators of both sites. Packets
//! stay solved but not injected while a finding holds, so it can be seen when it no longer does.

mod account;
mod flows;
mod lossy;
mod nameless;
mod pieces;
mod runs;
mod services;
mod solved;
mod suspicion;
mod translation;
mod window;

use std::num::NonZero;

use crate::counters::{Withheld, WithheldCounts};
use crate::findings::{Finding, Findings};
use crate::flow::{Content, Flow, Piece, Traits};
use crate::identity::Identity;
use crate::packet::Packet;
use crate::place::{Counted, Trace};
use crate::wire::SealedHeader;
use account::{Account, CREDITED, ONE, RepairLoss};
use flows::{Arrival, Flows, Opening, Standing};
use foundation::Seq;
use lossy::{Lossy, Missing, Scale};
use nameless::Nameless;
use pieces::Pieces;
use runs::Runs;
use services::{Ends, Services};
pub(super) use solved::Solved;
use suspicion::Suspicion;
use translation::Translation;
use window::{CLEAN_MIN, Window};

/// Number of named arrivals that prove a path.
const PROOF: u64 = 4;
/// Time for which evidence of a single packet counts, in microseconds.
const EVIDENCE_US: u64 = 60_000_000;
/// First packets of flows that are recovered for each one that the link loses, by which services earn them.
const FIRST_FACTOR: i64 = 3;
/// Lost datagrams for each one that arrives, in units of [`ONE`], from which on a link loses many packets.
const LOSSY: i64 = ONE / 16;
/// Maximum number of flows of which a packet arrived long after its recovery, besides one in 1,024 arrivals.
const SLOW_MAX: i64 = 2 * ONE;

/// Knowledge of the path from the far site.
pub(super) struct Path {
    /// Whether the operator vouches for the path.
    is_trusted: bool,
    /// Whether the far gateway may name a sample of its packets only.
    is_far_thin: bool,
    /// Time of the latest call.
    now_us: u64,
    flows: Flows,
    services: Services,
    lossy: Lossy,
    repairs: RepairLoss,
    runs: Runs,
    /// Named arrivals, up to [`PROOF`].
    proof: u64,
    /// Evidence of missing packets beyond those that the loss of repairs explains.
    unexplained: Account,
    /// The same, and missing packets of flows that left or were never seen: evidence for findings.
    suspicion: Suspicion,
    /// Recovered packets of flows that were never seen, beyond the same.
    unseen: Account,
    /// Packets that arrived long after their recovery.
    slow: Account,
    /// Whether recovery waits for windows without doubt.
    is_closed: bool,
    clean: u32,
    clean_needed: u32,
    window: Window,
    nameless: Nameless,
    findings: Findings,
    pieces: Pieces,
    translation: Translation,
    translated_until_us: u64,
    fragmented_until_us: u64,
    opening_until_us: u64,
    slow_until_us: u64,
    withheld: WithheldCounts,
}

impl Path {
    /// Creates a path on which `pieces` fragments arrive while repairs name the packets of the first one.
    pub(super) fn new(is_trusted: bool, pieces: usize) -> Self {
        Self {
            is_trusted,
            is_far_thin: false,
            now_us: 0,
            flows: Flows::new(),
            services: Services::new(),
            lossy: Lossy::default(),
            repairs: RepairLoss::default(),
            runs: Runs::default(),
            proof: 0,
            unexplained: Account::default(),
            suspicion: Suspicion::default(),
            unseen: Account::default(),
            slow: Account::default(),
            is_closed: false,
            clean: 0,
            clean_needed: CLEAN_MIN,
            window: Window::default(),
            nameless: Nameless::default(),
            findings: Findings::default(),
            pieces: Pieces::new(pieces),
            translation: Translation::new(),
            translated_until_us: 0,
            fragmented_until_us: 0,
            opening_until_us: 0,
            slow_until_us: 0,
            withheld: WithheldCounts::default(),
        }
    }

    /// Takes whether the far gateway may name a sample of its packets only.
    pub(super) fn set_far_thin(&mut self, is_thin: bool) {
        self.is_far_thin = is_thin;
    }

    /// Starts with the stream of a new session. Knowledge of the path remains.
    pub(super) fn restart(&mut self) {
        self.flows.restart();
        self.repairs.restart();
        self.runs.restart();
        self.window.restart();
    }

    /// Takes a packet of the far site that arrived, which no repair has named yet. `is_sampled`: whether the
    /// far gateway names it in any case. If it is the first piece of a packet that was injected, returns when
    /// that was.
    pub(super) fn on_arrival(
        &mut self,
        now_us: u64,
        traits: &Traits,
        is_sampled: bool,
        packet: &Packet<'_>,
        identity: &Identity,
    ) -> Option<u64> {
        if is_sampled || !self.is_far_thin {
            self.window.on_arrival(traits.is_fragment);
        }
        let weight = self.repairs.weight();
        let usual = self.runs.usual_part_of(weight);
        self.unexplained.credit_arrival(usual);
        self.suspicion.credit_arrival(usual);
        self.unseen.credit_arrival(weight);
        self.slow.credit_arrival(ONE);
        self.now_us = now_us;
        self.note_flow(traits, packet, identity);
        let piece = Piece::of(packet, identity).filter(|_| traits.is_fragment && packet.is_intact())?;
        self.pieces.on_fragment(piece)
    }

    /// Takes the first fragment of a packet that a router fragmented, while the other fragments are not
    /// shown. Returns the same.
    pub(super) fn on_first_fragment(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        identity: &Identity,
    ) -> Option<u64> {
        self.now_us = now_us;
        // There is at least one more of them.
        (0..2).for_each(|_| self.window.on_arrival(true));
        let piece = Piece::of(packet, identity).filter(|_| packet.is_intact())?;
        self.pieces.on_fragment(piece)
    }

    /// Notes the flow of an arrival, and its service if the flow begins with it.
    fn note_flow(&mut self, traits: &Traits, packet: &Packet<'_>, identity: &Identity) {
        let (now_us, flow) = (self.now_us, traits.flow);
        let mut arrival = self.flows.on_arrival(now_us, flow, traits.timestamp);
        if let Some(number) = traits.opens {
            if self.flows.opening(flow, number, now_us) == Opening::New {
                arrival = Arrival::First;
            }
            self.flows.on_opening(now_us, flow, number);
        }
        match arrival {
            Arrival::Further => {}
            Arrival::Refresh(service) => self.services.on_arrival(now_us, service),
            Arrival::First => {
                let credit = FIRST_FACTOR * self.repairs.odds();
                let service = self.services.on_first(now_us, &Ends::of(packet, identity, flow), credit);
                self.flows.on_first(now_us, flow, service);
            }
        }
    }

    /// Notes a packet that leaves for the far site: answers to it may begin a flow.
    pub(super) fn on_departure(&mut self, now_us: u64, packet: &Packet<'_>, identity: &Identity) {
        if let Some(answers) = Flow::of_answers(packet, identity) {
            self.services.on_departure(now_us, answers);
        }
    }

    /// Notes that a first fragment arrived after its packet had been injected.
    pub(super) fn on_late_fragment(&mut self, now_us: u64) {
        self.fragmented_until_us = now_us + EVIDENCE_US;
    }

    /// Notes that the packet at a place arrived under its name.
    pub(super) fn on_named_arrival(&mut self, trace: Trace, seq: Seq) {
        let Trace { flow, opens, is_fragment, timestamp, .. } = trace;
        self.proof = PROOF.min(self.proof + 1);
        self.window.on_named(is_fragment);
        self.repairs.on_named();
        self.flows.on_named_arrival(flow, seq, opens);
        self.flows.on_named_timestamp(flow, timestamp.map(NonZero::get));
        let explains = 3 * self.repairs.odds() + ONE / 1024;
        let release = self.repairs.packets(self.repairs.limit()) / 2;
        self.lossy.on_arrival(self.now_us, flow, explains, release);
    }

    /// Notes that a packet that was named at `since_us` is missing although its repair has waited for it.
    /// Returns as what it counts.
    pub(super) fn on_missing(&mut self, seq: Seq, since_us: u64) -> Counted {
        let counted = self.runs.on_missing(seq, since_us);
        self.window.missing += 1;
        self.repairs.on_named();
        self.unexplained.charge(counted.part_of(self.repairs.weight()));
        self.suspicion.on_missing(counted);
        counted
    }

    /// Drops the evidence of missing packets so far: a queue explains them.
    pub(super) fn forgive(&mut self) {
        self.unexplained.limit(0);
        self.suspicion.forgive();
    }

    /// Notes that a packet arrived after a repair had missed it, and as what it counted.
    pub(super) fn on_late(&mut self, counted: Counted) {
        if counted.is_counted() {
            self.on_explained(counted);
        }
    }

    /// Notes that a packet arrived soon after it had been solved, and as what it counted.
    pub(super) fn on_overtaken(&mut self, trace: Trace, counted: Counted) {
        self.window.on_named(trace.is_fragment);
        self.on_late(counted);
        self.lossy.on_explained(trace.flow, counted.part_of(self.repairs.weight()));
    }

    /// Notes that a packet arrived long after it had been solved, and as what it counted. It still does where
    /// injections are decided about, but it is no evidence for other findings.
    pub(super) fn on_slow(&mut self, trace: Trace, counted: Counted) {
        let flow = trace.flow;
        if self.flows.on_slow(flow) && self.slow.level() < 2 * SLOW_MAX {
            self.slow.charge(ONE);
        }
        if self.flows.is_often_slow(flow) {
            self.slow_until_us = self.now_us + EVIDENCE_US;
        }
        if counted.is_counted() {
            self.window.on_named(trace.is_fragment);
            self.window.missing -= 1;
            self.suspicion.on_explained(counted, self.repairs.weight());
        }
    }

    /// Takes that back: the packet was another one with the same content.
    pub(super) fn off_slow(&mut self, flow: Flow) {
        self.flows.off_slow(flow);
        if self.slow.level() > 0 {
            self.slow.charge(-ONE);
        }
    }

    /// Notes that a repair arrived.
    pub(super) fn on_repair(&mut self) {
        self.repairs.on_repair();
    }

    /// Notes a sealed datagram by its number in the session. Returns the number of datagrams lost before it;
    /// -1 for one that had counted as lost.
    pub(super) fn on_sealed(&mut self, header: &SealedHeader) -> i64 {
        let lost = self.repairs.on_sealed(header.epoch, header.counter);
        if lost != 0 {
            let explains = self.repairs.explains();
            self.window.explained += lost * explains;
            if lost > 0 && self.unexplained.level() > -CREDITED {
                self.repairs.on_try();
            }
            let explained = lost * self.repairs.evidence(explains);
            self.unexplained.charge(-explained);
            self.lossy.on_lost(explained);
            self.suspicion.credit(explained);
            self.unseen.charge(-explained);
        }
        lost
    }

    /// Decides whether the solved packet of a place may be injected. If not, it counts as withheld.
    pub(super) fn admit(&mut self, now_us: u64, solved: &Solved, seq: Seq) -> bool {
        match self.judge(now_us, solved, seq) {
            Ok(()) => {
                if let Some(piece) = solved.piece {
                    self.pieces.on_injected(now_us, piece);
                }
                true
            }
            Err(reason) => {
                if solved.content.is_some_and(|content| self.translation.on_withheld(content)) {
                    self.translated_until_us = now_us + EVIDENCE_US;
                }
                match reason {
                    Withheld::Fragmented | Withheld::OpeningRewritten => self.on_withheld(reason, solved),
                    Withheld::UnseenFlow | Withheld::LeftFlow | Withheld::LossyFlow | Withheld::SlowPath => {
                        // The flow explains the loss; it says nothing about the others.
                        self.withheld.add(reason);
                        let evidence = solved.counted.part_of(self.repairs.weight());
                        self.unexplained.charge(-evidence);
                        if matches!(reason, Withheld::UnseenFlow | Withheld::LeftFlow) {
                            self.lossy.on_explained(solved.traits.flow, evidence);
                        }
                    }
                    _ => self.withheld.add(reason),
                }
                false
            }
        }
    }

    fn judge(&mut self, now_us: u64, solved: &Solved, seq: Seq) -> Result<(), Withheld> {
        let traits = &solved.traits;
        if solved.piece.is_some_and(|piece| self.pieces.has_arrived(piece)) {
            self.fragmented_until_us = now_us + EVIDENCE_US;
            return Err(Withheld::Fragmented);
        }
        let opening = traits.opens.map(|number| self.flows.opening(traits.flow, number, solved.since_us));
        if let Some(Opening::Arrived { is_rewritten }) = opening {
            if is_rewritten {
                self.opening_until_us = now_us + EVIDENCE_US;
            }
            return Err(Withheld::OpeningRewritten);
        }
        if self.is_trusted {
            return Ok(());
        }
        if self.proof < PROOF {
            return Err(Withheld::Unproven);
        }
        if self.slow.level() > SLOW_MAX || self.flows.is_slow(traits.flow) {
            return Err(Withheld::SlowPath);
        }
        self.judge_losses(now_us, solved)?;
        // A packet that opens a connection begins a flow, even if its ports have been in use.
        let standing = match opening {
            Some(Opening::New) => Standing::Unseen,
            _ => self.flows.standing(now_us, traits.flow, seq, self.repairs.odds() > LOSSY),
        };
        match standing {
            Standing::Present => Ok(()),
            Standing::Left => Err(Withheld::LeftFlow),
            Standing::Unseen => self.judge_first(now_us, &solved.ends),
        }
    }

    /// Compares the losses with those that the link explains, of this flow and of all.
    fn judge_losses(&mut self, now_us: u64, solved: &Solved) -> Result<(), Withheld> {
        let limit = self.repairs.limit();
        let flow = solved.traits.flow;
        if solved.counted.is_counted() {
            let (weight, limit) = (self.repairs.weight(), self.repairs.utmost());
            let scale = Scale { evidence: solved.counted.part_of(weight), weight, limit };
            match self.lossy.on_missing(now_us, flow, self.flows.arrived(flow), scale) {
                Missing::Counted => {}
                Missing::Aside => return Err(Withheld::LossyFlow),
                Missing::SetAside(excess) => {
                    self.unexplained.charge(-excess.min(self.unexplained.level().max(0)));
                    return Err(Withheld::LossyFlow);
                }
            }
        }
        if self.is_closed && self.unexplained.level() <= limit * 3 / 4 && !self.has_doubt() {
            self.is_closed = false;
        }
        // Before the first lost repair, chance may take as many packets of a flow. That one ends the wait.
        let level = self.unexplained.level();
        let is_certain =
            if self.repairs.has_lost() { !self.is_closed } else { level > self.repairs.certain() };
        if level > limit && is_certain {
            let [excess, limit] = [level, limit].map(|evidence| self.repairs.packets(evidence));
            let explained = self.lossy.set_aside(now_us, excess, limit);
            self.unexplained.charge(-self.repairs.evidence(explained));
        }
        if self.unexplained.level() > limit && !self.is_closed {
            self.close();
        }
        if self.is_closed { Err(Withheld::Unexplained) } else { Ok(()) }
    }

    /// Judges the first packet of a flow: a filter on the way may have dropped it.
    fn judge_first(&mut self, now_us: u64, ends: &Ends) -> Result<(), Withheld> {
        let is_due = self.services.on_missing(now_us, ends) && !self.flows.is_revived(ends.flow);
        if !is_due || self.unseen.level() > self.repairs.limit() / 2 {
            return Err(Withheld::UnseenFlow);
        }
        self.unseen.charge(self.repairs.weight());
        self.flows.on_revived(ends.flow);
        Ok(())
    }

    /// Takes the content of a packet that arrived from a network that belongs to no peer.
    pub(super) fn on_stranger(&mut self, now_us: u64, content: Content) {
        if self.translation.on_stranger(content) {
            self.translated_until_us = now_us + EVIDENCE_US;
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.clean = 0;
    }

    /// Whether a finding stands against recovery as a whole.
    pub(super) fn has_doubt(&self) -> bool {
        [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere]
            .into_iter()
            .any(|finding| self.findings.contains(finding))
    }

    /// Judges the window if it is over. Must be called regularly.
    pub(super) fn on_tick(&mut self, now_us: u64) {
        self.unexplained.forget_credit();
        self.suspicion.on_tick(self.repairs.weight(), 2 * self.repairs.certain());
        self.unseen.forget_credit();
        self.now_us = now_us;
        self.lossy.on_tick(now_us);
        self.findings.set(Finding::Fragmented, now_us < self.fragmented_until_us);
        self.findings.set(Finding::OpeningRewritten, now_us < self.opening_until_us);
        let is_slow = self.slow.level() > SLOW_MAX || now_us < self.slow_until_us;
        self.findings.set(Finding::SlowPath, is_slow);
        if self.has_doubt() && now_us < self.translated_until_us {
            self.findings.set(Finding::Rewritten, true);
            self.findings.set(Finding::Elsewhere, false);
            self.findings.set(Finding::PartlyElsewhere, false);
        }
        if let Some(window) = self.window.take_if_over(now_us) {
            self.judge_window(now_us, &window);
        }
    }

    /// Present differences from the configuration.
    pub(super) fn findings(&self) -> Findings {
        self.findings
    }

    /// Whether solved packets are injected at all.
    pub(super) fn is_recovering(&self) -> bool {
        self.is_trusted || self.proof == PROOF && !self.is_closed && self.slow.level() <= SLOW_MAX
    }

    /// Counts a solved packet that is not injected for a reason of its own, which says nothing about the
    /// others.
    pub(super) fn on_withheld(&mut self, reason: Withheld, solved: &Solved) {
        self.withheld.add(reason);
        self.on_late(solved.counted);
    }

    /// Notes that a packet that counted as missing is not.
    fn on_explained(&mut self, counted: Counted) {
        let weight = self.repairs.weight();
        self.window.missing -= 1;
        self.unexplained.charge(-counted.part_of(weight));
        self.suspicion.on_explained(counted, weight);
    }

    pub(super) fn withheld(&self) -> &WithheldCounts {
        &self.withheld
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.flows.memory_bytes()
            + self.services.memory_bytes()
            + self.pieces.memory_bytes()
            + self.translation.memory_bytes()
    }
}
