//! Membership by gossip beside a node, and the addresses that it uses.

use std::net::{Ipv4Addr, SocketAddr};

use membership::{Gossip, GossipConfig, Me, Membership, Output};
use ricochet_core::{GroupId, NodeId, View};

const PORT: u16 = 7_900;
/// Start of the virtual time as Unix time, which membership uses for incarnations.
const EPOCH_US: u64 = 1_700_000_000_000_000;

/// Returns the address of a node.
fn address(at: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0a00_0001 + at as u32), PORT))
}

/// Returns the node with an address.
fn node_at(address: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(address) = address else { return None };
    address.ip().to_bits().checked_sub(0x0a00_0001).map(|at| at as usize)
}

/// Datagrams that membership sends.
#[derive(Debug, Default)]
struct Sent(Vec<(usize, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        // A datagram to an unknown address is discarded.
        self.0.extend(node_at(to).map(|at| (at, datagram.to_vec())));
    }
}

/// Membership of one node.
pub(crate) struct Gossiping {
    membership: Membership,
    /// Version of the view that the node has.
    version: u64,
    sent: Sent,
}

impl Gossiping {
    /// Makes the membership of a starting node, which knows at most one other.
    pub(crate) fn new(
        config: GossipConfig,
        now_us: u64,
        at: usize,
        seed: Option<usize>,
        chance: u64,
    ) -> Self {
        let me = Me { id: NodeId(at as u32), address: address(at), life: EPOCH_US + now_us };
        let seeds: Vec<_> = seed.map(address).into_iter().collect();
        let gossip = Gossip::new(config, me, &seeds, chance).expect("the gossip settings are in range");
        Self { membership: Membership::Gossip(gossip), version: 0, sent: Sent::default() }
    }

    pub(crate) fn set_groups(&mut self, now_us: u64, groups: &[GroupId]) {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        self.membership.set_groups(now_us, &groups, &mut self.sent);
    }

    pub(crate) fn handle_datagram(&mut self, now_us: u64, from: usize, datagram: &[u8]) {
        self.membership.handle_datagram(now_us, address(from), datagram, &mut self.sent);
    }

    pub(crate) fn handle_timeout(&mut self, now_us: u64) {
        if self.membership.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            self.membership.handle_timeout(now_us, &mut self.sent);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.membership.poll_timeout()
    }

    /// Returns the outgoing datagrams and their receivers.
    pub(crate) fn take_sent(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.sent.0)
    }

    /// Returns the view if it has changed since the last call.
    pub(crate) fn changed_view(&mut self) -> Option<View> {
        let version = self.membership.version();
        (version != std::mem::replace(&mut self.version, version)).then(|| self.membership.view())
    }

    /// Returns whether a node is known, so that datagrams can be sent to it.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        self.membership.address(id).is_some()
    }

    pub(crate) fn view(&self) -> View {
        self.membership.view()
    }
}
