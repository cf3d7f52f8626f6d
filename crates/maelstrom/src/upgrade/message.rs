//! Messages between two processes of a gateway while one takes over from the other: a JSON document in
//! each line. Versions of the program understand each other as long as [`VERSION`] is the same.

use std::net::SocketAddr;

use ipnet::IpNet;
use maelstrom_core::{PeerHandover, TOKEN_LEN, Token};
use serde::{Deserialize, Serialize};

/// Version of these messages.
pub(crate) const VERSION: u32 = 1;

/// A message, in the order in which they are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Message {
    /// The next process has everything that it needs, for this configuration.
    Ready { version: u32, listen: SocketAddr, wan: String },
    /// The next process cannot take over.
    Failed { reason: String },
    /// The sessions of this process, in which the next one watches the packets that arrive.
    Sessions { peers: Vec<Session> },
    /// The next process watches.
    Watching,
    /// This process has sent its last datagram. The repair socket comes with this message.
    Over {
        /// Time after which packets that leave are those of the next process, on the monotonic clock.
        cut_us: u64,
        peers: Vec<Session>,
    },
    /// The next process works, and has done so from this time after the cut on.
    Taken { after_us: u64, sessions: usize },
    /// The next process is the main one from here on.
    Main,
}

/// A session: [`PeerHandover`], whose bytes are written as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    networks: Vec<IpNet>,
    is_tunnel: bool,
    address: SocketAddr,
    first: [String; 2],
    tokens: [String; 2],
    next: Option<String>,
    past: Vec<String>,
    seals: (u32, u64),
    opens: Vec<(u32, u64)>,
    shown: Vec<(u32, u8)>,
    watched: Vec<IpNet>,
    position: u64,
    report: String,
    counts: [u64; 2],
}

impl From<PeerHandover> for Session {
    fn from(left: PeerHandover) -> Self {
        let token = |token: &Token| hex(&token.0);
        Self {
            first: left.first.each_ref().map(token),
            tokens: left.tokens.each_ref().map(token),
            next: left.next.as_ref().map(token),
            past: left.past.iter().map(token).collect(),
            report: hex(&left.report),
            networks: left.networks,
            is_tunnel: left.is_tunnel,
            address: left.address,
            seals: left.seals,
            opens: left.opens,
            shown: left.shown,
            watched: left.watched,
            position: left.position,
            counts: left.counts,
        }
    }
}

impl Session {
    /// Returns what the core takes; `None` if a token or the report is not made of hexadecimal digits.
    pub(crate) fn read(self) -> Option<PeerHandover> {
        let [first, first_far] = self.first.each_ref().map(|text| token(text));
        let [own, far] = self.tokens.each_ref().map(|text| token(text));
        Some(PeerHandover {
            first: [first?, first_far?],
            tokens: [own?, far?],
            next: match &self.next {
                Some(text) => Some(token(text)?),
                None => None,
            },
            past: self.past.iter().map(|text| token(text)).collect::<Option<_>>()?,
            report: bytes(&self.report)?,
            networks: self.networks,
            is_tunnel: self.is_tunnel,
            address: self.address,
            seals: self.seals,
            opens: self.opens,
            shown: self.shown,
            watched: self.watched,
            position: self.position,
            counts: self.counts,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

fn token(text: &str) -> Option<Token> {
    let bytes: [u8; TOKEN_LEN] = bytes(text)?.try_into().ok()?;
    Some(Token(bytes))
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
            first: [Token([1; 16]), Token([0xfe; 16])],
            tokens: [Token([3; 16]), Token([4; 16])],
            next: Some(Token([5; 16])),
            past: vec![Token([6; 16])],
            seals: (7, u64::MAX),
            opens: vec![(8, 9)],
            shown: vec![(10, 2)],
            watched: vec!["fd00::/48".parse().unwrap()],
            position: 1 << 60,
            report: vec![0, 127, 255],
            counts: [11, 12],
        };
        let message = Message::Over { cut_us: 5, peers: vec![left.clone().into()] };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message);
        let session = Session::from(left.clone());
        assert_eq!(session.clone().read(), Some(left));
        for wrong in ["", "0", "zz", "+1", "é", &"00".repeat(15), &"00".repeat(17)] {
            let tokens = [wrong.to_owned(), session.tokens[1].clone()];
            assert_eq!(Session { tokens, ..session.clone() }.read(), None, "{wrong:?}");
        }
    }
}
