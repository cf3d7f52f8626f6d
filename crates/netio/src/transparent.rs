//! TCP sockets with the addresses of other machines, and those that carry their bytes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Maximum number of carriers that wait to be accepted.
const CARRIER_BACKLOG: i32 = 16;
/// Silence of a host after which the kernel asks whether it lives, interval between questions, and their
/// number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(10), 6);
/// Bytes of a carrier that the kernel holds back before they are sent. Later ones wait in the gateway, where
/// streams take turns.
const UNSENT: u32 = 128 << 10;
/// Buffers of a carrier in each direction in bytes: a product of rate and round-trip time of half a second at
/// 1 Gbit/s.
const CARRIER_BUFFER: usize = 64 << 20;

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
