//! Gateways whose interfaces are deleted and come back while they run.
#![allow(missing_docs, reason = "tests are named by what they show")]

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::namespace::Route;
use netlab::topology::{HOST, LAN, TwoSites, TwoSitesConfig, WAN};
use netlab::traffic::{Between, Pace, UdpReport, UdpStream, udp_stream, unwatched};
use netlab::{Namespace, privilege};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::packet::udp4;
use testkit::wait_until;

use crate::disturbance::{assert_duplicates_arrived_late, undisturbed};
use crate::firewall;
use crate::pair::{PROGRAM, peer, wait_for_log, wait_until_up};
use crate::tcx;

/// Network of the second gateway, which is a host with addresses of its own.
const FAR: &str = "10.82.0.0/24";
pub(crate) const FAR_HOST: &str = "10.82.0.1";

/// Two sites. The second one is a single host that is its own gateway. Its WAN interface is one end of a
/// cable, which can be cut and laid again. The losses occur on the link beyond the cable.
pub(crate) struct Lab {
    pub(crate) sites: TwoSites,
}

impl Lab {
    pub(crate) fn build() -> Self {
        let link = LinkConfig {
            rate_bps: Some(200_000_000),
            delay_us: 5_000,
            loss: "uniform:0.02".parse().unwrap(),
            seed: 21,
            ..LinkConfig::default()
        };
        let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
        sites.b.hosts[0].add_address("lo", format!("{FAR_HOST}/32").parse().unwrap()).unwrap();
        let to_b = Route::to(far()).via(sites.b.wan_v4()).interface(WAN);
        sites.a.gateway.add_route(&to_b).unwrap();
        let lab = Self { sites };
        lab.route_to_far_host();
        lab
    }

    fn route_to_far_host(&self) {
        let site = &self.sites.b;
        site.gateway.add_route(&Route::to(far()).via(site.host_v4(0)).interface(LAN)).unwrap();
    }

    /// Starts both gateways and waits until each is up.
    pub(crate) fn start(&self, tap: &'static str) -> GatewayPair {
        let mut pair = self.launch(tap);
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        pair
    }

    /// Starts both gateways.
    fn launch(&self, tap: &'static str) -> GatewayPair {
        let (a, b) = (&self.sites.a, &self.sites.b);
        let end = |namespace, wan, ip, network| End {
            namespace,
            wan,
            listen: SocketAddr::new(ip, 4700),
            networks: vec![network],
        };
        let ends =
            [end(&a.gateway, WAN, a.wan_v4(), a.networks()[0]), end(&b.hosts[0], HOST, b.host_v4(0), far())];
        let setting = Setting { tap, ..Setting::layered() };
        let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &setting).unwrap();
        for (side, end) in ends.iter().enumerate() {
            pair.launch(side, end.namespace).unwrap();
        }
        pair
    }

    fn cut_cable(&self) {
        self.sites.b.hosts[0].delete_interface(HOST).unwrap();
    }

    fn lay_cable_again(&self) {
        let site = &self.sites.b;
        let host = &site.hosts[0];
        let router: IpAddr = "10.81.2.1".parse().unwrap();
        host.add_veth(HOST, &site.gateway, LAN, 1_300).unwrap();
        host.add_address(HOST, IpNet::new(site.host_v4(0), 24).unwrap()).unwrap();
        site.gateway.add_address(LAN, IpNet::new(router, 24).unwrap()).unwrap();
        host.add_route(&Route::to("0.0.0.0/0".parse().unwrap()).via(router)).unwrap();
        self.route_to_far_host();
    }

    /// Sends 1,000 packets a second to the far host.
    fn stream(&self, seconds: u64) -> UdpReport {
        let plan = UdpStream {
            pace: Pace::Packets(1_000.0),
            payload_bytes: 300,
            duration: Duration::from_secs(seconds),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        let (from, to) = (&self.sites.a.hosts[0], &self.sites.b.hosts[0]);
        let between = Between { from, to, address: FAR_HOST.parse().unwrap() };
        udp_stream(between, &plan, &mut unwatched).unwrap()
    }

    /// The link loses about 40 packets. At most five stay lost, and none arrives twice.
    pub(crate) fn assert_protected(&self, pair: &GatewayPair) {
        let mut duplicates = 0;
        let report = undisturbed(pair, || {
            let lost = || self.sites.link.counters(Direction::AToB).link.lost;
            let before = lost();
            let report = self.stream(2);
            assert!(lost() > before + 20, "the link must lose packets");
            duplicates += report.duplicates;
            report
        });
        assert_eq!(report.altered, 0);
        assert_duplicates_arrived_late(pair, 1, duplicates);
        let (missing, sent) = (report.missing(), report.sent_us.len());
        assert!(missing <= 5, "{missing} of {sent} missing\n{:?}", peer(pair, 1).ingress);
    }
}

fn far() -> IpNet {
    FAR.parse().unwrap()
}

fn a_recreated_wan_interface_is_tapped_again(test: &str, tap: &'static str) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start(tap);
    lab.assert_protected(&pair);
    let streamed = thread::scope(|scope| {
        let streamed = scope.spawn(|| lab.stream(6));
        thread::sleep(Duration::from_secs(1));
        lab.cut_cable();
        wait_for_log(&pair, "lost the tap");
        assert_eq!(pair.status(1).unwrap().gateway.tap, "none");
        lab.lay_cable_again();
        wait_for_log(&pair, "the tap is open again");
        streamed.join().unwrap()
    });
    assert_eq!(streamed.altered, 0, "{}", pair.logs());
    assert_duplicates_arrived_late(&pair, 1, streamed.duplicates);
    assert!(streamed.missing() > 0, "the cable was cut");
    lab.assert_protected(&pair);
    let status = pair.status(1).unwrap();
    assert_ne!(status.gateway.tap, "none");
    assert_eq!(status.gateway.injection, "wan", "{}", pair.logs());
    assert!(status.counters["pauses"] > 0);
    pair.stop().unwrap();
}

testkit::cases! { a_recreated_wan_interface_is_tapped_again:
    a_recreated_wan_interface_is_tapped_again_and_no_packet_arrives_twice("auto");
    a_recreated_wan_interface_gets_a_packet_tap_again_and_no_packet_arrives_twice("packet");
}

#[test]
fn a_deleted_tun_device_is_created_again() {
    if !privilege::available_or_skip("a_deleted_tun_device_is_created_again") {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start("auto");
    lab.assert_protected(&pair);
    lab.sites.b.hosts[0].delete_interface("undrop0").unwrap();
    wait_for_log(&pair, "the TUN device was created again");
    lab.assert_protected(&pair);
    pair.stop().unwrap();
}

/// An operator detaches one of the gateway's programs from its WAN interface.
#[test]
fn programs_that_somebody_detaches_are_attached_again() {
    const NAME: &str = "programs_that_somebody_detaches_are_attached_again";
    if !privilege::available_or_skip(NAME) {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start("auto");
    let host = &lab.sites.b.hosts[0];
    let is_detached = match tcx::detach_first(host, HOST) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return firewall::skipped(&format!("{NAME}: {error}"));
        }
        found => found.unwrap(),
    };
    if !is_detached {
        firewall::command_at(host, "tc", &["qdisc", "del", "dev", HOST, "clsact"]);
    }
    wait_for_log(&pair, "somebody detached its programs");
    wait_for_log(&pair, "the tap is open again");
    lab.assert_protected(&pair);
    let status = pair.status(1).unwrap();
    assert_eq!(status.gateway.injection, "wan", "{}", pair.logs());
    assert!(status.counters["pauses"] > 0);
    pair.stop().unwrap();
}

/// A rule that shuts the far host to everything that comes by its WAN interface.
const SHUT: &str = "table inet filter { chain early { type filter hook prerouting priority -300;
    iifname eth0 ip daddr 10.82.0.1 meta l4proto udp drop\n}\n}";

/// Where the WAN interface comes up late, the gateway waits for it. Otherwise recovered packets would pass by
/// the rules of that interface.
#[test]
fn a_wan_interface_that_comes_up_late_opens_no_way_past_the_firewall() {
    if !firewall::possible("a_wan_interface_that_comes_up_late_opens_no_way_past_the_firewall") {
        return;
    }
    let lab = Lab::build();
    let host = &lab.sites.b.hosts[0];
    host.set_down(HOST).unwrap();
    let pair = lab.launch("auto");
    wait_until("the gateway runs", || pair.status(1).is_ok());
    let gateway = || pair.status(1).unwrap().gateway;
    assert_eq!(gateway().injection, "none", "{}", pair.logs());
    assert!(gateway().injection_reason.unwrap().contains("down"));
    let raise = || {
        host.set_up(HOST).unwrap();
        host.add_route(&Route::to("0.0.0.0/0".parse().unwrap()).via("10.81.2.1".parse().unwrap())).unwrap();
        wait_until("packets arrive by the WAN interface", || gateway().injection == "wan");
        wait_until_up(&pair);
    };
    raise();
    lab.assert_protected(&pair);
    lab.cut_cable();
    wait_for_log(&pair, "lost the tap");
    lab.lay_cable_again();
    host.set_down(HOST).unwrap();
    wait_for_log(&pair, "the tap is open again");
    wait_until("the way is closed", || gateway().injection == "none");
    raise();
    let loaded = host.run(|| Command::new("nft").arg(SHUT).status().unwrap());
    assert!(loaded.success());
    let before = peer(&pair, 1).ingress.injected_packets;
    let streamed = lab.stream(2);
    assert_eq!(streamed.arrived_us.len(), 0, "{}", pair.logs());
    assert!(peer(&pair, 1).ingress.injected_packets > before, "packets were recovered");
    assert!(!pair.logs().contains("do not apply to them"), "{}", pair.logs());
    pair.stop().unwrap();
}

/// The device takes no packet while it is down. The gateway brings it up, and the peer learns meanwhile that
/// nothing is recovered.
#[test]
fn a_tun_device_that_is_set_down_is_brought_up() {
    if !privilege::available_or_skip("a_tun_device_that_is_set_down_is_brought_up") {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start("auto");
    lab.assert_protected(&pair);
    lab.sites.b.hosts[0].set_down("undrop0").unwrap();
    lab.stream(2);
    wait_for_log(&pair, "it is up again");
    lab.assert_protected(&pair);
    assert_eq!(pair.status(1).unwrap().gateway.injection, "wan");
    pair.stop().unwrap();
}

/// Sends a packet from an interface in a frame to everyone, with the tag of VLAN 7.
fn send_tagged(from: &Namespace, interface: &str, packet: &[u8]) {
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[0x81, 0, 0, 7, 8, 0], packet].concat();
    from.run(|| {
        let mut addresses = nix::ifaddrs::getifaddrs().unwrap();
        let link = addresses.find_map(|owner| {
            owner.address.filter(|_| owner.interface_name == interface)?.as_link_addr().copied()
        });
        let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
        let sent = sendto(raw.as_raw_fd(), &frame, &link.unwrap(), MsgFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
    });
}

fn packets_of_a_vlan_on_the_wan_interface_are_ignored(test: &str, tap: &'static str) {
    const FRAMES: u16 = 20;
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::build();
    let pair = lab.start(tap);
    let (here, there): (Ipv4Addr, Ipv4Addr) =
        (FAR_HOST.parse().unwrap(), lab.sites.a.host_v4(0).to_string().parse().unwrap());
    let site = &lab.sites.b;
    for n in 0..FRAMES {
        send_tagged(&site.hosts[0], HOST, &udp4(here, there, 9, n, b"leaves by the VLAN"));
        send_tagged(&site.gateway, LAN, &udp4(there, here, 9, n, b"arrives by the VLAN"));
    }
    let ignored = || pair.status(1).unwrap().counters["of_vlans"];
    wait_until("both directions are ignored", || ignored() >= 2 * u64::from(FRAMES));
    let peer = peer(&pair, 1);
    assert_eq!((peer.egress.source_packets, peer.ingress.source_packets), (0, 0));
    pair.stop().unwrap();
}

testkit::cases! { packets_of_a_vlan_on_the_wan_interface_are_ignored:
    packets_of_a_vlan_on_the_wan_interface_are_ignored_in_both_directions("auto");
    packets_of_a_vlan_on_the_wan_interface_are_ignored_by_a_packet_tap("packet");
}
