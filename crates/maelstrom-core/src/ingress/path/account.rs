//! Evidence that missing packets took another path, and the loss of repairs that speaks against it.
//!
//! Packets and repairs take the same link. If it loses them alike, and repairs name `n` packets for each
//! repair that arrives, a loss hits a packet with probability n / (n + 1), and a datagram otherwise. Each
//! missing packet therefore is evidence of ln(1 + 1/n), and by chance an account rises by x without a lost
//! datagram with probability e^-x. It falls with each lost datagram by the evidence of three times the
//! packets that the link may have lost meanwhile, and with each arrival by 1/1024 of that of a missing
//! packet. Without losses on the link, at most one packet in 1,024 is therefore delivered twice in the long
//! run, whatever share of the packets takes another path. On a link that loses packets and repairs alike, the
//! account stays near zero.

/// One packet. Numbers of packets are counted in fractions of it.
pub(super) const ONE: i64 = 1024;

/// Evidence that is less probable by a factor of e if packets and repairs are lost alike.
pub(super) const FOLD: i64 = 1 << 20;

/// Largest level, so that an account can recover from a long time of doubt.
const LEVEL_MAX: i64 = 256 * FOLD;
/// Largest credit, for the packets of an outage.
const CREDIT_MAX: i64 = 2048 * FOLD;

/// A bounded balance of evidence against excuses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    level: i64,
}

impl Account {
    /// Raises the level; lowers it if `amount` is negative.
    pub(super) fn charge(&mut self, amount: i64) {
        self.level = (self.level + amount).clamp(-CREDIT_MAX, LEVEL_MAX);
    }

    /// Lowers the level for an arrival, which does the same to one of 1,024 missing packets of this `weight`.
    /// Arrivals earn no credit in advance.
    pub(super) fn credit_arrival(&mut self, weight: i64) {
        if self.level > 0 {
            self.level -= weight / 1024;
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

/// Credit from which chance hardly raises an account.
pub(super) const CREDITED: i64 = 2 * FOLD;
/// Number of sealed datagrams without a loss after which the link counts as lossless.
const LOSSLESS: u64 = 1 << 14;
/// Number of datagrams over which the share of lost ones is averaged.
const ODDS_SPAN: u64 = 2048;
/// Number of repairs over which the number of packets for each is averaged. It follows a code whose rate
/// changes, and is longer than the intervals in which layers send their repairs.
const EACH_SPAN: u64 = 128;
/// Evidence against a link that has lost no repair, in halves of [`FOLD`]: one such link in 8,000 shows it.
const UNLOST_HALVES: i64 = 18;
/// Evidence against a link after its first lost repair, in halves of [`FOLD`].
const LOST_HALVES: i64 = 20;
/// The same added for each doubling of the number of tries that chance has had.
const DOUBLING_HALVES: i64 = 3;
/// Largest evidence that is needed, in halves of [`FOLD`].
const HALVES_MAX: i64 = 32;

/// The loss of sealed datagrams, most of which are repairs, by gaps in their numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepairLoss {
    /// Number of the next datagram of this epoch.
    next: u64,
    epoch: Option<u32>,
    /// Datagrams since the last loss, if there was one.
    since_loss: Option<u64>,
    /// Number of lost datagrams from which on the account could rise by chance, since the link counted as
    /// lossless.
    tries: u64,
    /// Datagrams sent during the present span, and those of them that were lost.
    sealed: u64,
    lost: u64,
    /// Packets named, and repairs that arrived, during the present span.
    named: u64,
    repairs: u64,
}

impl Default for RepairLoss {
    fn default() -> Self {
        let [next, tries, sealed, lost] = [0; 4];
        // Nothing is known of the code. The first repairs count for more than they do later, when chance has
        // had more tries.
        let (named, repairs) = (8, 8);
        Self { next, epoch: None, since_loss: None, tries, sealed, lost, named, repairs }
    }
}

impl RepairLoss {
    /// Starts with the repairs of a new session. The losses of the link lately remain known.
    pub(super) fn restart(&mut self) {
        let Self { since_loss, tries, .. } = *self;
        *self = Self { since_loss, tries, ..Self::default() };
    }

    /// Counts a packet that a repair named.
    pub(super) fn on_named(&mut self) {
        self.named += 1;
    }

    /// Counts a repair that arrived. Reports and other datagrams do not count, because they are also sent
    /// while there are no packets.
    pub(super) fn on_repair(&mut self) {
        self.repairs += 1;
        if self.repairs > EACH_SPAN {
            (self.named, self.repairs) = (self.named / 2, self.repairs / 2);
        }
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
        if self.sealed > ODDS_SPAN {
            (self.sealed, self.lost) = (self.sealed / 2, self.lost / 2);
        }
        self.since_loss = match self.since_loss {
            _ if lost > 0 => Some(0),
            Some(since) if since < LOSSLESS => Some(since + 1),
            _ => {
                self.tries = 0;
                None
            }
        };
        lost.try_into().unwrap_or(i64::MAX >> 32).min(i64::MAX >> 32)
    }

    /// Notes that an account without much credit may rise again by chance, because a datagram was lost.
    pub(super) fn on_try(&mut self) {
        self.tries += 1;
    }

    /// Number of packets for each repair, in units of [`ONE`].
    fn packets_each(&self) -> i64 {
        let ratio = self.named * ONE as u64 / self.repairs.max(1);
        (ratio as i64).clamp(ONE / 8, 64 * ONE)
    }

    /// Number of datagrams that are lost for each one that arrives, in units of [`ONE`].
    pub(super) fn odds(&self) -> i64 {
        let lost = self.lost.min(4 * ODDS_SPAN);
        let arrived = self.sealed.saturating_sub(self.lost).clamp(8, ODDS_SPAN);
        (lost * ONE as u64 / arrived) as i64
    }

    /// Number of missing packets that one lost datagram explains, in units of [`ONE`]: three times as many as
    /// are lost on average if packets and repairs are lost alike, and at least one.
    pub(super) fn explains(&self) -> i64 {
        (3 * self.packets_each()).max(ONE)
    }

    /// Evidence of these packets, if they are missing. Their number has the unit of
    /// [`RepairLoss::explains`].
    pub(super) fn evidence(&self, packets: i64) -> i64 {
        packets * self.weight() / ONE
    }

    /// Evidence of one missing packet. Its approximation is no more than ln(1 + 1/n).
    pub(super) fn weight(&self) -> i64 {
        (FOLD * ONE / (self.packets_each() + ONE / 2)).min(FOLD)
    }

    /// Number of missing packets that are evidence of this much, in units of [`ONE`].
    pub(super) fn packets(&self, evidence: i64) -> i64 {
        evidence * ONE / self.weight()
    }

    /// Evidence that shows that packets take another path. All sessions together in which packets and
    /// repairs are lost alike reach it in less than one of 1,000, however many repairs are lost.
    pub(super) fn limit(&self) -> i64 {
        if self.has_lost() { self.certain() } else { UNLOST_HALVES * FOLD / 2 }
    }

    /// Evidence that is hardly reached by chance, whether or not repairs were lost.
    pub(super) fn certain(&self) -> i64 {
        let doublings = self.tries.max(1).ilog2();
        (LOST_HALVES + DOUBLING_HALVES * i64::from(doublings)).min(HALVES_MAX) * FOLD / 2
    }

    /// Evidence on which a single one of many flows is set aside.
    pub(super) fn utmost(&self) -> i64 {
        HALVES_MAX * FOLD / 2
    }

    /// Whether repairs have been lost lately.
    pub(super) fn has_lost(&self) -> bool {
        self.since_loss.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    /// Returns the highest level, by its limit, of a link that loses packets and repairs as told, with `each`
    /// packets for a repair.
    fn highest(packet_loss: f64, repair_loss: f64, each: u64, packets: u64, seed: u64) -> f64 {
        let (mut account, mut repairs, mut random) =
            (Account::default(), RepairLoss::default(), Random(seed));
        let mut chance = |p: f64| (random.below(1 << 20) as f64) < p * f64::from(1 << 20);
        let mut highest = 0.0_f64;
        for n in 0..packets {
            repairs.on_named();
            let weight = repairs.weight();
            if chance(packet_loss) {
                account.charge(weight);
            } else {
                account.credit_arrival(weight);
            }
            if n % each == 0 && !chance(repair_loss) {
                let excuse = repairs.evidence(repairs.explains());
                let lost = repairs.on_sealed(1, n / each);
                if lost > 0 && account.level() > -CREDITED {
                    repairs.on_try();
                }
                account.charge(-lost * excuse);
                repairs.on_repair();
            }
            if n % 10 == 0 {
                account.forget_credit();
            }
            highest = highest.max(account.level() as f64 / repairs.limit() as f64);
        }
        highest
    }

    #[test]
    fn losses_that_repairs_share_stay_below_the_limit() {
        for loss in [0.001, 0.01, 0.04] {
            for each in [1, 3, 8] {
                let packets = (400.0 / loss) as u64;
                let reached =
                    (0..50).filter(|&seed| highest(loss, loss, each, packets.min(100_000), seed) > 1.0);
                assert_eq!(reached.count(), 0, "loss {loss}, {each} packets each");
            }
        }
    }

    #[test]
    fn losses_that_no_repair_shares_exceed_it() {
        for loss in [0.01, 0.1, 0.5, 1.0] {
            for each in [1, 3, 8] {
                let packets = ((16.0 + 10.0 * each as f64) / loss) as u64;
                assert!(highest(loss, 0.0, each, packets, 3) > 1.0, "loss {loss}, {each} packets each");
            }
        }
        assert!(highest(0.5, 0.01, 3, 1_000, 3) > 1.0, "a detour beside some loss");
        assert!(highest(0.0005, 0.0, 3, 100_000, 3) < 1.0, "fewer than one in 1,024");
    }

    #[test]
    fn an_outage_excuses_its_packets_for_a_while() {
        let (mut account, mut repairs) = (Account::default(), RepairLoss::default());
        (0..300).for_each(|n| {
            repairs.on_named();
            assert_eq!(repairs.on_sealed(1, n), 0);
            repairs.on_repair();
        });
        let excuse = repairs.evidence(repairs.explains());
        account.charge(-repairs.on_sealed(1, 600) * excuse);
        (0..10).for_each(|_| account.forget_credit());
        (0..300).for_each(|_| account.charge(repairs.weight()));
        assert!(account.level() <= 0);
        let mut account = Account::default();
        account.charge(-300 * FOLD);
        (0..900).for_each(|_| account.forget_credit());
        assert!(account.level() > -FOLD / 1024, "{}", account.level());
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
        repairs.on_sealed(1, 0);
        repairs.restart();
        assert_eq!(repairs.limit(), unknown);
        assert_eq!([0, 2].map(|counter| repairs.on_sealed(2, counter)), [0, 1]);
        repairs.restart();
        assert!(repairs.limit() > unknown);
        assert_eq!(repairs.on_sealed(3, 7), 0, "the first datagram of a session shows no loss");
        (8..7 + LOSSLESS).for_each(|counter| _ = repairs.on_sealed(3, counter));
        assert!(repairs.limit() > unknown);
        repairs.on_sealed(3, 7 + LOSSLESS);
        assert_eq!(repairs.limit(), unknown, "it loses none any more");
    }

    #[test]
    fn tries_are_together_as_improbable_as_one() {
        let mut repairs = RepairLoss::default();
        let mut chances = (-repairs.limit() as f64 / FOLD as f64).exp();
        for counter in 0..20_000 {
            repairs.on_sealed(1, 2 * counter);
            repairs.on_try();
            if (1..=15).contains(&counter) {
                chances += (-repairs.limit() as f64 / FOLD as f64).exp();
            }
        }
        assert!(chances < 0.001, "{chances}");
        assert_eq!(repairs.limit(), 16 * FOLD, "a detour is found on any link");
        (0..30_000).for_each(|counter| assert!(repairs.on_sealed(1, 2 * counter + 1) <= 1));
    }

    #[test]
    fn the_weight_of_a_packet_is_that_of_the_present_rate() {
        let mut repairs = RepairLoss::default();
        let send = |repairs: &mut RepairLoss, count: u64, each: u64| {
            for _ in 0..count {
                (0..each).for_each(|_| repairs.on_named());
                repairs.on_repair();
            }
            repairs.weight() as f64 / FOLD as f64
        };
        for each in [8, 1, 3, 32] {
            let weight = send(&mut repairs, 1_500, each);
            let exact = (1.0 + 1.0 / each as f64).ln();
            assert!((0.9 * exact..1.01 * exact).contains(&weight), "{each}: {weight} of {exact}");
        }
        let excuse = repairs.evidence(repairs.explains()) as f64 / FOLD as f64;
        assert!((2.5..3.0).contains(&excuse), "{excuse}");
        assert!((40 * ONE - repairs.packets(repairs.evidence(40 * ONE))).abs() < 2);
        // Reports of an idle session tell nothing about repairs.
        let weight = repairs.weight();
        (0..1_000).for_each(|counter| _ = repairs.on_sealed(1, counter));
        assert_eq!(repairs.weight(), weight);
    }

    #[test]
    fn a_reordered_datagram_is_not_lost() {
        let mut repairs = RepairLoss::default();
        assert_eq!([0, 1, 3, 2, 4].map(|counter| repairs.on_sealed(1, counter)), [0, 0, 1, -1, 0]);
        assert_eq!([0, 1].map(|counter| repairs.on_sealed(2, counter)), [0, 0], "a renewed session");
    }
}
