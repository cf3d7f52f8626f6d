//! Logs changes of the state of each peer: up or down, trouble with the repair channel, findings about the
//! path.

use std::collections::VecDeque;

use maelstrom_core::congestion::CongestionState;
use maelstrom_core::controller::{Decision, Limit};
use maelstrom_core::{Cap, Finding, Findings, Gateway, PeerStatus, RepairRate, Trouble};
use tracing::{info, warn};

use crate::config::GatewayConfig;
use crate::status::narrow_path;

/// Interval between comparisons of a peer's state with the one that was logged.
const CHECK_US: u64 = 100_000;
/// Span of time in which at most [`CHANGES_MAX`] changes of one peer are logged.
const SPAN_US: u64 = 60_000_000;
/// Maximum number of changes of one peer that are logged in a span.
const CHANGES_MAX: usize = 20;
/// Interval between log lines about the rate of repairs to one peer.
const CHOICE_US: u64 = 5_000_000;
/// Share of repairs above which it is logged that a cap refuses them.
const REFUSED_MIN: f64 = 0.1;

/// The state of a peer, as far as it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    is_up: bool,
    trouble: Option<Trouble>,
    here: Findings,
    there: Findings,
    narrower_mtu: Option<usize>,
}

/// One peer.
#[derive(Debug, Default)]
struct Watched {
    label: String,
    logged: Known,
    /// Times of the last changes that were logged.
    changes_us: VecDeque<u64>,
    /// The rate that was logged, what limits it, and the cap that refuses repairs.
    choice: Option<(RepairRate, Limit, Option<Cap>)>,
    next_choice_us: u64,
    /// Whether losses behind a full queue were left to their senders at the last log line.
    leaves: bool,
    next_congestion_us: u64,
}

/// The states that were logged.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    peers: Vec<Watched>,
    next_us: u64,
}

impl Watch {
    /// Logs what has changed since the last call.
    pub(crate) fn check(&mut self, now_us: u64, gateway: &Gateway, config: &GatewayConfig) {
        if now_us < self.next_us {
            return;
        }
        self.next_us = now_us + CHECK_US;
        let labels = config.peers.iter().map(crate::config::Peer::label);
        if !labels.clone().eq(self.peers.iter().map(|peer| peer.label.clone())) {
            self.peers = labels.map(|label| Watched { label, ..Watched::default() }).collect();
        }
        for (watched, peer) in self.peers.iter_mut().zip(gateway.peers()) {
            watched.update(now_us, Known::of(&peer));
            watched.update_congestion(now_us, &peer.congestion);
            if let Some(decision) = peer.decision.filter(|_| peer.is_up) {
                watched.update_choice(now_us, decision);
            }
        }
    }
}

impl Known {
    fn of(peer: &PeerStatus<'_>) -> Self {
        Self {
            is_up: peer.is_up,
            trouble: peer.trouble,
            here: peer.findings,
            there: peer.far.findings,
            narrower_mtu: peer.narrower_mtu,
        }
    }
}

impl Watched {
    /// A state that changes all the time is logged less often than it changes.
    fn update(&mut self, now_us: u64, known: Known) {
        if known == self.logged {
            return;
        }
        while self.changes_us.front().is_some_and(|&at_us| at_us + SPAN_US <= now_us) {
            self.changes_us.pop_front();
        }
        if self.changes_us.len() == CHANGES_MAX {
            return;
        }
        self.changes_us.push_back(now_us);
        let before = std::mem::replace(&mut self.logged, known);
        self.log(before, known);
    }

    /// Logs the rate of repairs and its reason, at most once in [`CHOICE_US`].
    fn update_choice(&mut self, now_us: u64, decision: &Decision) {
        let refusal = decision.refusal.filter(|refusal| refusal.share > REFUSED_MIN);
        let choice = Some((decision.rate, decision.limit, refusal.map(|refusal| refusal.cap)));
        if choice == self.choice || now_us < self.next_choice_us {
            return;
        }
        (self.choice, self.next_choice_us) = (choice, now_us + CHOICE_US);
        let (peer, window) = (&self.label, decision.window);
        match decision.limit {
            Limit::Useless | Limit::Hopeless | Limit::Highest | Limit::Bandwidth => {
                warn!(peer, window, "repairs: {decision}");
            }
            _ if refusal.is_some() => warn!(peer, window, "repairs: {decision}"),
            _ => info!(peer, window, "repairs: {decision}"),
        }
    }

    /// Logs what happens to packets that a full queue drops, at most once in [`CHOICE_US`].
    fn update_congestion(&mut self, now_us: u64, state: &CongestionState) {
        if state.is_leaving == self.leaves || now_us < self.next_congestion_us {
            return;
        }
        (self.leaves, self.next_congestion_us) = (state.is_leaving, now_us + CHOICE_US);
        info!(peer = self.label, "congestion on the path from the peer: {state}");
    }

    fn log(&self, before: Known, now: Known) {
        let peer = &self.label;
        if now.is_up && !before.is_up {
            info!(peer, "up: packets are protected, and repairs arrive in both directions");
        } else if before.is_up && !now.is_up {
            warn!(peer, "down: packets to this peer are not protected");
        }
        if let Some(trouble) = now.trouble.filter(|_| now.trouble != before.trouble) {
            warn!(peer, help = trouble.remedy(), "{trouble}");
        }
        if let Some(mtu) = now.narrower_mtu.filter(|_| now.narrower_mtu != before.narrower_mtu) {
            let narrow = narrow_path(mtu);
            warn!(peer, help = narrow.remedy, "{}", narrow.cause);
        }
        let news = |now: Findings, before: Findings, is_new: bool| {
            Finding::ALL
                .into_iter()
                .filter(move |&finding| now.contains(finding) == is_new && before.contains(finding) != is_new)
        };
        for finding in news(now.here, before.here, true) {
            warn!(
                peer,
                help = finding.remedy(),
                "on the path from the peer: {finding}; such packets are not recovered"
            );
        }
        for finding in news(now.there, before.there, true) {
            warn!(peer, help = finding.remedy(), "on the path to the peer, as it reports: {finding}");
        }
        for finding in news(now.here, before.here, false) {
            info!(peer, "no more on the path from the peer: {finding}");
        }
    }
}
