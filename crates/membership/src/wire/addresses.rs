//! Addresses of nodes of which only the id is known: the request for them, and the reply.

use std::net::SocketAddr;

use foundation::bytes::{Reader, Writer};
use ricochet_core::NodeId;

use super::header::{DATAGRAM_MAX, HEADER, Kind};
use super::swim::{put_address, read_address};
use crate::counters::Malformed;

/// Maximum number of nodes in one request, and in one reply.
pub const ADDRESSES_MAX: usize = 64;
/// Maximum length of an entry of a reply: id (4), family (1), IP address (16), port (2).
const ENTRY_MAX: usize = 23;
/// Length of a reply before its entries.
pub const ADDRESS_REPLY_HEADER: usize = HEADER + 1;

const _: () = assert!(HEADER + 1 + ADDRESSES_MAX * ENTRY_MAX > DATAGRAM_MAX, "a reply may be cut short");

/// Writes a request for 1 to [`ADDRESSES_MAX`] nodes to the front of `to` and returns its length in bytes.
///
/// # Panics
/// If the number of nodes is out of range, or if `to` is too short.
pub fn write_address_request(ids: &[NodeId], to: &mut [u8]) -> usize {
    let count = ids.len();
    assert!(
        (1..=ADDRESSES_MAX).contains(&count),
        "expected a request for 1 to {ADDRESSES_MAX} nodes, saw {count}"
    );
    let mut writer = Writer::new(to);
    writer.put(&Kind::AddressRequest.to_wire());
    writer.put(&[count as u8]);
    for id in ids {
        writer.put(&id.0.to_be_bytes());
    }
    writer.written()
}

/// Writes a reply to the front of `to`, with as many of the nodes as fit, and returns its length in bytes.
///
/// # Panics
/// If `to` is too short for one node.
pub fn write_address_reply(nodes: impl IntoIterator<Item = (NodeId, SocketAddr)>, to: &mut [u8]) -> usize {
    let room = (to.len() - HEADER - 1) / ENTRY_MAX;
    let mut writer = Writer::new(to);
    writer.put(&Kind::AddressReply.to_wire());
    writer.put(&[0]);
    let mut count = 0;
    for (id, address) in nodes.into_iter().take(room.min(ADDRESSES_MAX)) {
        writer.put(&id.0.to_be_bytes());
        put_address(address, |bytes| writer.put(bytes));
        count += 1;
    }
    let length = writer.written();
    to[HEADER] = count;
    length
}

/// A request as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRequestView<'a>(&'a [[u8; 4]]);

impl<'a> AddressRequestView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let ids = body.list(count, ADDRESSES_MAX)?;
        body.end()?;
        Ok(Self(ids))
    }

    /// Returns the ids of 1 to [`ADDRESSES_MAX`] nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.0.iter().map(|bytes| NodeId(u32::from_be_bytes(*bytes)))
    }
}

/// A reply as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressReplyView<'a> {
    count: u8,
    entries: &'a [u8],
}

impl<'a> AddressReplyView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        if !(1..=ADDRESSES_MAX).contains(&usize::from(count)) {
            return Err(Malformed::Count);
        }
        let entries = body.0;
        for _ in 0..count {
            read_entry(&mut body)?;
        }
        body.end()?;
        Ok(Self { count, entries })
    }

    /// Returns 1 to [`ADDRESSES_MAX`] nodes and their addresses.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> + use<'a> {
        let mut rest = Reader(self.entries);
        (0..self.count).map_while(move |_| read_entry(&mut rest).ok())
    }
}

fn read_entry(from: &mut Reader<'_>) -> Result<(NodeId, SocketAddr), Malformed> {
    Ok((NodeId(from.u32()?), read_address(from)?))
}
