//! Accounts of packets that may have been delivered twice, and the loss of repairs that excuses them.
//!
//! An account rises by one with each missing packet. It falls with each lost repair by the number of packets
//! that the link may have lost meanwhile, and with each arrival by 1/1024. Without losses on the link, at
//! most one packet in 1,024 is therefore delivered twice in the long run, whatever share of the packets takes
//! another path. On a link that loses packets and repairs alike, the account stays near zero.

/// One packet. Accounts count in fractions of it.
pub(super) const ONE: i64 = 1024;

/// Largest level, so that an account can recover from a long time of doubt.
const LEVEL_MAX: i64 = 1024 * ONE;
/// Largest credit, for the packets of an outage.
const CREDIT_MAX: i64 = 4096 * ONE;

/// A bounded balance of missing packets against excuses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    level: i64,
}

impl Account {
    /// Raises the level; lowers it if `amount` is negative.
    pub(super) fn charge(&mut self, amount: i64) {
        self.level = (self.level + amount).clamp(-CREDIT_MAX, LEVEL_MAX);
    }

    /// Lowers the level for an arrival. Arrivals earn no credit in advance.
    pub(super) fn credit_arrival(&mut self) {
        if self.level > 0 {
            self.level -= ONE / 1024;
        }
    }

    /// Lets credit expire: a lost repair excuses the losses of about the same time. Must be called ten times
    /// a second.
    pub(super) fn forget_credit(&mut self) {
        if self.level < 0 {
            self.level -= self.level.div_euclid(32);
        }
    }

    /// Lowers the level to this one if it is higher.
    pub(super) fn limit(&mut self, level: i64) {
        self.level = self.level.min(level);
    }

    pub(super) fn level(&self) -> i64 {
        self.level
    }
}

/// Number of sealed datagrams without a loss after which the link counts as lossless.
const LOSSLESS: u64 = 1 << 14;
/// Number of average runs without a lost repair that one run in 8,000 exceeds.
const CERTAIN: i64 = 9;
/// The same of one run in 150, before a repair was lost.
const UNLOST: i64 = 5;
/// Number of datagrams over which the ratio of packets to datagrams is averaged.
const RATIO_SPAN: u64 = 2048;

/// The loss of sealed datagrams, most of which are repairs, by gaps in their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepairLoss {
    /// Number of the next datagram of this epoch.
    next: u64,
    epoch: Option<u32>,
    /// Datagrams since the last loss, if there was one.
    since_loss: Option<u64>,
    /// Packets named, and datagrams sent, during the present span.
    named: u64,
    sealed: u64,
    /// Those of these datagrams that were lost.
    lost: u64,
    /// Highest number of packets for each datagram lately, in units of [`ONE`].
    each_max: i64,
}

impl RepairLoss {
    /// Starts with the repairs of a new session. Whether the link has lost repairs lately remains known.
    pub(super) fn restart(&mut self) {
        *self = Self { since_loss: self.since_loss, ..Self::default() };
    }

    /// Counts a packet that a repair named.
    pub(super) fn on_named(&mut self) {
        self.named += 1;
    }

    /// Notes a datagram. Returns the number of datagrams lost before it; -1 for one that had counted as lost.
    pub(super) fn on_sealed(&mut self, epoch: u32, counter: u64) -> i64 {
        if self.epoch.replace(epoch) != Some(epoch) {
            // A renewed session counts from 0 again, and datagrams of the earlier one may be in flight.
            self.next = counter;
        }
        if counter < self.next {
            self.lost = self.lost.saturating_sub(1);
            return -1;
        }
        let lost = counter - self.next;
        self.next = counter + 1;
        self.sealed = self.sealed.saturating_add(lost).saturating_add(1);
        self.lost = self.lost.saturating_add(lost);
        if self.sealed > RATIO_SPAN {
            (self.named, self.sealed, self.lost) = (self.named / 2, self.sealed / 2, self.lost / 2);
        }
        self.each_max = self.packets_each().max(self.each_max - self.each_max / 512);
        self.since_loss = match self.since_loss {
            _ if lost > 0 => Some(0),
            Some(since) if since < LOSSLESS => Some(since + 1),
            _ => None,
        };
        lost.try_into().unwrap_or(i64::MAX >> 32).min(i64::MAX >> 32)
    }

    /// Number of packets for each datagram, in units of [`ONE`].
    fn packets_each(&self) -> i64 {
        let ratio = (self.named + 8) * ONE as u64 / (self.sealed + 8);
        (ratio as i64).clamp(ONE / 8, 64 * ONE)
    }

    /// Number of datagrams that are lost for each one that arrives, in units of [`ONE`].
    pub(super) fn odds(&self) -> i64 {
        let lost = self.lost.min(4 * RATIO_SPAN);
        let arrived = self.sealed.saturating_sub(self.lost).clamp(8, RATIO_SPAN);
        (lost * ONE as u64 / arrived) as i64
    }

    /// Number of missing packets that one lost datagram explains, in units of [`ONE`]: three times as many as
    /// are lost on average if packets and repairs are lost alike, and at least one.
    pub(super) fn explains(&self) -> i64 {
        (3 * self.packets_each()).max(ONE)
    }

    /// Level at which an account shows that packets take another path. If repairs are lost now and then, a
    /// run of packets is by chance lost without any, and the level allows for one such run in 8,000.
    pub(super) fn limit(&self) -> i64 {
        let runs = if self.has_lost() { CERTAIN } else { UNLOST };
        self.runs(runs)
    }

    /// Level that an account hardly reaches by chance, whether or not repairs were lost.
    pub(super) fn certain(&self) -> i64 {
        self.runs(CERTAIN)
    }

    /// Whether repairs have been lost lately.
    pub(super) fn has_lost(&self) -> bool {
        self.since_loss.is_some()
    }

    /// An account may stem from a time of fewer repairs.
    fn runs(&self, runs: i64) -> i64 {
        (runs * self.packets_each().max(self.each_max)).max(8 * ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// Returns the highest level, by its limit, of a link that loses packets and repairs as told, with `each`
    /// packets for a repair.
    fn highest(packet_loss: f64, repair_loss: f64, each: u64, packets: u64) -> f64 {
        let (mut account, mut repairs, mut random) = (Account::default(), RepairLoss::default(), Random(3));
        let mut chance = |p: f64| (random.below(1 << 20) as f64) < p * f64::from(1 << 20);
        let mut highest = 0.0_f64;
        for n in 0..packets {
            repairs.on_named();
            if chance(packet_loss) {
                account.charge(ONE);
            } else {
                account.credit_arrival();
            }
            if n % each == 0 && !chance(repair_loss) {
                let explains = repairs.explains();
                account.charge(-repairs.on_sealed(1, n / each) * explains);
            }
            if n % 100 == 0 {
                account.forget_credit();
            }
            highest = highest.max(account.level() as f64 / repairs.limit() as f64);
        }
        highest
    }

    #[test]
    fn losses_that_repairs_share_stay_below_the_limit() {
        for loss in [0.001, 0.01, 0.1, 0.3] {
            for each in [1, 3, 8] {
                // A first run may exceed the limit, which lies lower until a repair is lost.
                let highest = highest(loss, loss, each, 100_000);
                assert!(highest < 2.5, "loss {loss}, {each} packets each: {highest}");
            }
        }
    }

    #[test]
    fn losses_that_no_repair_shares_exceed_it() {
        for loss in [0.01, 0.1, 0.5, 1.0] {
            for each in [1, 3, 8] {
                let packets = (30.0 * each as f64 / loss) as u64;
                assert!(highest(loss, 0.0, each, packets) > 1.0, "loss {loss}, {each} packets each");
            }
        }
        assert!(highest(0.5, 0.01, 3, 1_000) > 1.0, "a detour beside some loss");
        assert!(highest(0.0005, 0.0, 3, 100_000) < 1.0, "fewer than one in 1,024");
    }

    #[test]
    fn an_outage_excuses_its_packets_for_a_while() {
        let (mut account, mut repairs) = (Account::default(), RepairLoss::default());
        (0..300).for_each(|n| {
            repairs.on_named();
            assert_eq!(repairs.on_sealed(1, n), 0);
        });
        let explains = repairs.explains();
        account.charge(-repairs.on_sealed(1, 600) * explains);
        (0..10).for_each(|_| account.forget_credit());
        (0..300).for_each(|_| account.charge(ONE));
        assert!(account.level() <= 0);
        let mut account = Account::default();
        account.charge(-300 * ONE);
        (0..500).for_each(|_| account.forget_credit());
        assert!(account.level() > -ONE, "{}", account.level());
    }

    #[test]
    fn the_odds_are_those_of_the_last_datagrams() {
        let mut repairs = RepairLoss::default();
        (0..100).for_each(|n| _ = repairs.on_sealed(1, n));
        assert_eq!(repairs.odds(), 0);
        (100..9_000).filter(|n| n % 5 > 0).for_each(|n| _ = repairs.on_sealed(1, n));
        let lossy = repairs.odds();
        assert!((ONE / 5..ONE / 3).contains(&lossy), "{lossy}");
        (9_000..90_000).for_each(|n| _ = repairs.on_sealed(1, n));
        assert_eq!(repairs.odds(), 0);
    }

    #[test]
    fn a_new_session_remembers_that_the_link_loses_repairs() {
        let mut repairs = RepairLoss::default();
        let unknown = repairs.limit();
        (0..8).for_each(|_| repairs.on_named());
        repairs.on_sealed(1, 0);
        repairs.restart();
        assert_eq!(repairs.limit(), unknown);
        assert_eq!([0, 2].map(|counter| repairs.on_sealed(2, counter)), [0, 1]);
        repairs.restart();
        assert!(repairs.limit() > unknown);
        assert_eq!(repairs.on_sealed(3, 7), 0, "the first datagram of a session shows no loss");
    }

    #[test]
    fn the_limit_falls_slowly_when_there_are_more_repairs() {
        let mut repairs = RepairLoss::default();
        let send = |repairs: &mut RepairLoss, range: std::ops::Range<u64>, each: u64| {
            for n in range {
                (0..each).for_each(|_| repairs.on_named());
                repairs.on_sealed(1, n);
            }
            repairs.certain()
        };
        let before = send(&mut repairs, 0..1_000, 8);
        assert!(send(&mut repairs, 1_000..1_100, 1) > before * 3 / 4);
        assert!(send(&mut repairs, 1_100..20_000, 1) < before / 4);
    }

    #[test]
    fn a_reordered_datagram_is_not_lost() {
        let mut repairs = RepairLoss::default();
        assert_eq!([0, 1, 3, 2, 4].map(|counter| repairs.on_sealed(1, counter)), [0, 0, 1, -1, 0]);
        assert_eq!([0, 1].map(|counter| repairs.on_sealed(2, counter)), [0, 0], "a renewed session");
    }
}
