//! The shares of flows that two gateways protect and recover, and how each learns the other's.
//!
//! An egress that protects a part of the flows only needs nobody's consent: repairs name packets. An ingress
//! that captures a part of them only must be sure that repairs name no others, because it would take packets
//! that it did not capture for lost ones. Therefore
//!
//! - an egress announces a bound of what it protects. It raises the bound first, and protects more flows once
//!   the far gateway has received the announcement. It protects fewer flows at once, and lowers the bound
//!   later, when no packet of the others is on the way ([`Sharing::limit`]);
//! - an egress that thins its protection ([`crate::thinning`]) announces it first, and begins once the far
//!   gateway has received that. It ends at once, and says so later, when no packet without a name is on the
//!   way ([`Sharing::is_thin`]);
//! - an ingress captures the flows within the far gateway's bound ([`Sharing::far_bound`]), and announces
//!   what it has time for, which the far egress heeds.
//!
//! A tunnel carries and protects every packet, and its ingress gets them all, so that its share is the whole.

use crate::share::Share;
use crate::wire::Announcement;

/// Time from which on no packet that was protected under a higher limit is on the way.
const GRACE_US: u64 = 1_000_000;
/// Longest time for which a packet that left waits in the tap.
const LAG_MAX_US: u64 = 10_000_000;
/// Interval between announcements until one is answered.
const ASK_US: u64 = 50_000;

/// Two gateways' knowledge of each other's shares in one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Whether both gateways take all flows, whatever they have time for.
    is_whole: bool,
    /// Share that this gateway has time for.
    own: Share,
    /// Announced bound of what this gateway protects.
    bound: Share,
    /// Part of the bound that the far gateway has received.
    confirmed: Share,
    /// The same before it was raised last, and the time of that.
    confirmed_before: Share,
    confirmed_us: u64,
    /// Number of the announcement that raised the bound last.
    raised_by: u32,
    /// Number of the newest announcement.
    number: u32,
    /// Time since which the bound is higher than the target.
    above_since_us: Option<u64>,
    /// Whether this gateway is to thin its protection.
    wants_thin: bool,
    /// Number of the announcement of it.
    thin_by: Option<u32>,
    /// Whether the far gateway has received that one.
    is_thin_confirmed: bool,
    /// Time at which the wish ended.
    unwanted_us: u64,
    far: Option<Announcement>,
    /// Time of the next announcement.
    next_us: Option<u64>,
}

impl Sharing {
    pub(crate) fn new(own: Share) -> Self {
        Self {
            is_whole: false,
            own,
            bound: Share::ALL,
            confirmed: Share::ALL,
            confirmed_before: Share::ALL,
            confirmed_us: 0,
            raised_by: 0,
            // A share that is not the default must be announced.
            number: u32::from(own != Share::ALL),
            above_since_us: None,
            wants_thin: false,
            thin_by: None,
            is_thin_confirmed: false,
            unwanted_us: 0,
            far: None,
            next_us: (own != Share::ALL).then_some(0),
        }
    }

    /// The shares of two gateways with a tunnel between them.
    pub(crate) fn of_tunnel() -> Self {
        Self { is_whole: true, ..Self::new(Share::ALL) }
    }

    /// Forgets the far gateway's shares for a new session.
    pub(crate) fn restart(&mut self) {
        *self = Self { is_whole: self.is_whole, ..Self::new(self.own) };
    }

    /// Changes the share that this gateway has time for.
    pub(crate) fn set_own(&mut self, now_us: u64, own: Share) {
        if own != self.own && !self.is_whole {
            self.own = own;
            self.announce(now_us);
        }
        self.on_tick(now_us);
    }

    /// Takes the decision to thin protection, or not to.
    pub(crate) fn set_thin(&mut self, now_us: u64, is_wanted: bool) {
        if self.wants_thin && !is_wanted {
            self.unwanted_us = now_us;
        }
        self.wants_thin = is_wanted;
        self.announce_thin(now_us);
    }

    fn announce_thin(&mut self, now_us: u64) {
        match self.thin_by {
            None if self.wants_thin => {
                self.announce(now_us);
                (self.thin_by, self.is_thin_confirmed) = (Some(self.number), false);
            }
            Some(_) if !self.wants_thin && now_us >= self.unwanted_us + GRACE_US => {
                self.thin_by = None;
                self.announce(now_us);
            }
            _ => {}
        }
    }

    /// Whether this gateway thins its protection at present.
    pub(crate) fn is_thin(&self) -> bool {
        self.wants_thin && self.thin_by.is_some() && self.is_thin_confirmed
    }

    /// Whether the far gateway may thin its protection.
    pub(crate) fn is_far_thin(&self) -> bool {
        self.far.is_some_and(|far| far.is_thin)
    }

    /// Flows that this gateway protects at present.
    pub(crate) fn limit(&self) -> Share {
        self.target().min(self.confirmed)
    }

    /// Flows that this gateway protects of the packets that left at `left_us`. The far gateway must have
    /// watched for them then.
    pub(crate) fn limit_of(&self, left_us: u64) -> Share {
        if left_us < self.confirmed_us { self.limit().min(self.confirmed_before) } else { self.limit() }
    }

    /// Flows that the far gateway may protect.
    pub(crate) fn far_bound(&self) -> Share {
        self.far.map_or(Share::ALL, |far| far.protects)
    }

    fn target(&self) -> Share {
        let far = self.far.filter(|_| !self.is_whole);
        self.own.min(far.map_or(Share::ALL, |far| far.recovers))
    }

    /// Takes an announcement of the far gateway.
    pub(crate) fn on_announcement(&mut self, now_us: u64, far: Announcement) {
        // Announcements may overtake each other.
        if self.far.is_some_and(|known| far.number < known.number || far.received < known.received) {
            return;
        }
        self.far = Some(far);
        if far.received >= self.raised_by && self.confirmed < self.bound {
            // Packets may be captured that left before several rises.
            if now_us > self.confirmed_us + LAG_MAX_US || self.confirmed < self.confirmed_before {
                self.confirmed_before = self.confirmed;
            }
            (self.confirmed, self.confirmed_us) = (self.bound, now_us);
        }
        if self.thin_by.is_some_and(|number| far.received >= number) {
            self.is_thin_confirmed = true;
        }
        if far.received >= self.number {
            self.next_us = None;
        }
        if far.asks {
            self.next_us = Some(now_us);
        }
        self.on_tick(now_us);
    }

    /// Adapts the bound. Must be called regularly.
    pub(crate) fn on_tick(&mut self, now_us: u64) {
        self.announce_thin(now_us);
        let target = self.target();
        if target >= self.bound {
            self.above_since_us = None;
        }
        if target > self.bound {
            self.bound = target;
            self.announce(now_us);
            self.raised_by = self.number;
        } else if target < self.bound && now_us >= *self.above_since_us.get_or_insert(now_us) + GRACE_US {
            self.bound = target;
            self.confirmed = self.confirmed.min(target);
            self.above_since_us = None;
            self.announce(now_us);
        }
    }

    fn announce(&mut self, now_us: u64) {
        self.number += 1;
        self.next_us = Some(now_us);
    }

    /// Time of the next announcement.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.next_us
    }

    /// Returns the announcement that is due.
    pub(crate) fn announcement(&mut self, now_us: u64) -> Announcement {
        let received = self.far.map_or(0, |far| far.received);
        let asks = received < self.number;
        self.next_us = asks.then_some(now_us + ASK_US);
        Announcement {
            asks,
            is_thin: self.thin_by.is_some(),
            number: self.number,
            received: self.far.map_or(0, |far| far.number),
            protects: self.bound,
            recovers: self.own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Share = Share(1 << 15);

    /// Two ends, and the announcements in flight between them, which arrive in any order or not at all.
    struct Ends {
        ends: [Sharing; 2],
        flights: Vec<(u64, usize, Announcement)>,
        /// Flows that each end captured in each millisecond.
        bounds: [Vec<Share>; 2],
        now_us: u64,
    }

    impl Ends {
        fn new() -> Self {
            Self {
                ends: [Sharing::new(Share::ALL); 2],
                flights: Vec::new(),
                bounds: Default::default(),
                now_us: 0,
            }
        }

        /// Lets time pass. An announcement takes a random time, and some are lost. Checks at each step that
        /// neither end protects more than the other captures.
        fn run(&mut self, us: u64, random: &mut testkit::Random) {
            for _ in 0..us / 1_000 {
                self.now_us += 1_000;
                for side in 0..2 {
                    let end = &mut self.ends[side];
                    end.on_tick(self.now_us);
                    if end.next_us().is_some_and(|due_us| due_us <= self.now_us) {
                        let announcement = end.announcement(self.now_us);
                        if random.below(4) > 0 {
                            let due_us = self.now_us + 5_000 + 1_000 * random.below(40);
                            self.flights.push((due_us, 1 - side, announcement));
                        }
                    }
                }
                let now_us = self.now_us;
                let (due, flying) = self.flights.iter().partition(|flight| flight.0 <= now_us);
                self.flights = flying;
                let due: Vec<_> = due;
                for (_, to, announcement) in due {
                    self.ends[to].on_announcement(now_us, announcement);
                }
                for side in 0..2 {
                    assert!(self.ends[side].limit() <= self.ends[1 - side].far_bound());
                    self.bounds[side].push(self.ends[side].far_bound());
                    assert!(!self.ends[side].is_thin() || self.ends[1 - side].is_far_thin());
                }
                // Packets that left a while ago, and are seen only now.
                let ago = (random.below(3_000) as usize).min(self.bounds[0].len() - 1);
                let captured = |side: usize| self.bounds[side][self.bounds[side].len() - 1 - ago];
                for side in 0..2 {
                    let limit = self.ends[side].limit_of(self.now_us - 1_000 * ago as u64);
                    assert!(
                        limit <= captured(1 - side),
                        "{ago} ms ago: {limit:?} of {:?}",
                        captured(1 - side)
                    );
                }
            }
        }
    }

    #[test]
    fn an_egress_sheds_at_once_and_the_far_ingress_follows() {
        let mut random = testkit::Random(1);
        let mut ends = Ends::new();
        ends.run(100_000, &mut random);
        assert!(ends.flights.is_empty(), "nothing is announced while all flows are protected");
        ends.ends[0].set_own(ends.now_us, HALF);
        assert_eq!(ends.ends[0].limit(), HALF);
        ends.run(3_000_000, &mut random);
        assert_eq!([ends.ends[1].far_bound(), ends.ends[1].limit()], [HALF, HALF]);
        ends.ends[0].set_own(ends.now_us, Share::ALL);
        assert_eq!(ends.ends[0].limit(), HALF, "the far gateway captures no more yet");
        ends.run(1_000_000, &mut random);
        assert_eq!(ends.ends[0].limit(), Share::ALL);
        ends.run(3_000_000, &mut random);
        assert!(ends.flights.is_empty() && ends.ends.iter().all(|end| end.next_us().is_none()));
    }

    #[test]
    fn the_share_of_a_tunnel_is_the_whole_whatever_either_end_has_time_for() {
        let mut random = testkit::Random(2);
        let mut ends = Ends::new();
        // An end that would shed, as one that does not know that tunnels carry everything.
        ends.ends[0] = Sharing::of_tunnel();
        ends.ends[0].set_own(0, HALF);
        ends.ends[1].set_own(0, HALF);
        ends.run(3_000_000, &mut random);
        assert_eq!([ends.ends[0].limit(), ends.ends[1].far_bound()], [Share::ALL; 2]);
        ends.ends[0].restart();
        ends.ends[0].set_own(ends.now_us, HALF);
        assert_eq!(ends.ends[0].limit(), Share::ALL);
    }

    #[test]
    fn shares_that_change_all_the_time_never_exceed_what_is_captured() {
        for seed in 0..30 {
            let mut random = testkit::Random(seed);
            let mut ends = Ends::new();
            for _ in 0..60 {
                let side = random.below(2) as usize;
                let share =
                    if random.below(3) == 0 { Share::ALL } else { Share(random.below(60_000) as u16) };
                ends.ends[side].set_own(ends.now_us, share);
                ends.ends[side].set_thin(ends.now_us, random.below(2) == 0);
                let us = 1_000 + random.below(2_000_000);
                ends.run(us, &mut random);
            }
            for end in &mut ends.ends {
                end.set_own(ends.now_us, Share::ALL);
                end.set_thin(ends.now_us, false);
            }
            ends.run(5_000_000, &mut random);
            let is_whole = |end: &Sharing| end.limit() == Share::ALL && !end.is_thin() && !end.is_far_thin();
            assert!(ends.ends.iter().all(is_whole), "seed {seed}");
        }
    }
}
