//! The deadlines of the packets that leave: those of their classes, or the usual one.

/// Time for which a packet's deadline counts, at least; at most twice as long.
const REMEMBERED_US: u64 = 10_000_000;

/// Deadlines that classes of packets have of their own, among the packets that have left lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Shortest and longest of them in microseconds.
    pub own_us: Option<(u64, u64)>,
    /// Whether there are packets without a deadline of their own.
    pub has_usual: bool,
}

impl Default for Deadlines {
    /// No packet has a deadline of its own.
    fn default() -> Self {
        Self { own_us: None, has_usual: true }
    }
}

impl Deadlines {
    const NONE: Self = Self { own_us: None, has_usual: false };

    /// The deadline that all packets meet if repairs meet it. `usual_us`: that of packets without one of
    /// their own, once it is known.
    pub fn shortest_us(&self, usual_us: Option<u64>) -> Option<u64> {
        let shortest_us = self.own_us.map(|(shortest_us, _)| shortest_us);
        shortest_us.into_iter().chain(usual_us.filter(|_| self.has_usual)).min()
    }

    /// The longest deadline that the operator has stated. `stated_us`: that of packets without one of their
    /// own, if it is stated.
    pub fn longest_us(&self, stated_us: Option<u64>) -> Option<u64> {
        let longest_us = self.own_us.map(|(_, longest_us)| longest_us);
        longest_us.into_iter().chain(stated_us.filter(|_| self.has_usual)).max()
    }

    fn add(&mut self, other: &Self) {
        self.own_us = match (self.own_us, other.own_us) {
            (Some(one), Some(two)) => Some((one.0.min(two.0), one.1.max(two.1))),
            (one, two) => one.or(two),
        };
        self.has_usual |= other.has_usual;
    }
}

/// Watches the deadlines of the packets of one egress.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Packets of this period, and of the one before it.
    periods: [Deadlines; 2],
    until_us: u64,
}

impl Default for Watch {
    fn default() -> Self {
        Self { periods: [Deadlines::NONE; 2], until_us: 0 }
    }
}

impl Watch {
    /// Notes a packet, with the deadline of its class if that has one.
    pub(crate) fn on_packet(&mut self, now_us: u64, late_us: Option<u64>) {
        if now_us >= self.until_us {
            // After a long silence neither period counts.
            let last =
                if now_us >= self.until_us + REMEMBERED_US { Deadlines::NONE } else { self.periods[0] };
            self.periods = [Deadlines::NONE, last];
            self.until_us = now_us + REMEMBERED_US;
        }
        let own_us = late_us.map(|late_us| (late_us, late_us));
        self.periods[0].add(&Deadlines { own_us, has_usual: late_us.is_none() });
    }

    /// The deadlines of late.
    pub(crate) fn present(&self) -> Deadlines {
        let [mut present, last] = self.periods;
        present.add(&last);
        if present == Deadlines::NONE { Deadlines::default() } else { present }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_those_of_the_packets_of_the_last_seconds() {
        let mut watch = Watch::default();
        assert_eq!(watch.present(), Deadlines::default());
        let mut seen = Vec::new();
        for (at_s, late_us) in [
            (0, Some(20)),
            (1, None),
            (12, Some(900)),
            (13, Some(50)),
            (23, Some(900)),
            (34, Some(900)),
            (80, None),
        ] {
            watch.on_packet(at_s * 1_000_000, late_us);
            let present = watch.present();
            seen.push((present.shortest_us(Some(100)), present.longest_us(Some(100))));
        }
        let expected = [(20, 20), (20, 100), (20, 900), (20, 900), (50, 900), (900, 900), (100, 100)];
        assert_eq!(seen, expected.map(|(shortest, longest)| (Some(shortest), Some(longest))));
    }

    #[test]
    fn a_deadline_that_nobody_has_stated_buys_no_longer_window() {
        let usual = Deadlines::default();
        assert_eq!((usual.shortest_us(Some(25)), usual.longest_us(None)), (Some(25), None));
        let own = Deadlines { own_us: Some((7, 30)), has_usual: true };
        assert_eq!((own.shortest_us(None), own.longest_us(None)), (Some(7), Some(30)));
    }
}
