//! Answers to requests of the far ingress: copies of packets from the [`Cache`], within a budget.

use crate::cache::{Absent, Cache};
use crate::config::Requests;
use crate::counters::Unanswered;
use crate::kept::{FlowEnds, Kept};
use crate::packet::Packet;
use crate::symbol::Symbol;
use crate::wire::Entry;
use foundation::Seq;

/// Answers may take this part of the bytes of the packets protected: 5 %.
const BUDGET_PART: u64 = 20;
/// Maximum number of bytes of answers that are saved up: two copies of the largest request.
const BUDGET_MAX: u64 = 2 * 64 * 1_536;
/// Time for which packets are kept beyond the round trips of two requests, in microseconds.
const KEEP_US: u64 = 100_000;
/// IP protocol number of TCP.
const TCP: u8 = 6;

/// The packets of one egress for which the far ingress may ask, and the means to answer.
pub(crate) struct Answers {
    mode: Requests,
    cache: Cache,
    /// Bytes that answers may have at present, times [`BUDGET_PART`].
    budget: u64,
}

impl Answers {
    /// Keeps packets in at most `bytes` bytes.
    pub(crate) fn new(mode: Requests, bytes: usize) -> Self {
        Self { mode, cache: Cache::new(bytes), budget: 0 }
    }

    /// Changes the packets that are answered for, and the bytes in which they are kept.
    pub(crate) fn reconfigure(&mut self, mode: Requests, bytes: usize) {
        if self.mode != mode {
            *self = Self::new(mode, bytes);
        }
        self.cache.resize(bytes);
    }

    /// Takes the round-trip time, which decides how long packets are kept: the second request for a packet
    /// comes two round trips after it left.
    pub(crate) fn set_rtt(&mut self, rtt_us: Option<u64>) {
        self.cache.set_keep_us(rtt_us.map_or(0, |rtt_us| 5 * rtt_us / 2 + KEEP_US));
    }

    /// Forgets the stream.
    pub(crate) fn restart(&mut self) {
        self.cache.clear();
        self.budget = 0;
    }

    /// Keeps a packet that was protected.
    pub(crate) fn keep(&mut self, now_us: u64, entry: Entry, packet: &Packet<'_>, symbol: &Symbol<'_>) {
        if self.mode == Requests::Off {
            return;
        }
        self.budget = (self.budget + packet.as_slice().len() as u64).min(BUDGET_PART * BUDGET_MAX);
        self.cache.push(now_us, entry, symbol, self.mode == Requests::Udp && is_tcp(packet));
    }

    /// Forgets the packets that have been kept for their time.
    pub(crate) fn expire(&mut self, now_us: u64) {
        self.cache.expire(now_us);
    }

    /// Whether there is a packet to answer with, in a datagram that is `overhead` bytes longer than the
    /// symbol on the link. Returns the budget that it would leave.
    ///
    /// # Errors
    /// The reason why the request stays unanswered.
    pub(crate) fn check(&self, seq: Seq, overhead: usize) -> Result<u64, Unanswered> {
        if self.mode == Requests::Off {
            return Err(Unanswered::Off);
        }
        let len = self.cache.len_of(seq).unwrap_or(0) + overhead;
        let left = self.budget.checked_sub(BUDGET_PART * len as u64).ok_or(Unanswered::Budget)?;
        self.cache.check(seq).map_err(unanswered)?;
        Ok(left)
    }

    /// Returns a packet to answer with, as [`Answers::check`] allows it.
    ///
    /// # Errors
    /// The reason why the request stays unanswered.
    pub(crate) fn answer(&mut self, seq: Seq, overhead: usize) -> Result<(Entry, &[u8]), Unanswered> {
        self.budget = self.check(seq, overhead)?;
        self.cache.answer(seq).map_err(unanswered)
    }

    /// The packets that are kept, by flow, if that `is_wanted`.
    pub(crate) fn kept(&self, now_us: u64, is_wanted: impl Fn(&FlowEnds) -> bool) -> Kept {
        let (bytes_max, keep_us) = self.cache.bounds();
        let mut kept = Kept { bytes_max: bytes_max as u64, keep_us, ..Kept::default() };
        self.cache.iter(now_us).for_each(|cached| kept.add(&cached, &is_wanted));
        kept.finish();
        kept
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.cache.memory_bytes()
    }
}

/// Whether [`Requests::Udp`] excepts a packet.
pub(crate) fn is_tcp(packet: &Packet<'_>) -> bool {
    packet.transport().is_some_and(|(protocol, _)| protocol == TCP)
}

fn unanswered(absent: Absent) -> Unanswered {
    match absent {
        Absent::Gone => Unanswered::Gone,
        Absent::Excluded => Unanswered::Tcp,
        Absent::Answered => Unanswered::Often,
    }
}
