//! The state of the repair channel with one peer: whether datagrams arrive, in both directions.

use std::fmt;
use std::net::SocketAddr;

use crate::counters::Rejected;
use crate::rtt::RoundTrip;
use crate::wire::{Echo, KeyPart, LossReport, Report, SendTime, VERSION};

/// Silence after which a peer counts as down; traffic towards it is not protected.
pub(crate) const SILENCE_US: u64 = 2_000_000;
/// Time for which a channel may be in trouble before it is told.
const GRACE_US: u64 = 500_000;
/// Time for which a refused datagram is evidence.
const EVIDENCE_US: u64 = 5_000_000;
/// Time for which Hellos under one of two keys of the peer may fail before any Hello of it has opened.
const UNMATCHED_US: u64 = 1_000_000;

/// A reason why a repair channel does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No datagram of the peer arrives.
    Silent,
    /// The address of the peer is not known.
    NoAddress,
    /// Datagrams arrive that were sealed with another key.
    WrongKey,
    /// The peer calls from an address that nothing states, and has not called.
    Uncalled,
    /// Datagrams of the peer arrive from an address that is not configured.
    OtherAddress(SocketAddr),
    /// Datagrams of the peer arrive from an address that cannot be its own.
    UnusableAddress(SocketAddr),
    /// The peer speaks this version of the repair channel, which is another one.
    OtherVersion(u8),
    /// The peer's configuration states another mode for this pair.
    OtherMode,
    /// Datagrams of the peer arrive, but it receives none of ours.
    Unheard,
}

impl Trouble {
    /// Returns its name: stable, in snake case.
    pub fn id(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::NoAddress => "no_address",
            Self::WrongKey => "wrong_key",
            Self::Uncalled => "uncalled",
            Self::OtherAddress(_) => "other_address",
            Self::UnusableAddress(_) => "unusable_address",
            Self::OtherVersion(_) => "other_version",
            Self::OtherMode => "other_mode",
            Self::Unheard => "unheard",
        }
    }

    /// Returns what an operator can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Silent => {
                "check that the peer runs, that its file names this gateway, and that firewalls on the way pass UDP \
                 to `listen`"
            }
            Self::WrongKey => {
                "compare `key_file` and `next_key_file` of both gateways, and copy the key file that is in use to the one \
                 without it"
            }
            Self::OtherAddress(_) => {
                "exempt the repair channel from NAT, or set `address` to the address that arrives here, or to `any` \
                 if that may change"
            }
            Self::Uncalled => {
                "check that the peer runs, that its file has the address of this gateway and the same key, and that \
                 firewalls on the way pass UDP to `listen`; only one of two gateways may have `address = \"any\"`"
            }
            Self::UnusableAddress(_) => {
                "list smaller networks that do not contain the address, or give the peer an address outside of them; \
                 it must not be that of this gateway either"
            }
            Self::OtherMode => "set the same `mode` for this pair in both files: `passive` or `tunnel`",
            Self::OtherVersion(_) => {
                "run the same version of undrop at both ends: upgrade the one with the lower version of the repair channel"
            }
            Self::NoAddress => {
                "check the name in `address`, and that this machine finds it, for example with `getent hosts NAME`"
            }
            Self::Unheard => {
                "check firewalls and NAT on the way from `listen` to the peer's address, and the peer's file"
            }
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no datagram of the peer arrives"),
            Self::WrongKey => f.write_str("the peer's datagrams fail authentication: its key differs"),
            Self::OtherAddress(from) => {
                write!(f, "the peer's datagrams arrive from {from}, not from its address")
            }
            Self::Uncalled => f.write_str("the peer has not called, and only its call shows its address"),
            Self::UnusableAddress(from) => {
                write!(
                    f,
                    "the peer's datagrams arrive from {from}, which is in a protected network or is ours"
                )
            }
            Self::NoAddress => f.write_str("the address of the peer is not known"),
            Self::OtherMode => f.write_str("the peer's file states another mode for this pair"),
            Self::OtherVersion(theirs) => write!(
                f,
                "the peer speaks version {theirs} of the repair channel, and this gateway version {VERSION}"
            ),
            Self::Unheard => f.write_str("the peer receives no datagram of ours"),
        }
    }
}

/// Knowledge of one repair channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// Time of the last tick.
    now_us: u64,
    /// Time of the last sealed datagram of any session, or the end of a time in which this gateway stood
    /// still and heard nothing.
    heard_us: Option<u64>,
    /// Whether this gateway has heard nothing since it stood still.
    is_excused: bool,
    /// The same for Hellos.
    hello_us: Option<u64>,
    /// Whether a sealed datagram of the present session was opened.
    is_heard: bool,
    /// The peer's last report of the present session.
    far: Option<Report>,
    /// Time since which the channel has not worked in both directions.
    broken_since_us: Option<u64>,
    wrong_key_us: Option<u64>,
    /// Time since which Hellos under one of two keys of the peer have failed, and none has opened.
    unmatched_us: Option<u64>,
    /// Time and version of the latest datagram of another version.
    other_version: Option<(u64, u8)>,
    other_mode_us: Option<u64>,
    other_address: Option<(u64, SocketAddr)>,
    unusable_address: Option<(u64, SocketAddr)>,
    /// Longest sealed datagram since the last report, and in the interval before it.
    longest: [u16; 2],
    /// Time of sending of the latest sealed datagram of this session, on the peer's clock, and its arrival on
    /// ours.
    latest: Option<(SendTime, u64)>,
    round_trip: RoundTrip,
    /// Number of Hellos from the peer's address that were sealed with another key.
    pub(crate) wrong_key: u64,
}

impl Channel {
    pub(crate) fn new() -> Self {
        Self {
            now_us: 0,
            heard_us: None,
            is_excused: false,
            hello_us: None,
            is_heard: false,
            far: None,
            broken_since_us: None,
            wrong_key_us: None,
            unmatched_us: None,
            other_version: None,
            other_mode_us: None,
            other_address: None,
            unusable_address: None,
            longest: [0; 2],
            latest: None,
            round_trip: RoundTrip::default(),
            wrong_key: 0,
        }
    }

    /// Forgets the previous session.
    pub(crate) fn restart(&mut self) {
        (self.is_heard, self.far, self.longest, self.latest) = (false, None, [0; 2], None);
    }

    /// Continues a session of another process, which has heard the peer up to this report and this time.
    pub(crate) fn resume(&mut self, now_us: u64, report: Report) {
        (self.heard_us, self.is_heard, self.far) = (Some(now_us), true, Some(report));
    }

    /// Notes a sealed datagram of `len` bytes; returns whether it is the first of this session.
    pub(crate) fn on_sealed(&mut self, now_us: u64, sent: SendTime, len: usize) -> bool {
        (self.heard_us, self.is_excused) = (Some(now_us), false);
        self.latest = Some((sent, now_us));
        self.longest[0] = self.longest[0].max(u16::try_from(len).unwrap_or(u16::MAX));
        !std::mem::replace(&mut self.is_heard, true)
    }

    /// Notes that the peer has renewed the session. If it `restarts` its streams, its counts begin again.
    pub(crate) fn on_followed(&mut self, now_us: u64, restarts: bool) {
        (self.heard_us, self.is_heard, self.is_excused) = (Some(now_us), true, false);
        if let Some(far) = self.far.as_mut().filter(|_| restarts) {
            far.loss = LossReport::NONE;
        }
    }

    /// Notes that nothing was heard because this gateway stood still.
    pub(crate) fn on_own_silence(&mut self, now_us: u64) {
        self.is_excused |= self.heard_us.is_some();
        self.heard_us = self.heard_us.map(|_| now_us);
    }

    /// Takes the peer's report.
    pub(crate) fn on_report(&mut self, now_us: u64, report: Report) {
        if let Some(Echo { sent, held_us }) = report.echo {
            self.round_trip.on_echo(now_us, sent.until_us(now_us), u64::from(held_us));
        }
        self.far = Some(report);
    }

    /// The round-trip time without queues: the shortest of the last minute or two.
    pub(crate) fn rtt_us(&self) -> Option<u64> {
        self.round_trip.shortest_us()
    }

    /// Returns the echo for our next report.
    pub(crate) fn echo(&self, now_us: u64) -> Option<Echo> {
        let (sent, arrived_us) = self.latest?;
        let held_us = u32::try_from(now_us.saturating_sub(arrived_us)).unwrap_or(u32::MAX);
        Some(Echo { sent, held_us })
    }

    /// Notes a Hello of the peer that was authentic, or why it was not.
    pub(crate) fn on_hello(&mut self, now_us: u64, result: Result<(), Rejected>) {
        match result {
            Err(Rejected::Forged) => {
                self.wrong_key_us = Some(now_us);
                self.wrong_key += 1;
            }
            Err(Rejected::OtherMode) => self.other_mode_us = Some(now_us),
            Err(Rejected::Replayed | Rejected::Malformed | Rejected::OtherKey) => {}
            _ => (self.hello_us, self.unmatched_us) = (Some(now_us), None),
        }
    }

    /// Whether a Hello that does not open is no evidence of a wrong key: its sender has two keys, and says
    /// Hello under the other one too.
    pub(crate) fn excuses(&mut self, now_us: u64, part: KeyPart) -> bool {
        if part == KeyPart::Only {
            return false;
        }
        let lately = |at_us: Option<u64>| at_us.is_some_and(|at_us| now_us <= at_us + EVIDENCE_US);
        lately(self.hello_us)
            || lately(self.heard_us)
            || now_us <= *self.unmatched_us.get_or_insert(now_us) + UNMATCHED_US
    }

    /// Notes a datagram of another version from the peer's address.
    pub(crate) fn on_other_version(&mut self, now_us: u64, version: u8) {
        self.other_version = Some((now_us, version));
    }

    /// Notes an authentic Hello of the peer from another address.
    pub(crate) fn on_other_address(&mut self, now_us: u64, from: SocketAddr) {
        self.other_address = Some((now_us, from));
    }

    /// Notes an authentic Hello of the peer from an address that cannot be its own.
    pub(crate) fn on_unusable_address(&mut self, now_us: u64, from: SocketAddr) {
        self.unusable_address = Some((now_us, from));
    }

    /// Whether datagrams arrive in both directions.
    pub(crate) fn works(&self, now_us: u64) -> bool {
        self.is_heard
            && self.heard_us.is_some_and(|at_us| now_us <= at_us + SILENCE_US)
            && self.is_heard_there()
    }

    /// Whether the peer reports that it hears us.
    fn is_heard_there(&self) -> bool {
        let silence_ms = self.far.and_then(|far| far.silence_ms);
        silence_ms.is_some_and(|ms| u64::from(ms) * 1_000 <= SILENCE_US)
    }

    /// Notes whether the channel works. Must be called regularly.
    pub(crate) fn on_tick(&mut self, now_us: u64, works: bool) {
        self.now_us = now_us;
        self.broken_since_us = if works { None } else { self.broken_since_us.or(Some(now_us)) };
    }

    /// Why the channel does not work, once it has not worked for a moment.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let since_us = self.broken_since_us?;
        let within = |at_us: Option<u64>, us: u64| at_us.is_some_and(|at_us| self.now_us <= at_us + us);
        if self.now_us < since_us + GRACE_US {
            return None;
        }
        if within(self.other_mode_us, EVIDENCE_US) {
            return Some(Trouble::OtherMode);
        }
        // Silence that is excused is no datagram.
        let heard_us = self.heard_us.filter(|_| !self.is_excused);
        if within(heard_us, SILENCE_US) || within(self.hello_us, SILENCE_US) {
            return Some(Trouble::Unheard);
        }
        if within(self.wrong_key_us, EVIDENCE_US) {
            return Some(Trouble::WrongKey);
        }
        let lately =
            |noted: Option<(u64, SocketAddr)>| noted.filter(|(at_us, _)| within(Some(*at_us), EVIDENCE_US));
        if let Some((_, from)) = lately(self.unusable_address) {
            return Some(Trouble::UnusableAddress(from));
        }
        if let Some((_, from)) = lately(self.other_address) {
            return Some(Trouble::OtherAddress(from));
        }
        if let Some((_, version)) = self.other_version.filter(|(at_us, _)| within(Some(*at_us), EVIDENCE_US))
        {
            return Some(Trouble::OtherVersion(version));
        }
        Some(Trouble::Silent)
    }

    pub(crate) fn heard_us(&self) -> Option<u64> {
        self.heard_us
    }

    /// The peer's last report of this session.
    pub(crate) fn far(&self) -> Option<&Report> {
        self.far.as_ref()
    }

    /// Returns what our next report states: the silence of the peer in milliseconds, and the longest
    /// datagram. A regular report ends an interval.
    pub(crate) fn state(&mut self, now_us: u64, is_regular: bool) -> (Option<u32>, u16) {
        let silence =
            self.heard_us.filter(|_| self.is_heard).map(|at_us| now_us.saturating_sub(at_us) / 1_000);
        let longest = self.longest[0].max(self.longest[1]);
        if is_regular {
            self.longest = [0, self.longest[0]];
        }
        (silence.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)), longest)
    }
}
