//! TCP sockets with the addresses of other machines, and those that carry their bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::interface::check;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Maximum number of carriers that wait to be accepted.
const CARRIER_BACKLOG: i32 = 16;
/// Silence of a host after which the kernel asks whether it lives, interval between questions, and their
/// number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);
/// Bytes of a carrier that the kernel holds back before they are sent, until [`set_unsent`] changes their
/// number. Later ones wait in the gateway, where streams take turns.
pub const UNSENT: u32 = 128 << 10;
/// Buffers of a carrier in each direction in bytes: a product of rate and round-trip time of half a second at
/// 1 Gbit/s.
const CARRIER_BUFFER: usize = 64 << 20;

/// Length of the parts of `tcp_info` that [`state`] reads.
const INFO_LEN: usize = 160;
// linux/tcp.h: places in `tcp_info`.
const UNACKNOWLEDGED: usize = 24;
const RETRANSMITS: usize = 100;
const PACING_RATE: usize = 104;
const RECEIVED: usize = 128;
const NOT_SENT: usize = 144;
const RTT_MIN: usize = 148;
// linux/tcp_states.h
const TIME_WAIT: u8 = 6;
const CLOSED: u8 = 7;

/// State of a connection in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpState {
    /// Whether nothing is left to be done: both ends have ended it, or one has reset it.
    pub is_over: bool,
    /// Whether the far end has acknowledged all that was handed over.
    pub is_acknowledged: bool,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Shortest round-trip time of late, in microseconds; `None` before the first one.
    pub rtt_min_us: Option<u64>,
    /// Rate at which the kernel would send at present, in bytes a second; `None` if it has no limit.
    pub rate: Option<u64>,
    /// Bytes of the far end that have arrived in order.
    pub received: u64,
}

/// Returns the state of a connection in the kernel.
///
/// # Errors
/// The kernel's error.
pub fn state(stream: &TcpStream) -> io::Result<TcpState> {
    let mut info = [0_u8; INFO_LEN];
    let mut length = INFO_LEN as libc::socklen_t;
    // SAFETY: the buffer is writable memory of that length, and both live through the call.
    check(unsafe {
        let (to, length) = (info.as_mut_ptr().cast(), &raw mut length);
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, length)
    })?;
    Ok(parse_state(&info))
}

/// Reads `tcp_info`. Fields that an older kernel lacks are zero.
fn parse_state(info: &[u8; INFO_LEN]) -> TcpState {
    let number = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let long = |at: usize| info[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let rate = long(PACING_RATE);
    TcpState {
        is_over: matches!(info[0], TIME_WAIT | CLOSED),
        is_acknowledged: number(UNACKNOWLEDGED) == 0 && number(NOT_SENT) == 0,
        retransmits: number(RETRANSMITS).into(),
        rtt_min_us: Some(number(RTT_MIN).into()).filter(|&us| us > 0 && us < u64::from(u32::MAX)),
        rate: Some(rate).filter(|&rate| rate > 0 && rate < u64::from(u32::MAX) << 8),
        received: long(RECEIVED),
    }
}

/// Sets the number of bytes of a carrier that the kernel holds back before they are sent.
///
/// # Errors
/// The kernel's error.
pub fn set_unsent(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}

/// Options of a socket between two gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarrierOptions {
    /// Congestion control, as the kernel names it.
    pub congestion: String,
    /// Time after which a carrier ends whose bytes are not acknowledged.
    pub patience: Duration,
}

/// Listens on the loopback address for connections that a [`Divert`](crate::divert::Divert) hands over. With
/// port 0 the kernel chooses one. Does not block.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`.
pub fn listen(v6: bool, port: u16) -> io::Result<TcpListener> {
    let loopback: IpAddr = if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let address = SocketAddr::new(loopback, port);
    let socket = transparent(address)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Begins to connect to `to` with the address and port `from`, which need not be this machine's. Does not
/// block: the socket becomes writable when the connection is open, or has failed. The connection is reset if
/// this process ends, unless [`settle`] is called.
///
/// # Errors
/// The kernel's error, such as `ENETUNREACH`.
pub fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = transparent(from)?;
    socket.bind(&from.into())?;
    begin(&socket, to)?;
    Ok(socket.into())
}

/// Sets the options of a connection that was accepted, as far as it has not got them from the listener. It is
/// reset if this process ends, unless [`settle`] is called.
///
/// # Errors
/// The kernel's error.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    prepare_socket(&SockRef::from(stream))
}

fn prepare_socket(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    // Urgent data stays in its place in the stream.
    socket.set_out_of_band_inline(true)?;
    let (time, interval, retries) = KEEPALIVE;
    socket
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries))
}

/// Lets the kernel finish a connection of which both directions have ended.
///
/// # Errors
/// The kernel's error.
pub fn settle(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(None)
}

/// Listens for carriers. Does not block.
///
/// # Errors
/// The kernel's error.
pub fn listen_for_carriers(address: SocketAddr, options: &CarrierOptions) -> io::Result<TcpListener> {
    let socket = plain(address)?;
    socket.set_reuse_address(true)?;
    apply(&socket, options)?;
    socket.bind(&address.into())?;
    socket.listen(CARRIER_BACKLOG)?;
    Ok(socket.into())
}

/// Begins to dial a carrier from the address `from` with any port. Does not block.
///
/// # Errors
/// The kernel's error.
pub fn dial(from: IpAddr, to: SocketAddr, options: &CarrierOptions) -> io::Result<TcpStream> {
    let from = SocketAddr::new(from, 0);
    let socket = plain(from)?;
    apply(&socket, options)?;
    socket.bind(&from.into())?;
    begin(&socket, to)?;
    Ok(socket.into())
}

/// Sets the options of a carrier that was accepted, as far as it has not got them from the listener.
///
/// # Errors
/// The kernel's error.
pub fn prepare_carrier(stream: &TcpStream, options: &CarrierOptions) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(options.patience))
}

/// Whether the kernel lets sockets have this congestion control.
///
/// # Errors
/// The kernel's error: `ENOENT` if it does not know the name.
pub fn check_congestion(name: &str) -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?.set_tcp_congestion(name.as_bytes())
}

fn transparent(address: SocketAddr) -> io::Result<Socket> {
    let socket = plain(address)?;
    if address.is_ipv4() {
        socket.set_ip_transparent_v4(true)?;
    } else {
        socket.set_ip_transparent_v6(true)?;
    }
    // A client may use a port for connections with several servers.
    socket.set_reuse_address(true)?;
    // From its first packet on, a connection is reset if this process ends.
    prepare_socket(&socket)?;
    Ok(socket)
}

fn plain(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sets the options that a carrier must have before it connects, because its window depends on them.
fn apply(socket: &Socket, options: &CarrierOptions) -> io::Result<()> {
    socket.set_tcp_congestion(options.congestion.as_bytes())?;
    // Without the privilege, the system's limit holds.
    if setsockopt(socket, RcvBufForce, &CARRIER_BUFFER).is_err() {
        socket.set_recv_buffer_size(CARRIER_BUFFER)?;
    }
    if setsockopt(socket, SndBufForce, &CARRIER_BUFFER).is_err() {
        socket.set_send_buffer_size(CARRIER_BUFFER)?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(options.patience))
}

fn begin(socket: &Socket, to: SocketAddr) -> io::Result<()> {
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn the_kernel_tells_what_is_acknowledged_and_what_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"question").unwrap();
        far.read_exact(&mut [0; 8]).unwrap();
        far.write_all(b"answer").unwrap();
        near.read_exact(&mut [0; 6]).unwrap();
        let open = state(&near).unwrap();
        assert!(!open.is_over && open.is_acknowledged && open.rtt_min_us.is_some(), "{open:?}");
        // Nobody reads: the rest waits in this socket.
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65_536]).is_ok() {}
        assert!(!state(&near).unwrap().is_acknowledged);
        drop(near);
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).unwrap();
        assert!(!state(&far).unwrap().is_over, "this end has not ended it");
        far.shutdown(std::net::Shutdown::Write).unwrap();
        testkit::wait_until("both ends know", || state(&far).unwrap().is_over);
    }

    #[test]
    fn numbers_of_tcp_info_are_read_at_their_places() {
        let mut info = [0; INFO_LEN];
        assert_eq!(parse_state(&info), TcpState { is_acknowledged: true, ..TcpState::default() });
        info[0] = CLOSED;
        let numbers = [
            (RETRANSMITS, 3_u32),
            (RTT_MIN, 50_000),
            (NOT_SENT, 1),
            (PACING_RATE, 125_000_000),
            (RECEIVED, 70_000),
        ];
        for (at, number) in numbers {
            info[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        let expected = TcpState {
            is_over: true,
            is_acknowledged: false,
            retransmits: 3,
            rtt_min_us: Some(50_000),
            rate: Some(125_000_000),
            received: 70_000,
        };
        assert_eq!(parse_state(&info), expected);
        // Neither has been measured.
        info[RTT_MIN..RTT_MIN + 4].fill(0xff);
        info[PACING_RATE..PACING_RATE + 8].fill(0xff);
        let state = parse_state(&info);
        assert_eq!((state.rtt_min_us, state.rate), (None, None));
    }
}
