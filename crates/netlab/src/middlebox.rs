//! Boxes in the middle of a link that rewrite, fragment, refuse or divert IPv4 packets.
//!
//! A [`MiddleBox`] is a function that an emulated link calls with each packet on the wire, before the
//! packet's fate is decided ([`Emulator::set_middle_box`](crate::emulator::Emulator::set_middle_box)). The
//! functions below do what such boxes do; tests compose them.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use netio::tun::{Tun, TunOptions};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::LabError;
use crate::namespace::Namespace;

const HEADER: usize = 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A function that handles one packet of a direction.
pub type MiddleBox = Box<dyn FnMut(&[u8], &mut Exits<'_>) + Send>;

/// Where a box can send packets.
pub struct Exits<'a> {
    pub(crate) forward: &'a mut dyn FnMut(&[u8]),
    pub(crate) back: &'a Tun,
}

impl Exits<'_> {
    /// Sends a packet on over the link.
    pub fn forward(&mut self, packet: &[u8]) {
        (self.forward)(packet);
    }

    /// Sends a packet to the kernel that sent the present one.
    pub fn send_back(&mut self, packet: &[u8]) {
        // A full device loses the packet, like any wire.
        let _ = self.back.send(packet);
    }
}

/// Another way into a namespace: a device at which packets arrive that do not take the link.
#[derive(Clone, Debug)]
pub struct SideDoor(Arc<Tun>);

impl SideDoor {
    /// Makes a device `name`, up, with an address that no host uses: the kernel's source check drops packets
    /// that enter by a device without any.
    ///
    /// # Errors
    /// If a device of that name exists, or privilege is missing.
    pub fn open(namespace: &Namespace, name: &str, mtu: u32) -> Result<Self, LabError> {
        let what = || format!("cannot make the device {name} in {:?}", namespace.label());
        let options = TunOptions { mtu: Some(mtu), ..TunOptions::default() };
        let open = || {
            let tun = Tun::open(name, &options)?;
            tun.interface().set_ipv4_address(Ipv4Addr::new(192, 0, 0, 8))?;
            tun.interface().set_up(true)?;
            io::Result::Ok(tun)
        };
        namespace.run(open).map(|tun| Self(Arc::new(tun))).map_err(|e| LabError::system(what(), e))
    }

    /// Lets a packet arrive at the device.
    pub fn send(&self, packet: &[u8]) {
        let _ = self.0.send(packet);
    }
}

/// Returns whether this is an IPv4 packet with a whole header.
fn is_ipv4(packet: &[u8]) -> bool {
    packet.len() >= HEADER && packet[0] >> 4 == 4
}

/// Returns the bytes behind the IPv4 header.
fn transport(packet: &[u8]) -> &[u8] {
    packet.get(usize::from(packet[0] & 0x0f) * 4..).unwrap_or_default()
}

/// Returns the destination port of a whole UDP datagram over IPv4.
pub fn udp_port(packet: &[u8]) -> Option<u16> {
    let datagram = (is_ipv4(packet) && packet[9] == UDP).then(|| transport(packet))?;
    Some(u16::from_be_bytes([*datagram.get(2)?, *datagram.get(3)?]))
}

/// Returns a hash of addresses, protocol and ports, by which routers choose among several links.
pub fn flow_hash(packet: &[u8]) -> u64 {
    if !is_ipv4(packet) {
        return 0;
    }
    let ports = transport(packet).get(..4).unwrap_or_default();
    xxh3_64(&[&packet[9..10], &packet[12..HEADER], ports].concat())
}

/// Address field of an IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Replaces an address `from` by `to`, as a NAT does, and corrects the checksums. Returns whether the packet
/// had it.
pub fn translate(packet: &mut [u8], end: End, from: Ipv4Addr, to: Ipv4Addr) -> bool {
    let at = if end == End::Source { 12 } else { 16 };
    if !is_ipv4(packet) || packet[at..at + 4] != from.octets() {
        return false;
    }
    packet[at..at + 4].copy_from_slice(&to.octets());
    adjust(packet, 10, from.octets(), to.octets());
    let header = usize::from(packet[0] & 0x0f) * 4;
    let is_first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
    let checksum = match packet[9] {
        TCP => header + 16,
        UDP => header + 6,
        _ => return true,
    };
    if is_first
        && checksum + 2 <= packet.len()
        && !(packet[9] == UDP && packet[checksum..checksum + 2] == [0, 0])
    {
        adjust(packet, checksum, from.octets(), to.octets());
    }
    true
}

/// Corrects a checksum for four bytes that changed (RFC 1624).
fn adjust(packet: &mut [u8], at: usize, old: [u8; 4], new: [u8; 4]) {
    let word = |bytes: [u8; 4], half: usize| u32::from(u16::from_be_bytes([bytes[half], bytes[half + 1]]));
    let mut sum = u32::from(!u16::from_be_bytes([packet[at], packet[at + 1]]));
    for half in [0, 2] {
        sum += (!word(old, half) & 0xffff) + word(new, half);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Sends a packet on over a link whose packets have at most `mtu` bytes. A longer one is fragmented, or, if
/// it must not be, refused by an ICMP message from `router` (`None`: silently).
pub fn narrow(packet: &[u8], mtu: usize, router: Option<Ipv4Addr>, exits: &mut Exits<'_>) {
    if packet.len() <= mtu || !is_ipv4(packet) {
        exits.forward(packet);
    } else if packet[6] & 0x40 != 0 {
        if let Some(router) = router {
            exits.send_back(&fragmentation_needed(packet, mtu as u16, router));
        }
    } else {
        fragments(packet, mtu).iter().for_each(|fragment| exits.forward(fragment));
    }
}

/// Cuts a packet without options into fragments of at most `mtu` bytes (RFC 791).
pub fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let field = u16::from_be_bytes([packet[6], packet[7]]);
    let step = (mtu - HEADER) / 8 * 8;
    let pieces = packet[HEADER..].chunks(step);
    let last = pieces.len() - 1;
    let fragment = |(index, piece): (usize, &[u8])| {
        let more = if index < last { 0x2000 } else { field & 0x2000 };
        let offset = (field & 0x1fff) + (index * step / 8) as u16;
        let mut fragment = [&packet[..HEADER], piece].concat();
        let length = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&length.to_be_bytes());
        fragment[6..8].copy_from_slice(&(more | offset).to_be_bytes());
        write_checksum(&mut fragment[..HEADER], 10);
        fragment
    };
    pieces.enumerate().map(fragment).collect()
}

/// Returns the message with which a router refuses a packet that it must not fragment (RFC 1191).
pub fn fragmentation_needed(packet: &[u8], mtu: u16, router: Ipv4Addr) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(548)];
    let mut message = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
    message.extend(router.octets());
    message.extend(&packet[12..16]);
    message.extend([3, 4, 0, 0, 0, 0]);
    message.extend(mtu.to_be_bytes());
    message.extend(quoted);
    let length = message.len() as u16;
    message[2..4].copy_from_slice(&length.to_be_bytes());
    write_checksum(&mut message[..HEADER], 10);
    write_checksum(&mut message[HEADER..], 2);
    message
}

/// Lowers the MSS in a TCP packet that opens a connection to at most `mss`. Returns whether it did.
pub fn clamp_mss(packet: &mut [u8], mss: u16) -> bool {
    const SYN: u8 = 2;
    if !is_ipv4(packet) || packet[9] != TCP || transport(packet).get(13).is_none_or(|flags| flags & SYN == 0)
    {
        return false;
    }
    let header = usize::from(packet[0] & 0x0f) * 4;
    // The MSS is the first option of every SYN that Linux sends.
    let (at, checksum) = (header + 20, header + 16);
    if packet.get(at..at + 2) != Some(&[2, 4]) || u16::from_be_bytes([packet[at + 2], packet[at + 3]]) <= mss
    {
        return false;
    }
    let old = [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
    packet[at + 2..at + 4].copy_from_slice(&mss.to_be_bytes());
    let new = [old[0], old[1], packet[at + 2], packet[at + 3]];
    adjust(packet, checksum, old, new);
    true
}

/// Writes the checksum of RFC 1071 over `bytes` into the two bytes at `at`.
fn write_checksum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 2].fill(0);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 9, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 1, 2];
        packet.extend([0, 7, 0x12, 0x5c, 0, 0, 0x55, 0xaa]);
        packet.extend((0..payload).map(|at| at as u8));
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        write_checksum(&mut packet[..HEADER], 10);
        packet
    }

    fn is_valid(bytes: &[u8], at: usize) -> bool {
        let mut copy = bytes.to_vec();
        write_checksum(&mut copy, at);
        copy == bytes
    }

    #[test]
    fn a_translation_corrects_the_checksums_and_can_be_undone() {
        let (inside, outside) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(203, 0, 113, 7));
        let original = packet(40);
        let mut translated = original.clone();
        assert!(translate(&mut translated, End::Source, inside, outside));
        assert!(is_valid(&translated[..HEADER], 10) && translated[26..28] != original[26..28]);
        assert!(!translate(&mut translated, End::Source, inside, outside));
        assert!(translate(&mut translated, End::Source, outside, inside));
        assert_eq!(translated, original);
        assert_eq!(udp_port(&original), Some(0x125c));
        assert_ne!(flow_hash(&original), 0);
    }

    #[test]
    fn fragments_are_whole_packets_of_all_the_bytes() {
        let whole = packet(1_000);
        let pieces = fragments(&whole, 500);
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.len() <= 500 && is_valid(&piece[..HEADER], 10)));
        assert_eq!(
            pieces.iter().flat_map(|piece| &piece[HEADER..]).copied().collect::<Vec<_>>(),
            whole[HEADER..]
        );
        assert_eq!([&pieces[0], &pieces[1], &pieces[2]].map(|piece| piece[6] >> 5), [1, 1, 0]);
        let refusal = fragmentation_needed(&whole, 500, Ipv4Addr::new(10, 9, 9, 9));
        assert!(is_valid(&refusal[..HEADER], 10) && is_valid(&refusal[HEADER..], 2));
        assert_eq!(refusal[26..28], 500u16.to_be_bytes());
    }
}
