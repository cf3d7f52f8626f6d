//! Packets whose time to live ends between the gateways: each router of the path answers once, as without
//! gateways.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use netlab::emulator::EmulatorConfig;
use netlab::namespace::Route;
use netlab::topology::{HOST, LAN, TwoSites, TwoSitesConfig, WAN};
use netlab::{Namespace, privilege};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recvfrom, setsockopt, socket,
    sockopt,
};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::pair::PROGRAM;

const FAR: &str = "10.82.0.1";
/// First port of the probes, as traceroute's.
const PORT: u16 = 33_434;
const ROUNDS: u16 = 12;

/// Host A — gateway A ══ link ══ router 1 — router 2 — far gateway, which is a site of its own.
struct Path3 {
    sites: TwoSites,
    far: Namespace,
}

impl Path3 {
    fn build() -> Self {
        let link = EmulatorConfig::symmetric(LinkConfig { delay_us: 1_000, ..LinkConfig::default() });
        let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
        // Site B's host becomes router 2.
        let (first, second) = (&sites.b.gateway, &sites.b.hosts[0]);
        let far = Namespace::create("far").unwrap();
        far.add_veth(WAN, second, "down0", 1_500).unwrap();
        let address = |text: &str| text.parse::<IpNet>().unwrap();
        far.add_address(WAN, address("10.83.0.2/24")).unwrap();
        far.add_address("lo", address("10.82.0.1/32")).unwrap();
        second.add_address("down0", address("10.83.0.1/24")).unwrap();
        for (key, value) in [("net.ipv4.ip_forward", "1"), ("net.ipv4.conf.all.send_redirects", "0")] {
            second.sysctl(key, value).unwrap();
        }
        for namespace in [&sites.a.gateway, first, second, &far] {
            // Otherwise the kernel answers one expired packet a second.
            namespace.sysctl("net.ipv4.icmp_ratelimit", "0").unwrap();
        }
        let via = |namespace: &Namespace, network: &str, gateway: IpAddr, interface: &str| {
            let route = Route::to(network.parse().unwrap()).via(gateway).interface(interface);
            namespace.add_route(&route).unwrap();
        };
        for network in ["10.82.0.0/24", "10.83.0.0/24"] {
            via(&sites.a.gateway, network, sites.b.wan_v4(), WAN);
            via(first, network, sites.b.host_v4(0), LAN);
        }
        via(second, "10.82.0.0/24", "10.83.0.2".parse().unwrap(), "down0");
        via(&far, "0.0.0.0/0", "10.83.0.1".parse().unwrap(), WAN);
        via(second, "10.81.9.0/24", "10.81.2.1".parse().unwrap(), HOST);
        Self { sites, far }
    }

    fn start(&self) -> GatewayPair {
        let end = |namespace, ip: IpAddr, network: &str| End {
            namespace,
            wan: WAN,
            listen: SocketAddr::new(ip, 4700),
            networks: vec![network.parse().unwrap()],
        };
        let ends = [
            end(&self.sites.a.gateway, self.sites.a.wan_v4(), "10.81.1.0/24"),
            end(&self.far, "10.83.0.2".parse().unwrap(), "10.82.0.0/24"),
        ];
        GatewayPair::start(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap()
    }

    /// Sends probes of each time to live from 1 to 5 to the far host, beside a stream. Returns who answered
    /// the probes of each, and how often.
    fn trace(&self) -> BTreeMap<u8, BTreeMap<Ipv4Addr, u32>> {
        self.sites.a.hosts[0].run(|| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            let icmp = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Icmp).unwrap();
            setsockopt(&icmp, sockopt::RcvBuf, &(1 << 20)).unwrap();
            let far: IpAddr = FAR.parse().unwrap();
            let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
            let stream = UdpSocket::bind("0.0.0.0:0").unwrap();
            for round in 0..ROUNDS {
                for ttl in 1..=5_u16 {
                    probe.set_ttl(ttl.into()).unwrap();
                    let _ = probe.send_to(&[round as u8; 40], SocketAddr::new(far, PORT + ttl + 5 * round));
                    for _ in 0..4 {
                        // Its own answers, "port unreachable", do not matter.
                        let _ = stream.send_to(&[0; 100], SocketAddr::new(far, 9));
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            }
            let mut answers: BTreeMap<u8, BTreeMap<Ipv4Addr, u32>> = BTreeMap::new();
            let mut packet = [0; 2_000];
            // Repairs leave at most 20 ms times the widest interleave after their packets.
            for _ in 0..100 {
                while let Ok((length, from)) = receive(&icmp, &mut packet) {
                    // IP header, ICMP header, IP header of the probe, UDP header.
                    let port = (length >= 52).then(|| u16::from_be_bytes([packet[50], packet[51]]));
                    if let Some(port) = port.filter(|port| (PORT + 1..=PORT + 5 * ROUNDS).contains(port)) {
                        let ttl = ((port - PORT - 1) % 5 + 1) as u8;
                        *answers.entry(ttl).or_default().entry(from).or_default() += 1;
                    }
                }
                thread::sleep(Duration::from_millis(20));
            }
            answers
        })
    }
}

fn receive(icmp: &std::os::fd::OwnedFd, packet: &mut [u8]) -> std::io::Result<(usize, Ipv4Addr)> {
    use std::os::fd::AsRawFd as _;
    let (length, from) = recvfrom::<SockaddrIn>(icmp.as_raw_fd(), packet)?;
    let from = from.ok_or(ErrorKind::InvalidData)?;
    let _ = MsgFlags::empty();
    Ok((length, from.ip()))
}

#[test]
fn each_router_between_the_gateways_answers_expired_packets_alone() {
    if !privilege::available_or_skip("each_router_between_the_gateways_answers_expired_packets_alone") {
        return;
    }
    let path = Path3::build();
    let bare = path.trace();
    let pair = path.start();
    let status = |side: usize| pair.status(side).unwrap();
    // The far gateway learns the length of the path from packets that a repair names.
    path.trace();
    let traced = path.trace();
    let routers: Vec<Vec<_>> = bare.values().map(|from| from.keys().collect()).collect();
    assert_eq!(routers.len(), 5);
    assert!(routers.iter().all(|from| from.len() == 1), "{bare:?}");
    for (ttl, from) in &traced {
        assert_eq!(from.keys().collect::<Vec<_>>(), routers[usize::from(*ttl) - 1], "{ttl}: {traced:?}");
        assert!(from.values().all(|&count| count <= u32::from(ROUNDS)), "{ttl}: {traced:?}");
    }
    let (near, far) = (status(0), status(1));
    assert!(near.not_protected["expiring"] > 0);
    assert!(far.peers[0].ingress.withheld["expired"] > 0, "{far:?}");
    // The link loses nothing. On a busy machine, a packet may arrive after its recovery.
    let ingress = &far.peers[0].ingress;
    assert!(ingress.injected_packets <= ingress.after_recovery, "{ingress:?}");
    assert!(ingress.loss.lost <= ingress.injected_packets + ingress.late, "{ingress:?}");
    pair.stop().unwrap();
}
