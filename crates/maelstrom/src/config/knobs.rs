//! Every key a configuration may hold: its range, its default and what it is for.
//!
//! This list is the only one: the reader takes ranges and choices from it, an unknown key is compared with it, and
//! `undrop gateway run --help` prints it.

/// One key of the configuration.
#[derive(Debug)]
pub struct Knob {
    /// `gateway`, `code` or `peer`.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What holds if the key is left out; none if it must not be.
    pub default: Option<&'static str>,
    /// A line that is right, for the remedy.
    pub example: &'static str,
    /// What it is for: one sentence.
    pub doc: &'static str,
}

/// What may stand behind a key.
#[derive(Debug)]
pub enum Kind {
    /// An integer in a range, both ends included.
    Integer {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// An array of integers in a range, both ends included.
    Integers {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
        /// Most entries.
        count: usize,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Repairs for each packet: a number, or a fraction or percentage as text.
    Rate,
    /// `true` or `false`.
    Boolean,
    /// A string of the described form.
    Text(&'static str),
    /// An array of strings of the described form.
    Texts(&'static str),
}

impl Knob {
    /// The words for `scheme` with which the key says something; none if it does with all.
    #[must_use]
    pub fn schemes(&self) -> Option<&'static [&'static str]> {
        match (self.section, self.key) {
            ("code", "r" | "delayed") => Some(&["layered", "reed-solomon"]),
            ("code", "interleaves") => Some(&["layered"]),
            ("code", "c" | "interleave") => Some(&["reed-solomon"]),
            ("code", "rate" | "window" | "density") => Some(&["sliding"]),
            _ => None,
        }
    }

    /// Whether the key says something with this `scheme`.
    #[must_use]
    pub fn fits(&self, scheme: &str) -> bool {
        self.schemes().is_none_or(|schemes| schemes.contains(&scheme))
    }

    /// What may stand there, in words.
    #[must_use]
    pub fn expected(&self) -> String {
        match self.kind {
            Kind::Integer { min, max } => format!("an integer from {min} to {max}"),
            Kind::Integers { min, max, count } => {
                format!("an array of 1 to {count} different integers from {min} to {max}")
            }
            Kind::Choice(words) => match words {
                [one] => format!("`\"{one}\"`"),
                _ => format!("one of `\"{}\"`", words.join("\"`, `\"")),
            },
            Kind::Boolean => "`true` or `false`".to_owned(),
            Kind::Rate => format!(
                "repairs for each packet from 1/{NAMES_MAX} to {RATE_MAX}, as `0.375`, `\"3/8\"` or `\"37.5%\"`"
            ),
            Kind::Text(form) | Kind::Texts(form) => form.to_owned(),
        }
    }
}

/// Longest name of an interface in Linux: `IFNAMSIZ` is 16 with its closing zero.
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Longest path of a Unix socket: `sun_path` is 108 with its closing zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Most `[[peer]]` sections.
pub const PEERS_MAX: usize = 64;

/// Most networks of one peer: what one Hello holds. More belong into fewer, larger prefixes.
pub const NETWORKS_MAX: usize = maelstrom_core::wire::NETWORKS_MAX;

/// Packets of which one repair can say that they are new: no more may lie between two.
pub const NAMES_MAX: usize = maelstrom_core::wire::TERMS_MAX;

/// Most repairs for each packet.
pub const RATE_MAX: u32 = maelstrom_core::RATE_MAX;

/// Most packets in a sliding window.
const WINDOW_MAX: u64 = maelstrom_core::wire::WINDOW_MAX as u64;

/// Longest name of a peer, in characters.
pub const PEER_NAME_CHARS_MAX: usize = 64;

/// The keys, in the order a file would give them.
pub const KNOBS: &[Knob] = &[
    Knob {
        section: "gateway",
        key: "mode",
        kind: Kind::Choice(&["passive"]),
        default: Some("\"passive\""),
        example: "mode = \"passive\"",
        doc: "How source packets travel: untouched by the kernel alone, while the gateway reads copies.",
    },
    Knob {
        section: "gateway",
        key: "wan",
        kind: Kind::Text("the name of a network interface, 1 to 15 characters without blank, `/` or `:`"),
        default: None,
        example: "wan = \"eth1\"",
        doc: "Interface toward the long-haul link.",
    },
    Knob {
        section: "gateway",
        key: "listen",
        kind: Kind::Text(
            "an IP address and a port of this machine, as `10.81.9.1:4700` or `[2001:db8::1]:4700`",
        ),
        default: None,
        example: "listen = \"10.81.9.1:4700\"",
        doc: "Where repairs arrive (UDP); repairs leave from here too.",
    },
    Knob {
        section: "gateway",
        key: "control",
        kind: Kind::Text("the path of a Unix socket, 1 to 107 bytes"),
        default: Some("\"/run/undrop/gateway.sock\""),
        example: "control = \"/run/undrop/gateway.sock\"",
        doc: "Unix socket that answers `undrop gateway status`.",
    },
    Knob {
        section: "gateway",
        key: "lan_mtu",
        kind: Kind::Integer { min: 576, max: 65535 },
        default: Some("the largest MTU of the other interfaces"),
        example: "lan_mtu = 1300",
        doc: "Largest source packet in bytes; with the repair overhead it has to fit into `wan_mtu`.",
    },
    Knob {
        section: "gateway",
        key: "wan_mtu",
        kind: Kind::Integer { min: 576, max: 65535 },
        default: Some("the MTU of the `wan` interface"),
        example: "wan_mtu = 1500",
        doc: "Largest packet the path to the peers carries, in bytes, where that is less than the interface's MTU.",
    },
    Knob {
        section: "gateway",
        key: "tap",
        kind: Kind::Choice(&["auto", "ebpf", "packet"]),
        default: Some("\"auto\""),
        example: "tap = \"auto\"",
        doc: "How packets are copied: by an eBPF program, by packet sockets, or by whichever the machine allows.",
    },
    Knob {
        section: "gateway",
        key: "tun",
        kind: Kind::Text("the name of a network interface, 1 to 15 characters without blank, `/` or `:`"),
        default: Some("\"undrop0\""),
        example: "tun = \"undrop0\"",
        doc: "Name of the device, made by the gateway, through which recovered packets enter the kernel.",
    },
    Knob {
        section: "code",
        key: "scheme",
        kind: Kind::Choice(&["layered", "reed-solomon", "sliding"]),
        default: Some("\"layered\""),
        example: "scheme = \"layered\"",
        doc: "The FEC scheme: layered interleaving, Reed-Solomon blocks, or a sliding window.",
    },
    Knob {
        section: "code",
        key: "r",
        kind: Kind::Integer { min: 1, max: 64 },
        default: Some("8"),
        example: "r = 8",
        doc: "Source packets in a repair: fewer mend more and cost more, each layer, or repair of a block, 1/r of the traffic.",
    },
    Knob {
        section: "code",
        key: "interleaves",
        kind: Kind::Integers { min: 1, max: 1024, count: 8 },
        default: Some("[1, 11, 19]"),
        example: "interleaves = [1, 11, 19]",
        doc: "One layer for each: i means repairs over every i-th packet, which mend bursts of up to i.",
    },
    Knob {
        section: "code",
        key: "c",
        kind: Kind::Integer { min: 1, max: 32 },
        default: Some("3"),
        example: "c = 3",
        doc: "Repairs of a block: any r of its r packets and c repairs bring back all of it.",
    },
    Knob {
        section: "code",
        key: "interleave",
        kind: Kind::Integer { min: 1, max: 1024 },
        default: Some("1"),
        example: "interleave = 20",
        doc: "Blocks fed in turn: i of them mend bursts of up to c x i packets, and take i times as many packets to fill.",
    },
    Knob {
        section: "code",
        key: "rate",
        kind: Kind::Rate,
        default: Some("\"3/8\""),
        example: "rate = 0.375",
        doc: "Repairs for each packet: as many as packets were lost bring all of them back, whichever those are.",
    },
    Knob {
        section: "code",
        key: "window",
        kind: Kind::Integer { min: 1, max: WINDOW_MAX },
        default: Some("256"),
        example: "window = 256",
        doc: "Packets in a repair, the last ones: a window W at rate R mends bursts of up to W x R / (1 + R) packets and repairs. At least 1 / R, rounded up, or packets are in no repair; from three times that on each is named three times, at rates of 1/21 and more.",
    },
    Knob {
        section: "code",
        key: "density",
        kind: Kind::Integer { min: 0, max: 15 },
        default: Some("15"),
        example: "density = 15",
        doc: "Of 16 packets in the window so many and one more are in a repair; fewer cost less to add up, and mend less.",
    },
    Knob {
        section: "code",
        key: "delayed",
        kind: Kind::Boolean,
        default: Some("true"),
        example: "delayed = true",
        doc: "Repairs of what is interleaved wait for later packets, of their bin or of the next blocks, so that one burst cannot swallow them with theirs.",
    },
    Knob {
        section: "code",
        key: "max_delay_ms",
        kind: Kind::Integer { min: 1, max: 1000 },
        default: Some("20"),
        example: "max_delay_ms = 20",
        doc: "Part-filled blocks, or a bin of the first layer, or a window's next repair, are sent after this time, so that quiet traffic is protected too.",
    },
    Knob {
        section: "peer",
        key: "name",
        kind: Kind::Text("a name of 1 to 64 characters without control characters"),
        default: Some("the address"),
        example: "name = \"tokyo\"",
        doc: "What logs and tables call this peer.",
    },
    Knob {
        section: "peer",
        key: "address",
        kind: Kind::Text("the peer's IP address and port, as `10.81.9.2:4700` or `[2001:db8::2]:4700`"),
        default: None,
        example: "address = \"10.81.9.2:4700\"",
        doc: "The peer's `listen`: repairs go there, and a session is begun with nobody else.",
    },
    Knob {
        section: "peer",
        key: "networks",
        kind: Kind::Texts("an array of 1 to 60 networks, as `[\"10.81.2.0/24\", \"2001:db8:2::/48\"]`"),
        default: None,
        example: "networks = [\"10.81.2.0/24\"]",
        doc: "The far site: what leaves toward these networks and arrives from them is protected.",
    },
    Knob {
        section: "peer",
        key: "key_file",
        kind: Kind::Text("the path of a key file"),
        default: None,
        example: "key_file = \"peer.key\"",
        doc: "Secret shared with this peer alone, made by `undrop gateway genkey`, readable by its owner only; a path that is not absolute begins where this file is.",
    },
];

/// The keys of a section.
pub fn of(section: &str) -> impl Iterator<Item = &'static Knob> {
    KNOBS.iter().filter(move |knob| knob.section == section)
}

/// The whole list as text, for `--help`.
#[must_use]
pub fn describe() -> String {
    let mut text = String::new();
    let mut section = "";
    for knob in KNOBS {
        if knob.section != section {
            section = knob.section;
            text += if section == "peer" { "\n[[peer]]\n" } else { "\n[" };
            if section != "peer" {
                text += section;
                text += "]\n";
            }
        }
        let default = knob.default.map_or("required".to_owned(), |default| format!("default: {default}"));
        let scheme = knob.schemes().map_or(String::new(), |schemes| {
            format!("; only with scheme = \"{}\"", schemes.join("\" or \""))
        });
        text += &format!("  {}: {}; {default}{scheme}\n      {}\n", knob.key, knob.expected(), knob.doc);
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_in_words_state_the_limits_that_hold() {
        let form = |key: &str| KNOBS.iter().find(|knob| knob.key == key).unwrap().expected();
        assert!(form("wan").contains(&format!("1 to {INTERFACE_NAME_BYTES_MAX} ")));
        assert!(form("tun").contains(&format!("1 to {INTERFACE_NAME_BYTES_MAX} ")));
        assert!(form("control").contains(&format!("1 to {SOCKET_PATH_BYTES_MAX} ")));
        assert!(form("networks").contains(&format!("1 to {NETWORKS_MAX} ")));
        assert!(form("name").contains(&format!("1 to {PEER_NAME_CHARS_MAX} ")));
    }

    #[test]
    fn the_description_names_every_key_once() {
        let text = describe();
        for knob in KNOBS {
            assert_eq!(text.matches(&format!("\n  {}: ", knob.key)).count(), 1, "{}", knob.key);
        }
        assert!(text.starts_with("[gateway]\n  mode: "), "{text}");
    }
}
