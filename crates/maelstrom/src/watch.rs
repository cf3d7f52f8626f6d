//! Events of the gateway, as the core's [`Observer`] finds them: in the log, and for the status.

use std::net::SocketAddr;

use maelstrom_core::Gateway;
use maelstrom_core::observe::{Event, EventKind, Level, Observer};
use tracing::{info, warn};

use crate::config::GatewayConfig;

/// Observes the peers, and logs each event once.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    observer: Observer,
    /// Number of events that the log has.
    logged: u64,
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

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    fn log(&mut self, config: &GatewayConfig) {
        for event in self.observer.journal().since(self.logged) {
            log(event, event.peer.map(|address| label(config, address)).as_deref());
        }
        self.logged = self.observer.journal().count();
    }
}

/// The operator's name of a peer, or its address.
pub(crate) fn label(config: &GatewayConfig, address: SocketAddr) -> String {
    let peer = config.peers.iter().find(|peer| peer.address == address);
    peer.map_or_else(|| address.to_string(), crate::config::Peer::label)
}

fn log(event: &Event, peer: Option<&str>) {
    let (id, kind, help) = (event.kind.id(), &event.kind, event.kind.remedy());
    match event.kind.level() {
        Level::Info => info!(peer, help, event = id, "{kind}"),
        Level::Warning => warn!(peer, help, event = id, "{kind}"),
    }
}
