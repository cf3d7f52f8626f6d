//! First packets of TCP connections that wait in the kernel until this process has decided about them
//! (NFQUEUE).
//!
//! If the process ends, the kernel drops the packets that wait, which their hosts send again, and later ones
//! go on as if there were no queue.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::interface::{check, check_len};
use crate::netlink::attributes;
use crate::nftables::{Bytes, messages, put_message, verdict};

/// Maximum number of packets that wait; further ones are dropped.
pub const PACKETS_MAX: u32 = 1_024;
/// Bytes of a packet that are read: its headers.
const COPIED: u32 = 128;
/// Size of the buffer for one datagram of the kernel.
const BUFFER_LEN: usize = 1 << 14;
/// `nfgenmsg`: family, version, resource.
const GENERAL: usize = 4;
// linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h
const SUBSYSTEM: u16 = 3 << 8;
const PACKET: u16 = SUBSYSTEM;
const VERDICT: u16 = SUBSYSTEM | 1;
const CONFIG: u16 = SUBSYSTEM | 2;
const COMMAND: u16 = 1;
const PARAMETERS: u16 = 2;
const MAX_LENGTH: u16 = 3;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
const PAYLOAD: u16 = 10;
// linux/netfilter.h
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// Protocol number of TCP.
const TCP: u8 = 6;

/// Number of a packet in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketId(u32);

/// A packet that waits, with the ends that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPacket {
    /// Its number.
    pub id: PacketId,
    /// Its source.
    pub client: SocketAddr,
    /// Its destination.
    pub server: SocketAddr,
}

/// A queue of the kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Queue {
    socket: OwnedFd,
    number: u16,
    buffer: Vec<u8>,
    read: VecDeque<FirstPacket>,
}

/// Whether this process can take queues. Takes one for a moment.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, and others if it lacks queues.
pub fn probe() -> io::Result<()> {
    // A high number, which no gateway of this machine is likely to have.
    Queue::open(u16::MAX).map(drop)
}

impl Queue {
    /// Takes the queue of this number. Does not block.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without `CAP_NET_ADMIN` or if another process has the queue.
    pub fn open(number: u16) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) })?;
        // SAFETY: the descriptor was just opened and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut queue = Self { socket, number, buffer: vec![0; BUFFER_LEN], read: VecDeque::new() };
        queue.configure(&Bytes::default().bytes(COMMAND, &[BIND, 0, 0, 0]))?;
        let parameters = [&COPIED.to_be_bytes()[..], &[COPY_PACKET]].concat();
        queue.configure(&Bytes::default().bytes(PARAMETERS, &parameters).number(MAX_LENGTH, PACKETS_MAX))?;
        Ok(queue)
    }

    fn configure(&mut self, attributes: &Bytes) -> io::Result<()> {
        self.send(CONFIG, libc::NLM_F_ACK, attributes)?;
        let mut result = None;
        // The kernel answers before `send` returns. Packets may come before the answer.
        while result.is_none() {
            result = self.receive()?;
        }
        result.unwrap_or(Ok(()))
    }

    /// Returns the next packet that waits; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self) -> io::Result<Option<FirstPacket>> {
        while self.read.is_empty() {
            match self.receive() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.read.pop_front())
    }

    /// Lets a packet go on, with this mark if there is one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn release(&self, id: PacketId, mark: Option<u32>) -> io::Result<()> {
        let decision = decision(id, ACCEPT);
        self.send(
            VERDICT,
            0,
            &match mark {
                Some(mark) => decision.number(MARK, mark),
                None => decision,
            },
        )
    }

    /// Drops a packet.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn discard(&self, id: PacketId) -> io::Result<()> {
        self.send(VERDICT, 0, &decision(id, DROP))
    }

    fn send(&self, kind: u16, flags: libc::c_int, attributes: &Bytes) -> io::Result<()> {
        let mut message = Vec::new();
        put_message(&mut message, kind, flags, 0, self.number, attributes.as_slice());
        // Without an address, the message goes to the kernel.
        // SAFETY: the bytes are readable memory of that length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        check_len(sent).map(drop)
    }

    /// Reads one datagram of the kernel. Returns its answer to a request, if it has one.
    fn receive(&mut self) -> io::Result<Option<io::Result<()>>> {
        let buffer = &mut self.buffer;
        // SAFETY: the buffer is writable memory of that length.
        let length = check_len(unsafe {
            libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
        })?;
        let (mut answer, mut others) = (None, Vec::new());
        for (kind, body) in messages(&self.buffer[..length]) {
            if kind == libc::NLMSG_ERROR as u16 {
                answer = Some(verdict(body));
            } else if kind == PACKET {
                match parse(body) {
                    (_, Some(packet)) => self.read.push_back(packet),
                    (Some(id), None) => others.push(id),
                    (None, None) => {}
                }
            }
        }
        for id in others {
            self.release(id, None)?;
        }
        Ok(answer)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn decision(PacketId(id): PacketId, decision: u32) -> Bytes {
    Bytes::default().bytes(VERDICT_HEADER, &[decision.to_be_bytes(), id.to_be_bytes()].concat())
}

/// Reads a message about a packet: its number, and its ends if it is TCP.
fn parse(body: &[u8]) -> (Option<PacketId>, Option<FirstPacket>) {
    let (mut id, mut ends) = (None, None);
    for (kind, data) in attributes(body.get(GENERAL..).unwrap_or_default()) {
        match kind {
            PACKET_HEADER => id = data.first_chunk::<4>().map(|bytes| PacketId(u32::from_be_bytes(*bytes))),
            PAYLOAD => ends = ends_of(data),
            _ => {}
        }
    }
    (id, id.zip(ends).map(|(id, (client, server))| FirstPacket { id, client, server }))
}

/// Source and destination of a TCP segment in an IP packet without extension headers.
fn ends_of(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, segment): ([IpAddr; 2], &[u8]) = match packet.first()? >> 4 {
        4 if *packet.get(9)? == TCP => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            ([address(12)?, address(16)?], packet.get(usize::from(packet[0] & 15) * 4..)?)
        }
        6 if *packet.get(6)? == TCP => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            ([address(8)?, address(24)?], packet.get(40..)?)
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes(*segment.get(at..)?.first_chunk::<2>()?));
    Some((SocketAddr::new(addresses[0], port(0)?), SocketAddr::new(addresses[1], port(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_a_segment_are_read_in_both_ip_versions() {
        let mut v4 = vec![0x46, 0, 0, 44, 0, 0, 0, 0, 64, TCP, 0, 0, 10, 1, 0, 2, 10, 2, 0, 3, 1, 1, 1, 0];
        v4.extend([0x9c, 0x40, 0, 80]);
        let expected = ("10.1.0.2:40000".parse().unwrap(), "10.2.0.3:80".parse().unwrap());
        assert_eq!(ends_of(&v4), Some(expected));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
        v6.extend(std::net::Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 2).octets());
        v6.extend(std::net::Ipv6Addr::new(0xfd02, 0, 0, 0, 0, 0, 0, 3).octets());
        v6.extend([0x9c, 0x40, 0, 80]);
        let expected = ("[fd01::2]:40000".parse().unwrap(), "[fd02::3]:80".parse().unwrap());
        assert_eq!(ends_of(&v6), Some(expected));
        for packet in [v4, v6] {
            assert!((0..packet.len()).all(|length| ends_of(&packet[..length]).is_none()));
        }
        assert_eq!(ends_of(&[0x45; 40]), None, "another protocol");
    }

    #[test]
    fn a_message_without_a_segment_has_its_number_all_the_same() {
        let header = [7_u32.to_be_bytes().to_vec(), vec![8, 0, 0]].concat();
        let attributes = Bytes::default().bytes(PACKET_HEADER, &header).bytes(PAYLOAD, &[0x45, 0]);
        let body = [&[0; GENERAL][..], attributes.as_slice()].concat();
        assert_eq!(parse(&body), (Some(PacketId(7)), None));
        for length in 0..body.len() {
            let (_, packet) = parse(&body[..length]);
            assert_eq!(packet, None);
        }
    }
}
