//! Neighbours come and go during traffic in a thousand groups. No packet is lost by it, and no missing packet
//! forgotten.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::message::{Message, Origin, Output, To};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::Datagram;
use ricochet_core::{GroupId, Member, Node, NodeConfig, NodeId, View};

const ME: NodeId = NodeId(0);
/// A sender that is in no view.
const SENDER: NodeId = NodeId(1_000);
const PACKETS: usize = 4_000;
/// Number of packets between two changes of the view.
const BETWEEN: usize = 200;

/// A group and a sequence number in its stream.
type Packet = (GroupId, u32);

#[derive(Default)]
struct Seen {
    delivered: BTreeMap<Packet, u32>,
    lost: Vec<Lost>,
    /// By group tag and sequence number, the nodes that repairs with the packet went to.
    repaired: BTreeMap<(u32, u32), BTreeSet<NodeId>>,
}

impl Output for Seen {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let (To::Node(to), Ok(Datagram::Repair(repair))) = (to, Datagram::read(datagram)) else { return };
        for name in repair.names() {
            assert!(
                self.repaired.entry((name.group.0, name.seq)).or_default().insert(to),
                "no node gets the packet twice"
            );
        }
    }

    fn deliver(&mut self, message: &Message<'_>) {
        *self.delivered.entry((message.group, message.seq.to_wire())).or_default() += 1;
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.lost.push(*lost);
    }
}

fn datagram((group, seq): Packet, again: bool) -> Vec<u8> {
    let data = crate::common::packet(SENDER, group, seq, b"x");
    crate::common::written(|to| if again { data.write_retransmission(to) } else { data.write(to) })
}

#[test]
fn changes_of_the_view_lose_no_packet_and_forget_no_missing_one() {
    change_often(0);
}

#[test]
fn packets_that_come_while_a_plan_is_made_go_by_the_last_one() {
    change_often(BETWEEN / 2);
}

/// Changes the view again and again. The plan for it is adopted `aside` packets later.
fn change_often(aside: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let grouping = crate::common::grouping(&mut rng, 64, 1_024, 10);
    // With c as large as any group, repairs carry each packet to all other members.
    let (groups, mut view) = (crate::common::groups(&grouping[0], 64), crate::common::view(&grouping));
    let mut node = Node::new(NodeConfig::new(ME), groups, &view, 1).unwrap();
    let (mut seen, mut seqs) = (Seen::default(), vec![0; grouping[0].len()]);
    let (mut sent, mut missing) = (BTreeSet::new(), BTreeSet::new());
    // The members of each packet's group when it came.
    let mut wanted = BTreeMap::new();
    let (mut away, mut planning, mut planned_view) = (None, None, view.clone());
    for at in 0..PACKETS {
        if at % BETWEEN == 0 && at > 0 {
            let runs = node.missing();
            match away.take() {
                Some(member) => view.set(member),
                None => {
                    let gone = NodeId(1 + rng.next_u32() % 63);
                    away = view.member(gone).cloned();
                    view.remove(gone)
                }
            };
            planning = Some((at + aside, node.planner(&view), view.clone()));
            node.learn_view(&view);
            assert_eq!(node.missing(), runs, "missing packets are still missing");
        }
        if let Some((_, planner, next)) = planning.take_if(|(due, ..)| *due == at) {
            assert!(node.adopt(planner.plan(), &mut seen));
            planned_view = next;
        }
        let index = rng.next_u32() as usize % seqs.len();
        let packet = (grouping[0][index], seqs[index]);
        seqs[index] += 1;
        if rng.next_u32() % 20 == 0 {
            missing.insert(packet);
            continue;
        }
        let members = planned_view.members().iter().filter(|member| member.groups().contains(&packet.0));
        wanted.insert(packet, members.map(Member::id).filter(|&id| id != ME).collect::<BTreeSet<_>>());
        node.handle_datagram(at as u64, Origin::Member, &datagram(packet, false), &mut seen);
        sent.insert(packet);
    }
    assert!(missing.len() > 100 && node.missing() > 30);
    // Late packets are still awaited.
    for &packet in &missing {
        node.handle_datagram(PACKETS as u64, Origin::Member, &datagram(packet, true), &mut seen);
    }
    sent.extend(&missing);
    assert!(sent.iter().all(|packet| seen.delivered.get(packet) == Some(&1)), "all are delivered, and once");
    assert_eq!((seen.delivered.len(), seen.lost.len(), node.missing()), (PACKETS, 0, 0));
    // A last change sends all part-filled repairs.
    node.change_view(&view, &mut seen);
    for ((group, seq), members) in wanted {
        let went = seen.repaired.remove(&(group.tag().0, seq)).unwrap_or_default();
        assert_eq!(went, members, "packet {seq} of {group} is in repairs to all");
    }
}

#[test]
fn a_plan_for_other_groups_is_not_adopted() {
    let [one, other] = [GroupId(1), GroupId(2)];
    let view = View::new((0..3).map(|id| Member::new(NodeId(id), [one, other])));
    let groups = |ids: &[GroupId]| crate::common::groups(ids, 2);
    let mut node = Node::new(NodeConfig::new(ME), groups(&[one]), &View::default(), 1).unwrap();
    let (early, mut seen) = (node.planner(&view).plan(), Seen::default());
    node.change_groups(groups(&[one, other]), &View::default(), &mut seen);
    let late = node.planner(&view).plan();
    assert!(!node.adopt(early, &mut seen) && node.bins().regions().is_empty());
    // The node does not fail over a packet of a group that the plan does not know.
    node.handle_datagram(1, Origin::Member, &datagram((other, 0), false), &mut seen);
    assert!(node.adopt(late, &mut seen));
    let members: Vec<_> =
        node.bins().regions().iter().flat_map(|region| node.bins().regions().members(region)).collect();
    assert_eq!(members, [&NodeId(1), &NodeId(2)]);
}
