//! Packets of MoldUDP64, as NASDAQ's specification (version 1.00) defines them. All numbers are big-endian.
//!
//! A packet begins with a header of 20 bytes: session (10), number (8) and count (2).
//!
//! | packet | number | count | then |
//! |---|---|---|---|
//! | messages | of the first | how many | of each its length (2) and bytes |
//! | heartbeat | of the next message | 0 | nothing |
//! | end of session | that the next message would have | 65,535 | nothing |
//! | request | of the first message wanted | how many | nothing |

use std::fmt;

/// Length of the header of every packet, and of a request, in bytes.
pub(super) const HEADER: usize = 20;
/// Length of the field in front of each message, in bytes.
pub(super) const BLOCK: usize = 2;
/// Longest payload of a datagram, in bytes.
pub(super) const DATAGRAM_MAX: usize = 65_507;
/// Largest number of a message that is believed. No feed comes near it, and sums of numbers below it do not
/// overflow.
pub(super) const NUMBER_MAX: u64 = 1 << 62;
/// Maximum number of messages that a request names, because 65,535 has another meaning.
pub(super) const COUNT_MAX: u16 = 0xfffe;

const HEARTBEAT: u16 = 0;
const END: u16 = 0xffff;

/// Name of a session: 10 bytes, letters and digits by the specification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionId(pub(super) [u8; 10]);

impl fmt::Display for SessionId {
    /// Writes the name without the spaces around it, and other bytes escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.trim_ascii().escape_ascii())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a datagram is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It ends within its header or a message.
    TooShort,
    /// Bytes follow its last message.
    TooLong,
    /// The number of its first message is 0, or larger than [`NUMBER_MAX`].
    Number,
}

/// A packet from a feed or from a server for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) session: SessionId,
    /// Number of the first message. Numbers begin at 1.
    pub(super) number: u64,
    pub(super) content: Content<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// Message blocks, which were checked.
    Messages(Messages<'a>),
    Heartbeat,
    End,
}

/// The messages of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Messages<'a> {
    /// Length and bytes of each.
    blocks: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.blocks.split_first_chunk::<BLOCK>()?;
        let (message, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        self.blocks = rest;
        Some(message)
    }
}

impl<'a> Packet<'a> {
    /// Reads a packet.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (session, number, count, blocks) = split_header(bytes).ok_or(Malformed::TooShort)?;
        let content = match count {
            HEARTBEAT | END if !blocks.is_empty() => return Err(Malformed::TooLong),
            HEARTBEAT => Content::Heartbeat,
            END => Content::End,
            count => {
                let mut messages = Messages { blocks };
                if messages.by_ref().take(count.into()).count() < usize::from(count) {
                    return Err(Malformed::TooShort);
                }
                if !messages.blocks.is_empty() {
                    return Err(Malformed::TooLong);
                }
                Content::Messages(Messages { blocks })
            }
        };
        is_number(number).then_some(Self { session, number, content }).ok_or(Malformed::Number)
    }
}

/// Returns whether a message can have this number.
pub(super) fn is_number(number: u64) -> bool {
    (1..=NUMBER_MAX).contains(&number)
}

fn split_header(bytes: &[u8]) -> Option<(SessionId, u64, u16, &[u8])> {
    let (session, rest) = bytes.split_first_chunk::<10>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    Some((SessionId(*session), u64::from_be_bytes(*number), u16::from_be_bytes(*count), rest))
}

fn write_header(to: &mut Vec<u8>, session: SessionId, number: u64, count: u16) {
    to.clear();
    to.extend(session.0);
    to.extend(number.to_be_bytes());
    to.extend(count.to_be_bytes());
}

/// Writes a heartbeat into a buffer, which is emptied first.
pub(super) fn write_heartbeat(to: &mut Vec<u8>, session: SessionId, next: u64) {
    write_header(to, session, next, HEARTBEAT);
}

/// Writes the end of a session into a buffer, which is emptied first.
pub(super) fn write_end(to: &mut Vec<u8>, session: SessionId, next: u64) {
    write_header(to, session, next, END);
}

/// Writes a packet with the first of these messages, at most as many as fit `length_max` bytes, and at least
/// one if there is one. Returns their number.
pub(super) fn write_messages<'m>(
    to: &mut Vec<u8>,
    session: SessionId,
    number: u64,
    length_max: usize,
    messages: impl Iterator<Item = &'m [u8]>,
) -> u16 {
    write_header(to, session, number, HEARTBEAT);
    let mut count: u16 = 0;
    for message in messages.take(COUNT_MAX.into()) {
        let Ok(length) = u16::try_from(message.len()) else { break };
        if count > 0 && to.len() + BLOCK + message.len() > length_max {
            break;
        }
        to.extend(length.to_be_bytes());
        to.extend(message);
        count += 1;
    }
    to[HEADER - 2..HEADER].copy_from_slice(&count.to_be_bytes());
    count
}

/// A request for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) session: SessionId,
    /// Number of the first message wanted.
    pub(super) number: u64,
    /// Number of messages wanted.
    pub(super) count: u16,
}

impl Request {
    /// Reads a request.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let (session, number, count, rest) = split_header(bytes).ok_or(Malformed::TooShort)?;
        if !rest.is_empty() {
            return Err(Malformed::TooLong);
        }
        is_number(number).then_some(Self { session, number, count }).ok_or(Malformed::Number)
    }

    /// Writes the request into a buffer, which is emptied first.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        write_header(to, self.session, self.number, self.count);
    }
}
