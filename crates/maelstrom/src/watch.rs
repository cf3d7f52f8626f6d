//! Events of the gateway, as the core's [`Observer`] finds them: in the log, and for the status.

use maelstrom_core::Gateway;
use maelstrom_core::observe::{Condition, Event, EventKind, Level, Observer, Site};
use tracing::{info, warn};

use crate::config::{GatewayConfig, Peer};
use crate::passive::Passive;
use crate::status::HealthStatus;

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
    /// Verdict about the gateway itself and condition of each peer that the service manager was told, and the
    /// time of the next message.
    told: (Option<String>, Vec<Condition>),
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

    /// Whether there may be news for the service manager.
    pub(crate) fn may_have_news(&self, now_us: u64) -> bool {
        now_us >= self.next_told_us || self.observer.has_looked(now_us)
    }

    /// Returns the verdict about the gateway itself (`own`) and about all peers for the service manager, if
    /// it is time to tell it: as soon as the first or the condition of a peer changes, and else every 10 s.
    pub(crate) fn news(
        &mut self,
        now_us: u64,
        own: Option<String>,
        config: &GatewayConfig,
    ) -> Option<String> {
        let verdicts = || (0..config.peers.len()).map(|peer| self.observer.verdict(peer));
        let conditions: Vec<Condition> = verdicts().map(|verdict| verdict.condition).collect();
        let news = (own, conditions);
        if now_us < self.next_told_us && news == self.told {
            return None;
        }
        let labelled = |(peer, verdict)| format!("{}: {verdict}", Peer::label(peer));
        let peers = config.peers.iter().zip(verdicts()).take(SHOWN_MAX).map(labelled);
        let text = news.0.iter().cloned().chain(peers).collect::<Vec<_>>();
        (self.told, self.next_told_us) = (news, now_us + TELL_US);
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
        let now_us = self.engine.now_us;
        self.watch.check(now_us, &self.engine.gateway, &self.config);
        if !self.watch.may_have_news(now_us) {
            return;
        }
        let own = self.own_verdict();
        if let Some(news) = self.watch.news(now_us, own, &self.config) {
            self.supervisor.status(&news);
        }
    }

    /// The verdict about the gateway itself, if it has reasons of its own.
    fn own_verdict(&self) -> Option<String> {
        let rack = self.rack.as_ref().map(|racked| racked.status(self.engine.now_us));
        // Without any, as nearly always, the peers need no look.
        self.health([].iter(), rack.as_ref()).own_reasons().next()?;
        let of =
            |(at, peer): (usize, &Peer)| HealthStatus::of(&self.watch.observer.verdict(at), &peer.label());
        let peers: Vec<HealthStatus> = self.config.peers.iter().enumerate().map(of).collect();
        self.health(peers.iter(), rack.as_ref()).own_verdict()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::configuration;

    #[test]
    fn a_service_manager_hears_first_what_is_wrong_with_the_gateway_itself() {
        let config = configuration(
            "[gateway]\nwan = \"wan0\"\nlisten = \"10.81.9.1:4700\"\n[[peer]]\nname = \"osaka\"\n\
             address = \"10.81.9.2:4700\"\nnetworks = [\"10.81.2.0/24\"]\nkey_file = \"peer.key\"\n",
        );
        let mut watch = Watch::default();
        let mut news = |now_us, own: Option<&str>| watch.news(now_us, own.map(str::to_owned), &config);
        assert_eq!(news(1, None).as_deref(), Some("osaka: down"));
        assert_eq!(news(2, None), None, "nothing has changed");
        let text = "gateway down: the WAN interface wan0 is gone; osaka: down";
        assert_eq!(news(3, Some("gateway down: the WAN interface wan0 is gone")).as_deref(), Some(text));
        assert_eq!(news(4, Some("gateway down: the WAN interface wan0 is gone")), None);
        assert_eq!(news(5, None).as_deref(), Some("osaka: down"));
        assert_eq!(news(5 + TELL_US, None).as_deref(), Some("osaka: down"));
    }
}
