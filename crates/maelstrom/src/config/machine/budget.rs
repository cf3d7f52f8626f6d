//! The MTU budget: a repair is larger than the largest packet in it, and must fit the long-haul path.

use std::fmt::Write as _;

use diagnostics::{Diagnostic, Findings, Span};
use ipnet::IpNet;
use maelstrom_core::{RepairRate, Schedule, auto};

use super::super::draft::Draft;
use super::super::types::{Mode, MtuChoice};
use super::super::{memory, tunnel, wans};
use super::facts::{Facts, first_host};
use crate::segments::{HEADERS_V4, HEADERS_V6, PACKET_MIN};

/// Smallest LAN MTU with IPv4: every host must accept packets of this size (RFC 791 §3.1).
const LAN_MTU_MIN_V4: u32 = 576;
/// Smallest LAN MTU with IPv6: every link must carry packets of this size (RFC 8200 §5).
const LAN_MTU_MIN_V6: u32 = 1280;

/// Maximum number of routes in a remedy.
const ROUTES_SHOWN_MAX: usize = 16;

/// One side of the budget.
struct Limit {
    bytes: u32,
    /// Its origin in words.
    origin: String,
    span: Option<Span>,
}

pub(super) fn check(
    draft: &Draft,
    facts: &Facts,
    overhead: impl Fn(&Schedule, bool) -> usize,
    findings: &mut Findings,
) {
    without_nf_tables(draft, facts, findings);
    let Some(wan) = wan_limit(draft, facts, findings) else { return };
    memory::check_with(draft, wan.bytes, findings);
    let Some(lan) = lan_limit(draft, facts, wan.bytes) else { return };
    let (Some(schedule), Some(listen)) = (draft.code.schedule(), &draft.gateway.listen) else { return };
    let overhead = |schedule: &Schedule| overhead(schedule, listen.value.is_ipv6()) as u32;
    let extra = overhead(&schedule);
    let span = lan.span.clone().or(wan.span.clone());
    let fit = wan.bytes.saturating_sub(extra);
    if lan.bytes > fit && limits_segments(draft, facts) && fit >= PACKET_MIN {
        let mut remark = managed(fit, &lan, &wan);
        if schedule == Schedule::Auto {
            // Without the limit, longer packets would raise the floor, up to the largest one.
            remark = rates_of_auto(fit, &wan, overhead).into_iter().fold(remark, Diagnostic::note);
        }
        return findings.add(remark.at(span));
    }
    if schedule == Schedule::Auto
        && let Some(remark) = floor_of_auto(&lan, &wan, overhead)
    {
        return findings.add(remark.at(span));
    }
    if lan.bytes + extra <= wan.bytes {
        findings.add(
            Diagnostic::remark(
                "mtu-budget",
                format!("{} bytes of packet + {extra} of repair overhead fit into {}", lan.bytes, wan.bytes),
            )
            .at(span)
            .note(format!("packets: {}; path: {}", lan.origin, wan.origin)),
        );
        return;
    }
    let mut diagnostic = Diagnostic::warning(
        "mtu-budget",
        format!(
            "a repair for packets of {} bytes has {} bytes, more than the {} that the path carries",
            lan.bytes,
            lan.bytes + extra,
            wan.bytes
        ),
    )
    .at(span)
    .expected(format!(
        "packets of at most {fit} bytes: {} minus the overhead {extra} of a repair that names {} packets",
        wan.bytes,
        schedule.names()
    ))
    .seen(format!("{} bytes: {}", lan.bytes, lan.origin))
    .note(format!("the path carries {} bytes: {}", wan.bytes, wan.origin))
    .note("such a repair is cut in two: it costs twice the packets, and is useless if either half is lost");
    if is_managed(draft) && facts.nf_tables.is_some() {
        diagnostic = diagnostic.note("`mtu = \"manage\"` has no effect, see `no-nf-tables`");
    }
    for help in remedies(draft, facts, fit) {
        diagnostic = diagnostic.help(help);
    }
    findings.add(diagnostic);
}

fn is_managed(draft: &Draft) -> bool {
    draft.gateway.mtu.as_ref().is_some_and(|mtu| mtu.value == MtuChoice::Manage)
}

/// Whether the gateway will limit TCP segments.
fn limits_segments(draft: &Draft, facts: &Facts) -> bool {
    is_managed(draft) && facts.nf_tables.is_none()
}

/// The remark that the gateway makes packets short enough.
fn managed(fit: u32, lan: &Limit, wan: &Limit) -> Diagnostic {
    let message = format!(
        "the gateway limits TCP to packets of {fit} bytes, whose repairs fit into {} (`mtu = \"manage\"`)",
        wan.bytes
    );
    Diagnostic::remark("mtu-budget", message)
        .note(format!("packets: {}; path: {}", lan.origin, wan.origin))
        .note(
            "longer packets of other protocols are protected, but their repairs may be cut in two: `long_packets` of \
             the status counts them",
        )
}

/// Tells that the gateway cannot limit segments, although the file asks for it.
fn without_nf_tables(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    let (Some(mtu), Some(reason)) = (draft.gateway.mtu.as_ref(), &facts.nf_tables) else { return };
    if !is_managed(draft) {
        return;
    }
    let message = format!("the kernel has no nf_tables, so that TCP segments cannot be limited: {reason}");
    findings.add(
        Diagnostic::warning("no-nf-tables", message)
            .at(mtu.span.clone())
            .note("the gateway runs, and cuts repairs of packets in two that are too long for the path")
            .help("modprobe nf_tables")
            .help("or set `mtu = \"check\"`, and lower the MTU of the sites"),
    );
}

/// Number of bytes by which a repair of `auto` at a rate is longer than its packets.
fn extra_of(rate: RepairRate, overhead: impl Fn(&Schedule) -> u32) -> u32 {
    overhead(&Schedule::Sliding { rate, window: auto::WINDOW, density: Schedule::DENSITY })
}

/// The lowest rate of `auto` whose repairs of such packets fit; `None` if it exceeds the largest floor.
fn lowest_rate(packet: u32, wan: &Limit, overhead: impl Fn(&Schedule) -> u32) -> Option<RepairRate> {
    let rates = auto::LADDER.into_iter().rev().filter(|&rate| rate <= auto::FLOOR_MAX);
    rates.take_while(|&rate| packet + extra_of(rate, &overhead) <= wan.bytes).last()
}

/// Which rates `auto` may choose where the gateway limits TCP to packets of `fit` bytes, and what longer
/// packets of other protocols change.
fn rates_of_auto(fit: u32, wan: &Limit, overhead: impl Fn(&Schedule) -> u32) -> Option<String> {
    let floor = lowest_rate(fit, wan, &overhead)?;
    let longest = wan.bytes.saturating_sub(extra_of(auto::FLOOR_MAX, &overhead));
    Some(format!(
        "`auto` chooses among rates of {floor} and above: {floor} is the floor, because its repairs of packets of {fit} \
         bytes fit. Packets of other protocols of up to {longest} bytes raise it, to {} at most, for a lower rate names \
         more packets in each repair; still longer ones do not count",
        auto::FLOOR_MAX
    ))
}

/// The rates that `auto` may choose, and the reason why it may not choose lower ones. `None` if no repair at
/// a rate below the largest floor would fit.
fn floor_of_auto(lan: &Limit, wan: &Limit, overhead: impl Fn(&Schedule) -> u32) -> Option<Diagnostic> {
    let extra = |rate| extra_of(rate, &overhead);
    let floor = lowest_rate(lan.bytes, wan, &overhead)?;
    let message = format!(
        "repairs of {} bytes of packet fit into {} at a rate of {floor} and above: `auto` chooses among these",
        lan.bytes, wan.bytes
    );
    let origin = format!("packets: {}; path: {}", lan.origin, wan.origin);
    let remark = Diagnostic::remark("mtu-budget", message).note(origin);
    let lowest = auto::LADDER[0];
    if floor == lowest {
        return Some(remark);
    }
    let room = format!("packets of at most {} bytes allow {lowest}", wan.bytes.saturating_sub(extra(lowest)));
    Some(
        remark
            .note(format!(
                "{floor} is the floor: at a lower rate a repair names more packets, and would exceed the path"
            ))
            .note(room),
    )
}

/// The limit of the path: of several interfaces, the narrowest counts. A stated `wan_mtu` larger than its MTU
/// has no effect.
fn wan_limit(draft: &Draft, facts: &Facts, findings: &mut Findings) -> Option<Limit> {
    let wans = wans::of_draft(draft);
    let present = wans.iter().filter_map(|wan| Some((wan, facts.interface(&wan.value)?)));
    let (wan, interface) = present.min_by_key(|(_, interface)| interface.mtu).unzip();
    let stated = draft.gateway.wan_mtu.as_ref()?;
    match (stated.value, interface) {
        (Some(mtu), Some(interface)) if u32::from(mtu) > interface.mtu => {
            findings.add(
                Diagnostic::warning("wan-mtu", "`wan_mtu` is larger than the interface's MTU, which holds")
                    .at(stated.span.clone())
                    .expected(format!("at most {}, the MTU of `{}`", interface.mtu, interface.name))
                    .seen(mtu.to_string())
                    .help(format!(
                        "leave `wan_mtu` out, or, if the path carries such packets: \
                         ip link set dev {} mtu {mtu}",
                        interface.name
                    )),
            );
            Some(Limit {
                bytes: interface.mtu,
                origin: format!("the MTU of `{}`", interface.name),
                span: stated.span.clone(),
            })
        }
        (Some(mtu), _) => Some(Limit {
            bytes: u32::from(mtu),
            origin: "stated by `wan_mtu`".to_owned(),
            span: stated.span.clone(),
        }),
        (None, Some(interface)) => Some(Limit {
            bytes: interface.mtu,
            origin: format!("the MTU of `{}`", interface.name),
            span: wan.and_then(|wan| wan.span.clone()),
        }),
        (None, None) => None,
    }
}

/// The limit of source packets: stated, or given by the routes to the peers' networks, or by the other
/// interfaces. No packet that leaves by the WAN interface is larger than the path allows.
fn lan_limit(draft: &Draft, facts: &Facts, wan: u32) -> Option<Limit> {
    let stated = draft.gateway.lan_mtu.as_ref()?;
    if let Some(mtu) = stated.value {
        let bytes = u32::from(mtu);
        return Some(Limit { bytes, origin: "stated by `lan_mtu`".to_owned(), span: stated.span.clone() });
    }
    if let Some(bytes) = route_limit(draft, facts)
        && bytes <= wan
    {
        return Some(Limit {
            bytes,
            origin: "the MTU of the routes to the peers' networks".to_owned(),
            span: None,
        });
    }
    let own: Vec<_> = wans::of_draft(draft).into_iter().chain(wans::tuns_of_draft(draft)).collect();
    // Ports of a WAN interface carry the repairs, and no packets of the site.
    let below = own.iter().flat_map(|own| facts.below(&own.value));
    let below: Vec<u32> = below.map(|interface| interface.index).collect();
    let is_own = |name: &str| own.iter().any(|own| own.value == name);
    let others =
        facts.interfaces.as_ref()?.iter().filter(|one| one.up && !one.loopback && !is_own(&one.name));
    let others = others.filter(|one| !below.contains(&one.index));
    Some(match others.max_by_key(|interface| interface.mtu) {
        Some(other) if other.mtu <= wan => Limit {
            bytes: other.mtu,
            origin: format!("assumed from the MTU of `{}`", other.name),
            span: None,
        },
        _ => Limit { bytes: wan, origin: "assumed, because the path carries them".to_owned(), span: None },
    })
}

/// The largest MTU of the routes to the peers' networks, which the kernel applies to forwarded packets too.
/// `None` if a route has no MTU of its own.
fn route_limit(draft: &Draft, facts: &Facts) -> Option<u32> {
    let networks = draft.peers.iter().flat_map(|peer| &peer.networks);
    let mut largest = None;
    for network in networks {
        let route = facts.routes.get(&first_host(&network.value))?.as_ref()?;
        largest = largest.max(Some(route.mtu?));
    }
    largest
}

/// Remedies, with command lines ready to use.
fn remedies(draft: &Draft, facts: &Facts, fit: u32) -> Vec<String> {
    // Routes into a tunnel are the gateway's, and its device has an MTU that fits.
    let passive = draft.peers.iter().filter(|peer| tunnel::mode(draft, peer) != Some(Mode::Tunnel));
    let of_peer = |peer| (peer, wans::of_peer(draft, peer).unwrap_or("WAN"));
    let placed: Vec<(&IpNet, &str)> = passive
        .map(of_peer)
        .flat_map(|(peer, wan)| peer.networks.iter().map(move |network| (&network.value, wan)))
        .collect();
    let networks: Vec<&IpNet> = placed.iter().map(|(network, _)| *network).collect();
    let v4 = networks.iter().any(|network| matches!(network, IpNet::V4(_)));
    let v6 = networks.iter().any(|network| matches!(network, IpNet::V6(_)));
    if fit < if v6 { LAN_MTU_MIN_V6 } else { LAN_MTU_MIN_V4 } {
        return vec![
            "choose a code with a smaller repair overhead, or a path that carries larger packets".to_owned(),
        ];
    }
    let mut help = vec![format!("if no host sends packets of more than {fit} bytes, set `lan_mtu = {fit}`")];
    if networks.is_empty() {
        return help;
    }
    let mut routes = "otherwise lower the MTU of the routes, here and at the peers:".to_owned();
    for (network, wan) in placed.iter().take(ROUTES_SHOWN_MAX) {
        let route = facts.routes.get(&first_host(network)).and_then(Option::as_ref);
        let via = match route {
            Some(route) => route.gateway.map_or(String::new(), |gateway| format!(" via {gateway}")),
            None => " via NEXTHOP".to_owned(),
        };
        let _ = write!(routes, "\nip route replace {network}{via} dev {wan} mtu {fit}");
    }
    if networks.len() > ROUTES_SHOWN_MAX {
        routes += "\nand so on for each network";
    }
    help.push(routes);
    let mut wans: Vec<&str> = placed.iter().map(|(_, wan)| *wan).collect();
    wans.sort_unstable();
    wans.dedup();
    for wan in wans {
        let clamp = Clamp { wan, mtu: fit, v4, v6 };
        help.push(clamp.nft());
        help.push(clamp.iptables());
    }
    help
}

/// Rules that clamp TCP's segment size to an MTU, in both directions.
struct Clamp<'a> {
    wan: &'a str,
    mtu: u32,
    /// Whether there are IPv4 networks.
    v4: bool,
    /// Whether there are IPv6 networks.
    v6: bool,
}

impl Clamp<'_> {
    fn nft(&self) -> String {
        let mut lines = "and, where path MTU discovery fails, clamp TCP's segment size, with nftables:\n\
                         nft add table inet undrop\n\
                         nft 'add chain inet undrop clamp { type filter hook forward priority mangle; }'"
            .to_owned();
        for (family, wanted, headers) in [("ipv4", self.v4, HEADERS_V4), ("ipv6", self.v6, HEADERS_V6)] {
            if !wanted {
                continue;
            }
            for direction in ["oifname", "iifname"] {
                let (wan, mss) = (self.wan, self.mtu - headers);
                let _ = write!(
                    lines,
                    "\nnft 'add rule inet undrop clamp {direction} \"{wan}\" meta nfproto {family} tcp flags syn tcp option maxseg size set {mss}'",
                );
            }
        }
        lines
    }

    fn iptables(&self) -> String {
        let mut lines = "or with iptables:".to_owned();
        for (command, wanted, headers) in
            [("iptables", self.v4, HEADERS_V4), ("ip6tables", self.v6, HEADERS_V6)]
        {
            if !wanted {
                continue;
            }
            for direction in ["-o", "-i"] {
                let (wan, mss) = (self.wan, self.mtu - headers);
                let _ = write!(
                    lines,
                    "\n{command} -t mangle -A FORWARD {direction} {wan} -p tcp --tcp-flags SYN,RST SYN -m tcpmss --mss {}:65535 -j TCPMSS --set-mss {mss}",
                    mss + 1
                );
            }
        }
        lines
    }
}
