//! The answer to a status request: everything that the gateway knows, in one document.

use daemon::log;
use maelstrom_core::counters::{Reason as _, Unprotected};
use tracing::debug;

use crate::config::{GatewayConfig, Mode, Peer};
use crate::engine::Engine;
use crate::inlet::Inlet;
use crate::passive::Passive;
use crate::pause::Pauses;
use crate::status::{
    self, Counter, Counts, EventStatus, GatewayStatus, HealthStatus, Injection, InterfaceStatus, LostWans,
    MulticastStatus, PeerStatus, RackStatus, Status, WantedStatus,
};
use crate::taps::{Unshown, Wan};
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
        let Engine { gateway, now_us, .. } = &self.engine;
        let peers = self.peers();
        let mut not_protected = status::counts(gateway.unprotected().iter());
        *not_protected.entry(Unprotected::Overload.id().to_owned()).or_default() += self.unshown().shed;
        let interfaces = self.interfaces();
        let first = interfaces.first().cloned().unwrap_or_default();
        let rack = self.rack.as_ref().map(|racked| racked.status(*now_us));
        Status {
            schema: status::SCHEMA.to_owned(),
            health: self.health(peers.iter().map(|peer| &peer.health), rack.as_ref()),
            events: EventStatus::latest(*now_us, self.watch.observer(), |site| label(config, site)),
            gateway: GatewayStatus {
                version: env!("CARGO_PKG_VERSION").into(),
                uptime_s: now_us.saturating_sub(*started_us) / 1_000_000,
                mode: modes(config),
                wan: config.gateway.wan.clone(),
                tap: first.tap,
                injection: first.injection,
                injection_reason: first.injection_reason,
                interfaces,
                mtu: self.segments.state(config.gateway.mtu).to_owned(),
                mtu_reason: self.segments.fault().map(str::to_owned),
                tick_us: self.tick.period_us(),
                tick_starts: self.tick.starts(),
                pid: std::process::id(),
            },
            pauses: Pauses::status(*now_us, &self.pauses()),
            peers,
            classes: gateway.classes().map(status::class).collect(),
            not_protected,
            not_tunnelled: status::counts(gateway.refused().iter()),
            rejected: status::counts(gateway.rejected().iter()),
            counters: self.counters(),
            split: self.split.status(),
            rack,
            multicast: self.multicast(),
            wanted_groups: self.wanted_groups(),
            memory_bytes: gateway.memory_bytes() as u64,
        }
    }
}

impl Passive {
    /// The health of the gateway, whose peers have this one.
    pub(crate) fn health<'h>(
        &self,
        peers: impl Iterator<Item = &'h HealthStatus>,
        rack: Option<&RackStatus>,
    ) -> HealthStatus {
        let peers: Vec<&HealthStatus> = peers.collect();
        let (lost, unrouted) = (self.lost_wans(), self.routes.faults());
        HealthStatus::of_gateway(&peers, &lost, self.injection(), rack, unrouted)
    }

    /// The WAN interfaces of peers in passive mode, with their ways of recovered packets. Tunnels need none.
    fn watched_wans(&self) -> impl Iterator<Item = (&Wan, Option<&Inlet>)> {
        let inlets = self.ports.outlets.inlets.iter().map(Option::as_ref);
        self.ports.wans.iter().zip(inlets).filter(|(wan, _)| wan.is_watched)
    }

    /// The worst way of recovered packets, for the verdict about the gateway.
    fn injection(&self) -> Injection<'_> {
        let gone = Injection::Impossible("the TUN device is gone");
        let ways = || self.watched_wans().map(|(_, inlet)| inlet.map_or(gone, Inlet::injection));
        let impossible = ways().find(|way| matches!(way, Injection::Impossible(_)));
        let by_tun = || ways().find(|way| matches!(way, Injection::ByTun(_)));
        impossible.or_else(by_tun).unwrap_or(Injection::AsWanted)
    }

    /// The WAN interfaces of peers in passive mode: those without a tap, and the number of the others.
    fn lost_wans(&self) -> LostWans<'_> {
        let lost = self.watched_wans().filter(|(wan, _)| wan.tap.is_none());
        let names: Vec<&str> = lost.map(|(wan, _)| wan.name.as_str()).collect();
        LostWans { others: self.watched_wans().count() - names.len(), names }
    }

    fn counters(&self) -> Counts {
        let counts = &self.engine.counts;
        let counters = [
            (Counter::OutgoingUncut, counts.uncut_outgoing),
            (Counter::IncomingUncut, counts.uncut_incoming),
            (Counter::OfVlans, counts.of_vlans),
            (Counter::TapDropped, self.unshown().missed),
            (Counter::Pauses, self.pauses().iter().map(|pauses| pauses.count()).sum()),
            (Counter::Stalls, counts.stalls),
            (Counter::Discarded, counts.discarded),
            (Counter::SocketFull, self.ports.outlets.overflowed()),
            (Counter::InboxFull, counts.inbox_full),
            (Counter::BeyondShare, counts.beyond_share),
            (Counter::Unsent, counts.unsent),
            (Counter::Uninjected, counts.uninjected),
            (Counter::Untaken, self.ports.untaken()),
            (Counter::NotAtWan, self.ports.not_at_wan()),
            (Counter::Returning, self.ports.returning()),
            (Counter::ReloadsRefused, counts.reloads_refused),
            (Counter::RecordsUnwritten, self.losses.unwritten()),
            (Counter::LogLines, log::lost_lines()),
            (Counter::ManagerMessages, self.supervisor.unsent()),
        ];
        status::counts(counters.into_iter())
    }

    /// Packets that the taps have not shown, and those before them.
    fn unshown(&self) -> Unshown {
        self.ports.taps().map(Unshown::of).fold(self.engine.counts.unshown_before, Unshown::plus)
    }

    fn pauses(&self) -> Vec<&Pauses> {
        self.ports.wans.iter().map(|wan| &wan.pauses).chain([&self.ports.past]).collect()
    }

    fn interfaces(&self) -> Vec<InterfaceStatus> {
        let of = |(wan, inlet): (&Wan, &Option<Inlet>)| InterfaceStatus {
            name: wan.name.clone(),
            tap: wan.tap.as_ref().map_or("none", |tap| tap.kind().as_str()).to_owned(),
            injection: inlet.as_ref().map_or("none", Inlet::way).to_owned(),
            injection_reason: inlet.as_ref().and_then(Inlet::reason).map(str::to_owned),
            paused: wan.pauses.reason().map(|reason| reason.name().to_owned()),
        };
        self.ports.wans.iter().zip(&self.ports.outlets.inlets).map(of).collect()
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
