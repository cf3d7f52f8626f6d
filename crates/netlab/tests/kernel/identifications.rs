//! Identifications of packets that enter the emulated link within a super-packet.

use std::os::fd::AsRawFd as _;

use netio::interface::Interface;
use netio::segment;
use netio::tap::{Captured, Tap, TapConfig, TapKind};
use netio::tun::BUFFER_LEN;
use netlab::{Emulator, EmulatorConfig, Namespace, privilege};
use nix::libc;
use simnet::LinkConfig;
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};
use testkit::wait_until;

const INTERFACE: &str = "wan0";
const SEGMENTS: u16 = 5;
const SEGMENT: u16 = 100;
/// Length of the headers of IPv4 and TCP.
const HEADERS: u16 = 40;

/// Returns a super-packet of TCP with "don't fragment", behind its virtio header. Its checksums are left to
/// the link.
fn super_packet(id: u16) -> Vec<u8> {
    const NEEDS_CHECKSUM: u8 = 1;
    const TCP_OVER_IPV4: u8 = 1;
    let mut bytes = vec![NEEDS_CHECKSUM, TCP_OVER_IPV4];
    let (checksum_start, checksum_offset) = (20_u16, 16_u16);
    for field in [HEADERS, SEGMENT, checksum_start, checksum_offset] {
        bytes.extend(field.to_le_bytes());
    }
    let length = HEADERS + SEGMENTS * SEGMENT;
    bytes.extend([0x45, 0]);
    [length, id, 0x4000].iter().for_each(|field| bytes.extend(field.to_be_bytes()));
    bytes.extend([64, 6, 0, 0, 10, 81, 9, 1, 10, 81, 9, 2]);
    bytes.extend([0x1b, 0x59, 0x1b, 0x5a, 0, 0, 0, 9, 0, 0, 0, 9, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    bytes.resize(10 + usize::from(length), 7);
    bytes
}

/// Sends packets with virtio headers by the interface of the calling thread's namespace.
fn send(packets: &[Vec<u8>]) {
    let interface = Interface::open(INTERFACE).unwrap();
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let on: libc::c_int = 1;
    let len = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the value is an int, which lives through the call.
    let set = unsafe {
        let on = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, on, len)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is larger than a sockaddr_ll, of numbers only, and the family is set to match.
    let address = unsafe {
        let address = storage.view_as::<libc::sockaddr_ll>();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        address.sll_ifindex = interface.index().cast_signed();
        SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    for packet in packets {
        socket.send_to(packet, &address).unwrap();
    }
}

/// A count of identifications that wraps reaches 0, which other flows have in all of their packets.
#[test]
fn a_super_packet_whose_identification_is_0_is_cut_into_packets_that_count_on() {
    if !privilege::available_or_skip(
        "a_super_packet_whose_identification_is_0_is_cut_into_packets_that_count_on",
    ) {
        return;
    }
    let [a, b] = ["a", "b"].map(|label| Namespace::create(label).unwrap());
    let config = EmulatorConfig {
        interface: INTERFACE.to_owned(),
        offload: true,
        ..EmulatorConfig::symmetric(LinkConfig::default())
    };
    let _link = Emulator::start(&a, &b, &config).unwrap();
    let tapped = TapConfig {
        interface: INTERFACE.to_owned(),
        incoming_from: vec!["10.81.9.1/32".parse().unwrap()],
        kind: TapKind::Packet,
        ..TapConfig::default()
    };
    let mut tap = b.run(|| Tap::open(&tapped)).unwrap();
    a.run(|| send(&[super_packet(0_u16.wrapping_sub(SEGMENTS)), super_packet(0)]));
    let (mut ids, mut scratch) = (Vec::new(), vec![0; BUFFER_LEN]);
    wait_until("all segments arrive", || {
        tap.drain(100, |captured: Captured<'_>| {
            let cut = segment::cut(captured.packet, &captured.offload, &mut scratch, |packet| {
                ids.push(u16::from_be_bytes([packet[4], packet[5]]));
            });
            cut.unwrap();
        })
        .unwrap();
        ids.len() >= 2 * usize::from(SEGMENTS)
    });
    assert_eq!(ids, [65_531, 65_532, 65_533, 65_534, 65_535, 0, 1, 2, 3, 4]);
}
