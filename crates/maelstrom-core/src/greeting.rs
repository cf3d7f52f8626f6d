//! Hellos that prove nothing: which of them are answered, and which are not even opened.
//!
//! An old Hello stays authentic, so anyone who recorded some can replay them. Replays must cost little, and
//! must not take the answer that the peer waits for.

use xxhash_rust::xxh3::xxh3_64;

use crate::config::Source;
use crate::key::Token;
use crate::paths::PATHS_MAX;

/// Shortest interval between answers to Hellos with one token.
const ANSWER_US: u64 = 20_000;
/// Longest interval between answers to Hellos with one token. The interval doubles with each answer that
/// brings no proof.
const ANSWER_MAX_US: u64 = 1_000_000;
/// Maximum number of tokens that are answered independently. A gateway uses some 24 tokens a day.
const TOKENS: usize = 256;
/// Time from the first answer to a token until copies of its Hellos are answered where they came from. The
/// answer begins a session in this time if the path of the first copy works in both directions.
const COPIES_US: u64 = 1_000_000;
/// Number of peers per millisecond with whose keys Hellos from unknown addresses are tried.
const ATTEMPTS_PER_MS: u64 = 20;
/// Maximum number of such attempts at a time.
const ATTEMPTS_MAX: u64 = 1_000;
/// Number of Hellos that are recognised when they come again.
const HELLOS: usize = 1024;

/// Limits the answers to Hellos, for each token on its own.
#[derive(Debug)]
pub(crate) struct Answers {
    slots: Box<[Option<Slot>; TOKENS]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    token: Token,
    /// Source of the later copies that it is about; `None` for Hellos that come for the first time.
    copy: Option<Source>,
    first_us: u64,
    answered_us: u64,
    /// Time until the next answer.
    pause_us: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Self { slots: Box::new([None; TOKENS]) }
    }
}

impl Answers {
    /// Returns whether a Hello with `token` is answered, which uses up the answer.
    ///
    /// A new token takes a free slot, or else that of the oldest answer, which is kept for a moment.
    pub(crate) fn take(&mut self, now_us: u64, token: Token) -> bool {
        self.take_for(now_us, token, None)
    }

    /// The same for a copy of a Hello that came from another source. It is answered there if the answers to
    /// the first copies have brought no proof, and only a few sources of each token get answers.
    pub(crate) fn take_copy(&mut self, now_us: u64, token: Token, from: Source) -> bool {
        let of_token = || self.slots.iter().flatten().filter(|slot| slot.token == token);
        let is_old = |slot: &Slot| slot.copy.is_none() && now_us >= slot.first_us + COPIES_US;
        let is_recent = |slot: &&Slot| now_us < slot.answered_us + ANSWER_MAX_US;
        let others = of_token().filter(|slot| slot.copy.is_some_and(|of| of != from));
        of_token().any(is_old)
            && others.filter(is_recent).count() < PATHS_MAX
            && self.take_for(now_us, token, Some(from))
    }

    fn take_for(&mut self, now_us: u64, token: Token, copy: Option<Source>) -> bool {
        let is_it = |slot: &&mut Slot| (slot.token, slot.copy) == (token, copy);
        if let Some(slot) = self.slots.iter_mut().flatten().find(is_it) {
            if now_us < slot.answered_us + slot.pause_us {
                return false;
            }
            slot.pause_us = (2 * slot.pause_us).min(ANSWER_MAX_US);
            slot.answered_us = now_us;
            return true;
        }
        let oldest = self.slots.iter_mut().min_by_key(|slot| slot.map(|slot| slot.answered_us));
        let oldest = oldest.expect("there are slots");
        if oldest.is_some_and(|slot| now_us < slot.answered_us + ANSWER_US) {
            return false;
        }
        *oldest = Some(Slot { token, copy, first_us: now_us, answered_us: now_us, pause_us: ANSWER_US });
        true
    }
}

/// Limits the attempts to open Hellos from unknown addresses, each of which costs a microsecond.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    used: u64,
    /// Beginning of the millisecond since which attempts are counted.
    since_us: u64,
}

impl Attempts {
    /// Returns whether a Hello may be tried with the keys of this number of peers.
    pub(crate) fn take(&mut self, now_us: u64, peers: usize) -> bool {
        let elapsed_ms = now_us.saturating_sub(self.since_us) / 1_000;
        self.used = self.used.saturating_sub(elapsed_ms * ATTEMPTS_PER_MS);
        self.since_us += elapsed_ms * 1_000;
        let is_allowed = self.used < ATTEMPTS_MAX;
        self.used += if is_allowed { peers as u64 } else { 0 };
        is_allowed
    }
}

/// Recognises authentic Hellos that come again, bit for bit, without any cryptography. Each Hello has a nonce
/// of its own, so that a repeated one is a replay, or was duplicated on the way.
///
/// A Hello carries no time, so that one that has been forgotten is decrypted like a forged one. Its token
/// then decides whether it is answered.
#[derive(Debug)]
pub(crate) struct Seen {
    digests: Box<[u64; HELLOS]>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { digests: Box::new([0; HELLOS]) }
    }
}

impl Seen {
    /// Returns the digest of a datagram.
    pub(crate) fn digest(datagram: &[u8]) -> u64 {
        xxh3_64(datagram)
    }

    pub(crate) fn contains(&self, digest: u64) -> bool {
        self.digests[Self::slot(digest)] == digest
    }

    /// Notes an authentic Hello. Forged ones must not displace others.
    pub(crate) fn insert(&mut self, digest: u64) {
        self.digests[Self::slot(digest)] = digest;
    }

    fn slot(digest: u64) -> usize {
        digest as usize % HELLOS
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::key::TOKEN_LEN;

    fn token(number: u8) -> Token {
        Token([number; TOKEN_LEN])
    }

    #[test]
    fn replays_of_other_tokens_take_no_answer_from_a_token() {
        let mut answers = Answers::default();
        let mut answered = 0;
        for ms in 0..1_000 {
            (1..=98).for_each(|old| _ = answers.take(1_000 * ms, token(old)));
            // The peer calls every 200 ms, and its first calls come to nothing.
            if ms % 200 == 150 {
                answered += u32::from(answers.take(1_000 * ms, token(99)));
            }
        }
        assert_eq!(answered, 5);
    }

    #[test]
    fn the_number_of_answers_is_bounded_whatever_is_replayed() {
        let mut answers = Answers::default();
        let mut all = 0;
        for call in 0..100_000_u64 {
            let mut random = token(0);
            random.0[..8].copy_from_slice(&call.to_be_bytes());
            all += u64::from(answers.take(10 * call, random));
        }
        // A second of a hundred thousand Hellos with other tokens.
        assert!(all <= TOKENS as u64 * (1 + 1_000_000 / ANSWER_US), "{all} answers");
    }

    #[test]
    fn a_token_is_answered_again_when_its_pause_ends() {
        let mut answers = Answers::default();
        let calls = [0, ANSWER_US - 1, ANSWER_US, 3 * ANSWER_US - 1, 3 * ANSWER_US];
        assert_eq!(calls.map(|at_us| answers.take(at_us, token(1))), [true, false, true, false, true]);
    }

    fn source(port: u16) -> Source {
        Source { door: 0, address: SocketAddr::from(([192, 0, 2, 1], port)) }
    }

    #[test]
    fn copies_are_answered_once_the_first_ones_have_brought_no_proof_in_a_second() {
        let mut answers = Answers::default();
        assert!(!answers.take_copy(2 * COPIES_US, token(1), source(1)), "the token has got no answer");
        assert!(answers.take(0, token(1)));
        assert!(!answers.take_copy(COPIES_US - 1, token(1), source(1)));
        let sources = (1..=20).filter(|&port| answers.take_copy(COPIES_US, token(1), source(port)));
        assert_eq!(sources.count(), PATHS_MAX);
        assert!(!answers.take_copy(COPIES_US + ANSWER_US - 1, token(1), source(1)));
        assert!(answers.take_copy(COPIES_US + ANSWER_US, token(1), source(1)));
        assert!(answers.take_copy(2 * COPIES_US, token(1), source(20)), "sources make room for others");
        assert!(answers.take(2 * COPIES_US, token(1)), "copies take no answer from Hellos that are new");
    }

    #[test]
    fn an_answer_makes_room_for_another_token_when_its_pause_ends() {
        let mut answers = Answers::default();
        let other = |n: u16| {
            let mut other = token(0);
            other.0[..2].copy_from_slice(&n.to_be_bytes());
            other
        };
        let all = TOKENS as u16;
        assert!((0..all).all(|n| answers.take(0, other(n))));
        assert!(!answers.take(ANSWER_US - 1, other(all)));
        assert!(answers.take(ANSWER_US, other(all)));
    }

    #[test]
    fn answers_that_bring_no_proof_become_rare() {
        let mut answers = Answers::default();
        let count = (0..10_000).filter(|&ms| answers.take(1_000 * ms, token(1))).count();
        assert!((10..=20).contains(&count), "{count} answers in ten seconds");
    }

    #[test]
    fn attempts_to_open_hellos_are_bounded_and_continue() {
        let mut attempts = Attempts::default();
        let start_us = 1_000_000_000_u64;
        let opened = (0..1_000_000_u64).filter(|at| attempts.take(start_us + at, 64)).count() as u64;
        let bound = ATTEMPTS_MAX + 1_000 * ATTEMPTS_PER_MS;
        assert!((bound - 64..=bound + 64).contains(&(64 * opened)), "{opened} in a second");
        assert!(attempts.take(start_us + 2_000_000, 1), "there is room again after a second without any");
    }

    #[test]
    fn most_of_the_latest_hellos_are_recognised_and_earlier_ones_are_forgotten() {
        let mut seen = Seen::default();
        let digests: Vec<u64> = (0..20_000_u64).map(|n| Seen::digest(&n.to_be_bytes())).collect();
        assert!(!digests.iter().any(|&digest| seen.contains(digest)));
        digests.iter().for_each(|&digest| seen.insert(digest));
        let kept = |digests: &[u64]| digests.iter().filter(|&&digest| seen.contains(digest)).count();
        assert!(kept(&digests[19_900..]) >= 90, "each takes the place of one at random");
        assert!(kept(&digests) <= HELLOS);
        assert!(kept(&digests[..10_000]) <= 10, "they cost what a forged one costs");
    }
}
