//! Asks the other members of the cluster what they hear.

use std::fmt::Display;
use std::time::{Duration, Instant};

use ricochet::{Builder, Config, MemberTest, Node};

use super::findings::{Finding, Severity};
use crate::multicast::isolation::{Named as Others, isolation};

const ABOUT: &str = "members";
/// Longest wait for the first member.
const FIRST: Duration = Duration::from_secs(5);
/// Time without a further member or group after which all are known.
const QUIET: Duration = Duration::from_millis(1_500);
/// Longest wait for that.
const ALL: Duration = Duration::from_secs(20);
/// Shortest time of the test, in which members that send test this node.
const TEST: Duration = Duration::from_secs(3);
/// Longest time of the test, and the time that each further member may take.
const TEST_MAX: Duration = Duration::from_secs(6);
const TEST_EACH: Duration = Duration::from_millis(10);
/// Interval between looks at the members.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of members that a finding names.
const NAMED_MAX: usize = 8;

/// Joins the cluster as a node of its own, and tests all members.
pub(super) fn ask(mut config: Config) -> Vec<Finding> {
    // A node that runs on this machine keeps its port and its control socket.
    config.node.port = Some(0);
    config.node.control = None;
    let (others, unicast) = (Others::of(&config.membership), config.node.unicast);
    let node = match Builder::from(config).start() {
        Ok(node) => node,
        Err(error) => {
            let finding = Finding::new(Severity::Error, ABOUT, format!("cannot start a node: {error}"));
            return vec![
                finding.remedy("correct the configuration: `undrop multicast check` names mistakes"),
            ];
        }
    };
    if !wait_for_members(&node) {
        let cause = isolation(&node.status(), &others);
        let (seen, remedy) = cause.map_or(
            ("this node knows no other".to_owned(), "start other nodes, or name a live one with `--seed`"),
            |cause| (cause.what, cause.remedy),
        );
        return vec![Finding::new(Severity::Error, ABOUT, seen).remedy(remedy)];
    }
    let count = u32::try_from(node.status().peers.len()).unwrap_or(u32::MAX);
    match node.test_members(TEST, TEST_MAX + TEST_EACH.saturating_mul(count)) {
        Ok(tests) => judge(&tests, unicast),
        Err(error) => vec![Finding::new(Severity::Error, ABOUT, format!("cannot join test groups: {error}"))],
    }
}

/// Waits until the members and their groups are known. Returns whether there are any.
fn wait_for_members(node: &Node) -> bool {
    let start = now();
    let (mut known, mut since) = ((0, 0), start);
    loop {
        std::thread::sleep(LOOK);
        let peers = node.status().peers;
        let seen = (peers.len(), peers.iter().map(|peer| peer.groups).sum());
        if seen != known {
            (known, since) = (seen, now());
        }
        let is_quiet = if known.0 == 0 { start.elapsed() >= FIRST } else { since.elapsed() >= QUIET };
        if is_quiet || start.elapsed() >= ALL {
            return known.0 > 0;
        }
    }
}

/// Returns the findings about the members that were tested.
fn judge(tests: &[MemberTest], unicast: bool) -> Vec<Finding> {
    let named = |of: &dyn Fn(&&MemberTest) -> bool| Named::of(tests.iter().filter(of));
    let silent = named(&|test| test.groups > 0 && !test.answers);
    let deaf = named(&|test| test.hears == Some(false));
    let hears = named(&|test| test.hears == Some(true));
    let unheard = named(&|test| test.is_heard == Some(false));
    let heard = named(&|test| test.is_heard == Some(true));
    let untested = named(&|test| test.groups == 0);
    let mut findings = Vec::new();
    if silent.count > 0 {
        let seen = format!("expected answers of all members, saw none of {silent}");
        findings.push(Finding::new(Severity::Warning, ABOUT, seen).remedy(
            "check the firewalls for UDP between the two hosts, and that the node runs and is not stopped",
        ));
    }
    let remedy = "look for a packet filter (nft list ruleset) and for IGMP or MLD snooping without a querier \
                  on the way; without multicast, set `node.unicast = true` on all members";
    if deaf.count > 0 {
        let seen = format!("do not hear the multicast of this host, and get copies: {deaf}");
        findings.push(Finding::new(Severity::Warning, ABOUT, seen).remedy(remedy));
    }
    if unheard.count > 0 {
        let seen = format!("this host does not hear the multicast of {unheard}");
        findings.push(Finding::new(Severity::Warning, ABOUT, seen).remedy(remedy));
    }
    for test in tests.iter().filter(|test| !test.settings_differ.is_empty()).take(NAMED_MAX) {
        let seen = format!("settings of {} differ: {}", test.member.address, test.settings_differ.join("; "));
        findings.push(
            Finding::new(Severity::Error, ABOUT, seen)
                .remedy("give these settings the same values on all members"),
        );
    }
    if untested.count > 0 {
        let seen = format!("in no group, and therefore not tested: {untested}");
        findings.push(Finding::new(Severity::Note, ABOUT, seen));
    }
    let answers = named(&|test| test.answers);
    if unicast && answers.count > 0 {
        findings.push(Finding::ok(ABOUT, format!("answer by unicast: {answers}")));
    }
    if hears.count > 0 {
        findings.push(Finding::ok(ABOUT, format!("hear the multicast of this host: {hears}")));
    }
    if heard.count > 0 {
        findings.push(Finding::ok(ABOUT, format!("this host hears the multicast of {heard}")));
    }
    findings
}

/// Addresses of members, of which a few are shown.
struct Named {
    count: usize,
    shown: Vec<String>,
}

impl Named {
    fn of<'a>(tests: impl Iterator<Item = &'a MemberTest>) -> Self {
        let mut named = Self { count: 0, shown: Vec::new() };
        for test in tests {
            named.count += 1;
            if named.shown.len() < NAMED_MAX {
                named.shown.push(test.member.address.to_string());
            }
        }
        named
    }
}

impl Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown.join(", "))?;
        match self.count - self.shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "no core: members need time to answer")]
fn now() -> Instant {
    Instant::now()
}
