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

use std::io;

use ipnet::IpNet;

use crate::nftables::{Bytes, Chain, Table, expressions};
pub use crate::nftables::{Ownership, probe};

// linux/netfilter_ipv4.h
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
    table: Table,
    /// Number of limits in the table.
    limits: usize,
}

impl SegmentClamp {
    /// Creates the table `name`, in place of one that a killed process left.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, or if another process owns a table of this name;
    /// most others mean that the kernel lacks a part of nf_tables.
    pub fn install(name: &str, limits: &[SegmentLimit], ownership: Ownership) -> io::Result<Self> {
        let syn = expressions::syn().chain(expressions::without_option(expressions::AUTHENTICATION));
        let chains = [
            Chain { name: NETWORKS.to_owned(), priority: None, rules: rules(limits) },
            Chain {
                name: ARRIVING.to_owned(),
                priority: Some(MANGLE),
                rules: vec![syn.chain(expressions::jump(NETWORKS))],
            },
        ];
        Ok(Self { table: Table::install(name, &chains, ownership)?, limits: limits.len() })
    }

    /// Replaces the limits, without a moment between the old ones and the new ones.
    ///
    /// # Errors
    /// The kernel's error; the old limits then stay.
    pub fn replace(&mut self, limits: &[SegmentLimit]) -> io::Result<()> {
        self.table.replace(NETWORKS, self.limits, &rules(limits))?;
        self.limits = limits.len();
        Ok(())
    }

    /// Whether the table has all of its rules.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_present(&self) -> io::Result<bool> {
        self.table.is_present()
    }
}

fn rules(limits: &[SegmentLimit]) -> Vec<Bytes> {
    let limits = limits.iter();
    limits
        .map(|limit| expressions::from(limit.network).chain(expressions::set_segment_max(limit.bytes)))
        .collect()
}
