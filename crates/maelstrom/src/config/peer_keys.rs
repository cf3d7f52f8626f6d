//! The keys of a peer.

use std::net::SocketAddr;
use std::path::PathBuf;

use diagnostics::settings::{
    Boolean, Choice, Fallback, Integer, List, Optional, Placed, Setting, Text, interface_name,
};
use ipnet::IpNet;
use maelstrom_core::PathUse;

use super::keys::{MODES, networks};
use super::paths::{FURTHER_MAX, PathTable, USES};
use super::tunnel::{AGGREGATE_US_MAX, RESEQUENCE_MS_MAX};
use super::types::{FailChoice, Mode, PathChoice, PeerAddress, PeerPath};
use super::values::{self, PEER_NAME_CHARS_MAX};

diagnostics::settings! {
    /// A far gateway and its site: a section `[[peer]]`.
    #[derive(Clone, Debug)]
    pub(super) struct PeerKeys(PeerKeysDraft): "peer" as "[[peer]]" {
        /// Name of the peer in logs and tables.
        name: Option<String> {
            form: Optional(Text::new(
                format!("a name of 1 to {PEER_NAME_CHARS_MAX} characters without control characters"),
                values::peer_name,
            )),
            default: Fallback::Absent("the address"),
            example: "name = \"tokyo\"",
        }
        /// The peer's `listen`. The gateway sends repairs there, and accepts sessions from no other address.
        /// The name of a host is looked up at the start, and again while the peer is silent. With `any` the
        /// address need not be known: the peer calls from wherever it is, also from behind a NAT, and the
        /// gateway follows it when its address changes. The peer's file then needs the address of this
        /// gateway, and this peer a `name`.
        address: PeerAddress {
            form: Text::new(
                "the peer's IP address or host name, and port, such as `10.81.9.2:4700`, `[2001:db8::2]:4700` or \
                 `gateway.example.net:4700`; or `any`",
                values::peer_address,
            ),
            default: Fallback::Required,
            example: "address = \"10.81.9.2:4700\"",
        }
        /// Networks of the far site. Traffic that leaves toward them or arrives from them is protected.
        networks: Vec<Setting<IpNet>> {
            form: networks(),
            default: Fallback::Required,
            example: "networks = [\"10.81.2.0/24\"]",
        }
        /// File with the secret that is shared with this peer alone, made by `undrop gateway genkey` and
        /// readable by its owner only. A relative path starts at the directory of this configuration.
        key_file: PathBuf {
            form: Text::new("the path of a key file", values::file_path),
            default: Fallback::Required,
            example: "key_file = \"peer.key\"",
        }
        /// File with a second secret that is accepted too, while the key is being changed. It is used as soon
        /// as the peer accepts it as well; it can then take the place of `key_file` at both ends.
        next_key_file: Option<PathBuf> {
            form: Optional(Text::new("the path of a key file", values::file_path)),
            default: Fallback::Absent("one key"),
            example: "next_key_file = \"peer-next.key\"",
        }
        /// Address and TCP port where the peer takes carriers of split connections: `listen` of the `[split]`
        /// in its file.
        carrier: Option<SocketAddr> {
            form: Optional(Text::new(
                "an IP address inside the networks of the peer and a port, such as `10.81.2.1:4701`",
                values::own_address,
            )),
            default: Fallback::Absent("none: no connection to the peer's networks is split"),
            example: "carrier = \"10.81.2.1:4701\"",
        }
        /// Rack of the far site that this gateway belongs to. The peers of one rack have the same `networks`,
        /// and each tells by itself which packets it protects and gets repairs for.
        rack: Option<String> {
            form: Optional(Text::new(
                format!("a name of 1 to {PEER_NAME_CHARS_MAX} characters without control characters"),
                values::peer_name,
            )),
            default: Fallback::Absent("none: the only gateway of its site"),
            example: "rack = \"tokyo\"",
        }
        /// Interface by which packets to and from this site pass, in passive mode, where that is another one
        /// than for other sites. Only packets that pass there are protected.
        wan: Option<String> {
            form: Optional(interface_name()),
            default: Fallback::Absent("that of `[gateway]`"),
            example: "wan = \"eth2\"",
        }
        /// Path of packets to and from this site. Both gateways of a pair must state the same.
        mode: Option<Mode> {
            form: Optional(Choice(&MODES)),
            default: Fallback::Absent("that of `[gateway]`"),
            example: "mode = \"tunnel\"",
        }
        /// Whether the gateway sets the routes to these networks, in tunnel mode. They lead to the device
        /// `tunnel` and disappear with it.
        route: bool {
            form: Boolean,
            default: Fallback::Toml("true"),
            example: "route = true",
        }
        /// Treatment of packets to these networks while the gateway does not run although nobody stopped it,
        /// in tunnel mode with `route`. With `closed` they are answered as unreachable, by routes that the
        /// gateway sets beside those of the tunnel and removes when it is stopped. With `open` they take
        /// whatever other route there is, unencrypted.
        fail: FailChoice {
            form: Choice(&[("closed", FailChoice::Closed), ("open", FailChoice::Open)]),
            default: Fallback::Toml("\"closed\""),
            example: "fail = \"closed\"",
        }
        /// With `checked`, missing packets are recovered only while nothing suggests that they took another
        /// path or were rewritten. With `trusted` they always are. Choose `trusted` only if the link is known
        /// to lose packets but no repairs, and never where packets can take another path: they would be
        /// delivered twice.
        path: PathChoice {
            form: Choice(&[("checked", PathChoice::Checked), ("trusted", PathChoice::Trusted)]),
            default: Fallback::Toml("\"checked\""),
            example: "path = \"checked\"",
        }
        /// Further paths to the peer, in tunnel mode, beside that from `listen` to `address`. Each has the
        /// peer's `address` on it, or `any`, and here an address and port (`local`, default `listen`). A
        /// `local` without an IP address takes an `interface`.
        paths: Option<Vec<Setting<PeerPath>>> {
            form: Optional(Placed(List {
                expected: format!(
                    "an array of 1 to {FURTHER_MAX} tables, such as `{{ address = \"10.82.9.2:4701\", local = \
                     \"10.82.9.1:4701\", interface = \"wan1\" }}`"
                ),
                entry: PathTable,
                min: 1,
                max: FURTHER_MAX,
            })),
            default: Fallback::Absent("none: one path"),
            example: "paths = [{ address = \"10.82.9.2:4701\", local = \"10.82.9.1:4701\", interface = \"wan1\" }]",
        }
        /// How several paths share the datagrams. With `failover` all take the first path that lives, in the
        /// order of the file. With `duplicate` they take every path that lives. With `spread` packets take
        /// the first path that lives, as far as it carries them, and then the next ones. Repairs take the
        /// second, so that the one repairs what the other loses.
        r#use: PathUse {
            form: Choice(&USES),
            default: Fallback::Toml("\"failover\""),
            example: "use = \"failover\"",
        }
        /// Longest time for which a packet that came early is held for those in front of it, in
        /// milliseconds, in tunnel mode. Hosts then get packets in the order in which they were sent, also
        /// those that were recovered. With 0 each is handed on as it comes. Set it for hosts that take
        /// reordering for loss. The far gateway then sends fewer repairs, since they have more time.
        resequence_ms: u16 {
            form: Integer::new(0, RESEQUENCE_MS_MAX),
            default: Fallback::Toml("0"),
            example: "resequence_ms = 40",
        }
        /// Longest time for which a packet waits for others to share its datagram with, in microseconds, in
        /// tunnel mode. With 0 only packets that wait anyway share one. Many small packets, such as those of
        /// voice or of games, then take fewer datagrams and bytes, and each is later by up to this time.
        aggregate_us: u16 {
            form: Integer::new(0, AGGREGATE_US_MAX),
            default: Fallback::Toml("0"),
            example: "aggregate_us = 500",
        }
    }
}
