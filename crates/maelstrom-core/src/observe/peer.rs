//! Changes of one peer.

use std::net::SocketAddr;

use super::event::{EventKind, Level, Site};
use super::journal::Journal;
use super::limit::{Changes, Growth};
use super::verdict::{Concern, Verdict, is_recovered, stays_lost};
use super::windows::{SPANS_S, Step, Window, Windows};
use crate::caps::Cap;
use crate::channel::Trouble;
use crate::config::PeerConfig;
use crate::congestion::CongestionState;
use crate::controller::{Decision, Limit};
use crate::findings::{Finding, Findings};
use crate::keys::KeyState;
use crate::peer_status::PeerStatus;
use fec::RepairRate;

/// Time that a peer may be down before the reason must be known.
const REASON_US: u64 = 1_000_000;
/// Time of pauses of recovery in the last minutes from which they are a concern: a hundredth.
const PAUSED_MAX_US: u64 = 3_000_000;
/// Greatest part of a silence of the peer that counts as a pause of recovery.
const SILENCE_US: u64 = 1_000_000;
/// Time that a state of the keys lasts before it is an event: some states last a round trip.
const KEYS_US: u64 = 1_500_000;
/// Time for which a path is dead before it is told: at the begin of a session none has answered yet.
const PATH_US: u64 = 1_000_000;
/// Least interval between events about the rate of repairs, and about congestion: they settle in steps.
const CHOICE_US: u64 = 5_000_000;
/// Share of repairs above which it is an event that a cap refuses them.
const REFUSED_MIN: f64 = 0.1;

/// The site of a peer.
pub(super) fn site(peer: &PeerConfig) -> Option<Site> {
    let gateway = peer.is_of_rack.then_some(peer.address);
    peer.networks.first().map(|&network| Site { network, gateway })
}

/// The state of one peer, as far as events have told it.
#[derive(Debug)]
pub(super) struct Watched {
    site: Option<Site>,
    address: SocketAddr,
    is_tunnel: bool,
    place: Place,
    windows: Windows,
    concerns: Vec<Concern>,
    findings: [Findings; 2],
    link: Link,
    wrong_key: Growth,
    keys: Keys,
    renewals: Growth,
    sessions: Growth,
    cut: Growth,
    marks: Growth,
    path: Path,
    code: Codes,
    residual: [Residual; 2],
    pauses: Pauses,
    paths: Paths,
}

impl Watched {
    pub(super) fn new(peer: &PeerConfig) -> Self {
        Self {
            site: site(peer),
            address: peer.address,
            is_tunnel: peer.is_tunnel,
            place: Place { noted: peer.address, moves: Changes::default() },
            windows: Windows::default(),
            concerns: vec![Concern::PeerDown],
            findings: [Findings::NONE; 2],
            link: Link::default(),
            wrong_key: Growth::default(),
            keys: Keys::default(),
            renewals: Growth::default(),
            sessions: Growth::default(),
            cut: Growth::default(),
            marks: Growth::default(),
            path: Path::default(),
            code: Codes::default(),
            residual: [Residual::default(); 2],
            pauses: Pauses::default(),
            paths: Paths::default(),
        }
    }

    pub(super) fn site(&self) -> Option<Site> {
        self.site
    }

    /// Whether this is the peer of a configuration: its site or its address is the same.
    pub(super) fn is_of(&self, peer: &PeerConfig) -> bool {
        self.site == site(peer) || peer.has_address() && self.address == peer.address
    }

    pub(super) fn with_site(self, peer: &PeerConfig) -> Self {
        Self { site: site(peer), ..self }
    }

    pub(super) fn course(&self) -> Vec<Step> {
        self.windows.course()
    }

    pub(super) fn windows(&self) -> [Window; SPANS_S.len()] {
        self.windows.windows()
    }

    pub(super) fn verdict(&self) -> Verdict {
        let verdict = Verdict::new(self.concerns.clone(), self.findings, &self.windows.windows());
        Verdict { is_tunnel: self.is_tunnel, ..verdict }
    }

    /// Compares the peer with its state at the last call.
    pub(super) fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, journal: &mut Journal) {
        let address = peer.config.address;
        let mut note = |kind| journal.push(now_us, site(peer.config), kind);
        self.address = address;
        self.is_tunnel = peer.config.is_tunnel;
        self.place.observe(now_us, address, &mut note);
        self.link.observe(now_us, peer, &mut note);
        if let Some(count) = self.wrong_key.on_count(now_us, peer.wrong_key) {
            note(EventKind::WrongKey { count, from: address });
        }
        self.keys.observe(now_us, peer, &mut note);
        if peer.sessions <= 1 {
            // The first session is that of the peer's first `Up`.
            self.sessions.skip_to(peer.sessions);
        } else if let Some(count) = self.sessions.on_count(now_us, peer.sessions) {
            note(EventKind::NewSession { count });
        }
        if let Some(count) = self.renewals.on_count(now_us, peer.renewals) {
            note(EventKind::Renewed { count });
        }
        if let Some(count) = self.cut.on_count(now_us, peer.egress.cut_in_two) {
            note(EventKind::Fragmented { count });
        }
        if let Some(count) = self.marks.on_count(now_us, peer.ingress.ecn.dropped) {
            note(EventKind::MarksDropped { count });
        }
        self.path.observe(now_us, peer, &mut note);
        self.paths.observe(now_us, peer, &mut note);
        self.code.observe(now_us, peer, &mut note);
        let paused_us = self.pauses.observe(now_us, peer);
        if self.windows.sample(now_us, peer, paused_us) {
            let [seconds, ..] = self.windows.windows();
            let fates = [seconds.counts.here, seconds.counts.there];
            for (is_outgoing, (residual, fates)) in
                [false, true].into_iter().zip(self.residual.iter_mut().zip(fates))
            {
                residual.observe(now_us, is_outgoing, &fates, &mut note);
            }
        }
        self.findings = [peer.findings, peer.far.findings];
        self.concerns = self.concerns(now_us, peer);
    }

    fn concerns(&self, now_us: u64, peer: &PeerStatus<'_>) -> Vec<Concern> {
        let [_, minutes, _] = self.windows.windows();
        let stay_lost = |at: usize, fates| self.residual[at].is_noted || stays_lost(fates);
        let differs = |findings: Findings, is_recovering: bool| !findings.is_empty() && !is_recovering;
        [
            (Concern::PeerDown, !peer.is_up),
            (Concern::ResidualIn, stay_lost(0, &minutes.counts.here)),
            (Concern::ResidualOut, stay_lost(1, &minutes.counts.there)),
            (Concern::RecoveryPaused, minutes.counts.paused_us >= PAUSED_MAX_US),
            (Concern::PathIn, differs(peer.findings, peer.is_recovering)),
            (Concern::PathOut, peer.is_up && differs(peer.far.findings, peer.far.is_recovering)),
            (Concern::Overload, peer.share.fraction() < 1.0),
            (Concern::PathDead, self.paths.is_any_dead(now_us)),
        ]
        .into_iter()
        .filter_map(|(concern, holds)| holds.then_some(concern))
        .collect()
    }
}

/// The address of the peer.
#[derive(Debug)]
struct Place {
    /// The one that the last event told.
    noted: SocketAddr,
    moves: Changes,
}

impl Place {
    fn observe(&mut self, now_us: u64, address: SocketAddr, note: &mut impl FnMut(EventKind)) {
        // A first path without an address is no place.
        let is_place = !address.ip().is_unspecified();
        if is_place && address != self.noted && self.moves.allows(now_us) {
            self.noted = address;
            note(EventKind::Moved { to: address });
        }
    }
}

/// Whether the peer is up, and why not.
#[derive(Debug, Default)]
struct Link {
    is_up: bool,
    /// Time since which the peer has been up, or down.
    since_us: u64,
    /// The state that the last event told.
    noted: bool,
    /// Beginning of the state that the last event told; `None` before the first.
    noted_us: Option<u64>,
    changes: Changes,
    trouble: Option<Trouble>,
    troubles: Changes,
}

impl Link {
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, note: &mut impl FnMut(EventKind)) {
        if peer.is_up != self.is_up {
            (self.is_up, self.since_us) = (peer.is_up, now_us);
        }
        let is_known = self.is_up || peer.trouble.is_some() || now_us >= self.since_us + REASON_US;
        if self.is_up != self.noted && is_known && self.changes.allows(now_us) {
            let after_us = self.noted_us.map(|noted_us| self.since_us.saturating_sub(noted_us));
            (self.noted, self.noted_us) = (self.is_up, Some(self.since_us));
            if self.is_up {
                note(EventKind::Up { after_us });
            } else {
                self.trouble = peer.trouble;
                let (after_us, is_tunnel) = (after_us.unwrap_or(0), peer.config.is_tunnel);
                note(EventKind::Down { after_us, is_tunnel, trouble: peer.trouble });
            }
        }
        // The reason of a peer that is going down is told with that event.
        if peer.trouble == self.trouble || self.noted && peer.trouble.is_some() {
            return;
        }
        if peer.trouble.is_none() || self.troubles.allows(now_us) {
            self.trouble = peer.trouble;
            self.trouble.map(EventKind::Trouble).into_iter().for_each(note);
        }
    }
}

/// Progress of a change of the key.
#[derive(Debug, Default)]
struct Keys {
    noted: KeyState,
    /// The present state, and the time since which it lasts.
    present: KeyState,
    since_us: u64,
    changes: Changes,
}

impl Keys {
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, note: &mut impl FnMut(EventKind)) {
        // Nothing is known of the keys of a peer that is down.
        if !peer.is_up {
            return;
        }
        if peer.keys != self.present {
            (self.present, self.since_us) = (peer.keys, now_us);
        }
        let lasts = now_us >= self.since_us + KEYS_US;
        if self.present != self.noted && lasts && self.changes.allows(now_us) {
            self.noted = self.present;
            note(EventKind::Keys(self.present));
        }
    }
}

/// Differences of the path from the configuration.
#[derive(Debug, Default)]
struct Path {
    here: Findings,
    there: Findings,
    changes: Changes,
    narrower_mtu: Option<usize>,
}

impl Path {
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, note: &mut impl FnMut(EventKind)) {
        let (here, there) = (peer.findings, peer.far.findings);
        if (here, there) != (self.here, self.there) && self.changes.allows(now_us) {
            let news = |now: Findings, before: Findings| {
                Finding::ALL.into_iter().filter(move |&one| now.contains(one) && !before.contains(one))
            };
            news(here, self.here)
                .for_each(|finding| note(EventKind::Finding { finding, is_outgoing: false }));
            news(there, self.there)
                .for_each(|finding| note(EventKind::Finding { finding, is_outgoing: true }));
            news(self.here, here).for_each(|finding| note(EventKind::NoFinding(finding)));
            (self.here, self.there) = (here, there);
        }
        if peer.narrower_mtu != self.narrower_mtu {
            self.narrower_mtu = peer.narrower_mtu;
            peer.narrower_mtu.map(|mtu| EventKind::NarrowPath { mtu }).into_iter().for_each(note);
        }
    }
}

/// Time in which recovery paused.
#[derive(Debug, Default)]
struct Pauses {
    total_us: u64,
    /// Time since the latest arrival that is not in the sum yet.
    silent_us: u64,
    /// Whether recovery paused at the last look, and its time.
    is_paused: bool,
    looked_us: u64,
    /// Number of packets and repairs that had arrived then.
    arrived: u64,
}

impl Pauses {
    /// Returns the sum of all pauses. A pause ends with a repair, so that it lasts as long as the peer is
    /// silent: of a silence, one second counts.
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>) -> u64 {
        if self.is_paused {
            let passed_us = now_us.saturating_sub(self.looked_us);
            self.silent_us = (self.silent_us + passed_us).min(SILENCE_US);
        }
        let arrived = peer.ingress.source_packets + peer.report.repairs;
        if arrived != self.arrived {
            self.total_us += self.silent_us;
            self.silent_us = 0;
        }
        (self.is_paused, self.looked_us, self.arrived) = (peer.is_paused, now_us, arrived);
        self.total_us
    }
}

/// Several paths to a peer.
#[derive(Debug, Default)]
struct Paths {
    /// Whether each lives, as the last events told, and since when it is as it is.
    noted: Vec<bool>,
    present: Vec<(bool, u64)>,
    changes: Changes,
}

impl Paths {
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, note: &mut impl FnMut(EventKind)) {
        if !peer.is_up || peer.paths.len() != self.present.len() {
            // While the peer is down, that is told.
            self.noted = vec![true; peer.paths.len()];
            self.present = vec![(true, now_us); peer.paths.len()];
        }
        let Self { noted, present, changes } = self;
        for (index, (path, (is_alive, since_us))) in peer.paths.iter().zip(present).enumerate() {
            if path.is_alive != *is_alive {
                (*is_alive, *since_us) = (path.is_alive, now_us);
            }
            let is_known = *is_alive || now_us >= *since_us + PATH_US;
            if noted[index] != *is_alive && is_known && changes.allows(now_us) {
                noted[index] = *is_alive;
                note(EventKind::Path { number: index + 1, is_alive: *is_alive });
            }
        }
    }

    fn is_any_dead(&self, now_us: u64) -> bool {
        self.present.iter().any(|&(is_alive, since_us)| !is_alive && now_us >= since_us + PATH_US)
    }
}

/// The code of repairs, its rate, and the treatment of losses of a full queue.
#[derive(Debug, Default)]
struct Codes {
    /// A code that the file states.
    stated: Option<String>,
    /// The rate that was chosen, what limits it, and the cap that refuses repairs.
    choice: Option<(RepairRate, Limit, Option<Cap>)>,
    choices: Changes,
    next_choice_us: u64,
    /// Whether losses behind a full queue were left to their senders at the last event.
    leaves: bool,
    turns: Changes,
    next_congestion_us: u64,
}

impl Codes {
    fn observe(&mut self, now_us: u64, peer: &PeerStatus<'_>, note: &mut impl FnMut(EventKind)) {
        self.on_congestion(now_us, &peer.congestion, note);
        if !peer.is_up || now_us < self.next_choice_us {
            return;
        }
        match peer.decision {
            Some(decision) => self.on_decision(now_us, decision, note),
            None => {
                self.choice = None;
                self.next_choice_us = now_us + CHOICE_US;
                let code = Some(peer.code.to_string());
                if self.stated != code {
                    self.stated = code;
                    self.stated.clone().map(|code| EventKind::Code { code }).into_iter().for_each(note);
                }
            }
        }
    }

    fn on_congestion(&mut self, now_us: u64, congestion: &CongestionState, note: &mut impl FnMut(EventKind)) {
        let is_due = congestion.is_leaving != self.leaves && now_us >= self.next_congestion_us;
        if is_due && self.turns.allows(now_us) {
            (self.leaves, self.next_congestion_us) = (congestion.is_leaving, now_us + CHOICE_US);
            note(EventKind::Congestion { verdict: congestion.to_string() });
        }
    }

    fn on_decision(&mut self, now_us: u64, decision: &Decision, note: &mut impl FnMut(EventKind)) {
        let refusal = decision.refusal.filter(|refusal| refusal.share > REFUSED_MIN);
        let choice = Some((decision.rate, decision.limit, refusal.map(|refusal| refusal.cap)));
        if choice == self.choice || !self.choices.allows(now_us) {
            return;
        }
        self.stated = None;
        (self.choice, self.next_choice_us) = (choice, now_us + CHOICE_US);
        let level = match decision.limit {
            Limit::Useless | Limit::Hopeless | Limit::Highest | Limit::Bandwidth => Level::Warning,
            _ if refusal.is_some() => Level::Warning,
            _ => Level::Info,
        };
        note(EventKind::Rate {
            choice: format!("{decision} (windows of {} packets)", decision.window),
            level,
        });
    }
}

/// Whether packets stay lost in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Residual {
    is_noted: bool,
    changes: Changes,
}

impl Residual {
    fn observe(
        &mut self,
        now_us: u64,
        is_outgoing: bool,
        fates: &super::windows::Fates,
        note: &mut impl FnMut(EventKind),
    ) {
        let changes = if self.is_noted { is_recovered(fates) } else { stays_lost(fates) };
        if !changes || !self.changes.allows(now_us) {
            return;
        }
        self.is_noted = !self.is_noted;
        note(if self.is_noted {
            let (residual, lost, packets) = (fates.residual(), fates.lost, fates.packets);
            EventKind::Residual { is_outgoing, residual, lost, packets }
        } else {
            EventKind::NoResidual { is_outgoing }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_congestion_that_change_all_the_time_are_events_three_times_a_minute() {
        let decision = |repairs| Decision { rate: RepairRate::new(repairs, 16).unwrap(), ..Decision::START };
        let congestion = |is_leaving| CongestionState {
            is_leaving,
            is_masking: false,
            queue_us: 0,
            queue: None,
            has_losses: true,
        };
        let (mut codes, mut events) = (Codes::default(), Vec::new());
        let mut look = |at: u64, is_odd: bool| {
            let now_us = at * CHOICE_US;
            let mut note = |kind| events.push((at, kind));
            codes.on_congestion(now_us, &congestion(is_odd), &mut note);
            codes.on_decision(now_us, &decision(1 + u32::from(is_odd)), &mut note);
        };
        // Ten minutes, and then a state that lasts.
        (0..120).for_each(|at| look(at, at % 2 == 0));
        (120..130).for_each(|at| look(at, true));
        for id in ["rate_changed", "congestion_changed"] {
            let of_kind = || events.iter().filter(|(_, kind)| kind.id() == id);
            let count = of_kind().filter(|(at, _)| *at < 120).count();
            assert!((20..=36).contains(&count), "{count} times {id} in ten minutes");
            let at_once = of_kind().filter(|(at, _)| *at < 4).count();
            assert_eq!(at_once, 4, "{id}: the first ones are not held back");
        }
        let last = |id| events.iter().rev().map(|(_, kind)| kind).find(|kind| kind.id() == id);
        let Some(EventKind::Rate { choice, .. }) = last("rate_changed") else { panic!("{events:?}") };
        assert!(choice.starts_with("1/8: "), "the state that lasts is told: {choice}");
    }
}
