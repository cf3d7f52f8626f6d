//! Tests of the service units: what they permit, and that they fit the rest of the package.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::tree::{FROM_REPOSITORY, PROGRAM};
use crate::process::{is_there, root};

const UNITS: [&str; 2] = ["undrop-gateway@.service", "undrop-node@.service"];

/// Highest exposure that is allowed, in tenths.
const EXPOSURE_MAX: u32 = 25;

fn path(name: &str) -> PathBuf {
    root().join("packaging/systemd").join(name)
}

/// Returns the values of a key, in the order of the file.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// Returns what `systemd-analyze security` says about a unit, and whether that is below a limit.
fn analyze(name: &str, limit: u32) -> (bool, String) {
    let mut analyze = Command::new("systemd-analyze");
    analyze
        .args(["security", "--offline=true", "--no-pager"])
        .arg(format!("--threshold={limit}"))
        .arg(path(name));
    let output = analyze.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn units_permit_little() {
    if !is_there(Command::new("systemd-analyze").args(["security", "--help"])) {
        println!("SKIPPED: units_permit_little: no systemd-analyze (apt-get install systemd)");
        return;
    }
    for name in UNITS {
        let (is_below, said) = analyze(name, EXPOSURE_MAX);
        assert!(is_below, "{name}:\n{said}");
        let line = said.lines().find(|line| line.contains("Overall exposure level")).unwrap();
        println!("{line}");
        assert!(!analyze(name, 1).0, "a limit that no unit keeps is broken");
    }
}

#[test]
fn a_gateway_has_the_capabilities_that_it_names_and_a_node_none() {
    let gateway = fs::read_to_string(path(UNITS[0])).unwrap();
    let capabilities = "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF";
    assert_eq!(values(&gateway, "AmbientCapabilities"), [capabilities]);
    assert_eq!(values(&gateway, "CapabilityBoundingSet"), [capabilities]);
    // The check on a machine proposes the same.
    let help = root().join("crates/maelstrom/src/config/machine/system.rs");
    assert!(fs::read_to_string(help).unwrap().contains(&format!("AmbientCapabilities={capabilities}\"")));
    let node = fs::read_to_string(path(UNITS[1])).unwrap();
    assert_eq!(values(&node, "AmbientCapabilities"), [""]);
    assert_eq!(values(&node, "CapabilityBoundingSet"), [""]);
}

#[test]
fn units_start_the_program_of_the_package_and_come_back_after_a_failure() {
    for name in UNITS {
        let unit = fs::read_to_string(path(name)).unwrap();
        let start = values(&unit, "ExecStart");
        assert!(start.len() == 1 && start[0].starts_with(&format!("/{PROGRAM} ")), "{name}: {start:?}");
        for (key, value) in [
            ("Type", "notify"),
            ("Restart", "on-failure"),
            ("StartLimitIntervalSec", "0"),
            ("WatchdogSec", "15s"),
            ("LimitCORE", "0"),
            ("ProtectSystem", "strict"),
            ("User", "undrop"),
            ("WantedBy", "multi-user.target"),
        ] {
            assert_eq!(values(&unit, key), [value], "{name}: {key}");
        }
        assert!(!values(&unit, "ExecReload").is_empty(), "{name}");
        // The signal by which a gateway leaves the routes that close tunnels.
        let restart: &[&str] = if name == UNITS[0] { &["SIGUSR1"] } else { &[] };
        assert_eq!(values(&unit, "RestartKillSignal"), restart, "{name}");
        assert!(values(&unit, "SystemCallFilter")[0] == "@system-service", "{name}");
        assert!(FROM_REPOSITORY.iter().any(|(_, to)| to.ends_with(&format!("systemd/system/{name}"))));
        // The documents that the unit names are in the package.
        for file in unit.split_whitespace().filter_map(|word| word.strip_prefix("file:///")) {
            assert!(FROM_REPOSITORY.iter().any(|(_, to)| *to == file), "{name}: {file}");
        }
        // No key is set twice but those that add up.
        let keys = unit.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        let lists = ["ExecReload", "SystemCallFilter", "AssertPathExists"];
        let mut seen = BTreeSet::new();
        assert!(keys.map(|(key, _)| key).all(|key| lists.contains(&key) || seen.insert(key)), "{name}");
    }
}

#[test]
fn the_user_of_the_units_is_created_and_may_read_keys() {
    let users = fs::read_to_string(path("undrop.sysusers")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("u undrop - ")), "{users}");
    let files = fs::read_to_string(path("undrop.tmpfiles")).unwrap();
    assert!(files.lines().any(|line| line == "z /etc/undrop/*.key 0640 root undrop"), "{files}");
    for script in ["packaging/debian/postinst", "packaging/rpm/undrop.spec"] {
        let text = fs::read_to_string(root().join(script)).unwrap();
        assert!(text.contains("useradd --system") && text.contains("/var/lib/undrop"), "{script}");
    }
}
