//! Questions to senders about their newest packets. The answers decide which sequence numbers are false.
//!
//! A sender is asked when a number far ahead came or was named, when a stream begins in its middle, when many
//! packets are missing at once, when requests for packets are in vain, and before packets are given up. The
//! answer repeats the token of the question. So it comes from a node that receives at the sender's address.

use foundation::Seq;
use hashbrown::HashMap;
use rand_chacha::rand_core::Rng as _;

use super::Node;
use crate::ids::{NodeId, StreamKey};
use crate::message::{Output, To};
use crate::tracker::Judgment;
use crate::wire::{Answer, Kind, Question};

/// Maximum number of streams with a question. In a full table the one asked first makes room, if it has
/// waited for [`KEPT_US`].
const STREAMS_MAX: usize = 1_024;
/// Time for which an unanswered question is remembered, in microseconds.
const KEPT_US: u64 = 1_000_000;
/// Shortest interval between two questions about a stream, in microseconds.
const INTERVAL_US: u64 = 10_000;
/// Number of questions in a row after which a sender that does not answer is not asked any more for a while.
const TRIES_MAX: u8 = 5;
/// Maximum number of questions sent at a time.
const BATCH_MAX: usize = 64;
/// Maximum distance between two mentions that confirm each other.
const NEIGHBOURHOOD: u64 = 64;
/// Number of packets found missing at once from which their sender is asked.
pub(super) const MANY: u64 = 64;
/// Number of requests for a packet at which its sender is asked whether it exists.
pub(super) const TRIES_IN_VAIN: u8 = 4;

#[derive(Clone, Copy, Debug)]
struct Asked {
    token: u64,
    at_us: u64,
    /// The newest packet known when the sender was asked.
    newest: Seq,
    tries: u8,
    /// Packet that was not believed, and the node that named it.
    doubted: Option<(Seq, NodeId)>,
}

/// State of the questions of a node.
#[derive(Debug)]
pub(super) struct Questions {
    asked: HashMap<StreamKey, Asked>,
    /// Streams whose senders are asked at the end of the present event, each with a packet that was not
    /// believed and the node that named it.
    due: Vec<(StreamKey, Option<(Seq, NodeId)>)>,
    /// Whether packets are kept from being given up until an answer comes.
    holds_losses: bool,
}

impl Questions {
    pub(super) fn new() -> Self {
        Self {
            asked: HashMap::with_capacity(2 * STREAMS_MAX),
            due: Vec::with_capacity(BATCH_MAX),
            holds_losses: false,
        }
    }

    /// Schedules a question.
    pub(super) fn want(&mut self, key: StreamKey) {
        self.want_about(key, None);
    }

    fn want_about(&mut self, key: StreamKey, doubted: Option<(Seq, NodeId)>) {
        if let Some((_, about)) = self.due.iter_mut().find(|(other, _)| *other == key) {
            *about = doubted.or(*about);
        } else if self.due.len() < BATCH_MAX {
            self.due.push((key, doubted));
        }
    }

    pub(super) fn forget(&mut self, mut gone: impl FnMut(StreamKey) -> bool) {
        self.asked.retain(|&key, _| !gone(key));
    }

    fn make_room(&mut self, now_us: u64) -> bool {
        if self.asked.len() >= STREAMS_MAX {
            self.asked.retain(|_, asked| now_us < asked.at_us + KEPT_US);
        }
        self.asked.len() < STREAMS_MAX
    }
}

impl Node {
    /// Notes that `by` named a packet that is not believed: asks its sender. If the view lacks the sender,
    /// which then may be gone, a second node that names the packet confirms it.
    pub(super) fn on_doubtful(&mut self, key: StreamKey, seq: Seq, by: NodeId) {
        self.counts.doubtful += 1;
        self.questions.want_about(key, Some((seq, by)));
        let is_present = self.requester.is_present(key.sender);
        let Some(asked) = self.questions.asked.get(&key) else { return };
        let confirms =
            |(other, first): (Seq, NodeId)| first != by && other.0.abs_diff(seq.0) <= NEIGHBOURHOOD;
        if !is_present && asked.doubted.is_some_and(confirms) {
            self.tracker.concede(key, Some(seq));
        }
    }

    /// Returns whether packets up to `last` may be given up. Otherwise their sender is asked whether they
    /// exist, unless it does not answer.
    pub(super) fn may_give_up(&mut self, now_us: u64, key: StreamKey, last: Seq) -> bool {
        if self.tracker.is_verified(key, last) {
            return true;
        }
        if let Some(asked) = self.questions.asked.get(&key).filter(|asked| asked.tries >= TRIES_MAX)
            && now_us >= asked.at_us + INTERVAL_US
        {
            self.tracker.concede(key, None);
            return true;
        }
        self.questions.want(key);
        self.questions.holds_losses = true;
        false
    }

    /// Returns the time after which a question is repeated.
    pub(super) fn question_interval_us(&self) -> u64 {
        INTERVAL_US.max(self.requester.patience_us())
    }

    /// Sends the scheduled questions.
    pub(super) fn send_questions(&mut self, now_us: u64, out: &mut impl Output) {
        let begun = self.tracker.take_begun().filter(|key| self.requester.is_present(key.sender));
        begun.into_iter().for_each(|key| self.questions.want(key));
        if self.questions.due.is_empty() {
            return;
        }
        let interval_us = self.question_interval_us();
        let mut due = std::mem::take(&mut self.questions.due);
        for (key, doubted) in due.drain(..) {
            if let Some(asked) = self.questions.asked.get_mut(&key) {
                asked.doubted = doubted.or(asked.doubted);
            }
            let before = self.questions.asked.get(&key).copied();
            let is_recent = before.is_some_and(|asked| now_us < asked.at_us + interval_us);
            if is_recent || (before.is_none() && !self.questions.make_room(now_us)) {
                continue;
            }
            // After a second, a sender that has not answered is asked as if for the first time.
            let before = before.filter(|asked| now_us < asked.at_us + KEPT_US);
            let tries = before.map_or(0, |asked| asked.tries);
            if tries >= TRIES_MAX {
                self.tracker.concede(key, before.and_then(|asked| asked.doubted).map(|(seq, _)| seq));
                continue;
            }
            let Some(newest) = self.tracker.on_asked(key) else { continue };
            let asked = Asked {
                token: self.rng.next_u64(),
                at_us: now_us,
                newest,
                tries: tries + 1,
                doubted: doubted.or(before.and_then(|asked| asked.doubted)),
            };
            self.questions.asked.insert(key, asked);
            let question = Question { from: self.config.id, token: asked.token, group: key.group };
            let length = question.write(&mut self.scratch);
            out.send(To::Node(key.sender), &self.scratch[..length]);
            self.counts.questions_sent += 1;
            self.tally.sent.add(Kind::Question, length);
        }
        self.questions.due = due;
    }

    /// Answers a question about this node's packets.
    pub(super) fn handle_question(&mut self, question: &Question, out: &mut impl Output) {
        if question.from == self.config.id {
            return self.counts.own += 1;
        }
        let newest = self.announcer.newest(question.group);
        let answer = Answer { sender: self.config.id, token: question.token, group: question.group, newest };
        let length = answer.write(&mut self.scratch);
        out.send(To::Node(question.from), &self.scratch[..length]);
        self.tally.sent.add(Kind::Answer, length);
    }

    /// Corrects what is known of a stream by its sender's answer.
    pub(super) fn handle_answer(&mut self, now_us: u64, answer: &Answer, out: &mut impl Output) {
        let key = StreamKey { sender: answer.sender, group: answer.group };
        let asked = self.questions.asked.get(&key).copied();
        let Some(asked) = asked.filter(|asked| asked.token == answer.token) else {
            return self.counts.unasked += 1;
        };
        self.questions.asked.remove(&key);
        let judgment = self.tracker.on_answer(key, answer.newest, asked.newest);
        match judgment {
            Judgment::Unknown => return,
            Judgment::Unclear => self.questions.want(key),
            Judgment::Agrees | Judgment::Ahead => {}
            Judgment::Retracted => {
                self.counts.retracted += 1;
                self.log_retracted(key, true);
            }
            Judgment::FalseStart => {
                self.counts.retracted += 1;
                self.fragments.forget(|other| other == key);
                self.log_retracted(key, false);
                out.on_restart(key);
            }
        }
        let is_newer = |(newest, highest): (u32, Seq)| Seq::from_wire(newest, highest) > highest;
        let is_news = matches!(judgment, Judgment::Ahead | Judgment::FalseStart)
            || asked.doubted.is_some()
            || answer.newest.zip(self.tracker.highest(key)).is_some_and(is_newer);
        if let Some(newest) = answer.newest.filter(|_| is_news) {
            let mark = self.requester.mark_of_gap(now_us, self.requester.expiry.of_stream(now_us, key));
            let found = self.tracker.on_named(now_us, key, newest, mark);
            self.on_discovered(found.discovered, now_us, key);
            self.tracker.concede(key, None);
        }
        self.tracker.take_begun();
        if std::mem::take(&mut self.questions.holds_losses) {
            self.requester.look_again(now_us);
        }
    }
}
