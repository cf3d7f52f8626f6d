//! Differences between the configurations of both ends.
//!
//! A peer's Hello lists the networks of this site as the peer's file names them. The peer watches packets
//! from them, and protects packets to them. This machine knows better which networks are behind it: by its
//! own file and by its routes.

use std::net::IpAddr;

use ipnet::IpNet;
use tracing::{info, warn};

use crate::config::machine::{Lead, leads_to};
use crate::config::{Mode, Peer};
use crate::errands::Errand;
use crate::passive::Passive;

/// Interval between looks at what the peers list.
const LOOK_US: u64 = 500_000;
/// Interval between comparisons with the routes of this machine, which may change.
const COMPARE_US: u64 = 30_000_000;

/// The result of the latest comparison.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    peers: Vec<PeerView>,
    /// Where the routes of this machine lead, for what the peers listed as it was asked.
    leads: Errand<(Vec<Seen>, Vec<Vec<Lead>>)>,
    next_look_us: u64,
    next_compare_us: u64,
}

/// The networks that one peer lists, and the source of a packet of this site that they do not contain.
type Seen = (Vec<IpNet>, Option<IpAddr>);

/// A difference between the two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Its kind in snake case.
    pub(crate) id: &'static str,
    pub(crate) text: String,
}

/// The networks that one peer lists, and the differences that this shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct PeerView {
    listed: Vec<IpNet>,
    unwatched_source: Option<IpAddr>,
    differences: Vec<Difference>,
}

impl Agreement {
    /// Makes the next look compare again, because the file has changed.
    pub(crate) fn expire(&mut self) {
        (self.next_look_us, self.next_compare_us) = (0, 0);
        // An answer that is under way concerns the peers of the old file.
        self.leads = Errand::default();
    }

    /// Differences with peer number `index`.
    pub(crate) fn differences(&self, index: usize) -> &[Difference] {
        self.peers.get(index).map_or(&[], |peer| &peer.differences)
    }
}

impl Passive {
    /// Compares what the peers list with the file and the routes, and logs changes.
    pub(crate) fn compare_networks(&mut self) {
        let now_us = self.engine.now_us;
        if let Some((seen, leads)) = self.agreement.leads.take() {
            self.conclude(seen, &leads);
        }
        if now_us < self.agreement.next_look_us || self.agreement.leads.is_under_way() {
            return;
        }
        self.agreement.next_look_us = now_us + LOOK_US;
        let seen = self.engine.gateway.peers().map(|peer| (peer.watched.to_vec(), peer.unwatched_source));
        let seen: Vec<Seen> = seen.collect();
        let before = self.agreement.peers.iter().map(|peer| (&peer.listed, peer.unwatched_source.is_some()));
        let is_same = before.eq(seen.iter().map(|(listed, source)| (listed, source.is_some())));
        if is_same && now_us < self.agreement.next_compare_us {
            return;
        }
        self.agreement.next_compare_us = now_us + COMPARE_US;
        if !self.config.gateway.local_networks().is_empty() {
            return self.conclude(seen, &[]);
        }
        self.agreement.leads = self.errands.begin(move || {
            let leads = seen.iter().map(|(listed, _)| leads_to(listed)).collect();
            (seen, leads)
        });
    }

    /// Compares what the peers list, and logs changes. `leads` are those of each peer's networks, unless the
    /// file states the networks of this site.
    fn conclude(&mut self, seen: Vec<Seen>, leads: &[Vec<Lead>]) {
        let listed_by_rack = |index: usize| {
            let rack = self.config.peers.get(index).and_then(|peer| peer.rack.as_ref());
            let others = self
                .config
                .peers
                .iter()
                .zip(&seen)
                .filter(|(peer, _)| rack.is_some() && peer.rack.as_ref() == rack);
            others.flat_map(|(_, (listed, _))| listed.iter().copied()).collect::<Vec<IpNet>>()
        };
        let of_racks: Vec<Vec<IpNet>> = (0..seen.len()).map(listed_by_rack).collect();
        let views = seen.into_iter().enumerate().map(|(index, (listed, unwatched_source))| {
            let leads = leads.get(index).map_or(&[][..], Vec::as_slice);
            let differences = self.compare(index, (&listed, unwatched_source), &of_racks[index], leads);
            PeerView { listed, unwatched_source, differences }
        });
        let views: Vec<PeerView> = views.collect();
        for (index, view) in views.iter().enumerate() {
            self.log_changes(index, &view.differences);
        }
        self.agreement.peers = views;
    }

    /// Compares what peer number `peer` lists with the file and the routes. `by_others`: networks that the
    /// gateways of the peer's rack list together.
    fn compare(
        &self,
        peer: usize,
        (listed, unwatched_source): (&[IpNet], Option<IpAddr>),
        by_others: &[IpNet],
        leads: &[Lead],
    ) -> Vec<Difference> {
        let of_peer = self.config.peers.get(peer);
        let is_tunnel = of_peer.is_some_and(|peer| peer.mode == Mode::Tunnel);
        let wan = of_peer.map_or("", |peer| self.config.wan_of(peer));
        let local = self.config.gateway.local_networks();
        let mut differences = Vec::new();
        for (number, network) in listed.iter().enumerate() {
            let own = |of: &Peer| of.networks.iter().find(|own| overlap(own, network)).copied();
            let problem = match of_peer.and_then(|of| Some((own(of)?, of.label()))) {
                Some((own, owner)) => {
                    Some(("network_of_a_peer", format!("the file here names {own} as one of {owner}")))
                }
                // Packets of the peer to another one pass this site, as it does in a star.
                None if self.config.peers.iter().any(|other| own(other).is_some()) => None,
                None if local.is_empty() => leads
                    .get(number)
                    .and_then(|lead| lead.problem(wan))
                    .map(|problem| ("network_routed_elsewhere", problem)),
                None if local.iter().any(|own| own.contains(network)) => None,
                None => Some(("network_not_local", "`local_networks` here does not contain it".to_owned())),
            };
            if let Some((id, problem)) = problem {
                let text =
                    format!("the peer's file names {network} as a network of this site, but {problem}");
                differences.push(Difference { id, text });
            }
        }
        // Without a session, nothing is listed.
        let is_forgotten = |own: &&IpNet| {
            !listed.is_empty() && !listed.iter().chain(by_others).any(|other| overlap(own, other))
        };
        for own in local.iter().filter(is_forgotten) {
            let text = format!(
                "`local_networks` here contains {own}, but the peer's file does not name it: its packets are {}",
                if is_tunnel { "dropped" } else { "not protected" }
            );
            differences.push(Difference { id: "network_not_named", text });
        }
        if let Some(source) = unwatched_source {
            let fate = if is_tunnel { "are dropped" } else { "leave without protection" };
            let text =
                format!("packets from {source} {fate}, because the peer's file names no network with it");
            differences.push(Difference { id: "source_not_named", text });
        }
        differences
    }

    fn log_changes(&self, index: usize, differences: &[Difference]) {
        let before = self.agreement.differences(index);
        let Some(peer) = self.config.peers.get(index) else { return };
        let peer = peer.label();
        for difference in differences.iter().filter(|difference| !before.contains(difference)) {
            warn!(peer, "the two ends differ: {}", difference.text);
        }
        if differences.is_empty() && !before.is_empty() {
            info!(peer, "the two ends agree about the networks of this site");
        }
    }
}

/// Whether one of the networks contains the other.
fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}
