//! Answers requests for messages of a feed that is handed out.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use super::feed::Feed;
use super::packet::Request;

/// Maximum number of requests read in one turn.
const REQUESTS_MAX: usize = 256;
/// Room for a request and for enough of a longer datagram to see that it is none.
const ROOM: usize = 64;

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerCounts {
    pub(super) requests: u64,
    pub(super) answered: u64,
    /// Messages in the answers.
    pub(super) messages: u64,
    pub(super) not_kept: u64,
    pub(super) refused: u64,
    pub(super) over_rate: u64,
    pub(super) malformed: u64,
    pub(super) not_sent: u64,
}

/// A socket at which feed handlers request messages.
///
/// An answer is up to 70 times as long as its request, whose source address may be forged. Therefore only
/// handlers in private networks are answered, and in those that the user names, at a limited rate.
pub(super) struct Server {
    socket: UdpSocket,
    allowed: Vec<IpNet>,
    /// Maximum number of answers in a second.
    rate: u32,
    /// The second that is counted, since the start.
    second: u64,
    /// Answers in it.
    in_second: u32,
    answer: Vec<u8>,
    counts: ServerCounts,
}

impl Server {
    pub(super) fn bind(address: SocketAddr, allowed: Vec<IpNet>, rate: u32) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let (answer, counts) = (Vec::new(), ServerCounts::default());
        Ok(Self { socket, allowed, rate, second: 0, in_second: 0, answer, counts })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn counts(&self) -> ServerCounts {
        self.counts
    }

    /// Answers the requests that wait.
    pub(super) fn serve(&mut self, now_us: u64, feed: &Feed) {
        let mut room = [0; ROOM];
        for _ in 0..REQUESTS_MAX {
            // An error that an earlier answer caused, such as a port that nobody has, is read here too.
            let (length, from) = match self.socket.recv_from(&mut room) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => continue,
            };
            match Request::read(&room[..length]) {
                Ok(request) => self.handle(now_us, feed, &request, from),
                Err(_) => self.counts.malformed += 1,
            }
        }
    }

    fn handle(&mut self, now_us: u64, feed: &Feed, request: &Request, from: SocketAddr) {
        self.counts.requests += 1;
        if !self.allows(from.ip()) {
            self.counts.refused += 1;
            return;
        }
        if !self.takes(now_us) {
            self.counts.over_rate += 1;
            return;
        }
        let messages = feed.answer(&mut self.answer, request);
        if messages == 0 {
            self.counts.not_kept += 1;
        } else if self.socket.send_to(&self.answer, from).is_ok() {
            self.counts.answered += 1;
            self.counts.messages += u64::from(messages);
        } else {
            self.counts.not_sent += 1;
        }
    }

    fn allows(&self, ip: IpAddr) -> bool {
        let is_private = match ip {
            IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
        };
        is_private || self.allowed.iter().any(|network| network.contains(&ip))
    }

    /// Returns whether the rate allows another answer.
    fn takes(&mut self, now_us: u64) -> bool {
        let second = now_us / 1_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        let takes = self.in_second < self.rate;
        self.in_second += u32::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_and_a_flood_of_requests_get_no_answers() {
        let mut server =
            Server::bind("127.0.0.1:0".parse().unwrap(), vec!["198.51.100.0/24".parse().unwrap()], 3)
                .unwrap();
        for (ip, allowed) in [
            ("10.1.2.3", true),
            ("127.0.0.1", true),
            ("198.51.100.7", true),
            ("203.0.113.9", false),
            ("fd00::1", true),
        ] {
            assert_eq!(server.allows(ip.parse().unwrap()), allowed, "{ip}");
        }
        let taken: Vec<bool> = (0..5).map(|at| server.takes(at)).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        assert!(server.takes(1_000_000), "a second later");
    }
}
