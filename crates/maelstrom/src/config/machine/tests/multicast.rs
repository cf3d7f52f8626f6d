//! Machines on which groups cannot cross.

use super::*;

const GROUPS: &str = "mode = \"tunnel\"\n[[multicast]]\ninterface = \"lan0\"\ngroups = [\"239.1.0.0/16\"]\n";

/// The codes of findings about groups.
fn about_groups(change: impl FnOnce(&mut Facts)) -> Vec<(Severity, &'static str)> {
    let found = found(&format!("{FILE}{GROUPS}"), change);
    found.iter().filter(|one| one.code.starts_with("group-")).map(|one| (one.severity, one.code)).collect()
}

#[test]
fn an_interface_of_groups_that_cannot_be_used_is_told() {
    assert!(about_groups(|_| {}).is_empty());
    let absent = about_groups(|facts| facts.interfaces.as_mut().unwrap().retain(|one| one.name != "lan0"));
    assert_eq!(absent, [(Severity::Warning, "group-interface-absent")]);
    let down = about_groups(|facts| named(facts, "lan0").up = false);
    assert_eq!(down, [(Severity::Warning, "group-interface-down")]);
    let unable = about_groups(|facts| facts.capabilities = Some(0));
    assert_eq!(unable, [(Severity::Warning, "group-capability")]);
}
