//! Messages of the failure detector (SWIM) in this crate's wire format.
//!
//! The library `foca` leaves the format to its user ([`foca::Codec`]). This module reads a whole message
//! before it hands any part of it to the library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Member, Message, State};
use foundation::bytes::Reader;
use ricochet_core::NodeId;

use crate::counters::Malformed;

/// Maximum start time of a life, in microseconds since 1970: a time in the year 2255. The bound keeps every
/// forged life within reach of a real one.
pub const LIFE_MAX: u64 = 1 << 53;

/// A node as the failure detector knows it. Of several identities with one address, the one
/// with the latest life counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Address of the node.
    pub address: SocketAddr,
    /// Identifier of the node, constant throughout its life.
    pub id: NodeId,
    /// Start time of the node, or a little later if the node had to rejoin.
    pub life: u64,
}

impl foca::Identity for Identity {
    type Addr = SocketAddr;

    /// Leaves the decision to `gossip/rejoin.rs`.
    fn renew(&self) -> Option<Self> {
        None
    }

    fn addr(&self) -> SocketAddr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        (self.life, self.id) > (adversary.life, adversary.id)
    }
}

/// A fully checked message as its receiver reads it; borrows the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwimView<'a> {
    /// Identity of the sender.
    pub source: Identity,
    /// Identity of the destination: a life at the receiver's address, possibly not the receiver's present
    /// one.
    pub to: Identity,
    /// The message as the library takes it.
    pub message: &'a [u8],
    /// The part of the message before the number of updates.
    head: &'a [u8],
    /// Updates about other nodes.
    updates: &'a [u8],
    count: u16,
}

impl<'a> SwimView<'a> {
    pub(super) fn read(body: Reader<'a>) -> Result<Self, Malformed> {
        let message = body.0;
        let mut rest = body;
        let header = read_header(&mut rest)?;
        let head = &message[..message.len() - rest.0.len()];
        if rest.0.is_empty() {
            return Ok(Self { source: header.src, to: header.dst, message, head, updates: &[], count: 0 });
        }
        if matches!(header.message, Message::Announce | Message::TurnUndead) {
            return Err(Malformed::TooLong);
        }
        let count = rest.u16()?;
        let updates = rest.0;
        for _ in 0..count {
            read_member(&mut rest)?;
        }
        rest.end()?;
        Ok(Self { source: header.src, to: header.dst, message, head, updates, count })
    }

    /// Returns the number of nodes that the message has updates about.
    pub fn updates(&self) -> usize {
        usize::from(self.count)
    }

    /// Writes the message to `to`, with the updates for which `keep` returns true. Returns
    /// the number of updates left out.
    pub(crate) fn write_filtered(
        &self,
        to: &mut Vec<u8>,
        mut keep: impl FnMut(&Member<Identity>) -> bool,
    ) -> usize {
        to.clear();
        to.extend_from_slice(self.head);
        if self.count == 0 {
            to.extend_from_slice(&self.message[self.head.len()..]);
            return 0;
        }
        let count_at = to.len();
        to.extend_from_slice(&[0; 2]);
        let (mut rest, mut kept) = (Reader(self.updates), 0u16);
        for _ in 0..self.count {
            let before = rest.0;
            let Ok(member) = read_member(&mut rest) else { break };
            if keep(&member) {
                to.extend_from_slice(&before[..before.len() - rest.0.len()]);
                kept += 1;
            }
        }
        to[count_at..count_at + 2].copy_from_slice(&kept.to_be_bytes());
        usize::from(self.count - kept)
    }
}

/// Returns whether the address is that of one host: a forged address must not make
/// this node send to many at once.
pub fn is_sendable(address: SocketAddr) -> bool {
    let ip = address.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    // A link-local address means a different host on each link, and the wire format does not carry the link.
    let unclear = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() || ip.is_unicast_link_local());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast && !unclear
}

/// Returns an address as it travels: IPv4-mapped IPv6 addresses become IPv4; flow
/// label and scope are left out.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

pub(super) fn read_address(from: &mut Reader<'_>) -> Result<SocketAddr, Malformed> {
    let ip = match from.u8()? {
        4 => IpAddr::V4(Ipv4Addr::from(from.array::<4>()?)),
        6 => IpAddr::V6(Ipv6Addr::from(from.array::<16>()?)),
        _ => return Err(Malformed::Address),
    };
    let address = SocketAddr::new(ip, from.u16()?);
    if is_sendable(address) { Ok(address) } else { Err(Malformed::Address) }
}

pub(super) fn put_address(address: SocketAddr, mut put: impl FnMut(&[u8])) {
    match address.ip() {
        IpAddr::V4(ip) => {
            put(&[4]);
            put(&ip.octets());
        }
        IpAddr::V6(ip) => {
            put(&[6]);
            put(&ip.octets());
        }
    }
    put(&address.port().to_be_bytes());
}

fn read_identity(from: &mut Reader<'_>) -> Result<Identity, Malformed> {
    let identity = Identity { address: read_address(from)?, id: NodeId(from.u32()?), life: from.u64()? };
    if identity.life > LIFE_MAX { Err(Malformed::Reserved) } else { Ok(identity) }
}

fn read_member(from: &mut Reader<'_>) -> Result<Member<Identity>, Malformed> {
    let (id, incarnation) = (read_identity(from)?, from.u16()?);
    let state = match from.u8()? {
        0 => State::Alive,
        1 => State::Suspect,
        2 => State::Down,
        _ => return Err(Malformed::Reserved),
    };
    Ok(Member::new(id, incarnation, state))
}

fn read_header(from: &mut Reader<'_>) -> Result<Header<Identity>, Malformed> {
    let (src, src_incarnation, dst) = (read_identity(from)?, from.u16()?, read_identity(from)?);
    let message = match from.u8()? {
        1 => Message::Ping(from.u8()?),
        2 => Message::Ack(from.u8()?),
        3 => Message::PingReq { probe_number: from.u8()?, target: read_identity(from)? },
        4 => Message::IndirectPing { probe_number: from.u8()?, origin: read_identity(from)? },
        5 => Message::IndirectAck { probe_number: from.u8()?, target: read_identity(from)? },
        6 => Message::ForwardedAck { probe_number: from.u8()?, origin: read_identity(from)? },
        7 => Message::Announce,
        8 => Message::Feed,
        9 => Message::Gossip,
        10 => Message::TurnUndead,
        _ => return Err(Malformed::Kind),
    };
    Ok(Header { src, src_incarnation, dst, message })
}

/// The library's codec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwimCodec;

/// Why the library's message could not be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("expected room for {0} bytes, saw less")]
    NoRoom(usize),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("expected a message that the protocol uses, saw a broadcast")]
    Unused,
}

/// Maximum length of the head of a message: three identities, incarnation, kind and probe number.
const HEAD_MAX: usize = 3 * IDENTITY_MAX + 4;
const IDENTITY_MAX: usize = 31;

/// Buffer on the stack in which fields are assembled.
struct Scratch {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Scratch {
    fn new() -> Self {
        Self { bytes: [0; HEAD_MAX], len: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn put_identity(&mut self, identity: &Identity) {
        put_address(identity.address, |bytes| self.put(bytes));
        self.put(&identity.id.0.to_be_bytes());
        self.put(&identity.life.to_be_bytes());
    }

    fn put_probe(&mut self, kind: u8, number: u8, other: Option<&Identity>) {
        self.put(&[kind, number]);
        if let Some(other) = other {
            self.put_identity(other);
        }
    }

    /// Writes all fields or none, as the library requires.
    fn finish(&self, mut to: impl BufMut) -> Result<(), CodecError> {
        if to.remaining_mut() < self.len {
            return Err(CodecError::NoRoom(self.len));
        }
        to.put_slice(&self.bytes[..self.len]);
        Ok(())
    }
}

/// Reads a value with `read` from the front of `from` and advances past it.
fn decode<T>(
    mut from: impl Buf,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<T, CodecError> {
    let bytes = from.chunk();
    let mut reader = Reader(bytes);
    let value = read(&mut reader)?;
    let taken = bytes.len() - reader.0.len();
    from.advance(taken);
    Ok(value)
}

impl Codec<Identity> for SwimCodec {
    type Error = CodecError;

    fn encode_header(&mut self, header: &Header<Identity>, buf: impl BufMut) -> Result<(), CodecError> {
        let mut scratch = Scratch::new();
        scratch.put_identity(&header.src);
        scratch.put(&header.src_incarnation.to_be_bytes());
        scratch.put_identity(&header.dst);
        match &header.message {
            Message::Ping(number) => scratch.put_probe(1, *number, None),
            Message::Ack(number) => scratch.put_probe(2, *number, None),
            Message::PingReq { target, probe_number } => scratch.put_probe(3, *probe_number, Some(target)),
            Message::IndirectPing { origin, probe_number } => {
                scratch.put_probe(4, *probe_number, Some(origin));
            }
            Message::IndirectAck { target, probe_number } => {
                scratch.put_probe(5, *probe_number, Some(target));
            }
            Message::ForwardedAck { origin, probe_number } => {
                scratch.put_probe(6, *probe_number, Some(origin));
            }
            Message::Announce => scratch.put(&[7]),
            Message::Feed => scratch.put(&[8]),
            Message::Gossip => scratch.put(&[9]),
            Message::TurnUndead => scratch.put(&[10]),
            Message::Broadcast => return Err(CodecError::Unused),
        }
        scratch.finish(buf)
    }

    fn decode_header(&mut self, buf: impl Buf) -> Result<Header<Identity>, CodecError> {
        decode(buf, read_header)
    }

    fn encode_member(&mut self, member: &Member<Identity>, buf: impl BufMut) -> Result<(), CodecError> {
        let mut scratch = Scratch::new();
        scratch.put_identity(member.id());
        scratch.put(&member.incarnation().to_be_bytes());
        scratch.put(&[match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        }]);
        scratch.finish(buf)
    }

    fn decode_member(&mut self, buf: impl Buf) -> Result<Member<Identity>, CodecError> {
        decode(buf, read_member)
    }
}
