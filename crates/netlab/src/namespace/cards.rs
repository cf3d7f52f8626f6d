//! Features of virtual cards and bridges: counters, hardware addresses, permanent neighbours, snooping,
//! segments.

use std::net::IpAddr;

use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{LinkBridge, LinkUnspec};

use super::handle::Namespace;
use crate::error::LabError;

/// Traffic counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Bytes received, with link headers.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes sent, with link headers.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
}

impl DeviceCounters {
    /// Returns the packets of both directions.
    pub fn packets(self) -> u64 {
        self.received_packets + self.sent_packets
    }

    /// Returns the bytes of both directions.
    pub fn bytes(self) -> u64 {
        self.received_bytes + self.sent_bytes
    }

    /// Returns the sum of two counters.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.join(other, u64::wrapping_add)
    }

    /// Returns the difference to `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.join(earlier, u64::wrapping_sub)
    }

    fn join(self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            received_bytes: by(self.received_bytes, other.received_bytes),
            received_packets: by(self.received_packets, other.received_packets),
            sent_bytes: by(self.sent_bytes, other.sent_bytes),
            sent_packets: by(self.sent_packets, other.sent_packets),
        }
    }
}

impl Namespace {
    /// Returns the counters of every device, by name.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn device_counters(&self) -> Result<Vec<(String, DeviceCounters)>, LabError> {
        let table = self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).map_err(|e| {
            LabError::system(format!("cannot read the counters of devices in {:?}", self.label()), e)
        })?;
        Ok(table.lines().filter_map(counters_in).collect())
    }

    /// Returns the hardware address of an Ethernet device.
    ///
    /// # Errors
    /// If the device does not exist or has none.
    pub fn hardware_address(&self, interface: &str) -> Result<[u8; 6], LabError> {
        let what = || format!("cannot find the hardware address of {interface} in {:?}", self.label());
        let found = self.run(|| {
            nix::ifaddrs::getifaddrs().map(|mut all| {
                all.find_map(|entry| {
                    let address = entry.address.filter(|_| entry.interface_name == interface)?;
                    address.as_link_addr()?.addr()
                })
            })
        });
        found.map_err(|e| LabError::system(what(), e))?.ok_or_else(|| LabError::Invalid(what()))
    }

    /// Adds permanent neighbours by IP and hardware address, which need no address resolution.
    ///
    /// # Errors
    /// If the device does not exist.
    pub fn add_neighbours(&self, interface: &str, known: &[(IpAddr, [u8; 6])]) -> Result<(), LabError> {
        let what = format!("cannot add neighbours to {interface} in {:?}", self.label());
        let index = self.index(interface)?;
        self.netlink(&what, async |netlink| {
            for (address, card) in known {
                netlink
                    .neighbours()
                    .add(index, *address)
                    .link_layer_address(card)
                    .replace()
                    .execute()
                    .await?;
            }
            Ok(())
        })
    }

    /// Sets whether a bridge sends multicast only to ports with members.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn set_multicast_snooping(&self, bridge: &str, on: bool) -> Result<(), LabError> {
        let what = format!("cannot set the snooping of the bridge {bridge} in {:?}", self.label());
        self.index(bridge)?;
        let message = LinkBridge::new(bridge).mcast_snooping(on).build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }

    /// Sets the maximum number of segments in a super-packet for this device; the kernel cuts larger ones
    /// before.
    ///
    /// # Errors
    /// If the device does not exist.
    pub fn set_segments_max(&self, interface: &str, segments: u32) -> Result<(), LabError> {
        let what = format!("cannot set the segments of {interface} to {segments} in {:?}", self.label());
        let message = LinkUnspec::new_with_index(self.index(interface)?)
            .append_extra_attribute(LinkAttribute::GsoMaxSegs(segments))
            .build();
        self.netlink(&what, async |netlink| netlink.link().change(message).execute().await)
    }
}

/// Parses a line: after the name, eight counters of receiving and eight of sending: bytes, packets, errors,
/// drops …
fn counters_in(line: &str) -> Option<(String, DeviceCounters)> {
    let (name, numbers) = line.split_once(':')?;
    let numbers: Vec<u64> =
        numbers.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let counters = DeviceCounters {
        received_bytes: *numbers.first()?,
        received_packets: *numbers.get(1)?,
        sent_bytes: *numbers.get(8)?,
        sent_packets: *numbers.get(9)?,
    };
    Some((name.trim().to_owned(), counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_table_of_devices() {
        let (name, counters) = counters_in(" port3: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
        assert_eq!(name, "port3");
        assert_eq!((counters.received_bytes, counters.received_packets), (1, 2));
        assert_eq!((counters.sent_bytes, counters.sent_packets), (9, 10));
        assert_eq!((counters.bytes(), counters.packets()), (10, 12));
        assert_eq!(counters.plus(counters).since(counters), counters);
        assert_eq!(counters_in(" face |bytes    packets errs"), None);
        assert_eq!(counters_in("lo: 1 2 3"), None);
    }
}
