//! Expressions of rules. Each is a list element with a name and its data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::Bytes;

// linux/netfilter/nf_tables.h
const ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
// enum nft_registers: registers of 16 bytes
const REGISTER: u32 = 1;
const SECOND_REGISTER: u32 = 2;
const VERDICT_REGISTER: u32 = 0;
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const JUMP: i32 = -3;
// linux/netfilter.h
const ACCEPT: u32 = 1;
// enum nft_queue_attributes, enum nft_reject_types, enum nft_reject_inet_code
const QUEUE_BYPASS: u16 = 1;
const REJECT_RESET: u32 = 1;
const REJECT_ICMPX: u32 = 2;
const ICMPX_HOST: u8 = 2;
// enum nft_cmp_ops
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const AT_LEAST: u32 = 5;
// enum nft_meta_keys
const MARK: u32 = 3;
const ARRIVED_BY: u32 = 6;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const VERSION_OF_IP: u32 = 15;
const TRANSPORT: u32 = 16;
const TCP_OPTION: u32 = 1;
const IS_PRESENT: u32 = 1;

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
/// Offsets of the ports in the TCP header.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
/// First port to which programs may bind without a privilege.
const UNPRIVILEGED: u16 = 1_024;
/// Offset of the flags in the TCP header, and four of them.
const FLAGS: u32 = 13;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
/// Whether the socket of a packet is transparent (enum nft_socket_keys).
const IS_TRANSPARENT: u32 = 0;
/// Option of the longest segment (RFC 9293 §3.2).
const SEGMENT_MAX: u8 = 2;
/// Authentication option (RFC 5925).
pub(crate) const AUTHENTICATION: u8 = 29;

fn expression(name: &str, data: &Bytes) -> Bytes {
    Bytes::default().nest(ELEMENT, &Bytes::default().text(NAME, name).nest(DATA, data))
}

fn value(bytes: &[u8]) -> Bytes {
    Bytes::default().bytes(VALUE, bytes)
}

fn meta(key: u32) -> Bytes {
    expression("meta", &Bytes::default().number(1, REGISTER).number(2, key))
}

fn equals(bytes: &[u8]) -> Bytes {
    compare(EQUAL, bytes)
}

fn compare(operator: u32, bytes: &[u8]) -> Bytes {
    expression("cmp", &Bytes::default().number(1, REGISTER).number(2, operator).nest(3, &value(bytes)))
}

/// Loads a value into a register.
fn load(register: u32, bytes: &[u8]) -> Bytes {
    expression("immediate", &Bytes::default().number(1, register).nest(2, &value(bytes)))
}

fn payload(base: u32, offset: u32, length: usize) -> Bytes {
    let place = Bytes::default().number(1, REGISTER).number(2, base);
    expression("payload", &place.number(3, offset).number(4, length as u32))
}

fn mask(bits: &[u8]) -> Bytes {
    let registers = Bytes::default().number(1, REGISTER).number(2, REGISTER);
    let operands = registers.number(3, bits.len() as u32).nest(4, &value(bits));
    expression("bitwise", &operands.nest(5, &value(&vec![0; bits.len()])))
}

/// Matches TCP.
pub(crate) fn tcp() -> Bytes {
    meta(TRANSPORT).chain(equals(&[TCP]))
}

/// Matches the first segment of each side of a connection.
pub(crate) fn syn() -> Bytes {
    let flags = payload(TRANSPORT_HEADER, FLAGS, 1).chain(mask(&[SYN | RST]));
    tcp().chain(flags).chain(equals(&[SYN]))
}

/// Matches the first segment of a connection.
pub(crate) fn first_syn() -> Bytes {
    let flags = payload(TRANSPORT_HEADER, FLAGS, 1).chain(mask(&[FIN | SYN | RST | ACK]));
    tcp().chain(flags).chain(equals(&[SYN]))
}

/// Matches packets to a TCP port.
pub(crate) fn to_port(port: u16) -> Bytes {
    let loaded = payload(TRANSPORT_HEADER, DESTINATION_PORT, size_of::<u16>());
    loaded.chain(equals(&port.to_be_bytes()))
}

/// Matches packets from a TCP port that needs no privilege.
pub(crate) fn from_unprivileged_port() -> Bytes {
    let loaded = payload(TRANSPORT_HEADER, SOURCE_PORT, size_of::<u16>());
    loaded.chain(compare(AT_LEAST, &UNPRIVILEGED.to_be_bytes()))
}

/// Matches packets that arrived by another interface than this one.
///
/// # Panics
/// If the name is too long for an interface.
pub(crate) fn not_arrived_by(interface: &str) -> Bytes {
    let mut name = [0; libc::IFNAMSIZ];
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    meta(ARRIVED_BY).chain(compare(NOT_EQUAL, &name))
}

/// Matches packets of a socket that may have addresses of other machines.
pub(crate) fn of_transparent_socket() -> Bytes {
    let socket = Bytes::default().number(1, IS_TRANSPARENT).number(2, REGISTER);
    expression("socket", &socket).chain(equals(&[1]))
}

/// Hands a packet to the transparent socket of its connection, or to the one that listens on this port of the
/// loopback address. If there is neither, the next rule follows.
pub(crate) fn to_listener(v6: bool, port: u16) -> Bytes {
    let (family, address) = if v6 {
        (u32::from(IPV6), load(REGISTER, &Ipv6Addr::LOCALHOST.octets()))
    } else {
        (u32::from(IPV4), load(REGISTER, &Ipv4Addr::LOCALHOST.octets()))
    };
    let place = Bytes::default().number(1, family).number(2, REGISTER).number(3, SECOND_REGISTER);
    address.chain(load(SECOND_REGISTER, &port.to_be_bytes())).chain(expression("tproxy", &place))
}

/// Marks a packet.
pub(crate) fn set_mark(mark: u32) -> Bytes {
    let set = Bytes::default().number(2, MARK).number(3, REGISTER);
    load(REGISTER, &mark.to_ne_bytes()).chain(expression("meta", &set))
}

/// Ends the chain and those that led to it.
pub(crate) fn accept() -> Bytes {
    let data = Bytes::default().nest(VERDICT, &Bytes::default().number(VERDICT_CODE, ACCEPT));
    expression("immediate", &Bytes::default().number(1, VERDICT_REGISTER).nest(2, &data))
}

/// Matches TCP segments without this option.
pub(crate) fn without_option(kind: u8) -> Bytes {
    let option = Bytes::default().number(1, REGISTER).bytes(2, &[kind]).number(3, 0).number(4, 1);
    expression("exthdr", &option.number(5, IS_PRESENT).number(6, TCP_OPTION)).chain(equals(&[0]))
}

/// Matches packets with this mark.
pub(crate) fn with_mark(mark: u32) -> Bytes {
    meta(MARK).chain(equals(&mark.to_ne_bytes()))
}

/// Hands a packet to the process that has this queue. If none has it, the next chain follows.
pub(crate) fn queue(number: u16) -> Bytes {
    let number = Bytes::default().bytes(1, &number.to_be_bytes()).bytes(2, &1_u16.to_be_bytes());
    expression("queue", &number.bytes(3, &QUEUE_BYPASS.to_be_bytes()))
}

/// The same with the target of iptables, for kernels that have no such expression.
pub(crate) fn queue_by_target(number: u16) -> Bytes {
    // xt_NFQ_info_v3, in the byte order of the machine, with its padding.
    let info = [number, 1, QUEUE_BYPASS, 0].map(u16::to_ne_bytes).concat();
    expression("target", &Bytes::default().text(1, "NFQUEUE").number(2, 3).bytes(3, &info))
}

/// Discards a packet and answers it with a reset.
pub(crate) fn refuse() -> Bytes {
    expression("reject", &Bytes::default().number(1, REJECT_RESET))
}

/// Discards a packet and answers that its destination cannot be reached.
pub(crate) fn unreachable() -> Bytes {
    expression("reject", &Bytes::default().number(1, REJECT_ICMPX).bytes(2, &[ICMPX_HOST]))
}

/// Continues in another chain.
pub(crate) fn jump(chain: &str) -> Bytes {
    let verdict = Bytes::default().number(VERDICT_CODE, JUMP.cast_unsigned()).text(VERDICT_CHAIN, chain);
    let data = Bytes::default().nest(VERDICT, &verdict);
    expression("immediate", &Bytes::default().number(1, VERDICT_REGISTER).nest(2, &data))
}

/// Matches packets from a network.
pub(crate) fn from(network: IpNet) -> Bytes {
    of_network(network, [12, 8])
}

/// Matches packets to a network.
pub(crate) fn to(network: IpNet) -> Bytes {
    of_network(network, [16, 24])
}

/// Matches packets with an address in a network; `offsets` are those of the address in IPv4 and IPv6.
fn of_network(network: IpNet, offsets: [u32; 2]) -> Bytes {
    let prefix = network.prefix_len();
    match network.network() {
        IpAddr::V4(address) => {
            let version = meta(VERSION_OF_IP).chain(equals(&[IPV4]));
            version.chain(address_in(&address.octets(), offsets[0], prefix))
        }
        IpAddr::V6(address) => {
            let version = meta(VERSION_OF_IP).chain(equals(&[IPV6]));
            version.chain(address_in(&address.octets(), offsets[1], prefix))
        }
    }
}

fn address_in(network: &[u8], offset: u32, prefix: u8) -> Bytes {
    let ones = |byte: usize| usize::from(prefix).saturating_sub(8 * byte).min(8);
    let bits: Vec<u8> = (0..network.len()).map(|byte| (0xff00_u16 >> ones(byte)) as u8).collect();
    payload(NETWORK_HEADER, offset, network.len()).chain(mask(&bits)).chain(equals(network))
}

/// Lowers the longest segment that a SYN states.
pub(crate) fn set_segment_max(bytes: u16) -> Bytes {
    let option = Bytes::default().bytes(2, &[SEGMENT_MAX]).number(3, 2).number(4, 2);
    let option = option.number(6, TCP_OPTION).number(7, REGISTER);
    load(REGISTER, &bytes.to_be_bytes()).chain(expression("exthdr", &option))
}
