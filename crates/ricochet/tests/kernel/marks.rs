//! DSCP on the wire, as the switch sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, socket};
use ricochet::Node;

use crate::common::{Lan, alone, join_all, loss, next};

/// Type of service by DSCP.
const URGENT: u8 = 46 << 2;
const OTHER: u8 = 8 << 2;

/// First bytes of datagrams: a packet, one that is sent again, a repair, a request.
const KINDS: [u8; 4] = [0xb1, 0xb2, 0xb3, 0xb4];

/// Reads the frames that the switch has seen, and notes the type of service of each UDP datagram by its first
/// byte.
fn note(wire: &OwnedFd, seen: &mut BTreeMap<u8, BTreeSet<u8>>) {
    let mut frame = [0; 2_048];
    while let Ok(length) = recv(wire.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
        let packet = frame[..length.min(frame.len())].get(14..).unwrap_or_default();
        // IPv4 without options, UDP.
        if let [0x45, tos, _, _, _, _, _, _, _, 17, rest @ ..] = packet
            && let Some(&kind) = rest.get(18)
        {
            seen.entry(kind).or_default().insert(*tos);
        }
    }
}

#[test]
fn repairs_requests_and_answers_have_the_dscp_of_their_packets() {
    let Some(lan) = Lan::build("DSCP on the wire", 3) else { return };
    let wire = || {
        let (family, kind) = (AddressFamily::Packet, SockType::Raw);
        socket(family, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
    };
    let wire = lan.switch.run(wire).unwrap();
    let nodes: Vec<Node> =
        lan.start(|at, builder| builder.dscp(8).group_dscp("urgent", 46).lose(loss(20, at as u64 + 3)));
    let urgent = join_all(&nodes, "urgent");
    let calm = join_all(&nodes, "calm");
    let mut seen = BTreeMap::new();
    note(&wire, &mut seen);
    let marks: BTreeSet<u8> = seen.values().flatten().copied().collect();
    assert_eq!(marks, BTreeSet::from([OTHER]), "nothing was sent to the group yet: {seen:?}");

    seen.clear();
    // Until each kind has been on the wire.
    let mut number = 0_u32;
    while !KINDS.iter().all(|kind| seen.contains_key(kind)) {
        assert!(number < 20_000, "{seen:?}");
        nodes[0].send("urgent", &alone(number)).unwrap();
        for at in [1, 2] {
            next(&nodes[at], &urgent[at]);
        }
        number += 1;
        note(&wire, &mut seen);
    }
    for kind in KINDS {
        assert_eq!(seen[&kind], BTreeSet::from([URGENT]), "kind {kind:x}: {seen:?}");
    }
    note(&wire, &mut seen);
    seen.clear();
    nodes[0].send("calm", b"hello").unwrap();
    assert_eq!(next(&nodes[1], &calm[1]).payload(), b"hello");
    note(&wire, &mut seen);
    assert!(seen[&0xb1].contains(&OTHER), "{seen:?}");
}
