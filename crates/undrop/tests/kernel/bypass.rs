//! `undrop gateway check` where packets could pass the tap, or repairs could cause repairs.

use std::io::{self, Write as _};
use std::process::Command;

use netlab::privilege;
use netlab::xdp::XdpProgram;

use crate::check_machine::Site;

/// Runs a command of iproute2 in the site; returns false, and says so, if this machine cannot do it.
fn run(site: &Site, test: &str, line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    // An underscore stands for a blank inside a word.
    command.args(words.map(|word| word.replace('_', " ")));
    let output = site.namespace.run(|| command.output());
    match output {
        Ok(output) if output.status.success() => true,
        failed => {
            let _ = writeln!(io::stderr(), "SKIPPED: {test}: {failed:?}");
            false
        }
    }
}

#[test]
fn repairs_that_would_leave_through_a_tunnel_are_told() {
    let test = "repairs_that_would_leave_through_a_tunnel_are_told";
    if !privilege::available_or_skip(test) {
        return;
    }
    let site = Site::new("in-tunnel");
    site.connect(1300, None);
    let commands = [
        "ip link add vx0 type vxlan id 7 remote 10.81.2.9 dstport 4789 dev wan0",
        "ip link set vx0 up",
        "ip route add 10.81.9.2/32 dev vx0",
    ];
    if commands.iter().all(|command| run(&site, test, command)) {
        let complaints = site.complaints();
        assert!(complaints.contains(&"repairs-in-tunnel"), "{complaints:?}");
    }
}

#[test]
fn filters_that_software_runs_too_are_no_finding() {
    let test = "filters_that_software_runs_too_are_no_finding";
    if !privilege::available_or_skip(test) {
        return;
    }
    let site = Site::new("filters");
    site.connect(1300, None);
    let commands = [
        "tc qdisc add dev wan0 clsact",
        "tc filter add dev wan0 ingress bpf bytecode 1,6_0_0_0",
        "tc filter add dev wan0 egress bpf bytecode 1,6_0_0_0",
    ];
    if commands.iter().all(|command| run(&site, test, command)) {
        assert_eq!(site.complaints(), [""; 0]);
    }
}

#[test]
fn an_xdp_program_on_the_wan_is_told() {
    // Such a program can be loaded where the dropper can.
    if !privilege::dropper_or_skip("an_xdp_program_on_the_wan_is_told") {
        return;
    }
    let site = Site::new("xdp");
    site.connect(1300, None);
    let program = XdpProgram::attach(&site.namespace, "wan0").unwrap();
    assert_eq!(site.complaints(), ["xdp-program"]);
    drop(program);
    assert_eq!(site.complaints(), [""; 0]);
    let _program = XdpProgram::attach(&site.namespace, "lan0").unwrap();
    assert_eq!(site.complaints(), [""; 0], "the tap is on the WAN");
}
