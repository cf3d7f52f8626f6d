//! The answer to a status request: everything that the gateway knows, in one document.

use daemon::log;
use maelstrom_core::counters::Unprotected;
use netio::tap::Tap;
use tracing::debug;

use crate::config::{GatewayConfig, Mode, Peer};
use crate::engine::Engine;
use crate::inlet::Inlet;
use crate::passive::Passive;
use crate::status::{
    self, Counter, EventStatus, GatewayStatus, HealthStatus, Injection, MulticastStatus, PeerStatus, Status,
    WantedStatus,
};
use crate::tunnel::Tunnel;
use crate::watch::label;

impl Passive {
    /// Answers the clients of the control socket.
    pub(crate) fn answer_status(&mut self) {
        let document = || {
            let mut document = serde_json::to_vec(&self.snapshot())?;
            document.push(b'\n');
            Ok(document)
        };
        if let Err(error) = self.control.answer(document) {
            debug!(%error, "cannot answer a status request");
        }
    }

    fn snapshot(&self) -> Status {
        let Self { config, started_us, .. } = self;
        let Engine { gateway, counts, now_us, .. } = &self.engine;
        let (tap, inlet) = (self.ports.tap.as_ref(), self.ports.outlets.inlet.as_ref());
        let tunnel = self.ports.outlets.tunnel.as_ref();
        let (written, arrived) = inlet.map_or((0, 0), Inlet::at_wan);
        let peers = self.peers();
        let counters = [
            (Counter::OutgoingUncut, counts.uncut_outgoing),
            (Counter::IncomingUncut, counts.uncut_incoming),
            (Counter::OfVlans, counts.of_vlans),
            (Counter::TapDropped, counts.missed_before + tap.map_or(0, Tap::dropped)),
            (Counter::Pauses, self.pauses.count()),
            (Counter::Stalls, counts.stalls),
            (Counter::Discarded, counts.discarded),
            (Counter::InboxFull, counts.inbox_full),
            (Counter::BeyondShare, counts.beyond_share),
            (Counter::Unsent, counts.unsent),
            (Counter::Uninjected, counts.uninjected),
            (Counter::Untaken, tunnel.map_or(0, Tunnel::refused)),
            (Counter::NotAtWan, written.saturating_sub(arrived)),
            (Counter::Returning, inlet.map_or(0, Inlet::refused)),
            (Counter::ReloadsRefused, counts.reloads_refused),
            (Counter::RecordsUnwritten, self.losses.unwritten()),
            (Counter::LogLines, log::lost_lines()),
            (Counter::ManagerMessages, self.supervisor.unsent()),
        ];
        let mut not_protected = status::counts(gateway.unprotected().iter());
        *not_protected.entry(Unprotected::Overload.id().to_owned()).or_default() +=
            tap.map_or(0, |tap| tap.shed()[0]);
        let rack = self.rack.as_ref().map(|racked| racked.status(*now_us));
        Status {
            schema: status::SCHEMA.to_owned(),
            health: HealthStatus::of_gateway(
                &peers,
                tap.is_some() || !config.has_passive_peer(),
                self.injection(),
                rack.as_ref(),
                self.routes.faults(),
            ),
            events: EventStatus::latest(*now_us, self.watch.observer(), |site| label(config, site)),
            gateway: GatewayStatus {
                version: env!("CARGO_PKG_VERSION").into(),
                uptime_s: now_us.saturating_sub(*started_us) / 1_000_000,
                mode: modes(config),
                wan: config.gateway.wan.clone(),
                tap: tap.map_or("none", |tap| tap.kind().as_str()).to_owned(),
                injection: inlet.map_or("none", Inlet::way).to_owned(),
                injection_reason: inlet.and_then(Inlet::reason).map(str::to_owned),
                mtu: self.segments.state(config.gateway.mtu).to_owned(),
                mtu_reason: self.segments.fault().map(str::to_owned),
                tick_us: self.tick.period_us(),
                tick_starts: self.tick.starts(),
                pid: std::process::id(),
            },
            pauses: self.pauses.status(*now_us),
            peers,
            classes: gateway.classes().map(status::class).collect(),
            not_protected,
            not_tunnelled: status::counts(gateway.refused().iter()),
            rejected: status::counts(gateway.rejected().iter()),
            counters: status::counts(counters.into_iter()),
            split: self.split.status(),
            rack,
            multicast: self.multicast(),
            wanted_groups: self.wanted_groups(),
            memory_bytes: gateway.memory_bytes() as u64,
        }
    }
}

impl Passive {
    /// The way of recovered packets, for the verdict about the gateway. Tunnels need none.
    fn injection(&self) -> Injection<'_> {
        match &self.ports.outlets.inlet {
            _ if !self.config.has_passive_peer() => Injection::AsWanted,
            Some(inlet) => inlet.injection(),
            None => Injection::Impossible("the TUN device is gone"),
        }
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let Engine { gateway, now_us, .. } = &self.engine;
        let peers = gateway.peers().zip(&self.config.peers).enumerate().map(|(index, (peer, file))| {
            let mut status = PeerStatus::of(file.name.clone(), &peer, *now_us);
            status.host = file.moving();
            let differences = self.agreement.differences(index);
            status.differences = differences.iter().map(|one| one.text.clone()).collect();
            status.difference_ids = differences.iter().map(|one| one.id.to_owned()).collect();
            if let Some(tunnel) = status.egress.tunnel.as_mut().filter(|_| file.route) {
                tunnel.fail = Some(file.fail.word().to_owned());
            }
            status.observed_by(self.watch.observer(), index);
            status
        });
        peers.collect()
    }

    fn multicast(&self) -> Vec<MulticastStatus> {
        let ports = &self.ports.outlets.groups;
        let sections = self.engine.gateway.multicast().zip(&self.config.multicast).enumerate();
        let of = |at| self.engine.gateway.group_members(at);
        sections
            .map(|(at, (seen, file))| MulticastStatus::of(seen, of(at), &file.interface, ports.get(at)))
            .collect()
    }

    /// Groups that the sites of peers in tunnel mode want, if groups cross at all.
    fn wanted_groups(&self) -> Vec<WantedStatus> {
        let peers = self.config.peers.iter().enumerate();
        let reached =
            peers.filter(|(_, peer)| peer.mode == Mode::Tunnel && !self.config.multicast.is_empty());
        let wanted = |(at, peer): (usize, &Peer)| {
            WantedStatus::of(peer.label(), self.engine.gateway.groups_wanted_by(at))
        };
        reached.map(wanted).collect()
    }
}

/// The modes of the peers, in words.
fn modes(config: &GatewayConfig) -> String {
    let words = [(Mode::Passive, "passive"), (Mode::Tunnel, "tunnel")];
    let used = words.iter().filter(|(mode, _)| config.peers.iter().any(|peer| peer.mode == *mode));
    used.map(|(_, word)| *word).collect::<Vec<_>>().join("+")
}
