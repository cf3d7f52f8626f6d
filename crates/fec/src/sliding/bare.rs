//! The packets that are in no repair yet.

use super::config::STRIPES_MAX;
use super::rows::Stripe;

/// The oldest packet of each stripe that is in no repair.
#[derive(Debug)]
pub(super) struct Bare {
    stripes: usize,
    /// Number of the packet, and its arrival time.
    oldest: Box<[Option<(u64, u64)>; STRIPES_MAX as usize]>,
}

impl Bare {
    pub(super) fn new(stripes: usize) -> Self {
        Self { stripes, oldest: Box::new([None; STRIPES_MAX as usize]) }
    }

    /// Changes the number of stripes. Each of them then begins with the oldest packet of all.
    pub(super) fn set_stripes(&mut self, stripes: usize) {
        let oldest = self.oldest();
        self.stripes = stripes;
        self.clear();
        self.oldest[..stripes].fill(oldest);
    }

    /// Takes a new packet.
    pub(super) fn on_packet(&mut self, packet: u64, now_us: u64) {
        self.oldest[(packet % self.stripes as u64) as usize].get_or_insert((packet, now_us));
    }

    /// Notes a repair with the newest packets of a stripe.
    pub(super) fn on_repair(&mut self, stripe: Stripe) {
        if stripe == Stripe::ALL {
            self.clear();
        } else {
            self.oldest[stripe.own] = None;
        }
    }

    /// Forgets all packets.
    pub(super) fn clear(&mut self) {
        self.oldest.fill(None);
    }

    /// Number and arrival time of the oldest packet that is in no repair.
    pub(super) fn oldest(&self) -> Option<(u64, u64)> {
        self.oldest[..self.stripes].iter().flatten().min().copied()
    }

    /// The same of a stripe, which is one of those that there are, or the whole stream.
    pub(super) fn oldest_of(&self, stripe: Stripe) -> Option<(u64, u64)> {
        if stripe == Stripe::ALL { self.oldest() } else { self.oldest[stripe.own] }
    }
}
