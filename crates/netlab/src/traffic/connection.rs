//! TCP connections between two namespaces, both ends with a named congestion control.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::between::Between;
use super::watch::TICK;
use crate::error::LabError;

/// How long a connection may take to come up: several lost SYNs, each repeated after a second or more.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Settings of both ends of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends<'a> {
    /// Congestion control by its kernel name; `None` for the kernel's default.
    pub(super) congestion: Option<&'a str>,
    /// Port of the listening end; 0 for any.
    pub(super) port: u16,
    /// Receive buffer in bytes; `None` for the kernel's default, which grows.
    pub(super) receive_buffer: Option<usize>,
}

/// Both ends of a connection. Operations time out after a tick; closing an end drops its unsent data.
#[derive(Debug)]
pub(super) struct Connection {
    /// End that connected.
    pub(super) client: TcpStream,
    /// End that listened.
    pub(super) server: TcpStream,
}

impl Connection {
    /// Connects `between.from` to `between.to`.
    pub(super) fn open(between: Between<'_>, ends: Ends<'_>) -> Result<Self, LabError> {
        let listener = between.to.run(|| listen(between, ends))?;
        let address = local_address(&listener)?;
        let client = between.from.run(|| connect(address, ends))?;
        let (server, _) = listener
            .accept()
            .map_err(|e| LabError::system(format!("no connection arrived at {address}"), e))?;
        for end in [&client, &server] {
            if let Some(name) = ends.congestion {
                verify_congestion(end, name)?;
            }
            prepare(end)
                .map_err(|e| LabError::system(format!("cannot prepare a connection to {address}"), e))?;
        }
        Ok(Self { client: client.into(), server: server.into() })
    }
}

/// Listens at `between.to`; waits for a connection have an end.
pub(super) fn listen(between: Between<'_>, ends: Ends<'_>) -> Result<Socket, LabError> {
    let address = SocketAddr::new(between.address, ends.port);
    let socket = tcp_socket(address, ends)?;
    socket
        // connections of an earlier listener have the port too
        .set_reuse_address(true)
        .and_then(|()| socket.bind(&SockAddr::from(address)))
        .and_then(|()| socket.listen(1))
        // this bounds `accept` as well
        .and_then(|()| socket.set_read_timeout(Some(CONNECT_PATIENCE)))
        .map_err(|e| {
            LabError::system(format!("cannot listen on {address} in {:?}", between.to.label()), e)
        })?;
    Ok(socket)
}

pub(super) fn local_address(listener: &Socket) -> Result<SocketAddr, LabError> {
    let address =
        listener.local_addr().map_err(|e| LabError::system("cannot read the port of a listener", e))?;
    address.as_socket().ok_or_else(|| {
        LabError::Invalid("expected an IP address of a TCP listener, saw another kind".to_owned())
    })
}

/// Connects the calling thread's namespace.
pub(super) fn connect(address: SocketAddr, ends: Ends<'_>) -> Result<Socket, LabError> {
    let socket = tcp_socket(address, ends)?;
    socket
        .connect_timeout(&SockAddr::from(address), CONNECT_PATIENCE)
        .map_err(|e| LabError::system(format!("cannot connect to {address}"), e))?;
    Ok(socket)
}

fn tcp_socket(address: SocketAddr, ends: Ends<'_>) -> Result<Socket, LabError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .map_err(|e| LabError::system("cannot make a TCP socket", e))?;
    if let Some(name) = ends.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|e| refused(name, e))?;
    }
    if let Some(bytes) = ends.receive_buffer {
        socket
            .set_recv_buffer_size(bytes)
            .map_err(|e| LabError::system(format!("cannot set a receive buffer of {bytes} bytes"), e))?;
    }
    Ok(socket)
}

/// Returns the error for an unknown algorithm, with the available ones and the place that lists them.
fn refused(name: &str, error: io::Error) -> LabError {
    let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    LabError::system(
        format!("cannot set TCP congestion control {name:?} ({AVAILABLE} offers: {})", available.trim()),
        error,
    )
}

fn verify_congestion(socket: &Socket, wanted: &str) -> Result<(), LabError> {
    let name = socket
        .tcp_congestion()
        .map_err(|e| LabError::system("cannot read back the TCP congestion control", e))?;
    // the kernel pads the name with zeros
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    if name == wanted {
        return Ok(());
    }
    Err(LabError::Invalid(format!("expected TCP congestion control {wanted:?}, saw {name:?} in use")))
}

/// Bounds every operation, and makes a closed connection discard its unsent data, which it would otherwise
/// send for minutes.
pub(super) fn prepare(socket: &Socket) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK))?;
    socket.set_linger(Some(Duration::ZERO))
}
