//! Events of the gateway, as the core's [`Observer`] finds them: in the log, and for the status.

use maelstrom_core::Gateway;
use maelstrom_core::observe::{Condition, Event, EventKind, Level, Observer, Site};
use tracing::{info, warn};

use crate::config::{GatewayConfig, Peer};
use crate::passive::Passive;

/// Interval between messages to the service manager.
const TELL_US: u64 = 10_000_000;
/// Maximum number of peers in such a message.
const SHOWN_MAX: usize = 8;

/// Observes the peers, and logs each event once.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    observer: Observer,
    /// Number of events that the log has.
    logged: u64,
    /// Condition of each peer that the service manager was told, and the time of the next message.
    told: Vec<Condition>,
    next_told_us: u64,
}

impl Watch {
    /// Logs what has changed since the last call.
    pub(crate) fn check(&mut self, now_us: u64, gateway: &Gateway, config: &GatewayConfig) {
        self.observer.observe(now_us, gateway);
        self.log(config);
    }

    /// Notes an event that the core cannot see, and logs it.
    pub(crate) fn note(&mut self, now_us: u64, kind: EventKind, config: &GatewayConfig) {
        self.observer.note(now_us, kind);
        self.log(config);
    }

    /// Notes that the process stood still, and logs it.
    pub(crate) fn on_stall(&mut self, now_us: u64, length_us: u64, config: &GatewayConfig) {
        self.observer.on_stall(now_us, length_us);
        self.log(config);
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Returns the verdict about all peers for the service manager, if it is time to tell it: as soon as the
    /// condition of a peer changes, and else every 10 s.
    pub(crate) fn news(&mut self, now_us: u64, config: &GatewayConfig) -> Option<String> {
        let verdicts = || (0..config.peers.len()).map(|peer| self.observer.verdict(peer));
        if now_us < self.next_told_us && !self.observer.has_looked(now_us) {
            return None;
        }
        let conditions: Vec<Condition> = verdicts().map(|verdict| verdict.condition).collect();
        if now_us < self.next_told_us && conditions == self.told {
            return None;
        }
        let labelled = |(peer, verdict)| format!("{}: {verdict}", Peer::label(peer));
        let text = config.peers.iter().zip(verdicts()).take(SHOWN_MAX).map(labelled).collect::<Vec<_>>();
        (self.told, self.next_told_us) = (conditions, now_us + TELL_US);
        Some(text.join("; "))
    }

    fn log(&mut self, config: &GatewayConfig) {
        for event in self.observer.journal().since(self.logged) {
            log(event, event.peer.map(|site| label(config, site)).as_deref());
        }
        self.logged = self.observer.journal().count();
    }
}

impl Passive {
    /// Logs what has changed, and tells the service manager.
    pub(crate) fn observe(&mut self) {
        self.watch.check(self.engine.now_us, &self.engine.gateway, &self.config);
        if let Some(news) = self.watch.news(self.engine.now_us, &self.config) {
            self.supervisor.status(&news);
        }
    }
}

/// The operator's name of the peer with this network, or its address.
pub(crate) fn label(config: &GatewayConfig, site: Site) -> String {
    let Site { network, gateway } = site;
    let is_it = |peer: &&Peer| {
        peer.networks.contains(&network) && gateway.is_none_or(|address| peer.address == address)
    };
    config.peers.iter().find(is_it).map_or_else(|| network.to_string(), Peer::label)
}

fn log(event: &Event, peer: Option<&str>) {
    let (id, kind, help) = (event.kind.id(), &event.kind, event.kind.remedy());
    match event.kind.level() {
        Level::Info => info!(peer, help, event = id, "{kind}"),
        Level::Warning => warn!(peer, help, event = id, "{kind}"),
    }
}
