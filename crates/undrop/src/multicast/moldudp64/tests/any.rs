//! Any bytes, and feeds whose packets have any fate.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::fuzzed::{self, Order};
use super::*;

#[path = "../../../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn packets_and_requests_survive_the_corpus() {
    replay::replay("moldudp64_wire", 9, 3_000, fuzzed::wire);
}

#[test]
fn a_reader_survives_the_corpus() {
    let mut most = (0, 0);
    replay::replay("moldudp64_reader", 8, 3_000, |data| {
        let (messages, lost) = fuzzed::reader(data);
        most = (most.0.max(messages), most.1.max(lost));
    });
    assert!(most.0 > 10 && most.1 > 1, "the corpus holds feeds with gaps: {most:?}");
}

/// Fate of a packet of a feed.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Passes,
    IsLost,
    Twice,
    /// It comes after the next one.
    Late,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![Just(Fate::Passes), Just(Fate::IsLost), Just(Fate::Twice), Just(Fate::Late)];
    vec(fate, 1..200)
}

proptest! {
    #[test]
    fn packets_read_back(messages in vec(vec(any::<u8>(), 0..50), 1..20), number in 1_u64..1 << 62) {
        let mut bytes = Vec::new();
        let all = messages.iter().map(Vec::as_slice);
        let count = write_messages(&mut bytes, A, number, 1 << 16, all);
        prop_assert_eq!(usize::from(count), messages.len());
        let packet = Packet::read(&bytes).unwrap();
        prop_assert_eq!((packet.session, packet.number), (A, number));
        let Content::Messages(read) = packet.content else { panic!("{packet:?}") };
        prop_assert!(read.eq(messages.iter().map(Vec::as_slice)));
        fuzzed::wire(&bytes);
        for end in 0..bytes.len() {
            prop_assert!(Packet::read(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..200)) {
        fuzzed::wire(&bytes);
        fuzzed::reader(&bytes);
    }

    /// A feed in two sessions, whose packets and answers are lost, doubled and late, arrives complete and in
    /// order if its server answers, and else with each gap told.
    #[test]
    fn a_feed_arrives_in_order(fates in fates(), has_server in any::<bool>(), ends in 1_usize..200) {
        let give_up_us = if has_server { 60_000_000 } else { TIMES.give_up_us };
        let times = Times { reorder_us: has_server.then_some(500), give_up_us, ..TIMES };
        let mut reader = Reader::new(times, None, true);
        let mut feed = Feed::new(A, 40, 1 << 20);
        let (mut now_us, mut steps, mut order, mut said) = (0, Vec::new(), Order::default(), Vec::new());
        let (mut late, mut packet, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        let mut random: u64 = 1;
        let mut number: u64 = 0;
        let mut turn = 0;
        // Heartbeats follow the last message, until the reader has nothing left to wait for.
        while turn < fates.len() || reader.position() != Some((feed.session(), feed.next())) {
            if turn < fates.len() {
                if turn == ends {
                    feed.write_end(&mut packet);
                    reader.handle_packet(now_us, &Packet::read(&packet).unwrap(), Origin::Feed, &mut steps);
                    feed.begin(B, 1);
                }
                number += 1;
                feed.push(&payload(number));
                feed.pack(&mut packet);
            } else {
                feed.write_heartbeat(&mut packet);
            }
            turn += 1;
            prop_assert!(turn < 100_000, "no progress");
            now_us += 5_000;
            let fate = if turn < fates.len() { fates[turn] } else { Fate::Passes };
            let copies = match fate {
                Fate::Passes => 1,
                Fate::Twice => 2,
                Fate::IsLost | Fate::Late => 0,
            };
            for _ in 0..copies {
                reader.handle_packet(now_us, &Packet::read(&packet).unwrap(), Origin::Feed, &mut steps);
            }
            for bytes in late.drain(..) {
                let bytes: Vec<u8> = bytes;
                reader.handle_packet(now_us, &Packet::read(&bytes).unwrap(), Origin::Feed, &mut steps);
            }
            if matches!(fate, Fate::Late) {
                late.push(packet.clone());
            }
            reader.handle_timeout(now_us, &mut steps);
            while let Some(request) = reader.poll_request(now_us) {
                prop_assert!(has_server);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if random >> 62 != 0 && feed.answer(&mut answer, &request) > 0 {
                    reader.handle_packet(now_us, &Packet::read(&answer).unwrap(), Origin::Answer, &mut steps);
                }
            }
            for step in steps.drain(..) {
                order.check(&step);
                if let Step::Message { payload, .. } = step {
                    said.push(payload);
                }
            }
        }
        prop_assert_eq!(order.messages + order.lost, number);
        if has_server {
            let all: Vec<Vec<u8>> = (1..=number).map(payload).collect();
            prop_assert_eq!(said, all);
        }
    }
}
