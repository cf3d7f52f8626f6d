//! Messages between two processes of a gateway while one takes over from the other: a JSON document in
//! each line. Versions of the program understand each other as long as [`VERSION`] is the same.

use std::net::SocketAddr;

use ipnet::IpNet;
use maelstrom_core::exchange::Public;
use maelstrom_core::rack::{OtherHandover, RackHandover};
use maelstrom_core::{PeerHandover, Secret, Token};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Version of these messages.
pub(crate) const VERSION: u32 = 3;

/// A message, in the order in which they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Message {
    /// The next process has everything that it needs, for this configuration.
    Ready {
        version: u32,
        listen: SocketAddr,
        wan: String,
        /// Mark of the rack ([`maelstrom_core::rack::RackConfig::mark`]).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rack: Option<u64>,
        /// Name of the device of the tunnel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tunnel: Option<String>,
    },
    /// The next process cannot take over.
    Failed { reason: String },
    /// The sessions of this process, in which the next one watches the packets that arrive.
    Sessions {
        peers: Vec<Session>,
        /// Networks that this gateway holds as a member of a rack.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<Vec<IpNet>>,
        /// The record of losses, whose descriptor comes with this message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<RecordHandover>,
    },
    /// The next process watches.
    Watching,
    /// This process has sent its last datagram. The repair socket comes with this message, and behind it the
    /// socket for heartbeats of a rack, and with `tunnel` the device of the tunnel.
    Over {
        /// Time after which packets that leave are those of the next process, on the monotonic clock.
        cut_us: u64,
        peers: Vec<Session>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rack: Option<Rack>,
        #[serde(default)]
        tunnel: bool,
    },
    /// The next process works, and has done so from this time after the cut on.
    Taken { after_us: u64, sessions: usize },
    /// The next process is the main one from here on.
    Main,
}

/// The record of losses of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordHandover {
    /// The file that has it too.
    #[serde(default)]
    pub(crate) file: Option<String>,
}

/// Digits of a secret, wiped when dropped.
type Digits = Zeroizing<String>;

/// A session: [`PeerHandover`], whose bytes are written as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    networks: Vec<IpNet>,
    is_tunnel: bool,
    address: SocketAddr,
    names: Digits,
    tokens: [String; 2],
    ephemeral: Digits,
    far_public: String,
    next: Option<(String, Digits)>,
    past: Vec<String>,
    seals: (u32, u64),
    opens: Vec<(u32, u64)>,
    shown: Vec<(u32, u8)>,
    /// Absent if all networks are listed.
    #[serde(default)]
    listed: Option<Vec<IpNet>>,
    watched: Vec<IpNet>,
    position: u64,
    report: String,
    #[serde(default)]
    link: Vec<u64>,
    #[serde(default)]
    lengths: (usize, Option<usize>),
    /// Positions and digits of packets.
    #[serde(default)]
    arrived: Vec<(u64, Digits)>,
    counts: [u64; 2],
}

/// A rack: [`RackHandover`], with tokens as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rack {
    token: String,
    number: u64,
    others: Vec<Other>,
    parts: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Other {
    token: Option<String>,
    number: u64,
    past: Vec<String>,
}

impl From<RackHandover> for Rack {
    fn from(left: RackHandover) -> Self {
        let other = |other: OtherHandover| Other {
            token: other.token.map(|token| hex(&token.0)),
            number: other.number,
            past: other.past.iter().map(|token| hex(&token.0)).collect(),
        };
        Self {
            token: hex(&left.token.0),
            number: left.number,
            others: left.others.into_iter().map(other).collect(),
            parts: left.parts,
        }
    }
}

impl Rack {
    /// Returns what the core takes; `None` if a token is not made of hexadecimal digits.
    pub(crate) fn read(self) -> Option<RackHandover> {
        let other = |other: Other| {
            Some(OtherHandover {
                token: match &other.token {
                    Some(text) => Some(token(text)?),
                    None => None,
                },
                number: other.number,
                past: other.past.iter().map(|text| token(text)).collect::<Option<_>>()?,
            })
        };
        Some(RackHandover {
            token: token(&self.token)?,
            number: self.number,
            others: self.others.into_iter().map(other).collect::<Option<_>>()?,
            parts: self.parts,
        })
    }
}

impl From<PeerHandover> for Session {
    fn from(left: PeerHandover) -> Self {
        let token = |token: &Token| hex(&token.0);
        let secret = |secret: &Secret| Zeroizing::new(hex(secret.as_bytes()));
        Self {
            names: secret(&left.names),
            tokens: left.tokens.each_ref().map(token),
            ephemeral: secret(&left.ephemeral),
            far_public: hex(left.far_public.as_bytes()),
            next: left.next.as_ref().map(|(next, ephemeral)| (token(next), secret(ephemeral))),
            past: left.past.iter().map(token).collect(),
            report: hex(&left.report),
            networks: left.networks,
            is_tunnel: left.is_tunnel,
            address: left.address,
            seals: left.seals,
            opens: left.opens,
            shown: left.shown,
            listed: Some(left.listed),
            watched: left.watched,
            position: left.position,
            link: left.link,
            lengths: left.lengths,
            arrived: left.arrived.iter().map(|(at, packet)| (*at, Zeroizing::new(hex(packet)))).collect(),
            counts: left.counts,
        }
    }
}

impl Session {
    /// Returns what the core takes; `None` if a token, a key or the report is not made of hexadecimal digits.
    pub(crate) fn read(self) -> Option<PeerHandover> {
        let [own, far] = self.tokens.each_ref().map(|text| token(text));
        Some(PeerHandover {
            names: secret(&self.names)?,
            tokens: [own?, far?],
            ephemeral: secret(&self.ephemeral)?,
            far_public: Public::read(array(&self.far_public)?).ok()?,
            next: match &self.next {
                Some((next, ephemeral)) => Some((token(next)?, secret(ephemeral)?)),
                None => None,
            },
            past: self.past.iter().map(|text| token(text)).collect::<Option<_>>()?,
            report: bytes(&self.report)?,
            listed: self.listed.unwrap_or_else(|| self.networks.clone()),
            networks: self.networks,
            is_tunnel: self.is_tunnel,
            address: self.address,
            seals: self.seals,
            opens: self.opens,
            shown: self.shown,
            watched: self.watched,
            position: self.position,
            link: self.link,
            lengths: self.lengths,
            arrived: self
                .arrived
                .iter()
                .map(|(at, text)| Some((*at, bytes(text)?)))
                .collect::<Option<_>>()?,
            counts: self.counts,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    // A longer text would be copied, and its first part would not be wiped.
    let mut text = String::with_capacity(2 * bytes.len());
    for half in bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]) {
        text.extend(char::from_digit(half.into(), 16));
    }
    text
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

fn byte(pair: &[u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    Some((high? << 4 | low?) as u8)
}

fn array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut array = [0; N];
    for (to, pair) in array.iter_mut().zip(pairs) {
        *to = byte(pair)?;
    }
    Some(array)
}

fn token(text: &str) -> Option<Token> {
    array(text).map(Token)
}

fn secret(text: &str) -> Option<Secret> {
    let bytes = Zeroizing::new(array(text)?);
    Some(Secret::new(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_was_written_and_nothing_else_is_one() {
        let left = PeerHandover {
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            is_tunnel: false,
            address: "10.81.9.2:4700".parse().unwrap(),
            names: Secret::new([0xfe; 32]),
            tokens: [Token([3; 16]), Token([4; 16])],
            ephemeral: Secret::new([1; 32]),
            far_public: Public::read([2; 32]).unwrap(),
            next: Some((Token([5; 16]), Secret::new([7; 32]))),
            past: vec![Token([6; 16])],
            seals: (7, u64::MAX),
            opens: vec![(8, 9)],
            shown: vec![(10, 2)],
            listed: vec!["10.81.2.0/25".parse().unwrap()],
            watched: vec!["fd00::/48".parse().unwrap()],
            position: 1 << 60,
            report: vec![0, 127, 255],
            link: vec![1, u64::MAX],
            lengths: (1_372, Some(1_374)),
            arrived: vec![(7, vec![0x45, 0, 255])],
            counts: [11, 12],
        };
        let other =
            OtherHandover { token: Some(Token([8; 16])), number: u64::MAX, past: vec![Token([9; 16])] };
        let rack = RackHandover {
            token: Token([7; 16]),
            number: 1 << 60,
            others: vec![other, OtherHandover::default()],
            parts: vec!["east-1".to_owned()],
        };
        assert_eq!(Rack::from(rack.clone()).read(), Some(rack.clone()));
        let (peers, rack) = (vec![left.clone().into()], Some(rack.into()));
        let message = Message::Over { cut_us: 5, peers, rack, tunnel: true };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
        // A version that knew of no racks said nothing of them.
        let earlier = text.replace("\"listed\":[\"10.81.2.0/25\"],", "");
        let earlier = &earlier[..earlier.find(",\"rack\"").unwrap()];
        let Message::Over { peers, rack: None, .. } = serde_json::from_str(&format!("{earlier}}}")).unwrap()
        else {
            panic!("expected the message without a rack")
        };
        assert_eq!(peers[0].clone().read().unwrap().listed, left.networks);
        // Nor did it say anything of the record, and it reads what is said of it as if it were not there.
        let earlier = "{\"step\":\"sessions\",\"peers\":[]}";
        let without = Message::Sessions { peers: Vec::new(), held: None, record: None };
        assert_eq!(serde_json::from_str::<Message>(earlier).unwrap(), without);
        assert_eq!(serde_json::to_string(&without).unwrap(), earlier);
        let later = "{\"step\":\"sessions\",\"peers\":[],\"of_a_later_version\":{}}";
        assert_eq!(serde_json::from_str::<Message>(later).unwrap(), without);
        let session = Session::from(left.clone());
        assert_eq!(session.clone().read(), Some(left));
        for wrong in ["", "0", "zz", "+1", "é", &"00".repeat(15), &"00".repeat(17)] {
            let tokens = [wrong.to_owned(), session.tokens[1].clone()];
            assert_eq!(Session { tokens, ..session.clone() }.read(), None, "{wrong:?}");
            let ephemeral = Zeroizing::new(wrong.to_owned());
            assert_eq!(Session { ephemeral, ..session.clone() }.read(), None, "{wrong:?}");
        }
        // A point of small order.
        assert_eq!(Session { far_public: "00".repeat(32), ..session }.read(), None);
    }
}
