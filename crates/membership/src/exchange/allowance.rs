//! A limit on bytes per second.

/// An allowance that grows with time; at most a quarter of a second's worth accumulates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    credit_bytes: u32,
    last_us: u64,
}

impl Allowance {
    /// Returns a full allowance.
    pub(super) fn new(per_second: u32) -> Self {
        Self { credit_bytes: per_second / 4, last_us: 0 }
    }

    /// Adds what has been earned since the last call.
    pub(super) fn refill(&mut self, now_us: u64, per_second: u32) {
        let earned = u64::from(per_second).saturating_mul(now_us.saturating_sub(self.last_us)) / 1_000_000;
        if earned > 0 {
            let credit = u64::from(self.credit_bytes).saturating_add(earned).min(u64::from(per_second / 4));
            (self.credit_bytes, self.last_us) = (credit as u32, now_us);
        }
    }

    /// Returns whether `bytes` may be spent.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.credit_bytes as usize >= bytes
    }

    /// Spends bytes that the allowance [has](Self::has).
    pub(super) fn spend(&mut self, bytes: usize) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes as u32);
    }
}
