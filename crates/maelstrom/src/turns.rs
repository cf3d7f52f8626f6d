//! Fair shares of the decoder among peers while more datagrams arrive than are decoded.
//!
//! All peers share one socket. When the gateway falls behind, the flood of one peer would fill the socket's
//! buffer, and the datagrams of all others would be dropped there. Datagrams beyond a sender's share are
//! therefore dropped undecoded, which is a hundred times faster than decoding them, and makes room in the
//! buffer. Against a flood from addresses of no peer, a filter in the kernel drops most of it for some
//! seconds, before it takes room.

use std::net::IpAddr;

use maelstrom_core::PeerConfig;
use netio::udp::RECEIVED_MAX;
use tracing::warn;

use crate::doors::far_ends;
use crate::passive::Passive;

/// Number of consecutive rounds that left datagrams in the socket, after which shares are enforced.
const ROUNDS_BEHIND: u32 = 8;

/// Time for which strangers are filtered.
const FILTER_US: u64 = 10_000_000;

/// The turn of each sender in one round.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    rounds_behind: u32,
    /// Number of datagrams of each peer in this round; the last entry counts strangers.
    counts: Vec<usize>,
    /// Largest number of datagrams of one sender in this round.
    share: usize,
    latest: Option<(IpAddr, usize)>,
    /// Whether strangers sent more than their share in this round.
    is_flooded: bool,
    /// Time until which a filter drops most datagrams of strangers.
    filtered_until_us: Option<u64>,
}

impl Passive {
    /// Sets the filter against a flood from strangers, and removes it after some time.
    pub(crate) fn filter_strangers(&mut self) {
        let now_us = self.engine.now_us;
        let turns = &mut self.turns;
        if turns.filtered_until_us.is_some_and(|until_us| now_us >= until_us) {
            return self.drop_filter();
        }
        if !turns.is_flooded || turns.filtered_until_us.is_some() {
            return;
        }
        turns.filtered_until_us = Some(now_us + FILTER_US);
        let peers = &self.engine.gateway.config().peers;
        let addresses: Vec<_> = far_ends(peers).collect();
        match self.ports.outlets.socket.accept_from(&addresses) {
            Ok(()) => warn!(
                "the repair port is flooded; for 10 s, most datagrams from addresses of no peer are dropped"
            ),
            Err(error) => warn!("the repair port is flooded, and strangers cannot be filtered: {error}"),
        }
    }

    /// Lets datagrams of strangers pass, so that they are counted by reason.
    pub(crate) fn drop_filter(&mut self) {
        if self.turns.filtered_until_us.take().is_some() {
            self.ports.outlets.socket.accept_from_all();
        }
    }
}

impl Turns {
    /// Begins a round. `is_behind`: the socket holds more datagrams than were read from it. `senders`: the
    /// senders of those that were read.
    pub(crate) fn begin(
        &mut self,
        peers: &[PeerConfig],
        is_behind: bool,
        senders: impl Iterator<Item = IpAddr>,
    ) {
        self.rounds_behind = if is_behind { self.rounds_behind.saturating_add(1) } else { 0 };
        (self.share, self.is_flooded) = (usize::MAX, false);
        if self.rounds_behind < ROUNDS_BEHIND {
            return;
        }
        self.restart(peers);
        senders.for_each(|sender| _ = self.count(peers, sender));
        let crowd = self.counts.iter().filter(|&&count| count > 0).count();
        // Those of several reads, if they have waited for a tap.
        let all = self.counts.iter().sum::<usize>().max(RECEIVED_MAX);
        if crowd > 1 {
            self.share = all / crowd;
        }
        self.is_flooded = self.counts[peers.len()] > self.share.min(all / 2);
        self.restart(peers);
    }

    fn restart(&mut self, peers: &[PeerConfig]) {
        self.counts.clear();
        self.counts.resize(peers.len() + 1, 0);
        self.latest = None;
    }

    /// Whether the next datagram of this sender is within its share.
    pub(crate) fn admits(&mut self, peers: &[PeerConfig], sender: IpAddr) -> bool {
        self.share == usize::MAX || self.count(peers, sender) <= self.share
    }

    fn count(&mut self, peers: &[PeerConfig], sender: IpAddr) -> usize {
        let at = match self.latest {
            Some((latest, at)) if latest == sender => at,
            _ => {
                let is_of = |peer: &PeerConfig| peer.addresses().any(|address| address.ip() == sender);
                peers.iter().position(is_of).unwrap_or(peers.len())
            }
        };
        self.latest = Some((sender, at));
        self.counts[at] += 1;
        self.counts[at]
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use maelstrom_core::PeerKey;

    use super::*;

    fn peers() -> Vec<PeerConfig> {
        let peer = |n: u8| PeerConfig {
            address: ([10, 0, 0, n], 4700).into(),
            whereabouts: Default::default(),
            networks: Vec::new(),
            key: PeerKey::new([n; 32]),
            next_key: None,
            is_of_rack: false,
            trusts_path: false,
            is_tunnel: false,
            paths: Vec::new(),
            path_use: Default::default(),
            tunnel: Default::default(),
        };
        vec![peer(1), peer(2)]
    }

    /// Returns how many datagrams of each sender are admitted, in a round in which the first sends many and
    /// the second few.
    fn round(turns: &mut Turns, is_behind: bool, senders: [IpAddr; 2]) -> [usize; 2] {
        let inbox = || iter::repeat_n(senders[0], 1_000).chain(iter::repeat_n(senders[1], 24));
        turns.begin(&peers(), is_behind, inbox());
        let mut admitted = [0; 2];
        for sender in inbox() {
            admitted[usize::from(sender == senders[1])] += usize::from(turns.admits(&peers(), sender));
        }
        admitted
    }

    #[test]
    fn a_flood_of_one_sender_leaves_others_their_share_once_the_gateway_falls_behind() {
        let [flooding, other, stranger] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 9, 9, 9]].map(IpAddr::from);
        let mut turns = Turns::default();
        for _ in 1..ROUNDS_BEHIND {
            assert_eq!(round(&mut turns, true, [flooding, other]), [1_000, 24]);
        }
        assert_eq!(round(&mut turns, true, [flooding, other]), [RECEIVED_MAX / 2, 24]);
        assert!(!turns.is_flooded);
        assert_eq!(round(&mut turns, true, [stranger, other]), [RECEIVED_MAX / 2, 24]);
        assert!(turns.is_flooded);
        assert_eq!(round(&mut turns, true, [flooding, flooding]), [0, 1_024], "one sender alone has all");
        assert_eq!(round(&mut turns, false, [flooding, other]), [1_000, 24]);
        assert_eq!(round(&mut turns, true, [flooding, other]), [1_000, 24]);
    }
}
