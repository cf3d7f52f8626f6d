//! Counters of a receiving socket, and the errors that it survives.

use std::io;

/// Datagrams that a socket received, and those that it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveCounts {
    /// Datagrams passed to the caller.
    pub received: u64,
    /// Arrivals that the kernel dropped because the socket's buffer was full. The kernel counts a merged
    /// train once, and reports the count only with the next datagram.
    pub overflowed: u64,
    /// Datagrams dropped because they were addressed to this host alone (group socket).
    pub not_multicast: u64,
    /// Datagrams dropped because they arrived by another interface (group socket).
    pub other_interface: u64,
    /// Arrivals dropped because they or their control messages were truncated.
    pub truncated: u64,
    /// Receives that failed for a passing reason: an interface down, memory short, an ICMP error for a
    /// datagram sent earlier.
    pub failed: u64,
}

impl ReceiveCounts {
    /// Counts a passing error, after which more datagrams may wait, and returns any other.
    pub(super) fn survive(&mut self, received: io::Result<bool>) -> io::Result<bool> {
        received.or_else(|error| {
            if !is_passing(&error) {
                return Err(error);
            }
            self.failed += 1;
            Ok(true)
        })
    }
}

/// Returns whether a socket keeps working after this error.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ECONNREFUSED
                | libc::ECONNRESET
                | libc::EMSGSIZE
                | libc::EACCES
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::ENONET
        )
    )
}
