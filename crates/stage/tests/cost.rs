//! The cost of a packet, measured briefly: checks that everything is counted, not how much.

use netlab::privilege::namespaces_or_skip;
use stage::nodes::{CostPlan, cost};

#[test]
fn a_node_among_made_up_neighbours_delivers_and_repairs() {
    if !namespaces_or_skip("a_node_among_made_up_neighbours_delivers_and_repairs") {
        return;
    }
    let plan = CostPlan { groups_per_node: 4, packets: 2_000, per_second: 10_000, papers: true };
    let cost = cost(&plan).unwrap();
    // One in a hundred is lost, and four fifths are counted; on a busy machine fewer may arrive.
    assert!((500..=1_650).contains(&cost.delivered), "{cost:?}");
    assert!(cost.us_per_packet > 0.0 && cost.core_share > 0.0, "{cost:?}");
    assert!(cost.xors > 0.5 && cost.xors < 6.0, "{cost:?}");
    assert_eq!(cost.no_room, 0, "{cost:?}");
    assert!(cost.repairs_sent > 0.1 && cost.repairs_received > 0.1, "{cost:?}");
}
