//! Filter of the packet socket: a classic BPF program, generated from the networks, that the kernel runs on
//! every packet of the interface.
//!
//! Offsets count from the IP header (`SKF_NET_OFF`), whatever the link header. Forward jumps are short or
//! absolute, so the list of networks may be long; the number of instructions is bounded.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use libc::sock_filter;

use super::config::TapConfig;

/// Maximum length of a program. The kernel accepts 4,096 instructions, but older kernels allow only 20 KiB of
/// memory for them by default.
const INSTRUCTIONS_MAX: usize = 2048;

// linux/filter.h
const AD_OFF: u32 = 0xffff_f000;
const AD_PROTOCOL: u32 = AD_OFF;
const AD_PKTTYPE: u32 = AD_OFF + 4;
const AD_MARK: u32 = AD_OFF + 20;
const NET_OFF: u32 = 0xfff0_0000;

const LD_WORD: u16 = 0x20;
const LD_HALF: u16 = 0x28;
const LD_BYTE: u16 = 0x30;
const LD_HALF_AT_X: u16 = 0x48;
const TAX: u16 = 0x07;
const AND: u16 = 0x54;
const ADD: u16 = 0x04;
const SHIFT_RIGHT: u16 = 0x74;
const SHIFT_LEFT: u16 = 0x64;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;

/// Verdicts: the whole packet, or nothing of it.
const ACCEPT: u32 = 0x0004_0000;
const REJECT: u32 = 0;

const PACKET_MULTICAST: u32 = 2;
const PACKET_OUTGOING: u32 = 4;
const UDP: u32 = 17;

/// Returns the program for packets that leave to or arrive from the tap's networks, or arrive for those of
/// `incoming_to`, except UDP to and from the excluded endpoints, and incoming packets that are passed over.
pub(super) fn program(config: &TapConfig) -> io::Result<Vec<sock_filter>> {
    let TapConfig { outgoing_to, incoming_from, incoming_to, exclude, .. } = config;
    let [sources, destinations] = [Ends { v4: 12, v6: 8, port: 0 }, Ends { v4: 16, v6: 24, port: 2 }];
    let outgoing = section(&[(&destinations, outgoing_to)], exclude);
    let mut incoming = config.pass_over.map_or(Vec::new(), pass_over);
    let arriving: [(&Ends, &[IpNet]); 2] = [(&sources, incoming_from), (&destinations, incoming_to)];
    incoming.extend(section(&arriving, exclude));
    let mut program = protocols();
    program.push(plain(LD_WORD, AD_PKTTYPE));
    program.push(jump_if(JUMP_EQUAL, PACKET_OUTGOING, 0, 1));
    program.push(plain(JUMP, 2 + incoming.len() as u32));
    // Rejects packets for other hosts and the echo of packets that left.
    program.push(jump_if(JUMP_GREATER, PACKET_MULTICAST, 0, 1));
    program.push(plain(RETURN, REJECT));
    program.extend(incoming);
    program.extend(outgoing);
    if program.len() > INSTRUCTIONS_MAX {
        let text = format!(
            "expected networks for a filter of at most {INSTRUCTIONS_MAX} instructions, saw {} for {} networks; list fewer",
            program.len(),
            outgoing_to.len() + incoming_from.len() + incoming_to.len(),
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(program)
}

/// Rejects packets with this mark.
fn pass_over(mark: u32) -> Vec<sock_filter> {
    vec![plain(LD_WORD, AD_MARK), jump_if(JUMP_EQUAL, mark, 0, 1), plain(RETURN, REJECT)]
}

/// Offsets of the far end's address in the IP header and of its port in the UDP header.
struct Ends {
    v4: u32,
    v6: u32,
    port: u32,
}

/// Accepts IP, also if its VLAN tag is in the frame.
fn protocols() -> Vec<sock_filter> {
    vec![
        plain(LD_WORD, AD_PROTOCOL),
        jump_if(JUMP_EQUAL, 0x0800, 4, 0),
        jump_if(JUMP_EQUAL, 0x86dd, 3, 0),
        jump_if(JUMP_EQUAL, 0x8100, 2, 0),
        jump_if(JUMP_EQUAL, 0x88a8, 1, 0),
        plain(RETURN, REJECT),
    ]
}

/// Returns the part for one direction, of which the first ends are the far ones; every path through it ends
/// in a verdict.
fn section(parts: &[(&Ends, &[IpNet])], exclude: &[SocketAddr]) -> Vec<sock_filter> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    if let Some((far, _)) = parts.first() {
        v4 = excluded(exclude.iter().filter(|end| end.is_ipv4()), far);
        v6 = excluded(exclude.iter().filter(|end| end.is_ipv6()), far);
    }
    for (ends, networks) in parts {
        for network in IpNet::aggregate(&networks.to_vec()) {
            let bits = u32::from(network.prefix_len());
            match network.network() {
                IpAddr::V4(address) => v4.extend(prefix(&[address.to_bits()], bits, ends.v4)),
                IpAddr::V6(address) => v6.extend(prefix(&words(IpAddr::V6(address)), bits, ends.v6)),
            }
        }
    }
    v4.push(plain(RETURN, REJECT));
    v6.push(plain(RETURN, REJECT));
    let mut section = vec![
        plain(LD_BYTE, NET_OFF),
        plain(SHIFT_RIGHT, 4),
        jump_if(JUMP_EQUAL, 6, 0, 1),
        plain(JUMP, 2 + v4.len() as u32),
        jump_if(JUMP_EQUAL, 4, 1, 0),
        plain(RETURN, REJECT),
    ];
    section.extend(v4);
    section.extend(v6);
    section
}

/// Accepts an address that begins with these bits; otherwise continues with the next instruction.
fn prefix(address: &[u32], bits: u32, at: u32) -> Vec<sock_filter> {
    let mut tests = Vec::new();
    for (i, word) in address.iter().enumerate() {
        let i = i as u32;
        let bits = bits.saturating_sub(32 * i).min(32);
        if bits == 0 {
            break;
        }
        tests.push(plain(LD_WORD, NET_OFF + at + 4 * i));
        if bits < 32 {
            tests.push(plain(AND, u32::MAX << (32 - bits)));
        }
        tests.push(jump_if(JUMP_EQUAL, *word, 0, 0));
    }
    tests.push(plain(RETURN, ACCEPT));
    // a mismatch jumps over the rest, at most 12 instructions
    let end = tests.len();
    for (i, test) in tests.iter_mut().enumerate() {
        if test.code == JUMP_EQUAL {
            test.jf = (end - i - 1) as u8;
        }
    }
    tests
}

/// Rejects UDP with one of these far ends; otherwise continues with the next instruction.
fn excluded<'e>(exclude: impl Iterator<Item = &'e SocketAddr>, ends: &Ends) -> Vec<sock_filter> {
    let mut all = Vec::new();
    for end in exclude {
        let (address, at, mut test) = match end.ip() {
            ip @ IpAddr::V4(_) => (words(ip), ends.v4, udp4(ends)),
            ip @ IpAddr::V6(_) => (words(ip), ends.v6, udp6(ends)),
        };
        test.push(jump_if(JUMP_EQUAL, u32::from(end.port()), 0, 0));
        for (i, word) in address.iter().enumerate() {
            test.push(plain(LD_WORD, NET_OFF + at + 4 * i as u32));
            test.push(jump_if(JUMP_EQUAL, *word, 0, 0));
        }
        test.push(plain(RETURN, REJECT));
        let end = test.len();
        for (i, step) in test.iter_mut().enumerate() {
            if step.code == JUMP_EQUAL {
                step.jf = (end - i - 1) as u8;
            }
        }
        all.extend(test);
    }
    all
}

/// Loads the far port of an IPv4 UDP packet that is not a fragment.
fn udp4(ends: &Ends) -> Vec<sock_filter> {
    vec![
        plain(LD_BYTE, NET_OFF + 9),
        jump_if(JUMP_EQUAL, UDP, 0, 0),
        plain(LD_HALF, NET_OFF + 6),
        plain(AND, 0x3fff),
        jump_if(JUMP_EQUAL, 0, 0, 0),
        plain(LD_BYTE, NET_OFF),
        plain(AND, 0x0f),
        plain(SHIFT_LEFT, 2),
        plain(ADD, NET_OFF),
        plain(TAX, 0),
        plain(LD_HALF_AT_X, ends.port),
    ]
}

/// Loads the far port of an IPv6 UDP packet.
fn udp6(ends: &Ends) -> Vec<sock_filter> {
    vec![
        plain(LD_BYTE, NET_OFF + 6),
        jump_if(JUMP_EQUAL, UDP, 0, 0),
        plain(LD_HALF, NET_OFF + 40 + ends.port),
    ]
}

fn words(address: IpAddr) -> Vec<u32> {
    match address {
        IpAddr::V4(address) => vec![address.to_bits()],
        IpAddr::V6(address) => {
            address.octets().as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
        }
    }
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump_if(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests;
