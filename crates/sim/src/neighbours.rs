//! Who sends to a node and repairs for it, in the papers' grouping: for benchmarks of that one node.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::{BinsConfig, Outgoing, Packet};
use ricochet_core::wire::{Data, Repair};
use ricochet_core::{Bins, GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};

/// All nodes, the one that is measured among them.
pub const NODES: usize = 64;
/// Nodes in a group, on average.
const GROUP_SIZE: usize = 10;
const R: u8 = 8;
const C: u8 = 5;
const PAYLOAD: [u8; 1_024] = [7; 1_024];

/// How the packets come.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Of data and of repairs, from 0 to 1.
    pub loss: f64,
    /// From one packet to the next.
    pub between_us: u64,
    /// How long a repair may stay part-filled.
    pub max_delay_us: Option<u64>,
}

/// What comes to a node, one datagram after the other.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The datagrams, one behind the other.
    pub bytes: Vec<u8>,
    /// When each comes, in microseconds, and where it is in the bytes.
    pub datagrams: Vec<(u64, Range<usize>)>,
    /// How many of them are data packets.
    pub data: usize,
}

impl Trace {
    fn push(&mut self, now_us: u64, datagram: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.datagrams.push((now_us, start..self.bytes.len()));
    }
}

/// The neighbours of a node. Only packets of its own groups get into repairs for it, so others are not sent.
pub struct Lan {
    rng: ChaCha8Rng,
    traffic: Traffic,
    /// Of each node its id; the first is the node that is measured.
    ids: Vec<NodeId>,
    /// Of each node, its groups.
    pub grouping: Vec<Vec<GroupId>>,
    /// The measured node's groups.
    pub groups: Groups,
    /// All nodes.
    pub view: View,
    neighbours: Vec<(Groups, Bins)>,
    /// Of each of the node's groups, its other members.
    members: Vec<Vec<usize>>,
    seqs: Vec<u32>,
    now_us: u64,
}

impl Lan {
    /// [`NODES`] nodes in `d` groups each, which are drawn from `all`: [`Lan::groups_of`] says how many that is.
    ///
    /// # Panics
    /// If the groups, or the ids, are not distinct.
    #[must_use]
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

    /// How many groups there are if each node is in `d`.
    #[must_use]
    pub fn groups_of(d: usize) -> usize {
        NODES * d / GROUP_SIZE
    }

    fn chance(&mut self, below: usize) -> usize {
        (self.rng.next_u64() % below as u64) as usize
    }

    /// The next packets, in place of those before: each to a random group, from a random member of it.
    ///
    /// # Panics
    /// Never: what is looked up is there.
    pub fn record(&mut self, trace: &mut Trace, packets: usize) {
        trace.data = 0;
        trace.bytes.clear();
        trace.datagrams.clear();
        let mut datagram = [0; 1_472];
        while trace.data < packets {
            let at = self.chance(self.groups.len());
            let index = self.groups.iter().nth(at).expect("it is one of them");
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
                payload: &PAYLOAD,
            };
            *seq += 1;
            if !self.is_lost() {
                let length = data.write(&mut datagram);
                trace.push(self.now_us, &datagram[..length]);
                trace.data += 1;
            }
            self.repair(at, sender, &data, trace);
        }
    }

    /// The other members put a packet into their bins; what comes of it for this node is kept.
    fn repair(&mut self, at: usize, sender: usize, data: &Data<'_>, trace: &mut Trace) {
        let mut datagram = [0; 1_472];
        let head = data.symbol_head();
        for place in 0..self.members[at].len() {
            let member = self.members[at][place];
            if member == sender || self.is_lost() {
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
                if !self.is_lost() {
                    trace.push(self.now_us, &repair);
                }
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        let draw = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        draw < self.traffic.loss
    }
}

/// The first `count` of a shuffle.
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
