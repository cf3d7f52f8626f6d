//! Messages of the failure detector: what `foca` says, in bytes of ours.
//!
//! The library leaves the format to its user ([`foca::Codec`]). A message is read here as a whole before the library
//! sees any of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Member, Message, State};
use ricochet_core::NodeId;

use super::Reader;
use crate::counters::Malformed;

/// Latest start of a life, in microseconds since 1970: in the year 2255. No made-up life is out of reach of a true one.
pub const LIFE_MAX: u64 = 1 << 53;

/// A node as the failure detector knows it: of several with one address the one of the latest life counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Where it is.
    pub address: SocketAddr,
    /// Its name, the same all its life.
    pub id: NodeId,
    /// When it started, or a little later where it had to come back from the dead.
    pub life: u64,
}

impl foca::Identity for Identity {
    type Addr = SocketAddr;

    /// Not the library's to decide: see `gossip/rejoin.rs`.
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

/// A message as its receiver reads it; borrows the datagram, and all of it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwimView<'a> {
    /// Who sent it.
    pub source: Identity,
    /// Whom it is for: a life at the receiver's address, that may not be the one that lives there now.
    pub to: Identity,
    /// The message as the library takes it.
    pub message: &'a [u8],
    /// The part of it before the count of its updates.
    head: &'a [u8],
    /// News of other nodes.
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

    /// How many nodes it has news of.
    pub fn updates(&self) -> usize {
        usize::from(self.count)
    }

    /// The same message with the news of only those nodes whose address `keep` wants, into `to`. Returns how many went.
    pub(crate) fn write_filtered(&self, to: &mut Vec<u8>, mut keep: impl FnMut(&Identity) -> bool) -> usize {
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
            if keep(member.id()) {
                to.extend_from_slice(&before[..before.len() - rest.0.len()]);
                kept += 1;
            }
        }
        to[count_at..count_at + 2].copy_from_slice(&kept.to_be_bytes());
        usize::from(self.count - kept)
    }
}

/// Whether a datagram can be sent there at all: nobody makes this node talk to everybody at once.
pub fn is_sendable(address: SocketAddr) -> bool {
    let ip = address.ip();
    let broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    // A link-local address means another host on each link, and the link does not travel.
    let unclear = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() || ip.is_unicast_link_local());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !broadcast && !unclear
}

/// An address as it travels: an IPv4 address in IPv6 clothes is undressed, flow and scope are left out.
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

/// What the library is given to write and read its messages with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwimCodec;

/// Why the library's message could not be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("no room for {0} bytes")]
    NoRoom(usize),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("expected a message that is in use, saw a broadcast")]
    Unused,
}

/// Longest head of a message: three identities, incarnation, kind and probe.
const HEAD_MAX: usize = 3 * IDENTITY_MAX + 4;
const IDENTITY_MAX: usize = 31;

/// Fields in the making, on the stack.
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

    fn identity(&mut self, identity: &Identity) {
        put_address(identity.address, |bytes| self.put(bytes));
        self.put(&identity.id.0.to_be_bytes());
        self.put(&identity.life.to_be_bytes());
    }

    fn probe(&mut self, kind: u8, number: u8, other: Option<&Identity>) {
        self.put(&[kind, number]);
        if let Some(other) = other {
            self.identity(other);
        }
    }

    /// All or nothing, as the library demands.
    fn finish(&self, mut to: impl BufMut) -> Result<(), CodecError> {
        if to.remaining_mut() < self.len {
            return Err(CodecError::NoRoom(self.len));
        }
        to.put_slice(&self.bytes[..self.len]);
        Ok(())
    }
}

/// Reads with `read` what lies in front of `from`, and steps over it.
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
        scratch.identity(&header.src);
        scratch.put(&header.src_incarnation.to_be_bytes());
        scratch.identity(&header.dst);
        match &header.message {
            Message::Ping(number) => scratch.probe(1, *number, None),
            Message::Ack(number) => scratch.probe(2, *number, None),
            Message::PingReq { target, probe_number } => scratch.probe(3, *probe_number, Some(target)),
            Message::IndirectPing { origin, probe_number } => scratch.probe(4, *probe_number, Some(origin)),
            Message::IndirectAck { target, probe_number } => scratch.probe(5, *probe_number, Some(target)),
            Message::ForwardedAck { origin, probe_number } => scratch.probe(6, *probe_number, Some(origin)),
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
        scratch.identity(member.id());
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
