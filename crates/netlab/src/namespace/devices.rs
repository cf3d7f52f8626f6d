//! Devices, addresses and routes of a namespace, by rtnetlink.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use ipnet::IpNet;
use nix::net::if_::InterfaceFlags;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMetric};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth, LinkVlan, RouteMessageBuilder};

use super::handle::Namespace;
use crate::error::LabError;

/// A route to add.
///
/// ```
/// use netlab::namespace::Route;
/// let route = Route::to("10.81.2.0/24".parse().unwrap()).via("10.81.1.1".parse().unwrap()).mtu(1300);
/// # let _ = route;
/// ```
#[derive(Clone, Debug)]
pub struct Route {
    destination: IpNet,
    gateway: Option<IpAddr>,
    interface: Option<String>,
    mtu: Option<u32>,
}

impl Route {
    /// Makes a route to `destination`, which needs a gateway, an interface, or both.
    pub fn to(destination: IpNet) -> Self {
        Self { destination: destination.trunc(), gateway: None, interface: None, mtu: None }
    }

    /// Sets the next hop.
    #[must_use]
    pub fn via(mut self, gateway: IpAddr) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// Sets the device.
    #[must_use]
    pub fn interface(mut self, name: &str) -> Self {
        self.interface = Some(name.to_owned());
        self
    }

    /// Sets the size of the largest packet for this destination, in bytes; TCP derives its segment size from
    /// it.
    #[must_use]
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = Some(bytes);
        self
    }
}

impl Namespace {
    /// Adds a virtual cable between `name` here and `peer_name` in `peer`, with both ends up.
    ///
    /// # Errors
    /// If a name is taken or not allowed, or the MTU is out of range.
    pub fn add_veth(&self, name: &str, peer: &Self, peer_name: &str, mtu: u32) -> Result<(), LabError> {
        let far_end =
            LinkUnspec::new_with_name(peer_name).mtu(mtu).setns_by_fd(peer.as_fd().as_raw_fd()).build();
        let message = LinkVeth::new(name, peer_name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far_end)))
            .mtu(mtu)
            .up()
            .build();
        let what = format!(
            "cannot add a cable from {name} in {:?} to {peer_name} in {:?}",
            self.label(),
            peer.label()
        );
        self.netlink(&what, async |netlink| netlink.link().add(message).execute().await)?;
        // Not by flags of the request: the first end would come up without a peer, which the kernel refuses.
        self.set_up(name)?;
        peer.set_up(peer_name)
    }

    /// Adds a bridge without ports, up.
    ///
    /// # Errors
    /// If the name is taken or the kernel has no bridges.
    pub fn add_bridge(&self, name: &str, mtu: u32) -> Result<(), LabError> {
        let what = format!("cannot make the bridge {name} in {:?}", self.label());
        let message = LinkBridge::new(name).mtu(mtu).up().build();
        self.netlink(&what, async |netlink| netlink.link().add(message).execute().await)
    }

    /// Adds a VLAN on a device, up.
    ///
    /// # Errors
    /// If the name is taken or the kernel has no VLANs.
    pub fn add_vlan(&self, name: &str, parent: &str, id: u16) -> Result<(), LabError> {
        let what = format!("cannot make the VLAN {name} on {parent} in {:?}", self.label());
        let message = LinkVlan::new(name, self.index(parent)?, id).up().build();
        self.netlink(&what, async |netlink| netlink.link().add(message).execute().await)
    }

    /// Makes a device a port of a bridge.
    ///
    /// # Errors
    /// If either does not exist.
    pub fn set_bridge(&self, interface: &str, bridge: &str) -> Result<(), LabError> {
        let what = format!("cannot connect {interface} to the bridge {bridge} in {:?}", self.label());
        let (index, bridge) = (self.index(interface)?, self.index(bridge)?);
        let message = LinkUnspec::new_with_index(index).controller(bridge).build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Adds an address with its prefix length, and with it the network's route. On return, the kernel accepts
    /// packets to the address: IPv6 skips duplicate detection, and this call waits for the kernel to finish.
    ///
    /// # Errors
    /// If the device does not exist or has the address already.
    pub fn add_address(&self, interface: &str, address: IpNet) -> Result<(), LabError> {
        let what = format!("cannot add the address {address} to {interface} in {:?}", self.label());
        let index = self.index(interface)?;
        self.netlink(&what, async |netlink| {
            let mut request = netlink.address().add(index, address.addr(), address.prefix_len());
            if address.addr().is_ipv6() {
                request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            }
            request.execute().await
        })?;
        if let IpAddr::V6(address) = address.addr() {
            self.wait_until_local(interface, address);
        }
        Ok(())
    }

    /// Waits until the kernel accepts packets to an IPv6 address. The kernel does so with a delay, even
    /// without duplicate detection: it joins the group of neighbor discovery, then adds the local route.
    /// Until then it drops packets, and a neighbor without an answer repeats its solicitation only a second
    /// later. A device that is down serves no address, so the wait is bounded.
    fn wait_until_local(&self, interface: &str, address: Ipv6Addr) {
        const STEPS: u32 = 2_000;
        self.run(|| {
            let is_up = nix::ifaddrs::getifaddrs().is_ok_and(|mut all| {
                all.any(|entry| {
                    entry.interface_name == interface && entry.flags.contains(InterfaceFlags::IFF_UP)
                })
            });
            if !is_up {
                return;
            }
            for _ in 0..STEPS {
                // Without the table, there is nothing to wait for.
                match std::fs::read_to_string("/proc/thread-self/net/ipv6_route") {
                    Ok(table) if !is_local(&table, address) => std::thread::sleep(Duration::from_millis(1)),
                    _ => return,
                }
            }
        });
    }

    /// Adds a route.
    ///
    /// # Errors
    /// If gateway or device cannot be used, or the route exists.
    pub fn add_route(&self, route: &Route) -> Result<(), LabError> {
        let what = format!("cannot add a route to {} in {:?}", route.destination, self.label());
        let wrong = || {
            LabError::Invalid(format!("{what}: expected gateway and destination of one IP version, saw two"))
        };
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(route.destination.addr(), route.destination.prefix_len())
            .map_err(|_| wrong())?;
        if let Some(gateway) = route.gateway {
            if gateway.is_ipv4() != route.destination.addr().is_ipv4() {
                return Err(wrong());
            }
            builder = builder.gateway(gateway).map_err(|_| wrong())?;
        }
        if let Some(interface) = &route.interface {
            builder = builder.output_interface(self.index(interface)?);
        }
        if let Some(mtu) = route.mtu {
            builder.get_mut().attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
        }
        let message = builder.build();
        self.netlink(&what, async |netlink| netlink.route().add(message).execute().await)
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn set_up(&self, interface: &str) -> Result<(), LabError> {
        let what = format!("cannot bring {interface} up in {:?}", self.label());
        let message = LinkUnspec::new_with_index(self.index(interface)?).up().build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Takes a device down; its routes disappear.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn set_down(&self, interface: &str) -> Result<(), LabError> {
        let what = format!("cannot take {interface} down in {:?}", self.label());
        let message = LinkUnspec::new_with_index(self.index(interface)?).down().build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Sets the size of the largest packet of a device, in bytes.
    ///
    /// # Errors
    /// If it does not exist or does not support that size.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), LabError> {
        let what = format!("cannot set the MTU of {interface} to {mtu} in {:?}", self.label());
        let message = LinkUnspec::new_with_index(self.index(interface)?).mtu(mtu).build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Sets how many packets may wait in the queue of a device.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn set_transmit_queue(&self, interface: &str, packets: u32) -> Result<(), LabError> {
        let what = format!("cannot set the queue of {interface} to {packets} packets in {:?}", self.label());
        // The ioctl for this needs root of the machine; netlink accepts root of a user namespace too.
        let queue = LinkAttribute::TxQueueLen(packets);
        let message =
            LinkUnspec::new_with_index(self.index(interface)?).append_extra_attribute(queue).build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Removes a device, and the other end if it is a cable.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn delete_interface(&self, interface: &str) -> Result<(), LabError> {
        let what = format!("cannot remove {interface} from {:?}", self.label());
        let index = self.index(interface)?;
        self.netlink(&what, async |netlink| netlink.link().del(index).execute().await)
    }

    /// Returns the names of all devices, in the kernel's order.
    ///
    /// # Errors
    /// If the kernel does not list them.
    pub fn interfaces(&self) -> Result<Vec<String>, LabError> {
        let what = || format!("cannot list the interfaces of {:?}", self.label());
        let names = || {
            let list = nix::net::if_::if_nameindex()?;
            Ok(list.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect())
        };
        self.run(names).map_err(|e: nix::errno::Errno| LabError::system(what(), e))
    }

    /// Returns the number of packets that a device dropped on sending.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn transmit_drops(&self, interface: &str) -> Result<u64, LabError> {
        let what = || format!("cannot read the counters of {interface} in {:?}", self.label());
        let table = self
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))
            .map_err(|e| LabError::system(what(), e))?;
        transmit_drops_in(&table, interface).ok_or_else(|| LabError::Invalid(what()))
    }

    pub(super) fn index(&self, interface: &str) -> Result<u32, LabError> {
        self.run(|| nix::net::if_::if_nametoindex(interface))
            .map_err(|e| LabError::system(format!("no interface {interface} in {:?}", self.label()), e))
    }

    /// Runs one netlink conversation. rtnetlink needs an executor: it gets one on a thread inside the
    /// namespace, because a netlink socket belongs to the namespace of its creation.
    pub(super) fn netlink<T: Send>(
        &self,
        what: &str,
        talk: impl AsyncFnOnce(Handle) -> Result<T, rtnetlink::Error> + Send,
    ) -> Result<T, LabError> {
        self.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .map_err(|e| LabError::system(what, e))?;
            runtime.block_on(async {
                let (connection, handle, _) =
                    rtnetlink::new_connection().map_err(|e| LabError::system(what, e))?;
                tokio::spawn(connection);
                talk(handle).await.map_err(|source| LabError::Netlink { what: what.to_owned(), source })
            })
        })
    }
}

/// Returns whether the table of IPv6 routes has the local route of an address. Its lines begin with
/// destination and prefix length and end with flags and device.
fn is_local(table: &str, address: Ipv6Addr) -> bool {
    const LOCAL: u32 = 0x8000_0000;
    let start =
        address.octets().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")) + " 80 ";
    table.lines().filter(|line| line.starts_with(&start)).any(|line| {
        let flags =
            line.split_ascii_whitespace().nth_back(1).and_then(|word| u32::from_str_radix(word, 16).ok());
        flags.is_some_and(|flags| flags & LOCAL != 0)
    })
}

/// Parses the table: after the name, eight counters of receiving and eight of sending: bytes, packets,
/// errors, drops …
fn transmit_drops_in(table: &str, interface: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(8 + 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_in_the_table_of_devices() {
        let table = "Inter-|   Receive |\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                     wan0: 0 0 0 0 0 0 0 0 5 6 0 77 0 0 0 0\n";
        assert_eq!(transmit_drops_in(table, "wan0"), Some(77));
        assert_eq!(transmit_drops_in(table, "lo"), Some(12));
        assert_eq!(transmit_drops_in(table, "wan"), None);
    }

    #[test]
    fn the_route_of_an_own_address_is_found() {
        let line = |address: &str, prefix: &str, flags: &str| {
            let zero = "0".repeat(32);
            format!("{address} {prefix} {zero} 00 {zero} 00000000 00000001 00000000 {flags}     eth0\n")
        };
        let (own, neighbour) = ("fd810000000000090000000000000001", "fd810000000000090000000000000002");
        let table =
            line(own, "40", "80200001") + &line(own, "80", "80200001") + &line(neighbour, "80", "00200001");
        assert!(is_local(&table, "fd81:0:0:9::1".parse().unwrap()));
        assert!(!is_local(&table, "fd81:0:0:9::2".parse().unwrap()));
        assert!(!is_local(&line(own, "40", "80200001"), "fd81:0:0:9::1".parse().unwrap()));
    }
}
