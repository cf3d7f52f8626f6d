//! Packets on their way through parser, tracker and bins allocate nothing.
#![allow(missing_docs)]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::{BinsConfig, Packet};
use ricochet_core::counters::GivenUp;
use ricochet_core::delivery::Released;
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::node::NakConfig;
use ricochet_core::tracker::{Front, Lost};
use ricochet_core::tracker::{Tracker, TrackerConfig};
use ricochet_core::wire::{Data, Datagram, Extras, Kind, Repair};
use ricochet_core::{Fifo, FifoConfig, GroupId, Node, NodeConfig, NodeId, StreamKey};

#[test]
fn no_packet_makes_a_node_allocate() {
    const NODE: u32 = 0;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let grouping = crate::common::grouping(&mut rng, 32, 128, 8);
    let (groups, view) = (crate::common::groups(&grouping[NODE as usize], 5), crate::common::view(&grouping));
    let config = BinsConfig { stagger: 2, max_delay_us: Some(20_000), ..BinsConfig::default() };
    let mut bins = crate::common::bins(config, NODE, &groups, &view, &mut rng);
    let small = TrackerConfig {
        streams_max: 300,
        intervals_max: 200,
        idle_us_min: 40_000,
        ..TrackerConfig::default()
    };
    let mut tracker = Tracker::new(small).unwrap();
    let mut seqs = vec![0u32; 1 << 12];
    let (mut datagram, mut outgoing) = (vec![0; 1_500], vec![0; 1_500]);
    let (mut received, mut sent) = (0u32, 0u32);

    let made = allocation_counter::measure(|| {
        for now_us in (0..2_000_000u64).step_by(100) {
            let at = (rng.next_u32() as usize) % groups.len();
            let (index, group) = groups.iter().nth(at).unwrap();
            let sender = rng.next_u32() % 8;
            let seq = &mut seqs[at * 8 + sender as usize];
            *seq = seq.wrapping_add(1 + u32::from(rng.next_u32() % 20 == 0));
            let data = Data {
                sender: NodeId(sender),
                group: group.id,
                seq: *seq,
                sender_seq: 0,
                expires: false,
                fragment: false,
                joint: false,
                extras: Extras::NONE,
                payload: &[7; 1_000],
            };
            let length = data.write(&mut datagram);
            let Ok(Datagram::Data(data)) = Datagram::read(&datagram[..length]) else {
                panic!("the datagram is valid")
            };
            received += u32::from(tracker.on_received(now_us, data.key(), data.seq, now_us).what.is_new());
            let head = data.symbol_head();
            let mut emit = |repair: ricochet_core::bins::Outgoing<'_>| {
                let wire = Repair { from: NodeId(NODE), names: repair.names, symbol: repair.symbol };
                let length = wire.write(&mut outgoing);
                let Ok(Datagram::Repair(view)) = Datagram::read(&outgoing[..length]) else {
                    panic!("the datagram is valid")
                };
                for name in view.names() {
                    let group: GroupId = groups.id(groups.by_tag(name.group).unwrap());
                    let key = StreamKey { sender: name.sender, group };
                    tracker.on_named(now_us, key, name.seq, now_us);
                }
                sent += repair.targets.len() as u32;
            };
            bins.fire_due(now_us, &mut rng, &mut emit);
            let packet = Packet { group: index, name: data.name(), symbol: &[&head, data.payload] };
            bins.push(now_us, &packet, &mut rng, &mut emit).unwrap();
            if now_us % 1_000 == 0 {
                while tracker.pop_lost().is_some() {}
            }
        }
    });
    assert_eq!(made.count_total, 0);
    assert!(received > 1_000 && sent > 1_000, "{received}, {sent}: packets and repairs passed");
    assert!(tracker.refused() > 0 && tracker.given_up().count(GivenUp::Idle) > 0, "the tables were full");
}

/// Holds the datagrams of one node until they are delivered. Messages go through an ordered subscription.
struct Wire {
    datagrams: Vec<[u8; 1_472]>,
    sent: Vec<(To, usize)>,
    fifo: Fifo,
    now_us: u64,
    /// Messages and losses released.
    released: [u32; 2],
}

impl Wire {
    fn new() -> Self {
        let fifo = Fifo::new(FifoConfig { messages_max: 64, ..FifoConfig::default() }).unwrap();
        Self {
            datagrams: vec![[0; 1_472]; 4_096],
            sent: Vec::with_capacity(4_096),
            fifo,
            now_us: 0,
            released: [0; 2],
        }
    }

    fn note(item: &Released<'_>, released: &mut [u32; 2]) {
        released[usize::from(matches!(item, Released::Lost(_)))] += 1;
    }
}

impl Output for Wire {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.datagrams[self.sent.len()][..datagram.len()].copy_from_slice(datagram);
        self.sent.push((to, datagram.len()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let Self { fifo, now_us, released, .. } = self;
        fifo.handle_message(*now_us, message, &mut |item| Self::note(&item, released));
    }

    fn on_lost(&mut self, report: &Lost) {
        let Self { fifo, now_us, released, .. } = self;
        fifo.on_lost(*now_us, report, &mut |item| Self::note(&item, released));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        let Self { fifo, released, .. } = self;
        fifo.on_settled(key, front, &mut |item| Self::note(&item, released));
    }
}

#[test]
fn no_message_makes_whole_nodes_and_an_ordered_subscription_allocate() {
    let group = GroupId(9);
    let grouping = vec![vec![group]; 3];
    let (groups, view) = (crate::common::groups(&grouping[0], 1), crate::common::view(&grouping));
    let mut nodes = [0, 1, 2].map(|id| {
        let nak = NakConfig { first_us: 10_000, tries_max: 8, ..NakConfig::default() };
        let config =
            NodeConfig { packets: 1_024, max_delay_us: Some(20_000), nak, ..NodeConfig::new(NodeId(id)) };
        Node::new(config, groups.clone(), &view, u64::from(id)).unwrap()
    });
    let mut wires = [Wire::new(), Wire::new(), Wire::new()];
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let mut now_us = 0;
    let mut run = |steps: u32| {
        for step in 0..steps {
            now_us += 500;
            for at in 0..3 {
                wires[at].now_us = now_us;
                let length = if step % 10 == 0 { 20_000 } else { 700 };
                if at < 2 {
                    let message = &[7; 20_000][..length];
                    nodes[at]
                        .multicast_large(now_us, group, message, SendOptions::default(), &mut wires[at])
                        .unwrap();
                }
                nodes[at].handle_timeout(now_us, &mut wires[at]);
            }
            for from in [0, 1, 2, 0, 1, 2] {
                for to in (0..3).filter(|&to| to != from) {
                    let Ok([sender, replies]) = wires.get_disjoint_mut([from, to]) else {
                        panic!("they are two")
                    };
                    for (datagram, &(destination, length)) in sender.datagrams.iter().zip(&sender.sent) {
                        // For some time requests are lost, so that packets are given up and the stage fills.
                        let is_lost = dice.next_u32() % 20 == 0
                            || (Kind::read(datagram) == Ok(Kind::Nak) && step % 1_000 > 800);
                        let is_meant =
                            matches!(destination, To::Group(_)) || destination == To::Node(NodeId(to as u32));
                        if is_meant && !is_lost {
                            nodes[to].handle_datagram(now_us, Origin::Member, &datagram[..length], replies);
                        }
                    }
                }
                wires[from].sent.clear();
            }
        }
    };
    // Runs until every table has been full once.
    run(20_000);
    let made = allocation_counter::measure(|| run(5_000));
    // Only a new maximum of incomplete or held messages allocates; packets do not.
    assert!(made.count_total < 50, "{made:?}");
    let reception = nodes[0].feedback(0).groups[0].reception;
    assert!(reception.repaired > 100 && reception.requested > 100 && reception.lost > 10, "{reception:?}");
    assert!(wires[0].released[0] > 20_000 && wires[0].released[1] > 10, "{:?}", wires[0].released);
    assert!(nodes[0].fragments().messages > 100 && wires[0].fifo.counts().skipped > 0);
}
