//! Fuzz targets, shared by the fuzzer and the replay of its corpus.
#![allow(dead_code, reason = "each target uses one of these")]

use std::collections::{HashMap, HashSet};

use ricochet_core::delivery::{FragmentsConfig, Released};
use ricochet_core::message::{Message, Origin, Output, To};
use ricochet_core::tracker::{Front, Lost};
use ricochet_core::wire::{
    Ask, Data, Datagram, Envelope, Extras, Fragment, Heartbeat, History, HistoryBody, Latest, NAK_RANGES_MAX,
    Nak, Name, Peek, Range, Repair, Room, Rooms, SYMBOL_HEAD,
};
use ricochet_core::{
    Fifo, FifoConfig, GroupConfig, GroupId, Groups, HistoryConfig, KeyedConfig, Member, Node, NodeConfig,
    NodeId, Seq, StreamKey, TrackerConfig, View, Wish,
};

/// Reads arbitrary bytes. A datagram that can be read is written again as it was, and a peek reads the same
/// fields.
pub(crate) fn wire(data: &[u8]) {
    let _ = Fragment::read(data);
    if let Ok((envelope, payload)) = Envelope::read(data) {
        let mut written = Vec::new();
        envelope.write(&mut written);
        assert_eq!(written, data[..data.len() - payload.len()]);
    }
    let peek = Peek::read(data);
    if let Ok(peek) = &peek {
        assert!(peek.groups(data).count() <= data.len());
    }
    let Ok(datagram) = Datagram::read(data) else { return };
    let peek = peek.expect("a peek accepts what the full parser accepts");
    assert_eq!(peek.kind, datagram.kind());
    let sender = match datagram {
        Datagram::Data(packet) | Datagram::Retransmission(packet) => {
            assert_eq!(peek.packet, Some((packet.group, packet.seq)));
            packet.sender
        }
        Datagram::Repair(repair) => repair.from,
        Datagram::Nak(nak) => nak.from,
        Datagram::Heartbeat(heartbeat) => {
            assert!(peek.groups(data).eq(heartbeat.latest().map(|latest| latest.group)));
            heartbeat.sender
        }
        Datagram::Question(question) => question.from,
        Datagram::Answer(answer) => answer.sender,
        Datagram::Denial(denial) => denial.from,
        Datagram::Rooms(report) => report.from,
        Datagram::Probe(probe) => {
            assert_eq!(peek.packet, Some((probe.group, probe.newest)));
            probe.sender
        }
        Datagram::HistoryRequest(request) => request.from,
        Datagram::History(history) => history.sender,
    };
    assert_eq!(peek.sender, sender);
    let mut written = vec![0; data.len() + 8];
    let length = match datagram {
        Datagram::Data(packet) => packet.write(&mut written),
        Datagram::Retransmission(packet) => packet.write_retransmission(&mut written),
        Datagram::Repair(repair) => {
            let names: Vec<Name> = repair.names().collect();
            Repair { from: repair.from, names: &names, symbol: repair.symbol }.write(&mut written)
        }
        Datagram::Nak(nak) => {
            let ranges: Vec<Range> = nak.ranges().collect();
            assert!(ranges.len() <= NAK_RANGES_MAX);
            Nak { from: nak.from, ranges: &ranges }.write(&mut written)
        }
        Datagram::Heartbeat(heartbeat) => {
            let latest: Vec<Latest> = heartbeat.latest().collect();
            let (sender, sender_seq) = (heartbeat.sender, heartbeat.sender_seq);
            Heartbeat { sender, sender_seq, latest: &latest }.write(&mut written)
        }
        Datagram::Question(question) => question.write(&mut written),
        Datagram::Answer(answer) => answer.write(&mut written),
        Datagram::Denial(denial) => {
            let ranges: Vec<Range> = denial.ranges().collect();
            Nak { from: denial.from, ranges: &ranges }.write_denial(&mut written)
        }
        Datagram::Rooms(report) => {
            let rooms: Vec<Room> = report.rooms().collect();
            Rooms { from: report.from, rooms: &rooms }.write(&mut written)
        }
        Datagram::Probe(probe) => probe.write(&mut written),
        Datagram::HistoryRequest(request) => request.write(&mut written),
        Datagram::History(history) => history.write(&mut written),
    };
    assert_eq!(&written[..length], data);
}

/// The application of a node. It checks that no message comes twice, and that an ordered subscription keeps
/// the order.
struct Application {
    now_us: u64,
    fifo: Fifo,
    got: HashSet<(StreamKey, u64)>,
    newest: HashMap<StreamKey, Seq>,
    /// Latest request for history.
    asked: Option<(u64, Ask)>,
}

impl Application {
    fn released(newest: &mut HashMap<StreamKey, Seq>, released: &Released<'_>) {
        if let Released::Message(message) = released {
            let key = StreamKey { sender: message.sender, group: message.group };
            let before = newest.insert(key, message.seq);
            assert!(
                before.is_none_or(|before| before < message.seq),
                "{key:?}: {before:?} {:?}",
                message.seq
            );
        }
    }
}

impl Output for Application {
    fn send(&mut self, _: To, datagram: &[u8]) {
        let read = Datagram::read(datagram).expect("a node sends nothing malformed");
        if let Datagram::HistoryRequest(request) = read {
            self.asked = Some((request.token, request.ask));
        }
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let key = StreamKey { sender: message.sender, group: message.group };
        // A member may make up several values with one number.
        let is_value = message.past_us.is_some()
            && message.enveloped
            && Envelope::read(message.payload).is_ok_and(|(envelope, _)| envelope.key.is_some());
        let is_new = self.got.insert((key, message.seq.0));
        assert!(is_new || is_value, "delivered twice: {key:?} {:?}", message.seq);
        let Self { now_us, fifo, newest, .. } = self;
        fifo.handle_message(*now_us, message, &mut |released| Self::released(newest, &released));
    }

    fn on_lost(&mut self, lost: &Lost) {
        assert!(lost.first <= lost.last);
        let Self { now_us, fifo, newest, .. } = self;
        fifo.on_lost(*now_us, lost, &mut |released| Self::released(newest, &released));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        assert!(front.settled <= front.awaited);
        let Self { fifo, newest, .. } = self;
        fifo.on_settled(key, front, &mut |released| Self::released(newest, &released));
    }
}

/// Reads numbers from the input, and zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Feeds a node with valid and invalid packets, fragments, repairs and requests as time passes. Returns the
/// numbers of packets and of messages of several packets that it delivered.
pub(crate) fn node(data: &[u8]) -> (usize, u64) {
    let groups = [GroupId(1), GroupId(2 << 32 | 2)];
    let configs = groups.map(|id| GroupConfig { id, c: 2 });
    let view = View::new((1..4).map(|id| Member::new(NodeId(id), groups)));
    let fragments =
        FragmentsConfig { message_max: 400, bytes_max: 1_000, messages_max: 4, ..FragmentsConfig::default() };
    let history = HistoryConfig { group_bytes: 2_000, bytes: 1 << 18, age_us: 1_000_000 };
    let keyed = KeyedConfig { group_bytes: 1_000, bytes: 1_500, group_keys: 4 };
    let config = NodeConfig {
        packets: 64,
        max_delay_us: Some(5_000),
        fragments,
        feedback_peers: 4,
        equations: 16,
        history,
        keyed,
        // No stream is forgotten, since duplicates of a forgotten stream are not recognized.
        tracker: TrackerConfig {
            streams_max: 8,
            intervals_max: 16,
            stream_intervals_max: 4,
            idle_us_min: u64::MAX,
            ..TrackerConfig::default()
        },
        ..NodeConfig::new(NodeId(0))
    };
    let node_groups = Groups::new(configs).expect("they are distinct");
    let mut node = Node::new(config, node_groups, &view, 1).expect("in range");
    // As many streams as the tracker keeps, since the stage forgets the order of a stream that it drops.
    let fifo = FifoConfig { messages_max: 8, streams_max: 8, ..FifoConfig::default() };
    let fifo = Fifo::new(fifo).expect("in range");
    let mut application =
        Application { now_us: 0, fifo, got: HashSet::new(), newest: HashMap::new(), asked: None };
    let mut input = Input(data);
    let mut datagram = [0; 1_500];
    let before = node.memory_bytes();
    while !input.0.is_empty() {
        let is_history = input.0[0] % 8 == 7;
        let length = if is_history {
            let wish = match input.byte() & 24 {
                0 => Wish::Last(10),
                8 => Wish::Since(1_000_000),
                _ => Wish::LastPerKey,
            };
            node.catch_up(application.now_us, groups[1], wish);
            write_history(&mut input, groups[1], application.asked.take(), &mut datagram)
        } else {
            write_datagram(&mut input, groups, &mut datagram)
        };
        node.handle_datagram(application.now_us, Origin::Member, &datagram[..length], &mut application);
        application.now_us += u64::from(input.byte()).pow(2) / 4;
        node.handle_timeout(application.now_us, &mut application);
        let Application { now_us, fifo, newest, .. } = &mut application;
        fifo.handle_timeout(*now_us, &mut |released| Application::released(newest, &released));
        assert!(application.fifo.held() <= 8);
        assert!(
            node.memory_bytes() <= before + 2 * fragments.bytes_max + 4 * 400 + history.bytes + keyed.bytes
        );
    }
    assert!(node.feedback(application.now_us).peers.len() <= 4);
    (application.got.len(), node.fragments().messages)
}

/// Writes an answer to a request for history; returns its length. The question decides its form, and some
/// answers do not fit.
fn write_history(
    input: &mut Input<'_>,
    group: GroupId,
    asked: Option<(u64, Ask)>,
    datagram: &mut [u8],
) -> usize {
    let Some((token, ask)) = asked else { return 0 };
    let (sender, what) = (NodeId(1 + u32::from(input.byte() % 3)), input.byte());
    let end = u64::from(input.byte()) * 4;
    let mut log = Vec::new();
    let (offset, body) = match ask {
        _ if what & 15 == 15 => (end, HistoryBody::Gone),
        Ask::Offer(_) => {
            let (messages, is_complete) = (u64::from(what), what & 1 == 0);
            (0, HistoryBody::Offer { skip: u16::from(what / 128), messages, is_complete, clock_us: 0 })
        }
        Ask::Read { offset, .. } => {
            // A record: length, flags, sender, sequence number, sender's number, time, payload.
            let payload = input.bytes(usize::from(what / 16));
            log.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            log.push(if what & 4 == 0 { 0 } else { input.byte() });
            log.extend_from_slice(&(1 + u32::from(what & 1)).to_be_bytes());
            log.extend_from_slice(&u32::from(input.byte() % 64).to_be_bytes());
            log.extend_from_slice(&[0; 12]);
            log.extend_from_slice(payload);
            (offset, HistoryBody::Part(&log))
        }
        Ask::Copy { offset, .. } => {
            if offset == 0 {
                // End of the log, and the position of a stream or none.
                log.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, what, 0, 0, 0, what & 1]);
                if what & 1 != 0 {
                    log.extend_from_slice(&[0, 0, 0, 1 + (what & 2) / 2, 0, 0, 0, 9]);
                }
            }
            // A record: length, flags, sender, sequence number, times, and an envelope with a key.
            let value = input.bytes(usize::from(what / 16));
            log.extend_from_slice(&(6 + value.len() as u32).to_be_bytes());
            log.push((what / 4) & 1);
            log.extend_from_slice(&(1 + u32::from(what & 1)).to_be_bytes());
            log.extend_from_slice(&u32::from(input.byte() % 64).to_be_bytes());
            log.extend_from_slice(&[0; 15]);
            log.push(what);
            log.extend_from_slice(&[0, 4, 6, 0, 1, what / 32]);
            log.extend_from_slice(value);
            (offset, HistoryBody::Part(&log))
        }
    };
    History { sender, token, group, offset, end, body }.write(datagram)
}

/// Writes the next datagram; returns its length.
fn write_datagram(input: &mut Input<'_>, groups: [GroupId; 2], datagram: &mut [u8]) -> usize {
    let [kind, node, seq] = [input.byte(), input.byte(), input.byte()];
    let (sender, group) = (NodeId(1 + u32::from(node % 3)), groups[usize::from(node / 4 % 2)]);
    let seq = u32::from(seq % 64);
    let (expires, fragment, extras) = (node & 64 != 0, kind % 8 == 2, Extras::NONE);
    let mut payload = [0; 64];
    let data = |payload| Data {
        sender,
        group,
        seq,
        sender_seq: seq,
        expires,
        fragment,
        joint: false,
        extras,
        payload,
    };
    match kind % 8 {
        0 | 1 => {
            let bytes = input.bytes(usize::from(kind / 8 % 16));
            let (mut payload, mut extras) = (Vec::new(), Extras::NONE);
            if node & 128 != 0 {
                // A time, and an envelope with a deadline, which may be cut off.
                extras = Extras { timed: true, enveloped: node & 32 != 0 };
                payload.extend_from_slice(&(u64::from(seq) * 1_000).to_be_bytes());
                payload.extend_from_slice(&[0, 7, 1, 0, 4, 0, 0]);
            }
            payload.extend_from_slice(bytes);
            let data = |payload| Data { extras, ..data(payload) };
            let payload = &payload[..];
            if kind & 128 != 0 {
                data(payload).write_retransmission(datagram)
            } else {
                data(payload).write(datagram)
            }
        }
        2 => {
            let (index, size) = (input.byte() % 8, 1 + input.byte() % 50);
            let message = [kind; 400];
            let message = &message[..usize::from(input.byte())];
            let Some(part) = Fragment::of(message, u16::from(index), u16::from(size)) else { return 0 };
            let length = part.write(&mut payload);
            // Some fragments contradict others or themselves.
            if kind & 128 != 0 {
                payload[usize::from(kind / 8 % 8)] ^= input.byte();
            }
            data(&payload[..length]).write(datagram)
        }
        3 => {
            let other = Name { sender: NodeId(2), group: groups[0].tag(), seq: u32::from(input.byte() % 64) };
            let one = data(&[]);
            if one.name() == other {
                return 0;
            }
            let bytes = input.bytes(usize::from(kind / 8));
            payload[SYMBOL_HEAD..][..bytes.len()].copy_from_slice(bytes);
            let symbol = (kind & 128 != 0).then_some(&payload[..SYMBOL_HEAD + bytes.len()]);
            Repair { from: sender, names: &[one.name(), other], symbol }.write(datagram)
        }
        4 => {
            let key = StreamKey { sender, group };
            let range = Range { key, first: seq, count: 1 + u16::from(input.byte()) * 200 };
            Nak { from: sender, ranges: &[range] }.write(datagram)
        }
        5 => Heartbeat { sender, sender_seq: seq, latest: &[Latest { group, seq }] }.write(datagram),
        _ => {
            let raw = input.bytes(usize::from(node));
            datagram[0] = [0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd]
                [usize::from(kind / 8 % 12)];
            datagram[1..][..raw.len()].copy_from_slice(raw);
            1 + raw.len()
        }
    }
}
