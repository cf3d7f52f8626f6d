//! The facts about the machine, read once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use diagnostics::settings::Setting;
use ipnet::IpNet;
use netio::main_routes::{MainRoute, main_routes};
use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, faccessat};

use super::super::draft::{Draft, PeerDraft};
use super::super::tunnel;
use super::super::types::Mode;
use super::super::wans;
use super::netlink::Netlink;
use super::paths;
use super::record::RecordPlace;
use super::route::{Interface, Route, TableRoute, below};
use super::ruleset::Rules;
use super::split::SplitFacts;

/// The capabilities that a gateway may need, each with its bit (`linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
    Bpf = 39,
}

/// Whether a device or a setting can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Usable,
    Absent,
    Denied,
}

/// State of the control socket's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ControlPlace {
    /// A gateway answers there.
    Answered,
    /// The socket can be created, and its directory if necessary.
    Free,
    /// The directory, or its nearest existing parent, is not writable.
    Denied(String),
    /// A parent of the path is not a directory.
    Blocked(String),
    /// The path is a file but not a socket.
    Occupied,
}

/// The facts about the machine. `None` marks what could not be read.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) interfaces: Option<Vec<Interface>>,
    /// Route to each destination: each peer's address, and the first address of each of its networks.
    pub(super) routes: BTreeMap<IpAddr, Option<Route>>,
    /// Routes of the main table to the networks of peers in tunnel mode, and to parts of them.
    pub(super) table: Vec<TableRoute>,
    /// Effective capabilities as bits.
    pub(super) capabilities: Option<u64>,
    /// Whether this is the initial user namespace: only there do capabilities reach the whole kernel.
    pub(super) initial_user_namespace: bool,
    pub(super) tun_device: Reach,
    pub(super) forwarding_v4: Option<u32>,
    pub(super) forwarding_v6: Option<u32>,
    pub(super) rp_filter_all: Option<u32>,
    /// The same of each interface to which paths are bound.
    pub(super) rp_filter_of: BTreeMap<String, u32>,
    pub(super) settings_writable: bool,
    pub(super) rules: Rules,
    /// Reason why the kernel has no tables of nftables; `None` if it has, or if that is unknown.
    pub(super) nf_tables: Option<String>,
    /// Whether programs may listen on addresses that this machine does not have.
    pub(super) foreign_listen: bool,
    pub(super) control: Option<ControlPlace>,
    /// Place of the record of losses, if the file asks for one.
    pub(super) record: Option<RecordPlace>,
    /// Needs of split mode, if the file asks for it.
    pub(super) split: Option<SplitFacts>,
    /// Whether another socket holds the listen port, if the address is one of this machine's.
    pub(super) port_in_use: bool,
    pub(super) kernel: Option<String>,
    /// Path of this program.
    pub(super) program: String,
}

impl Facts {
    /// Reads the machine. Changes nothing and sends nothing.
    pub(super) fn gather(draft: &Draft) -> Self {
        let (interfaces, routes) = read_network(draft);
        let table = read_table(draft, interfaces.as_deref().unwrap_or_default());
        let wans = wans::of_draft(draft);
        let names: Vec<&str> = wans.iter().map(|wan| wan.value.as_str()).collect();
        let present = interfaces.as_deref().unwrap_or_default();
        let lower = names.iter().flat_map(|wan| below(present, wan));
        let lower: Vec<&str> = lower.map(|interface| interface.name.as_str()).collect();
        let rules = Rules::gather(&names, &lower);
        let listen = draft.gateway.listen.as_ref();
        Self {
            interfaces,
            routes,
            table,
            capabilities: read_capabilities(),
            initial_user_namespace: is_initial_user_namespace(),
            tun_device: reach(Path::new("/dev/net/tun")),
            forwarding_v4: read_number("/proc/sys/net/ipv4/ip_forward"),
            forwarding_v6: read_number("/proc/sys/net/ipv6/conf/all/forwarding"),
            rp_filter_all: read_number("/proc/sys/net/ipv4/conf/all/rp_filter"),
            rp_filter_of: rp_filters(draft),
            settings_writable: reach(Path::new("/proc/sys/net/ipv4/conf/all/rp_filter")) == Reach::Usable,
            rules,
            nf_tables: netio::clamp::probe().err().filter(is_absence).map(|error| error.to_string()),
            foreign_listen: listen.is_some_and(|listen| is_foreign_allowed(listen.value.is_ipv4())),
            control: draft.gateway.control.as_ref().map(|control| control_place(&control.value)),
            record: draft
                .gateway
                .loss_record
                .as_ref()
                .and_then(|setting| setting.value.as_deref())
                .map(RecordPlace::of),
            split: SplitFacts::gather(draft),
            port_in_use: listen.is_some_and(|listen| {
                UdpSocket::bind(listen.value).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
            }),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
            program: std::env::current_exe().map_or("undrop".to_owned(), |path| path.display().to_string()),
        }
    }

    pub(super) fn can(&self, capability: Capability) -> bool {
        // Capabilities that cannot be read are assumed.
        self.capabilities.is_none_or(|bits| bits >> capability as u32 & 1 == 1)
    }

    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.as_ref()?.iter().find(|interface| interface.name == name)
    }

    /// The interfaces below another one.
    pub(super) fn below(&self, name: &str) -> Vec<&Interface> {
        below(self.interfaces.as_deref().unwrap_or_default(), name)
    }

    /// The WAN interface of a draft that is this device, or lies above it; else the first one.
    pub(super) fn wan_above(&self, draft: &Draft, device: &str) -> Option<Setting<String>> {
        let mut wans = wans::of_draft(draft);
        let is_below = |wan: &str| self.below(wan).iter().any(|lower| lower.name == device);
        let at = wans.iter().position(|wan| wan.value == device || is_below(&wan.value)).unwrap_or(0);
        (at < wans.len()).then(|| wans.swap_remove(at))
    }

    /// Whether packets of this interface pass a bridge below its hooks.
    pub(super) fn is_on_bridge(&self, name: &str) -> bool {
        self.interface(name).into_iter().chain(self.below(name)).any(|interface| interface.bridge)
    }

    /// Major and minor version of the kernel.
    pub(super) fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.as_ref()?.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    pub(super) fn gateway_answers(&self) -> bool {
        self.control == Some(ControlPlace::Answered)
    }
}

/// Reads the interfaces, and the routes to all addresses and networks of the draft.
fn read_network(draft: &Draft) -> (Option<Vec<Interface>>, BTreeMap<IpAddr, Option<Route>>) {
    let Ok(netlink) = Netlink::open() else { return (None, BTreeMap::new()) };
    let Ok(interfaces) = netlink.interfaces() else { return (None, BTreeMap::new()) };
    let mut routes = BTreeMap::new();
    for peer in &draft.peers {
        let address = peer.address.iter().filter_map(|address| Some(address.value.fixed()?.ip()));
        let networks = peer.networks.iter().map(|network| first_host(&network.value));
        for destination in address.chain(networks) {
            if let Ok(route) = netlink.route(destination, &interfaces) {
                routes.insert(destination, route);
            }
        }
    }
    (Some(interfaces), routes)
}

/// Reads the routes that lead to networks of peers in tunnel mode. A machine may have a million others.
fn read_table(draft: &Draft, interfaces: &[Interface]) -> Vec<TableRoute> {
    let is_tunnel = |peer: &&PeerDraft| tunnel::mode(draft, peer) == Some(Mode::Tunnel);
    let networks = draft.peers.iter().filter(is_tunnel).flat_map(|peer| &peer.networks);
    let networks: Vec<IpNet> = networks.map(|network| network.value).collect();
    let mut table = Vec::new();
    if networks.is_empty() {
        return table;
    }
    let name = |index: &u32| {
        let owner = interfaces.iter().find(|interface| interface.index == *index);
        owner.map_or(format!("interface {index}"), |interface| interface.name.clone())
    };
    // Routes that cannot be read are not judged.
    let _ = main_routes(|MainRoute { network: (address, prefix), metric, protocol, interfaces }| {
        let Ok(network) = IpNet::new(address, prefix) else { return };
        if networks.iter().any(|whole| whole.contains(&network)) {
            let interfaces = interfaces.iter().map(name).collect();
            table.push(TableRoute { network, metric, protocol, interfaces });
        }
    });
    table
}

/// The address that stands for a network in a query for its route. It is not the network address, which IPv4
/// reserves.
pub(super) fn first_host(network: &IpNet) -> IpAddr {
    network.hosts().next().unwrap_or(network.addr())
}

/// Whether an error of nf_tables means that the kernel has none, as opposed to a missing capability.
fn is_absence(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::PermissionDenied
}

fn is_foreign_allowed(v4: bool) -> bool {
    let family = if v4 { "ipv4" } else { "ipv6" };
    read_number(&format!("/proc/sys/net/{family}/ip_nonlocal_bind")) == Some(1)
}

fn read_number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads the capabilities of this thread, which may differ from those of the process.
fn read_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

fn is_initial_user_namespace() -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else { return true };
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn reach(path: &Path) -> Reach {
    if !path.exists() {
        Reach::Absent
    } else if may(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Reach::Usable
    } else {
        Reach::Denied
    }
}

/// Checks access with the effective ids of this process, as opposed to its real ones.
fn may(path: &Path, access: AccessFlags) -> bool {
    faccessat(nix::fcntl::AT_FDCWD, path, access, AtFlags::AT_EACCESS).is_ok()
}

fn control_place(socket: &Path) -> ControlPlace {
    if UnixStream::connect(socket).is_ok() {
        return ControlPlace::Answered;
    }
    // A socket without an answer was left by a killed gateway, and is replaced. A link is not followed,
    // because the gateway would remove the link and not its target.
    if fs::symlink_metadata(socket).is_ok_and(|found| !found.file_type().is_socket()) {
        return ControlPlace::Occupied;
    }
    let absolute = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let existing =
        absolute.ancestors().skip(1).find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    let shown = existing.display().to_string();
    if !existing.is_dir() {
        ControlPlace::Blocked(shown)
    } else if !may(existing, AccessFlags::W_OK | AccessFlags::X_OK) {
        ControlPlace::Denied(shown)
    } else {
        ControlPlace::Free
    }
}

/// The setting of each interface to which paths are bound.
fn rp_filters(draft: &Draft) -> BTreeMap<String, u32> {
    let of = |name: String| {
        let value = read_number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"))?;
        Some((name, value))
    };
    paths::bound(draft).into_iter().filter_map(|name| of(name.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_socket_in_a_directory_that_can_be_made_is_free() {
        let base = std::env::temp_dir();
        assert_eq!(control_place(&base.join("undrop-none/deep/gateway.sock")), ControlPlace::Free);
    }

    #[test]
    fn a_file_where_the_directory_should_be_is_in_the_way() {
        let file = std::env::temp_dir().join(format!("undrop-blocked-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        assert_eq!(
            control_place(&file.join("gateway.sock")),
            ControlPlace::Blocked(file.display().to_string())
        );
        assert_eq!(control_place(&file), ControlPlace::Occupied);
        fs::remove_file(&file).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&file).unwrap());
        assert_eq!(control_place(&file), ControlPlace::Free, "what a killed gateway left");
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_host_that_stands_for_a_network_lies_in_it() {
        for text in
            ["10.0.0.0/8", "10.1.2.3/32", "10.1.2.2/31", "0.0.0.0/0", "2001:db8::/32", "::1/128", "::/0"]
        {
            let network: IpNet = text.parse().unwrap();
            assert!(network.contains(&first_host(&network)), "{text}");
        }
    }

    #[test]
    fn this_thread_has_capabilities_that_can_be_read() {
        assert!(read_capabilities().is_some());
    }
}
