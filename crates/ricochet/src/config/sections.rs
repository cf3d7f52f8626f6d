//! The table of keys. Each key is one entry: its type, the form of its values, its default, an example, and
//! its documentation, which `undrop multicast check --help` prints.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use diagnostics::quoted;
use diagnostics::settings::{
    Boolean, Choice, Fallback, Fault, Integer, Layout, List, Millis, Optional, Section, Text,
    interface_name_or_empty,
};
use ricochet_core::groups::GROUPS_MAX;

use super::types::{GROUP_ADDRESSES_MAX, HOUR, MINUTE, RepairMode};
use crate::policy::Policy;

/// Maximum number of entries in any table or buffer.
const ENTRIES_MAX: u64 = 1 << 20;
/// Shortest time that is not zero.
const TICK: Duration = Duration::from_micros(1);
/// Maximum of times that hold back repairs or messages.
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// The sections and keys that a file may have.
pub(super) fn layout() -> Layout {
    Layout::default()
        .with::<NodeSection>()
        .with::<super::membership::MembershipSection>()
        .with::<RepairSection>()
        .with::<NakSection>()
        .with::<AnnounceSection>()
        .with::<FifoSection>()
        .with::<BuffersSection>()
        .with::<super::flow::FlowSection>()
        .with::<super::history::HistorySection>()
        .with::<KeySection>()
}

fn ip_address() -> Text<IpAddr> {
    Text::new("an IP address, such as `10.0.0.7` or `2001:db8::7`", |text| {
        text.parse().map_err(|_| Fault::bad("is not an IP address").seen(quoted(text)))
    })
}

pub(super) fn path(form: &str) -> Text<PathBuf> {
    Text::new(form, |text| {
        if text.is_empty() || text.contains('\0') {
            return Err(Fault::bad("is not a path").seen(quoted(text)));
        }
        Ok(PathBuf::from(text))
    })
}

fn group_dscp() -> List<Text<String>> {
    let entry = Text::new("", |text| match crate::marks::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(Fault::bad("holds an entry that is not a group and a DSCP")
            .seen(quoted(text))
            .help("write `\"GROUP=DSCP\"` with a DSCP of 1 to 63")),
    });
    let expected = "an array of groups with their DSCP, such as `[\"prices/AAPL=46\"]`".to_owned();
    List { expected, entry, min: 0, max: GROUPS_MAX }
}

macro_rules! defaults {
    ($($section:ident),+ $(,)?) => {
        $(impl Default for $section {
            fn default() -> Self {
                Section::defaults()
            }
        })+
    };
}

defaults!(NodeSection, RepairSection, NakSection, AnnounceSection, FifoSection, BuffersSection, KeySection,);

diagnostics::settings! {
    /// The node and its addresses: the section `[node]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NodeSection(NodeDraft): "node" as "[node]" {
        /// Interface on which the node joins groups and sends to them.
        interface: String {
            form: interface_name_or_empty(),
            default: Fallback::Described("\"\"", "the interface that the command line or the program names"),
            example: "interface = \"eth0\"",
        }
        /// IP address from which the node sends, and at which other nodes reach it.
        address: Option<IpAddr> {
            form: Optional(ip_address()),
            default: Fallback::Absent("the interface's first address"),
            example: "address = \"10.0.0.7\"",
        }
        /// UDP port of this node; 0 for any free port.
        port: Option<u16> {
            form: Optional(Integer::new(0, 65_535)),
            default: Fallback::Absent("7900 if it is free, else any"),
            example: "port = 7900",
        }
        /// UDP port of all groups. It is the same for the whole cluster, and lies outside
        /// the range of ephemeral ports.
        group_port: u16 {
            form: Integer::new(1, 65_535),
            default: Fallback::Toml("7911"),
            example: "group_port = 7911",
        }
        /// Whether the node uses IPv6. An IPv6 address as `address` or `groups_base` also makes it do so.
        ipv6: bool {
            form: Boolean,
            default: Fallback::Toml("false"),
            example: "ipv6 = false",
        }
        /// First of the multicast addresses over which groups are spread. It is
        /// the same for the whole cluster.
        groups_base: Option<IpAddr> {
            form: Optional(ip_address()),
            default: Fallback::Absent("239.255.79.0, or ff15::4f00 with IPv6"),
            example: "groups_base = \"239.255.79.0\"",
        }
        /// Number of these multicast addresses. It is the same for the whole cluster.
        group_addresses: u8 {
            form: Integer::new(1, GROUP_ADDRESSES_MAX.into()),
            default: Fallback::Toml("64"),
            example: "group_addresses = 64",
        }
        /// Time to live of multicast datagrams: one more than the number of routers that they may pass.
        hops: u8 {
            form: Integer::new(1, 255),
            default: Fallback::Toml("1"),
            example: "hops = 1",
        }
        /// Differentiated services code point (DSCP) of all datagrams of this node, and their priority in the
        /// queues of this machine (`SO_PRIORITY`), as Linux derives it from the DSCP.
        dscp: u8 {
            form: Integer::new(0, 63),
            default: Fallback::Toml("0"),
            example: "dscp = 46",
        }
        /// DSCP of the datagrams of a group, `"GROUP=DSCP"`, where it differs: its packets, their repairs,
        /// requests for them and the answers. A repair of packets of several groups has the highest DSCP.
        group_dscp: Vec<String> {
            form: group_dscp(),
            default: Fallback::Toml("[]"),
            example: "group_dscp = [\"prices/AAPL=46\"]",
        }
        /// Whether the node sends a copy to each member of a group, for networks without IP multicast.
        unicast: bool {
            form: Boolean,
            default: Fallback::Toml("false"),
            example: "unicast = true",
        }
        /// Maximum number of groups that the node joins.
        max_groups: usize {
            form: Integer::new(1, GROUPS_MAX as u64),
            default: Fallback::Toml("4096"),
            example: "max_groups = 4096",
        }
        /// Whether a separate thread drains the sockets.
        drain_thread: bool {
            form: Boolean,
            default: Fallback::Toml("false"),
            example: "drain_thread = true",
        }
        /// Random seed of all random choices, including the node's id. For tests only.
        randomness: Option<u64> {
            form: Optional(Integer::new(0, u64::MAX)),
            default: Fallback::Absent("drawn at random"),
            example: "randomness = 7",
        }
        /// Unix socket that answers `undrop multicast status`.
        control: Option<PathBuf> {
            form: Optional(path("the path of a Unix socket")),
            default: Fallback::Absent("no socket"),
            example: "control = \"/run/undrop/node.sock\"",
        }
    }
}

diagnostics::settings! {
    /// Repairs: the section `[repair]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RepairSection(RepairDraft): "repair" as "[repair]" {
        /// Contents of repairs: the XOR of their packets, their names alone (`digest`), or, with `auto`,
        /// whichever suits the measured network and the length of the packets.
        mode: RepairMode {
            form: Choice(&[
                ("xor", RepairMode::Xor),
                ("digest", RepairMode::Digest),
                ("auto", RepairMode::Auto),
            ]),
            default: Fallback::Toml("\"digest\""),
            example: "mode = \"digest\"",
        }
        /// Number of packets in a repair.
        r: u8 {
            form: Integer::new(1, 64),
            default: Fallback::Toml("8"),
            example: "r = 8",
        }
        /// Number of repairs that each packet enters at each receiver, unless a group sets
        /// its own number. With `auto`, packets enter fewer where little is lost. 0 sends none.
        c: Option<u8> {
            form: Optional(Integer::new(0, 64)),
            default: Fallback::Absent("3, and 5 with XOR"),
            example: "c = 3",
        }
        /// Number of instances of each repair bin, which are filled in turn. A burst of that length takes
        /// one packet from each repair. With `auto`, there are up to 8 where losses come in bursts.
        stagger: u16 {
            form: Integer::new(1, 256),
            default: Fallback::Toml("1"),
            example: "stagger = 1",
        }
        /// Longest wait of a part-filled repair, in milliseconds. Where few packets come, a repair waits
        /// down to an eighth of it. 0 waits for packets without limit.
        max_delay_ms: Option<Duration> {
            form: Optional(Millis { min: Duration::ZERO, max: TEN_SECONDS }),
            default: Fallback::Absent("5, and 3 with XOR"),
            example: "max_delay_ms = 5",
        }
    }
}

diagnostics::settings! {
    /// Requests for packets that repairs do not recover: the section `[nak]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct NakSection(NakDraft): "nak" as "[nak]" {
        /// Whether the node requests packets. If not, packets that repairs do not recover are given up.
        enabled: bool {
            form: Boolean,
            default: Fallback::Toml("true"),
            example: "enabled = true",
        }
        /// Time from the discovery of a loss to the first request, in milliseconds.
        first_ms: Duration {
            form: Millis { min: Duration::ZERO, max: HOUR },
            default: Fallback::Toml("2.5"),
            example: "first_ms = 2.5",
        }
        /// The same time for a packet whose successor in the stream has arrived, in milliseconds.
        gap_ms: Option<Duration> {
            form: Optional(Millis { min: Duration::ZERO, max: HOUR }),
            default: Fallback::Toml("0.5"),
            example: "gap_ms = 0.5",
        }
        /// Pause between rounds of up to four requests, in milliseconds. From the fifth
        /// round on, it doubles each time.
        retry_ms: Duration {
            form: Millis { min: TICK, max: MINUTE },
            default: Fallback::Toml("3"),
            example: "retry_ms = 3",
        }
        /// Number of requests to the packet's sender before requests go to other members.
        sender_tries: u8 {
            form: Integer::new(0, 255),
            default: Fallback::Toml("2"),
            example: "sender_tries = 2",
        }
        /// Maximum number of requests for a packet that are not answered. It is awaited nevertheless.
        tries: u8 {
            form: Integer::new(1, 255),
            default: Fallback::Toml("64"),
            example: "tries = 64",
        }
        /// Time from the discovery of a loss until the packet is given up, in milliseconds.
        give_up_ms: Duration {
            form: Millis { min: TICK, max: HOUR },
            default: Fallback::Toml("10000"),
            example: "give_up_ms = 10000",
        }
        /// The same time for messages that their sender marked as expiring, in milliseconds.
        expires_after_ms: Duration {
            form: Millis { min: TICK, max: HOUR },
            default: Fallback::Toml("100"),
            example: "expires_after_ms = 100",
        }
        /// Maximum number of packets per second that the node requests from, and
        /// sends again to, one other node.
        packets_per_second: u32 {
            form: Integer::new(1, 10_000_000),
            default: Fallback::Toml("10000"),
            example: "packets_per_second = 10000",
        }
    }
}

diagnostics::settings! {
    /// Announcements: the section `[announce]`. A sender that falls silent announces the number of its newest
    /// packet, so that receivers notice if the last packet of a burst is missing.
    #[derive(Clone, Debug, PartialEq)]
    pub struct AnnounceSection(AnnounceDraft): "announce" as "[announce]" {
        /// Silence after which a sender announces its newest packet, in milliseconds.
        first_ms: Duration {
            form: Millis { min: TICK, max: MINUTE },
            default: Fallback::Toml("5"),
            example: "first_ms = 5",
        }
        /// Factor by which the wait grows with each announcement.
        growth: u8 {
            form: Integer::new(2, 16),
            default: Fallback::Toml("2"),
            example: "growth = 2",
        }
        /// Number of announcements; 0 for none.
        times: u8 {
            form: Integer::new(0, 16),
            default: Fallback::Toml("12"),
            example: "times = 12",
        }
        /// Step between announcements while less than 3 % of the packets are lost: at step n, the node sends
        /// only the first announcement and every n-th after it.
        stride: u8 {
            form: Integer::new(1, 16),
            default: Fallback::Toml("4"),
            example: "stride = 4",
        }
        /// Age in milliseconds from which a packet is not announced if three repairs have named it, because
        /// the other nodes know of it from these repairs. This applies while less than 3 % of the packets
        /// are lost. 0 always announces.
        unless_named_ms: Duration {
            form: Millis { min: Duration::ZERO, max: HOUR },
            default: Fallback::Toml("0"),
            example: "unless_named_ms = 0",
        }
    }
}

diagnostics::settings! {
    /// Ordered subscriptions: the section `[fifo]`. It bounds what each of them holds back until
    /// earlier messages have arrived.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FifoSection(FifoDraft): "fifo" as "[fifo]" {
        /// Maximum number of messages and loss reports that are held back. When it is reached, the stream
        /// whose first message has waited longest stops waiting for the packets before that message.
        messages: usize {
            form: Integer::new(1, ENTRIES_MAX),
            default: Fallback::Toml("4096"),
            example: "messages = 4096",
        }
        /// Maximum number of payload bytes that are held back.
        bytes: usize {
            form: Integer::new(1 << 16, 1 << 30),
            default: Fallback::Toml("8388608"),
            example: "bytes = 8388608",
        }
        /// Maximum number of streams that are kept in order, one for each sender and group, of about 190
        /// bytes each. It is at least `buffers.streams`. When it is reached, the stream heard longest ago is
        /// dropped; its next message then counts as the beginning of a stream.
        streams: Option<usize> {
            form: Optional(Integer::new(1, ENTRIES_MAX)),
            default: Fallback::Absent("as `buffers.streams`"),
            example: "streams = 16384",
        }
        /// Time that the first messages of a stream are held if the stream is first heard in its middle, in
        /// milliseconds: they may have overtaken others. 0 delivers them at once.
        settle_ms: Duration {
            form: Millis { min: Duration::ZERO, max: TEN_SECONDS },
            default: Fallback::Toml("2"),
            example: "settle_ms = 2",
        }
    }
}

diagnostics::settings! {
    /// Buffers: the section `[buffers]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct BuffersSection(BuffersDraft): "buffers" as "[buffers]" {
        /// Number of packets kept, to recover others and to answer requests.
        packets: usize {
            form: Integer::new(16, ENTRIES_MAX),
            default: Fallback::Toml("4096"),
            example: "packets = 4096",
        }
        /// Number of repairs kept that lack two packets or more.
        equations: usize {
            form: Integer::new(1, 1 << 16),
            default: Fallback::Toml("256"),
            example: "equations = 256",
        }
        /// Maximum number of streams that the node tracks, one for each sender and group. When it is reached,
        /// a stream that was silent for half a minute makes room. If there is none, packets of a new stream
        /// are dropped, and counted as `no_room`.
        streams: usize {
            form: Integer::new(1, ENTRIES_MAX),
            default: Fallback::Toml("16384"),
            example: "streams = 16384",
        }
        /// Number of packets between the sockets and the node. While it is full, packets wait in the kernel's
        /// buffer.
        ring: usize {
            form: Integer::new(64, ENTRIES_MAX),
            default: Fallback::Toml("4096"),
            example: "ring = 4096",
        }
        /// Kernel buffer of each socket in bytes. The kernel may grant less.
        socket_bytes: usize {
            form: Integer::new(4_096, 1 << 30),
            default: Fallback::Toml("8388608"),
            example: "socket_bytes = 8388608",
        }
        /// Number of payload buffers kept for reuse.
        payloads: usize {
            form: Integer::new(0, ENTRIES_MAX),
            default: Fallback::Toml("4096"),
            example: "payloads = 4096",
        }
        /// Number of messages that may wait in a subscription, unless it sets its own number. Each of them
        /// may hold a buffer of about `datagram_max` bytes, however short it is. After a process was stopped,
        /// all that the kernel's buffers hold comes at once; the default has room for that at usual lengths.
        queue: usize {
            form: Integer::new(1, ENTRIES_MAX),
            default: Fallback::Toml("16384"),
            example: "queue = 16384",
        }
        /// Number of bytes of messages that may wait in a subscription, unless it sets its own number. A
        /// single message may be longer.
        queue_bytes: usize {
            form: Integer::new(1, 1 << 40),
            default: Fallback::Toml("67108864"),
            example: "queue_bytes = 67108864",
        }
        /// Number of bytes of messages that may wait to be sent. A single message may be longer.
        send_bytes: usize {
            form: Integer::new(1, 1 << 40),
            default: Fallback::Toml("16777216"),
            example: "send_bytes = 16777216",
        }
        /// Number of bytes of long messages that have come in part. When they take more, the one that has
        /// waited longest for a fragment is given up. Each sender of messages of 1 MiB needs as much.
        fragment_bytes: usize {
            form: Integer::new(1 << 20, 1 << 40),
            default: Fallback::Toml("67108864"),
            example: "fragment_bytes = 67108864",
        }
        /// Rule for a full queue, unless a subscription sets its own.
        policy: Policy {
            form: Choice(&[
                ("drop-oldest", Policy::DropOldest),
                ("drop-newest", Policy::DropNewest),
                ("block", Policy::Block),
            ]),
            default: Fallback::Toml("\"drop-oldest\""),
            example: "policy = \"drop-oldest\"",
        }
        /// Longest datagram in bytes of UDP payload. It is the same for the whole cluster. The kernel refuses
        /// datagrams that are longer than the path carries.
        datagram_max: usize {
            form: Integer::new(1_200, 65_507),
            default: Fallback::Toml("1452"),
            example: "datagram_max = 1452",
        }
    }
}

diagnostics::settings! {
    /// The cluster key: the section `[key]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct KeySection(KeyDraft): "key" as "[key]" {
        /// File with the cluster key, made by `undrop multicast genkey` and readable by its owner only.
        /// Without it, nothing is authenticated.
        file: Option<PathBuf> {
            form: Optional(path("the path of a key file")),
            default: Fallback::Absent("no key"),
            example: "file = \"/etc/undrop/cluster.key\"",
        }
    }
}
