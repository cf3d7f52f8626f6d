//! The stage between a node and its application that puts the messages of one group into total order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use foundation::Seq;

use super::campaign::Candidacy;
use super::config::{TotalConfig, TotalCounts};
use super::epoch::{Council, Epoch};
use super::fetching::Want;
use super::founding::Founding;
use super::hold::Hold;
use super::log::{Log, SENDERS_MAX};
use super::promises::Promises;
use super::report::{Begin, Report};
use super::wire::{Body, Form, Head};
use crate::counters::GivenUp;
use crate::ids::{GroupId, NodeId, StreamKey};
use crate::message::{How, Message, Sent};
use crate::tracker::{Front, Lost};

/// Output of the stage, in total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered<'a> {
    /// A message.
    Message {
        /// Its number. A message that takes several positions of its stream takes as many numbers.
        number: u64,
        /// The message.
        message: Message<'a>,
    },
    /// Packets that no member delivers.
    Lost {
        /// The first number of them.
        number: u64,
        /// The packets.
        lost: Lost,
    },
    /// News about the order.
    News(OrderNews),
}

/// News about a total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderNews {
    /// This member delivers from here on.
    Begins {
        /// The first number.
        number: u64,
    },
    /// This member has missed numbers that nobody keeps any more. All that it has delivered is agreed on.
    Missed {
        /// The first number that it has missed.
        from: u64,
        /// Number with which it continues.
        continues: u64,
    },
    /// This member has delivered messages otherwise than the others have agreed.
    Broken {
        /// First number that differs.
        from: u64,
        /// Number after the last one that this member has delivered.
        delivered: u64,
        /// Number with which the agreed sequence continues.
        continues: u64,
    },
    /// No message has been numbered for two seconds, or delivered in safe order, because no majority of the
    /// members is heard or no order has begun.
    Stalled,
    /// Messages are numbered again, and delivered.
    Resumed,
}

/// Receiver of the stage's output.
pub trait OrderOutput {
    /// Sends a packet to the [order group](super::order_group), with
    /// [`Node::multicast_order`](crate::Node::multicast_order).
    fn send(&mut self, packet: &[u8]);
    /// Hands a message or news to the application.
    fn release(&mut self, ordered: Ordered<'_>);
}

/// State of a total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// The present epoch, if this node is in one.
    pub epoch: Option<Epoch>,
    /// Number of members of the epoch.
    pub members: usize,
    /// The next number.
    pub next: u64,
    /// The next number to deliver.
    pub delivered: u64,
    /// Number of messages kept.
    pub held: usize,
    /// Whether no message is numbered or, in safe order, delivered, because no majority is heard.
    pub stalled: bool,
}

/// Puts the messages of one group into total order.
///
/// A driver passes everything that its node delivers to the stage, and then calls [`Total::flush`]: all that
/// came between two flushes shares packets.
#[derive(Debug)]
pub struct Total {
    pub(super) config: TotalConfig,
    group: GroupId,
    /// Random number of the order; `None` as long as this node has none.
    pub(super) order: Option<u64>,
    /// Random number of the order that this node would begin.
    pub(super) own_order: u64,
    /// Members of the epoch that `log` belongs to; `None` if this node is in none.
    pub(super) council: Option<Council>,
    /// Whether members acknowledge every number at once.
    pub(super) prompt: bool,
    pub(super) log: Log,
    /// The next epoch, to which this node has agreed.
    pub(super) pending: Option<Box<Begin>>,
    /// The greatest epoch that this node has promised to.
    pub(super) promised: Option<Epoch>,
    /// The greatest epoch of another member that this node has promised to.
    pub(super) granted: Option<Epoch>,
    /// Promises in other orders, and those that this node gave when it was in the group earlier.
    pub(super) promises: Promises,
    /// The highest count of any epoch heard of.
    pub(super) count_seen: u32,
    pub(super) candidacy: Option<Candidacy>,
    pub(super) founding: Founding,
    pub(super) hold: Hold,
    /// Senders that may have messages to number.
    pub(super) dirty: BTreeSet<NodeId>,
    /// Number of senders with which some of them are forgotten.
    pub(super) senders_due: usize,
    /// First number of which this node lacks the message.
    pub(super) held: u64,
    /// First number that this member was to deliver.
    pub(super) begins: u64,
    /// Next number to deliver.
    pub(super) delivered: u64,
    /// Numbers that this node had delivered when it gave up another order.
    pub(super) void: Option<u64>,
    pub(super) has_delivered: bool,
    /// How far each member holds the messages.
    pub(super) acks: BTreeMap<NodeId, u64>,
    pub(super) acked: u64,
    pub(super) ack_due_us: Option<u64>,
    /// Number up to which all members hold the messages.
    pub(super) stable: u64,
    /// Time since which no majority has acknowledged more, and how far it had.
    pub(super) unheard: Option<(u64, u64)>,
    /// Time since which the slowest member has held up the others.
    pub(super) crowded_us: Option<u64>,
    /// Whether the sequencer has news beside numbers.
    pub(super) announces: bool,
    /// Members that have left, with what they knew.
    pub(super) byes: BTreeMap<NodeId, Report>,
    /// The other members of the order group, as the membership knows them.
    pub(super) view: BTreeSet<NodeId>,
    /// Members that the membership no longer knows. They are put out if they do not answer.
    pub(super) suspects: BTreeSet<NodeId>,
    /// Members that have held up the others for too long.
    pub(super) evicted: BTreeSet<NodeId>,
    pub(super) waits_for_promises: bool,
    pub(super) reform_us: Option<u64>,
    pub(super) campaign_us: Option<u64>,
    pub(super) patience: Patience,
    pub(super) want: Option<Want>,
    /// Numbers of which this node has told the sequencer that it lacks the messages: first, and end.
    pub(super) denied: BTreeMap<u64, u64>,
    pub(super) answered_us: Option<u64>,
    pub(super) stalled: bool,
    /// Time since which packets that came are held back, if they are.
    pub(super) blocked_since_us: Option<u64>,
    leaving: bool,
    pub(super) news: VecDeque<OrderNews>,
    sends: Vec<Vec<u8>>,
    pub(super) counts: TotalCounts,
}

/// How long this node has waited for progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Time since which nothing was numbered, nor delivered in safe order, and what was known then.
    pub(super) stuck: Option<(u64, Stuck)>,
    /// Time of the last progress of any kind, and what was known then.
    pub(super) quiet: Option<(u64, Mark)>,
    /// Last time that numbers of the sequencer came; at the sequencer itself, last time that it waited for
    /// a member that holds up the others.
    pub(super) heard_us: Option<u64>,
    /// Next time to ask for numbers.
    pub(super) pull_us: u64,
    pub(super) pause_us: u64,
    /// Time of the next attempt.
    pub(super) due_us: Option<u64>,
}

/// The next number, and in safe order the next one to deliver; `None` without an order.
pub(super) type Stuck = Option<(u64, u64)>;

/// Signs of progress: the next number, and the greatest epoch promised.
pub(super) type Mark = (u64, Option<Epoch>);

impl Total {
    /// Makes a member of the order of `group`. `seed` is random.
    pub fn new(now_us: u64, group: GroupId, config: TotalConfig, seed: u64) -> Self {
        Self {
            group,
            order: None,
            // 0 stands for no order.
            own_order: seed.max(1),
            council: None,
            prompt: false,
            log: Log::default(),
            pending: None,
            promised: None,
            granted: None,
            promises: Promises::default(),
            count_seen: 0,
            candidacy: None,
            founding: Founding::new(now_us, config.retry_us),
            hold: Hold::new(config.messages_max, config.bytes_max),
            dirty: BTreeSet::new(),
            senders_due: SENDERS_MAX,
            held: 0,
            begins: 0,
            delivered: 0,
            void: None,
            has_delivered: false,
            acks: BTreeMap::new(),
            acked: 0,
            ack_due_us: None,
            stable: 0,
            unheard: None,
            crowded_us: None,
            announces: false,
            byes: BTreeMap::new(),
            view: BTreeSet::new(),
            suspects: BTreeSet::new(),
            evicted: BTreeSet::new(),
            waits_for_promises: false,
            reform_us: None,
            campaign_us: None,
            patience: Patience::default(),
            want: None,
            denied: BTreeMap::new(),
            answered_us: None,
            stalled: false,
            blocked_since_us: None,
            leaving: false,
            news: VecDeque::new(),
            sends: Vec::new(),
            counts: TotalCounts::default(),
            config,
        }
    }

    /// Takes a message of the group: one that came, or this node's own.
    pub fn handle_message(&mut self, message: &Message<'_>) {
        let Message { sender, seq, .. } = *message;
        self.dirty.insert(sender);
        if self.log.position(sender).is_some_and(|position| seq < position) {
            // It was numbered before it came. A message without a number was numbered long ago.
            let number = self.number_of(sender, seq).filter(|&(number, _)| number >= self.log.start);
            let is_open = number.is_some_and(|(number, lost)| !lost && number >= self.held);
            if !is_open {
                return self.hold.on_settled(sender, message.front);
            }
            self.hold.put(message, true);
            return;
        }
        if !self.hold.put(message, false) {
            self.counts.crowded += 1;
        }
    }

    /// Returns the number of a position that lies in the log, and whether it is lost.
    fn number_of(&self, sender: NodeId, seq: Seq) -> Option<(u64, bool)> {
        let contains = |run: &super::log::Run| {
            run.sender == sender && run.seq <= seq && seq < run.seq.plus(run.count.into())
        };
        let (&number, run) = self.log.runs.iter().rev().find(|(_, run)| contains(run))?;
        Some((number + (seq.0 - run.seq.0), run.lost))
    }

    /// Takes a report of lost packets. They are lost for all members only if the sequencer lacks them.
    pub fn on_lost(&mut self, lost: &Lost) {
        self.hold.on_lost(lost.key.sender, lost.first, lost.last);
        self.dirty.insert(lost.key.sender);
    }

    /// Notes how far a stream is settled.
    pub fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.hold.on_settled(key.sender, front);
        self.dirty.insert(key.sender);
    }

    /// Forgets a stream about which all that was known was false.
    pub fn on_restart(&mut self, key: StreamKey) {
        self.hold.forget_stream(key.sender);
        self.dirty.remove(&key.sender);
    }

    /// Takes a packet of the order group.
    pub fn handle_packet(&mut self, now_us: u64, from: NodeId, packet: &[u8]) {
        let near = |sender| self.log.position(sender).or_else(|| self.hold.near(sender));
        let Ok((head, body)) = Body::read(packet, &near) else { return self.counts.malformed += 1 };
        if from == self.config.me || self.leaving {
            return;
        }
        if let Body::Hello { safe, count } = body {
            return self.on_hello(now_us, from, head, (safe, count));
        }
        if !self.is_of_order(now_us, from, head) {
            return;
        }
        match body {
            Body::Hello { .. } => {}
            Body::Prepare { epoch } => self.on_prepare(now_us, from, epoch),
            Body::Promise { epoch, report } => self.on_promise(from, epoch, report),
            Body::Begin(begin) => self.on_begin(now_us, from, begin),
            Body::Accept { epoch } => self.on_accept(from, epoch),
            Body::Numbers { epoch, held, stable, first, runs, amended } => {
                if self.on_epoch_of(now_us, from, epoch) {
                    self.on_numbers(now_us, from, (held, stable, first), &runs, &amended);
                }
            }
            Body::Ack { epoch, held } => self.on_ack(from, epoch, held),
            Body::Pull { epoch, promised, next } => self.on_pull(now_us, from, (epoch, promised), next),
            Body::Want { epoch, to, number, sender, seq } => {
                if to == self.config.me && Some(epoch) == self.log.epoch() {
                    self.on_want(from, number, sender, seq);
                }
            }
            Body::Copy { number, sender, seq, packets, form, payload } => {
                // The copy says nothing about the messages before it.
                let front = Front { settled: Seq(0), awaited: Seq(0) };
                let message = Message::new(sender, self.group, seq, payload);
                let Form { joint, enveloped, sent_us } = form;
                let sent = sent_us.map(|at_us| Sent { at_us, since_us: now_us });
                let message = Message { joint, enveloped, packets, sent, front, ..message };
                let message = Message { how: How::Requested, ..message };
                self.on_copy(from, number, &message);
            }
            Body::Deny { epoch, number, count } => {
                if Some(epoch) == self.log.epoch() {
                    self.on_deny(from, number, count);
                }
            }
            Body::Gone { epoch, number, until } => {
                if Some(epoch) == self.log.epoch() {
                    self.on_gone(from, number, until);
                }
            }
            Body::Bye(report) => self.on_bye(now_us, from, report),
        }
    }

    /// Continues with other members of the order group, this node left out.
    pub fn change_view(&mut self, now_us: u64, members: impl IntoIterator<Item = NodeId>) {
        let view: BTreeSet<NodeId> = members.into_iter().filter(|&node| node != self.config.me).collect();
        let gone: Vec<NodeId> = self.view.difference(&view).copied().collect();
        self.view = view;
        self.founding.hellos.retain(|node, _| !gone.contains(node));
        self.suspects.retain(|member| !self.view.contains(member));
        let councils = self.council.iter().chain(self.pending.as_ref().map(|begin| &begin.council));
        let members = councils.flat_map(|council| &council.members);
        self.suspects.extend(members.filter(|member| gone.contains(member)));
        let Some(council) = &self.council else { return };
        let is_new = self.view.iter().any(|node| !council.contains(*node));
        if self.is_sequencer() {
            if !self.suspects.is_empty() {
                self.reform_soon(now_us);
            }
            // Others may have begun an order of their own.
            self.announces |= is_new;
        } else if self.log.epoch().is_some_and(|epoch| gone.contains(&epoch.sequencer)) {
            self.campaign_soon(now_us);
        }
    }

    /// Leaves the order. The packet that tells the others is sent by the next flush. None is sent if this
    /// node has promised to an epoch that it has not agreed to yet: it counts for that epoch, and the others
    /// must not take it for a member that counts for none.
    pub fn leave(&mut self) {
        let agreed = self.log.epoch().max(self.pending.as_ref().map(|begin| begin.epoch));
        let is_member = self.council.is_some() || self.pending.is_some();
        if !self.leaving && is_member && self.granted <= agreed {
            let report = self.report();
            self.send(&Body::Bye(report));
        }
        self.leaving = true;
        self.candidacy = None;
    }

    /// Numbers, sends and delivers what can be.
    pub fn flush(&mut self, now_us: u64, out: &mut impl OrderOutput) {
        if !self.leaving {
            self.found(now_us);
            self.campaign(now_us);
            let numbered = self.number(now_us);
            self.advance(now_us);
            self.tell(numbered);
            self.deliver(out);
            self.acknowledge(now_us);
            self.watch_progress(now_us);
        }
        self.release_news(out);
        self.sends.drain(..).for_each(|packet| out.send(&packet));
    }

    pub(super) fn release_news(&mut self, out: &mut impl OrderOutput) {
        self.news.drain(..).for_each(|news| out.release(Ordered::News(news)));
    }

    /// Returns when the next [`Total::flush`] is due if nothing else happens until then.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.leaving {
            return None;
        }
        let always = [self.founding_due_us(), self.candidacy_due_us(), self.ack_due_us];
        let heard = [
            self.campaign_us,
            self.reform_us,
            self.want.as_ref().map(|want| want.due_us),
            self.patience.due_us,
            self.crowded_us.map(|since_us| since_us.saturating_add(self.config.evict_us)),
        ];
        let heard = heard.into_iter().filter(|_| !self.is_blocked());
        always.into_iter().chain(heard).flatten().min()
    }

    /// Returns the state.
    pub fn status(&self) -> OrderStatus {
        OrderStatus {
            epoch: self.council.as_ref().and(self.log.epoch()),
            members: self.council.as_ref().map_or(0, |council| council.members.len()),
            next: self.log.next,
            delivered: self.delivered,
            held: self.hold.len(),
            stalled: self.stalled,
        }
    }

    /// Returns the counts since the start.
    pub fn counts(&self) -> &TotalCounts {
        &self.counts
    }

    /// Returns the bytes of the messages kept.
    pub fn bytes(&self) -> usize {
        self.hold.bytes()
    }

    /// Returns whether this node numbers the messages, as far as it knows.
    pub fn is_sequencer(&self) -> bool {
        self.council.is_some() && self.log.epoch().is_some_and(|epoch| epoch.sequencer == self.config.me)
    }

    /// Returns whether the epoch is valid as far as this node has promised.
    pub(super) fn is_open(&self) -> bool {
        self.council.is_some() && self.promised <= self.log.epoch()
    }

    pub(super) fn send(&mut self, body: &Body<'_>) {
        let order = self.order.unwrap_or(0);
        self.sends.push(body.write(Head { order, is_empty: self.log.next == 0 }));
    }

    /// Returns what this node knows.
    pub(super) fn report(&self) -> Report {
        let council = self.council.clone().unwrap_or_default();
        Report { council, log: self.log.clone(), pending: self.pending.clone() }
    }

    /// Returns a report of lost packets for the application.
    pub(super) fn lost(&self, sender: NodeId, first: Seq, count: u64) -> Lost {
        let key = StreamKey { sender, group: self.group };
        Lost { key, first, last: first.plus(count.saturating_sub(1)), reason: GivenUp::Gone }
    }
}
