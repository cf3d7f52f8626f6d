//! A list that exists and is not here.

use std::net::SocketAddr;

use super::fetch::Fetch;

/// State of the search for a newer version of a member's list.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Newest version that any node has reported; 0 for any version.
    pub(super) version: u32,
    /// Address of the node that reported it.
    pub(super) reporter: SocketAddr,
    /// Time of the next action: the key of this list among the outstanding or waiting requests.
    pub(super) due_us: u64,
    /// Number of requests since the last reply.
    pub(super) tries: u8,
    /// The parts received.
    pub(super) fetch: Option<Box<Fetch>>,
}

impl Wanted {
    /// Returns the bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.fetch.as_ref().map_or(0, |fetch| size_of::<Fetch>() + fetch.memory_bytes())
    }
}
