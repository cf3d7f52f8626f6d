//! Status, logs and reloads of a pair of gateways.

use std::fs;

use maelstrom::status::PeerStatus;
use nix::sys::signal::Signal;
use stage::gateways::GatewayPair;
use testkit::{wait_for, wait_until};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_undrop");

/// Returns the status of the only peer of a side.
pub(crate) fn peer(pair: &GatewayPair, side: usize) -> PeerStatus {
    pair.status(side).unwrap().peers.remove(0)
}

/// Waits until the status of a side's only peer is as expected; returns it.
pub(crate) fn wait_for_peer(
    pair: &GatewayPair,
    side: usize,
    what: &str,
    is_so: impl Fn(&PeerStatus) -> bool,
) -> PeerStatus {
    wait_for(|| Some(peer(pair, side)).filter(|peer| is_so(peer)))
        .unwrap_or_else(|| panic!("{what}: {:?}\n{}", peer(pair, side), pair.logs()))
}

/// Waits until the log of each side contains its line.
pub(crate) fn wait_for_logs(pair: &GatewayPair, lines: [&str; 2]) {
    let found = wait_for(|| {
        let logs = pair.logs();
        let (near, far) = logs.split_once("-- side 1").unwrap();
        (near.contains(lines[0]) && far.contains(lines[1])).then_some(())
    });
    assert!(found.is_some(), "no {lines:?} in\n{}", pair.logs());
}

/// Waits until either log contains a line.
pub(crate) fn wait_for_log(pair: &GatewayPair, line: &str) {
    let found = wait_for(|| pair.logs().contains(line).then_some(()));
    assert!(found.is_some(), "no {line:?} in\n{}", pair.logs());
}

/// Waits until both gateways report that the other is up.
pub(crate) fn wait_until_up(pair: &GatewayPair) {
    wait_until("both gateways are up", || (0..2).all(|side| peer(pair, side).up));
}

/// Writes the configuration of one side and reloads its gateway.
fn signal_reload(pair: &mut GatewayPair, side: usize, text: &str) {
    fs::write(pair.config(side), text).unwrap();
    pair.child(side).unwrap().signal(Signal::SIGHUP).unwrap();
}

/// Changes the configuration of one side and waits until its gateway works with it.
pub(crate) fn reload(pair: &mut GatewayPair, side: usize, change: impl FnOnce(String) -> String) {
    let text = change(fs::read_to_string(pair.config(side)).unwrap());
    let count = |pair: &GatewayPair| pair.logs().matches("reloaded").count();
    let (reloads, refused) = (count(pair), refused(pair, side));
    signal_reload(pair, side, &text);
    wait_until("the gateway reads its file", || count(pair) > reloads || self::refused(pair, side) > refused);
    assert!(count(pair) > reloads, "{}", pair.logs());
}

/// Changes the configuration of one side and waits until its gateway has refused it; restores the file.
pub(crate) fn refuse_reload(pair: &mut GatewayPair, side: usize, change: impl FnOnce(String) -> String) {
    let good = fs::read_to_string(pair.config(side)).unwrap();
    let before = refused(pair, side);
    signal_reload(pair, side, &change(good.clone()));
    wait_until("the reload is refused", || refused(pair, side) > before);
    fs::write(pair.config(side), good).unwrap();
}

fn refused(pair: &GatewayPair, side: usize) -> u64 {
    // On a busy machine a gateway that reloads may answer later than the reader waits.
    let status = wait_for(|| pair.status(side).ok()).unwrap_or_else(|| pair.status(side).unwrap());
    status.counters["reloads_refused"]
}
