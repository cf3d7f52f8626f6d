//! Keys of a running gateway.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::pair::PROGRAM;

#[test]
fn a_gateway_that_crashes_leaves_no_core_file() {
    if !privilege::available_or_skip("a_gateway_that_crashes_leaves_no_core_file") {
        return;
    }
    // A gateway inherits the largest limit that is permitted.
    let (_, most) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    setrlimit(Resource::RLIMIT_CORE, most, most).unwrap();
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let child = pair.child(0).unwrap();
    child.signal(Signal::SIGABRT).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(Signal::SIGABRT as i32));
    assert!(!ended.core_dumped(), "a core file holds the keys (limit {most})");
}
