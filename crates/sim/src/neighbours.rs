//! Senders and repairers of one node in the papers' grouping, for benchmarks of that node.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::{BinsConfig, Outgoing, Packet};
use ricochet_core::wire::{Data, Extras, Repair};
use ricochet_core::{Bins, GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};

/// Number of nodes, including the measured one.
pub const NODES: usize = 64;
/// Mean number of members of a group.
const GROUP_SIZE: usize = 10;
const R: u8 = 8;
const C: u8 = 5;
const PAYLOAD: [u8; 1_024] = [7; 1_024];

/// Traffic settings.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Loss of data and of repairs, from 0 to 1.
    pub loss: f64,
    /// Time between two packets.
    pub between_us: u64,
    /// Maximum time for which a repair may stay part-filled.
    pub max_delay_us: Option<u64>,
}

/// Datagrams that reach a node, in order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The datagrams, back to back.
    pub bytes: Vec<u8>,
    /// Arrival time of each in microseconds, and its range in the bytes.
    pub datagrams: Vec<(u64, Range<usize>)>,
    /// Number of data packets among them.
    pub data: usize,
}

impl Trace {
    fn push(&mut self, now_us: u64, datagram: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.datagrams.push((now_us, start..self.bytes.len()));
    }
}

/// The neighbours of a node. Only packets of its own groups enter repairs for it, so no others are sent.
pub struct Lan {
    rng: ChaCha8Rng,
    traffic: Traffic,
    /// Id of each node; the first is the measured node.
    ids: Vec<NodeId>,
    /// Groups of each node.
    pub grouping: Vec<Vec<GroupId>>,
    /// Groups of the measured node.
    pub groups: Groups,
    /// View of all nodes.
    pub view: View,
    neighbours: Vec<(Groups, Bins)>,
    /// Other members of each of the node's groups.
    members: Vec<Vec<usize>>,
    seqs: Vec<u32>,
    now_us: u64,
}

impl Lan {
    /// Makes [`NODES`] nodes in `d` groups each, drawn from `all`, which needs [`Lan::groups_of`] groups.
    ///
    /// # Panics
    /// If the groups or the ids are not distinct.
    pub fn new(d: usize, all: &[GroupId], ids: Vec<NodeId>, traffic: Traffic) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let grouping: Vec<Vec<GroupId>> = (0..NODES).map(|_| some(&mut rng, all, d)).collect();
        let members = grouping.iter().zip(&ids).map(|(groups, &id)| Member::new(id, groups.clone()));
        let view = View::new(members);
        let bins = BinsConfig { r: R, max_delay_us: traffic.max_delay_us, ..BinsConfig::default() };
        let mut neighbour = |node: usize| {
            let groups = of(&grouping[node]);
            let regions = Regions::new(ids[node], &groups, &view);
            let plan = Plan::new(&groups, &regions);
            let bins = Bins::new(bins, regions, plan, &mut rng).expect("the configuration is in range");
            (groups, bins)
        };
        let neighbours = (0..NODES).map(&mut neighbour).collect();
        let groups = of(&grouping[0]);
        let others = |group: GroupId| -> Vec<usize> {
            (1..NODES).filter(|&node| grouping[node].contains(&group)).collect()
        };
        let members = groups.iter().map(|(_, group)| others(group.id)).collect();
        let seqs = vec![0; groups.len() * NODES];
        Self { rng, traffic, ids, grouping, groups, view, neighbours, members, seqs, now_us: 0 }
    }

    /// Returns the number of groups if each node is in `d`.
    pub fn groups_of(d: usize) -> usize {
        NODES * d / GROUP_SIZE
    }

    fn chance(&mut self, below: usize) -> usize {
        (self.rng.next_u64() % below as u64) as usize
    }

    /// Records the next packets, replacing those of the trace. Each goes to a random group, from a random
    /// member of it.
    ///
    /// # Panics
    /// Never: the looked-up items exist.
    pub fn record(&mut self, trace: &mut Trace, packets: usize) {
        trace.data = 0;
        trace.bytes.clear();
        trace.datagrams.clear();
        let mut datagram = [0; 1_472];
        while trace.data < packets {
            let at = self.chance(self.groups.len());
            let index = self.groups.iter().nth(at).expect("the index is in range");
            let group = index.1.id;
            if self.members[at].is_empty() {
                continue;
            }
            self.now_us += self.traffic.between_us;
            let member = self.chance(self.members[at].len());
            let sender = self.members[at][member];
            let seq = &mut self.seqs[at * NODES + sender];
            let data = Data {
                sender: self.ids[sender],
                group,
                seq: *seq,
                sender_seq: 0,
                expires: false,
                fragment: false,
                joint: false,
                extras: Extras::NONE,
                payload: &PAYLOAD,
            };
            *seq += 1;
            if !self.lose() {
                let length = data.write(&mut datagram);
                trace.push(self.now_us, &datagram[..length]);
                trace.data += 1;
            }
            self.repair(at, sender, &data, trace);
        }
    }

    /// Adds a packet to the bins of the other members, and keeps the resulting repairs for this node.
    fn repair(&mut self, at: usize, sender: usize, data: &Data<'_>, trace: &mut Trace) {
        let mut datagram = [0; 1_472];
        let head = data.symbol_head();
        for place in 0..self.members[at].len() {
            let member = self.members[at][place];
            if member == sender || self.lose() {
                continue;
            }
            let (me, from) = (self.ids[0], self.ids[member]);
            let Self { rng, neighbours, now_us, .. } = self;
            let (groups, bins) = &mut neighbours[member];
            let group = groups.index(data.group).expect("it is a member");
            let mut made = Vec::new();
            let mut emit = |repair: Outgoing<'_>| {
                if repair.targets.contains(&me) {
                    let repair = Repair { from, names: repair.names, symbol: repair.symbol };
                    let length = repair.write(&mut datagram);
                    made.push(datagram[..length].to_vec());
                }
            };
            bins.fire_due(*now_us, rng, &mut emit);
            let packet = Packet { group, name: data.name(), symbol: &[&head, data.payload] };
            bins.push(*now_us, &packet, rng, &mut emit).expect("the symbol is short enough");
            for repair in made {
                if !self.lose() {
                    trace.push(self.now_us, &repair);
                }
            }
        }
    }

    fn lose(&mut self) -> bool {
        let draw = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        draw < self.traffic.loss
    }
}

/// Returns the first `count` of a shuffle.
fn some(rng: &mut ChaCha8Rng, all: &[GroupId], count: usize) -> Vec<GroupId> {
    let mut groups = all.to_vec();
    let count = count.min(all.len());
    for at in 0..count {
        let other = at + (rng.next_u64() % (all.len() - at) as u64) as usize;
        groups.swap(at, other);
    }
    groups.truncate(count);
    groups
}

fn of(groups: &[GroupId]) -> Groups {
    let configs: Vec<_> = groups.iter().map(|&id| GroupConfig { id, c: C }).collect();
    Groups::new(configs).expect("the ids are distinct")
}
