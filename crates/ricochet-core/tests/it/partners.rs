//! Large groups, in which a node makes repairs for some of the members.

use std::collections::BTreeSet;

use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig, NodeId};

use crate::common::net::{Net, NetworkConditions};

const GROUP: GroupId = GroupId(9);
const NODES: usize = 96;
const PARTNERS: usize = 12;

/// Returns the members that a node has sent repairs to.
fn partners(net: &Net, at: usize) -> BTreeSet<NodeId> {
    let feedback = net.nodes[at].feedback(net.now_us);
    feedback.peers.iter().filter(|peer| peer.repairs_sent.packets > 0).map(|peer| peer.peer).collect()
}

/// Runs a group with a maximum number of partners, and checks that nothing stays lost.
fn run(partners_max: usize, content: Content) -> Net {
    let conditions = NetworkConditions { data_loss: 0.02, other_loss: 0.02, ..NetworkConditions::default() };
    let configure =
        |config: NodeConfig| NodeConfig { content, partners_max, ..NodeConfig::prompt(config.id) };
    let mut net = Net::new(&vec![vec![GROUP]; NODES], 3, conditions, 1, configure);
    for n in 0..300 {
        net.multicast(n % NODES, GROUP, b"payload");
        net.advance(1_000);
    }
    net.advance(2_000_000);
    assert_eq!((net.unaccounted().len(), net.reported_lost()), (0, 0));
    net
}

#[test]
fn repairs_go_to_few_members_and_nothing_stays_lost() {
    for content in [Content::Names, Content::Xor] {
        let net = run(PARTNERS, content);
        let mut served = BTreeSet::new();
        for at in 0..NODES {
            let partners = partners(&net, at);
            assert!((1..=PARTNERS).contains(&partners.len()), "{partners:?}");
            assert!(net.nodes[at].has_partners());
            served.extend(partners);
        }
        assert_eq!(served.len(), NODES, "every member is the partner of others");
    }
    let net = run(NODES, Content::Names);
    assert!(!net.nodes[0].has_partners() && partners(&net, 0).len() > PARTNERS);
}

#[test]
fn partners_change_in_turns() {
    let mut net = run(PARTNERS, Content::Names);
    let before = partners(&net, 5);
    let view = crate::common::view(&vec![vec![GROUP]; NODES]);
    for _ in 0..40 {
        net.nodes[5].turn_partners();
        net.change_view(5, &view);
        for n in 0..20 {
            net.multicast(n + 6, GROUP, b"payload");
            net.advance(1_000);
        }
    }
    net.advance(2_000_000);
    assert_eq!(net.unaccounted().len(), 0);
    let after = partners(&net, 5);
    assert!(after.len() > before.len() + PARTNERS, "{} and {}", before.len(), after.len());
}
