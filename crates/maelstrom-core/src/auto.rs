//! The rates that [`Schedule::Auto`](crate::Schedule::Auto) chooses from, and the lowest of them that the
//! path allows.
//!
//! A repair of a sliding window names the packets since the one before it, and repeats names of earlier
//! packets. At a lower rate it therefore names more packets and is longer, until names travel apart
//! (`fec::names`). The lowest rate from which on repairs fit the MTU of the path is the *floor*.

use fec::{RepairRate, Scheme, names};

use crate::wire::repair_overhead;

/// The rates, ascending. The lowest is for links that hardly lose anything: at 1 % loss its repairs would
/// barely suffice.
pub const LADDER: [RepairRate; 17] = {
    const fn rate(repairs: u32, sources: u32) -> RepairRate {
        RepairRate::constant(repairs, sources)
    }
    [
        rate(1, 40),
        rate(1, 32),
        rate(1, 28),
        rate(1, 24),
        rate(1, 20),
        rate(1, 16),
        rate(1, 12),
        rate(1, 8),
        rate(1, 6),
        rate(3, 16),
        rate(1, 4),
        rate(5, 16),
        rate(3, 8),
        rate(1, 2),
        rate(5, 8),
        rate(3, 4),
        rate(1, 1),
    ]
};
/// The rate while nothing is known of the link.
pub const START: RepairRate = RepairRate::constant(1, 8);
/// The highest floor. Packets too long for it do not raise the floor; their repairs are cut in two.
pub const FLOOR_MAX: RepairRate = RepairRate::THREE_EIGHTHS;
/// Number of packets in the window.
pub const WINDOW: u16 = 512;
/// The same where the operator allows packets to come late enough ([`Targets`](crate::controller::Targets),
/// [`Class`](crate::Class)).
pub const WINDOW_LONG: u16 = 1_024;

/// Time for which a packet's length counts, at least; at most twice as long.
const REMEMBERED_US: u64 = 60_000_000;

/// Number of bytes by which a repair at this rate is longer on the WAN than the longest packet in it.
pub fn overhead(rate: RepairRate, ipv6: bool) -> usize {
    repair_overhead(Scheme::Sliding, names::per_repair(rate), ipv6)
}

/// The lowest rate whose repairs for packets of `packet` bytes fit into `mtu` bytes; `None` if it would
/// exceed [`FLOOR_MAX`].
pub fn floor(packet: usize, mtu: usize, ipv6: bool) -> Option<RepairRate> {
    lowest(packet, mtu, |rate| overhead(rate, ipv6))
}

/// The lowest rate up to [`FLOOR_MAX`] whose repairs, longer than their packets by `overhead`, fit.
fn lowest(packet: usize, mtu: usize, overhead: impl Fn(RepairRate) -> usize) -> Option<RepairRate> {
    let fits = |rate: &RepairRate| packet + overhead(*rate) <= mtu;
    LADDER.into_iter().rev().skip_while(|&rate| rate > FLOOR_MAX).take_while(fits).last()
}

/// The floor of one egress: that of the longest packet of the last minute or two.
#[derive(Debug)]
pub(crate) struct Floor {
    ipv6: bool,
    /// Whether repairs name packets at all.
    is_naming: bool,
    /// Whether repairs name all their packets.
    is_alone: bool,
    mtu: usize,
    /// Length up to which packets count.
    counted_max: usize,
    /// Longest packet in this period, and in the one before it.
    longest: [usize; 2],
    /// End of the period.
    until_us: u64,
    rate: RepairRate,
}

impl Floor {
    /// Begins without packets. Repairs travel in packets of up to `mtu` bytes.
    pub(crate) fn new(mtu: usize, ipv6: bool) -> Self {
        let counted_max = counted_max(mtu, ipv6);
        let (is_naming, rate) = (true, LADDER[0]);
        Self { ipv6, is_naming, is_alone: false, mtu, counted_max, longest: [0; 2], until_us: 0, rate }
    }

    /// Counts no names in repairs, if packets carry their positions.
    pub(crate) fn numbered(self, is_numbered: bool) -> Self {
        Self { is_naming: !is_numbered, ..self }
    }

    /// The lowest rate whose repairs fit.
    pub(crate) fn rate(&self) -> RepairRate {
        self.rate
    }

    /// Notes a packet of `len` bytes; returns whether the floor has changed.
    pub(crate) fn on_packet(&mut self, now_us: u64, len: usize) -> bool {
        let counts = len > self.longest[0] && len <= self.counted_max;
        if now_us >= self.until_us {
            self.longest = [0, self.longest[0]];
            self.until_us = now_us + REMEMBERED_US;
        } else if !counts {
            return false;
        }
        if counts {
            self.longest[0] = len;
        }
        self.update()
    }

    /// Changes the MTU; returns whether the floor has changed.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        if mtu == self.mtu {
            return false;
        }
        (self.mtu, self.counted_max) = (mtu, counted_max(mtu, self.ipv6));
        // Repairs of packets that do not count are cut in two at any rate. Shorter ones count when they come.
        for len in &mut self.longest {
            *len = if *len > self.counted_max { 0 } else { *len };
        }
        self.update()
    }

    /// Notes whether repairs name all their packets; returns whether the floor has changed.
    pub(crate) fn set_alone(&mut self, is_alone: bool) -> bool {
        if is_alone == self.is_alone {
            return false;
        }
        self.is_alone = is_alone;
        self.update()
    }

    fn update(&mut self) -> bool {
        let longest = self.longest[0].max(self.longest[1]);
        let rate = lowest(longest, self.mtu, |rate| {
            // Such a repair names each packet since the one before it, of which others may name a part.
            let lone = if self.is_alone { names::stride(rate) } else { 0 };
            let names = if self.is_naming { names::per_repair(rate).max(lone) } else { 0 };
            repair_overhead(Scheme::Sliding, names, self.ipv6)
        });
        let rate = rate.unwrap_or(FLOOR_MAX);
        let is_new = rate != self.rate;
        self.rate = rate;
        is_new
    }
}

fn counted_max(mtu: usize, ipv6: bool) -> usize {
    mtu.saturating_sub(overhead(FLOOR_MAX, ipv6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_that_name_all_their_packets_fit_too() {
        for ipv6 in [false, true] {
            let longest = 1_500 - overhead(LADDER[0], ipv6);
            let mut floor = Floor::new(1_500, ipv6);
            floor.on_packet(0, longest);
            assert_eq!(floor.rate(), LADDER[0]);
            assert!(floor.set_alone(true) && !floor.set_alone(true));
            assert!(names::stride(floor.rate()) <= names::per_repair(floor.rate()), "{}", floor.rate());
            assert!(floor.set_alone(false));
            assert_eq!(floor.rate(), LADDER[0]);
            // Shorter packets leave room.
            let mut floor = Floor::new(1_500, ipv6);
            floor.on_packet(0, longest - 64);
            assert!(!floor.set_alone(true));
        }
    }

    #[test]
    fn a_lower_rate_needs_shorter_packets() {
        let rate = |text: &str| text.parse::<RepairRate>().ok();
        for (len, floor_v4, floor_v6) in
            [(1_281, "1/40", "1/40"), (1_301, "1/40", "1/6"), (1_302, "1/6", "1/6"), (1_341, "1/4", "3/8")]
        {
            let floors = (floor(len, 1_500, false), floor(len, 1_500, true));
            assert_eq!(floors, (rate(floor_v4), rate(floor_v6)), "{len}");
        }
        assert_eq!((floor(1_361, 1_500, false), floor(1_362, 1_500, false)), (rate("3/8"), None));
        assert!(LADDER.is_sorted() && LADDER.contains(&START) && LADDER.contains(&FLOOR_MAX));
    }

    #[test]
    fn the_floor_follows_the_longest_packet_of_the_last_minutes() {
        let mut floor = Floor::new(1_500, false);
        let mut rates = Vec::new();
        for (at_s, len) in
            [(0, 100), (1, 1_300), (2, 100), (62, 100), (123, 100), (124, 1_310), (125, 1_500), (250, 60)]
        {
            floor.on_packet(at_s * 1_000_000, len);
            rates.push(floor.rate().to_string());
        }
        assert_eq!(rates, ["1/40", "1/40", "1/40", "1/40", "1/40", "1/6", "1/6", "1/6"]);
        assert!(floor.set_mtu(9_000) && floor.rate() == LADDER[0]);
    }

    #[test]
    fn packets_too_long_for_a_path_that_becomes_narrower_do_not_count_any_more() {
        let mut floor = Floor::new(1_500, false);
        floor.on_packet(0, 1_301);
        floor.on_packet(1, 1_250);
        assert_eq!(floor.rate(), LADDER[0]);
        assert!(!floor.set_mtu(1_420) && floor.rate() == LADDER[0], "{}", floor.rate());
        // Those of the period before it neither.
        let mut later = Floor::new(1_500, false);
        later.on_packet(0, 1_301);
        later.on_packet(REMEMBERED_US, 100);
        assert!(!later.set_mtu(1_420) && later.rate() == LADDER[0], "{}", later.rate());
        assert!(floor.on_packet(2, 1_250), "shorter ones do");
        assert_eq!(Some(floor.rate()), super::floor(1_250, 1_420, false));
        assert!(floor.rate() > LADDER[0] && !floor.on_packet(3, 1_301));
    }
}
