//! Target of the fuzzer, shared with the test that replays its corpus: a node among lying nodes.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each user takes a part of it")]

use std::collections::HashSet;

use ricochet_core::bins::Content;
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{Data, Datagram, Extras, Heartbeat, Kind, Latest, Nak, Name, Range, Repair};
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, Seq, StreamKey, View};

const GROUPS: [GroupId; 3] = [GroupId(0), GroupId(7), GroupId(1 << 40 | 9)];
const ME: NodeId = NodeId(1);
const DATAGRAM_MAX: usize = 1_472;
/// Maximum number of datagrams that one event makes a node send: the answer to one request, and all
/// part-filled repairs.
const SENT_MAX: usize = 2_000;

/// Checks the output of a node.
#[derive(Default)]
struct Watch {
    delivered: HashSet<(NodeId, GroupId, Seq)>,
    sent: usize,
}

impl Output for Watch {
    fn send(&mut self, _: To, datagram: &[u8]) {
        assert!(datagram.len() <= DATAGRAM_MAX);
        assert!(Datagram::read(datagram).is_ok(), "a node sends nothing malformed");
        self.sent += 1;
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let packet = (message.sender, message.group, message.seq);
        assert!(self.delivered.insert(packet), "{packet:?} was delivered twice");
    }

    fn on_lost(&mut self, lost: &Lost) {
        assert!(lost.first <= lost.last);
    }
}

/// Feeds a node with steps taken from `data`: a byte for the kind, a byte for the length, and the content.
pub fn node(mut data: &[u8]) {
    let content = match data.first().map_or(0, |first| first % 3) {
        0 => Content::Xor,
        1 => Content::Names,
        _ => Content::Auto,
    };
    data = data.get(1..).unwrap_or_default();
    let groups = Groups::new(GROUPS.map(|id| GroupConfig { id, c: 3 })).expect("they are distinct");
    let config = NodeConfig { content, packets: 64, equations: 16, ..NodeConfig::prompt(ME) };
    let mut node = Node::new(config, groups, &view(0), 1).expect("in range");
    let (mut watch, mut now_us) = (Watch::default(), 1_000_000);
    while let [kind, length, rest @ ..] = data {
        let (bytes, behind) = rest.split_at(usize::from(*length).min(rest.len()));
        data = behind;
        watch.sent = 0;
        step(&mut node, &mut watch, &mut now_us, *kind, bytes);
        assert!(watch.sent <= SENT_MAX, "{} datagrams at once", watch.sent);
        assert!(node.poll_timeout().is_some() || node.missing() == 0, "missing packets are not forgotten");
    }
    // The node still works.
    let before = watch.delivered.len();
    let fresh = datagram(&Data { sender: NodeId(0xfeed_beef), ..packet(&[0, 1]) });
    node.handle_datagram(now_us, Origin::Member, &fresh, &mut watch);
    assert_eq!(watch.delivered.len(), before + 1);
}

fn step(node: &mut Node, watch: &mut Watch, now_us: &mut u64, kind: u8, bytes: &[u8]) {
    let at = |place: usize| bytes.get(place).copied().unwrap_or(0);
    let mut scratch = [0; DATAGRAM_MAX];
    let origin = match kind / 8 % 8 {
        6 => Origin::Impostor,
        7 => Origin::Stranger,
        _ => Origin::Member,
    };
    match kind % 8 {
        0 => node.handle_datagram(*now_us, origin, bytes, watch),
        1 => node.handle_datagram(*now_us, origin, &datagram(&packet(bytes)), watch),
        2 => {
            let mut names: Vec<Name> = bytes.chunks_exact(4).take(64).map(name).collect();
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                let symbol = (at(0) % 2 == 0).then_some(&[0u8; 40][..]);
                let length =
                    Repair { from: NodeId(u32::from(at(1) % 9)), names: &names, symbol }.write(&mut scratch);
                node.handle_datagram(*now_us, origin, &scratch[..length], watch);
            }
        }
        3 => {
            *now_us += u64::from(at(0)) << (at(1) % 20);
            node.handle_timeout(*now_us, watch);
        }
        4 => {
            let group = GROUPS[usize::from(at(0) % 3)];
            let sent = node.multicast(*now_us, group, bytes, SendOptions { expires: at(1) % 2 == 1 }, watch);
            assert!(sent.is_ok(), "{sent:?}");
        }
        5 => node.change_view(&view(at(0)), watch),
        6 => {
            let ranges: Vec<Range> = bytes.chunks_exact(4).take(64).map(range).collect();
            if !ranges.is_empty() {
                let length = Nak { from: NodeId(u32::from(at(1) % 9)), ranges: &ranges }.write(&mut scratch);
                node.handle_datagram(*now_us, origin, &scratch[..length], watch);
            }
        }
        _ => {
            let latest = [Latest { group: GROUPS[usize::from(at(0) % 3)], seq: seq(bytes) }];
            let beat = Heartbeat { sender: NodeId(2 + u32::from(at(1) % 4)), sender_seq: 0, latest: &latest };
            let length = beat.write(&mut scratch);
            node.handle_datagram(*now_us, origin, &scratch[..length], watch);
        }
    }
}

/// Returns a view of some of the nodes 2 to 9, each in some of the groups.
fn view(choice: u8) -> View {
    let members = (2..10u32).filter(|id| choice >> (id % 8) & 1 == 0);
    View::new(members.map(|id| Member::new(NodeId(id), GROUPS[..1 + id as usize % 3].to_vec())))
}

/// Returns a sequence number that is mostly near and sometimes far.
fn seq(bytes: &[u8]) -> u32 {
    let [low, high] = [2, 3].map(|place| u32::from(bytes.get(place).copied().unwrap_or(0)));
    low | if high > 250 { high << 24 } else { (high & 3) << 8 }
}

fn packet(bytes: &[u8]) -> Data<'_> {
    let [node, group] = [0, 1].map(|place| bytes.get(place).copied().unwrap_or(0));
    Data {
        sender: NodeId(u32::from(node % 6)),
        group: GROUPS[usize::from(group % 3)],
        seq: seq(bytes),
        sender_seq: 0,
        expires: node & 0x40 != 0,
        fragment: node & 0x80 != 0,
        joint: false,
        extras: Extras::NONE,
        payload: bytes.get(4..).unwrap_or_default(),
    }
}

fn name(bytes: &[u8]) -> Name {
    packet(bytes).name()
}

fn range(bytes: &[u8]) -> Range {
    let key = StreamKey { sender: packet(bytes).sender, group: packet(bytes).group };
    Range { key, first: seq(bytes), count: 1 + (u16::from(bytes[0]) << 8) }
}

fn datagram(data: &Data<'_>) -> Vec<u8> {
    let mut to = vec![0; DATAGRAM_MAX];
    let length = data.write(&mut to);
    to.truncate(length);
    to[0] = if data.payload.len() % 5 == 4 { Kind::Retransmission.to_wire() } else { to[0] };
    to
}
