//! The table of keys. Each key is one entry: its type, the form of its values, its default, an example, and
//! its documentation, which `undrop gateway run --help` prints.

use std::net::SocketAddr;
use std::path::PathBuf;

use diagnostics::settings::{
    Boolean, Choice, Fallback, Integer, Integers, Layout, List, Only, Optional, Placed, Section as _,
    Setting, Text, interface_name,
};
use ipnet::IpNet;
use maelstrom_core::congestion::OnCongestion;
use maelstrom_core::{Match, Protect, RepairDscp, RepairRate, Requests};

use super::classes::{self, Conditions};
use super::multicast::MulticastKeys;
use super::peer_keys::PeerKeys;
use super::rack::{MemberKeys, RackKeys};
use super::split::Split;
use super::types::{InjectionChoice, Mode, MtuChoice, SchemeChoice, TapChoice};
use super::values::{self, NAMES_MAX, PEER_NAME_CHARS_MAX, SOCKET_PATH_BYTES_MAX};

/// Maximum number of `[[peer]]` sections.
pub const PEERS_MAX: usize = 64;

/// Maximum number of networks of one peer: one Hello holds no more. More networks belong into fewer, larger
/// prefixes.
pub const NETWORKS_MAX: usize = maelstrom_core::wire::NETWORKS_MAX;

/// Maximum number of repairs for each packet.
pub const RATE_MAX: u32 = maelstrom_core::RATE_MAX;

/// Maximum number of packets in a sliding window.
const WINDOW_MAX: u64 = maelstrom_core::wire::WINDOW_MAX as u64;

/// Condition of a key of the choice of rates.
const AUTO: Only = Only { key: "scheme", words: &["auto"] };
/// Condition of a key that two schemes share.
const BINS_OR_BLOCKS: Only = Only { key: "scheme", words: &["layered", "reed-solomon"] };
/// Condition of a key of the layered scheme.
const LAYERED: Only = Only { key: "scheme", words: &["layered"] };
/// Condition of a key of the Reed–Solomon scheme.
const BLOCKS: Only = Only { key: "scheme", words: &["reed-solomon"] };
/// Condition of a key of the sliding-window scheme.
const SLIDING: Only = Only { key: "scheme", words: &["sliding"] };

/// The sections and keys that a file may have.
pub fn layout() -> Layout {
    let layout = Layout::default().with::<Gateway>().with::<CodeKeys>().with::<ClassKeys>();
    let layout = layout.with::<Split>().with::<RackKeys>().with::<MemberKeys>();
    layout.with::<MulticastKeys>().with::<PeerKeys>()
}

/// Keys of `[code]` that decide on the code: the scheme, and what belongs to some schemes alone. A key of
/// another scheme is a mistake in a file.
pub fn keys_of_schemes() -> Vec<&'static str> {
    let keys = CodeKeys::keys();
    keys.iter().filter(|key| key.name == "scheme" || key.only.is_some()).map(|key| key.name).collect()
}

fn rate() -> Text<RepairRate> {
    let form = format!(
        "repairs for each packet from 1/{NAMES_MAX} to {RATE_MAX}, such as `0.375`, `\"3/8\"` or `\"37.5%\"`"
    );
    Text::or_number(form, values::rate)
}

pub(super) fn networks() -> Placed<Text<IpNet>> {
    Placed(List {
        expected: format!(
            "an array of 1 to {NETWORKS_MAX} networks, such as `[\"10.81.2.0/24\", \"2001:db8:2::/48\"]`"
        ),
        entry: Text::new("", values::network),
        min: 1,
        max: NETWORKS_MAX,
    })
}

/// Default control socket of a gateway.
pub const CONTROL_DEFAULT: &str = "/run/undrop/gateway.sock";
/// Configuration of the gateway whose file is not named.
pub const FILE_DEFAULT: &str = "/etc/undrop/gateway.toml";

diagnostics::settings! {
    /// This machine's side: the section `[gateway]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Gateway(GatewayDraft): "gateway" as "[gateway]" {
        /// Path of source packets, unless a peer has a `mode` of its own. With `passive` the kernel forwards
        /// them untouched, and the gateway reads copies. With `tunnel` they travel inside encrypted datagrams
        /// of the two gateways.
        mode: Mode {
            form: Choice(&MODES),
            default: Fallback::Toml("\"passive\""),
            example: "mode = \"passive\"",
        }
        /// Interface toward the long-haul link.
        wan: String {
            form: interface_name(),
            default: Fallback::Required,
            example: "wan = \"eth1\"",
        }
        /// Address and UDP port where repairs arrive, and from which repairs leave.
        listen: SocketAddr {
            form: Text::new(
                "an IP address of this machine and a port, such as `10.81.9.1:4700` or `[2001:db8::1]:4700`",
                values::own_address,
            ),
            default: Fallback::Required,
            example: "listen = \"10.81.9.1:4700\"",
        }
        /// Interface by which the datagrams of `listen` come and leave, whatever the routes say. Without it
        /// they leave by the route to each peer, and come by any interface.
        listen_interface: Option<String> {
            form: Optional(interface_name()),
            default: Fallback::Absent("any: the routes decide"),
            example: "listen_interface = \"eth1\"",
        }
        /// Unix socket that answers `undrop gateway status`.
        control: PathBuf {
            form: Text::new(
                format!("the path of a Unix socket, 1 to {SOCKET_PATH_BYTES_MAX} bytes"),
                values::socket_path,
            ),
            default: Fallback::Toml("\"/run/undrop/gateway.sock\""),
            example: "control = \"/run/undrop/gateway.sock\"",
        }
        /// Largest source packet in bytes. With the repair overhead it must fit into `wan_mtu`.
        lan_mtu: Option<u16> {
            form: Optional(Integer::new(576, 65535)),
            default: Fallback::Absent("the largest MTU of the other interfaces"),
            example: "lan_mtu = 1300",
        }
        /// Largest packet that the path to the peers carries, in bytes. Set it if that is less than the
        /// interface's MTU.
        wan_mtu: Option<u16> {
            form: Optional(Integer::new(576, 65535)),
            default: Fallback::Absent("the MTU of the `wan` interface"),
            example: "wan_mtu = 1500",
        }
        /// Treatment of packets whose repairs do not fit into the path. With `manage` the gateway limits the
        /// segments of TCP connections with hosts of the peers' networks, by a table of nftables that is
        /// removed when the gateway ends. With `check` it changes nothing, and `undrop gateway check`
        /// proposes commands.
        mtu: MtuChoice {
            form: Choice(&[("manage", MtuChoice::Manage), ("check", MtuChoice::Check)]),
            default: Fallback::Toml("\"manage\""),
            example: "mtu = \"manage\"",
        }
        /// How packets are copied: by an eBPF program, by packet sockets, or, with `auto`, by eBPF where the
        /// machine allows it.
        tap: TapChoice {
            form: Choice(&[
                ("auto", TapChoice::Auto),
                ("ebpf", TapChoice::Ebpf),
                ("packet", TapChoice::Packet),
            ]),
            default: Fallback::Toml("\"auto\""),
            example: "tap = \"auto\"",
        }
        /// Memory at each WAN interface for copies of packets that the gateway has not read yet. Where hosts
        /// send more at once than this, faster than the gateway reads, it has no copies of the rest, and
        /// protects none of them.
        tap_buffer: u64 {
            form: Text::new(
                "a size from `\"1MiB\"` to `\"1GiB\"`, such as `\"64MiB\"`",
                values::tap_buffer,
            ),
            default: Fallback::Toml("\"64MiB\""),
            example: "tap_buffer = \"128MiB\"",
        }
        /// Interface by which recovered packets arrive. With `wan` they pass the rules of the WAN interface
        /// like the packets that were lost; this needs eBPF. With `tun` they enter by the device `tun`, so
        /// that rules which name the WAN interface do not apply to them. With `auto` they arrive by the WAN
        /// interface where the machine allows it.
        injection: InjectionChoice {
            form: Choice(&[
                ("auto", InjectionChoice::Auto),
                ("wan", InjectionChoice::Wan),
                ("tun", InjectionChoice::Tun),
            ]),
            default: Fallback::Toml("\"auto\""),
            example: "injection = \"auto\"",
        }
        /// File in which the record of losses survives a restart of the gateway. It is replaced each minute,
        /// and has some 200 KB for each peer, and at most 450 KB.
        loss_record: Option<PathBuf> {
            form: Optional(Text::new("the path of a file", values::file_path)),
            default: Fallback::Absent("none: the record begins with the gateway's start"),
            example: "loss_record = \"/var/lib/undrop/losses.json\"",
        }
        /// Address and TCP port at which Prometheus reads metrics, by HTTP from `/metrics`. Everybody who
        /// reaches the address can read them.
        metrics: Option<SocketAddr> {
            form: Optional(Text::new(
                "an IP address of this machine and a port, such as `127.0.0.1:9469`",
                values::metrics_address,
            )),
            default: Fallback::Absent("none: no metrics over TCP"),
            example: "metrics = \"127.0.0.1:9469\"",
        }
        /// Networks of this site. Only packets from them are protected, and only recovered packets to them
        /// are injected. Between the sites of two peers in tunnel mode, packets pass all the same.
        local_networks: Option<Vec<Setting<IpNet>>> {
            form: Optional(networks()),
            default: Fallback::Absent("what routes lead away from `wan`"),
            example: "local_networks = [\"10.81.1.0/24\"]",
        }
        /// Whether the gateway turns by ticks at a high packet rate: it then handles all packets and repairs
        /// of 100 to 500 microseconds together, which takes less processor time than one by one.
        tick: bool {
            form: Boolean,
            default: Fallback::Toml("true"),
            example: "tick = true",
        }
        /// TUN device of the tunnel: packets for peers in tunnel mode leave by it. The gateway creates it.
        tunnel: String {
            form: interface_name(),
            default: Fallback::Toml("\"undrop1\""),
            example: "tunnel = \"undrop1\"",
        }
        /// TUN device through which recovered packets enter the kernel. The gateway creates it.
        tun: String {
            form: interface_name(),
            default: Fallback::Toml("\"undrop0\""),
            example: "tun = \"undrop0\"",
        }
    }
}

impl Gateway {
    /// The networks of this site, as far as the file states them.
    pub fn local_networks(&self) -> Vec<IpNet> {
        self.local_networks.iter().flatten().map(|network| network.value).collect()
    }
}

/// Words of `mode`.
pub(super) const MODES: [(&str, Mode); 2] = [("passive", Mode::Passive), ("tunnel", Mode::Tunnel)];

/// Words of `scheme`.
const SCHEMES: [(&str, SchemeChoice); 4] = {
    let [auto, layered, blocks, sliding] = SchemeChoice::ALL;
    [(auto.word(), auto), (layered.word(), layered), (blocks.word(), blocks), (sliding.word(), sliding)]
};

diagnostics::settings! {
    /// The FEC scheme and its parameters: the section `[code]`.
    #[derive(Clone, Debug)]
    pub(super) struct CodeKeys(CodeDraft): "code" as "[code]" {
        /// FEC scheme. With `auto` it is a sliding window whose rate the gateway chooses by itself. The
        /// others, layered interleaving, Reed-Solomon blocks and a sliding window, have the parameters that
        /// the file states.
        scheme: SchemeChoice {
            form: Choice(&SCHEMES),
            default: Fallback::Toml("\"auto\""),
            example: "scheme = \"auto\"",
        }
        /// Share of packets that may stay lost. The gateway sends as many repairs as this takes.
        residual: f64 {
            form: Text::or_number("a share from `1e-9` to `0.1`", values::residual),
            default: Fallback::Toml("\"1e-5\""),
            example: "residual = \"1e-5\"",
            only: AUTO,
        }
        /// Time in milliseconds after which a recovered packet is of no use. A shorter time takes more
        /// repairs where traffic is slow.
        late_ms: Option<u16> {
            form: Optional(Integer::new(1, 10000)),
            default: Fallback::Absent(
                "a quarter of the round-trip time, after which TCP retransmits, or the far end's `resequence_ms` if that is longer",
            ),
            example: "late_ms = 50",
            only: AUTO,
        }
        /// Highest number of repairs for each source packet. If it is stated, it holds for everything that
        /// is sent for these packets: repairs of quiet traffic, names and requested packets too.
        overhead_max: Option<RepairRate> {
            form: Optional(rate()),
            default: Fallback::Absent("`3/8` for the rate, and budgets of their own for the rest"),
            example: "overhead_max = \"3/8\"",
            only: AUTO,
        }
        /// Highest bit rate of everything that is sent to one peer besides Hellos and reports, over each
        /// second. With `use = "duplicate"` it holds for each path.
        max_repair_rate: Option<u64> {
            form: Optional(Text::new(
                "a bit rate from `\"1kbit/s\"` to `\"1000Gbit/s\"`, such as `\"20Mbit/s\"`",
                values::bit_rate,
            )),
            default: Fallback::Absent("no limit"),
            example: "max_repair_rate = \"20Mbit/s\"",
            only: AUTO,
        }
        /// Number of source packets in a repair. Each layer, or each repair of a block, costs 1/r of the
        /// traffic. A smaller r recovers more.
        r: u8 {
            form: Integer::new(1, 64),
            default: Fallback::Toml("8"),
            example: "r = 8",
            only: BINS_OR_BLOCKS,
        }
        /// Interleave of each layer. A layer of interleave i makes repairs over every i-th packet, which
        /// recover bursts of up to i packets.
        interleaves: Vec<u16> {
            form: Integers { min: 1, max: 1024, count: 8 },
            default: Fallback::Toml("[1, 11, 19]"),
            example: "interleaves = [1, 11, 19]",
            only: LAYERED,
        }
        /// Number of repairs for each block. Any r of the r packets and c repairs recover the whole block.
        c: u8 {
            form: Integer::new(1, 32),
            default: Fallback::Toml("3"),
            example: "c = 3",
            only: BLOCKS,
        }
        /// Number of blocks that are filled in turn. With i of them, bursts of up to c x i packets are
        /// recovered, and a block takes i times as many packets to fill.
        interleave: u16 {
            form: Integer::new(1, 1024),
            default: Fallback::Toml("1"),
            example: "interleave = 20",
            only: BLOCKS,
        }
        /// Number of repairs for each source packet. Any n repairs recover n lost packets of their windows.
        rate: RepairRate {
            form: rate(),
            default: Fallback::Toml("\"3/8\""),
            example: "rate = 0.375",
            only: SLIDING,
        }
        /// Number of packets in a repair: the newest W. At rate R a window recovers bursts of up to
        /// W x R / (1 + R) packets, beside the repairs between them. W must be at least 1 / R, rounded up, or
        /// some packets would be in no repair. If W is at least three times that number, and R at least 1/8,
        /// three repairs name each packet.
        window: u16 {
            form: Integer::new(1, WINDOW_MAX),
            default: Fallback::Toml("256"),
            example: "window = 256",
            only: SLIDING,
        }
        /// Share of the window that enters a repair: density + 1 of 16 packets. A lower density costs less
        /// processor time and recovers less.
        density: u8 {
            form: Integer::new(0, 15),
            default: Fallback::Toml("15"),
            example: "density = 15",
            only: SLIDING,
        }
        /// Whether interleaved repairs wait for later packets of their bin or of the next blocks, so that one
        /// burst does not take both a packet and its repair.
        delayed: bool {
            form: Boolean,
            default: Fallback::Toml("true"),
            example: "delayed = true",
            only: BINS_OR_BLOCKS,
        }
        /// Longest wait of a part-filled bin of the first layer, of part-filled blocks, or of packets for a
        /// window's next repair, in milliseconds. It bounds the recovery time of quiet traffic.
        max_delay_ms: u16 {
            form: Integer::new(1, 1000),
            default: Fallback::Toml("20"),
            example: "max_delay_ms = 20",
        }
        /// Packets that are requested from the far gateway if repairs do not bring them back in time, and
        /// that are sent again when the far gateway requests them: all packets, all but those of TCP (`udp`),
        /// or none. A copy comes one round trip later. The gateway that sends again leaves out those of TCP,
        /// so that both need `udp`.
        requests: Requests {
            form: Choice(&[("all", Requests::All), ("udp", Requests::Udp), ("off", Requests::Off)]),
            default: Fallback::Toml("\"all\""),
            example: "requests = \"all\"",
        }
        /// DSCP of the repairs, by which routers may treat them otherwise than other packets: `packets` for
        /// that of their packets, or 0 if these differ, or a number. With a number above that of the packets,
        /// repairs may overtake them on the way.
        repair_dscp: RepairDscp {
            form: Text::or_number("`\"packets\"`, or a DSCP from 0 to 63", values::repair_dscp),
            default: Fallback::Toml("\"packets\""),
            example: "repair_dscp = 8",
        }
        /// Treatment of packets that a full queue on the way to this site has dropped. `auto` leaves them to
        /// their senders, so that these slow down, and marks those of senders that understand ECN. `mask`
        /// recovers them like others; neighbours on the link then get less.
        congestion: OnCongestion {
            form: Choice(&[("auto", OnCongestion::Leave), ("mask", OnCongestion::Mask)]),
            default: Fallback::Toml("\"auto\""),
            example: "congestion = \"auto\"",
        }
    }
}

diagnostics::settings! {
    /// A class of packets: a section `[[class]]`.
    #[derive(Clone, Debug)]
    pub(super) struct ClassKeys(ClassDraft): "class" as "[[class]]" {
        /// Name of the class in status and log.
        name: String {
            form: Text::new(
                format!("a name of 1 to {PEER_NAME_CHARS_MAX} characters without control characters"),
                values::peer_name,
            ),
            default: Fallback::Required,
            example: "name = \"backup\"",
        }
        /// Conditions on the packets of the class, all of which must hold. A packet belongs to the first
        /// class that matches. Ports and networks are those of the source or of the destination.
        r#match: Match {
            form: Conditions,
            default: Fallback::Required,
            example: "match = { protocol = [\"tcp\"], ports = [873] }",
        }
        /// Protection of the packets: `off` for no repairs, `auto` for those that all packets get, or a rate,
        /// the number of repairs that each packet causes at least. Rates need a sliding window or `auto`.
        protect: Protect {
            form: Text::or_number("`\"off\"`, `\"auto\"`, or a rate of up to 1 repair for each packet", classes::protect),
            default: Fallback::Toml("\"auto\""),
            example: "protect = \"off\"",
        }
        /// Time in milliseconds after which a recovered packet of the class is of no use. A packet gets its
        /// first repair within half of this time. With `scheme = "auto"` the rate of the repairs follows the
        /// shortest time of all packets, and windows have up to 1,024 packets where the longest leaves time
        /// for that.
        late_ms: Option<u16> {
            form: Optional(Integer::new(1, 10000)),
            default: Fallback::Absent("`late_ms` of `[code]`"),
            example: "late_ms = 20",
        }
    }
}
