//! Whether first packets of connections come faster than the kernel can keep them.
//!
//! The kernel then answers with cookies and keeps nothing. The packet that completes such a handshake
//! belongs to no socket, so that it would be forwarded to a server that knows nothing of it. While such a
//! flood lasts, connections are better left alone.

use std::fs;

/// Counters of the calling thread's network namespace.
const COUNTERS: &str = "/proc/thread-self/net/netstat";
/// Names of the counters: first packets that met a full queue of a listener.
const FULL: [&str; 2] = ["TCPReqQFullDoCookies", "TCPReqQFullDrop"];

/// The counters at the last look.
#[derive(Debug, Default)]
pub(super) struct Pressure(Option<u64>);

impl Pressure {
    /// Whether a queue was full since the last look. A kernel without the counters is never asked for it.
    pub(super) fn has_risen(&mut self) -> bool {
        let now = fs::read_to_string(COUNTERS).ok().and_then(|text| full(&text));
        let before = std::mem::replace(&mut self.0, now);
        matches!((before, now), (Some(before), Some(now)) if now > before)
    }
}

/// The sum of the counters: a line with names, and one with numbers in the same order.
fn full(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, numbers) = (lines.next()?.split_whitespace(), lines.next()?.split_whitespace());
    let counts = names.zip(numbers).filter(|(name, _)| FULL.contains(name));
    counts.map(|(_, number)| number.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_by_their_names() {
        let text = "TcpExt: SyncookiesSent TCPReqQFullDoCookies Other TCPReqQFullDrop\n\
                    TcpExt: 1 20 300 4000\nIpExt: InNoRoutes\nIpExt: 7\n";
        assert_eq!(full(text), Some(4_020));
        assert_eq!(full("TcpExt: a b\n"), None);
        assert_eq!(full("TcpExt: TCPReqQFullDrop\nTcpExt: x\n"), None);
        assert_eq!(full(""), None);
    }

    #[test]
    fn the_first_look_shows_no_rise() {
        assert!(!Pressure::default().has_risen());
        assert!(fs::read_to_string(COUNTERS).is_ok_and(|text| full(&text).is_some()));
    }
}
