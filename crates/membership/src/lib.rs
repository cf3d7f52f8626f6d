//! Membership of a Ricochet cluster: which nodes live, at which addresses, and in which groups.
//!
//! Three providers have one interface ([`View`], and [`Membership`] for any provider):
//! - [`Gossip`] needs the address of one live node, finds the others, and notices within
//!   seconds that a node has died.
//! - [`Static`] has the addresses from a file, which may change, and learns which nodes live there.
//! - [`Registered`] has everything from a service such as etcd, in which each node registers.
//!
//! All keep a [`Member`] for each other node, with the list of its groups. The lists of the first two travel
//! beside the membership itself, because a list of a thousand groups does not fit one datagram. No provider
//! holds a socket or reads a clock: datagrams and the time in microseconds are arguments, and randomness
//! comes from a seeded generator. The view may be stale or wrong for a while; the only effect is that some
//! repairs go to the wrong nodes.
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
//! let member = nodes[1].members().next().expect("the other node");
//! assert_eq!((member.id, member.groups.len()), (NodeId(1), 1));
//! # Ok::<(), membership::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

pub mod conformance;
pub mod counters;
mod exchange;
mod gossip;
mod listed;
mod me;
mod output;
mod proofs;
mod proving;
mod registered;
mod view;
pub mod wire;

use std::net::SocketAddr;

use ricochet_core::{GroupId, NodeId};

pub use counters::Counts;
use exchange::Exchange;
pub use exchange::{ListsConfig, Member};
pub use gossip::{Gossip, GossipConfig};
pub use listed::{FileError, LISTED_MAX, ListedMember, MemberFile, Static, StaticConfig};
pub use me::{ConfigError, Me};
pub use output::Output;
pub use proving::Proving;
pub use registered::{News, OwnNews, REGISTERED_MAX, Registered, Registration};
pub use view::View;

/// Any provider of membership.
// A process has one value of this type.
#[expect(clippy::large_enum_variant)]
pub enum Membership {
    /// Reads the members from a file.
    Static(Static),
    /// Finds the members by gossip.
    Gossip(Gossip),
    /// A provider of the application.
    Other(Proving),
}

macro_rules! any {
    ($self:expr, $provider:ident => $call:expr) => {
        match $self {
            Self::Static($provider) => $call,
            Self::Gossip($provider) => $call,
            Self::Other($provider) => $call,
        }
    };
}

impl Membership {
    /// Takes a datagram that begins with [`wire::FIRST_BYTE`] and whose trailer, if any, was cut off.
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut impl Output) {
        any!(self, provider => provider.handle_datagram(now_us, from, datagram, out));
    }

    /// Asks which node lives at an address, because something came from there, unless that is known.
    pub fn ask(&mut self, now_us: u64, address: SocketAddr) {
        any!(self, provider => provider.ask(now_us, wire::swim::canonical(address)));
    }

    /// Returns the address of the node that has just proven that it lives there, once after the datagram that
    /// proved it.
    pub fn take_proven(&mut self) -> Option<SocketAddr> {
        any!(self, provider => provider.take_proven())
    }

    /// Acts on all timers that are due.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        any!(self, provider => provider.handle_timeout(now_us, out));
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called, unless a call
    /// changes it. The first call is due at once.
    pub fn poll_timeout(&self) -> Option<u64> {
        any!(self, provider => provider.poll_timeout())
    }

    /// Sets the groups that this node is in, and announces them to all others; changes in
    /// quick succession travel together.
    pub fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut impl Output) {
        any!(self, provider => provider.set_groups(now_us, groups, out));
    }

    /// Announces that this node leaves. Afterwards the node is silent, and its members stay as they are.
    pub fn leave(&mut self, now_us: u64, out: &mut impl Output) {
        any!(self, provider => provider.leave(now_us, out));
    }

    /// Returns a number that rises with each change of [`members`](Self::members).
    pub fn version(&self) -> u64 {
        any!(self, provider => provider.version())
    }

    /// Returns all other nodes that are considered alive, in order of their ids.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        match self {
            Self::Static(provider) => provider.members(),
            Self::Gossip(provider) => provider.members(),
            Self::Other(provider) => provider.members(),
        }
    }

    /// Returns the members and their groups in the form that the node's core takes.
    pub fn view(&self) -> ricochet_core::View {
        let members = self.members();
        ricochet_core::View::new(
            members.map(|member| ricochet_core::Member::shared(member.id, &member.groups)),
        )
    }

    /// Returns the address of a member.
    pub fn address(&self, id: NodeId) -> Option<SocketAddr> {
        let of = |exchange: &Exchange| exchange.directory.get(id).map(|entry| entry.member.address);
        match self {
            Self::Static(provider) => of(provider.exchange()),
            Self::Gossip(provider) => of(provider.exchange()),
            Self::Other(provider) => {
                provider.members().find(|member| member.id == id).map(|member| member.address)
            }
        }
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> Counts {
        any!(self, provider => provider.counts())
    }

    /// Returns roughly the bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        any!(self, provider => provider.memory_bytes())
    }
}
