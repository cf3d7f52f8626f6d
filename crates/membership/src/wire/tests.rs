use std::net::SocketAddr;

use foca::{Codec as _, Header, Member, Message, State};
use proptest::prelude::*;
use ricochet_core::{GroupId, NodeId};

use super::swim::{Identity, LIFE_MAX, SwimCodec};
use super::*;

fn identity(last: u8) -> Identity {
    Identity {
        address: SocketAddr::from(([10, 0, 0, last], 7901)),
        id: NodeId(u32::from(last)),
        life: 0x0102,
    }
}

fn swim(header: &Header<Identity>, members: &[Member<Identity>]) -> Vec<u8> {
    let mut bytes = Kind::Swim.to_wire().to_vec();
    SwimCodec.encode_header(header, &mut bytes).unwrap();
    if !members.is_empty() {
        bytes.extend((members.len() as u16).to_be_bytes());
    }
    for member in members {
        SwimCodec.encode_member(member, &mut bytes).unwrap();
    }
    bytes
}

/// The bytes that `docs/wire.md` specifies.
#[test]
fn a_message_of_the_failure_detector_is_these_bytes() {
    let header = Header { src: identity(1), src_incarnation: 5, dst: identity(2), message: Message::Ping(9) };
    let member = Member::new(identity(3), 6, State::Down);
    let bytes = swim(&header, std::slice::from_ref(&member));
    let expected = b"\xb6\x01\
        \x04\x0a\0\0\x01\x1e\xdd\0\0\0\x01\0\0\0\0\0\0\x01\x02\0\x05\
        \x04\x0a\0\0\x02\x1e\xdd\0\0\0\x02\0\0\0\0\0\0\x01\x02\
        \x01\x09\0\x01\
        \x04\x0a\0\0\x03\x1e\xdd\0\0\0\x03\0\0\0\0\0\0\x01\x02\0\x06\x02";
    assert_eq!(bytes, expected);
    let Ok(Datagram::Swim(view)) = Datagram::read(&bytes) else { panic!("it was written") };
    assert_eq!((view.source, view.to, view.updates()), (identity(1), identity(2), 1));
    let mut rest = view.message;
    assert_eq!(SwimCodec.decode_header(&mut rest), Ok(header));
    assert_eq!(SwimCodec.decode_member(&mut &rest[2..]), Ok(member));
}

#[test]
fn summaries_and_list_requests_are_these_bytes() {
    let mut bytes = [0; DATAGRAM_MAX];
    let length = write_summary(&[Held { id: NodeId(7), version: 9 }], true, &mut bytes);
    assert_eq!(&bytes[..length], b"\xb6\x02\x01\x01\0\0\0\x07\0\0\0\x09");
    let request = ListRequest { id: NodeId(7), have: 8, version: 9, first: 16, mask: 0x83 };
    let length = write_list_requests(&[request], &mut bytes);
    assert_eq!(&bytes[..length], b"\xb6\x04\x01\0\0\0\x07\0\0\0\x08\0\0\0\x09\0\x10\x83");
}

#[test]
fn steps_and_chunks_are_these_bytes() {
    let (added, removed) = ([GroupId(0x11)], [GroupId(0x12), GroupId(0x13)]);
    let step = StepParts { id: NodeId(7), version: 9, check: 0x0a0b, added: &added, removed: &removed };
    let mut bytes = [0; DATAGRAM_MAX];
    bytes[..STEPS_HEADER].copy_from_slice(&StepsView::header(1));
    let end = STEPS_HEADER + step.write(&mut bytes[STEPS_HEADER..]);
    assert_eq!(end, STEPS_HEADER + step.wire_len());
    assert_eq!(
        &bytes[..end],
        b"\xb6\x03\x01\0\0\0\x07\0\0\0\x09\0\0\x0a\x0b\x01\x02\
        \0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\x12\0\0\0\0\0\0\0\x13"
    );
    let list: Vec<GroupId> = (0..161).map(GroupId).collect();
    let chunk = Chunk { id: NodeId(7), version: 9, check: 0x0a0b, list: &list, number: 1 };
    let end = chunk.write(&mut bytes);
    assert_eq!(&bytes[..end], b"\xb6\x05\0\0\0\x07\0\0\0\x09\0\0\x0a\x0b\0\0\0\xa1\0\x01\0\0\0\0\0\0\0\xa0");
}

#[test]
fn a_presence_datagram_is_these_bytes() {
    let presence =
        Presence { id: NodeId(7), life: 1, number: 2, version: 3, check: 4, leaving: false, answer: true };
    let expected = b"\xb6\x06\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04";
    assert_eq!(&presence.to_wire(), expected);
}

#[test]
fn address_requests_and_replies_are_these_bytes() {
    let mut bytes = [0; DATAGRAM_MAX];
    let length = write_address_request(&[NodeId(7)], &mut bytes);
    assert_eq!(&bytes[..length], b"\xb6\x07\x01\0\0\0\x07");
    let length = write_address_reply([(NodeId(7), identity(1).address)], &mut bytes);
    assert_eq!(&bytes[..length], b"\xb6\x08\x01\0\0\0\x07\x04\x0a\0\0\x01\x1e\xdd");
    let many: Vec<_> = (0..100).map(|id| (NodeId(id), "[fd88::1]:1".parse().unwrap())).collect();
    let length = write_address_reply(many.iter().copied(), &mut bytes);
    let Ok(Datagram::AddressReply(view)) = Datagram::read(&bytes[..length]) else { panic!("it was written") };
    assert!(view.nodes().eq(many.into_iter().take(60)), "as many as fit");
}

#[test]
fn the_check_of_a_list_is_the_hash_of_its_bytes() {
    assert_eq!(list_check(&[]), xxhash_rust::xxh3::xxh3_64(b"") as u32);
    let bytes = b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02";
    assert_eq!(list_check(&[GroupId(1), GroupId(2)]), xxhash_rust::xxh3::xxh3_64(bytes) as u32);
}

#[test]
fn malformed_datagrams_are_refused_by_reason() {
    let header = Header { src: identity(1), src_incarnation: 5, dst: identity(2), message: Message::Feed };
    let good = swim(&header, &[Member::alive(identity(3))]);
    let read = |bytes: &[u8]| Datagram::read(bytes).map(drop);
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        read(&bytes)
    };
    assert_eq!(read(&good), Ok(()));
    assert_eq!(changed(0, 0xb5), Err(Malformed::Protocol));
    assert_eq!(changed(1, 11), Err(Malformed::Kind));
    assert_eq!(changed(2, 5), Err(Malformed::Address), "family");
    assert_eq!(changed(3, 224), Err(Malformed::Address), "multicast");
    assert_eq!(changed(13, 0xff), Err(Malformed::Reserved), "a life far in the future");
    assert_eq!(changed(good.len() - 1, 3), Err(Malformed::Reserved), "state");
    assert_eq!(read(&good[..good.len() - 1]), Err(Malformed::TooShort));
    assert_eq!(read(&[&good[..], &[0]].concat()), Err(Malformed::TooLong));
    let announce = swim(&Header { message: Message::Announce, ..header.clone() }, &[]);
    assert_eq!(read(&announce), Ok(()));
    assert_eq!(
        read(&[&announce[..], &[0, 0]].concat()),
        Err(Malformed::TooLong),
        "updates in an announcement"
    );
    assert_eq!(read(b"\xb6\x02\x02\x01\0\0\0\x07\0\0\0\x09"), Err(Malformed::Reserved), "flag");
    assert_eq!(read(b"\xb6\x02\x00\x00"), Err(Malformed::Count));
    assert_eq!(
        read(b"\xb6\x05\0\0\0\x07\0\0\0\x09\0\0\0\0\0\0\0\0\0\x01"),
        Err(Malformed::Count),
        "no such part"
    );
    let longest = [&[0xb6, 3, 64][..], &[0; DATAGRAM_MAX]].concat();
    assert_eq!(read(&longest), Err(Malformed::TooLong));
    assert_eq!(read(&[]), Err(Malformed::TooShort));
}

fn identities() -> impl Strategy<Value = Identity> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(std::net::IpAddr::from),
        any::<[u8; 16]>().prop_map(Into::into)
    ];
    (ip, 1..u16::MAX, any::<u32>(), 0..=LIFE_MAX)
        .prop_map(|(ip, port, id, life)| Identity {
            address: SocketAddr::new(ip, port),
            id: NodeId(id),
            life,
        })
        .prop_filter("an address", |identity| swim::is_sendable(identity.address))
}

fn messages() -> impl Strategy<Value = Message<Identity>> {
    prop_oneof![
        any::<u8>().prop_map(Message::Ping),
        any::<u8>().prop_map(Message::Ack),
        (any::<u8>(), identities())
            .prop_map(|(probe_number, target)| Message::PingReq { target, probe_number }),
        (any::<u8>(), identities())
            .prop_map(|(probe_number, origin)| Message::IndirectPing { origin, probe_number }),
        (any::<u8>(), identities())
            .prop_map(|(probe_number, target)| Message::IndirectAck { target, probe_number }),
        (any::<u8>(), identities())
            .prop_map(|(probe_number, origin)| Message::ForwardedAck { origin, probe_number }),
        Just(Message::Feed),
        Just(Message::Gossip),
    ]
}

fn members() -> impl Strategy<Value = Member<Identity>> {
    let state = prop_oneof![Just(State::Alive), Just(State::Suspect), Just(State::Down)];
    (identities(), any::<u16>(), state)
        .prop_map(|(id, incarnation, state)| Member::new(id, incarnation, state))
}

proptest! {
    #[test]
    fn messages_of_the_failure_detector_survive_the_wire(
        src in identities(), dst in identities(), src_incarnation: u16, message in messages(),
        members in prop::collection::vec(members(), 0..30),
    ) {
        let header = Header { src, src_incarnation, dst, message };
        let bytes = swim(&header, &members);
        let Ok(Datagram::Swim(view)) = Datagram::read(&bytes) else { panic!("it was written") };
        let mut rest = view.message;
        prop_assert_eq!(SwimCodec.decode_header(&mut rest), Ok(header));
        rest = rest.get(2..).unwrap_or_default();
        for member in &members {
            prop_assert_eq!(SwimCodec.decode_member(&mut rest), Ok(member.clone()));
        }
        let mut filtered = Kind::Swim.to_wire().to_vec();
        let mut body = Vec::new();
        let without = view.write_filtered(&mut body, |member| member.id().id.0 % 2 == 0);
        filtered.extend(body);
        let Ok(Datagram::Swim(view)) = Datagram::read(&filtered) else { panic!("it is still whole") };
        prop_assert_eq!(view.updates() + without, members.len());
    }

    #[test]
    fn lists_survive_the_wire(
        id: u32, version: u32, list in prop::collection::vec(any::<u64>(), 0..1_000),
    ) {
        let list: Vec<GroupId> = list.into_iter().map(GroupId).collect();
        let check = list_check(&list);
        let mut got = Vec::new();
        for number in 0..Chunk::count(list.len()) as u16 {
            let mut bytes = [0; DATAGRAM_MAX];
            let length = Chunk { id: NodeId(id), version, check, list: &list, number }.write(&mut bytes);
            let Ok(Datagram::Chunk(view)) = Datagram::read(&bytes[..length]) else { panic!("it was written") };
            prop_assert_eq!((view.id.0, view.version, view.check, view.total), (id, version, check, list.len()));
            got.extend(view.groups());
        }
        prop_assert_eq!(got, list);
    }

    #[test]
    fn steps_requests_summaries_and_presences_survive_the_wire(
        entries in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), any::<u16>(), any::<u8>()), 1..64),
        flags: (bool, bool), life in 0..=LIFE_MAX,
    ) {
        let mut bytes = [0; DATAGRAM_MAX];
        let known: Vec<Held> =
            entries.iter().map(|&(id, version, ..)| Held { id: NodeId(id), version }).collect();
        let length = write_summary(&known, flags.0, &mut bytes);
        let Ok(Datagram::Summary(view)) = Datagram::read(&bytes[..length]) else { panic!("it was written") };
        prop_assert_eq!((view.answer, view.entries().collect::<Vec<_>>()), (flags.0, known));

        let requests: Vec<ListRequest> = (entries.iter())
            .map(|&(id, have, version, first, mask)| ListRequest { id: NodeId(id), have, version, first, mask })
            .collect();
        let length = write_list_requests(&requests, &mut bytes);
        let Ok(Datagram::ListRequests(view)) = Datagram::read(&bytes[..length]) else { panic!("it was written") };
        prop_assert_eq!(view.requests().collect::<Vec<_>>(), requests);

        let groups: Vec<GroupId> = entries.iter().map(|&(id, ..)| GroupId(u64::from(id))).collect();
        let (added, removed) = groups.split_at(groups.len() / 3);
        let step = StepParts { id: NodeId(1), version: 2, check: 3, added, removed };
        bytes[..STEPS_HEADER].copy_from_slice(&StepsView::header(1));
        let length = STEPS_HEADER + step.write(&mut bytes[STEPS_HEADER..]);
        let Ok(Datagram::Steps(view)) = Datagram::read(&bytes[..length]) else { panic!("it was written") };
        let view = view.steps().next().expect("one step");
        prop_assert!(view.added().eq(added.iter().copied()) && view.removed().eq(removed.iter().copied()));

        let (id, number, version, ..) = entries[0];
        let presence =
            Presence { id: NodeId(id), life, number, version, check: id, leaving: flags.0, answer: flags.1 };
        let bytes = presence.to_wire();
        prop_assert_eq!(Datagram::read(&bytes), Ok(Datagram::Presence(presence)));
    }

    #[test]
    fn no_bytes_panic_a_reader(kind in 0..12u8, head: [u8; 4], rest in prop::collection::vec(any::<u8>(), 0..1_500)) {
        for bytes in [[&[0xb6, kind][..], &head, &rest].concat(), [&[0xb6, kind, 0, 1][..], &rest].concat(), rest] {
            match Datagram::read(&bytes) {
                Ok(Datagram::Swim(view)) => prop_assert!(view.updates() * 22 <= bytes.len()),
                Ok(Datagram::Summary(view)) => prop_assert!(view.entries().count() <= SUMMARY_ENTRIES_MAX),
                Ok(Datagram::Steps(view)) => prop_assert!(view.steps().count() <= STEPS_MAX),
                Ok(Datagram::ListRequests(view)) => prop_assert!(view.requests().count() <= LIST_REQUESTS_MAX),
                Ok(Datagram::Chunk(view)) => prop_assert!(view.groups().len() <= CHUNK_GROUPS),
                Ok(Datagram::AddressRequest(view)) => prop_assert!(view.ids().count() <= ADDRESSES_MAX),
                Ok(Datagram::AddressReply(view)) => prop_assert!(view.nodes().count() <= ADDRESSES_MAX),
                Ok(Datagram::Presence(_) | Datagram::IdentityQuestion(_) | Datagram::IdentityAnswer(_)) | Err(_) => {}
            }
        }
    }
}
