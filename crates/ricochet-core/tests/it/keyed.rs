//! The last value of each key, which members keep for those who join later.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::delivery::Released;
use ricochet_core::message::{Message, Origin, Output, To};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{Ask, Data, Datagram, Envelope, Extras, History, HistoryBody, HistoryRequest};
use ricochet_core::{
    Fifo, FifoConfig, GroupId, HistoryConfig, HistoryNews, KeyedConfig, Member, Node, NodeConfig, NodeId,
    View, Wish,
};

use crate::common::net::{Net, NetworkConditions};
use crate::common::{groups, packet, written};

const GROUP: GroupId = GroupId(7);
const HISTORY: HistoryConfig = HistoryConfig { group_bytes: 4 << 20, bytes: 16 << 20, age_us: 600_000_000 };
const KEYED: KeyedConfig = KeyedConfig { group_bytes: 1 << 20, bytes: 4 << 20, group_keys: 1 << 16 };
const SECOND_US: u64 = 1_000_000;

/// A net of which the first nodes are in the group; the others may join. The members do not know what was
/// before them, unless they have joined as the others do.
fn net(members: usize, others: usize, loss: f64, seed: u64, keyed: KeyedConfig) -> Net {
    Net::joinable(GROUP, [members, others], loss, seed, |config| NodeConfig {
        history: HISTORY,
        keyed,
        ..NodeConfig::prompt(config.id)
    })
}

/// Values by key: time, sender and number of the message, and its payload.
type Values = BTreeMap<Vec<u8>, (u64, u32, u64, Vec<u8>)>;

/// Returns the last value of each key among some messages; deletions too.
fn last_values(net: &Net, messages: impl Iterator<Item = (NodeId, GroupId, u64)>) -> Values {
    let mut values = Values::new();
    for packet in messages {
        let (sent_us, whole) = &net.sent[&packet];
        let (envelope, payload) = Envelope::read(whole).unwrap();
        let value = (*sent_us, packet.0.0, packet.2, payload.to_vec());
        let last = values.entry(envelope.key.unwrap().to_vec()).or_insert_with(|| value.clone());
        *last = last.clone().max(value);
    }
    values
}

/// Returns the last value of each key that a node got, without the deleted keys.
fn state(net: &Net, at: usize) -> Values {
    let mut values = last_values(net, net.applications[at].came.iter().copied());
    values.retain(|_, value| !value.3.is_empty());
    values
}

/// Returns the last value of each key that was sent.
fn truth(net: &Net) -> Values {
    let mut values = last_values(net, net.sent.keys().copied());
    values.retain(|_, value| !value.3.is_empty());
    values
}

/// Returns the number of keys that were told, and whether these were all.
fn begins(net: &Net, at: usize) -> (u64, bool) {
    match net.applications[at].history[..] {
        [HistoryNews::Begins { messages, is_complete }, ..] => (messages, is_complete),
        ref other => panic!("{other:?}"),
    }
}

/// Sends random values of some keys, one in each interval; one in ten deletes its key.
fn send(net: &mut Net, rng: &mut ChaCha8Rng, senders: u64, count: u32, interval_us: u64) {
    for number in 0..count {
        let (from, key) = (rng.next_u64() % senders, rng.next_u64() % 40);
        let value = if rng.next_u64().is_multiple_of(10) { String::new() } else { format!("value {number}") };
        net.multicast_keyed(from as usize, GROUP, format!("key {key}").as_bytes(), value.as_bytes());
        net.advance(interval_us);
    }
}

#[test]
fn a_late_joiner_gets_the_last_value_of_each_key_and_then_all_that_follow() {
    for seed in 0..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let loss = [0.0, 0.01, 0.1][seed as usize % 3];
        let mut net = net(3, 1, loss, seed, KEYED);
        send(&mut net, &mut rng, 3, 500, 200);
        let before: BTreeSet<_> = net.sent.keys().copied().collect();
        net.join_late(3, GROUP, Wish::LastPerKey);
        send(&mut net, &mut rng, 3, 3_000, 200);
        let middle = net.now_us;
        send(&mut net, &mut rng, 3, 200, 200);
        net.end_losses();
        net.advance(2 * SECOND_US);
        assert_eq!(state(&net, 3), truth(&net), "seed {seed}");
        let (keys, _) = begins(&net, 3);
        assert!((20..=40).contains(&keys), "seed {seed}: {keys}");
        let application = &net.applications[3];
        assert_eq!(application.history.last(), Some(&HistoryNews::Ends));
        // Of the past only the last values, and all of the present, in the order of each sender.
        let past = application.came.iter().filter(|packet| before.contains(packet)).count();
        assert!(past <= 40, "seed {seed}: {past}");
        let late = net.sent.iter().filter(|(_, (sent_us, _))| *sent_us >= middle).map(|(packet, _)| packet);
        let missing: Vec<_> = late.filter(|packet| !application.got.contains_key(packet)).collect();
        assert_eq!(missing, Vec::<&_>::new(), "seed {seed}");
        for from in 0..3 {
            let came = application.came.iter().take(keys as usize).filter(|packet| packet.0 == NodeId(from));
            assert!(came.map(|packet| packet.2).is_sorted(), "seed {seed}");
        }
        assert!(application.lost.is_empty(), "seed {seed}");
        // A subscription in order has got each of them too.
        let ordered = application.ordered.values().flatten().filter(|(.., came)| *came).count();
        assert_eq!(ordered, application.came.len(), "seed {seed}");
    }
}

#[test]
fn a_reader_without_room_keeps_its_copy_for_a_minute_and_then_gets_another_one() {
    let mut net = net(1, 1, 0.0, 1, KEYED);
    fill(&mut net, 300);
    let before = net.nodes[0].memory_bytes() as u64;
    net.join_late(1, GROUP, Wish::LastPerKey);
    while net.applications[1].came.len() < 50 {
        net.advance(200);
    }
    net.applications[1].room = Some(0);
    net.advance(SECOND_US);
    let sent = |net: &Net| net.nodes[0].feedback(net.now_us).sent.history.bytes;
    let sent_first = sent(&net);
    net.advance(49 * SECOND_US);
    let length = net.nodes[0].memory_bytes() as u64 - before;
    assert!(length > 250_000, "the copy is kept: {length}");
    assert_eq!(sent(&net), sent_first, "nothing is sent for which there is no room");
    net.advance(15 * SECOND_US);
    assert!(sent(&net) > sent_first + length, "another copy");
    net.multicast_keyed(0, GROUP, &7_u32.to_be_bytes(), b"new");
    net.applications[1].room = None;
    net.advance(SECOND_US);
    assert_eq!(state(&net, 1), truth(&net));
    assert!(!net.nodes[1].is_catching_up(GROUP));
    let came = net.applications[1].came.len();
    assert!((300..=301).contains(&came), "each value once: {came}");
    net.advance(4 * SECOND_US);
    assert!((net.nodes[0].memory_bytes() as u64) < before + (64 << 10), "no copy is kept");
}

#[test]
fn a_member_that_has_lost_packets_does_not_say_that_its_values_are_all() {
    let mut net = net(0, 3, 0.0, 1, KEYED);
    net.join_late(0, GROUP, Wish::LastPerKey);
    net.advance(3 * SECOND_US);
    net.join_late(1, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    net.multicast_keyed(0, GROUP, b"first", b"value");
    net.advance(SECOND_US);
    // A message that nobody gets, and that its sender takes with it.
    net.side[1] = 1;
    net.multicast_keyed(0, GROUP, b"second", b"value");
    net.side[1] = 0;
    net.multicast_keyed(0, GROUP, b"third", b"value");
    net.advance(100);
    net.fail(0);
    net.advance(30 * SECOND_US);
    assert_eq!(net.applications[1].lost.len(), 1);
    net.join_late(2, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    assert_eq!(begins(&net, 2), (2, false));
}

#[test]
fn a_joiner_knows_where_the_streams_of_silent_senders_go_on() {
    let mut net = net(2, 2, 0.0, 1, KEYED);
    for number in 0..10_u8 {
        net.multicast_keyed(0, GROUP, &[number % 3], &[number]);
    }
    net.multicast(0, GROUP, b"not a value");
    net.advance(SECOND_US);
    net.join_late(2, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    // The next joiner reads from the first one, which has heard nothing of the sender itself.
    net.down.insert(1);
    net.side[0] = 1;
    net.join_late(3, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    net.side[0] = 0;
    net.multicast_keyed(0, GROUP, b"new", b"value");
    net.advance(SECOND_US);
    for at in [2, 3] {
        let came: Vec<u64> = net.applications[at].came.iter().map(|packet| packet.2).collect();
        assert_eq!(came, [7, 8, 9, 11], "node {at}: the last values, and what follows");
    }
}

#[test]
fn only_who_knows_what_was_before_says_that_the_values_are_all() {
    let mut net = net(1, 3, 0.0, 1, KEYED);
    // The first member of all has found nobody to ask.
    net.fail(0);
    net.join_late(1, GROUP, Wish::LastPerKey);
    net.advance(3 * SECOND_US);
    assert_eq!(net.applications[1].history, [HistoryNews::Nothing { asked: 0 }]);
    for key in 0..50_u8 {
        net.multicast_keyed(1, GROUP, &[key], &[key; 100]);
        net.advance(1_000);
    }
    net.join_late(2, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    assert_eq!(begins(&net, 2), (50, true));
    // A copy of a whole copy is whole too.
    net.fail(1);
    net.join_late(3, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    assert_eq!((begins(&net, 3), state(&net, 3).len()), ((50, true), 50));
    // A member that has joined as the messages went on does not know.
    let mut other = self::net(1, 1, 0.0, 1, KEYED);
    other.multicast_keyed(0, GROUP, b"key", b"value");
    other.join_late(1, GROUP, Wish::LastPerKey);
    other.advance(SECOND_US);
    assert_eq!((begins(&other, 1), state(&other, 1).len()), ((1, false), 1));
}

#[test]
fn a_member_that_was_cut_off_when_it_joined_does_not_say_that_its_values_are_all() {
    for seed in 0..8 {
        let mut net = net(1, 2, 0.0, seed, KEYED);
        net.multicast_keyed(0, GROUP, b"key", b"value");
        net.advance(SECOND_US);
        // Node 1 cannot see the member that there is.
        net.down.insert(0);
        net.join_late(1, GROUP, Wish::LastPerKey);
        net.advance(3 * SECOND_US);
        assert_eq!(net.applications[1].history, [HistoryNews::Nothing { asked: 0 }]);
        net.down.remove(&0);
        let view = net.view(|_| false);
        (0..3).for_each(|at| net.change_view(at, &view));
        net.join_late(2, GROUP, Wish::LastPerKey);
        net.advance(2 * SECOND_US);
        assert_eq!((begins(&net, 2), state(&net, 2)), ((1, false), truth(&net)), "seed {seed}");
    }
}

#[test]
fn a_member_that_holds_back_packets_does_not_say_that_its_values_are_all() {
    let mut net = net(0, 2, 0.0, 1, KEYED);
    net.join_late(0, GROUP, Wish::LastPerKey);
    net.advance(3 * SECOND_US);
    net.multicast_keyed(0, GROUP, b"key", b"value");
    net.nodes[0].hold_losses(true);
    net.join_late(1, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    assert_eq!(begins(&net, 1), (1, false));
}

#[test]
fn a_node_that_asks_again_gets_the_copy_that_it_was_offered() {
    let mut net = net(2, 0, 0.0, 1, KEYED);
    let ask = Ask::Offer(Wish::LastPerKey);
    let request = HistoryRequest { from: NodeId(1), token: 1, group: GROUP, ask };
    let request = written(|to| request.write(to));
    let mut offers = Offers::default();
    for key in 0..4_u8 {
        net.multicast_keyed(0, GROUP, &[key], b"value");
        net.nodes[0].handle_datagram(net.now_us, Origin::Member, &request, &mut offers);
        net.advance(SECOND_US);
    }
    assert_eq!(offers.0, [offers.0[0]; 4], "the copy does not change while it is read");
    net.advance(4 * SECOND_US);
    net.nodes[0].handle_datagram(net.now_us, Origin::Member, &request, &mut offers);
    assert!(offers.0[4] > offers.0[0], "a copy that nobody has read for a while is dropped");
}

/// Lengths of the copies that a node offers.
#[derive(Default)]
struct Offers(Vec<u64>);

impl Output for Offers {
    fn send(&mut self, _: To, datagram: &[u8]) {
        if let Ok(Datagram::History(History { body: HistoryBody::Offer { .. }, end, .. })) =
            Datagram::read(datagram)
        {
            self.0.push(end);
        }
    }

    fn deliver(&mut self, _: &Message<'_>) {}

    fn on_lost(&mut self, _: &Lost) {}
}

#[test]
fn a_further_subscription_gets_a_value_that_is_recovered_later_in_its_order() {
    let (config, groups) = (NodeConfig::prompt(NodeId(0)), groups(&[GROUP], 3));
    let config = NodeConfig { history: HISTORY, keyed: KEYED, ..config };
    let view = View::new([Member::new(NodeId(1), vec![GROUP])]);
    let mut node = Node::new(config, groups, &view, 1).expect("in range");
    let mut seen = Seen { fifo: Fifo::new(FifoConfig::default()).expect("in range"), seqs: Vec::new() };
    let take = |node: &mut Node, seq: u32, out: &mut Seen| {
        let mut payload = Vec::new();
        Envelope { key: Some(&[seq as u8]), ..Envelope::default() }.write(&mut payload);
        payload.push(7);
        let packet = packet(NodeId(1), GROUP, seq, &payload);
        let data = Data { extras: Extras { enveloped: true, ..packet.extras }, ..packet };
        node.handle_datagram(1_000, Origin::Member, &written(|to| data.write(to)), out);
    };
    let mut first = Seen { fifo: Fifo::new(FifoConfig::default()).expect("in range"), seqs: Vec::new() };
    [0, 1, 3].into_iter().for_each(|seq| take(&mut node, seq, &mut first));
    node.replay(2_000, GROUP, Wish::LastPerKey, &mut |_| {}, &mut |message| seen.deliver(message));
    assert_eq!(seen.seqs, [0, 1], "the packet before the last value is awaited");
    take(&mut node, 2, &mut seen);
    assert_eq!(seen.seqs, [0, 1, 2, 3]);
}

/// An ordered subscription: the numbers of its messages.
struct Seen {
    fifo: Fifo,
    seqs: Vec<u32>,
}

impl Output for Seen {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, message: &Message<'_>) {
        let Self { fifo, seqs } = self;
        fifo.handle_message(0, message, &mut |released| match released {
            Released::Message(message) => seqs.push(message.seq.to_wire()),
            Released::Lost(lost) => panic!("{lost:?}"),
        });
    }

    fn on_lost(&mut self, _: &Lost) {}
}

#[test]
fn keys_that_were_forgotten_are_told_and_memory_is_bounded() {
    for seed in 0..3 {
        let keyed = KeyedConfig { group_bytes: 100_000, bytes: 100_000, group_keys: 300 };
        let mut net = net(0, 3, 0.0, seed, keyed);
        net.join_late(0, GROUP, Wish::LastPerKey);
        net.advance(3 * SECOND_US);
        net.join_late(1, GROUP, Wish::LastPerKey);
        net.advance(SECOND_US);
        let empty = net.nodes[1].memory_bytes();
        for number in 0..2_000_u32 {
            let value = vec![7; 100 + number as usize % 500];
            net.multicast_keyed(0, GROUP, &(number % 1_000).to_be_bytes(), &value);
            net.advance(500);
        }
        let log_max = HISTORY.group_bytes;
        assert!(net.nodes[1].memory_bytes() < empty + log_max + keyed.group_bytes + (1 << 20));
        net.join_late(2, GROUP, Wish::LastPerKey);
        net.advance(SECOND_US);
        let (keys, is_complete) = begins(&net, 2);
        assert!((50..=300).contains(&keys) && !is_complete, "seed {seed}: {keys}");
        // Those that were set last are there.
        let state = state(&net, 2);
        let first = 1_000 - keys as u32;
        assert!((first..1_000).all(|key| state.contains_key(&key.to_be_bytes()[..])), "seed {seed}");
    }
}

/// Values of several datagrams each, and one of several packets.
fn fill(net: &mut Net, keys: u32) {
    for key in 0..keys {
        let value = vec![key as u8; if key == 7 { 20_000 } else { 1_000 }];
        net.multicast_keyed(0, GROUP, &key.to_be_bytes(), &value);
        net.advance(500);
    }
    net.advance(SECOND_US);
}

#[test]
fn another_member_goes_on_when_the_holder_dies() {
    for seed in 0..12 {
        let mut net = net(3, 1, 0.02, seed, KEYED);
        fill(&mut net, 300);
        net.join_late(3, GROUP, Wish::LastPerKey);
        // In the middle of the copy.
        while net.applications[3].came.len() < 50 {
            net.advance(200);
        }
        let holder = (0..3).max_by_key(|&at| net.nodes[at].feedback(net.now_us).sent.history.bytes).unwrap();
        assert!(net.applications[3].came.len() < 250, "seed {seed}");
        net.fail(holder);
        let sender = (holder + 1) % 3;
        for key in 0..50_u32 {
            net.multicast_keyed(sender, GROUP, &(1_000 + key).to_be_bytes(), b"new");
            net.advance(20_000);
        }
        net.end_losses();
        net.advance(3 * SECOND_US);
        assert_eq!(state(&net, 3), truth(&net), "seed {seed}");
        assert_eq!(net.applications[3].came.len(), 350, "seed {seed}: each once");
    }
}

#[test]
fn many_nodes_that_join_at_once_share_copies() {
    let mut net = net(1, 20, 0.01, 3, KEYED);
    fill(&mut net, 300);
    let before = net.nodes[0].memory_bytes();
    (1..21).for_each(|at| net.join_late(at, GROUP, Wish::LastPerKey));
    net.advance(SECOND_US / 2);
    let copies = net.nodes[0].memory_bytes() - before;
    assert!(copies < 4 * KEYED.group_bytes, "{copies}");
    net.end_losses();
    net.advance(5 * SECOND_US);
    for at in 1..21 {
        assert_eq!(state(&net, at), truth(&net), "node {at}");
    }
    assert!(net.nodes[0].memory_bytes() < before + (64 << 10), "copies that nobody reads are dropped");
}

#[test]
fn a_node_gets_the_values_of_more_groups_than_a_member_makes_copies() {
    let all: Vec<GroupId> = (0..12).map(GroupId).collect();
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    let mut net = Net::new(&[all.clone(), Vec::new()], 3, conditions, 1, |config| NodeConfig {
        history: HISTORY,
        keyed: KEYED,
        ..NodeConfig::prompt(config.id)
    });
    let number = |group: GroupId| group.0 as u32 * 1_000;
    for &group in &all {
        for key in 0..70 {
            net.multicast_keyed(0, group, &(number(group) + key).to_be_bytes(), &[7; 1_000]);
            net.advance(500);
        }
    }
    net.advance(SECOND_US);
    let before = net.nodes[0].memory_bytes();
    net.join_all_late(1, &all, Wish::LastPerKey);
    for _ in 0..60 {
        net.advance(SECOND_US / 10);
        let copies = net.nodes[0].memory_bytes() - before;
        assert!(copies < 5 * (128 << 10), "four copies: {copies}");
    }
    let news = &net.applications[1].history;
    assert!(!news.iter().any(|news| matches!(news, HistoryNews::Nothing { .. })), "{news:?}");
    assert_eq!(state(&net, 1), truth(&net));
    assert!(all.iter().all(|&group| !net.nodes[1].is_catching_up(group)));
}

#[test]
fn a_value_of_a_clock_that_was_ahead_hides_live_ones_only_for_a_while() {
    let mut net = net(2, 1, 0.0, 1, KEYED);
    net.ahead_us = 3_600 * SECOND_US;
    net.multicast_keyed(0, GROUP, b"key", b"ahead");
    net.ahead_us = 0;
    net.advance(SECOND_US);
    net.join_late(2, GROUP, Wish::LastPerKey);
    net.advance(SECOND_US);
    net.multicast_keyed(1, GROUP, b"key", b"soon");
    net.advance(12 * SECOND_US);
    net.multicast_keyed(1, GROUP, b"key", b"later");
    net.advance(SECOND_US);
    let came: Vec<_> = net.applications[2].came.iter().map(|&(sender, _, seq)| (sender.0, seq)).collect();
    assert_eq!(came, [(0, 0), (1, 1)]);
    assert_eq!(net.nodes[2].counts().outdated, 1);
}

#[test]
fn a_copy_of_nonsense_harms_nobody() {
    for seed in 0..20 {
        let mut net = net(2, 1, 0.0, seed, KEYED);
        fill(&mut net, 50);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        net.tamper = Some(Box::new(move |from, datagram| {
            let is_history = datagram[0] & 0xf == 0xd;
            let is_offer = is_history && datagram[1] & 1 != 0;
            if from == 0 && is_offer && seed % 4 == 3 {
                // The best offer, whose copy ends in the middle of a record.
                datagram[37] = datagram[37].wrapping_sub(5);
                datagram[47] += 1;
            } else if from == 0 && is_history && !is_offer && datagram.len() > 60 && seed % 4 != 3 {
                let at = 38 + rng.next_u64() as usize % (datagram.len() - 38);
                datagram[at] = rng.next_u64() as u8;
                if seed % 2 == 0 {
                    datagram[38..].fill(0xff);
                }
            }
        }));
        net.applications[2].is_deceived = true;
        net.join_late(2, GROUP, Wish::LastPerKey);
        net.advance(10 * SECOND_US);
        assert!(!net.nodes[2].is_catching_up(GROUP), "seed {seed}");
        net.tamper = None;
        let seq = net.multicast_keyed(1, GROUP, b"after", b"value");
        net.advance(SECOND_US);
        let packet = (NodeId(1), GROUP, seq);
        assert!(net.applications[2].got.contains_key(&packet), "seed {seed}");
        if seed % 4 != 1 {
            let honest = truth(&net).len();
            assert_eq!(net.applications[2].came.len(), honest, "seed {seed}: the other member has served");
        }
    }
}
