//! Machines whose paths have no local end.

use super::*;

const PATHS: &str = "mode = \"tunnel\"\n\
    [[peer.paths]]\naddress = \"10.82.9.2:4701\"\nlocal = \"10.82.9.1:4701\"\ninterface = \"lte0\"\n";

/// The codes of findings about paths.
fn about_paths(change: impl FnOnce(&mut Facts)) -> Vec<(Severity, &'static str)> {
    let found = found(&format!("{FILE}{PATHS}"), |facts| {
        facts.interfaces.as_mut().unwrap().push(interface("lte0", 1500, &["10.82.9.1"]));
        change(facts);
    });
    found.iter().filter(|one| one.code.starts_with("path-")).map(|one| (one.severity, one.code)).collect()
}

#[test]
fn a_path_whose_local_end_is_missing_is_told() {
    assert!(about_paths(|_| {}).is_empty());
    let absent = about_paths(|facts| facts.interfaces.as_mut().unwrap().retain(|one| one.name != "lte0"));
    assert_eq!(absent, [(Severity::Warning, "path-interface-absent")]);
    // The address is that of another interface.
    let elsewhere = about_paths(|facts| {
        let address = named(facts, "lte0").addresses.remove(0);
        named(facts, "lan0").addresses.push(address);
    });
    assert_eq!(elsewhere, [(Severity::Warning, "path-not-local")]);
    let strict = about_paths(|facts| facts.rp_filter_all = Some(1));
    assert_eq!(strict, [(Severity::Warning, "path-rp-filter")]);
}
