//! Filter of a socket by the sender's address, a classic BPF program that the kernel runs on every datagram
//! before it takes room in the socket's buffer.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use libc::sock_filter;

use super::options;

// linux/filter.h
const AD_RANDOM: u32 = 0xffff_f000 + 56;
const NET_OFF: u32 = 0xfff0_0000;

const LD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Verdicts: the whole datagram, or nothing of it.
const ACCEPT: u32 = 0x0004_0000;
const REJECT: u32 = 0;

/// Of strangers' datagrams, one in this number passes, so that the owner of the socket learns of them. A
/// power of two.
const STRANGERS: u32 = 16;

/// Lets datagrams from these addresses pass, and few others. It replaces an earlier filter of the socket.
pub(crate) fn accept_from(socket: &impl AsRawFd, is_v4: bool, senders: &[IpAddr]) -> io::Result<()> {
    let mut program = program(is_v4, senders);
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    options::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Removes the filter of a socket, if there is one.
pub(crate) fn accept_all(socket: &impl AsRawFd) {
    // Without a filter the kernel returns an error.
    let _ = options::set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32);
}

fn program(is_v4: bool, senders: &[IpAddr]) -> Vec<sock_filter> {
    let source = if is_v4 { 12 } else { 8 };
    let mut program = Vec::new();
    for sender in senders {
        let words: Vec<u32> = match sender {
            IpAddr::V4(address) if is_v4 => vec![address.to_bits()],
            IpAddr::V6(address) if !is_v4 => {
                address.octets().as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
            }
            // A socket of one family has no senders of the other.
            _ => continue,
        };
        let rest = words.len();
        for (i, word) in words.into_iter().enumerate() {
            // A mismatch jumps over the rest, at most eight instructions.
            let skipped = 2 * (rest - i) - 1;
            program.push(plain(LD_WORD, NET_OFF + source + 4 * i as u32));
            program.push(sock_filter { code: JUMP_EQUAL, jt: 0, jf: skipped as u8, k: word });
        }
        program.push(plain(RETURN, ACCEPT));
    }
    program.push(plain(LD_WORD, AD_RANDOM));
    program.push(plain(AND, STRANGERS - 1));
    program.push(sock_filter { code: JUMP_EQUAL, jt: 0, jf: 1, k: 0 });
    program.push(plain(RETURN, ACCEPT));
    program.push(plain(RETURN, REJECT));
    program
}

fn plain(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program like the kernel, on a datagram from `source`.
    fn run(program: &[sock_filter], source: IpAddr, random: u32) -> bool {
        let mut header = [0; 40];
        match source {
            IpAddr::V4(address) => header[12..16].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => header[8..24].copy_from_slice(&address.octets()),
        }
        let (mut a, mut at) = (0_u32, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LD_WORD if step.k == AD_RANDOM => a = random,
                LD_WORD => {
                    let from = (step.k - NET_OFF) as usize;
                    a = u32::from_be_bytes(header[from..from + 4].try_into().unwrap());
                }
                AND => a &= step.k,
                JUMP_EQUAL => at += usize::from(if a == step.k { step.jt } else { step.jf }),
                RETURN => return step.k > 0,
                code => panic!("unknown instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn peers_pass_and_one_in_sixteen_strangers() {
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        for (is_v4, peers, strangers) in [
            (true, ["10.0.0.1", "10.0.0.2", "192.168.7.1"], ["10.0.0.3", "11.0.0.1", "0.0.0.0"]),
            (false, ["fd00::1", "fd00::2:1", "2001:db8::7"], ["fd00::2", "fd00::1:1", "::"]),
        ] {
            // Addresses of the other family change nothing.
            let senders = [addresses(&peers), addresses(&["1.2.3.4", "fd99::1"])].concat();
            let program = program(is_v4, &senders);
            for random in 0..64 {
                assert!(addresses(&peers).into_iter().all(|peer| run(&program, peer, random)));
                for stranger in addresses(&strangers) {
                    assert_eq!(run(&program, stranger, random), random % 16 == 0);
                }
            }
        }
    }

    #[test]
    fn as_many_peers_as_a_gateway_may_have_fit() {
        let many: Vec<IpAddr> = (0..64_u16).map(|n| std::net::Ipv6Addr::from(u128::from(n)).into()).collect();
        assert!(program(false, &many).len() < 1_000);
    }
}
