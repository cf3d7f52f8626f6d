//! A queue in front of a link.

/// A queue that drops what does not fit.
#[derive(Clone, Debug)]
pub struct LinkQueue {
    /// Nanoseconds that a byte takes.
    pub ns_per_byte: u64,
    /// Length of the queue in bytes.
    pub bytes: u64,
    busy_until_ns: u64,
    /// Packets of hosts that were dropped.
    pub dropped: u64,
    /// Bytes of datagrams of the repair channel that were offered, with their outer headers.
    pub offered: u64,
}

impl LinkQueue {
    pub fn new(mbit_per_s: u64, bytes: u64) -> Self {
        Self { ns_per_byte: 8_000 / mbit_per_s, bytes, busy_until_ns: 0, dropped: 0, offered: 0 }
    }

    /// Returns when a packet or a datagram has left; `None` if it is dropped.
    pub fn offer(&mut self, now_us: u64, bytes: &[u8], is_datagram: bool) -> Option<u64> {
        let len = bytes.len() as u64 + if is_datagram { 28 } else { 0 };
        self.offered += if is_datagram { len } else { 0 };
        let now_ns = now_us * 1_000;
        let waiting_ns = self.busy_until_ns.saturating_sub(now_ns);
        if waiting_ns + len * self.ns_per_byte > self.bytes * self.ns_per_byte {
            self.dropped += u64::from(!is_datagram);
            return None;
        }
        self.busy_until_ns = self.busy_until_ns.max(now_ns) + len * self.ns_per_byte;
        Some(self.busy_until_ns.div_ceil(1_000))
    }
}
