//! The node: all of the above put together, driven by packets, datagrams and time.
//!
//! The path of a packet that is sent: [`Node::multicast`] → data buffer → the group. Of one that comes:
//! [`Node::handle_datagram`] → `receive.rs` (tracker: is it new? then it is delivered at once) → data buffer → repair
//! bins → repairs to others. Of a repair: `mend.rs` (which of its packets are here?) → decoder → what it brings back goes
//! the way of a packet that came. What is still missing after a while is asked for: `ask.rs`.

mod ask;
mod config;
mod counts;
mod expiry;
mod large;
mod mend;
mod output;
mod peers;
mod receive;
mod under_way;

use fec::Decoder;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::announce::{Announcer, Due};
use crate::bins::{Bins, Conditions, Outgoing};
use crate::buffer::{Buffer, PacketKey};
use crate::counters::Malformed;
use crate::delivery::Fragments;
use crate::feedback::{Feedback, Tally};
use crate::groups::Groups;
use crate::ids::{GroupId, GroupIndex, NodeId, StreamKey};
use crate::limits::Limits;
use crate::regions::Regions;
use crate::targets::Plan;
use crate::tracker::Tracker;
use crate::view::View;
use crate::wire::{DATA_HEADER, Data, Datagram, Heartbeat, Kind, NAMES_MAX, Repair, SYMBOL_HEAD};
use ask::{Asking, Mark};
pub use config::{AnnounceConfig, AskConfig, NodeConfig, NodeConfigError, SendError};
pub use counts::NodeCounts;
pub use output::{How, Message, Output, To};

/// One node of a cluster.
///
/// Times are microseconds of one clock. The driver calls [`Node::handle_timeout`] no earlier than
/// [`Node::poll_timeout`] says.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    payload_max: usize,
    groups: Groups,
    bins: Bins,
    tracker: Tracker<Mark>,
    buffer: Buffer,
    decoder: Decoder,
    /// What the names in a repair stand for, while it is looked at.
    named: Vec<PacketKey>,
    /// Packets just solved, by their ids in the buffer.
    solved: Vec<u64>,
    announcer: Announcer,
    sender_seq: u32,
    asking: Asking,
    /// Messages longer than a packet, in the making.
    fragments: Fragments,
    /// What peers may have sent again to them.
    answers: Limits,
    /// Packets that did not come by themselves, and all, when the loss was last looked at.
    measured: [u64; 2],
    rng: ChaCha8Rng,
    /// A datagram in the making.
    scratch: Box<[u8]>,
    /// A symbol on its way from the buffer to the bins.
    symbol: Box<[u8]>,
    counts: NodeCounts,
    tally: Tally,
}

impl Node {
    /// A node that knows nobody but `view`. `seed` decides all that is left to chance.
    ///
    /// # Errors
    /// [`NodeConfigError`].
    pub fn new(config: NodeConfig, groups: Groups, view: &View, seed: u64) -> Result<Self, NodeConfigError> {
        let payload_max = config.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let symbol_max = SYMBOL_HEAD + payload_max;
        let (regions, plan) = planned(config.id, &groups, view);
        let bins = Bins::new(config.bins(symbol_max), regions, plan, &mut rng)?;
        Ok(Self {
            payload_max,
            bins,
            tracker: Tracker::new(config.tracker)?,
            buffer: Buffer::new(config.packets, symbol_max),
            decoder: Decoder::new(config.decoder(symbol_max)),
            named: Vec::with_capacity(NAMES_MAX),
            solved: Vec::with_capacity(config.equations),
            announcer: Announcer::new(&config.announce),
            sender_seq: 0,
            asking: Asking::new(&config.ask, view),
            fragments: Fragments::new(config.fragments)?,
            answers: Limits::new(config.answers_per_second),
            measured: [0; 2],
            rng,
            scratch: vec![0; config.datagram_max].into_boxed_slice(),
            symbol: vec![0; symbol_max].into_boxed_slice(),
            counts: NodeCounts::default(),
            tally: Tally::new(&groups, config.feedback_peers),
            groups,
            config,
        })
    }

    /// Longest payload in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Sends a packet to a group, of which this node need not be a member; returns its sequence number there. `expires`
    /// says that it is worth nothing when late: who misses it does not ask for it, and gives it up soon. Best all packets of
    /// a stream agree: who misses one can only tell by its neighbours.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    pub fn multicast(
        &mut self,
        now_us: u64,
        group: GroupId,
        payload: &[u8],
        expires: bool,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        if payload.len() > self.payload_max {
            return Err(SendError::TooLong { length: payload.len(), payload_max: self.payload_max });
        }
        self.send_packet(now_us, group, payload, expires, false, out)
    }

    fn send_packet(
        &mut self,
        now_us: u64,
        group: GroupId,
        payload: &[u8],
        expires: bool,
        fragment: bool,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        let seq = self.announcer.send(now_us, group).ok_or(SendError::TooManyGroups)?;
        let (sender, sender_seq) = (self.config.id, self.sender_seq);
        self.sender_seq = sender_seq.wrapping_add(1);
        let data = Data { sender, group, seq, sender_seq, expires, fragment, payload };
        self.buffer.put(PacketKey { stream: data.key(), seq }, &[&data.symbol_head(), payload]);
        let length = data.write(&mut self.scratch);
        out.send(To::Group(group), &self.scratch[..length]);
        self.counts.sent += 1;
        self.tally.at(now_us);
        self.tally.sent(self.groups.index(group), length);
        self.forget_old();
        Ok(seq)
    }

    /// A datagram came, from which any trailer was cut off.
    pub fn handle_datagram(&mut self, now_us: u64, datagram: &[u8], out: &mut impl Output) {
        if let Err(reason) = self.receive(now_us, datagram, out) {
            self.counts.malformed.add(reason);
        }
        self.report_lost(now_us, None, out);
    }

    fn receive(&mut self, now_us: u64, datagram: &[u8], out: &mut impl Output) -> Result<(), Malformed> {
        let read = Datagram::read(datagram)?;
        self.tally.at(now_us);
        self.tally.received.add(Kind::read(datagram)?, datagram.len());
        match read {
            Datagram::Data(data) => self.take(now_us, &data, How::Multicast, out),
            Datagram::Retransmission(data) => self.take(now_us, &data, How::Requested, out),
            Datagram::Repair(repair) => self.mend(now_us, &repair, out),
            Datagram::Nak(nak) => self.answer(now_us, &nak, out),
            Datagram::Heartbeat(heartbeat) => self.note(now_us, &heartbeat),
        }
        Ok(())
    }

    /// When [`Node::handle_timeout`] next has something to do, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        let due = [self.bins.next_deadline_us(), self.announcer.next_due_us(), self.asking.next_due_us()];
        due.into_iter().chain([self.fragments.next_due_us()]).flatten().min()
    }

    /// Does what is due: part-filled repairs, announcements, requests.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.tally.at(now_us);
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        bins.fire_due(now_us, rng, &mut |repair| {
            send_repair(config.id, &repair, scratch, counts, tally, out);
        });
        self.announce(now_us, out);
        self.ask_due(now_us, out);
        self.report_lost(now_us, None, out);
        self.fragments.expire(now_us, &mut |lost| out.lost(lost));
    }

    /// Goes on with other neighbours. Repairs in the making leave first, so no packet goes without.
    pub fn change_view(&mut self, view: &View, out: &mut impl Output) {
        let (regions, plan) = planned(self.config.id, &self.groups, view);
        self.asking.change_view(view);
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        bins.change(regions, plan, rng, &mut |repair| {
            send_repair(config.id, &repair, scratch, counts, tally, out);
        });
    }

    /// Goes on in other groups, and with the neighbours there. What was missing in groups that were left is forgotten.
    pub fn change_groups(&mut self, groups: Groups, view: &View, out: &mut impl Output) {
        self.groups = groups;
        self.asking.expiry.forget(&self.groups);
        self.tally.regroup(&self.groups);
        self.tracker.forget(|key| self.groups.index(key.group).is_none());
        self.fragments.forget(|key| self.groups.index(key.group).is_none());
        self.change_view(view, out);
    }

    /// This node's groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// What this node has done so far.
    pub fn counts(&self) -> &NodeCounts {
        &self.counts
    }

    /// What this node has seen of the network: a copy, to be read at leisure.
    pub fn feedback(&self, now_us: u64) -> Feedback {
        self.tally.feedback(now_us, self.bins.regions())
    }

    /// What its bins have done so far.
    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    /// What is missing: intervals of packets that are waited for.
    pub fn missing(&self) -> usize {
        self.tracker.owed()
    }

    /// Bytes of memory held for packets and repairs.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffer.memory_bytes() + self.decoder.memory_bytes() + self.bins.memory_bytes();
        buffers
            + self.scratch.len()
            + self.symbol.len()
            + self.fragments.memory_bytes()
            + self.tally.memory_bytes()
    }

    fn announce(&mut self, now_us: u64, out: &mut impl Output) {
        let calm = self.is_calm();
        while let Some(Due { latest, copies }) = self.announcer.pop_due(now_us, calm) {
            let sender_seq = self.sender_seq.wrapping_sub(1);
            let heartbeat = Heartbeat { sender: self.config.id, sender_seq, latest: &[latest] };
            let length = heartbeat.write(&mut self.scratch);
            for _ in 0..copies {
                out.send(To::Group(latest.group), &self.scratch[..length]);
                self.counts.heartbeats_sent += 1;
                self.tally.sent.add(Kind::Heartbeat, length);
            }
        }
    }

    /// Whether little is lost, as far as this node can tell: news of packets are lost as often as packets. Where it is too
    /// early to tell, it is not calm; who receives nothing at all never can.
    fn is_calm(&self) -> bool {
        /// In such a share of losses, announcements are not to be spared.
        const LOSSY: f64 = 0.03;
        let counts = &self.counts;
        let received = counts.delivered + counts.repaired + counts.requested;
        received == 0 || (self.measured[1] > 0 && self.bins.conditions().loss < LOSSY)
    }

    /// Equations with packets that the buffer has forgotten can never be solved.
    fn forget_old(&mut self) {
        self.decoder.expire_before(fec::SymbolId(self.buffer.first_id()));
    }

    /// A packet that this node holds goes into its repair bins.
    fn spread(&mut self, now_us: u64, group: GroupIndex, id: u64, out: &mut impl Output) {
        self.measure();
        let Self { buffer, bins, rng, scratch, config, counts, tally, .. } = self;
        // Of one piece there, it is added up in one go.
        let Some((key, symbol)) = buffer.packet(id) else { return };
        let mut emit = |repair: Outgoing<'_>| send_repair(config.id, &repair, scratch, counts, tally, out);
        if bins.push(now_us, group, key.name(), &[symbol], rng, &mut emit).is_err() {
            self.counts.too_long += 1;
        }
    }

    /// Tells the bins, every now and then, what the network is like.
    fn measure(&mut self) {
        /// Packets between two looks at the loss.
        const EVERY: u64 = 256;
        let back = self.counts.repaired + self.counts.requested;
        let all = back + self.counts.delivered;
        let [seen_back, seen_all] = self.measured;
        if all - seen_all < EVERY {
            return;
        }
        let loss = (back - seen_back) as f64 / (all - seen_all) as f64;
        let before = self.bins.conditions().loss;
        // A quarter of each look, the first one whole.
        let loss = if seen_all == 0 { loss } else { before + (loss - before) / 4.0 };
        self.measured = [back, all];
        self.bins.set_conditions(Conditions { round_trip_us: self.asking.round_trip_us(), loss });
    }

    fn stream(sender: NodeId, group: GroupId) -> StreamKey {
        StreamKey { sender, group }
    }
}

fn planned(me: NodeId, groups: &Groups, view: &View) -> (Regions, Plan) {
    let regions = Regions::new(me, groups, view);
    let plan = Plan::new(groups, &regions);
    (regions, plan)
}

fn send_repair(
    me: NodeId,
    repair: &Outgoing<'_>,
    scratch: &mut [u8],
    counts: &mut NodeCounts,
    tally: &mut Tally,
    out: &mut impl Output,
) {
    let length = Repair { from: me, names: repair.names, symbol: repair.symbol }.write(scratch);
    for &target in repair.targets {
        out.send(To::Node(target), &scratch[..length]);
        counts.repairs_sent += 1;
        tally.repair_sent(target, length);
    }
}

/// The whole of a data packet fits what a repair leaves room for.
const _: () = assert!(DATA_HEADER > SYMBOL_HEAD);
