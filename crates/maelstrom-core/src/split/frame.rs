//! The frames on a carrier. All numbers are big-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind |
//! | 1 | flags: 1 in a data frame whose sender has used up its credit; otherwise 0 |
//! | 2 | length of the payload |
//! | 4 | stream; 0 in frames about the carrier |
//! | rest | payload |

use std::net::{IpAddr, SocketAddr};

use foundation::bytes::{ReadError, Reader};

/// Length of the header of a frame in bytes.
pub const HEADER_LEN: usize = 8;
/// Maximum length of the payload of a frame in bytes.
pub const PAYLOAD_MAX: usize = 1 << 14;
/// Maximum length of a frame in bytes.
pub const FRAME_MAX: usize = HEADER_LEN + PAYLOAD_MAX;

const OPEN: u8 = 1;
const OPENED: u8 = 2;
const DATA: u8 = 3;
const CREDIT: u8 = 4;
const RETURN: u8 = 5;
const END: u8 = 6;
const RESET: u8 = 7;
const REFUSED: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const LEAVING: u8 = 11;
const ADVANCE: u8 = 12;

/// Flag of a data frame after which the sender has no credit left.
const LIMITED: u8 = 1;

/// The two ends of a connection, as its hosts see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The host that connects.
    pub client: SocketAddr,
    /// The host to which it connects; of the same IP version.
    pub server: SocketAddr,
}

/// Why the far gateway did not open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The server refused it.
    #[error("the server refused the connection")]
    Refused,
    /// No route leads to the server, or it did not answer.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The client or the server is not in the networks that the far gateway knows.
    #[error("the addresses are not those of the two sites")]
    Foreign,
    /// The far gateway holds as many connections as it can.
    #[error("the far gateway has no room")]
    Full,
}

impl Refusal {
    const ALL: [Self; 4] = [Self::Refused, Self::Unreachable, Self::Foreign, Self::Full];

    fn code(self) -> u8 {
        match self {
            Self::Refused => 1,
            Self::Unreachable => 2,
            Self::Foreign => 3,
            Self::Full => 4,
        }
    }

    fn of(code: u8) -> Result<Self, Fault> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code).ok_or(Fault::Reason(code))
    }
}

/// Why a carrier is closed: the far end does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No frame has this kind.
    #[error("expected a kind of frame from 1 to 12, saw {0}")]
    Kind(u8),
    /// A flag that frames of this kind do not have.
    #[error("expected a frame of kind {kind} without unknown flags, saw {flags:#04x}")]
    Flags {
        /// Kind of the frame.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// The payload has another length than frames of this kind.
    #[error("expected a frame of kind {kind} of another length, saw {length} bytes")]
    Length {
        /// Kind of the frame.
        kind: u8,
        /// Length of its payload.
        length: u16,
    },
    /// No reason of a refusal.
    #[error("expected a reason from 1 to 4, saw {0}")]
    Reason(u8),
    /// No version of IP.
    #[error("expected IP version 4 or 6, saw {0}")]
    Version(u8),
    /// A frame that only the other end sends.
    #[error("saw a frame of the other end's")]
    Role,
    /// A stream was opened under a number that is not above those before it.
    #[error("expected a new stream above {last}, saw {stream}")]
    Reused {
        /// The latest stream.
        last: u32,
        /// The number seen.
        stream: u32,
    },
    /// More data than the credit allows, or after the end of the stream.
    #[error("saw more data on a stream than its credit allows")]
    Credit,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The stream; 0 in frames about the carrier.
    pub stream: u32,
    /// Content, by kind.
    pub body: Body<'a>,
}

/// Content of a frame, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Asks for a connection. The sender takes `credit` bytes more than [`INITIAL`](super::INITIAL), and may
    /// itself send `advance` more.
    Open {
        /// Additional credit in bytes.
        credit: u32,
        /// Bytes of the advance of the carrier that the stream has from its beginning.
        advance: u32,
        /// The ends of the connection.
        ends: Ends,
    },
    /// The connection is open.
    Opened {
        /// Additional credit in bytes.
        credit: u32,
    },
    /// Bytes of the connection, at least one.
    Data {
        /// Whether the sender has no credit left.
        limited: bool,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Number of bytes that the receiver takes in addition.
    Credit(u32),
    /// The sender gives credit back that it does not need.
    Return(u32),
    /// No more bytes follow in this direction.
    End,
    /// The connection was reset.
    Reset,
    /// The connection cannot be opened.
    Refused(Refusal),
    /// Asks for an answer with the same number.
    Ping(u64),
    /// The answer.
    Pong(u64),
    /// The end that was dialed opens no more connections, because its gateway stops.
    Leaving,
    /// Of the end that dialed: bytes that it would like to have in advance for new streams. Of the other one:
    /// bytes that it gives in addition.
    Advance(u32),
}

impl<'a> Frame<'a> {
    /// Reads the first frame of `bytes`, and returns it with its length. `None` if it is not complete.
    ///
    /// # Errors
    /// [`Fault`] if no valid frame begins so.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Fault> {
        let Some((&[kind, flags, length_high, length_low, a, b, c, d], rest)) = bytes.split_first_chunk()
        else {
            return Ok(None);
        };
        let length = u16::from_be_bytes([length_high, length_low]);
        check(kind, flags, length)?;
        let Some(payload) = rest.get(..usize::from(length)) else { return Ok(None) };
        let wrong_length = |_: ReadError| Fault::Length { kind, length };
        let mut fields = Reader(payload);
        let body = match kind {
            OPEN => {
                let mut number = || fields.u32().map_err(wrong_length);
                let (credit, advance) = (number()?, number()?);
                Body::Open { credit, advance, ends: read_ends(&mut fields, kind, length)? }
            }
            OPENED => Body::Opened { credit: fields.u32().map_err(wrong_length)? },
            DATA => Body::Data { limited: flags & LIMITED != 0, bytes: payload },
            CREDIT => Body::Credit(fields.u32().map_err(wrong_length)?),
            RETURN => Body::Return(fields.u32().map_err(wrong_length)?),
            END => Body::End,
            RESET => Body::Reset,
            REFUSED => Body::Refused(Refusal::of(fields.u8().map_err(wrong_length)?)?),
            PING => Body::Ping(fields.u64().map_err(wrong_length)?),
            LEAVING => Body::Leaving,
            ADVANCE => Body::Advance(fields.u32().map_err(wrong_length)?),
            _ => Body::Pong(fields.u64().map_err(wrong_length)?),
        };
        if kind != DATA {
            fields.end().map_err(wrong_length)?;
        }
        let stream = u32::from_be_bytes([a, b, c, d]);
        Ok(Some((Self { stream, body }, HEADER_LEN + payload.len())))
    }

    /// Appends the frame to `to`.
    ///
    /// # Panics
    /// If a data frame has no bytes or more than [`PAYLOAD_MAX`], or ends have two versions of IP.
    pub fn write(&self, to: &mut Vec<u8>) {
        let at = to.len();
        to.extend([0; HEADER_LEN]);
        let (kind, flags) = match self.body {
            Body::Open { credit, advance, ends } => {
                to.extend(credit.to_be_bytes());
                to.extend(advance.to_be_bytes());
                write_ends(&ends, to);
                (OPEN, 0)
            }
            Body::Opened { credit } => (with(to, credit, OPENED), 0),
            Body::Data { limited, bytes } => {
                to.extend_from_slice(bytes);
                (DATA, u8::from(limited) * LIMITED)
            }
            Body::Credit(bytes) => (with(to, bytes, CREDIT), 0),
            Body::Return(bytes) => (with(to, bytes, RETURN), 0),
            Body::End => (END, 0),
            Body::Reset => (RESET, 0),
            Body::Refused(reason) => {
                to.push(reason.code());
                (REFUSED, 0)
            }
            Body::Ping(token) => {
                to.extend(token.to_be_bytes());
                (PING, 0)
            }
            Body::Pong(token) => {
                to.extend(token.to_be_bytes());
                (PONG, 0)
            }
            Body::Leaving => (LEAVING, 0),
            Body::Advance(bytes) => (with(to, bytes, ADVANCE), 0),
        };
        complete(to, at, [kind, flags], self.stream);
    }
}

/// Appends the header of a data frame whose payload follows; [`end_data`] completes it.
pub(super) fn begin_data(to: &mut Vec<u8>) -> usize {
    let at = to.len();
    to.extend([0; HEADER_LEN]);
    at
}

/// Completes the data frame that begins at `at` and whose payload is the rest of `to`.
pub(super) fn end_data(to: &mut [u8], at: usize, stream: u32, limited: bool) {
    complete(to, at, [DATA, u8::from(limited) * LIMITED], stream);
}

fn complete(to: &mut [u8], at: usize, [kind, flags]: [u8; 2], stream: u32) {
    let length = to.len() - at - HEADER_LEN;
    assert!(length <= PAYLOAD_MAX && (kind != DATA || length > 0), "a frame of {length} bytes");
    let length = length as u16; // at most PAYLOAD_MAX
    to[at..at + 2].copy_from_slice(&[kind, flags]);
    to[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
    to[at + 4..at + HEADER_LEN].copy_from_slice(&stream.to_be_bytes());
}

fn with(to: &mut Vec<u8>, number: u32, kind: u8) -> u8 {
    to.extend(number.to_be_bytes());
    kind
}

/// Checks a header before its payload is there, so that a length cannot make the receiver wait.
fn check(kind: u8, flags: u8, length: u16) -> Result<(), Fault> {
    let fits = match kind {
        OPEN => length == 8 + ends_len(4) || length == 8 + ends_len(16),
        OPENED | CREDIT | RETURN | ADVANCE => length == 4,
        DATA => (1..=PAYLOAD_MAX as u16).contains(&length),
        END | RESET | LEAVING => length == 0,
        REFUSED => length == 1,
        PING | PONG => length == 8,
        _ => return Err(Fault::Kind(kind)),
    };
    let known = if kind == DATA { LIMITED } else { 0 };
    if flags & !known != 0 {
        return Err(Fault::Flags { kind, flags });
    }
    if fits { Ok(()) } else { Err(Fault::Length { kind, length }) }
}

/// Length of two ends; `address` is that of each IP address.
const fn ends_len(address: u16) -> u16 {
    1 + 2 * (address + 2)
}

fn read_ends(fields: &mut Reader<'_>, kind: u8, length: u16) -> Result<Ends, Fault> {
    let wrong_length = |_: ReadError| Fault::Length { kind, length };
    let version = fields.u8().map_err(wrong_length)?;
    let mut end = || -> Result<SocketAddr, Fault> {
        let ip = match version {
            4 => IpAddr::from(fields.array::<4>().map_err(wrong_length)?),
            6 => IpAddr::from(fields.array::<16>().map_err(wrong_length)?),
            other => return Err(Fault::Version(other)),
        };
        Ok(SocketAddr::new(ip, fields.u16().map_err(wrong_length)?))
    };
    Ok(Ends { client: end()?, server: end()? })
}

fn write_ends(ends: &Ends, to: &mut Vec<u8>) {
    let Ends { client, server } = ends;
    assert_eq!(client.is_ipv4(), server.is_ipv4(), "a connection has one version of IP");
    to.push(if client.is_ipv4() { 4 } else { 6 });
    for end in [client, server] {
        match end.ip() {
            IpAddr::V4(ip) => to.extend(ip.octets()),
            IpAddr::V6(ip) => to.extend(ip.octets()),
        }
        to.extend(end.port().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame<'static>> {
        let v4 = Ends { client: "10.81.1.2:40000".parse().unwrap(), server: "10.81.2.2:80".parse().unwrap() };
        let v6 = Ends { client: "[fd81::2]:40000".parse().unwrap(), server: "[fd82::2]:80".parse().unwrap() };
        let bodies = [
            Body::Open { credit: 7, advance: 8, ends: v4 },
            Body::Open { credit: u32::MAX, advance: 0, ends: v6 },
            Body::Opened { credit: 9 },
            Body::Data { limited: false, bytes: b"a" },
            Body::Data { limited: true, bytes: &[7; PAYLOAD_MAX] },
            Body::Credit(1),
            Body::Return(2),
            Body::End,
            Body::Reset,
            Body::Refused(Refusal::Unreachable),
            Body::Ping(3),
            Body::Pong(u64::MAX),
            Body::Leaving,
            Body::Advance(4),
        ];
        bodies.into_iter().enumerate().map(|(n, body)| Frame { stream: n as u32, body }).collect()
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        for frame in frames() {
            frame.write(&mut bytes);
        }
        let mut rest = &bytes[..];
        for frame in frames() {
            let (read, length) = Frame::parse(rest).unwrap().unwrap();
            assert_eq!(read, frame);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_frame_cut_short_is_incomplete_and_no_fault() {
        for frame in frames() {
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            for length in (0..bytes.len()).step_by(if bytes.len() > 100 { 997 } else { 1 }) {
                assert_eq!(Frame::parse(&bytes[..length]), Ok(None), "{frame:?} {length}");
            }
        }
    }

    #[test]
    fn wrong_headers_are_faults_before_the_payload_is_there() {
        let header = |kind: u8, flags: u8, length: u16| {
            let [high, low] = length.to_be_bytes();
            [kind, flags, high, low, 0, 0, 0, 1]
        };
        for (bytes, fault) in [
            (header(0, 0, 0), Fault::Kind(0)),
            (header(13, 0, 0), Fault::Kind(13)),
            (header(DATA, 0, 0), Fault::Length { kind: DATA, length: 0 }),
            (header(DATA, 0, 16_385), Fault::Length { kind: DATA, length: 16_385 }),
            (header(DATA, 2, 1), Fault::Flags { kind: DATA, flags: 2 }),
            (header(END, 1, 0), Fault::Flags { kind: END, flags: 1 }),
            (header(LEAVING, 0, 1), Fault::Length { kind: LEAVING, length: 1 }),
            (header(OPEN, 0, 22), Fault::Length { kind: OPEN, length: 22 }),
            (header(ADVANCE, 0, 8), Fault::Length { kind: ADVANCE, length: 8 }),
        ] {
            assert_eq!(Frame::parse(&bytes), Err(fault));
        }
        // The version says 4, the length 6.
        let mut open = Vec::new();
        frames()[1].write(&mut open);
        open[HEADER_LEN + 8] = 4;
        assert_eq!(Frame::parse(&open), Err(Fault::Length { kind: OPEN, length: 45 }));
        open[HEADER_LEN + 8] = 5;
        assert_eq!(Frame::parse(&open), Err(Fault::Version(5)));
        let mut refused = header(REFUSED, 0, 1).to_vec();
        refused.push(9);
        assert_eq!(Frame::parse(&refused), Err(Fault::Reason(9)));
    }
}
