//! One event: its kind with its facts, as a sentence and with a stable id.

use std::fmt;
use std::net::SocketAddr;

use foundation::reasons;
use ipnet::IpNet;

use crate::channel::Trouble;
use crate::controller::Percent;
use crate::findings::Finding;
use crate::keys::KeyState;

reasons! {
    /// Reason for a pause of recovery toward all peers.
    PauseReason, PauseCounts {
        /// Packets arrived that the tap has not captured.
        Missed = "packets arrived that the tap did not capture",
        /// The WAN interface or the TUN device is missing, down, or without the programs of this process.
        Interface = "an interface is missing or down",
        /// Repairs are processed too long after their packets.
        Lag = "repairs lag behind the tap",
        /// The tap was replaced by another.
        Replaced = "the tap was replaced",
    }
}

/// Attention that an event needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// None: the gateway does its work.
    Info,
    /// An operator should look.
    Warning,
}

/// Mark that tells peers apart, whatever their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its first network, which no other peer has but those of its rack.
    pub network: IpNet,
    /// Address of the gateway, if it is of a rack.
    pub gateway: Option<SocketAddr>,
}

/// Something that happened. Displayed as a sentence without the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Number of events before it.
    pub number: u64,
    /// Time at which it was noticed.
    pub at_us: u64,
    /// The peer that it concerns; `None` if it concerns the gateway.
    pub peer: Option<Site>,
    /// Its kind and facts.
    pub kind: EventKind,
}

/// Kind of an event, and its facts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// Packets to the peer are protected from here on.
    Up {
        /// Time since the peer went down; `None` at the first time.
        after_us: Option<u64>,
    },
    /// Packets to the peer are not protected any more, or not carried.
    Down {
        /// Time for which it was up.
        after_us: u64,
        /// Whether its packets travel in a tunnel, and by nothing else.
        is_tunnel: bool,
        /// The reason, if it is known.
        trouble: Option<Trouble>,
    },
    /// The repair channel does not work.
    Trouble(Trouble),
    /// Datagrams from the peer's address were sealed with another key.
    WrongKey {
        /// Number of datagrams since the last such event.
        count: u64,
        /// Their source.
        from: SocketAddr,
    },
    /// A change of the key has made progress.
    Keys(KeyState),
    /// The peer is at another address.
    Moved {
        /// The address.
        to: SocketAddr,
    },
    /// The session was renewed while it was in use.
    Renewed {
        /// Number of renewals since the last such event.
        count: u64,
    },
    /// A new session began in place of another.
    NewSession {
        /// Number of sessions since the last such event.
        count: u64,
    },
    /// Recovery toward all peers pauses.
    Paused {
        /// The reason.
        reason: PauseReason,
        /// Number of pauses since the last such event that are no event.
        unnoted: u64,
    },
    /// Recovery continues.
    Resumed {
        /// Length of the pause.
        after_us: u64,
    },
    /// The process stood still. All that waited was discarded, and sessions were renewed.
    Stalled {
        /// Length of the longest stall since the last such event.
        longest_us: u64,
        /// Number of stalls since the last such event.
        count: u64,
    },
    /// One of several paths to the peer is dead, or lives again.
    Path {
        /// Its number in the file; the first is 1.
        number: usize,
        /// Whether it lives.
        is_alive: bool,
    },
    /// More packets stay lost than the threshold allows.
    Residual {
        /// Whether these are packets that leave for the peer.
        is_outgoing: bool,
        /// Packets that stay lost, of those counted, in the last seconds.
        residual: u64,
        /// Packets lost on the link.
        lost: u64,
        /// Packets counted.
        packets: u64,
    },
    /// Lost packets are recovered again.
    NoResidual {
        /// Whether these are packets that leave for the peer.
        is_outgoing: bool,
    },
    /// Repairs were too long for the path, and were sent as two datagrams.
    Fragmented {
        /// Number of repairs since the last such event.
        count: u64,
    },
    /// Packets of a tunnel were dropped, because something on the path marked their datagrams.
    MarksDropped {
        /// Number of packets since the last such event.
        count: u64,
    },
    /// The code of repairs to the peer has changed.
    Code {
        /// The code.
        code: String,
    },
    /// The gateway has chosen another rate of repairs, or its reason has changed.
    Rate {
        /// The rate and its reason.
        choice: String,
        /// Whether an operator should look.
        level: Level,
    },
    /// The treatment of losses of a full queue has changed.
    Congestion {
        /// The verdict.
        verdict: String,
    },
    /// The path differs from the configuration.
    Finding {
        /// The difference.
        finding: Finding,
        /// Whether it is on the path to the peer, as the peer reports.
        is_outgoing: bool,
    },
    /// The path does not differ from the configuration any more.
    NoFinding(Finding),
    /// The path carries less than configured.
    NarrowPath {
        /// Longest packet that it carries.
        mtu: usize,
    },
    /// The gateway limits the segments of TCP connections, so that repairs fit into the path.
    SegmentsLimited {
        /// The limits.
        limits: String,
    },
    /// The gateway cannot limit the segments of TCP connections.
    SegmentsUnlimited {
        /// The reason.
        reason: String,
    },
    /// Something has changed in the rack of this gateway.
    Rack {
        /// The change.
        news: RackNews,
        /// Name of the member or of the part.
        name: String,
    },
}

reasons! {
    /// Change in the rack of a gateway, without the name of the member or the part.
    RackNews, RackNewsCounts {
        /// A member is heard.
        MemberPresent = "is a member of the rack that is heard",
        /// A member is not heard any more. Others take its parts.
        MemberGone = "is a member of the rack that is not heard any more",
        /// A member has other members or parts in its file.
        MemberDiffers = "is a member of the rack whose file has other members or parts",
        /// This gateway has taken a part.
        PartTaken = "is a part that this gateway takes",
        /// This gateway has let a part go.
        PartReleased = "is a part that this gateway leaves to another member",
    }
}

impl EventKind {
    /// The name of the kind: stable, in snake case.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Up { .. } => "peer_up",
            Self::Down { .. } => "peer_down",
            Self::Trouble(_) => "channel_trouble",
            Self::WrongKey { .. } => "wrong_key",
            Self::Keys(_) => "key_change",
            Self::Moved { .. } => "peer_moved",
            Self::Renewed { .. } => "session_renewed",
            Self::NewSession { .. } => "session_began",
            Self::Path { is_alive: true, .. } => "path_alive",
            Self::Path { is_alive: false, .. } => "path_dead",
            Self::Paused { .. } => "recovery_paused",
            Self::Resumed { .. } => "recovery_resumed",
            Self::Stalled { .. } => "gateway_stalled",
            Self::Residual { .. } => "residual_loss",
            Self::NoResidual { .. } => "residual_loss_over",
            Self::Fragmented { .. } => "repairs_fragmented",
            Self::MarksDropped { .. } => "marks_dropped",
            Self::Code { .. } => "code_changed",
            Self::Rate { .. } => "rate_changed",
            Self::Congestion { .. } => "congestion_changed",
            Self::Finding { .. } => "path_finding",
            Self::NoFinding(_) => "path_finding_over",
            Self::NarrowPath { .. } => "path_narrow",
            Self::SegmentsLimited { .. } => "segments_limited",
            Self::SegmentsUnlimited { .. } => "segments_unlimited",
            Self::Rack { news, .. } => news.id(),
        }
    }

    /// The attention that it needs.
    pub fn level(&self) -> Level {
        match self {
            Self::Down { .. }
            | Self::Trouble(_)
            | Self::WrongKey { .. }
            | Self::Paused { .. }
            | Self::Stalled { .. }
            | Self::Residual { .. }
            | Self::Fragmented { .. }
            | Self::MarksDropped { .. }
            | Self::Path { is_alive: false, .. }
            | Self::Finding { .. }
            | Self::NarrowPath { .. }
            | Self::SegmentsUnlimited { .. }
            | Self::Rack { news: RackNews::MemberGone | RackNews::MemberDiffers, .. } => Level::Warning,
            Self::Rate { level, .. } => *level,
            Self::Keys(state) => state.level(),
            _ => Level::Info,
        }
    }

    /// The remedy, if it needs one.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Down { trouble, .. } => trouble.map(Trouble::remedy),
            Self::Trouble(trouble) => Some(trouble.remedy()),
            Self::Keys(state) => state.remedy(),
            Self::WrongKey { .. } => Some(Trouble::WrongKey.remedy()),
            Self::Stalled { .. } => Some(
                "none is needed after the process was stopped or the machine slept; otherwise give the gateway a \
                 processor",
            ),
            Self::Residual { .. } => Some(
                "see `undrop gateway status`: packets that are withheld have another path, longer bursts need \
                 another code, and `overhead_max` may allow no higher rate",
            ),
            Self::Fragmented { .. } => Some(
                "none is needed for a few long packets that are not TCP; otherwise set `mtu = \"manage\"`, or lower \
                 the MTU of the sites as `undrop gateway check` proposes",
            ),
            Self::MarksDropped { .. } => Some(
                "let routers on the path mark only packets whose ECN field says that they may be marked (RFC 3168 §5)",
            ),
            Self::Path { is_alive: false, .. } => Some(
                "check the interface, routes and firewalls of this path at both ends, and the addresses in both files",
            ),
            Self::Finding { finding, .. } => Some(finding.remedy()),
            Self::NarrowPath { .. } => Some(
                "set `wan_mtu` to this, and lower the MTU of the sites or of the route to the far site as `undrop \
                 gateway check` then says; longer packets are not protected, and longer repairs are cut in two. With \
                 `mtu = \"manage\"`, the packets of new TCP connections fit by themselves",
            ),
            Self::SegmentsUnlimited { .. } => Some(
                "load nf_tables with `modprobe nf_tables`, and give the gateway CAP_NET_ADMIN; or set `mtu = \
                 \"check\"`, and lower the MTU of the sites as `undrop gateway check` then proposes",
            ),
            Self::Rack { news: RackNews::MemberGone, .. } => Some(
                "start that gateway again, or check the LAN between the two; others protect its parts as far as the \
                 routes bring them the packets",
            ),
            Self::Rack { news: RackNews::MemberDiffers, .. } => Some(
                "write the same `[[member]]` sections, and the same `networks` of the peers, into the files of all members",
            ),
            _ => None,
        }
    }
}

/// The fate of packets to a peer that is down.
pub(super) fn fate(is_tunnel: bool) -> &'static str {
    if is_tunnel {
        "packets to its networks are dropped, and none leaves in the clear"
    } else {
        "packets to this peer are not protected"
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { after_us: None } => {
                f.write_str("up: packets are protected, and repairs arrive in both directions")
            }
            Self::Up { after_us: Some(us) } => write!(
                f,
                "up again after {}: packets are protected, and repairs arrive in both directions",
                Length(*us)
            ),
            Self::Down { after_us, is_tunnel, trouble } => {
                write!(f, "down after {}: {}", Length(*after_us), fate(*is_tunnel))?;
                trouble.map_or(Ok(()), |trouble| write!(f, "; {trouble}"))
            }
            Self::Trouble(trouble) => trouble.fmt(f),
            Self::WrongKey { count, from } => {
                write!(f, "{} from {} failed the key of the peer", Many(*count, "datagram"), from.ip())
            }
            Self::Renewed { count } => write!(f, "the session was renewed{}", Times(*count)),
            Self::NewSession { count } => write!(f, "a new session began{}", Times(*count)),
            Self::Path { number, is_alive: true } => write!(f, "path {number} lives"),
            Self::Path { number, .. } => write!(f, "path {number} is dead: no answer arrives on it"),
            Self::Paused { reason, unnoted } => {
                write!(f, "recovery pauses: {reason}")?;
                match unnoted {
                    0 => Ok(()),
                    count => write!(f, "; {} since the last such line", Many(*count, "more pause")),
                }
            }
            Self::Resumed { after_us } => write!(
                f,
                "the pause has ended after {}; recovery continues with packets sent from here on",
                Length(*after_us)
            ),
            Self::Stalled { longest_us, count } => {
                write!(f, "stood still for {}", Length(*longest_us))?;
                if *count > 1 {
                    write!(f, ", the longest of {count} times")?;
                }
                f.write_str(
                    ": what waited is discarded, and protection starts again with packets sent from here on",
                )
            }
            Self::Residual { is_outgoing, residual, lost, packets } => write!(
                f,
                "{residual} of {packets} packets {} the peer stayed lost ({}), of {lost} lost on the link",
                way(*is_outgoing),
                Percent(*residual as f64 / (*packets).max(1) as f64)
            ),
            Self::NoResidual { is_outgoing } => {
                write!(f, "lost packets {} the peer are recovered again", way(*is_outgoing))
            }
            Self::Fragmented { count: 1 } => {
                f.write_str("one repair was longer than the path carries and was cut in two")
            }
            Self::Fragmented { count } => {
                write!(f, "{count} repairs were longer than the path carries and were cut in two")
            }
            Self::Code { code } => write!(f, "code of repairs: {code}"),
            Self::Rate { choice, .. } => write!(f, "repairs: {choice}"),
            Self::Congestion { verdict } => write!(f, "congestion on the path from the peer: {verdict}"),
            Self::Finding { finding, is_outgoing: false } => {
                write!(f, "on the path from the peer: {finding}; such packets are not recovered")
            }
            Self::Finding { finding, is_outgoing: true } => {
                write!(f, "on the path to the peer, as it reports: {finding}")
            }
            Self::NoFinding(finding) => write!(f, "no more on the path from the peer: {finding}"),
            _ => self.fmt_others(f),
        }
    }
}

impl EventKind {
    /// Writes an event about lengths of packets, marks, keys or addresses.
    fn fmt_others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(state) => write!(f, "keys: {state}"),
            Self::Moved { to } => write!(f, "the peer is at {to}"),
            Self::MarksDropped { count } => write!(
                f,
                "{} from the peer dropped: the path has marked datagrams for congestion that must not be marked",
                Many(*count, "packet")
            ),
            Self::NarrowPath { mtu } => {
                write!(f, "the path carries packets of at most {mtu} bytes, less than `wan_mtu`")
            }
            Self::SegmentsLimited { limits } => write!(
                f,
                "segments of new TCP connections are limited so that repairs fit into the path: {limits}"
            ),
            Self::SegmentsUnlimited { reason } => write!(
                f,
                "TCP segments cannot be limited, so that repairs of long packets are cut in two: {reason}"
            ),
            Self::Rack { news, name } => write!(f, "rack: {name} {news}"),
            _ => Ok(()),
        }
    }
}

fn way(is_outgoing: bool) -> &'static str {
    if is_outgoing { "to" } else { "from" }
}

/// A number with its noun.
struct Many(u64, &'static str);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

/// How often something happened, if more than once.
struct Times(u64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { Ok(()) } else { write!(f, " {} times", self.0) }
    }
}

/// A length of time, with its two largest units.
struct Length(u64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000;
        match seconds {
            0 => write!(f, "{} ms", self.0 / 1_000),
            1..10 => write!(f, "{:.1} s", self.0 as f64 / 1e6),
            10..60 => write!(f, "{seconds} s"),
            60..3_600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            3_600..86_400 => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
            _ => write!(f, "{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sentences_of_one_line_with_an_id_in_snake_case() {
        let from = SocketAddr::from(([203, 0, 113, 7], 4700));
        for (kind, id, text) in [
            (
                EventKind::Down { after_us: 3_725_000_000, is_tunnel: false, trouble: Some(Trouble::Silent) },
                "peer_down",
                "down after 1 h 2 min: packets to this peer are not protected; no datagram of the peer arrives",
            ),
            (
                EventKind::Up { after_us: Some(12_000_000) },
                "peer_up",
                "up again after 12 s: packets are protected, and repairs arrive in both directions",
            ),
            (
                EventKind::WrongKey { count: 20, from },
                "wrong_key",
                "20 datagrams from 203.0.113.7 failed the key of the peer",
            ),
            (
                EventKind::Paused { reason: PauseReason::Lag, unnoted: 1 },
                "recovery_paused",
                "recovery pauses: repairs lag behind the tap; 1 more pause since the last such line",
            ),
            (
                EventKind::Resumed { after_us: 2_500 },
                "recovery_resumed",
                "the pause has ended after 2 ms; recovery continues with packets sent from here on",
            ),
            (
                EventKind::Residual { is_outgoing: true, residual: 12, lost: 20, packets: 1_000 },
                "residual_loss",
                "12 of 1000 packets to the peer stayed lost (1.2 %), of 20 lost on the link",
            ),
            (
                EventKind::Stalled { longest_us: 2_500_000, count: 3 },
                "gateway_stalled",
                "stood still for 2.5 s, the longest of 3 times: what waited is discarded, and protection starts again \
                 with packets sent from here on",
            ),
            (
                EventKind::Fragmented { count: 3 },
                "repairs_fragmented",
                "3 repairs were longer than the path carries and were cut in two",
            ),
            (
                EventKind::MarksDropped { count: 2 },
                "marks_dropped",
                "2 packets from the peer dropped: the path has marked datagrams for congestion that must not be marked",
            ),
        ] {
            assert_eq!((kind.id(), kind.to_string().as_str()), (id, text));
        }
    }

    #[test]
    fn lengths_have_the_two_largest_units() {
        for (us, text) in [
            (999_999, "999 ms"),
            (1_500_000, "1.5 s"),
            (59_900_000, "59 s"),
            (61_000_000, "1 min 1 s"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(Length(us).to_string(), text);
        }
    }
}
