//! Connections that end at this machine although they are addressed to another one: TPROXY by nf_tables, and
//! a route to this machine for the packets that it marks.
//!
//! ```text
//! table inet NAME {
//!   chain take0 {
//!     tcp dport 80 tproxy ip to 127.0.0.1:PORT meta mark set MARK accept
//!   }
//!   chain new {
//!     ip daddr 10.81.2.1 accept
//!     ip daddr 10.81.2.0/24 jump take0
//!   }
//!   chain asking {
//!     type filter hook prerouting priority mangle + 1
//!     iifname != WAN tcp flags & (fin | syn | rst | ack) == syn tcp sport >= 1024 ip saddr 10.81.1.0/24 jump asked
//!   }
//!   chain asked {
//!     ip daddr 10.81.2.1 accept
//!     ip daddr 10.81.2.0/24 tcp dport 80 queue num QUEUE bypass
//!   }
//!   chain arriving {
//!     type filter hook prerouting priority mangle + 2
//!     meta l4proto tcp meta mark MARK + 0x20000 reject with tcp reset
//!     iifname != WAN tcp flags & (fin | syn | rst | ack) == syn tcp sport >= 1024 ip saddr 10.81.1.0/24 jump new
//!     meta l4proto tcp socket transparent 1 meta mark set MARK accept
//!   }
//! }
//! ```
//!
//! - Only the first packet of a connection is taken. Connections that are older than the table go on as they
//!   are.
//! - The chains `asking` and `asked` exist only if first packets wait for a decision, which comes as a mark
//!   ([`Fate`]).
//! - First packets come before packets of known sockets: a client may use the port of a connection that has
//!   just ended, whose socket waits (`TIME_WAIT`) and takes no first packet. `tproxy` itself finds the socket
//!   of a connection whose first packet comes again.
//! - If nobody listens at the port, the `tproxy` statement does nothing: the packet is forwarded.
//! - Packets that arrive by the WAN interface are not taken, so that nothing is taken twice.
//! - Connections from ports below 1024 are not taken: the far end could not use such a port without a further
//!   privilege.
//! - The table belongs to this process, and the kernel removes it with the process (Linux 5.12 or newer). A
//!   table or route that is left on older kernels does nothing while no transparent socket exists.
//!
//! Packets that are taken pass the chains `input` of a firewall in place of `forward`.

mod routing;

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::nftables::{Bytes, Chain, Ownership, Table, expressions};
use routing::LocalRoute;

/// Priority after that of limits on segments.
const PRIORITY: i32 = -148;
/// Chain of all packets that arrive.
const ARRIVING: &str = "arriving";
/// Chain of first packets of connections.
const NEW: &str = "new";
/// Chain of all packets that arrive, before that; and chain of first packets that wait.
const ASKING: &str = "asking";
const ASKED: &str = "asked";

/// Connections to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diversion {
    /// Interface by which no connection is taken.
    pub wan: String,
    /// Mark of the packets, and number of the routing table.
    pub mark: u32,
    /// Networks from which connections are taken.
    pub from: Vec<IpNet>,
    /// Addresses to which none is taken.
    pub exempt: Vec<IpAddr>,
    /// Destinations, the first that fits counts.
    pub takes: Vec<Take>,
    /// Number of the [`Queue`](crate::queue::Queue) in which first packets wait before they are taken; `None`
    /// if they do not wait.
    pub queue: Option<u16>,
}

/// Decision about a first packet that has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is taken.
    Taken,
    /// It is forwarded.
    Forwarded,
    /// It is answered with a reset.
    Refused,
    /// It is answered: its destination cannot be reached.
    Unreachable,
}

impl Fate {
    /// The mark by which the chain of arriving packets knows it, where packets that are taken have `mark`.
    pub fn mark(self, mark: u32) -> Option<u32> {
        let steps = match self {
            Self::Taken => return None,
            Self::Forwarded => 1,
            Self::Refused => 2,
            Self::Unreachable => 3,
        };
        Some(mark.wrapping_add(steps << 16))
    }
}

/// Connections that one listener takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Network to which they are addressed.
    pub to: IpNet,
    /// Ports to which they are addressed.
    pub ports: Vec<u16>,
    /// Port of the listener on the loopback address of the same IP version.
    pub listener: u16,
}

/// A diversion in force, in the network namespace of the thread that installed it. Dropping it removes it.
#[derive(Debug)]
pub struct Divert {
    // Dropped first, so that nothing is marked without a route.
    _table: Table,
    _route: LocalRoute,
}

impl Divert {
    /// Installs the table `name` and the route, in place of what a killed process left.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`; most others mean that the kernel lacks TPROXY for
    /// nf_tables.
    ///
    /// # Panics
    /// If the name of the interface is too long for one.
    pub fn install(name: &str, diversion: &Diversion) -> io::Result<Self> {
        let route = LocalRoute::install(diversion.mark)?;
        let table = either(diversion, |chains| Table::install(name, chains, Ownership::Auto))?;
        Ok(Self { _table: table, _route: route })
    }
}

/// Whether the kernel could take connections. Changes nothing, except that the kernel may load its modules.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, and others if it lacks TPROXY for nf_tables.
pub fn probe(queue: Option<u16>) -> io::Result<()> {
    // Networks for documentation (RFC 5737).
    let [near, far] = [[192, 0, 2, 0], [198, 51, 100, 0]].map(IpAddr::from);
    let network = |address| IpNet::new_assert(address, 24);
    let take = Take { to: network(far), ports: vec![1], listener: 1 };
    let diversion = Diversion {
        wan: "lo".to_owned(),
        mark: 1,
        from: vec![network(near)],
        exempt: vec![far],
        takes: vec![take],
        queue,
    };
    either(&diversion, |chains| Table::rehearse("undrop_split_probe", chains))
}

/// Tries the chains with the expression for queues, and with the target of iptables if the kernel has no such
/// expression.
fn either<T>(diversion: &Diversion, make: impl Fn(&[Chain]) -> io::Result<T>) -> io::Result<T> {
    match make(&chains(diversion, expressions::queue)) {
        Err(error) if diversion.queue.is_some() && error.raw_os_error() == Some(libc::ENOENT) => {
            make(&chains(diversion, expressions::queue_by_target))
        }
        other => other,
    }
}

fn chains(diversion: &Diversion, wait: fn(u16) -> Bytes) -> Vec<Chain> {
    let Diversion { wan, mark, from, exempt, takes, queue } = diversion;
    let keep = || expressions::set_mark(*mark).chain(expressions::accept());
    let name_of = |index: usize| format!("take{index}");
    let take = |(index, take): (usize, &Take)| {
        let rule = |&port: &u16| {
            let listener = expressions::to_listener(take.to.addr().is_ipv6(), take.listener);
            expressions::to_port(port).chain(listener).chain(keep())
        };
        Chain { name: name_of(index), priority: None, rules: take.ports.iter().map(rule).collect() }
    };
    let mut chains: Vec<Chain> = takes.iter().enumerate().map(take).collect();
    let exempt = exempt.iter().map(|&host| expressions::to(host.into()).chain(expressions::accept()));
    let taken = takes
        .iter()
        .enumerate()
        .map(|(index, take)| expressions::to(take.to).chain(expressions::jump(&name_of(index))));
    chains.push(Chain { name: NEW.to_owned(), priority: None, rules: exempt.chain(taken).collect() });
    let known = expressions::tcp().chain(expressions::of_transparent_socket()).chain(keep());
    let first = |next: &str, &network: &IpNet| -> Bytes {
        let arrived = expressions::not_arrived_by(wan).chain(expressions::first_syn());
        let arrived = arrived.chain(expressions::from_unprivileged_port());
        arrived.chain(expressions::from(network)).chain(expressions::jump(next))
    };
    let mut rules = Vec::new();
    if let Some(queue) = *queue {
        rules.extend(decided(*mark));
        chains.push(Chain { name: ASKED.to_owned(), priority: None, rules: asked(diversion, &wait(queue)) });
        let asking = from.iter().map(|network| first(ASKED, network)).collect();
        chains.push(Chain { name: ASKING.to_owned(), priority: Some(PRIORITY - 1), rules: asking });
    }
    rules.extend(from.iter().map(|network| first(NEW, network)));
    rules.push(known);
    chains.push(Chain { name: ARRIVING.to_owned(), priority: Some(PRIORITY), rules });
    chains
}

/// The rules for packets that have waited, except for those that are taken.
fn decided(mark: u32) -> impl Iterator<Item = Bytes> {
    let fates = [
        (Fate::Forwarded, expressions::accept()),
        (Fate::Refused, expressions::refuse()),
        (Fate::Unreachable, expressions::unreachable()),
    ];
    fates.into_iter().filter_map(move |(fate, then)| {
        Some(expressions::tcp().chain(expressions::with_mark(fate.mark(mark)?)).chain(then))
    })
}

/// The rules by which first packets wait.
fn asked(diversion: &Diversion, wait: &Bytes) -> Vec<Bytes> {
    let exempt = diversion.exempt.iter();
    let exempt = exempt.map(|&host| expressions::to(host.into()).chain(expressions::accept()));
    let waits = diversion.takes.iter().flat_map(|take| {
        let rule =
            |&port: &u16| expressions::to(take.to).chain(expressions::to_port(port)).chain(wait.clone());
        take.ports.iter().map(rule)
    });
    exempt.chain(waits).collect()
}
