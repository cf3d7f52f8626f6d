//! The Maelstrom gateway as a pure state machine: no socket, no clock, no thread.
//!
//! [`Gateway`] is the only entry point. A driver passes in the packets that a tap saw leave and arrive, the
//! datagrams of the repair channel, and the time. The gateway returns repairs to send and recovered packets
//! to inject (Maelstrom §4).
//!
//! | direction | path |
//! |---|---|
//! | egress, LAN to WAN | [`packet`] → [`identity`] → `egress` → `coder` ([`fec`]) → [`wire`] → [`session`] →
//! [`outbox`] | | ingress, WAN to LAN | [`packet`] → [`identity`] → `arrivals` | | repairs | [`session`] →
//! [`wire`] → `ingress` (decoder of [`fec`]) → [`symbol`] (verified) → [`outbox`] |
#![forbid(unsafe_code)]

pub mod afford;
mod answers;
mod arrivals;
pub mod auto;
mod cache;
mod caps;
mod channel;
mod choice;
mod class;
mod coder;
mod config;
pub mod congestion;
pub mod controller;
pub mod counters;
pub mod deadlines;
mod doubt;
mod dscp;
mod ecn;
mod egress;
mod entropy;
pub mod exchange;
mod expected;
mod findings;
mod flow;
pub mod forecast;
mod gateway;
mod greeting;
mod handover;
mod held;
mod hops;
pub mod identity;
mod ingress;
mod kept;
mod key;
mod keys;
mod ledger;
mod multicast;
pub mod observe;
pub mod outbox;
mod pace;
pub mod packet;
mod path_mtu;
mod paths;
mod peer;
mod peer_status;
mod place;
mod prefixes;
mod quiet;
pub mod rack;
pub mod record;
mod repair_loss;
pub mod replay;
mod resequence;
mod rtt;
mod same_name;
mod schedule;
mod sender;
pub mod session;
pub mod share;
mod sharing;
pub mod split;
pub mod symbol;
mod tcp_time;
pub mod thinning;
mod tunnel;
pub mod wire;

pub use caps::{Cap, Refusal};
pub use channel::Trouble;
pub use class::{CLASS_RATE_MAX, CLASSES_MAX, Class, ClassCounts, Match, Protect};
pub use config::{
    Config, ConfigError, Inbound, IngressConfig, PeerConfig, Requests, Source, TunnelConfig, Whereabouts,
};
pub use dscp::{DSCP_MAX, RepairDscp};
pub use ecn::{Ecn, EcnCounts};
pub use entropy::Entropy;
pub use fec::MEMORY_MAX as SUMS_BYTES_MAX;
pub use fec::{Code, RATE_MAX, RateError, RepairRate, Scheme};
pub use findings::{Finding, Findings};
pub use foundation::Seq;
pub use gateway::Gateway;
pub use handover::PeerHandover;
pub use ingress::{IngressCounts, RequestCounts};
pub use kept::{FlowEnds, Kept, KeptFlow};
pub use key::{PeerKey, Secret, TOKEN_LEN, Token};
pub use keys::KeyState;
pub use multicast::{MulticastConfig, MulticastCounts, SECTIONS_MAX, Wanted, is_of_link, reports};
pub use outbox::Outbox;
pub use paths::{Load, PATHS_MAX, PathConfig, PathLoss, PathSet, PathStatus, PathUse, Traffic};
pub use peer_status::PeerStatus;
pub use prefixes::overlaps;
pub use quiet::SILENCE_US;
pub use resequence::{RESEQUENCE_BYTES_MAX, ResequenceCounts, ResequenceState};
pub use schedule::Schedule;
pub use sender::EgressCounts;
