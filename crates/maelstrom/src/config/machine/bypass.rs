//! Ways for packets past the tap at the WAN interface: XDP programs, filters and flow tables in the card.
//! Also tunnels that carry the repairs.

use std::io;
use std::net::IpAddr;

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use super::super::cross::fixed;
use super::super::draft::Draft;
use super::super::wans;
use super::facts::Facts;
use super::filters::{Hook, each_filter};
use super::netlink::Netlink;

/// Maximum number of datagrams in one answer.
const DATAGRAMS_MAX: usize = 4096;
/// Length of a netlink message's header in bytes (RFC 3549 §2.3.2).
const HEADER: usize = 16;

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
pub(super) const DUMP: u16 = 0x300;
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const LINK_LEN: usize = 16;

// linux/rtnetlink.h, linux/pkt_cls.h
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const SKIP_SW: u32 = 2;
/// Classifiers that a card can run, each with the attribute of its flags.
const CLASSIFIERS: [(&str, u16); 4] = [("flower", 22), ("u32", 11), ("matchall", 3), ("bpf", 9)];

// linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink.h
const GET_FLOWTABLE: u16 = (10 << 8) | 23;
const FLOWTABLE_TABLE: u16 = 1;
const FLOWTABLE_NAME: u16 = 2;
const FLOWTABLE_HOOK: u16 = 3;
const FLOWTABLE_FLAGS: u16 = 7;
const HOOK_DEVICES: u16 = 3;
const DEVICE_NAME: u16 = 1;
const HARDWARE: u32 = 1;
const FAMILY_LEN: usize = 4;

/// Kinds of interfaces that put packets into other packets.
const TUNNELS: [&str; 17] = [
    "bareudp",
    "erspan",
    "geneve",
    "gre",
    "gretap",
    "ip6erspan",
    "ip6gre",
    "ip6gretap",
    "ip6tnl",
    "ipip",
    "sit",
    "tun",
    "vti",
    "vti6",
    "vxlan",
    "wireguard",
    "xfrm",
];

/// Adds findings about the draft's WAN interfaces, the devices below them, and the routes to its peers. Facts
/// that cannot be read give none.
pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    for wan in &wans::of_draft(draft) {
        let below = facts.below(&wan.value);
        for device in [wan.value.as_str()].into_iter().chain(below.iter().map(|lower| lower.name.as_str())) {
            ways_past_the_tap(wan, device, findings);
        }
    }
    repairs_in_tunnels(draft, findings);
}

/// Adds findings about the WAN interface itself, or about a device below it, which may concern other packets
/// than those of the WAN interface.
fn ways_past_the_tap(wan: &Setting<String>, device: &str, findings: &mut Findings) {
    let at = || wan.span.clone();
    let (place, grave): (_, fn(&'static str, String) -> Diagnostic) = if device == wan.value {
        (format!("`{device}`"), Diagnostic::error)
    } else {
        (format!("`{device}`, below the WAN interface `{}`", wan.value), Diagnostic::warning)
    };
    if let Ok(Some(mode)) = xdp(device) {
        findings.add(
            Diagnostic::warning("xdp-program", format!("an XDP program runs on {place}, {mode}"))
                .at(at())
                .note("the tap does not see packets that the program redirects, drops or sends back; those that reach hosts all the same would be delivered twice")
                .help(format!("make sure that it passes the traffic of the peers on, or remove it: ip link set dev {device} xdp off")),
        );
    }
    for (kind, hook) in hardware_filters(device).unwrap_or_default() {
        findings.add(
            grave("hardware-filter", format!("a `{kind}` filter with `skip_sw` runs in the card of {place}, {hook}"))
                .at(at())
                .note("the tap does not see packets that the card handles: they would get no repairs, or be delivered twice")
                .help(format!("`tc filter show dev {device} {hook}` shows it; create it without `skip_sw`, or exclude the peers' networks")),
        );
    }
    for table in hardware_flowtables(device).unwrap_or_default() {
        findings.add(
            grave("hardware-flowtable", format!("the flow table `{table}` forwards in the card of {place}"))
                .at(at())
                .note("the tap does not see packets that the card forwards: they would get no repairs, or be delivered twice")
                .help("remove `flags offload` from the flow table; a flow table in software is harmless"),
        );
    }
}

/// A tunnel over the WAN may itself lead to a protected network. Then each repair causes further ones.
fn repairs_in_tunnels(draft: &Draft, findings: &mut Findings) {
    for peer in &draft.peers {
        let Some(wan) = wans::of_peer(draft, peer) else { continue };
        let Some(address) = peer.address.as_ref().and_then(fixed) else { continue };
        let Some(interface) = interface_to(address.value.ip()).filter(|interface| interface != wan) else {
            continue;
        };
        let Ok(Some(kind)) = tunnel_kind(&interface) else { continue };
        findings.add(
            Diagnostic::warning(
                "repairs-in-tunnel",
                format!("repairs to {} leave by the {kind} tunnel `{interface}`", address.value.ip()),
            )
            .at(address.span.clone())
            .note(format!("if the tunnel leads over `{wan}` to a protected network, its packets get repairs too, and these again"))
            .help(format!("give the peer an address that is reached by `{wan}` without the tunnel, or set `wan` to `{interface}`")),
        );
    }
}

fn interface_to(destination: IpAddr) -> Option<String> {
    let netlink = Netlink::open().ok()?;
    let interfaces = netlink.interfaces().ok()?;
    Some(netlink.route(destination, &interfaces).ok()??.interface)
}

/// Returns how an XDP program is attached, if there is one.
fn xdp(interface: &str) -> io::Result<Option<&'static str>> {
    let link = link(interface)?;
    Ok(find(&link, IFLA_XDP)
        .and_then(|xdp| find(xdp, IFLA_XDP_ATTACHED)?.first().copied())
        .and_then(xdp_mode))
}

fn xdp_mode(attached: u8) -> Option<&'static str> {
    match attached {
        0 => None,
        1 => Some("in its driver"),
        2 => Some("in the generic path"),
        3 => Some("in the card"),
        _ => Some("in several places"),
    }
}

fn tunnel_kind(interface: &str) -> io::Result<Option<&'static str>> {
    let link = link(interface)?;
    let kind = find(&link, IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_KIND)).map(text);
    Ok(TUNNELS.into_iter().find(|tunnel| kind.as_deref() == Some(tunnel)))
}

/// Returns the attributes of an interface.
fn link(interface: &str) -> io::Result<Vec<u8>> {
    let mut body = vec![0; LINK_LEN];
    put(&mut body, IFLA_IFNAME, &[interface.as_bytes(), &[0]].concat());
    let mut found = Err(io::Error::from(io::ErrorKind::NotFound));
    query(NETLINK_ROUTE, RTM_GETLINK, 0, &body, |answer| {
        found = Ok(answer.get(LINK_LEN..).unwrap_or_default().to_vec());
    })?;
    found
}

/// Returns kind and hook of each filter that only the card runs.
fn hardware_filters(interface: &str) -> io::Result<Vec<(String, &'static str)>> {
    let mut filters = Vec::new();
    each_filter(interface, |hook, _, attributes| {
        let hook = if hook == Hook::Ingress { "ingress" } else { "egress" };
        filters.extend(hardware_kind(attributes).map(|kind| (kind.to_owned(), hook)));
    })?;
    filters.dedup();
    Ok(filters)
}

/// Returns the kind of a filter with `skip_sw`, from its attributes.
fn hardware_kind(attributes: &[u8]) -> Option<&'static str> {
    let kind = text(find(attributes, TCA_KIND)?);
    let (kind, flags) = CLASSIFIERS.into_iter().find(|(name, _)| kind == *name)?;
    let flags = find(find(attributes, TCA_OPTIONS)?, flags)?;
    (u32::from_ne_bytes(flags.try_into().ok()?) & SKIP_SW != 0).then_some(kind)
}

/// Returns the names of the flow tables of an interface that forward in the card.
fn hardware_flowtables(interface: &str) -> io::Result<Vec<String>> {
    let mut tables = Vec::new();
    query(NETLINK_NETFILTER, GET_FLOWTABLE, DUMP, &[0; FAMILY_LEN], |answer| {
        tables.extend(answer.get(FAMILY_LEN..).and_then(|attributes| hardware_table(attributes, interface)));
    })?;
    Ok(tables)
}

/// Returns the name of a flow table of `interface` in the card, from its attributes.
fn hardware_table(attributes: &[u8], interface: &str) -> Option<String> {
    let flags = find(attributes, FLOWTABLE_FLAGS)?;
    if u32::from_be_bytes(flags.try_into().ok()?) & HARDWARE == 0 {
        return None;
    }
    let devices = find(find(attributes, FLOWTABLE_HOOK)?, HOOK_DEVICES)?;
    let is_there = each(devices).any(|(kind, name)| kind == DEVICE_NAME && text(name) == interface);
    let name = |kind| find(attributes, kind).map(text);
    is_there.then(|| {
        format!("{} {}", name(FLOWTABLE_TABLE).unwrap_or_default(), name(FLOWTABLE_NAME).unwrap_or_default())
    })
}

/// Sends a request and passes the body of each message of the answer to `take`.
pub(super) fn query(
    protocol: isize,
    kind: u16,
    flags: u16,
    body: &[u8],
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let length = (HEADER + body.len()) as u32;
    let mut request =
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &(REQUEST | flags).to_ne_bytes(), &[0; 8]].concat();
    request.extend_from_slice(body);
    socket.send(&request, 0)?;
    for _ in 0..DATAGRAMS_MAX {
        let (datagram, _) = socket.recv_from_full()?;
        if deliver(&datagram, &mut take)? || flags & DUMP == 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("the kernel's answer has no end"))
}

/// Passes the bodies of the messages in a datagram to `take`; true if the answer ends in it.
fn deliver(datagram: &[u8], take: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = rest.get(HEADER..length) else { return Ok(true) };
        match u16::from_ne_bytes([header[4], header[5]]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = body.first_chunk::<4>().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
            _ => take(body),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Returns the attributes in these bytes, by kind.
pub(super) fn each(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        // The upper two bits are flags.
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let data = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

pub(super) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    each(bytes).find(|(other, _)| *other == kind).map(|(_, data)| data)
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

/// Appends an attribute.
pub(super) fn put(to: &mut Vec<u8>, kind: u16, data: &[u8]) {
    to.extend(((data.len() + 4) as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend_from_slice(data);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn attributes(all: &[(u16, &[u8])]) -> Vec<u8> {
        all.iter().fold(Vec::new(), |mut bytes, (kind, data)| {
            put(&mut bytes, *kind, data);
            bytes
        })
    }

    #[test]
    fn only_filters_that_software_skips_are_found() {
        for (name, place) in CLASSIFIERS {
            for (flags, is_found) in
                [(0_u32, false), (1, false), (SKIP_SW, true), (SKIP_SW | 4, true), (8, false)]
            {
                let options = attributes(&[(1, b"x"), (place, &flags.to_ne_bytes())]);
                let kind = format!("{name}\0");
                let filter = attributes(&[(TCA_KIND, kind.as_bytes()), (TCA_OPTIONS | 0x8000, &options)]);
                assert_eq!(hardware_kind(&filter), is_found.then_some(name), "{name} {flags}");
            }
        }
        assert_eq!(hardware_kind(&attributes(&[(TCA_KIND, b"basic\0"), (TCA_OPTIONS, &[])])), None);
    }

    #[test]
    fn only_flow_tables_in_the_card_of_the_interface_are_found() {
        let table = |flags: u32, device: &str| {
            let devices = attributes(&[(DEVICE_NAME, b"lan0\0"), (DEVICE_NAME, device.as_bytes())]);
            let hook = attributes(&[(1, &[0; 4]), (HOOK_DEVICES, &devices)]);
            let (flags, names) = (flags.to_be_bytes(), [&b"filter\0"[..], b"fast\0"]);
            let all = [(1, names[0]), (2, names[1]), (FLOWTABLE_HOOK, &hook), (FLOWTABLE_FLAGS, &flags)];
            hardware_table(&attributes(&all), "wan0")
        };
        assert_eq!(table(1, "wan0\0").as_deref(), Some("filter fast"));
        assert_eq!((table(0, "wan0\0"), table(1, "wan1\0"), table(2, "wan0\0")), (None, None, None));
    }

    #[test]
    fn every_way_to_attach_a_program_is_told() {
        assert_eq!(xdp_mode(0), None);
        assert!((1..=4).all(|attached| xdp_mode(attached).is_some()));
    }

    #[test]
    fn the_loopback_interface_has_nothing_of_this() {
        assert_eq!(xdp("lo").unwrap(), None);
        assert_eq!(tunnel_kind("lo").unwrap(), None);
        assert_eq!(hardware_filters("lo").unwrap(), []);
        assert!(xdp("undrop-none").is_err());
    }

    #[test]
    fn a_datagram_of_garbage_ends_the_answer() {
        for length in 0..64_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let _ = deliver(&bytes, &mut |_| {});
            assert!(each(&bytes).count() < 20);
        }
    }
}
