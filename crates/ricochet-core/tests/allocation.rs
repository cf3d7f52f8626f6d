//! A packet's way through reader, tracker and bins allocates nothing.
#![allow(missing_docs)]

mod common;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::BinsConfig;
use ricochet_core::counters::GivenUp;
use ricochet_core::tracker::{Tracker, TrackerConfig};
use ricochet_core::wire::{Data, Datagram, Repair};
use ricochet_core::{GroupId, NodeId};

#[test]
fn no_packet_makes_a_node_allocate() {
    const NODE: u32 = 0;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let grouping = common::grouping(&mut rng, 32, 128, 8);
    let (groups, view) = (common::groups(&grouping[NODE as usize], 5), common::view(&grouping));
    let config = BinsConfig { stagger: 2, max_delay_us: Some(20_000), ..BinsConfig::default() };
    let mut bins = common::bins(config, NODE, &groups, &view, &mut rng);
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
                payload: &[7; 1_000],
            };
            let length = data.write(&mut datagram);
            let Ok(Datagram::Data(data)) = Datagram::read(&datagram[..length]) else {
                panic!("it was written well")
            };
            received += u32::from(tracker.received(now_us, data.key(), data.seq, now_us).what.is_new());
            let head = data.symbol_head();
            let mut emit = |repair: ricochet_core::bins::Outgoing<'_>| {
                let wire = Repair { from: NodeId(NODE), names: repair.names, symbol: repair.symbol };
                let length = wire.write(&mut outgoing);
                let Ok(Datagram::Repair(view)) = Datagram::read(&outgoing[..length]) else {
                    panic!("written well")
                };
                for name in view.names() {
                    let group: GroupId = groups.id(groups.by_tag(name.group).unwrap());
                    let key = ricochet_core::StreamKey { sender: name.sender, group };
                    tracker.named(now_us, key, name.seq, now_us);
                }
                sent += repair.targets.len() as u32;
            };
            bins.fire_due(now_us, &mut rng, &mut emit);
            bins.push(now_us, index, data.name(), &[&head, data.payload], &mut rng, &mut emit).unwrap();
            if now_us % 1_000 == 0 {
                while tracker.pop_lost().is_some() {}
            }
        }
    });
    assert_eq!(made.count_total, 0);
    assert!(received > 1_000 && sent > 1_000, "{received}, {sent}: everything was used");
    assert!(tracker.refused() > 0 && tracker.given_up().count(GivenUp::Idle) > 0, "the tables were full");
}
