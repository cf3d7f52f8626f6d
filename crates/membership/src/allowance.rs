//! How many bytes may be spent in a time.

/// An allowance that is earned over time; a quarter of a second's worth can be saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    credit_bytes: u32,
    last_us: u64,
}

impl Allowance {
    /// A full one.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { credit_bytes: per_second / 4, last_us: 0 }
    }

    /// Whether `bytes` could be spent now.
    pub(crate) fn has(&mut self, now_us: u64, per_second: u32, bytes: usize) -> bool {
        let earned = u64::from(per_second).saturating_mul(now_us.saturating_sub(self.last_us)) / 1_000_000;
        if earned > 0 {
            let credit = u64::from(self.credit_bytes).saturating_add(earned).min(u64::from(per_second / 4));
            (self.credit_bytes, self.last_us) = (credit as u32, now_us);
        }
        self.credit_bytes as usize >= bytes
    }

    /// Spends what [`has`](Self::has) said is there.
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes as u32);
    }
}
