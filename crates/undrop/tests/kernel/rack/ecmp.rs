//! Members among which routers share the load by flow (ECMP), so that packets of each part pass all of them.

use std::thread;

use super::*;

/// Number of flows each way. All of them take the same member once in 2^15 runs.
const FLOWS: usize = 16;

impl Lab {
    /// Spreads the flows of all parts over all members, in both directions.
    fn share_by_flow(&self) {
        let hops = |network: &str, first: usize| -> String {
            self.members().map(|member| format!(" nexthop via {network}.{}", first + member)).collect()
        };
        for router in [&self.inside, &self.sites.a.gateway] {
            // By addresses and ports.
            router.sysctl("net.ipv4.fib_multipath_hash_policy", "1").unwrap();
        }
        for (part, (network, _)) in self.parts.iter().enumerate() {
            ip(&self.inside, &format!("route del {network}"));
            let table = 101 + part;
            let shared = format!("route replace 10.81.5.0/24 table {table}{}", hops("10.81.1", 1));
            ip(&self.sites.a.gateway, &shared);
        }
        ip(&self.inside, &format!("route replace 10.81.2.0/24{}", hops("10.81.5", 0)));
    }

    /// Sends flows to an address of each part, and as many back, all at once. Returns the packets, those
    /// that are missing, and those that came twice or altered.
    fn flows(&self) -> (usize, usize, u64) {
        let plan = UdpStream {
            pace: Pace::Packets(100.0),
            payload_bytes: 600,
            duration: Duration::from_secs(2),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        let host = &self.sites.b.hosts[0];
        let back = Between { from: host, to: &self.inside, address: "10.81.5.10".parse().unwrap() };
        let ways = (0..FLOWS).flat_map(|flow| [self.there(flow % self.parts.len()), back]);
        let reports: Vec<UdpReport> = thread::scope(|scope| {
            let plan = &plan;
            let flows: Vec<_> =
                ways.map(|way| scope.spawn(move || udp_stream(way, plan, &mut unwatched).unwrap())).collect();
            flows.into_iter().map(|flow| flow.join().unwrap()).collect()
        });
        let sum = |count: fn(&UdpReport) -> usize| reports.iter().map(count).sum();
        let wrong = reports.iter().map(|report| report.duplicates + report.altered).sum();
        (sum(|report| report.sent_us.len()), sum(UdpReport::missing), wrong)
    }

    /// Whether this member says that packets from the far site take another path.
    fn says_elsewhere(&self, member: usize) -> bool {
        let Some(status) = self.status(member) else { return false };
        let findings = &status.peers[0].ingress.path.findings;
        findings.iter().any(|finding| finding.cause.ends_with("packets take another path"))
    }
}

#[test]
fn load_shared_by_flow_blocks_nothing_doubles_nothing_and_is_told() {
    if !privilege::available_or_skip("load_shared_by_flow_blocks_nothing_doubles_nothing_and_is_told") {
        return;
    }
    let lab = Lab::start("ecmp", TWO);
    lab.share_by_flow();
    let protected = || [1, 2].map(|member| lab.status(member).unwrap().peers[0].egress.source_packets);
    let mut before = protected();
    // All flows at once may overflow a queue of a busy machine.
    let whole = (0..TRIES).find_map(|_| {
        before = protected();
        let (sent, missing, wrong) = lab.flows();
        assert_eq!(wrong, 0, "of {sent} without losses\n{}", lab.logs());
        (missing == 0).then_some(sent)
    });
    let sent = whole.unwrap_or_else(|| panic!("packets are missing without losses\n{}", lab.logs()));
    let there = sent as u64 / 2;
    let after = protected();
    let shares = [0, 1].map(|at| after[at] - before[at]);
    println!("of {there} packets to the far site the members protected {shares:?}");
    // Each protects the packets of its part that pass it, and nobody the others.
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}\n{}", lab.logs());
    assert!(shares.iter().sum::<u64>() < there, "{shares:?} of {there}\n{}", lab.logs());
    lab.lose(LOSS);
    let mut fates = Vec::new();
    for _ in 0..TRIES {
        let (sent, missing, wrong) = lab.flows();
        assert_eq!(wrong, 0, "{}", lab.logs());
        assert!(missing < sent / 10, "{missing} of {sent} are missing\n{}", lab.logs());
        fates.push((sent, missing));
        if lab.says_elsewhere(1) || lab.says_elsewhere(2) {
            println!("sent and missing until a member told it: {fates:?}");
            return;
        }
    }
    panic!("no member says that packets take another path: {fates:?}\n{}", lab.logs());
}
