//! A configuration as far as it could be understood: each value with its place, `None` where the value is
//! wrong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use diagnostics::Span;
use diagnostics::settings::{Draft as _, Section as _, Setting};
use ipnet::IpNet;
use maelstrom_core::controller::Targets;
use maelstrom_core::{Class, PathUse, PeerKey, Schedule, Scheme};

use super::keys::{ClassDraft, CodeDraft, Gateway, GatewayDraft};
use super::multicast::{MulticastDraft, MulticastSection};
use super::rack::{Rack, RackDraft};
use super::split::{Split, SplitDraft};
use super::types::{Code, FailChoice, Mode, PathChoice, Peer, PeerAddress, PeerPath, SchemeChoice};

/// A gateway's whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConfig {
    /// The section `[gateway]`: this machine.
    pub gateway: Gateway,
    /// The section `[code]`: the repairs.
    pub code: Code,
    /// The sections `[[class]]`: packets with a protection of their own.
    pub classes: Vec<Class>,
    /// The section `[split]`: connections that end at the gateways.
    pub split: Split,
    /// The sections `[rack]` and `[[member]]`: gateways of this site that share its traffic.
    pub rack: Option<Rack>,
    /// The sections `[[multicast]]`: IP groups that cross tunnels.
    pub multicast: Vec<MulticastSection>,
    /// The sections `[[peer]]`: the far gateways; at least one.
    pub peers: Vec<Peer>,
}

impl GatewayConfig {
    /// Whether packets to a peer travel beside datagrams, so that a tap must show them.
    pub(crate) fn has_passive_peer(&self) -> bool {
        self.peers.iter().any(|peer| peer.mode == Mode::Passive)
    }

    /// A peer of each far site: of a rack, the first of its gateways, which have the same networks.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Peer> {
        let is_first = |(at, peer): &(usize, &Peer)| {
            peer.rack.is_none() || self.peers[..*at].iter().all(|other| other.rack != peer.rack)
        };
        self.peers.iter().enumerate().filter(is_first).map(|(_, peer)| peer)
    }
}

/// The values of the file. `None` means wrong or missing; a finding says which.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) gateway: GatewayDraft,
    /// Keys of other schemes than the chosen one are here too, without effect.
    pub(super) code: CodeDraft,
    /// The classes, in order.
    pub(super) classes: Vec<ClassDraft>,
    pub(super) split: SplitDraft,
    pub(super) rack: RackDraft,
    pub(super) multicast: Vec<MulticastDraft>,
    pub(super) peers: Vec<PeerDraft>,
}

impl CodeDraft {
    /// The chosen scheme with its parameters, if all of them are correct.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        let SchemeChoice::Fixed(scheme) = self.scheme.as_ref()?.value else { return Some(Schedule::Auto) };
        Some(match scheme {
            Scheme::Layered => Schedule::Layered {
                r: self.r.as_ref()?.value,
                interleaves: self.interleaves.as_ref()?.value.clone(),
            },
            Scheme::ReedSolomon => Schedule::ReedSolomon {
                r: self.r.as_ref()?.value,
                c: self.c.as_ref()?.value,
                interleave: self.interleave.as_ref()?.value,
            },
            Scheme::Sliding => Schedule::Sliding {
                rate: self.rate.as_ref()?.value,
                window: self.window.as_ref()?.value,
                density: self.density.as_ref()?.value,
            },
        })
    }

    /// The place that decides the size of the code; `None` if defaults decide it.
    pub(super) fn size_span(&self) -> Option<Span> {
        let SchemeChoice::Fixed(scheme) = self.scheme.as_ref()?.value else { return None };
        let keys: &[&str] = match scheme {
            Scheme::Layered => &["interleaves", "r"],
            Scheme::ReedSolomon => &["interleave", "c", "r"],
            Scheme::Sliding => &["window"],
        };
        keys.iter().find_map(|key| self.span_of(key))
    }

    fn finish(self) -> Code {
        let overhead_max = self.overhead_max.as_ref().expect(GAP).value;
        Code {
            schedule: self.schedule().expect(GAP),
            targets: Targets {
                residual: self.residual.expect(GAP).value,
                late_us: self.late_ms.expect(GAP).value.map(|ms| u64::from(ms) * 1_000),
                rate_max: overhead_max.unwrap_or(Targets::RATE_MAX),
                repair_bps_max: self.max_repair_rate.expect(GAP).value,
                overhead_max,
            },
            delayed: self.delayed.expect(GAP).value,
            max_delay_ms: self.max_delay_ms.expect(GAP).value,
            requests: self.requests.expect(GAP).value,
            repair_dscp: self.repair_dscp.expect(GAP).value,
            congestion: self.congestion.expect(GAP).value,
        }
    }
}

impl ClassDraft {
    fn class(self) -> Class {
        Class {
            name: self.name.expect(GAP).value,
            matches: self.r#match.expect(GAP).value,
            protect: self.protect.expect(GAP).value,
            late_us: self.late_ms.expect(GAP).value.map(|ms| u64::from(ms) * 1_000),
        }
    }
}

/// One `[[peer]]`, with the keys from its key files, and with the correct ones of its networks.
#[derive(Clone, Debug)]
pub(super) struct PeerDraft {
    pub(super) name: Option<Setting<Option<String>>>,
    pub(super) address: Option<Setting<PeerAddress>>,
    pub(super) networks: Vec<Setting<IpNet>>,
    pub(super) key: Option<Setting<PeerKey>>,
    /// `None` also if the file names none.
    pub(super) next_key: Option<Setting<PeerKey>>,
    pub(super) carrier: Option<Setting<Option<SocketAddr>>>,
    pub(super) rack: Option<Setting<Option<String>>>,
    pub(super) wan: Option<Setting<Option<String>>>,
    pub(super) path: Option<Setting<PathChoice>>,
    pub(super) mode: Option<Setting<Option<Mode>>>,
    pub(super) route: Option<Setting<bool>>,
    pub(super) fail: Option<Setting<FailChoice>>,
    pub(super) paths: Option<Setting<Option<Vec<Setting<PeerPath>>>>>,
    pub(super) path_use: Option<Setting<PathUse>>,
    pub(super) resequence_ms: Option<Setting<u16>>,
    pub(super) aggregate_us: Option<Setting<u16>>,
}

/// The invariant of a draft without errors.
const GAP: &str = "every gap in a draft has an error of its own";

impl PeerDraft {
    /// The peer in a message; `index` counts from 0.
    pub(super) fn label(&self, index: usize) -> String {
        let name = self.name.as_ref().and_then(|name| name.value.as_ref());
        match (name, &self.address) {
            (Some(name), _) => format!("peer `{name}`"),
            (None, Some(address)) => format!("peer {}", address.value),
            (None, None) => format!("peer {}", index + 1),
        }
    }

    /// `v6`: the IP version in which repairs travel. `mode`: that of peers without one.
    fn finish(self, v6: bool, mode: Mode) -> Peer {
        let unknown = if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = self.address.expect(GAP).value;
        let whereabouts = address.whereabouts();
        let (address, host) = match address {
            PeerAddress::Ip(address) => (address, None),
            PeerAddress::Name(host) => (SocketAddr::new(unknown, host.port), Some(host)),
            PeerAddress::Any => (SocketAddr::new(unknown, 0), None),
        };
        assert!(!self.networks.is_empty(), "a peer without networks is an error");
        Peer {
            name: self.name.expect(GAP).value,
            address,
            whereabouts,
            host,
            networks: self.networks.into_iter().map(|network| network.value).collect(),
            key: self.key.expect(GAP).value,
            next_key: self.next_key.map(|key| key.value),
            carrier: self.carrier.expect(GAP).value,
            rack: self.rack.expect(GAP).value,
            wan: self.wan.expect(GAP).value,
            path: self.path.expect(GAP).value,
            mode: self.mode.expect(GAP).value.unwrap_or(mode),
            route: self.route.expect(GAP).value,
            fail: self.fail.expect(GAP).value,
            paths: self.paths.expect(GAP).value.into_iter().flatten().map(|path| path.value).collect(),
            path_use: self.path_use.expect(GAP).value,
            resequence_ms: self.resequence_ms.expect(GAP).value,
            aggregate_us: self.aggregate_us.expect(GAP).value,
        }
    }
}

impl Draft {
    /// The configuration.
    ///
    /// # Panics
    /// If there is a gap: the reader must have reported an error for it.
    pub(super) fn finish(self) -> GatewayConfig {
        let gateway = Gateway::finish(self.gateway);
        let (v6, mode) = (gateway.listen.is_ipv6(), gateway.mode);
        let peers: Vec<Peer> = self.peers.into_iter().map(|peer| peer.finish(v6, mode)).collect();
        GatewayConfig {
            gateway,
            code: self.code.finish(),
            classes: self.classes.into_iter().map(ClassDraft::class).collect(),
            split: Split::finish(self.split),
            rack: self.rack.finish(&peers),
            multicast: self.multicast.into_iter().map(|section| section.finish().expect(GAP)).collect(),
            peers,
        }
    }
}
