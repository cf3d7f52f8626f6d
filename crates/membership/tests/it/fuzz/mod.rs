//! Bodies of the fuzz targets, shared with the test that replays their corpora.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each target uses a part of it")]

use std::net::SocketAddr;

use membership::wire::{
    ADDRESSES_MAX, Chunk, DATAGRAM_MAX, Datagram, Held, IdentityAnswer, ListRequest, STEPS_HEADER, StepParts,
    StepsView, write_address_request, write_list_requests, write_summary,
};
use membership::{Gossip, GossipConfig, Me, MemberFile, Membership, Output, Static, StaticConfig};
use ricochet_core::{GroupId, NodeId};

/// Runs every reader of bytes from the network: a datagram that can be read is
/// written back as the same bytes.
pub fn wire(data: &[u8]) {
    let Ok(datagram) = Datagram::read(data) else { return };
    let mut again = vec![0; DATAGRAM_MAX];
    let length = match datagram {
        // Only the library writes these.
        Datagram::Swim(view) => {
            assert!(view.updates() * 22 <= data.len());
            return;
        }
        Datagram::Summary(view) => {
            let entries: Vec<Held> = view.entries().collect();
            write_summary(&entries, view.answer, &mut again)
        }
        Datagram::Steps(view) => {
            let mut at = STEPS_HEADER;
            for step in view.steps() {
                let (added, removed): (Vec<GroupId>, Vec<GroupId>) =
                    (step.added().collect(), step.removed().collect());
                let parts = StepParts {
                    id: step.id,
                    version: step.version,
                    check: step.check,
                    added: &added,
                    removed: &removed,
                };
                at += parts.write(&mut again[at..]);
            }
            again[..STEPS_HEADER].copy_from_slice(&StepsView::header(view.steps().count() as u8));
            at
        }
        Datagram::ListRequests(view) => {
            write_list_requests(&view.requests().collect::<Vec<ListRequest>>(), &mut again)
        }
        Datagram::Chunk(view) => {
            let mut list = vec![GroupId(0); view.total];
            let start = usize::from(view.number) * membership::wire::CHUNK_GROUPS;
            list.splice(start..start + view.groups().len(), view.groups());
            let (id, version, check, number) = (view.id, view.version, view.check, view.number);
            Chunk { id, version, check, list: &list, number }.write(&mut again)
        }
        Datagram::AddressRequest(view) => {
            write_address_request(&view.ids().collect::<Vec<NodeId>>(), &mut again)
        }
        // A reply may be cut short, so it is not written back.
        Datagram::AddressReply(view) => {
            assert!((1..=ADDRESSES_MAX).contains(&view.nodes().count()));
            return;
        }
        Datagram::Presence(presence) => put(&mut again, &presence.to_wire()),
        Datagram::IdentityQuestion(question) => put(&mut again, &question.to_wire()),
        Datagram::IdentityAnswer(answer) => put(&mut again, &answer.to_wire()),
    };
    assert_eq!(&again[..length], data);
}

fn put(to: &mut [u8], bytes: &[u8]) -> usize {
    to[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}

const MEMBER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 7901);
const US: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 7901);

#[derive(Default)]
struct Sent {
    datagrams: usize,
    /// Tokens of the questions to the member.
    tokens: Vec<u64>,
}

impl Output for Sent {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        assert_ne!(to, US, "a node does not send to itself");
        let read = Datagram::read(datagram);
        assert!(read.is_ok(), "every datagram sent can be read");
        if let Ok(Datagram::IdentityQuestion(question)) = read
            && to == MEMBER
        {
            self.tokens.push(question.token);
        }
        self.datagrams += 1;
    }
}

/// Runs a node of each provider, to which a member sends datagrams taken from the data.
///
/// Each step is a byte for the kind, two for the length, and the content. Returns
/// the number of groups learnt.
pub fn node(mut data: &[u8]) -> usize {
    let me = Me { id: NodeId(1), address: US, life: 1_700_000_000_000_000 };
    let config = GossipConfig { members_max: 8, ..GossipConfig::lan() };
    let file = format!("[[member]]\naddress = \"{MEMBER}\"\n");
    let file = MemberFile::parse(&file).expect("a file of members");
    let mut nodes = [
        Membership::Gossip(Gossip::new(config, me, &[MEMBER], 1).expect("valid")),
        Membership::Static(Static::new(StaticConfig::default(), me, &file, 1).expect("valid")),
    ];
    let (mut now_us, mut out) = (1_000, Sent::default());
    for node in &mut nodes {
        node.set_groups(now_us, &[GroupId(5), GroupId(3)], &mut out);
        node.handle_timeout(now_us, &mut out);
    }
    // The member answers as the node that it last claimed to be.
    let mut claimed = (NodeId(2), me.life);
    let (mut steps, mut learnt) = (0, 0);
    while let [kind, high, low, rest @ ..] = data {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (content, behind) = rest.split_at(length.min(rest.len()));
        (data, steps) = (behind, steps + 1);
        claimed = match Datagram::read(content) {
            Ok(Datagram::Swim(message)) => (message.source.id, message.source.life),
            Ok(Datagram::Presence(presence)) => (presence.id, presence.life),
            _ => claimed,
        };
        for node in &mut nodes {
            match kind % 4 {
                0 => now_us += u64::from(*low) * 1_000,
                1 => node.set_groups(now_us, &[GroupId(u64::from(*low)), GroupId(9)], &mut out),
                _ => node.handle_datagram(now_us, MEMBER, content, &mut out),
            }
            if node.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
                node.handle_timeout(now_us, &mut out);
            }
            for token in std::mem::take(&mut out.tokens) {
                let (id, life) = claimed;
                let answer = IdentityAnswer { token, id, life, version: 0, check: 0 };
                node.handle_datagram(now_us, MEMBER, &answer.to_wire(), &mut out);
            }
            assert!(node.members().count() <= 8 && node.memory_bytes() < 1 << 24);
            assert_eq!(node.view().members().len(), node.members().count());
            learnt = node.members().map(|member| member.groups.len()).sum::<usize>().max(learnt);
        }
    }
    assert!(out.datagrams <= 64 + steps * 512, "{} datagrams in {steps} steps", out.datagrams);
    learnt
}
