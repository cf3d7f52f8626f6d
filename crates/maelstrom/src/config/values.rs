//! Values that are text: interface names, addresses, networks, paths, rates.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use diagnostics::quoted;
use diagnostics::settings::Fault;
use ipnet::IpNet;
use maelstrom_core::{DSCP_MAX, RateError, RepairDscp, RepairRate};

use super::types::{ANY, Host, PeerAddress};

/// Longest path of the control socket. A Unix socket has up to 107 bytes (`sun_path` is 108 with its closing
/// zero), and the gateway adds a suffix for each socket beside this one.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107 - ".upgrade".len();

/// Longest name of a peer, in characters.
pub(super) const PEER_NAME_CHARS_MAX: usize = 64;

/// Maximum number of packets that one repair can name as new. No more may lie between two repairs.
pub(super) const NAMES_MAX: usize = maelstrom_core::wire::TERMS_MAX;

/// Remedy for a cap or a rate of nothing.
const NOTHING: &str = "a gateway without repairs recovers nothing; packets that need none belong to a `[[class]]` with \
                       `protect = \"off\"`";

/// Least and most bytes of packets that wait in a tap.
const TAP_BUFFER: RangeInclusive<u64> = (1 << 20)..=(1 << 30);

/// Parses a number of bytes with its unit, such as `64MiB`.
pub(super) fn size(text: &str, range: &RangeInclusive<u64>) -> Result<u64, Fault> {
    const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let wrong = || {
        let fault = Fault::bad("is not a size").seen(quoted(text));
        fault.help("write a whole number with `KiB`, `MiB`, `GiB` or `TiB`")
    };
    let parts = UNITS.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let (number, unit) = parts.ok_or_else(wrong)?;
    let number: u64 = number.trim_end().parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(unit).filter(|bytes| range.contains(bytes));
    bytes.ok_or_else(|| Fault::out_of_range(quoted(text)))
}

/// Parses the size of a tap's buffer.
pub(super) fn tap_buffer(text: &str) -> Result<u64, Fault> {
    size(text, &TAP_BUFFER)
}

/// Parses the address at which metrics are read.
pub(super) fn metrics_address(text: &str) -> Result<SocketAddr, Fault> {
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
    address.ok_or_else(|| Fault::bad("is not an address with a port").seen(quoted(text)))
}

/// An address of this machine; it may be the unspecified one.
pub(super) fn own_address(text: &str) -> Result<SocketAddr, Fault> {
    let fault = |message: &str| Fault::bad(message).seen(quoted(text));
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(match text.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => fault("has no port").help(format!("add one: `\"{ip}:4700\"`")),
            Ok(IpAddr::V6(ip)) => fault("has no port").help(format!("add one: `\"[{ip}]:4700\"`")),
            Err(_) => fault("is not an address with a port")
                .help("give it in digits, because a gateway starts without name servers"),
        });
    };
    let ip = address.ip();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    if address.port() == 0 {
        return Err(fault("has port 0").help("choose a port from 1 to 65535: the peer must know it"));
    }
    if ip.is_multicast() || broadcast {
        return Err(fault("is not the address of one machine").help("give the gateway's own address"));
    }
    Ok(address)
}

/// The address of a far gateway, its name, or that it may be anywhere.
pub(super) fn peer_address(text: &str) -> Result<PeerAddress, Fault> {
    if text == ANY {
        return Ok(PeerAddress::Any);
    }
    if let Some(host) = host(text) {
        return Ok(PeerAddress::Name(host));
    }
    if is_host_name(text) {
        let fault = Fault::bad("has no port").seen(quoted(text));
        if text.eq_ignore_ascii_case(ANY) {
            return Err(fault.help(format!("for a peer that calls from anywhere, write `\"{ANY}\"`")));
        }
        return Err(fault.help(format!("add one: `\"{text}:4700\"`")));
    }
    let address = own_address(text)?;
    if address.ip().is_unspecified() {
        let fault = Fault::bad("is not the address of a machine").seen(quoted(text));
        let help = "give the address that the peer has as `listen`, or `any` if that is not known beforehand";
        return Err(fault.help(help));
    }
    Ok(PeerAddress::Ip(address))
}

/// The name of a host with a port.
fn host(text: &str) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port > 0)?;
    is_host_name(name).then(|| Host { name: name.to_owned(), port })
}

/// Whether a text is the name of a host (RFC 1123 §2.1). The last label has a letter, so that a mistyped
/// address is none.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or("");
    text.len() <= 253 && text.split('.').all(is_label) && last.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The DSCP of repairs.
pub(super) fn repair_dscp(text: &str) -> Result<RepairDscp, Fault> {
    if text == "packets" {
        return Ok(RepairDscp::Packets);
    }
    let fault = || Fault::bad("is not `\"packets\"` or a DSCP").seen(quoted(text));
    match text.parse::<u8>() {
        Ok(dscp) if dscp <= DSCP_MAX => Ok(RepairDscp::Fixed(dscp)),
        Ok(_) => Err(Fault::out_of_range(quoted(text)).help("a type of service is four times the DSCP")),
        Err(_) => Err(fault().help("write 1 for LE, 8 for CS1 or 46 for EF")),
    }
}

/// The path of a socket. Its length depends on the directory of the file, and is checked later.
pub(super) fn socket_path(text: &str) -> Result<PathBuf, Fault> {
    if text.is_empty() || text.contains('\0') {
        return Err(Fault::bad("is not the path of a socket").seen(quoted(text)));
    }
    Ok(PathBuf::from(text))
}

pub(super) fn file_path(text: &str) -> Result<PathBuf, Fault> {
    if text.is_empty() || text.contains('\0') {
        return Err(Fault::bad("is not the path of a file").seen(quoted(text)));
    }
    Ok(PathBuf::from(text))
}

pub(super) fn peer_name(text: &str) -> Result<String, Fault> {
    if text.is_empty() || text.chars().count() > PEER_NAME_CHARS_MAX || text.contains(char::is_control) {
        return Err(Fault::bad("is not a name").seen(quoted(text)));
    }
    Ok(text.to_owned())
}

/// A network of hosts.
pub(super) fn network(text: &str) -> Result<IpNet, Fault> {
    let network = any_network(text)?;
    if network.addr().is_multicast() || network.addr().is_loopback() {
        let fault = Fault::bad("holds a network that no gateway forwards").seen(quoted(text));
        let help = "name the unicast networks of the far site: only routed traffic can be protected";
        return Err(fault.help(help));
    }
    Ok(network)
}

/// A network of any addresses.
pub(super) fn any_network(text: &str) -> Result<IpNet, Fault> {
    let fault = |message: &str| Fault::bad(message).seen(quoted(text));
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(match text.parse::<IpAddr>() {
            Ok(ip) => fault("holds an address without a prefix length")
                .help(format!("for this one host, write `\"{}\"`", IpNet::from(ip))),
            Err(_) => fault("holds something that is not a network"),
        });
    };
    if network != network.trunc() {
        let help = format!("write the network itself, `\"{}\"`", network.trunc());
        return Err(fault("holds a network with host bits set").help(help));
    }
    Ok(network)
}

/// Repairs for each packet, exactly as written. A rate so low that a repair could not name its packets is
/// refused.
pub(super) fn rate(text: &str) -> Result<RepairRate, Fault> {
    let out_of_range = || Fault::out_of_range(quoted(text));
    let rate: RepairRate = text.parse().map_err(|error| match error {
        RateError::Range(..) => out_of_range(),
        _ => Fault::bad("is not a rate").seen(quoted(text)),
    })?;
    if rate.repairs() == 0 {
        return Err(out_of_range().help(NOTHING));
    }
    let names = u64::from(rate.repairs()) * NAMES_MAX as u64;
    if names < u64::from(rate.sources()) { Err(out_of_range()) } else { Ok(rate) }
}

/// A share of packets.
pub(super) fn residual(text: &str) -> Result<f64, Fault> {
    let share: f64 = text.parse().map_err(|_| Fault::bad("is not a share of packets").seen(quoted(text)))?;
    if (1e-9..=0.1).contains(&share) { Ok(share) } else { Err(Fault::out_of_range(quoted(text))) }
}

/// A number of bits per second, with its unit.
pub(super) fn bit_rate(text: &str) -> Result<u64, Fault> {
    const UNITS: [(&str, f64); 3] = [("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
    let wrong = || {
        let fault = Fault::bad("is not a bit rate").seen(quoted(text));
        fault.help("write a number with `kbit/s`, `Mbit/s` or `Gbit/s`")
    };
    let nothing = || Fault::out_of_range(quoted(text)).help(NOTHING);
    let parts = UNITS.iter().find_map(|&(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let Some((number, bits)) = parts else {
        // Nothing needs no unit.
        return Err(if text.trim().parse::<f64>() == Ok(0.0) { nothing() } else { wrong() });
    };
    let rate = number.trim_end().parse::<f64>().map_err(|_| wrong())? * bits;
    if rate == 0.0 {
        return Err(nothing());
    }
    if (1e3..=1e12).contains(&rate) { Ok(rate as u64) } else { Err(Fault::out_of_range(quoted(text))) }
}
