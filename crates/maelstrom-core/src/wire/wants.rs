//! The announcement of the IP groups that a site wants from another one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foundation::bytes::{ReadError, Reader, Writer};
use ipnet::IpNet;

use super::header::BodyKind;
use crate::counters::Rejected;

const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// Bit beside the IP version of groups that are not wanted any more.
const ENDS: u8 = 0x80;

/// IP groups that a site wants, or does not want any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The groups: a network of multicast addresses, with no host bits set.
    pub groups: IpNet,
    /// Whether the site does not want them any more.
    pub ends: bool,
}

impl Want {
    /// Length of the kind, which precedes the entries of a body, in bytes.
    pub const HEADER: usize = 1;

    /// Length of its entry in bytes.
    pub fn wire_len(&self) -> usize {
        2 + if self.groups.addr().is_ipv4() { 4 } else { 16 }
    }

    /// Writes a body with these entries into `to`, which has room for them and nothing else.
    pub fn write_all(wants: &[Self], to: &mut [u8]) {
        let mut writer = Writer::new(to);
        writer.put(&[BodyKind::Wants.to_wire()]);
        for want in wants {
            let ends = if want.ends { ENDS } else { 0 };
            let prefix = want.groups.prefix_len();
            match want.groups.addr() {
                IpAddr::V4(address) => {
                    writer.put(&[IPV4 | ends, prefix]);
                    writer.put(&address.octets());
                }
                IpAddr::V6(address) => {
                    writer.put(&[IPV6 | ends, prefix]);
                    writer.put(&address.octets());
                }
            }
        }
    }

    /// Reads an authenticated body, and returns its entries.
    ///
    /// # Errors
    /// [`Rejected::Malformed`] if it has no entry, or one that is cut short or no network of multicast
    /// addresses.
    pub fn read_all(body: &[u8]) -> Result<impl Iterator<Item = Self>, Rejected> {
        let mut reader = Reader(body);
        reader.u8()?;
        let entries = reader;
        if entries.rest().is_empty() {
            return Err(Rejected::Malformed);
        }
        let mut checked = entries;
        while !checked.rest().is_empty() {
            Self::read(&mut checked)?;
        }
        Ok(Entries(entries))
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, ReadError> {
        let [form, prefix] = reader.array()?;
        let address: IpAddr = match form & !ENDS {
            IPV4 => Ipv4Addr::from(reader.array::<4>()?).into(),
            IPV6 => Ipv6Addr::from(reader.array::<16>()?).into(),
            _ => return Err(ReadError::Reserved),
        };
        let groups = IpNet::new(address, prefix).map_err(|_| ReadError::Count)?;
        if !is_multicast(&groups) || groups.addr() != groups.network() {
            return Err(ReadError::Reserved);
        }
        Ok(Self { groups, ends: form & ENDS != 0 })
    }
}

/// The entries of a body that has been checked.
struct Entries<'a>(Reader<'a>);

impl Iterator for Entries<'_> {
    type Item = Want;

    fn next(&mut self) -> Option<Want> {
        Want::read(&mut self.0).ok()
    }
}

/// Whether all addresses of a network are multicast ones.
pub(crate) fn is_multicast(network: &IpNet) -> bool {
    network.network().is_multicast() && network.broadcast().is_multicast()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn want(groups: &str, ends: bool) -> Want {
        Want { groups: groups.parse().unwrap(), ends }
    }

    fn written(wants: &[Want]) -> Vec<u8> {
        let mut body = vec![0; Want::HEADER + wants.iter().map(Want::wire_len).sum::<usize>()];
        Want::write_all(wants, &mut body);
        body
    }

    #[test]
    fn survives_the_wire() {
        let wants = [want("239.1.0.0/16", false), want("ff3e::8000:1/128", true), want("224.0.0.0/4", false)];
        let body = written(&wants);
        assert_eq!(Want::read_all(&body).unwrap().collect::<Vec<_>>(), wants);
        let ends: Vec<usize> = vec![1 + 6, 1 + 6 + 18];
        for cut in 0..body.len() {
            assert_eq!(Want::read_all(&body[..cut]).is_ok(), ends.contains(&cut), "{cut}");
        }
    }

    #[test]
    fn what_is_no_network_of_groups_is_refused() {
        let body = |entry: &[u8]| [&[BodyKind::Wants.to_wire()][..], entry].concat();
        for entry in [
            &[4, 33, 239, 1, 0, 0][..],
            &[4, 3, 224, 0, 0, 0],
            &[4, 16, 239, 1, 0, 1],
            &[4, 24, 10, 0, 0, 0],
            &[5, 16, 239, 1, 0, 0],
            &[0x44, 16, 239, 1, 0, 0],
        ] {
            assert_eq!(Want::read_all(&body(entry)).err(), Some(Rejected::Malformed), "{entry:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_came(body: Vec<u8>) {
            let mut body = body;
            if let Some(first) = body.first_mut() {
                *first = BodyKind::Wants.to_wire();
            }
            if let Ok(wants) = Want::read_all(&body) {
                let wants: Vec<_> = wants.collect();
                prop_assert_eq!(&written(&wants), &body);
            }
        }
    }
}
