//! Numbers and entries of a recipe, shared by its writer and its reader.

use crate::counters::Rejected;
use crate::identity::Name;
use crate::packet::MutableFields;
use fec::{BLOCK_C_MAX, BLOCK_R_MAX, Scheme};
use foundation::Seq;

/// Maximum number of packets that one repair names.
pub const TERMS_MAX: usize = 64;
// Every position in a recipe has a coefficient.
const _: () = assert!(TERMS_MAX <= BLOCK_R_MAX as usize);
/// Maximum number of packets that a datagram of names names.
pub const NAMES_APART_MAX: usize = fec::names::APART_MAX;
const _: () = assert!(NAMES_APART_MAX <= u8::MAX as usize);
/// Maximum number of packets in a sliding window.
pub const WINDOW_MAX: u16 = 1_024;
/// Number of packets in one repair, with mutable fields that differ from the others', that
/// [`repair_overhead`](super::repair_overhead) leaves room for.
pub const EXCEPTIONS_BUDGET: usize = 4;

/// Length of a recipe's fixed part in bytes: kind, scheme, count, row, stride (2), last sequence number (4),
/// common fields (2), number of exceptions.
pub(super) const RECIPE_HEADER: usize = 13;
/// Length of a window recipe's fixed part in bytes: kind, scheme, count (2), seed (2), density, last sequence
/// number (4), common fields (2), number of exceptions, runs.
pub(super) const WINDOW_HEADER: usize = 14 + RUNS * RUN;
/// Length of the fixed part of a datagram of names in bytes: kind, count, last sequence number (4), common
/// fields (2), number of exceptions.
pub(super) const NAMES_HEADER: usize = 9;
/// Length of an exception in bytes: position, time to live, type of service.
pub(super) const EXCEPTION: usize = 3;
/// Length of a name in bytes.
pub(super) const NAME: usize = 4;
/// Number of runs of names in a window's recipe.
pub(super) const RUNS: usize = 3;
/// Length of a run in bytes: distance of its last packet from the window's (2), number of names.
pub(super) const RUN: usize = 3;

/// Number of different repairs of the same named packets.
pub(super) fn rows(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::Layered => 1,
        Scheme::ReedSolomon => BLOCK_C_MAX,
        Scheme::Sliding => 0,
    }
}

/// Returns the byte that identifies a scheme.
pub(super) fn scheme_to_wire(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::Layered => 1,
        Scheme::ReedSolomon => 2,
        Scheme::Sliding => 3,
    }
}

/// Reads the byte that identifies a scheme.
pub(super) fn scheme_from_wire(byte: u8) -> Result<Scheme, Rejected> {
    match byte {
        1 => Ok(Scheme::Layered),
        2 => Ok(Scheme::ReedSolomon),
        3 => Ok(Scheme::Sliding),
        _ => Err(Rejected::UnknownScheme),
    }
}

/// A packet as the egress keeps it in a bin, and as a recipe describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Position in the protected stream.
    pub seq: Seq,
    /// Short identifier.
    pub name: Name,
    /// Fields that routers change, as the packet left.
    pub fields: MutableFields,
}
