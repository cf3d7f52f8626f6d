//! Greetings: members tell each other their settings, and which multicast they hear.
//!
//! A node that sends to groups asks each member of them at which multicast addresses it was heard lately
//! ([`Greeting`]). At those where it was not, it *calls*. A member that answers, but does not hear several
//! calls, is *deaf*: its multicast is filtered, or its settings differ. The node then sends it copies by
//! unicast, and tries again from time to time. Each question and answer states the settings that should be
//! the same in the whole cluster.
//!
//! A call costs each host of the network a datagram. So a node calls only for members that have answered and
//! have heard no message there (`sightings.rs`). A member that is overloaded loses calls; if it were taken
//! for deaf, copies would add to its load.

pub(crate) mod wire;

use std::net::SocketAddr;

use hashbrown::HashMap;
use ricochet_core::NodeId;

pub(crate) use wire::{Body, FIRST_BYTE, GREETING_MAX, Greeting, Settings};

/// Pauses between the tries with one member, in microseconds. After the last it is deaf, if it answers.
const PAUSES_US: [u64; 5] = [50_000, 50_000, 100_000, 150_000, 200_000];
/// Number of tries with calls after which a member that hears none is deaf.
const CALLED: u32 = 3;
/// Interval between tests of a member to whose groups this node sends for the first time, in microseconds.
const MORE_US: u64 = 500_000;
/// Interval between tries with a member that is deaf, in microseconds.
const AGAIN_US: u64 = 2_000_000;
/// The same with a member that does not answer; doubled each time.
const SILENT_US: u64 = 250_000;
const SILENT_DOUBLED_MAX: u32 = 7;
/// Interval between tries with a member that hears all, in microseconds: filters may come later.
const CHECK_US: u64 = 30_000_000;
/// Maximum number of members that are asked at once.
const ASKED_MAX: usize = 64;
/// Number of rounds of calls in which a member is tested, about.
const OF_A_TEST: u32 = 25;
/// Interval between two rounds of calls, in microseconds.
const ROUND_US: u64 = 20_000;

/// Another member.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// Bits of this node's multicast addresses that its groups have.
    groups: u64,
    /// Bits of the addresses at which it hears this node.
    hears: u64,
    /// Bits of the addresses at which it does not.
    deaf: u64,
    /// Number of tries for the present test, and the round of the first.
    tries: usize,
    first_round: u32,
    has_answered: bool,
    /// Number of these tries with calls.
    called: u32,
    /// Bits of the addresses that it tests.
    tested: u64,
    /// Time of the next test of all addresses.
    check_us: u64,
    /// Time at which the test began.
    begun_us: Option<u64>,
    /// Whether the next test is of further addresses alone.
    is_of_more: bool,
    /// Number of tests in a row that it left unanswered.
    silences: u32,
    next_us: u64,
    /// Latest round of its calls that this node heard, and where.
    heard: (u32, u64),
    settings: Option<Settings>,
    /// Whether it sends copies to this node, because this node does not hear its calls.
    sends_copies: bool,
}

impl Peer {
    /// Plans a test of addresses that are new, together with those that follow soon. One under way ends
    /// before.
    fn test_more(&mut self, now_us: u64) {
        self.is_of_more = true;
        if self.tries == 0 {
            self.next_us = self.more_due_us(now_us);
        }
    }

    fn more_due_us(&self, now_us: u64) -> u64 {
        self.begun_us.map_or(now_us, |begun_us| now_us.max(begun_us + MORE_US))
    }

    /// Begins a test of these addresses with this round.
    fn begin(&mut self, now_us: u64, round: u32, tested: u64) {
        if !std::mem::take(&mut self.is_of_more) || now_us >= self.check_us {
            (self.hears, self.check_us) = (0, now_us + CHECK_US);
        }
        (self.first_round, self.has_answered, self.called, self.tested) = (round, false, 0, tested);
        self.begun_us = Some(now_us);
    }

    /// Ends the test; the next one is due at this time, unless there is more to test.
    fn end(&mut self, now_us: u64, next_us: u64) {
        (self.tries, self.next_us) = (0, if self.is_of_more { self.more_due_us(now_us) } else { next_us });
    }
}

/// Knowledge of another member's settings and multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Settings that differ.
    pub(crate) differs: Vec<String>,
    /// Whether it does not hear this node's multicast, and gets copies.
    pub(crate) is_deaf: bool,
    /// Whether this node does not hear its multicast, and gets copies.
    pub(crate) is_unheard: bool,
    /// Whether it has answered.
    pub(crate) answers: bool,
    /// Whether it hears this node's multicast, if the test has ended.
    pub(crate) hears: Option<bool>,
    /// Whether this node hears its multicast, if it sends any.
    pub(crate) is_heard: Option<bool>,
}

impl Finding {
    /// Returns whether something is wrong.
    fn is_bad(&self) -> bool {
        self.is_deaf || self.is_unheard || !self.differs.is_empty()
    }
}

/// News for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Settings differ.
    Differs(SocketAddr, String),
    /// A member does not hear this node's multicast.
    Deaf(SocketAddr),
    /// It hears it again.
    Hears(SocketAddr),
    /// This node does not hear the multicast of a member.
    Unheard(SocketAddr),
    /// It hears it again.
    Heard(SocketAddr),
}

/// Destination of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// One of this node's multicast addresses, by its number.
    Multicast(u8),
    Member(SocketAddr),
}

/// State of the greetings of a node.
#[derive(Debug)]
pub(crate) struct Greetings {
    me: NodeId,
    settings: Settings,
    peers: HashMap<NodeId, Peer>,
    /// Bits of the multicast addresses that this node has sent to.
    sent_to: u64,
    round: u32,
    round_us: u64,
    next_us: Option<u64>,
    news: Vec<News>,
    /// Whether the members that need copies have changed.
    is_changed: bool,
}

impl Greetings {
    pub(crate) fn new(me: NodeId, settings: Settings) -> Self {
        Self {
            me,
            settings,
            peers: HashMap::new(),
            sent_to: 0,
            round: 0,
            round_us: 0,
            next_us: None,
            news: Vec::new(),
            is_changed: false,
        }
    }

    /// Continues with other members: each with its address, and the bits of the multicast addresses of its
    /// groups.
    pub(crate) fn set_members(
        &mut self,
        now_us: u64,
        members: impl Iterator<Item = (NodeId, SocketAddr, u64)>,
    ) {
        let mut before = std::mem::take(&mut self.peers);
        for (id, address, groups) in members {
            let new = || Peer {
                address,
                groups,
                hears: 0,
                deaf: 0,
                tries: 0,
                first_round: 0,
                has_answered: false,
                called: 0,
                tested: 0,
                check_us: 0,
                begun_us: None,
                is_of_more: false,
                silences: 0,
                next_us: now_us,
                heard: (0, 0),
                settings: None,
                sends_copies: false,
            };
            let known = before.remove(&id).filter(|peer| peer.address == address);
            let mut peer = known.unwrap_or_else(new);
            if groups & !peer.groups != 0 {
                peer.test_more(now_us);
            }
            (peer.groups, peer.deaf, peer.hears) = (groups, peer.deaf & groups, peer.hears & groups);
            self.peers.insert(id, peer);
        }
        self.is_changed = true;
        self.plan(now_us);
    }

    /// Notes the multicast addresses that this node has sent to. Returns whether there are new ones.
    pub(crate) fn set_sent_to(&mut self, now_us: u64, sent_to: u64) -> bool {
        let new = sent_to & !self.sent_to;
        if new == 0 {
            return false;
        }
        self.sent_to |= sent_to;
        for peer in self.peers.values_mut().filter(|peer| peer.groups & new != 0) {
            peer.test_more(now_us);
        }
        self.plan(now_us);
        true
    }

    /// Returns whether a member lives at an address.
    pub(crate) fn is_member(&self, id: NodeId, address: SocketAddr) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.address == address)
    }

    /// Handles a greeting from an address. Returns the answer, if there is one. `seen`: of a question, bits
    /// of the multicast addresses at which other datagrams from there have come lately, or `None` where this
    /// node has not looked. It then gives no answer: one that lists nothing would say that it is deaf.
    pub(crate) fn handle(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        greeting: &Greeting,
        seen: Option<u64>,
    ) -> Option<Greeting> {
        let id = match greeting {
            Greeting::Farewell { .. } => return None,
            Greeting::Call { from, .. } => *from,
            Greeting::Question(body) | Greeting::Answer(body) => body.from,
        };
        let (me, settings) = (self.me, self.settings);
        let peer = self.peers.get_mut(&id).filter(|peer| peer.address == from)?;
        let body = match *greeting {
            Greeting::Call { round, address, .. } => {
                let (last, heard) = &mut peer.heard;
                if round != *last {
                    (*last, *heard) = (round, 0);
                }
                *heard |= 1 << address;
                return None;
            }
            Greeting::Question(body) | Greeting::Answer(body) => body,
            Greeting::Farewell { .. } => return None,
        };
        if peer.settings.replace(body.settings) != Some(body.settings) {
            let differences = settings.differences(&body.settings);
            if !differences.is_empty() {
                self.news.push(News::Differs(from, differences.join("; ")));
            }
        }
        if let Greeting::Question(_) = greeting {
            if body.copies && !peer.sends_copies {
                self.news.push(News::Unheard(from));
            } else if !body.copies && peer.sends_copies {
                self.news.push(News::Heard(from));
            }
            peer.sends_copies = body.copies;
            let seen = seen?;
            // Calls may have been lost among other datagrams, which show the same.
            let (round, heard) = match peer.heard {
                heard if seen == 0 => heard,
                (round, heard) if body.round.wrapping_sub(round) < OF_A_TEST => (body.round, heard | seen),
                _ => (body.round, seen),
            };
            return Some(Greeting::Answer(Body { from: me, round, heard, copies: false, settings }));
        }
        self.on_answer(now_us, id, body);
        None
    }

    fn on_answer(&mut self, now_us: u64, id: NodeId, body: Body) {
        let called = self.called();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        (peer.has_answered, peer.silences) = (true, 0);
        if peer.tries == 0 {
            return;
        }
        if body.round != 0 && body.round.wrapping_sub(peer.first_round) < 1 << 31 {
            peer.hears |= body.heard;
        }
        if peer.tested & peer.groups & called & !peer.hears != 0 {
            return;
        }
        let was_deaf = std::mem::take(&mut peer.deaf) != 0;
        // One that was deaf is asked again at once, so that it learns that its copies have ended.
        peer.end(now_us, if was_deaf { now_us } else { peer.check_us.max(now_us) });
        if was_deaf {
            self.news.push(News::Hears(peer.address));
            self.is_changed = true;
        }
        self.plan(now_us);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.next_us
    }

    /// Calls and asks members that are due, and finds those that are deaf.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, mut send: impl FnMut(Destination, &[u8])) {
        if self.next_us.is_none_or(|next_us| next_us > now_us) {
            return;
        }
        let called = self.called();
        let Self { me, settings, sent_to, round, news, is_changed, .. } = self;
        *round = round.wrapping_add(1).max(1);
        self.round_us = now_us;
        let (mut calls, mut questions) = (0, Vec::new());
        let due = |peer: &&mut Peer| peer.next_us <= now_us && peer.groups & *sent_to != 0;
        for peer in self.peers.values_mut().filter(due).take(ASKED_MAX) {
            if peer.tries == 0 {
                peer.begin(now_us, *round, peer.groups & called);
            }
            let tested = peer.tested & peer.groups;
            let missing = tested & !peer.hears;
            // One that answers late is called as often as any other.
            let is_open = peer.has_answered && peer.called < CALLED && missing != 0;
            if peer.tries < PAUSES_US.len() || is_open {
                let [.., longest_us] = PAUSES_US;
                peer.next_us = now_us + PAUSES_US.get(peer.tries).copied().unwrap_or(longest_us);
                peer.tries += 1;
                if peer.has_answered {
                    calls |= tested & !peer.hears;
                    peer.called += 1;
                }
                questions.push((peer.address, peer.deaf != 0));
                continue;
            }
            // A member that does not answer is no longer there, or does not know this node yet.
            if peer.called >= CALLED && missing != 0 && peer.deaf != missing {
                if peer.deaf == 0 {
                    news.push(News::Deaf(peer.address));
                }
                peer.deaf = missing;
                *is_changed = true;
                questions.push((peer.address, true));
            }
            let pause_us = if peer.has_answered {
                AGAIN_US
            } else {
                peer.silences += 1;
                SILENT_US << peer.silences.min(SILENT_DOUBLED_MAX)
            };
            peer.end(now_us, now_us + pause_us);
        }
        let mut bytes = [0; GREETING_MAX];
        for address in (0..64).filter(|address| calls & 1 << address != 0) {
            let length = Greeting::Call { from: *me, round: *round, address }.write(&mut bytes);
            send(Destination::Multicast(address), &bytes[..length]);
        }
        for (address, copies) in questions {
            let body = Body { from: *me, round: *round, heard: 0, copies, settings: *settings };
            let length = Greeting::Question(body).write(&mut bytes);
            send(Destination::Member(address), &bytes[..length]);
        }
        self.plan(now_us);
    }

    /// Returns the members that need copies at some of this node's multicast addresses, by their bits, if
    /// they have changed.
    pub(crate) fn take_deaf(&mut self) -> Option<Vec<(SocketAddr, NodeId, u64)>> {
        let deaf = |(id, peer): (&NodeId, &Peer)| (peer.deaf != 0).then_some((peer.address, *id, peer.deaf));
        std::mem::take(&mut self.is_changed).then(|| self.peers.iter().filter_map(deaf).collect())
    }

    /// Returns the news since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Returns what was found of each member, or of those with which something is wrong.
    pub(crate) fn findings(&self, of_all: bool) -> impl Iterator<Item = (NodeId, Finding)> + '_ {
        let findings = self.peers.iter().map(|(&id, peer)| (id, self.finding(peer)));
        findings.filter(move |(_, finding)| of_all || finding.is_bad())
    }

    fn finding(&self, peer: &Peer) -> Finding {
        let tested = peer.groups & self.called();
        let differs = peer.settings.map_or_else(Vec::new, |settings| self.settings.differences(&settings));
        let hears = match peer.deaf {
            _ if tested == 0 || peer.settings.is_none() => None,
            0 => (tested & !peer.hears == 0).then_some(true),
            _ => Some(false),
        };
        let is_heard = if peer.sends_copies { Some(false) } else { (peer.heard.1 != 0).then_some(true) };
        Finding {
            differs,
            is_deaf: peer.deaf != 0,
            is_unheard: peer.sends_copies,
            answers: peer.settings.is_some(),
            hears,
            is_heard,
        }
    }

    /// Returns whether no member is being tested.
    pub(crate) fn is_settled(&self) -> bool {
        let tested = |peer: &Peer| peer.groups & self.called() & !(peer.hears | peer.deaf) != 0;
        let is_begun = |peer: &Peer| {
            peer.tries > 0 || peer.is_of_more || (peer.settings.is_none() && peer.silences == 0)
        };
        !self.peers.values().any(|peer| tested(peer) && is_begun(peer))
    }

    /// Returns the bits of the addresses at which this node calls. A node that sends by unicast does not: it
    /// asks for the settings alone.
    fn called(&self) -> u64 {
        if self.settings.unicast { 0 } else { self.sent_to }
    }

    /// Plans the next round.
    fn plan(&mut self, now_us: u64) {
        let sent_to = self.sent_to;
        let asked = self.peers.values().filter(|peer| peer.groups & sent_to != 0);
        let next_us = asked.map(|peer| peer.next_us).min();
        self.next_us = next_us.map(|next_us| next_us.max(now_us).max(self.round_us + ROUND_US));
    }
}

#[cfg(test)]
mod tests;
