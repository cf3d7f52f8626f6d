//! UDP packets at a steady rate, with their delays, losses and duplicates.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use socket2::SockRef;

use super::between::Between;
use super::pattern::Pattern;
use super::watch::{Stop, TICK, Watcher, is_timeout, micros, sleep_until, watch};
use crate::clock::now_us;
use crate::error::LabError;

/// Length of sequence number and time of sending, 8 bytes each, big-endian.
const HEADER_BYTES: usize = 16;

/// Maximum payload of a UDP packet over IPv4.
const PAYLOAD_BYTES_MAX: usize = 65_507;

/// Maximum number of packets in one stream.
const PACKETS_MAX: u64 = 50_000_000;

/// Requested receive buffer, so that a late receiver does not lose packets that the link carried.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Time by which a sender must be late to count as one that had no processor.
const OVERDUE_US: u64 = 50_000;

/// Longest time by which such waits prolong a stream.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Settings of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpStream {
    /// Rate of sending.
    pub pace: Pace,
    /// Bytes of payload, 16 to 65,507.
    pub payload_bytes: usize,
    /// Whether all packets have the same payload, like a heartbeat. Then only the order of arrival is known.
    pub identical: bool,
    /// Time of sending.
    pub duration: Duration,
    /// How long to wait for packets in flight after the last one was sent.
    pub patience: Duration,
}

impl Default for UdpStream {
    fn default() -> Self {
        Self {
            pace: Pace::Bits(10e6),
            payload_bytes: 1250,
            identical: false,
            duration: Duration::from_secs(10),
            patience: Duration::from_secs(1),
        }
    }
}

/// Rate of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Payload in bit/s.
    Bits(f64),
    /// Packets per second.
    Packets(f64),
}

/// Result of a UDP stream. Times are in microseconds since the first packet was sent.
#[derive(Clone, Debug, Default)]
pub struct UdpReport {
    /// Sending time of each packet.
    pub sent_us: Vec<u64>,
    /// Latency of each packet, or `None` if it did not arrive. Empty if all packets are identical.
    pub latencies_us: Vec<Option<u64>>,
    /// Arrival times, in order, including duplicates.
    pub arrived_us: Vec<u64>,
    /// Packets that arrived more than once; if all are identical, those beyond the number sent.
    pub duplicates: u64,
    /// Packets that arrived with content that was never sent.
    pub altered: u64,
}

impl UdpReport {
    /// Returns the number of packets that never arrived. Of identical ones, the number too few, which a
    /// duplicate may hide.
    pub fn missing(&self) -> usize {
        if self.latencies_us.is_empty() {
            return self.sent_us.len().saturating_sub(self.arrived_us.len());
        }
        self.latencies_us.iter().filter(|latency| latency.is_none()).count()
    }

    /// Returns the latencies of the arrived packets in microseconds, in ascending order.
    pub fn sorted_latencies_us(&self) -> Vec<u64> {
        let mut latencies: Vec<u64> = self.latencies_us.iter().flatten().copied().collect();
        latencies.sort_unstable();
        latencies
    }
}

/// Sends UDP packets at a steady rate and reports the fate of each.
///
/// # Errors
/// If a socket cannot be made, or a number is out of range.
pub fn udp_stream(
    between: Between<'_>,
    plan: &UdpStream,
    watcher: Watcher<'_>,
) -> Result<UdpReport, LabError> {
    let interval_us = check(plan)?;
    let receiver = between.to.run(|| open_receiver(between))?;
    let address =
        receiver.local_addr().map_err(|e| LabError::system("cannot read the port of a socket", e))?;
    let sender = between.from.run(|| open_sender(address))?;
    let arrived = AtomicU64::new(0);
    Stream { sender, receiver, plan, interval_us, pattern: Pattern::new(), arrived }.run(watcher)
}

/// Returns the time between two packets in microseconds.
fn check(plan: &UdpStream) -> Result<f64, LabError> {
    if !(HEADER_BYTES..=PAYLOAD_BYTES_MAX).contains(&plan.payload_bytes) {
        return Err(LabError::Invalid(format!(
            "expected payloads of {HEADER_BYTES} to {PAYLOAD_BYTES_MAX} bytes, saw {}",
            plan.payload_bytes
        )));
    }
    let rate_hz = match plan.pace {
        Pace::Bits(bits) => bits / (plan.payload_bytes as f64 * 8.0),
        Pace::Packets(packets) => packets,
    };
    if !(rate_hz > 0.0 && rate_hz * plan.duration.as_secs_f64() <= PACKETS_MAX as f64) {
        return Err(LabError::Invalid(format!(
            "expected a rate above 0 and at most {PACKETS_MAX} packets, saw {rate_hz} per second for {:?}",
            plan.duration
        )));
    }
    Ok(1e6 / rate_hz)
}

fn open_receiver(between: Between<'_>) -> Result<UdpSocket, LabError> {
    let address = SocketAddr::new(between.address, 0);
    let open = || {
        let socket = UdpSocket::bind(address)?;
        // Beyond the machine's limit if permitted, otherwise up to the limit.
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_BYTES).is_err() {
            SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        }
        socket.set_read_timeout(Some(TICK))?;
        Ok(socket)
    };
    open().map_err(|e: io::Error| {
        LabError::system(format!("cannot receive UDP on {address} in {:?}", between.to.label()), e)
    })
}

fn open_sender(to: SocketAddr) -> Result<UdpSocket, LabError> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let open = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.set_write_timeout(Some(TICK))?;
        Ok(socket)
    };
    open().map_err(|e: io::Error| LabError::system(format!("cannot send UDP to {to}"), e))
}

struct Stream<'a> {
    sender: UdpSocket,
    receiver: UdpSocket,
    plan: &'a UdpStream,
    interval_us: f64,
    pattern: Pattern,
    /// Number of arrived packets, including duplicates.
    arrived: AtomicU64,
}

/// A packet as received.
struct Arrival {
    at_us: u64,
    /// `None` if it is not a packet of this stream.
    content: Option<Content>,
}

enum Content {
    Identical,
    Numbered { sequence: u64, sent_us: u64 },
}

impl Stream<'_> {
    fn run(&self, watcher: Watcher<'_>) -> Result<UdpReport, LabError> {
        let broke = |e| LabError::system("the UDP stream broke", e);
        let resume = |panic| std::panic::resume_unwind(panic);
        let stop = &Stop::default();
        let start_us = now_us();
        let patience_us = micros(self.plan.patience);
        let end_us = start_us + micros(self.plan.duration) + micros(LATE_MAX) + patience_us;
        thread::scope(|scope| {
            let stopper = stop.on_drop();
            let sender = scope.spawn(move || self.send(start_us, stop));
            let ended_us = Cell::new(None);
            let receiver = scope.spawn(move || self.receive(stop));
            let received = || self.arrived.load(Ordering::Relaxed) * self.plan.payload_bytes as u64;
            let is_over = || {
                if sender.is_finished() && ended_us.get().is_none() {
                    ended_us.set(Some(now_us()));
                }
                stop.is_set() || ended_us.get().is_some_and(|ended_us| now_us() >= ended_us + patience_us)
            };
            watch(start_us, end_us, watcher, received, is_over);
            drop(stopper);
            let sent_us = sender.join().unwrap_or_else(resume).map_err(broke)?;
            let arrivals = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(report(&sent_us, &arrivals.map_err(broke)?, self.plan.identical))
        })
    }

    /// Sends all packets, and returns the sending time of each. A sender that had no processor for a while
    /// goes on at its pace, because a burst of what is overdue would overflow the link.
    fn send(&self, start_us: u64, stop: &Stop) -> io::Result<Vec<u64>> {
        let count = (micros(self.plan.duration) as f64 / self.interval_us) as u64;
        let mut sent_us = Vec::new();
        let mut payload = Vec::with_capacity(self.plan.payload_bytes);
        let mut start_us = start_us;
        for sequence in 0..count {
            let due_us = start_us + (sequence as f64 * self.interval_us) as u64;
            if !sleep_until(due_us, stop) {
                break;
            }
            let now = now_us();
            if now > due_us + OVERDUE_US {
                start_us += now - due_us;
            }
            self.compose(&mut payload, sequence, now);
            match self.sender.send(&payload) {
                // The sender's queue is full, or an ICMP error concerns an earlier packet: this packet counts
                // as sent and lost.
                Ok(_) => {}
                Err(e) if is_timeout(&e) || e.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(e) if e.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32) => {}
                Err(e) => {
                    stop.set();
                    return Err(e);
                }
            }
            sent_us.push(now);
        }
        Ok(sent_us)
    }

    fn compose(&self, payload: &mut Vec<u8>, sequence: u64, now: u64) {
        payload.clear();
        if self.plan.identical {
            payload.extend_from_slice(&self.pattern.at(0)[..self.plan.payload_bytes]);
            return;
        }
        payload.extend_from_slice(&sequence.to_be_bytes());
        payload.extend_from_slice(&now.to_be_bytes());
        payload.extend_from_slice(&self.pattern.at(sequence)[..self.plan.payload_bytes - HEADER_BYTES]);
    }

    /// Receives until the stream stops and nothing is left in the kernel.
    fn receive(&self, stop: &Stop) -> io::Result<Vec<Arrival>> {
        let mut arrivals = Vec::new();
        let mut buffer = vec![0; PAYLOAD_BYTES_MAX];
        while arrivals.len() as u64 <= 2 * PACKETS_MAX {
            let is_last = stop.is_set();
            match self.receiver.recv(&mut buffer) {
                Ok(length) => {
                    arrivals.push(Arrival { at_us: now_us(), content: self.parse(&buffer[..length]) });
                    self.arrived.store(arrivals.len() as u64, Ordering::Relaxed);
                }
                Err(e) if is_timeout(&e) && is_last => break,
                Err(e) if is_timeout(&e) => {}
                Err(e) => {
                    stop.set();
                    return Err(e);
                }
            }
        }
        Ok(arrivals)
    }

    fn parse(&self, payload: &[u8]) -> Option<Content> {
        if payload.len() != self.plan.payload_bytes {
            return None;
        }
        if self.plan.identical {
            return self.pattern.first_mismatch(0, payload).is_none().then_some(Content::Identical);
        }
        let (sequence, rest) = payload.split_first_chunk()?;
        let (sent_us, body) = rest.split_first_chunk()?;
        let (sequence, sent_us) = (u64::from_be_bytes(*sequence), u64::from_be_bytes(*sent_us));
        self.pattern
            .first_mismatch(sequence, body)
            .is_none()
            .then_some(Content::Numbered { sequence, sent_us })
    }
}

fn report(sent_us: &[u64], arrivals: &[Arrival], identical: bool) -> UdpReport {
    let first_us = sent_us.first().copied().unwrap_or(0);
    let mut report = UdpReport {
        sent_us: sent_us.iter().map(|sent| sent - first_us).collect(),
        latencies_us: if identical { Vec::new() } else { vec![None; sent_us.len()] },
        ..UdpReport::default()
    };
    for arrival in arrivals {
        match arrival.content {
            None => {
                report.altered += 1;
                continue;
            }
            Some(Content::Identical) => {}
            Some(Content::Numbered { sequence, sent_us: stamp }) => {
                let index = usize::try_from(sequence).unwrap_or(usize::MAX);
                if sent_us.get(index) != Some(&stamp) {
                    report.altered += 1;
                    continue;
                }
                match &mut report.latencies_us[index] {
                    Some(_) => report.duplicates += 1,
                    latency => *latency = Some(arrival.at_us.saturating_sub(stamp)),
                }
            }
        }
        report.arrived_us.push(arrival.at_us.saturating_sub(first_us));
    }
    if identical {
        report.duplicates = report.arrived_us.len().saturating_sub(sent_us.len()) as u64;
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(at_us: u64, sequence: u64, sent_us: u64) -> Arrival {
        Arrival { at_us, content: Some(Content::Numbered { sequence, sent_us }) }
    }

    #[test]
    fn lost_late_duplicated_and_altered_packets_are_distinguished() {
        let arrivals = [
            numbered(1500, 0, 1000),
            numbered(3100, 2, 3000),
            numbered(3200, 2, 3000),
            Arrival { at_us: 3300, content: None },
            numbered(3400, 1, 2999),
            numbered(3500, 77, 3000),
        ];
        let report = report(&[1000, 2000, 3000], &arrivals, false);
        assert_eq!(report.sent_us, [0, 1000, 2000]);
        assert_eq!(report.latencies_us, [Some(500), None, Some(100)]);
        assert_eq!(report.arrived_us, [500, 2100, 2200]);
        assert_eq!((report.duplicates, report.altered, report.missing()), (1, 3, 1));
        assert_eq!(report.sorted_latencies_us(), [100, 500]);
    }

    #[test]
    fn only_the_number_of_identical_packets_is_known() {
        let arrival = |at_us| Arrival { at_us, content: Some(Content::Identical) };
        let fewer = report(&[10, 20, 30], &[arrival(40), arrival(50)], true);
        assert_eq!((fewer.missing(), fewer.duplicates), (1, 0));
        assert_eq!(fewer.arrived_us, [30, 40]);
        let more = report(&[10], &[arrival(40), arrival(50)], true);
        assert_eq!((more.missing(), more.duplicates), (0, 1));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for plan in [
            UdpStream { payload_bytes: 15, ..UdpStream::default() },
            UdpStream { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..UdpStream::default() },
            UdpStream { pace: Pace::Bits(0.0), ..UdpStream::default() },
            UdpStream { pace: Pace::Packets(f64::INFINITY), ..UdpStream::default() },
        ] {
            assert!(matches!(check(&plan), Err(LabError::Invalid(_))), "{plan:?}");
        }
        assert!((check(&UdpStream::default()).unwrap() - 1000.0).abs() < 0.01);
    }
}
