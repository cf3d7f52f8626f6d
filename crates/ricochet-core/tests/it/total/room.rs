//! Members of one order, and the packets between them. Each takes a millisecond.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use ricochet_core::message::{Message, Sent};
use ricochet_core::order::{OrderNews, OrderOutput, Ordered, Total, TotalConfig};
use ricochet_core::tracker::Front;
use ricochet_core::{GroupId, NodeId, Seq};

pub(crate) const GROUP: GroupId = GroupId(7);
/// Time that a packet takes.
pub(crate) const HOP_US: u64 = 1_000;

/// An output of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Number, sender and sequence number of a message.
    Message(u64, u32, u32),
    /// Number, sender, sequence number of the first lost packet, and how many.
    Lost(u64, u32, u32, u64),
    News(OrderNews),
}

/// Output of a member.
#[derive(Default)]
struct Out {
    packets: Vec<Vec<u8>>,
    items: Vec<Item>,
}

impl OrderOutput for Out {
    fn send(&mut self, packet: &[u8]) {
        self.packets.push(packet.to_vec());
    }

    fn release(&mut self, ordered: Ordered<'_>) {
        self.items.push(match ordered {
            Ordered::Message { number, message } => {
                assert_eq!(message.payload, message.seq.to_wire().to_be_bytes());
                assert_eq!(message.sent.map(|sent| sent.at_us), Some(sent_us(message.seq.to_wire())));
                Item::Message(number, message.sender.0, message.seq.to_wire())
            }
            Ordered::Lost { number, lost } => {
                let count = lost.last.0 - lost.first.0 + 1;
                Item::Lost(number, lost.key.sender.0, lost.first.to_wire(), count)
            }
            Ordered::News(news) => Item::News(news),
        });
    }
}

/// Time at which messages with a number are sent, by their senders' clocks.
fn sent_us(seq: u32) -> u64 {
    1_700_000_000_000_000 + u64::from(seq)
}

/// Time of arrival, serial number, sender, receiver, and the packet.
type Flight = (u64, u64, usize, usize, Vec<u8>);

pub(crate) struct Room {
    pub(crate) totals: Vec<Total>,
    pub(crate) items: Vec<Vec<Item>>,
    /// Times of the deliveries.
    pub(crate) times_us: Vec<Vec<u64>>,
    /// Members that are dead, or stopped.
    pub(crate) down: HashSet<usize>,
    /// Side of each member in a partition.
    pub(crate) side: Vec<u8>,
    /// Packets that members hold back, with their senders.
    held_back: HashMap<usize, Vec<(usize, Vec<u8>)>>,
    flights: BinaryHeap<Reverse<Flight>>,
    launched: u64,
    pub(crate) now_us: u64,
    /// All packets sent, with their senders.
    pub(crate) sent: Vec<(usize, Vec<u8>)>,
}

impl Room {
    /// Makes members that know each other, and lets them begin an order.
    pub(crate) fn new(count: usize, mut configure: impl FnMut(TotalConfig) -> TotalConfig) -> Self {
        let mut room = Self {
            totals: Vec::new(),
            items: Vec::new(),
            times_us: Vec::new(),
            down: HashSet::new(),
            side: Vec::new(),
            held_back: HashMap::new(),
            flights: BinaryHeap::new(),
            launched: 0,
            now_us: 1_000_000,
            sent: Vec::new(),
        };
        (0..count).for_each(|_| room.add(&mut configure));
        room.update_views();
        room.run_for(1_000_000);
        room
    }

    /// Adds a member.
    pub(crate) fn add(&mut self, configure: impl FnOnce(TotalConfig) -> TotalConfig) {
        let at = self.totals.len();
        let config = configure(TotalConfig::new(NodeId(at as u32)));
        self.totals.push(Total::new(self.now_us, GROUP, config, 1_000 + at as u64));
        self.items.push(Vec::new());
        self.times_us.push(Vec::new());
        self.side.push(0);
    }

    /// Lets a member that has left join again, on the same node.
    pub(crate) fn join_again(&mut self, at: usize, configure: impl FnOnce(TotalConfig) -> TotalConfig) {
        let config = configure(TotalConfig::new(NodeId(at as u32)));
        let total = Total::new(self.now_us, GROUP, config, 2_000 + at as u64);
        self.totals[at] = total.with_promises(self.totals[at].promises());
    }

    /// Tells the members who lives on their side.
    pub(crate) fn update_views(&mut self) {
        let alive: Vec<usize> = (0..self.totals.len()).filter(|at| !self.down.contains(at)).collect();
        for &at in &alive {
            let others = alive.iter().filter(|&&other| self.side[other] == self.side[at]);
            let others: Vec<NodeId> = others.map(|&other| NodeId(other as u32)).collect();
            self.totals[at].change_view(self.now_us, others);
            self.flush(at);
        }
    }

    /// Gives message `seq` of a sender to some members.
    pub(crate) fn say(&mut self, sender: usize, seq: u32, to: impl IntoIterator<Item = usize>) {
        let payload = seq.to_be_bytes();
        let sent = Some(Sent { at_us: sent_us(seq), since_us: self.now_us });
        let seq = Seq::first_seen(seq);
        let front = Front { settled: seq.plus(1), awaited: seq.plus(1) };
        let message = Message { front, sent, ..Message::new(NodeId(sender as u32), GROUP, seq, &payload) };
        for at in to {
            if !self.down.contains(&at) {
                self.totals[at].handle_message(&message);
                self.flush(at);
            }
        }
    }

    /// Gives a message to all members on the sender's side.
    pub(crate) fn say_all(&mut self, sender: usize, seq: u32) {
        let side = self.side.get(sender).copied().unwrap_or(0);
        let near: Vec<usize> = (0..self.totals.len()).filter(|&at| self.side[at] == side).collect();
        self.say(sender, seq, near);
    }

    /// Lets a member hold back the packets that come, as its node does while an application reads nothing.
    pub(crate) fn hold_back(&mut self, at: usize) {
        self.totals[at].set_blocked(self.now_us, true);
        self.held_back.entry(at).or_default();
        self.flush(at);
    }

    /// Lets it take them.
    pub(crate) fn go_on(&mut self, at: usize) {
        for (from, packet) in self.held_back.remove(&at).unwrap_or_default() {
            self.forge(from, at, &packet);
        }
        self.totals[at].set_blocked(self.now_us, false);
        self.flush(at);
    }

    /// Hands a packet to a member as if another one had sent it.
    pub(crate) fn forge(&mut self, from: usize, to: usize, packet: &[u8]) {
        self.totals[to].handle_packet(self.now_us, NodeId(from as u32), packet);
        self.flush(to);
    }

    pub(crate) fn flush(&mut self, at: usize) {
        let mut out = Out::default();
        self.totals[at].flush(self.now_us, &mut out);
        for item in out.items {
            self.items[at].push(item);
            self.times_us[at].push(self.now_us);
        }
        for packet in out.packets {
            self.sent.push((at, packet.clone()));
            for to in (0..self.totals.len()).filter(|&to| to != at && self.side[to] == self.side[at]) {
                self.launched += 1;
                self.flights.push(Reverse((self.now_us + HOP_US, self.launched, at, to, packet.clone())));
            }
        }
    }

    /// Advances the time.
    pub(crate) fn run_for(&mut self, time_us: u64) {
        let end_us = self.now_us + time_us;
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 200_000, "the members are busy for ever");
            let arrival = self.flights.peek().map(|Reverse((at_us, ..))| *at_us);
            let up = (0..self.totals.len()).filter(|at| !self.down.contains(at));
            let timer =
                up.filter_map(|at| Some((self.totals[at].poll_timeout()?.max(self.now_us), at))).min();
            let next_us = [arrival, timer.map(|(due_us, _)| due_us)].into_iter().flatten().min();
            let Some(next_us) = next_us.filter(|&next_us| next_us <= end_us) else { break };
            self.now_us = self.now_us.max(next_us);
            if arrival == Some(next_us) {
                let Some(Reverse((_, _, from, to, packet))) = self.flights.pop() else { break };
                if let Some(held_back) = self.held_back.get_mut(&to) {
                    held_back.push((from, packet));
                } else if !self.down.contains(&to) && self.side[from] == self.side[to] {
                    self.totals[to].handle_packet(self.now_us, NodeId(from as u32), &packet);
                    self.flush(to);
                }
            } else if let Some((_, at)) = timer {
                self.flush(at);
            }
        }
        self.now_us = end_us;
    }

    /// Returns the member that numbers messages.
    pub(crate) fn sequencer(&self) -> usize {
        let of = |at: &usize| !self.down.contains(at) && self.totals[*at].is_sequencer();
        let all: Vec<usize> = (0..self.totals.len()).filter(of).collect();
        let newest = all.into_iter().max_by_key(|&at| self.totals[at].status().epoch);
        newest.expect("there is a sequencer")
    }

    /// Returns the messages and losses that a member delivered.
    pub(crate) fn delivered(&self, at: usize) -> Vec<Item> {
        self.items[at].iter().copied().filter(|item| !matches!(item, Item::News(_))).collect()
    }

    /// Returns the news about broken orders that a member got.
    pub(crate) fn broken(&self, at: usize) -> Vec<OrderNews> {
        let news = self.items[at].iter().filter_map(|item| match item {
            Item::News(news @ OrderNews::Broken { .. }) => Some(*news),
            _ => None,
        });
        news.collect()
    }
}
