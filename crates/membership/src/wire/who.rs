//! Where a node is whose id is all that is known of it.

use std::net::SocketAddr;

use ricochet_core::NodeId;

use super::swim::{put_address, read_address};
use super::{HEADER, Kind, Reader, Writer};
use crate::counters::Malformed;

/// Most nodes in one question, and in one answer.
pub const WHO_MAX: usize = 64;
/// Longest entry of an answer: id (4), family (1), IP address (16), port (2).
const PLACE: usize = 23;
/// Length of an answer before its entries.
pub const WHERE_HEADER: usize = HEADER + 1;

const _: () = assert!(HEADER + 1 + WHO_MAX * PLACE > super::DATAGRAM_MAX, "an answer may be cut short");

/// Writes a question for 1 to [`WHO_MAX`] nodes into the front of `to`; returns how many bytes.
///
/// # Panics
/// If there is none or too many, or if `to` is too short.
pub fn write_who(ids: &[NodeId], to: &mut [u8]) -> usize {
    let count = ids.len();
    assert!((1..=WHO_MAX).contains(&count), "a question is for 1 to {WHO_MAX} nodes, not {count}");
    let mut writer = Writer::new(to);
    writer.put(&Kind::Who.to_wire());
    writer.put(&[count as u8]);
    for id in ids {
        writer.put(&id.0.to_be_bytes());
    }
    writer.written()
}

/// Writes an answer into the front of `to`, with as many of the places as have room; returns how many bytes.
///
/// # Panics
/// If `to` is too short for one.
pub fn write_where(places: impl IntoIterator<Item = (NodeId, SocketAddr)>, to: &mut [u8]) -> usize {
    let room = (to.len() - HEADER - 1) / PLACE;
    let mut writer = Writer::new(to);
    writer.put(&Kind::Where.to_wire());
    writer.put(&[0]);
    let mut count = 0;
    for (id, address) in places.into_iter().take(room.min(WHO_MAX)) {
        writer.put(&id.0.to_be_bytes());
        put_address(address, |bytes| writer.put(bytes));
        count += 1;
    }
    let length = writer.written();
    to[HEADER] = count;
    length
}

/// A question as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhoView<'a>(&'a [[u8; 4]]);

impl<'a> WhoView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        let ids = body.list(count, WHO_MAX)?;
        body.end()?;
        Ok(Self(ids))
    }

    /// 1 to [`WHO_MAX`] nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<'a> {
        self.0.iter().map(|bytes| NodeId(u32::from_be_bytes(*bytes)))
    }
}

/// An answer as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhereView<'a> {
    count: u8,
    places: &'a [u8],
}

impl<'a> WhereView<'a> {
    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let count = body.u8()?;
        if !(1..=WHO_MAX).contains(&usize::from(count)) {
            return Err(Malformed::Count);
        }
        let places = body.0;
        for _ in 0..count {
            read_place(&mut body)?;
        }
        body.end()?;
        Ok(Self { count, places })
    }

    /// 1 to [`WHO_MAX`] nodes and their addresses.
    pub fn places(&self) -> impl Iterator<Item = (NodeId, SocketAddr)> + use<'a> {
        let mut rest = Reader(self.places);
        (0..self.count).map_while(move |_| read_place(&mut rest).ok())
    }
}

fn read_place(from: &mut Reader<'_>) -> Result<(NodeId, SocketAddr), Malformed> {
    Ok((NodeId(from.u32()?), read_address(from)?))
}
