use proptest::prelude::*;

use super::*;
use crate::counters::{Malformed, Unsound};
use crate::history::Wish;
use crate::ids::{GroupId, GroupTag, NodeId, StreamKey};

fn data() -> Data<'static> {
    Data {
        sender: NodeId(0x0102_0304),
        group: GroupId(0x1112_1314_1516_1718),
        seq: 0x2122_2324,
        sender_seq: 0x3132_3334,
        expires: true,
        fragment: false,
        joint: false,
        extras: Extras::NONE,
        payload: b"payload",
    }
}

/// The bytes that `docs/wire.md` promises.
#[test]
fn a_data_packet_is_these_bytes() {
    let mut bytes = [0; 29];
    assert_eq!(data().write(&mut bytes), 29);
    let expected =
        b"\xb1\x01\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x31\x32\x33\x34payload";
    assert_eq!(&bytes, expected);
    assert_eq!(Datagram::read(&bytes), Ok(Datagram::Data(data())));
    assert_eq!(data().write_retransmission(&mut bytes), 29);
    assert_eq!(bytes[0], 0xb2);
    assert_eq!(Datagram::read(&bytes), Ok(Datagram::Retransmission(data())));
}

#[test]
fn a_packet_with_several_messages_is_these_bytes() {
    let joint = Data { expires: false, joint: true, payload: b"\0\x02ab\0\x01c", ..data() };
    let mut bytes = [0; 29];
    assert_eq!(joint.write(&mut bytes), 29);
    assert_eq!((&bytes[..2], &bytes[22..]), (&b"\xb1\x04"[..], &b"\0\x02ab\0\x01c"[..]));
    assert_eq!(Datagram::read(&bytes), Ok(Datagram::Data(joint)));
    let symbol = [&joint.symbol_head()[..], joint.payload].concat();
    assert_eq!(Data::from_symbol(joint.name(), joint.group, &symbol), Ok(joint));
}

#[test]
fn a_packet_with_its_time_is_these_bytes() {
    let extras = Extras { timed: true, enveloped: false };
    let payload = b"\x01\x02\x03\x04\x05\x06\x07\x08abc";
    let timed = Data { expires: false, extras, payload, ..data() };
    let mut bytes = [0; 33];
    assert_eq!(timed.write(&mut bytes), 33);
    assert_eq!((&bytes[..2], &bytes[22..]), (&b"\xb1\x08"[..], &payload[..]));
    assert_eq!(Datagram::read(&bytes), Ok(Datagram::Data(timed)));
    assert_eq!((timed.sent_us(), timed.body()), (Some(0x0102_0304_0506_0708), &b"abc"[..]));
    assert_eq!(Datagram::read(&bytes[..29]), Err(Malformed::TooShort));
    let enveloped = Data { extras: Extras { timed: true, enveloped: true }, ..timed };
    assert_eq!(enveloped.write(&mut bytes), 33);
    assert_eq!(bytes[1], 0x18);
    let symbol = [&enveloped.symbol_head()[..], enveloped.payload].concat();
    assert_eq!(Data::from_symbol(enveloped.name(), enveloped.group, &symbol), Ok(enveloped));
}

#[test]
fn a_digest_is_these_bytes() {
    let names = [data().name(), Name { seq: 7, ..data().name() }];
    let digest = Repair { from: NodeId(9), names: &names, symbol: None };
    let mut bytes = vec![0; digest.wire_len()];
    digest.write(&mut bytes);
    let expected = b"\xb3\0\x02\0\0\0\x09\
        \x01\x02\x03\x04\x15\x16\x17\x18\x21\x22\x23\x24\
        \x01\x02\x03\x04\x15\x16\x17\x18\0\0\0\x07";
    assert_eq!(bytes, expected);
}

#[test]
fn a_request_and_a_heartbeat_are_these_bytes() {
    let range = Range { key: data().key(), first: 5, count: 3 };
    let mut bytes = [0; NAK_HEADER + NAK_RANGE];
    let nak = Nak { from: NodeId(9), ranges: &[range] };
    nak.write_denial(&mut bytes);
    assert!(bytes[0] == 0xbb && matches!(Datagram::read(&bytes), Ok(Datagram::Denial(_))));
    nak.write(&mut bytes);
    assert_eq!(&bytes, b"\xb4\x01\0\0\0\x09\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\x05\0\x03");
    let latest = Latest { group: data().group, seq: 5 };
    let mut bytes = [0; HEARTBEAT_HEADER + HEARTBEAT_ENTRY];
    Heartbeat { sender: NodeId(9), sender_seq: 6, latest: &[latest] }.write(&mut bytes);
    assert_eq!(&bytes, b"\xb5\x01\0\0\0\x09\0\0\0\x06\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\x05");
}

#[test]
fn a_report_and_a_request_for_it_are_these_bytes() {
    let room = Room { group: data().group, position: 7, newest: 8, window: 0x800 };
    let mut bytes = [0; ROOMS_HEADER + ROOM];
    assert_eq!(Rooms { from: NodeId(9), rooms: &[room] }.write(&mut bytes), bytes.len());
    assert_eq!(&bytes, b"\xb9\x01\0\0\0\x09\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\x07\0\0\0\x08\0\0\x08\0");
    let Ok(Datagram::Rooms(view)) = Datagram::read(&bytes) else { panic!("a report was written") };
    assert!(view.from == NodeId(9) && view.rooms().eq([room]));
    let probe = Probe { sender: NodeId(9), group: data().group, newest: 8 };
    let mut bytes = [0; PROBE];
    assert_eq!(probe.write(&mut bytes), PROBE);
    assert_eq!(&bytes, b"\xba\0\0\0\0\x09\x11\x12\x13\x14\x15\x16\x17\x18\0\0\0\x08");
    assert_eq!(Datagram::read(&bytes), Ok(Datagram::Probe(probe)));
}

#[test]
fn what_is_not_ours_is_refused_by_its_reason() {
    let (name, mut good) = (data().name(), vec![0; 29]);
    data().write(&mut good);
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let repair = |names: &[Name], symbol: Option<&[u8]>| {
        let repair = Repair { from: NodeId(1), names, symbol };
        let mut bytes = vec![0; repair.wire_len()];
        repair.write(&mut bytes);
        bytes
    };
    let mut tail = repair(&[name], None);
    tail.push(0);
    let short = repair(&[name], Some(&[0; SYMBOL_HEAD]));
    for (bytes, reason) in [
        (vec![], Malformed::TooShort),
        (good[..21].to_vec(), Malformed::TooShort),
        (changed(0, 0x11), Malformed::Version),
        (changed(0, 0xb0), Malformed::Kind),
        (changed(0, 0xb6), Malformed::Kind),
        (changed(1, 32), Malformed::Reserved),
        (changed(1, 6), Malformed::Reserved),
        (changed(1, 4), Malformed::TooShort),
        (b"\xb9\0\0\0\0\0".to_vec(), Malformed::Count),
        ([&b"\xb9\x01\0\0\0\0"[..], &[1; 21]].concat(), Malformed::TooLong),
        (b"\xba\x01\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), Malformed::Reserved),
        (tail, Malformed::TooLong),
        (short[..short.len() - 1].to_vec(), Malformed::TooShort),
        (repair(&[name, Name { seq: 1, ..name }, name], None), Malformed::Repeated),
        (b"\xb3\0\0\0\0\0\0".to_vec(), Malformed::Count),
        (b"\xb3\x02\x01\0\0\0\0".to_vec(), Malformed::Reserved),
        (b"\xb3\0\x40\0\0\0\0".to_vec(), Malformed::TooShort),
        (b"\xb3\0\x41\0\0\0\0".to_vec(), Malformed::Count),
        (b"\xb4\x00\0\0\0\0".to_vec(), Malformed::Count),
        ([&b"\xb4\x01\0\0\0\0"[..], &[0; 18]].concat(), Malformed::Count),
        ([&b"\xb4\x01\0\0\0\0"[..], &[1; 19]].concat(), Malformed::TooLong),
        (b"\xb5\xff\0\0\0\0\0\0\0\0".to_vec(), Malformed::Count),
        ([&b"\xb5\x01\0\0\0\0\0\0\0\0"[..], &[1; 11]].concat(), Malformed::TooShort),
        ([&b"\xbc\x03"[..], &[0; 31], &[1]].concat(), Malformed::Reserved),
        // A question of a later version is refused, and not taken for another one.
        ([&b"\xbc\x05"[..], &[0; 32]].concat(), Malformed::Reserved),
    ] {
        assert_eq!(Datagram::read(&bytes), Err(reason), "{bytes:02x?}");
    }
    assert_eq!(Datagram::read(&[0xb1]), Err(Malformed::TooShort));
    let long = [&changed(1, 0)[..], &[0; 70_000]].concat();
    assert_eq!(Datagram::read(&long), Err(Malformed::TooLong));
}

#[test]
fn the_longest_payload_leaves_room_for_its_repair() {
    let payload = vec![1; payload_max(1_472, 8, 16).unwrap()];
    let data = Data { payload: &payload, ..data() };
    let symbol = [&data.symbol_head()[..], &payload].concat();
    let repair = Repair { from: NodeId(1), names: &[data.name(); 8], symbol: Some(&symbol) };
    assert_eq!((payload.len(), repair.wire_len() + 16), (1_338, 1_472));
    assert_eq!(payload_max(100, 8, 0), None);
    assert_eq!(payload_max(118, 8, 0), Some(0));
}

#[test]
fn a_symbol_that_is_not_the_packet_named_is_unsound() {
    let symbol = [&data().symbol_head()[..], data().payload, &[0; 3]].concat();
    let read = |name, group, symbol: &[u8]| Data::from_symbol(name, group, symbol).err();
    assert_eq!(read(data().name(), data().group, &symbol), None);
    let other = Name { seq: 1, ..data().name() };
    assert_eq!(read(other, data().group, &symbol), Some(Unsound::Check));
    let same_tag = GroupId(data().group.0 ^ 1 << 40);
    assert_eq!(read(data().name(), same_tag, &symbol), Some(Unsound::Group));
    let padded = [&symbol[..], &[1]].concat();
    assert_eq!(read(data().name(), data().group, &padded), Some(Unsound::Length));
    assert_eq!(read(data().name(), data().group, &symbol[..SYMBOL_HEAD + 6]), Some(Unsound::Length));
    for at in 0..SYMBOL_HEAD + 7 {
        for bit in 0..8 {
            let mut wrong = symbol.clone();
            wrong[at] ^= 1 << bit;
            assert!(read(data().name(), data().group, &wrong).is_some(), "byte {at}, bit {bit}");
        }
    }
}

/// Checks that a peek agrees with the full parser on every datagram that the parser accepts.
fn check_peek(bytes: &[u8]) {
    let peek = Peek::read(bytes);
    if let Ok(peek) = &peek {
        assert_eq!(Ok(peek.kind), Kind::read(bytes));
        assert!(peek.groups(bytes).count() <= bytes.len());
    }
    let Ok(datagram) = Datagram::read(bytes) else { return };
    let peek = peek.expect("the full parser accepts it");
    let (sender, packet, groups) = match datagram {
        Datagram::Data(data) | Datagram::Retransmission(data) => {
            (data.sender, Some((data.group, data.seq)), vec![data.group])
        }
        Datagram::Repair(repair) => (repair.from, None, vec![]),
        Datagram::Nak(nak) | Datagram::Denial(nak) => (nak.from, None, vec![]),
        Datagram::Heartbeat(heartbeat) => {
            (heartbeat.sender, None, heartbeat.latest().map(|latest| latest.group).collect())
        }
        Datagram::Question(question) => (question.from, None, vec![]),
        Datagram::Answer(answer) => (answer.sender, None, vec![]),
        Datagram::Rooms(report) => (report.from, None, vec![]),
        Datagram::Probe(probe) => (probe.sender, Some((probe.group, probe.newest)), vec![probe.group]),
        Datagram::HistoryRequest(request) => (request.from, None, Vec::new()),
        Datagram::History(history) => (history.sender, None, Vec::new()),
    };
    assert_eq!((peek.kind, peek.sender, peek.packet), (datagram.kind(), sender, packet));
    assert!(peek.groups(bytes).eq(groups));
}

fn names(max: usize) -> impl Strategy<Value = Vec<Name>> {
    let name = (0..3u32, any::<u32>(), any::<u32>()).prop_map(|(sender, group, seq)| Name {
        sender: NodeId(sender),
        group: GroupTag(group),
        seq,
    });
    prop::collection::hash_set(name, 1..=max).prop_map(|names| names.into_iter().collect())
}

proptest! {
    #[test]
    fn data_survives_the_wire_and_the_code(
        (sender, group, seq, sender_seq) in (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()),
        (expires, fragment, padding) in (any::<bool>(), any::<bool>(), 0usize..20),
        (timed, enveloped) in (any::<bool>(), any::<bool>()),
        payload in prop::collection::vec(any::<u8>(), SENT..200),
    ) {
        let (sender, group) = (NodeId(sender), GroupId(group));
        let extras = Extras { timed, enveloped };
        let data = Data { sender, group, seq, sender_seq, expires, fragment, joint: false, extras, payload: &payload };
        let mut bytes = vec![0; data.wire_len()];
        prop_assert_eq!(data.write_retransmission(&mut bytes), bytes.len());
        check_peek(&bytes);
        prop_assert_eq!(data.write(&mut bytes), bytes.len());
        check_peek(&bytes);
        prop_assert_eq!(Datagram::read(&bytes), Ok(Datagram::Data(data)));
        let symbol = [&data.symbol_head()[..], &payload, &vec![0; padding]].concat();
        prop_assert_eq!(Data::from_symbol(data.name(), group, &symbol), Ok(data));
    }

    #[test]
    fn repairs_survive_the_wire(
        names in names(NAMES_MAX), from: u32, symbol in prop::option::of(prop::collection::vec(any::<u8>(), SYMBOL_HEAD..90)),
    ) {
        let repair = Repair { from: NodeId(from), names: &names, symbol: symbol.as_deref() };
        let mut bytes = vec![0; repair.wire_len()];
        prop_assert_eq!(repair.write(&mut bytes), bytes.len());
        check_peek(&bytes);
        let Ok(Datagram::Repair(view)) = Datagram::read(&bytes) else { panic!("a repair was written") };
        prop_assert_eq!((view.from, view.count(), view.symbol), (repair.from, names.len(), repair.symbol));
        prop_assert_eq!(view.names().collect::<Vec<_>>(), names);
    }

    #[test]
    fn requests_survive_the_wire(
        from: u32,
        ranges in prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), 1..=u16::MAX), 1..=NAK_RANGES_MAX),
    ) {
        let ranges: Vec<Range> = ranges.into_iter().map(|(sender, group, first, count)| {
            Range { key: StreamKey { sender: NodeId(sender), group: GroupId(group) }, first, count }
        }).collect();
        let nak = Nak { from: NodeId(from), ranges: &ranges };
        let mut bytes = vec![0; nak.wire_len()];
        prop_assert_eq!(nak.write(&mut bytes), bytes.len());
        check_peek(&bytes);
        let Ok(Datagram::Nak(view)) = Datagram::read(&bytes) else { panic!("a request was written") };
        prop_assert_eq!(view.from, nak.from);
        prop_assert_eq!(view.ranges().collect::<Vec<_>>(), ranges);
    }

    #[test]
    fn heartbeats_survive_the_wire(
        sender: u32, sender_seq: u32, latest in prop::collection::vec((any::<u64>(), any::<u32>()), 1..=HEARTBEAT_MAX),
    ) {
        let latest: Vec<Latest> = latest.into_iter().map(|(group, seq)| Latest { group: GroupId(group), seq }).collect();
        let heartbeat = Heartbeat { sender: NodeId(sender), sender_seq, latest: &latest };
        let mut bytes = vec![0; heartbeat.wire_len()];
        prop_assert_eq!(heartbeat.write(&mut bytes), bytes.len());
        check_peek(&bytes);
        let Ok(Datagram::Heartbeat(view)) = Datagram::read(&bytes) else { panic!("a heartbeat was written") };
        prop_assert_eq!((view.sender, view.sender_seq), (heartbeat.sender, sender_seq));
        prop_assert_eq!(view.latest().collect::<Vec<_>>(), latest);
    }

    #[test]
    fn questions_and_answers_survive_the_wire(from: u32, token: u64, group: u64, newest: Option<u32>) {
        let (from, group) = (NodeId(from), GroupId(group));
        let question = Question { from, token, group };
        let mut bytes = vec![0; QUESTION];
        prop_assert_eq!(question.write(&mut bytes), QUESTION);
        check_peek(&bytes);
        prop_assert_eq!(Datagram::read(&bytes), Ok(Datagram::Question(question)));
        let answer = Answer { sender: from, token, group, newest };
        let mut bytes = vec![0; ANSWER];
        prop_assert_eq!(answer.write(&mut bytes), ANSWER);
        check_peek(&bytes);
        prop_assert_eq!(Datagram::read(&bytes), Ok(Datagram::Answer(answer)));
    }

    #[test]
    fn requests_for_history_and_answers_survive_the_wire(
        node: u32, token: u64, group: u64, value: u64, length: u32, what in 0..10u8, skip: u16,
        bytes in prop::collection::vec(any::<u8>(), 1..1_200),
    ) {
        let ask = match what % 5 {
            0 => Ask::Offer(Wish::Last(value)),
            1 => Ask::Offer(Wish::Since(value)),
            2 => Ask::Offer(Wish::LastPerKey),
            3 => Ask::Copy { offset: value, length },
            _ => Ask::Read { offset: value, length },
        };
        let (from, group, mut to) = (NodeId(node), GroupId(group), [0; 1_400]);
        let request = HistoryRequest { from, token, group, ask };
        let written = request.write(&mut to);
        prop_assert_eq!(written, HISTORY_REQUEST);
        check_peek(&to[..written]);
        prop_assert_eq!(Datagram::read(&to[..written]), Ok(Datagram::HistoryRequest(request)));
        let mut streams = vec![0; bytes.len().next_multiple_of(STREAM)];
        let body = match what {
            0 | 1 => HistoryBody::Offer { skip, messages: value, is_complete: what == 0, clock_us: token },
            2 => HistoryBody::Gone,
            3 => HistoryBody::Streams(Streams::write(&mut [(from, length); 9].into_iter(), &mut streams)),
            _ => HistoryBody::Part(&bytes),
        };
        let history = History { sender: from, token, group, offset: value, end: token, body };
        let written = history.write(&mut to);
        check_peek(&to[..written]);
        prop_assert_eq!(Datagram::read(&to[..written]), Ok(Datagram::History(history)));
        if what < 2 {
            prop_assert_eq!(written, HISTORY_HEADER + OFFER);
        }
    }

    #[test]
    fn no_bytes_panic_a_reader(
        first in prop_oneof![0xb1..=0xbdu8, any::<u8>()], flags in 0..32u8, count in 0..70u8,
        rest in prop::collection::vec(any::<u8>(), 0..1_500),
    ) {
        for bytes in [[&[first, flags, count][..], &rest].concat(), [&[first, count][..], &rest].concat(), rest.clone()] {
            check_peek(&bytes);
            match Datagram::read(&bytes) {
                Ok(Datagram::Repair(view)) => assert!(view.names().count() <= NAMES_MAX),
                Ok(Datagram::Nak(view) | Datagram::Denial(view)) => assert!(view.ranges().count() <= NAK_RANGES_MAX),
                Ok(Datagram::Heartbeat(view)) => assert!(view.latest().count() <= HEARTBEAT_MAX),
                Ok(Datagram::Data(data) | Datagram::Retransmission(data)) => assert!(data.payload.len() <= rest.len()),
                Ok(Datagram::Rooms(view)) => assert!(view.rooms().count() <= ROOMS_MAX),
                Ok(Datagram::History(history)) => {
                    if let HistoryBody::Streams(streams) = history.body {
                        assert!((1..=rest.len() / STREAM).contains(&streams.iter().count()));
                    }
                }
                Ok(
                    Datagram::Question(_)
                    | Datagram::Answer(_)
                    | Datagram::Probe(_)
                    | Datagram::HistoryRequest(_),
                ) => {}
                Err(_) => {}
            }
        }
        let name = Name { sender: NodeId(1), group: GroupTag(2), seq: 3 };
        prop_assert!(Data::from_symbol(name, GroupId(2), &rest).is_err(), "random bytes pass no check");
    }
}
