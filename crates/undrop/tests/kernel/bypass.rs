//! `undrop gateway check` where packets could pass the tap, or repairs could cause repairs.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use netlab::xdp::XdpProgram;
use netlab::{Namespace, privilege};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::check_machine::Site;
use crate::pair::PROGRAM;

/// Runs a command of iproute2 in a namespace; returns false, and says so, if this machine cannot do it.
fn run(namespace: &Namespace, test: &str, line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    // An underscore stands for a blank inside a word.
    command.args(words.map(|word| word.replace('_', " ")));
    let output = namespace.run(|| command.output());
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
    if commands.iter().all(|command| run(&site.namespace, test, command)) {
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
    if commands.iter().all(|command| run(&site.namespace, test, command)) {
        assert_eq!(site.complaints(), [""; 0]);
    }
}

#[test]
fn filters_that_drop_packets_behind_the_tap_are_told() {
    let test = "filters_that_drop_packets_behind_the_tap_are_told";
    if !privilege::available_or_skip(test) {
        return;
    }
    let site = Site::new("behind");
    site.connect(1300, None);
    let commands = [
        "tc qdisc add dev wan0 clsact",
        "tc filter add dev wan0 egress bpf bytecode 1,6_0_0_2 direct-action",
    ];
    if !commands.iter().all(|command| run(&site.namespace, test, command)) {
        return;
    }
    assert_eq!(site.complaints(), [""; 0], "a packet socket sees what the filter leaves");
    site.rewrite("tap = \"packet\"", "tap = \"ebpf\"");
    let complaints = site.complaints();
    assert!(complaints.contains(&"egress-filter"), "{complaints:?}");
}

#[test]
fn filters_of_arriving_packets_do_not_act_on_leaving_ones_and_those_of_inner_queues_do() {
    let test = "filters_of_arriving_packets_do_not_act_on_leaving_ones_and_those_of_inner_queues_do";
    if !privilege::available_or_skip(test) {
        return;
    }
    let site = Site::new("queues");
    site.connect(1300, None);
    site.rewrite("tap = \"packet\"", "tap = \"ebpf\"");
    let all = |commands: &[&str]| commands.iter().all(|command| run(&site.namespace, test, command));
    // The kernel lists these filters also if it is asked for those of leaving packets.
    let arriving = [
        "tc qdisc add dev wan0 ingress",
        "tc filter add dev wan0 parent ffff: bpf bytecode 1,6_0_0_2 direct-action",
    ];
    if !all(&arriving) {
        return;
    }
    let complaints = site.complaints();
    assert!(!complaints.contains(&"egress-filter"), "{complaints:?}");
    let queues = [
        "tc qdisc add dev wan0 root handle 1: htb",
        "tc class add dev wan0 parent 1: classid 1:1 htb rate 1gbit",
        "tc qdisc add dev wan0 parent 1:1 handle 10: htb",
        "tc filter add dev wan0 parent 10: bpf bytecode 1,6_0_0_2 direct-action",
    ];
    if all(&queues) {
        let complaints = site.complaints();
        assert!(complaints.contains(&"egress-filter"), "{complaints:?}");
    }
}

/// The WAN interface is a bridge, whose port has a larger MTU than the LAN.
#[test]
fn rules_of_a_bridge_below_the_wan_are_told_and_its_ports_bound_no_packets() {
    let test = "rules_of_a_bridge_below_the_wan_are_told_and_its_ports_bound_no_packets";
    if !privilege::available_or_skip(test) {
        return;
    }
    let site = Site::new("bridge");
    site.connect(1300, None);
    let bridge = [
        "ip link add br0 type bridge",
        "ip link set br0 up",
        "ip address flush dev wan0",
        "ip link set wan0 master br0",
        "ip address add 10.81.9.1/24 dev br0",
        "ip address add fd81:9::1/64 dev br0 nodad",
        "ip route replace 10.81.2.0/24 via 10.81.9.2 dev br0",
        "ip route replace fd81:2::/64 via fd81:9::2 dev br0",
    ];
    if !bridge.iter().all(|command| run(&site.namespace, test, command)) {
        return;
    }
    site.rewrite("wan = \"wan0\"", "wan = \"br0\"");
    assert_eq!(site.complaints(), [""; 0]);
    let rules = [
        "nft add table bridge filter",
        "nft add chain bridge filter input {_type_filter_hook_input_priority_0;_}",
    ];
    if rules.iter().all(|command| run(&site.namespace, test, command)) {
        assert_eq!(site.complaints(), ["bridge-rules"]);
    }
    for (commands, code) in [
        (
            [
                "nft add table netdev n",
                "nft add chain netdev n c {_type_filter_hook_egress_device_wan0_priority_0;_}",
            ],
            "egress-filter",
        ),
        (
            [
                "nft add table inet n",
                "nft add chain inet n c {_type_filter_hook_ingress_device_wan0_priority_0;_}",
            ],
            "ingress-below-wan",
        ),
    ] {
        let before = site.complaints();
        if commands.iter().all(|command| run(&site.namespace, test, command)) {
            let complaints = site.complaints();
            assert!(!before.contains(&code) && complaints.contains(&code), "{before:?}, {complaints:?}");
        }
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
    // A process that another test starts holds the program's descriptor for a moment.
    testkit::wait_until("the program is gone", || site.complaints().is_empty());
    let _program = XdpProgram::attach(&site.namespace, "lan0").unwrap();
    assert_eq!(site.complaints(), [""; 0], "the tap is on the WAN");
    let below = ["ip link add br0 type bridge", "ip link set lan0 master br0"];
    if below.iter().all(|command| run(&site.namespace, "an_xdp_program_on_the_wan_is_told", command)) {
        site.rewrite("wan = \"wan0\"", "wan = \"br0\"");
        let complaints = site.complaints();
        assert!(complaints.contains(&"xdp-program"), "{complaints:?}");
    }
}

#[test]
fn repairs_that_leave_through_a_tunnel_to_the_far_site_get_no_repairs() {
    let test = "repairs_that_leave_through_a_tunnel_to_the_far_site_get_no_repairs";
    if !privilege::available_or_skip(test) {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    // The tunnel's own packets go from site A to a host of site B, which forwards the repairs to its gateway.
    let (near, far) = (&sites.a.gateway, &sites.b.hosts[0]);
    far.sysctl("net.ipv4.ip_forward", "1").unwrap();
    // It fragments packets that are longer than the link's, so that it carries the longest repairs.
    let near_commands = [
        "ip link add vx0 mtu 1500 type vxlan id 9 local 10.81.1.1 remote 10.81.2.2 dstport 4789",
        "ip address add 10.99.0.1/24 dev vx0",
        "ip link set vx0 up",
        "ip route add 10.81.9.2/32 via 10.99.0.2 dev vx0",
    ];
    let far_commands = [
        "ip link add vx0 mtu 1500 type vxlan id 9 local 10.81.2.2 remote 10.81.1.1 dstport 4789",
        "ip address add 10.99.0.2/24 dev vx0",
        "ip link set vx0 up",
    ];
    let all = |namespace, commands: &[&str]| commands.iter().all(|command| run(namespace, test, command));
    if !all(far, &far_commands) || !all(near, &near_commands) {
        return;
    }
    let pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 300,
        duration: Duration::from_secs(2),
        ..UdpStream::default()
    };
    let between = Between { from: &sites.a.hosts[0], to: far, address: sites.b.host_v4(0) };
    let sent = udp_stream(between, &plan, &mut unwatched).unwrap().sent_us.len() as u64;
    let status = pair.status(0).unwrap();
    let egress = &status.peers[0].egress;
    assert!(egress.repair_packets > sent / 8, "{egress:?}");
    assert!(status.not_protected["repair_channel"] > sent / 8, "{status:?}");
    // Address resolution inside the tunnel is protected as any packet is, and so are the later fragments of
    // long datagrams, which do not show their ports. A busy machine protects fewer.
    let others = egress.repair_packets / 2;
    assert!((sent / 2..sent + others).contains(&egress.source_packets), "{sent} sent: {status:?}");
    pair.stop().unwrap();
}
