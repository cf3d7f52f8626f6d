//! The answers that a path owes, and whether the path is in doubt for that, long before it is dead.

/// Interval between questions while an answer is overdue, and where paths share many packets.
pub(super) const SOON_US: u64 = 50_000;
/// Number of questions in a row without an answer from which on a path is in doubt: too many for single
/// losses.
const UNANSWERED: usize = 3;
/// Time beyond a round trip for which the last of them is awaited.
const LENIENT_US: u64 = 50_000;
/// Number of questions that are remembered: those of a round trip of a quarter of a second.
const KEPT: usize = 8;
/// Difference of times that are equal but for the rounding of times of sending.
const ROUNDING_US: u64 = 32;

/// Questions on a path that nothing answers yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Awaited {
    /// Times of the first questions behind the latest one that was answered, in ascending order.
    asked_us: [Option<u64>; KEPT],
    /// Time of the first question since then that another path has answered. Without one, the other end may
    /// merely have stood still.
    elsewhere_us: Option<u64>,
    is_doubted: bool,
}

impl Awaited {
    pub(super) fn on_ask(&mut self, now_us: u64) {
        if let Some(free) = self.asked_us.iter_mut().find(|asked_us| asked_us.is_none()) {
            *free = Some(now_us);
        }
    }

    /// Notes the answer to a question of this time.
    pub(super) fn on_answer(&mut self, asked_us: u64) {
        let mut later = [None; KEPT];
        let left = self.asked_us.into_iter().filter(|at_us| *at_us > Some(asked_us + ROUNDING_US));
        later.iter_mut().zip(left).for_each(|(later, at_us)| *later = at_us);
        *self = Self { asked_us: later, ..Self::default() };
    }

    /// Notes that another path has answered a question of this time.
    pub(super) fn on_answer_elsewhere(&mut self, asked_us: u64) {
        if self.asked_us[0].is_some_and(|first_us| asked_us + ROUNDING_US >= first_us) {
            self.elsewhere_us.get_or_insert(asked_us);
        }
    }

    /// Brings the doubt up to date. `rtt_us`: round trip of the path.
    pub(super) fn check(&mut self, now_us: u64, rtt_us: u64) {
        self.is_doubted = self.at_us(rtt_us).is_some_and(|at_us| now_us >= at_us);
    }

    /// Whether the path has answered nothing for too long, while another one did.
    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// Time at which [`Awaited::check`] finds a change, unless an answer arrives.
    pub(super) fn next_check_us(&self, rtt_us: u64) -> Option<u64> {
        self.at_us(rtt_us).filter(|_| !self.is_doubted)
    }

    /// Time from which on the path is in doubt. By then, the question here that followed the one answered
    /// elsewhere is overdue too.
    fn at_us(&self, rtt_us: u64) -> Option<u64> {
        let following_us = self.elsewhere_us? + SOON_US;
        Some(self.asked_us[UNANSWERED - 1]?.max(following_us) + rtt_us + LENIENT_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// Asks every `every_us` on a path that loses the questions of a time, beside one that loses those of
    /// another time. Returns the first and the last moment of doubt.
    fn doubted(
        every_us: u64,
        rtt_us: u64,
        lost_us: std::ops::Range<u64>,
        lost_elsewhere_us: std::ops::Range<u64>,
    ) -> Option<(u64, u64)> {
        let (mut awaited, mut due, mut moments) = (Awaited::default(), Vec::new(), None);
        for now_us in (0..6_000 * MS).step_by(1_000) {
            for asked_us in due.extract_if(.., |asked_us| *asked_us + rtt_us <= now_us) {
                if !lost_us.contains(&asked_us) {
                    awaited.on_answer(asked_us);
                }
                if !lost_elsewhere_us.contains(&asked_us) {
                    awaited.on_answer_elsewhere(asked_us - asked_us % 16);
                }
            }
            let due_us = awaited.next_check_us(rtt_us);
            awaited.check(now_us, rtt_us);
            assert_eq!(due_us == Some(now_us), awaited.is_doubted() && due_us.is_some());
            if awaited.is_doubted() {
                moments = Some((moments.map_or(now_us, |(first_us, _)| first_us), now_us));
            }
            if now_us.is_multiple_of(every_us) {
                awaited.on_ask(now_us);
                due.push(now_us);
            }
        }
        moments
    }

    #[test]
    fn a_path_is_in_doubt_from_the_third_question_without_an_answer_to_the_next_answer() {
        for rtt_us in [1, 40, 300].map(|ms| ms * MS) {
            for from_us in [4_000 * MS, 4_001 * MS, 4_049 * MS] {
                let (first_us, last_us) = doubted(SOON_US, rtt_us, from_us..4_400 * MS, 0..0).unwrap();
                let first_us = first_us - rtt_us - from_us;
                assert!((150 * MS..=200 * MS).contains(&first_us), "{rtt_us}: {first_us}");
                assert_eq!(last_us, 4_400 * MS + rtt_us - MS, "{rtt_us}");
            }
            assert_eq!(doubted(SOON_US, rtt_us, 4_000 * MS..4_100 * MS, 0..0), None, "two losses in a row");
            assert_eq!(doubted(4 * SOON_US, rtt_us, 4_000 * MS..4_400 * MS, 0..0), None, "and if rarer");
        }
    }

    #[test]
    fn a_path_is_in_no_doubt_if_the_others_stop_answering_with_it() {
        for rtt_us in [1, 40, 300].map(|ms| ms * MS) {
            let lost_us = 4_000 * MS..5_000 * MS;
            assert_eq!(doubted(SOON_US, rtt_us, lost_us.clone(), lost_us), None, "the other end stood still");
            let both = doubted(SOON_US, rtt_us, 4_000 * MS..4_600 * MS, 4_000 * MS..4_200 * MS);
            assert_eq!(both, Some((4_300 * MS + rtt_us, 4_600 * MS + rtt_us - MS)), "{rtt_us}");
        }
    }
}
