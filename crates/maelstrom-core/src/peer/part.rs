//! The part of the peer's networks that this gateway holds, as a member of a rack.
//!
//! Hellos list the networks of the part. A token stands for the list that was told with it, as it stands for
//! keys. A gateway that takes or releases a network therefore renews the session ([`Peer::keep_part`]):
//! 1. It watches arrivals from the networks that it takes, and only then says Hello.
//! 2. It protects packets to them when the peer has taken over the token: the peer's tap then watches them.
//! 3. It ceases at once to protect packets to networks that it releases, and watches arrivals from them for
//!    a while, because the peer may still send repairs that name them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Peer;
use crate::prefixes::{PrefixTable, overlaps};

/// Time for which arrivals from networks that were released are watched: longer than a peer that hears
/// nothing of the release goes on to protect them.
const WANE_US: u64 = 10_000_000;

/// The part.
#[derive(Debug)]
pub(super) struct Part {
    /// Networks to hold; `None` for all of the peer's, because this gateway is in no rack.
    wanted: Option<Vec<IpNet>>,
    /// Of these, what the peer knows.
    protected: PrefixTable<()>,
    /// Whether that is all that the peer has.
    is_whole: bool,
    /// Networks that were released a while ago.
    waning: Vec<IpNet>,
    waning_until_us: Option<u64>,
}

impl Default for Part {
    /// All of the peer's networks.
    fn default() -> Self {
        let protected = PrefixTable::default();
        Self { wanted: None, protected, is_whole: true, waning: Vec::new(), waning_until_us: None }
    }
}

impl Part {
    /// Whether packets to this address are protected here.
    pub(super) fn protects(&self, destination: IpAddr) -> bool {
        self.is_whole || self.protected.contains(destination)
    }
}

impl Peer {
    /// Networks that Hellos list from here on.
    pub(super) fn to_list(&self) -> Vec<IpNet> {
        self.part.wanted.as_ref().unwrap_or(&self.config.networks).clone()
    }

    /// Takes the part before anything is sent.
    #[must_use]
    pub(crate) fn with_part(mut self, wanted: Option<Vec<IpNet>>) -> Self {
        self.part.wanted = wanted;
        self.own_listed = self.to_list();
        self.update_part();
        self
    }

    /// Changes the part; `None` stands for all networks of the peer.
    pub(crate) fn hold(
        &mut self,
        now_us: u64,
        wanted: Option<Vec<IpNet>>,
        entropy: &mut impl FnMut(&mut [u8]),
    ) {
        if self.part.wanted == wanted {
            return;
        }
        let before = self.to_list();
        self.part.wanted = wanted;
        let after = self.to_list();
        let part = &mut self.part;
        // Without a session the peer protects nothing.
        part.waning.extend(before.into_iter().filter(|_| self.session.is_some()));
        part.waning.retain(|network| !after.contains(network));
        part.waning.sort();
        part.waning.dedup();
        part.waning_until_us = Some(now_us + WANE_US);
        // Tokens in answers to other addresses stand for the earlier list.
        self.roaming.restart();
        self.update_part();
        self.keep_part(now_us, entropy);
    }

    /// Draws a token for the networks to list, if the present one stands for others.
    pub(super) fn keep_part(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        if self.part.waning_until_us.take_if(|until_us| now_us >= *until_us).is_some() {
            self.part.waning.clear();
            self.update_part();
        }
        if self.own_listed == self.to_list() {
            return;
        }
        if !self.is_up {
            self.renew(entropy);
        } else if self.renewal.is_none() {
            // The peer may have taken over the token of a renewal that is under way, so that it ends first.
            self.begin_renewal(now_us, false, entropy);
        }
    }

    /// Follows a change of the part, or of the list that the peer knows.
    pub(super) fn update_part(&mut self) {
        let wanted = self.part.wanted.as_ref().unwrap_or(&self.config.networks);
        self.part.is_whole = self.part.wanted.is_none() && self.own_listed == self.config.networks;
        let known: Vec<IpNet> =
            wanted.iter().flat_map(|network| overlaps(&self.own_listed, network)).collect();
        self.part.protected = table(known.iter());
        self.networks = table(wanted.iter().chain(&self.part.waning));
    }

    /// Lists networks that the peer knows from here on. Packets to those that are new count as watched if
    /// they leave from now on.
    pub(super) fn list(&mut self, now_us: u64, listed: Vec<IpNet>) {
        let is_known = |network: &IpNet| self.own_listed.iter().any(|known| known.contains(network));
        if !listed.iter().all(is_known) {
            self.watched_since_us = now_us;
        }
        self.own_listed = listed;
        self.update_part();
    }

    /// Whether packets to all of this network are protected, as far as it is the peer's.
    pub(crate) fn protects(&self, network: IpNet) -> bool {
        self.is_up && self.part.protects(network.network()) && self.part.protects(network.broadcast())
    }

    /// Time since which the peer says that it holds the part of this address, if it is up.
    pub(crate) fn claims_us(&self, source: IpAddr) -> Option<u64> {
        self.session.as_ref().filter(|_| self.is_up)?.listed.since_us(source)
    }

    /// Whether the peer protects packets to this address, or did until recently.
    pub(crate) fn shows(&self, now_us: u64, destination: IpAddr) -> bool {
        self.session.as_ref().is_some_and(|session| session.listed.shows(now_us, destination))
    }
}

fn table<'n>(networks: impl Iterator<Item = &'n IpNet>) -> PrefixTable<()> {
    PrefixTable::new(networks.map(|network| (*network, ())))
}
