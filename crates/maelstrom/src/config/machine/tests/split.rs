//! Machines that lack something of split mode.

use super::super::split::SplitFacts;
use super::*;

/// The file with split mode.
fn file() -> String {
    let local = "[gateway]\nlocal_networks = [\"10.81.1.0/24\"]";
    let split = "[split]\nlisten = \"10.81.1.1:4701\"\nports = [443]\naccept = \"early\"\nbuffer = \"64MiB\"\n\n\
                 [[peer]]\ncarrier = \"10.81.2.1:4701\"";
    FILE.replace("[gateway]", local).replace("[[peer]]", split)
}

/// The finding about a machine with this change.
fn found_with(change: impl FnOnce(&mut Facts, &mut SplitFacts)) -> Vec<(Severity, &'static str)> {
    let found = found(&file(), |facts| {
        let mut split = SplitFacts { files_max: Some(1 << 20), ..SplitFacts::default() };
        change(facts, &mut split);
        facts.split = Some(split);
    });
    assert!(found.iter().all(|one| !one.help.is_empty()), "{found:#?}");
    found.iter().map(|one| (one.severity, one.code)).collect()
}

#[test]
fn a_machine_that_cannot_split_is_warned_of() {
    assert_eq!(found_with(|_, _| {}), []);
    let lacks = |change: fn(&mut Facts, &mut SplitFacts), code| {
        assert_eq!(found_with(change), [(Severity::Warning, code)]);
    };
    lacks(|_, split| split.diversion = Some("No such file".to_owned()), "no-tproxy");
    lacks(|_, split| split.queue = Some("No such file".to_owned()), "no-late-accept");
    lacks(|_, split| split.congestion = Some("No such file".to_owned()), "split-congestion");
    lacks(|facts, _| named(facts, "lan0").addresses.clear(), "split-listen-not-local");
    lacks(|_, split| split.port_in_use = true, "split-port-in-use");
    // The port is that of the gateway itself.
    let running = found_with(|facts, split| {
        split.port_in_use = true;
        facts.control = Some(ControlPlace::Answered);
    });
    assert_eq!(running, [(Severity::Warning, "already-running")]);
}

#[test]
fn a_machine_that_cannot_answer_late_is_told_how_to_answer_early() {
    let found = found(&file(), |facts| {
        let queue = Some("No such file or directory".to_owned());
        facts.split = Some(SplitFacts { queue, files_max: Some(1 << 20), ..SplitFacts::default() });
    });
    let finding = found.iter().find(|one| one.code == "no-late-accept").unwrap();
    assert!(finding.help.iter().any(|help| help.contains("`accept = \"early\"`")), "{finding:#?}");
}

#[test]
fn each_connection_needs_an_open_file() {
    let with = |files_max| found_with(|_, split| split.files_max = files_max);
    assert_eq!(with(Some(2_048 + 1_200)), []);
    assert_eq!(with(Some(2_048 + 1_199)), [(Severity::Warning, "few-open-files")]);
    assert_eq!(with(None), []);
}

/// The finding about a machine where bytes of connections wait on disk.
fn found_with_spool(state: Result<u64, String>) -> Vec<(Severity, &'static str)> {
    let text = file().replace("buffer =", "spool_dir = \"/var/lib/undrop\"\nspool = \"2GiB\"\nbuffer =");
    let found = found(&text, |facts| {
        let split = SplitFacts { files_max: Some(1 << 20), spool: Some(state), ..SplitFacts::default() };
        facts.split = Some(split);
    });
    found.iter().map(|one| (one.severity, one.code)).collect()
}

#[test]
fn a_disk_without_room_is_told() {
    assert_eq!(found_with_spool(Ok(2 << 30)), []);
    assert_eq!(found_with_spool(Ok((2 << 30) - 1)), [(Severity::Warning, "spool-room")]);
    let absent = Err("No such file or directory (os error 2)".to_owned());
    assert_eq!(found_with_spool(absent), [(Severity::Warning, "spool-directory")]);
}
