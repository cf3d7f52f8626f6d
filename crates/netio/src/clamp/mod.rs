//! A limit on the segments of TCP connections with the hosts of some networks, which the kernel's firewall
//! (nf_tables) keeps.
//!
//! A SYN states the longest segment that its sender takes. The table lowers this number in the SYNs that
//! arrive from the networks, so that no host on this side, this machine included, sends longer segments to
//! them:
//!
//! ```text
//! table inet NAME {
//!   chain arriving {
//!     type filter hook prerouting priority mangle
//!     meta l4proto tcp tcp flags & (syn | rst) == syn tcp option 29 missing jump networks
//!   }
//!   chain networks {
//!     ip saddr 10.81.2.0/24 tcp option maxseg size set 1261
//!   }
//! }
//! ```
//!
//! - The kernel never raises the number, and leaves SYNs without it as they are.
//! - Option 29 authenticates all options (TCP-AO, RFC 5925), so that its SYNs must not be changed.
//! - Packets other than SYNs meet one rule, however many networks there are.
//! - The table belongs to this process: nobody else can change it, and the kernel removes it with the
//!   process, however that ends. Before Linux 5.12 tables have no owner. Then the table of a killed process
//!   stays until [`SegmentClamp::install`] of the next one replaces it.

mod message;

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

use message::{Batch, Bytes, Socket, expressions};

// linux/netfilter/nf_tables.h
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const DELETE_RULE: u16 = 8;
const GET_GENERATION: u16 = 16;
const OWNER: u32 = 2;
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
// linux/netfilter.h, linux/netfilter_ipv4.h
const PREROUTING: u32 = 0;
const MANGLE: i32 = -150;

/// Chain of all packets that arrive.
const ARRIVING: &str = "arriving";
/// Chain of SYNs.
const NETWORKS: &str = "networks";

/// Longest segment of connections with the hosts of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLimit {
    /// The network.
    pub network: IpNet,
    /// Length of the data and options of a segment in bytes, as a SYN states it.
    pub bytes: u16,
}

/// Whether a table belongs to the process that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The kernel removes it with its owner (Linux 5.12 or newer), or else it has none.
    Auto,
    /// It stays until somebody removes it.
    None,
}

/// A table of limits in the network namespace of the thread that installed it. Dropping it removes it.
///
/// ```no_run
/// use netio::clamp::{Ownership, SegmentClamp, SegmentLimit};
/// # fn main() -> std::io::Result<()> {
/// let limit = SegmentLimit { network: "10.81.2.0/24".parse().unwrap(), bytes: 1_261 };
/// let clamp = SegmentClamp::install("undrop_mss_undrop0", &[limit], Ownership::Auto)?;
/// assert!(clamp.is_present()?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SegmentClamp {
    socket: Socket,
    name: String,
    /// Number of rules in the table.
    rules: usize,
}

impl SegmentClamp {
    /// Creates the table `name`, in place of one that a killed process left.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, or if another process owns a table of this name;
    /// most others mean that the kernel lacks a part of nf_tables.
    pub fn install(name: &str, limits: &[SegmentLimit], ownership: Ownership) -> io::Result<Self> {
        let socket = Socket::open()?;
        let owned = match ownership {
            Ownership::Auto => socket.commit(&creation(name, limits, OWNER)),
            Ownership::None => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        match owned {
            // An older kernel does not know the flag.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                socket.commit(&creation(name, limits, 0))?;
            }
            other => other?,
        }
        Ok(Self { socket, name: name.to_owned(), rules: rules(limits) })
    }

    /// Replaces the limits, without a moment between the old ones and the new ones.
    ///
    /// # Errors
    /// The kernel's error; the old limits then stay.
    pub fn replace(&mut self, limits: &[SegmentLimit]) -> io::Result<()> {
        let mut batch = Batch::default();
        batch.add(DELETE_RULE, 0, &place(&self.name, NETWORKS));
        add_limits(&mut batch, &self.name, limits);
        self.socket.commit(&batch)?;
        self.rules = rules(limits);
        Ok(())
    }

    /// Whether the table has all of its rules.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_present(&self) -> io::Result<bool> {
        Ok(self.socket.count(GET_RULE, &Bytes::default().text(RULE_TABLE, &self.name))? == self.rules)
    }
}

impl Drop for SegmentClamp {
    fn drop(&mut self) {
        let mut batch = Batch::default();
        batch.add(DELETE_TABLE, 0, &Bytes::default().text(TABLE_NAME, &self.name));
        // Somebody may have removed it already.
        let _ = self.socket.commit(&batch);
    }
}

/// Whether the kernel has nf_tables.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, and others if it has not.
pub fn probe() -> io::Result<()> {
    Socket::open()?.ask(GET_GENERATION)
}

fn rules(limits: &[SegmentLimit]) -> usize {
    limits.len() + 1
}

/// The batch that makes the table. It first makes a plain table and removes it, so that it succeeds whether
/// or not a table is there.
fn creation(name: &str, limits: &[SegmentLimit], flags: u32) -> Batch {
    let mut batch = Batch::default();
    let table = || Bytes::default().text(TABLE_NAME, name);
    batch.add(NEW_TABLE, libc::NLM_F_CREATE, &table());
    batch.add(DELETE_TABLE, 0, &table());
    batch.add(NEW_TABLE, libc::NLM_F_CREATE, &table().number(TABLE_FLAGS, flags));
    let chain = |chain: &str| Bytes::default().text(CHAIN_TABLE, name).text(CHAIN_NAME, chain);
    batch.add(NEW_CHAIN, libc::NLM_F_CREATE, &chain(NETWORKS));
    let hook = Bytes::default().number(HOOK_NUMBER, PREROUTING).number(HOOK_PRIORITY, MANGLE.cast_unsigned());
    let arriving = chain(ARRIVING).nest(CHAIN_HOOK, &hook).text(CHAIN_TYPE, "filter");
    batch.add(NEW_CHAIN, libc::NLM_F_CREATE, &arriving);
    let syn = expressions::syn().chain(expressions::without_option(expressions::AUTHENTICATION));
    add_rule(&mut batch, name, ARRIVING, &syn.chain(expressions::jump(NETWORKS)));
    add_limits(&mut batch, name, limits);
    batch
}

fn add_limits(batch: &mut Batch, name: &str, limits: &[SegmentLimit]) {
    for SegmentLimit { network, bytes } in limits {
        let from = match network.network() {
            IpAddr::V4(address) => expressions::from_v4(address.octets(), network.prefix_len()),
            IpAddr::V6(address) => expressions::from_v6(address.octets(), network.prefix_len()),
        };
        add_rule(batch, name, NETWORKS, &from.chain(expressions::set_segment_max(*bytes)));
    }
}

fn add_rule(batch: &mut Batch, name: &str, chain: &str, expressions: &Bytes) {
    let rule = place(name, chain).nest(RULE_EXPRESSIONS, expressions);
    batch.add(NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, &rule);
}

/// The attributes that name a chain in a message about rules.
fn place(name: &str, chain: &str) -> Bytes {
    Bytes::default().text(RULE_TABLE, name).text(RULE_CHAIN, chain)
}
