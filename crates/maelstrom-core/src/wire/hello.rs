//! The Hello: the sender's token, the token it has heard, the token that its own follows, the public half of
//! the ephemeral key, and the source networks it watches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foundation::bytes::{Reader, Writer};
use ipnet::IpNet;

use super::header::{HELLO_HEADER, TAG};
use crate::counters::Rejected;
use crate::exchange::{PUBLIC_LEN, Public};
use crate::key::{TOKEN_LEN, Token};

/// Maximum number of networks of one peer, at which a Hello fits the smallest IPv6 MTU.
pub const NETWORKS_MAX: usize = 60;

const NETWORK_LEN: usize = 18;

/// Flags of a Hello.
const RESTARTS: u8 = 1;
const TUNNEL: u8 = 2;

/// Length of a Hello without networks in bytes.
const FIXED_LEN: usize = 3 * TOKEN_LEN + PUBLIC_LEN + 2;

/// Length of the longest datagram with a Hello in bytes, without IP and UDP headers.
pub const HELLO_MAX: usize = HELLO_HEADER + FIXED_LEN + NETWORKS_MAX * NETWORK_LEN + TAG;

/// The body of a Hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender's token.
    pub token: Token,
    /// The receiver's token as the sender knows it, or [`Token::UNKNOWN`].
    pub echo: Token,
    /// The token that the sender used in the present session, if it renews that session, or
    /// [`Token::UNKNOWN`].
    pub previous: Token,
    /// The public half of the ephemeral key that the sender has drawn with its token.
    pub public: Public,
    /// Whether the receiver starts a new stream with the renewed session, because the sender has not watched
    /// for a while.
    pub restarts: bool,
    /// Whether packets travel between the two inside datagrams (a tunnel), as far as the sender's
    /// configuration states.
    pub is_tunnel: bool,
    /// Source networks whose arrivals the sender watches. Only packets from these are worth protecting
    /// towards it, because it cannot tell which others arrived.
    pub watched: Vec<IpNet>,
}

impl Hello {
    /// Length on the wire in bytes.
    pub fn wire_len(&self) -> usize {
        FIXED_LEN + self.watched.len() * NETWORK_LEN
    }

    /// Writes the body into `to`, which is [`Hello::wire_len`] bytes.
    pub fn write(&self, to: &mut [u8]) {
        assert!(self.watched.len() <= NETWORKS_MAX, "the configuration bounds a peer's networks");
        let mut writer = Writer::new(to);
        writer.put(&self.token.0);
        writer.put(&self.echo.0);
        writer.put(&self.previous.0);
        writer.put(self.public.as_bytes());
        let flags = u8::from(self.restarts) * RESTARTS + u8::from(self.is_tunnel) * TUNNEL;
        writer.put(&[flags, self.watched.len() as u8]);
        for network in &self.watched {
            let (family, address) = match network.network() {
                IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
                IpAddr::V6(v6) => (6, v6),
            };
            writer.put(&[family, network.prefix_len()]);
            writer.put(&address.octets());
        }
    }

    /// Reads an authenticated body.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] for wrong lengths, families or prefixes, and as [`Public::read`].
    pub fn read(body: &[u8]) -> Result<Self, Rejected> {
        let mut reader = Reader(body);
        let token = Token(reader.array()?);
        let echo = Token(reader.array()?);
        let previous = Token(reader.array()?);
        let public = Public::read(reader.array()?)?;
        let flags = reader.u8()?;
        if flags & !(RESTARTS | TUNNEL) != 0 {
            return Err(Rejected::Malformed);
        }
        let (restarts, is_tunnel) = (flags & RESTARTS != 0, flags & TUNNEL != 0);
        let count = usize::from(reader.u8()?);
        if count > NETWORKS_MAX {
            return Err(Rejected::Malformed);
        }
        let watched = (0..count).map(|_| read_network(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        if token == Token::UNKNOWN || !reader.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        Ok(Self { token, echo, previous, public, restarts, is_tunnel, watched })
    }
}

fn read_network(reader: &mut Reader<'_>) -> Result<IpNet, Rejected> {
    let (family, prefix) = (reader.u8()?, reader.u8()?);
    let address = Ipv6Addr::from(reader.array::<16>()?);
    let address = match family {
        4 => IpAddr::V4(address.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        6 => IpAddr::V6(address),
        _ => return Err(Rejected::Malformed),
    };
    IpNet::new(address, prefix).map(|net| net.trunc()).map_err(|_| Rejected::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::EphemeralKey;
    use crate::key::Secret;

    #[test]
    fn survives_the_wire() {
        let watched = ["10.81.2.0/24", "fd00:2::/32", "0.0.0.0/0"].map(|net| net.parse().unwrap()).to_vec();
        let (token, echo, previous) = (Token([7; 16]), Token::UNKNOWN, Token([5; 16]));
        for (restarts, is_tunnel) in [(true, false), (false, true), (true, true), (false, false)] {
            let public = EphemeralKey::new(&Secret::new([6; 32])).public();
            let watched = watched.clone();
            let hello = Hello { token, echo, previous, public, restarts, is_tunnel, watched };
            let mut body = vec![0; hello.wire_len()];
            hello.write(&mut body);
            assert_eq!(Hello::read(&body), Ok(hello));
            for cut in 0..body.len() {
                assert_eq!(Hello::read(&body[..cut]), Err(Rejected::Malformed));
            }
            body[3 * TOKEN_LEN..][..PUBLIC_LEN].fill(0);
            assert_eq!(Hello::read(&body), Err(Rejected::Malformed), "a point of small order");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_reader(body: Vec<u8>) {
            let _ = Hello::read(&body);
        }
    }
}
