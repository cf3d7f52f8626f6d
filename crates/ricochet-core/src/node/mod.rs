//! The node: all parts put together, driven by packets to send, received datagrams and time.
//!
//! - A packet is sent: [`Node::multicast`] → data buffer → group.
//! - A packet arrives: [`Node::handle_datagram`] → `receive.rs` (if the tracker finds it new, it is delivered
//!   at once) → data buffer → repair bins → repairs to others.
//! - A repair arrives: `recover.rs` (which of its packets are here?) → decoder → recovered packets go on like
//!   those that arrive.
//! - A packet stays missing: `nak.rs` requests it.
//! - A reader is slower than a sender: `flow.rs` holds up the sender.

mod bursts;
mod clocks;
mod config;
mod counts;
mod denials;
mod expiry;
mod flow;
mod heartbeats;
mod history;
mod history_answers;
mod holders;
mod in_flight;
mod keyed;
mod large;
mod loopback;
mod nak;
mod neighbours;
mod questions;
mod rate;
mod receive;
mod recover;
mod repair_sender;
mod requester;
mod stable;

use fec::Decoder;
use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

pub use crate::announce::AnnounceConfig;
use crate::announce::Announcer;
use crate::bins::{Bins, Conditions, Packet};
use crate::buffer::{Buffer, PacketKey};
use crate::counters::Malformed;
use crate::delivery::Fragments;
use crate::feedback::{Feedback, Tally};
use crate::groups::Groups;
use crate::history::KeyedConfig;
use crate::history::catch_up::CatchUp;
use crate::history::keyed::KeyedStore;
use crate::history::log::Logs;
use crate::ids::{GroupId, GroupIndex};
use crate::limits::Limits;
use crate::message::{How, Origin, Output, SendError, SendOptions, To};
use crate::regions::Regions;
use crate::tracker::Tracker;
use crate::view::View;
use crate::wire::{DATA_HEADER, Data, Datagram, Extras, NAMES_MAX, SYMBOL_HEAD};
use bursts::Bursts;
use clocks::Clocks;
pub use config::{NakConfig, NodeConfig, NodeConfigError};
pub use counts::NodeCounts;
use flow::FlowControl;
pub use history::Replayed;
use keyed::Snapshots;
use loopback::Loopback;
pub use neighbours::{Planned, Planner};
use neighbours::{all_members, planned};
use questions::Questions;
use repair_sender::RepairSender;
use requester::{Mark, Requester};
use stable::Waits;

/// One node of a cluster.
///
/// Times are microseconds of one clock. The driver calls [`Node::handle_timeout`] at the time that
/// [`Node::poll_timeout`] returns, or later.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    payload_max: usize,
    groups: Groups,
    bins: Bins,
    /// All members of this node's groups, if the bins know only its partners.
    members: Option<Regions>,
    /// Number of turns of the partners.
    turn: u64,
    /// Number of times that this node has got other groups.
    regrouped: u64,
    /// Maximum number of repairs that a packet enters, by the loss.
    rate: u8,
    bursts: Bursts,
    tracker: Tracker<Mark>,
    buffer: Buffer,
    decoder: Decoder,
    /// Packets that the names of a repair stand for, while it is handled.
    named: Vec<PacketKey>,
    /// Packets just solved, by their ids in the buffer.
    solved: Vec<u64>,
    announcer: Announcer,
    sender_seq: u32,
    requester: Requester,
    questions: Questions,
    flow: FlowControl,
    /// Messages for whose holders somebody waits.
    waits: Waits,
    /// Whether packets come faster than they are processed.
    is_overloaded: bool,
    /// Incomplete messages of several packets.
    fragments: Fragments,
    /// Rate limit of the packets retransmitted to each member.
    answers: Limits,
    /// The history that this node keeps.
    logs: Logs,
    /// The last messages of keys, and copies of them that others read.
    keyed: KeyedStore,
    snapshots: Snapshots,
    /// Groups whose history this node reads.
    catch_ups: HashMap<GroupId, CatchUp>,
    /// Rate limit of the packets retransmitted to all strangers together.
    stranger_answers: Limits,
    /// Groups whose subscriptions want this node's own messages.
    loopback: Loopback,
    /// Clocks of senders, compared with this node's.
    clocks: Clocks,
    /// Counts at the last measurement of the loss.
    measured: Measured,
    rng: ChaCha8Rng,
    /// Buffer for an outgoing datagram.
    scratch: Box<[u8]>,
    /// Buffer for a symbol between data buffer and bins.
    symbol: Box<[u8]>,
    counts: NodeCounts,
    tally: Tally,
}

/// Packets received so far.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Packets that did not come by themselves.
    recovered: u64,
    all: u64,
}

/// A packet to send.
struct Outbound<'a> {
    group: GroupId,
    payload: &'a [u8],
    options: SendOptions,
    fragment: bool,
    joint: bool,
    extras: Extras,
}

impl Node {
    /// Makes a node that knows the members of `view` alone. `seed` decides everything that is left to chance.
    ///
    /// # Errors
    /// [`NodeConfigError`].
    pub fn new(config: NodeConfig, groups: Groups, view: &View, seed: u64) -> Result<Self, NodeConfigError> {
        let payload_max = config.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let symbol_max = SYMBOL_HEAD + payload_max;
        let Planned { regions, plan, members, .. } = planned(&config, &groups, view, (0, rate::ALL, 0));
        let bins = Bins::new(config.bins(symbol_max), regions, plan, &mut rng)?;
        Ok(Self {
            payload_max,
            bins,
            members,
            turn: 0,
            regrouped: 0,
            rate: rate::ALL,
            bursts: Bursts::new(),
            tracker: Tracker::new(config.tracker)?,
            buffer: Buffer::new(config.id, config.packets, symbol_max),
            decoder: Decoder::new(config.decoder(symbol_max)),
            named: Vec::with_capacity(NAMES_MAX),
            solved: Vec::with_capacity(config.equations),
            announcer: Announcer::new(&config.announce),
            sender_seq: 0,
            requester: Requester::new(&config.nak, view),
            questions: Questions::new(),
            flow: FlowControl::off(),
            waits: Waits::default(),
            is_overloaded: false,
            fragments: Fragments::new(config.fragments)?,
            answers: Limits::new(config.answers_per_second),
            logs: new_logs(&config, &groups)?,
            keyed: new_keyed(&config, &groups),
            snapshots: Snapshots::default(),
            catch_ups: HashMap::new(),
            stranger_answers: Limits::new(config.answers_per_second),
            loopback: Loopback::default(),
            clocks: Clocks::default(),
            measured: Measured::default(),
            rng,
            scratch: vec![0; config.datagram_max].into_boxed_slice(),
            symbol: vec![0; symbol_max].into_boxed_slice(),
            counts: NodeCounts::default(),
            tally: Tally::new(&groups, config.feedback_peers),
            groups,
            config,
        })
    }

    /// Returns the length of the longest payload of one packet, in bytes.
    pub fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Sends a packet to a group, of which this node need not be a member; returns its sequence number there.
    ///
    /// # Errors
    /// [`SendError`]; then nothing was sent.
    pub fn multicast(
        &mut self,
        now_us: u64,
        group: GroupId,
        payload: &[u8],
        options: SendOptions,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        if payload.len() > self.payload_max {
            return Err(SendError::TooLong { length: payload.len(), payload_max: self.payload_max });
        }
        let extras = Extras::NONE;
        let packet = Outbound { group, payload, options, fragment: false, joint: false, extras };
        self.send_packet(now_us, &packet, out)
    }

    fn send_packet(
        &mut self,
        now_us: u64,
        packet: &Outbound<'_>,
        out: &mut impl Output,
    ) -> Result<u32, SendError> {
        let Outbound { group, payload, options, fragment, joint, extras } = *packet;
        let (sender, sender_seq, expires) = (self.config.id, self.sender_seq, options.expires);
        let data = Data { sender, group, seq: 0, sender_seq, expires, fragment, joint, extras, payload };
        let count = data.count();
        let seq = self.announcer.next_seqs(now_us, group, count).ok_or(SendError::TooManyGroups)?;
        self.sender_seq = sender_seq.wrapping_add(1);
        let data = Data { seq, ..data };
        self.keep_sent(&data);
        let length = data.write(&mut self.scratch);
        out.send(To::Group(group), &self.scratch[..length]);
        self.log_own(now_us, &data);
        self.counts.sent += 1;
        self.tally.on_time(now_us);
        self.tally.on_sent(self.groups.index(group), count, length);
        self.on_sent(now_us, group, count, out);
        self.loop_back(now_us, &data, out);
        Ok(seq)
    }

    /// Keeps a packet of this node, for longer if its readers wait for it.
    fn keep_sent(&mut self, data: &Data<'_>) {
        let Self { buffer, flow, .. } = self;
        let key = PacketKey { stream: data.key(), seq: data.seq };
        buffer.put_sent(key, data.count(), &[&data.symbol_head(), data.payload], |last| {
            flow.is_awaited(last.stream.group, last.seq)
        });
    }

    /// Handles a datagram from which any trailer was cut off.
    pub fn handle_datagram(&mut self, now_us: u64, origin: Origin, datagram: &[u8], out: &mut impl Output) {
        if let Err(reason) = self.dispatch(now_us, origin, datagram, out) {
            self.counts.malformed.add(reason);
        }
        self.report_lost(now_us, None, out);
        self.send_questions(now_us, out);
    }

    fn dispatch(
        &mut self,
        now_us: u64,
        origin: Origin,
        datagram: &[u8],
        out: &mut impl Output,
    ) -> Result<(), Malformed> {
        let read = Datagram::read(datagram)?;
        self.tally.on_time(now_us);
        self.tally.received.add(read.kind(), datagram.len());
        match (origin, &read) {
            (Origin::Impostor, _) => {
                self.counts.impostors += 1;
                return Ok(());
            }
            (Origin::Stranger, Datagram::Repair(_) | Datagram::Retransmission(_)) => {
                self.counts.strangers += 1;
                return Ok(());
            }
            _ => {}
        }
        match read {
            Datagram::Data(data) => self.handle_data(now_us, origin, &data, How::Multicast, out),
            Datagram::Retransmission(data) => self.handle_data(now_us, origin, &data, How::Requested, out),
            Datagram::Repair(repair) => self.handle_repair(now_us, &repair, out),
            Datagram::Nak(nak) => self.handle_nak(now_us, origin, &nak, out),
            Datagram::Heartbeat(heartbeat) => self.handle_heartbeat(now_us, &heartbeat),
            Datagram::Question(question) => self.handle_question(&question, out),
            Datagram::Answer(answer) => self.handle_answer(now_us, &answer, out),
            Datagram::Denial(denial) => self.handle_denial(now_us, origin, &denial, out),
            Datagram::Rooms(report) => self.handle_rooms(now_us, origin, &report, out),
            Datagram::Probe(probe) => self.handle_probe(now_us, origin, &probe, out),
            Datagram::HistoryRequest(request) => self.handle_history_request(now_us, origin, &request, out),
            Datagram::History(history) => self.handle_history(now_us, origin, &history, out),
        }
        Ok(())
    }

    /// Returns when [`Node::handle_timeout`] is due next, if nothing else happens until then.
    pub fn poll_timeout(&self) -> Option<u64> {
        let due = [
            self.bins.next_deadline_us(),
            self.announcer.next_due_us(),
            self.requester.next_due_us(),
            self.fragments_due_us(),
            self.flow.next_due_us(),
            self.history_due_us(),
            self.waits.next_due_us(),
        ];
        due.into_iter().flatten().min()
    }

    /// Does what is due: sends part-filled repairs, heartbeats and requests, and gives up what is too late.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut impl Output) {
        self.tally.on_time(now_us);
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        let mut sender = RepairSender { me: config.id, scratch, counts, tally, out };
        bins.fire_due(now_us, rng, &mut |repair| sender.send(&repair));
        self.send_heartbeats(now_us, out);
        self.request_due(now_us, out);
        self.handle_flow_timeout(now_us, out);
        self.handle_history_timeout(now_us, out);
        self.handle_waits(now_us, out);
        self.report_lost(now_us, None, out);
        self.expire_fragments(now_us, out);
        self.send_questions(now_us, out);
    }

    /// Continues in other groups, with the neighbours there. Forgets packets missing in groups that were
    /// left.
    pub fn change_groups(&mut self, groups: Groups, view: &View, out: &mut impl Output) {
        self.groups = groups;
        self.regrouped += 1;
        self.requester.expiry.retain(&self.groups);
        self.tally.regroup(&self.groups);
        self.tracker.forget(|key| self.groups.index(key.group).is_none());
        self.questions.forget(|key| self.groups.index(key.group).is_none());
        self.flow.forget(|key| self.groups.index(key.group).is_none());
        self.fragments.forget(|key| self.groups.index(key.group).is_none());
        let Self { logs, keyed, groups, catch_ups, .. } = self;
        let joined = groups.iter().map(|(_, group)| group.id);
        logs.regroup(joined, |group| groups.index(group).is_some());
        let joined = groups.iter().map(|(_, group)| group.id);
        keyed.regroup(joined, |group| groups.index(group).is_some());
        catch_ups.retain(|&group, _| groups.index(group).is_some());
        self.change_view(view, out);
    }

    /// Sets whether packets come faster than this node processes them. Then it makes no repairs of them, so
    /// that repairs do not add to the load. Losses are discovered by later packets and announcements.
    pub fn set_overloaded(&mut self, overloaded: bool) {
        self.is_overloaded = overloaded;
    }

    /// Returns this node's groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the node's counts since its start.
    pub fn counts(&self) -> &NodeCounts {
        &self.counts
    }

    /// Returns a copy of what this node has seen of the network.
    pub fn feedback(&self, now_us: u64) -> Feedback {
        self.tally.feedback(now_us, all_members(self.members.as_ref(), &self.bins))
    }

    /// Returns the repair bins.
    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    /// Returns the number of missing intervals that are awaited.
    pub fn missing(&self) -> usize {
        self.tracker.owed()
    }

    /// Returns the memory held for packets and repairs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let buffers = self.buffer.memory_bytes() + self.decoder.memory_bytes() + self.bins.memory_bytes();
        buffers
            + self.scratch.len()
            + self.symbol.len()
            + self.fragments.memory_bytes()
            + self.logs.memory_bytes()
            + self.keyed.memory_bytes()
            + self.snapshots.memory_bytes()
            + self.tally.memory_bytes()
    }

    /// Drops equations with packets that the buffer has forgotten, which can never be solved.
    fn forget_old(&mut self) {
        self.decoder.expire_before(fec::SymbolId(self.buffer.first_id()));
    }

    /// Adds a packet that this node holds to its repair bins.
    fn add_to_bins(&mut self, now_us: u64, group: GroupIndex, id: u64, out: &mut impl Output) {
        self.update_conditions(out);
        if self.is_overloaded {
            return self.counts.repairs_yielded += 1;
        }
        let Self { buffer, bins, rng, scratch, config, counts, tally, .. } = self;
        // The buffer holds the symbol in one piece, which is added in one pass.
        let Some((key, symbol)) = buffer.packet(id) else { return };
        let mut sender = RepairSender { me: config.id, scratch, counts, tally, out };
        let packet = Packet { group, name: key.name(), symbol: &[symbol] };
        if bins.push(now_us, &packet, rng, &mut |repair| sender.send(&repair)).is_err() {
            self.counts.too_long += 1;
        }
    }

    /// Updates the bins' knowledge of the network from time to time.
    fn update_conditions(&mut self, out: &mut impl Output) {
        /// Packets between two measurements of the loss.
        const EVERY: u64 = 256;
        let recovered = self.counts.repaired + self.counts.requested;
        let all = recovered + self.counts.delivered;
        let last = self.measured;
        if all - last.all < EVERY {
            return;
        }
        let loss = (recovered - last.recovered) as f64 / (all - last.all) as f64;
        let before = self.bins.conditions().loss;
        // A quarter of each measurement, but the whole of the first.
        let loss = if last.all == 0 { loss } else { before + (loss - before) / 4.0 };
        self.measured = Measured { recovered, all };
        self.bins.set_conditions(Conditions { round_trip_us: self.requester.round_trip_us(), loss });
        self.follow_loss(out);
        self.follow_bursts(out);
    }
}

fn new_logs(config: &NodeConfig, groups: &Groups) -> Result<Logs, NodeConfigError> {
    config.history.check()?;
    let mut logs = Logs::new(config.history);
    logs.regroup(groups.iter().map(|(_, group)| group.id), |_| true);
    Ok(logs)
}

fn new_keyed(config: &NodeConfig, groups: &Groups) -> KeyedStore {
    // The positions of the log tell those who join where the streams go on.
    let kept = if config.history.group_bytes == 0 { KeyedConfig::default() } else { config.keyed };
    let mut keyed = KeyedStore::new(kept);
    keyed.regroup(groups.iter().map(|(_, group)| group.id), |_| true);
    keyed
}

/// [`payload_max`](crate::wire::payload_max) leaves room for the header of a packet and for the head of its
/// symbol.
const _: () = assert!(DATA_HEADER > SYMBOL_HEAD);
