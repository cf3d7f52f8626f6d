//! Tests which multicast the members hear, for diagnostics.

use std::sync::PoisonError;
use std::time::Duration;

use ricochet_core::GroupId;

use crate::addresses::GroupAddresses;
use crate::clock;
use crate::error::JoinError;
use crate::message::Member;
use crate::node::Node;
use crate::shared::Shared;

/// Interval between looks at the tests.
const LOOK: Duration = Duration::from_millis(50);

/// Findings of a test of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberTest {
    /// The member.
    pub member: Member,
    /// Number of groups that it is in. A member that is in none is not tested.
    pub groups: usize,
    /// Whether it has answered, by unicast.
    pub answers: bool,
    /// Whether it hears this node's multicast, at all addresses of its groups. `None` if that is not known:
    /// it does not answer, is in no group, or this node sends by unicast.
    pub hears: Option<bool>,
    /// Whether this node hears its multicast. `None` if it has sent nothing to a group yet.
    pub is_heard: Option<bool>,
    /// Settings that must be the same in the whole cluster and differ: what they are here and there.
    pub settings_differ: Vec<String>,
}

impl Node {
    /// Tests which multicast the members hear: calls at all multicast addresses of the cluster, asks each
    /// member by unicast what it has heard, and joins a group at each of the addresses, so that members that
    /// send test this node. Takes `wait`, and longer, up to `timeout`, if answers are missing.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let here = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).port(0);
    /// # let other = here().start()?;
    /// # let prices = other.join("prices/AAPL")?;
    /// # let node = here().seed(other.address().to_string()).start()?;
    /// # assert!(node.wait_for_members("prices/AAPL", 1, Duration::from_secs(20)));
    /// for test in node.test_members(Duration::from_secs(1), Duration::from_secs(20))? {
    ///     println!("{} hears multicast: {:?}", test.member.address, test.hears);
    /// #   assert!(test.answers && test.hears == Some(true), "{test:?}");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn test_members(&self, wait: Duration, timeout: Duration) -> Result<Vec<MemberTest>, JoinError> {
        self.shared.check_process()?;
        let addresses = self.shared.core_ignoring_poison().out.group_addresses();
        let _joined = self.join_many(names_at_all(addresses))?;
        self.shared.call_everywhere(addresses);
        let from_us = clock::now_us();
        let elapsed = || Duration::from_micros(clock::now_us().saturating_sub(from_us));
        loop {
            std::thread::sleep(LOOK);
            let tests = self.shared.member_tests();
            let is_open = |test: &MemberTest| test.groups > 0 && (!test.answers || test.hears.is_none());
            let is_complete = self.shared.config.node.unicast || !tests.iter().any(is_open);
            if elapsed() >= timeout || (elapsed() >= wait && is_complete) || self.shared.ended().is_some() {
                return Ok(tests);
            }
        }
    }
}

impl Shared {
    /// Lets the greetings call at all addresses, and tell what they find of all members.
    fn call_everywhere(&self, addresses: GroupAddresses) {
        {
            let mut core = self.core_ignoring_poison();
            core.out.tells_all = true;
            core.out.sent_to |= addresses.all_bits();
        }
        self.sleep.waker().wake();
    }

    fn member_tests(&self) -> Vec<MemberTest> {
        let published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let test = |member: &crate::published::PublishedMember| {
            let finding = published.findings.get(&member.id).cloned().unwrap_or_default();
            MemberTest {
                member: Member { id: member.id, address: member.address },
                groups: member.groups.len(),
                answers: finding.answers,
                hears: finding.hears,
                is_heard: finding.is_heard,
                settings_differ: finding.differs,
            }
        };
        published.members.iter().map(test).collect()
    }
}

/// Returns names of groups, one at each of the multicast addresses.
fn names_at_all(addresses: GroupAddresses) -> Vec<String> {
    /// Names tried. For 64 addresses, some 300 are needed on average.
    const TRIED_MAX: u32 = 10_000;
    let mut missing = addresses.all_bits();
    let mut names = Vec::new();
    for number in 0..TRIED_MAX {
        // Patterns that do not begin with `_` leave such names out.
        let name = format!("_doctor/{number}");
        let bit = addresses.bit(GroupId::of_name(&name));
        if missing & bit != 0 {
            missing &= !bit;
            names.push(name);
        }
        if missing == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_name::check_group_name;
    use crate::patterns::matches;

    #[test]
    fn each_multicast_address_has_a_group() {
        for count in [1, 3, 63, 64] {
            let addresses = GroupAddresses::new(None, false, count, 7_911);
            let names = names_at_all(addresses);
            assert_eq!(names.len(), usize::from(count));
            let bits = names.iter().fold(0, |all, name| all | addresses.bit(GroupId::of_name(name)));
            assert_eq!(bits, addresses.all_bits());
            assert_eq!(bits.count_ones(), u32::from(count));
            assert!(!names.iter().any(|name| matches("**", name) || matches("*/*", name)));
            assert!(names.iter().all(|name| check_group_name(name).is_ok()));
        }
    }
}
