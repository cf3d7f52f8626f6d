//! Captures for an operator: what leaves and comes at this gateway, each packet with a comment.
//!
//! A client connects to a socket of its own beside the control socket, states how much it wants, and reads a
//! file in the format pcapng. The main loop hands copies of packets to a thread, by a queue of fixed length.
//! Packets that find the queue full are left out and counted, so that a slow client delays nothing. There is
//! one client at a time. Packets are more secret than counters, so that only root and the user of the gateway
//! get them.

mod comment;
mod pcapng;

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use daemon::control::Control;
use maelstrom_core::counters::{
    Rejected, RejectedCounts, Unforwarded, Uninjected, Unprotected, UnprotectedCounts,
};
use maelstrom_core::outbox::Origin;
use maelstrom_core::{MulticastCounts, PeerConfig};
use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use tracing::{info, warn};

use crate::config::GatewayConfig;
use crate::passive::clock_us;
use crate::status::StatusError;
use comment::{Event, Names};
use pcapng::Pcapng;

/// Interval between looks for a client.
const LOOK_US: u64 = 100_000;
/// Number of packets that wait for the thread.
const QUEUE_MAX: usize = 4_096;
/// Longest wait for the request of a client.
const REQUEST: Duration = Duration::from_secs(2);
/// Longest time in which a client reads nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which packets are written, and at which the thread looks whether the client has left.
const PAUSE: Duration = Duration::from_millis(100);
/// Length of a request in bytes, at most.
const REQUEST_MAX: usize = 64;

/// Bounds of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of packets.
    pub packets: u64,
    /// Maximum number of their bytes.
    pub bytes: u64,
    /// Length in seconds.
    pub seconds: u64,
}

impl Limits {
    /// The most that a gateway grants.
    pub const MAX: Self = Self { packets: 10_000_000, bytes: 4 << 30, seconds: 3_600 };

    fn request(&self) -> String {
        format!("{} {} {}\n", self.packets, self.bytes, self.seconds)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = |max: u64| Some(numbers.next()?.ok()?.min(max));
        let (packets, bytes) = (next(Self::MAX.packets)?, next(Self::MAX.bytes)?);
        Some(Self { packets, bytes, seconds: next(Self::MAX.seconds)? })
    }
}

/// Begins a capture at the gateway of a control socket. The stream ends with the capture.
///
/// # Errors
/// [`StatusError`] if no gateway listens, or it listens to others only.
pub fn begin(control: &Path, limits: &Limits) -> Result<UnixStream, StatusError> {
    let socket = socket(control);
    let path = || socket.display().to_string();
    let connected = UnixStream::connect(&socket);
    let begun = connected.and_then(|mut stream| {
        stream.write_all(limits.request().as_bytes())?;
        Ok(stream)
    });
    begun.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            StatusError::Absent { path: path(), source }
        }
        _ => StatusError::Unreadable { path: path(), source },
    })
}

/// The socket of captures beside a control socket.
fn socket(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".capture");
    path.into()
}

/// The end of captures in the main loop.
#[derive(Debug, Default)]
pub(crate) struct Capturing {
    control: Option<Control>,
    client: Option<Client>,
    next_us: u64,
}

/// The way to the thread that writes for a client.
#[derive(Debug)]
struct Client {
    records: SyncSender<Record>,
    /// Number of packets that found the queue full. The thread has it too, as long as it runs.
    dropped: Arc<AtomicU64>,
}

/// A copy of a packet.
#[derive(Debug)]
struct Record {
    at_us: u64,
    event: Event,
    bytes: Vec<u8>,
}

impl Capturing {
    /// Listens beside the control socket. Without a socket there are no captures, and the gateway works all
    /// the same.
    pub(crate) fn listen(&mut self, control: &Path) {
        let path = socket(control);
        let opened = Control::bind(&path).map_err(io::Error::other);
        let opened = opened.and_then(|control| {
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(control)
        });
        self.control =
            opened.inspect_err(|error| warn!("`undrop gateway capture` will not work: {error}")).ok();
    }

    /// Leaves the place to another process.
    pub(crate) fn abandon(&mut self) {
        if let Some(mut control) = self.control.take() {
            control.abandon();
        }
    }

    /// Begins a capture if a client waits.
    pub(crate) fn look(&mut self, now_us: u64, config: &GatewayConfig) {
        if now_us < self.next_us {
            return;
        }
        self.next_us = now_us + LOOK_US;
        if self.client.as_ref().is_some_and(|client| Arc::strong_count(&client.dropped) == 1) {
            self.client = None;
        }
        let Some(stream) = self.control.as_ref().and_then(Control::accept) else { return };
        if !is_permitted(&stream) || self.client.is_some() {
            return;
        }
        let (records, queue) = mpsc::sync_channel(QUEUE_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let names = Names::of(config);
        let writer =
            Writer { stream, queue, dropped: Arc::clone(&dropped), names, wan: config.wans().join(", ") };
        info!("a capture of packets begins");
        match thread::Builder::new().name("capture".to_owned()).spawn(move || writer.run()) {
            Ok(_) => self.client = Some(Client { records, dropped }),
            Err(error) => warn!("no capture: {error}"),
        }
    }

    /// Ends a capture, because peers change.
    pub(crate) fn end(&mut self) {
        self.client = None;
    }

    /// Whether a client wants packets.
    pub(crate) fn is_active(&self) -> bool {
        self.client.is_some()
    }

    /// Notes a packet that left this site. `before`, `after`: counts of those without protection.
    pub(crate) fn on_left(
        &mut self,
        at_us: u64,
        packet: &[u8],
        before: &UnprotectedCounts,
        after: &UnprotectedCounts,
    ) {
        self.offer(at_us, Event::Left(grown(before, after)), packet);
    }

    /// Notes a packet for the site of a peer in tunnel mode. `before`, `after`: counts of those dropped.
    pub(crate) fn on_tunnelled(
        &mut self,
        at_us: u64,
        packet: &[u8],
        before: &UnprotectedCounts,
        after: &UnprotectedCounts,
    ) {
        self.offer(at_us, Event::Tunnelled(grown(before, after)), packet);
    }

    /// Notes a packet to an IP group that a host of this site has sent. `before`, `after`: counts of its
    /// section, of which none grows if it is only a report about members.
    pub(crate) fn on_heard(
        &mut self,
        at_us: u64,
        packet: &[u8],
        before: &MulticastCounts,
        after: &MulticastCounts,
    ) {
        let grown = |reason: &&Unforwarded| after.dropped.count(**reason) > before.dropped.count(**reason);
        let dropped = Unforwarded::ALL.iter().find(grown).copied();
        if dropped.is_some() || after.forwarded > before.forwarded {
            self.offer(at_us, Event::Heard(dropped), packet);
        }
    }

    /// Notes a packet that arrived from the site of a peer.
    pub(crate) fn on_arrived(&mut self, at_us: u64, packet: &[u8]) {
        self.offer(at_us, Event::Arrived, packet);
    }

    /// Notes a datagram of ours.
    pub(crate) fn on_sent(&mut self, peer: usize, to: SocketAddr, datagram: &[u8]) {
        self.offer(clock_us(), Event::Sent { peer, to }, datagram);
    }

    /// Notes a datagram that arrived, as it was before it was opened. `before`, `after`: counts of those
    /// refused.
    pub(crate) fn on_received(
        &mut self,
        (from, peers): (SocketAddr, &[PeerConfig]),
        datagram: &[u8],
        before: &RejectedCounts,
        after: &RejectedCounts,
    ) {
        let grown = |reason: &&Rejected| after.count(**reason) > before.count(**reason);
        let refused = Rejected::ALL.iter().find(grown).copied();
        let is_at = |peer: &PeerConfig| {
            peer.addresses().any(|address| (address.ip(), address.port()) == (from.ip(), from.port()))
        };
        let peer = peers.iter().position(is_at);
        self.offer(clock_us(), Event::Received { peer, from, refused }, datagram);
    }

    /// Notes a packet of a tunnel, which came or was recovered.
    pub(crate) fn on_handed_on(&mut self, origin: Origin, packet: &[u8], result: Result<(), Uninjected>) {
        if origin.is_recovered {
            self.on_recovered(origin, packet, result);
        } else if self.is_active() {
            self.on_arrived(clock_us(), packet);
        }
    }

    /// Notes a packet that was recovered.
    pub(crate) fn on_recovered(&mut self, origin: Origin, packet: &[u8], result: Result<(), Uninjected>) {
        if self.is_active() {
            let Origin { peer, repair, late_us, .. } = origin;
            let event = Event::Recovered { peer, repair, late_us, refused: result.err() };
            self.offer(clock_us(), event, packet);
        }
    }

    fn offer(&mut self, at_us: u64, event: Event, bytes: &[u8]) {
        let Some(client) = &self.client else { return };
        match client.records.try_send(Record { at_us, event, bytes: bytes.to_vec() }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => _ = client.dropped.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Disconnected(_)) => self.client = None,
        }
    }
}

/// Reason for which one more packet was counted.
fn grown(before: &UnprotectedCounts, after: &UnprotectedCounts) -> Option<Unprotected> {
    let has_grown = |reason: &&Unprotected| after.count(**reason) > before.count(**reason);
    Unprotected::ALL.iter().find(has_grown).copied()
}

/// Whether the client is root, or the user of this process.
pub(crate) fn is_permitted(stream: &UnixStream) -> bool {
    let user = getsockopt(stream, sockopt::PeerCredentials).map(|credentials| credentials.uid());
    user.is_ok_and(|user| user == 0 || user == nix::unistd::geteuid().as_raw())
}

/// The thread that writes for a client.
struct Writer {
    stream: UnixStream,
    queue: Receiver<Record>,
    dropped: Arc<AtomicU64>,
    names: Names,
    wan: String,
}

impl Writer {
    fn run(self) {
        // A client that leaves has what it wanted, or will see that the file ends early.
        let _ = self.write();
    }

    #[allow(clippy::disallowed_methods, reason = "this is no core")]
    fn write(&self) -> io::Result<()> {
        let limits = self.read_request()?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let mut file = Pcapng::begin(BufWriter::with_capacity(1 << 16, &self.stream), &self.wan)?;
        file.flush()?;
        let end = Instant::now() + Duration::from_secs(limits.seconds);
        let (offset_us, mut packets, mut bytes) = (since_1970_us().saturating_sub(clock_us()), 0, 0);
        while packets < limits.packets && bytes < limits.bytes {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.queue.recv_timeout(left.min(PAUSE)) {
                Ok(Record { at_us, event, bytes: copy }) => {
                    let (packet, is_incoming, text) = self.names.describe(&event, &copy);
                    file.packet(at_us.saturating_add(offset_us), &packet, is_incoming, &text)?;
                    packets += 1;
                    bytes += packet.len() as u64;
                }
                Err(RecvTimeoutError::Timeout) if self.has_left() => return Ok(()),
                Err(RecvTimeoutError::Timeout) => file.flush()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        file.end(since_1970_us(), packets + dropped, dropped)
    }

    /// Reads the line with which a client states its limits.
    fn read_request(&self) -> io::Result<Limits> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(REQUEST))?;
        let (mut line, mut length) = ([0; REQUEST_MAX], 0);
        while !line[..length].contains(&b'\n') {
            match (&self.stream).read(&mut line[length..])? {
                0 => break,
                read => length += read,
            }
        }
        let limits = std::str::from_utf8(&line[..length]).ok().and_then(Limits::parse);
        limits.ok_or_else(|| io::Error::other("expected three numbers"))
    }

    /// Whether the client has closed its end.
    fn has_left(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.stream.as_raw_fd(), &mut [0], flags) == Ok(0)
    }
}

/// Microseconds since 1970, by the clock of the machine.
#[allow(clippy::disallowed_methods, reason = "this is no core: a capture states the time of day")]
fn since_1970_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_bounded() {
        let limits = Limits { packets: 5, bytes: 6, seconds: 7 };
        assert_eq!(Limits::parse(&limits.request()), Some(limits));
        let all = Limits { packets: u64::MAX, bytes: u64::MAX, seconds: u64::MAX };
        assert_eq!(Limits::parse(&all.request()), Some(Limits::MAX));
        for wrong in ["", "1 2", "1 2 x", "-1 2 3"] {
            assert_eq!(Limits::parse(wrong), None, "{wrong}");
        }
    }

    /// Ends of a capture, as the main loop and a client have them.
    fn capturing() -> (Capturing, UnixStream) {
        let (client, stream) = UnixStream::pair().unwrap();
        let (records, queue) = mpsc::sync_channel(QUEUE_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let names = Names::empty();
        let writer = Writer { stream, queue, dropped: Arc::clone(&dropped), names, wan: "wan0".to_owned() };
        thread::spawn(move || writer.run());
        let client_end = Some(Client { records, dropped });
        (Capturing { client: client_end, ..Capturing::default() }, client)
    }

    #[test]
    fn a_client_that_reads_slowly_delays_nothing_and_what_it_misses_is_counted() {
        let (mut capturing, mut client) = capturing();
        client.write_all(Limits::MAX.request().as_bytes()).unwrap();
        let packet = [0x45; 1_400];
        let all = 3 * QUEUE_MAX as u64;
        // The client reads nothing meanwhile, and the queue and the socket hold less than all of this.
        for at_us in 0..all {
            capturing.on_arrived(at_us, &packet);
        }
        let dropped = capturing.client.as_ref().unwrap().dropped.load(Ordering::Relaxed);
        assert!(dropped > 0 && dropped < all, "{dropped} of {all}");
        capturing.end();
        let mut file = Vec::new();
        client.read_to_end(&mut file).unwrap();
        let counts = [all, dropped].map(u64::to_le_bytes);
        let end = &file[file.len() - 4 - 4 - 2 * 12..];
        assert_eq!([&end[4..12], &end[16..24]], [&counts[0][..], &counts[1]]);
    }

    #[test]
    fn a_capture_ends_at_its_limits_and_when_the_client_leaves() {
        let (mut capturing, mut client) = capturing();
        let limits = Limits { packets: 10, ..Limits::MAX };
        client.write_all(limits.request().as_bytes()).unwrap();
        (0..10).for_each(|at_us| capturing.on_arrived(at_us, &[0x45; 20]));
        client.read_to_end(&mut Vec::new()).unwrap();
        let is_over = |capturing: &Capturing| {
            capturing.client.as_ref().is_none_or(|client| Arc::strong_count(&client.dropped) == 1)
        };
        testkit::wait_until("the thread ends", || is_over(&capturing));
        let (capturing, mut client) = self::capturing();
        client.write_all(Limits::MAX.request().as_bytes()).unwrap();
        // The thread has written the head of the file, and waits for packets.
        client.read_exact(&mut [0; 48]).unwrap();
        drop(client);
        testkit::wait_until("the thread ends", || is_over(&capturing));
    }
}
