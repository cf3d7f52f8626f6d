//! The rack of a process that leaves it to the one that takes its place (docs/adr/0039).
//!
//! The next process goes on with the token and the numbers of this one, so that the other members notice
//! nothing. It hears within a heartbeat what they say of the parts. Meanwhile it keeps the parts that it got,
//! and takes none, because it does not count them as present.

use ipnet::IpNet;

use super::member::Other;
use super::{Rack, RackConfig, parts};
use crate::entropy::Entropy;
use crate::key::Token;

/// Heartbeats that another process may have sent with this one's token, as an upper bound.
const SENT_MAX: u64 = 1 << 32;

/// State of a rack that one process leaves to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackHandover {
    /// Token of this gateway.
    pub token: Token,
    /// Number of its latest heartbeat.
    pub number: u64,
    /// The other members, in the order of the configuration; this gateway's own entry is empty.
    pub others: Vec<OtherHandover>,
    /// Names of the parts that it holds.
    pub parts: Vec<String>,
}

/// Another member, as far as replayed heartbeats of it must be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherHandover {
    /// Its token, if it has been heard.
    pub token: Option<Token>,
    /// Number of its latest heartbeat.
    pub number: u64,
    /// Earlier tokens of it.
    pub past: Vec<Token>,
}

impl RackConfig {
    /// Returns a number that configurations of one gateway share if its rack is the same in them: its name,
    /// the members, and the parts.
    pub fn mark(&self) -> u64 {
        parts::number_of(&[&super::id_of(self).to_string(), &self.members[self.own].name])
    }
}

impl Rack {
    /// Prepares for another process, which takes over from this one: the parts stay as they are from here on.
    /// Returns the networks of those that this gateway holds.
    pub fn begin_handover(&mut self) -> Vec<IpNet> {
        self.is_leaving = true;
        self.held()
    }

    /// Returns the state for [`Rack::resume`]. This process sends no heartbeats after it.
    pub fn hand_over(&self) -> RackHandover {
        let parts = self.config.parts.iter().enumerate().filter(|(part, _)| self.holds.get(*part));
        RackHandover {
            token: self.token,
            number: self.number,
            others: self.others.iter().map(Other::describe).collect(),
            parts: parts.map(|(_, part)| part.name.clone()).collect(),
        }
    }

    /// Goes on in this process, because the other one has failed. It may have sent heartbeats.
    pub fn take_back(&mut self) {
        self.is_leaving = false;
        self.number += SENT_MAX;
    }

    /// Continues as the member that another process has been, with a configuration that has the same mark.
    ///
    /// # Panics
    /// As [`Rack::new`].
    pub fn resume(now_us: u64, config: RackConfig, entropy: impl Into<Entropy>, left: &RackHandover) -> Self {
        let mut rack = Self::new(now_us, config, entropy);
        if left.token != Token::UNKNOWN {
            (rack.token, rack.number) = (left.token, left.number);
        }
        for (other, left) in rack.others.iter_mut().zip(&left.others) {
            *other = Other::resume(left);
        }
        for part in 0..rack.config.parts.len() {
            if left.parts.contains(&rack.config.parts[part].name) {
                rack.holds.set(part, true);
            }
        }
        rack
    }
}
