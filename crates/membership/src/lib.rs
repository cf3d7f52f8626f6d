//! Who is in which group of a Ricochet cluster, and at which address.
//!
//! Two providers, one behaviour ([`Membership`]):
//! - [`Gossip`] needs the address of one live node and finds the others, and notices within seconds who died;
//! - [`Static`] reads the addresses from a file, and learns who lives there.
//!
//! Both keep a [`Peer`] for each other node, with the list of its groups, which travels beside the membership (lists of a
//! thousand groups fit no datagram). Neither holds a socket or reads a clock: datagrams and microseconds of one clock are
//! arguments, chance is seeded. Both may be stale or wrong for a while; then repairs go astray, and nothing else happens.
//!
//! ```
//! use std::net::SocketAddr;
//! use membership::{Gossip, GossipConfig, Membership, Me, Output};
//! use ricochet_core::{GroupId, NodeId};
//!
//! struct Socket(Vec<(SocketAddr, Vec<u8>)>);
//! impl Output for Socket {
//!     fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
//!         self.0.push((to, datagram.to_vec()));
//!     }
//! }
//!
//! let address = |last| SocketAddr::from(([10, 0, 0, last], 7901));
//! let node = |last, seeds: &[SocketAddr]| {
//!     let me = Me { id: NodeId(last), address: address(last as u8), life: 1 };
//!     Gossip::new(GossipConfig::lan(), me, seeds, u64::from(last)).map(Membership::Gossip)
//! };
//! let mut nodes = [node(1, &[])?, node(2, &[address(1)])?];
//! let mut socket = Socket(Vec::new());
//! nodes[0].set_groups(0, &[GroupId::of_name("prices/AAPL")], &mut socket);
//! for now_us in (0..2_000_000).step_by(1_000) {
//!     for node in &mut nodes {
//!         node.handle_timeout(now_us, &mut socket);
//!     }
//!     for (to, datagram) in std::mem::take(&mut socket.0) {
//!         let (to, from) = if to == address(1) { (0, address(2)) } else { (1, address(1)) };
//!         nodes[to].handle_datagram(now_us, from, &datagram, &mut socket);
//!     }
//! }
//! let peer = nodes[1].peers().next().expect("the other one");
//! assert_eq!((peer.id, peer.groups.len()), (NodeId(1), 1));
//! # Ok::<(), membership::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod allowance;
pub mod counters;
mod directory;
mod exchange;
mod gossip;
mod listed;
mod me;
pub mod wire;

use std::net::SocketAddr;

use ricochet_core::{GroupId, Member, NodeId, View};

pub use counters::Counts;
pub use directory::Peer;
pub use exchange::ListsConfig;
pub use gossip::{Gossip, GossipConfig};
pub use listed::{FileError, LISTED_MAX, ListedMember, MemberFile, Static, StaticConfig};
pub use me::{ConfigError, Me};

/// Where the datagrams of a membership go.
pub trait Output {
    /// Sends a datagram, of at most [`wire::DATAGRAM_MAX`] bytes, to one node.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]);
}

/// Either provider of membership.
// There is one of it in a process.
#[expect(clippy::large_enum_variant)]
pub enum Membership {
    /// From a file.
    Static(Static),
    /// By gossip.
    Gossip(Gossip),
}

macro_rules! both {
    ($self:expr, $provider:ident => $call:expr) => {
        match $self {
            Self::Static($provider) => $call,
            Self::Gossip($provider) => $call,
        }
    };
}

impl Membership {
    /// A datagram came that begins with [`wire::FIRST_BYTE`], and from which any trailer was cut off.
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut impl Output) {
        both!(self, provider => provider.handle_datagram(now_us, from, datagram, out));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        both!(self, provider => provider.handle_timeout(now_us, out));
    }

    /// When [`handle_timeout`](Self::handle_timeout) next has something to do, if nothing happens before. At the first
    /// call, at once.
    pub fn poll_timeout(&self) -> Option<u64> {
        both!(self, provider => provider.poll_timeout())
    }

    /// The groups that this node is in from now on: told to all others, changes in quick succession together.
    pub fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        both!(self, provider => provider.set_groups(now_us, groups, out));
    }

    /// Says farewell. From then on this node is silent, and its peers stay as they are.
    pub fn leave(&mut self, now_us: u64, out: &mut impl Output) {
        both!(self, provider => provider.leave(now_us, out));
    }

    /// Rises with each change of [`peers`](Self::peers).
    pub fn version(&self) -> u64 {
        both!(self, provider => provider.exchange().directory.version())
    }

    /// All other nodes that are taken for alive, in order of their ids.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        both!(self, provider => provider.exchange()).directory.peers()
    }

    /// The same as the node's core takes it.
    pub fn view(&self) -> View {
        View::new(self.peers().map(|peer| Member::new(peer.id, peer.groups.to_vec())))
    }

    /// Where a node is.
    pub fn address(&self, id: NodeId) -> Option<SocketAddr> {
        both!(self, provider => provider.exchange()).directory.get(id).map(|entry| entry.peer.address)
    }

    /// What has been done so far, and what was dropped.
    pub fn counts(&self) -> &Counts {
        both!(self, provider => &provider.exchange().counts)
    }

    /// Bytes of memory held, roughly.
    pub fn memory_bytes(&self) -> usize {
        both!(self, provider => provider.memory_bytes())
    }
}
