//! Socket options for which no other crate has a safe call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::check;

/// Makes a non-blocking, unbound UDP socket of the family of `address`. An IPv6 socket serves IPv6 alone.
pub(crate) fn udp_socket(address: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.cloexec().nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Sets "don't fragment" and ignores path MTU reports: the interface's MTU alone is the limit.
pub(crate) fn forbid_fragments(socket: &Socket, is_v4: bool) -> io::Result<()> {
    if is_v4 {
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_PROBE)
    } else {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_PROBE)
    }
}

/// Lets the kernel merge consecutive datagrams on receive (GRO). Older kernels do not, which only costs time.
pub(crate) fn merge_arrivals(socket: &Socket) {
    let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, &1);
}

/// Returns whether the kernel cuts trains (Linux 4.18). Older kernels would send a train as a single
/// datagram.
pub(crate) fn cuts_trains(socket: &impl AsRawFd) -> bool {
    // zero is the default, so setting it changes nothing
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &0).is_ok()
}

/// Returns the MTU of the route of a connected socket.
pub(crate) fn path_mtu(socket: &impl AsRawFd, is_v4: bool) -> io::Result<u32> {
    let (level, option) =
        if is_v4 { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    u32::try_from(number(socket, level, option)?).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Sets the interface by which multicast leaves.
pub(crate) fn multicast_by(socket: &impl AsRawFd, is_v4: bool, interface: u32) -> io::Result<()> {
    if !is_v4 {
        return set(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &interface.cast_signed());
    }
    let none = libc::in_addr { s_addr: 0 };
    let by = libc::ip_mreqn { imr_multiaddr: none, imr_address: none, imr_ifindex: interface.cast_signed() };
    set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &by)
}

/// Sets the type of service, or traffic class, of datagrams, and their priority in the queues of this machine
/// (`SO_PRIORITY`). For IPv4, the kernel derives the priority from the type of service.
pub(crate) fn set_tos(socket: &Socket, is_v4: bool, tos: u8) -> io::Result<()> {
    let value = libc::c_int::from(tos);
    if is_v4 {
        return set(socket, libc::IPPROTO_IP, libc::IP_TOS, &value);
    }
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value)?;
    set(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority_of(tos))
}

/// Returns the priority that Linux derives from a type of service of IPv4 (`ip_tos2prio` of the kernel,
/// tc-prio(8)).
fn priority_of(tos: u8) -> libc::c_int {
    const BEST_EFFORT: libc::c_int = 0;
    const BULK: libc::c_int = 2;
    const INTERACTIVE_BULK: libc::c_int = 4;
    const INTERACTIVE: libc::c_int = 6;
    match tos & 0x18 {
        0x00 => BEST_EFFORT,
        0x08 => BULK,
        0x10 => INTERACTIVE,
        _ => INTERACTIVE_BULK,
    }
}

/// Lets a socket without memberships receive all groups. IPv6 before Linux 4.20 lacks the option and always
/// does so.
pub(crate) fn hear_all_groups(socket: &Socket, is_v4: bool) -> io::Result<()> {
    let result = if is_v4 { socket.set_multicast_all_v4(true) } else { socket.set_multicast_all_v6(true) };
    match result {
        Err(error) if !is_v4 && error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// Makes the kernel report the type of service, or traffic class, of each datagram.
pub(crate) fn report_tos(socket: &impl AsRawFd, is_v4: bool) -> io::Result<()> {
    if is_v4 {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &1)
    } else {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1)
    }
}

/// Makes the kernel report the time at which it received each datagram. Without it, none seems to have
/// waited.
pub(crate) fn report_arrival(socket: &impl AsRawFd) {
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1);
}

/// Makes the kernel report with each datagram how many the queue dropped before it.
pub(crate) fn report_overflow(socket: &Socket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &1)
}

/// Returns how many datagrams the kernel has dropped at a socket (Linux 4.12): those that found its receive
/// buffer full, and those that its filter refused. A train that the kernel merged counts as one. The counter
/// wraps.
pub(crate) fn dropped(socket: &impl AsRawFd) -> io::Result<u32> {
    const AT: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut numbers = [0_u32; AT + 1];
    let mut len = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the pointers are to numbers and to their size, which outlive the call.
    check(unsafe {
        let numbers = numbers.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, numbers, &raw mut len)
    })?;
    let is_there = len as usize == size_of_val(&numbers);
    if is_there { Ok(numbers[AT]) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// Sets the receive buffer, beyond the machine's limit if permitted, and returns the granted size in the same
/// unit.
pub(crate) fn grow_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<usize> {
    if force_receive_buffer(socket, bytes).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    // The kernel doubles the requested size, to have room for its own records, and reports the double.
    Ok(socket.recv_buffer_size()? / 2)
}

/// Like [`grow_receive_buffer`], for sending.
pub(crate) fn grow_send_buffer(socket: &Socket, bytes: usize) -> io::Result<usize> {
    if force_send_buffer(socket, bytes).is_err() {
        socket.set_send_buffer_size(bytes)?;
    }
    Ok(socket.send_buffer_size()? / 2)
}

/// Sets a receive buffer beyond the machine's limit, which needs `CAP_NET_ADMIN`.
pub(crate) fn force_receive_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer_size(bytes))
}

/// Like [`force_receive_buffer`], for sending.
pub(crate) fn force_send_buffer(socket: &Socket, bytes: usize) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &buffer_size(bytes))
}

/// Limits a buffer size so that the kernel's doubled value fits a C `int`.
fn buffer_size(bytes: usize) -> libc::c_int {
    libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX).min(libc::c_int::MAX / 2)
}

/// Returns the value of an option that is a C `int`.
fn number(socket: &impl AsRawFd, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointers are to a number and to its size, which outlive the call.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// Sets an option; `value` is plain old data of the type that the option's documentation names.
pub(crate) fn set<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer is to a value that outlives the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the priority of a socket of an address after its type of service is set.
    fn priority(address: &str, tos: u8) -> libc::c_int {
        let socket = udp_socket(address.parse().unwrap()).unwrap();
        set_tos(&socket, address.starts_with('0'), tos).unwrap();
        number(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).unwrap()
    }

    #[test]
    fn datagrams_of_ipv6_get_the_priority_that_the_kernel_gives_those_of_ipv4() {
        // Each DSCP, without the two bits of ECN.
        for tos in (0..=u8::MAX).step_by(4) {
            assert_eq!(priority("[::]:0", tos), priority("0.0.0.0:0", tos), "type of service {tos:#x}");
        }
        assert_eq!((priority("[::]:0", 46 << 2), priority("[::]:0", 0)), (4, 0));
    }
}
