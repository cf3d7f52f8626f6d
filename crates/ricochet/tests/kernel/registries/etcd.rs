//! Nodes that are registered in a real etcd.

use std::time::{Duration, Instant};

use netlab::Namespace;
use netlab::namespace::Route;
use testkit::wait_until;

use super::proxy::Proxy;
use super::server::EtcdServer;
use super::{News, gather, gone, is_reached, with_members};
use crate::common::{LONG, Lan, meet, numbers};
use ricochet::view::conformance::{Cluster, check};
use ricochet::view::{self, Me, View};
use ricochet::{Builder, ClusterKey, Config, MembershipSection, Node, Subscription};

/// Nodes that are tested with etcd, in a time that runs faster than that of etcd.
struct OfEtcd {
    settings: MembershipSection,
    start: Instant,
    start_us: Option<u64>,
}

/// Ratio of the times.
const FASTER: u32 = 5;

impl Cluster for OfEtcd {
    fn start(&mut self, _: u64, _: usize, me: Me, random_seed: u64) -> Box<dyn View> {
        view::of_registry(&self.settings, me, random_seed).unwrap()
    }

    fn settles_us(&self) -> u64 {
        // Two minutes of etcd's time, which only a failure exceeds.
        600_000_000
    }

    fn advance(&mut self, now_us: u64) {
        let start_us = *self.start_us.get_or_insert(now_us);
        let due = self.start + Duration::from_micros(now_us - start_us) / FASTER;
        std::thread::sleep(due.saturating_duration_since(now()));
    }
}

#[expect(clippy::disallowed_methods, reason = "the time of a real server is that of the clock")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn etcd_keeps_what_a_view_promises() {
    let what = "the test of views with etcd";
    let Some(lan) = Lan::build(what, 2) else { return };
    let Some(server) = EtcdServer::start(what, &lan.hosts[1], "10.9.0.2") else { return };
    let settings =
        MembershipSection { etcd: vec![server.endpoint()], etcd_lease_s: 5, ..MembershipSection::default() };
    lan.hosts[0].run(|| check(&mut OfEtcd { settings, start: now(), start_us: None }, 1));
}

fn builder(servers: &[String]) -> Builder {
    let mut config = Config::default();
    config.node.interface = "eth0".to_owned();
    config.membership.etcd = servers.to_vec();
    config.membership.etcd_prefix = "/undrop/test".to_owned();
    Builder::from(config).key(ClusterKey::new([9; 32]))
}

fn join(node: &Node) -> Subscription {
    node.join_with("g", &with_members()).unwrap()
}

/// Waits until all subscriptions have been told each change of whether etcd is away.
fn wait_until_told(subscriptions: &[Subscription], all: &mut [News], away: &[bool]) {
    for (subscription, news) in subscriptions.iter().zip(all) {
        wait_until("the change is told", || {
            gather(subscription, news);
            news.away == away
        });
    }
}

#[test]
fn members_stay_while_etcd_is_away_and_the_view_is_whole_when_it_is_back() {
    let what = "an etcd that fails";
    let Some(lan) = Lan::build(what, 4) else { return };
    let Some(mut server) = EtcdServer::start(what, &lan.hosts[3], "10.9.0.4") else { return };
    // The first address has no server: the nodes use the second one.
    let servers = ["http://10.9.0.4:1".to_owned(), server.endpoint()];
    let start = |at: usize| lan.hosts[at].run(|| builder(&servers).start()).unwrap();
    let mut nodes = vec![start(0), start(1)];
    let mut subscriptions: Vec<Subscription> = nodes.iter().map(join).collect();
    let mut news = vec![News::default(), News::default()];
    meet(&nodes, "g");

    server.kill();
    wait_until_told(&subscriptions, &mut news, &[true]);
    assert!(!nodes.iter().any(is_reached));
    nodes[0].send("g", &1u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[1], &subscriptions[1], 1), [1]);
    let error = nodes[0].status().registry.and_then(|registry| registry.error);
    assert!(error.is_some_and(|error| error.contains("http://10.9.0.4:")), "the cause is told");
    // A node that starts meanwhile waits for it.
    nodes.push(start(2));
    subscriptions.push(join(&nodes[2]));
    news.push(News::default());
    wait_until_told(&subscriptions, &mut news, &[true]);
    server.start_again();
    wait_until_told(&subscriptions, &mut news, &[true, false]);
    meet(&nodes, "g");
    assert_eq!(nodes[0].status().registry.map(|registry| registry.lost), Some(1));

    // A server that has lost everything.
    server.kill();
    wait_until_told(&subscriptions, &mut news, &[true, false, true]);
    server.forget();
    server.start_again();
    wait_until_told(&subscriptions, &mut news, &[true, false, true, false]);
    wait_until("all have registered again", || server.keys() == 3);
    meet(&nodes, "g");
    assert!(news.iter().all(|news| news.gone.is_empty()), "no member was ever taken away: {news:?}");

    // A node that is closed takes its entry along.
    let closed = nodes.pop().unwrap();
    let address = closed.address();
    drop(closed);
    assert_eq!(server.keys(), 2);
    wait_until("the others know it", || nodes.iter().all(|node| node.members("g") == 1));
    wait_until("they have told it", || gone(&subscriptions[0]) == [address]);
}

#[test]
fn an_etcd_that_stood_still_takes_no_member_away() {
    let what = "an etcd that stands still";
    let Some(lan) = Lan::build(what, 3) else { return };
    let Some(server) = EtcdServer::start(what, &lan.hosts[2], "10.9.0.3") else { return };
    let start = |host: &Namespace| {
        let mut config = builder(&[server.endpoint()]).config().clone();
        config.membership.etcd_lease_s = 2;
        host.run(|| Builder::from(config).start()).unwrap()
    };
    let nodes: Vec<Node> = lan.hosts[..2].iter().map(start).collect();
    let subscriptions: Vec<Subscription> = nodes.iter().map(join).collect();
    meet(&nodes, "g");
    let before = server.revision();
    // Longer than a lease: etcd then removes both entries, and each node registers again.
    server.stand_still(Duration::from_secs(5));
    wait_until("the leases have expired, and both have registered again", || {
        server.revision() >= before + 4 && server.keys() == 2
    });
    meet(&nodes, "g");
    for subscription in &subscriptions {
        assert!(gone(subscription).is_empty(), "no member was ever taken away");
    }
}

/// Lets the packets of a host to an address end there.
fn cut(host: &Namespace, address: &str) {
    let route = Route::to(format!("{address}/32").parse().unwrap()).interface("lo");
    host.add_route(&route).unwrap();
}

#[test]
fn a_server_that_is_cut_from_the_others_is_left_for_one_of_them() {
    let what = "an etcd of three servers";
    let Some(lan) = Lan::build(what, 5) else { return };
    let hosts = [2, 3, 4].map(|at| &lan.hosts[at]);
    let ips = ["10.9.0.3", "10.9.0.4", "10.9.0.5"];
    let Some(servers) = EtcdServer::start_all(what, &[0, 1, 2].map(|at| (hosts[at], ips[at]))) else {
        return;
    };
    let endpoints: Vec<String> = servers.iter().map(EtcdServer::endpoint).collect();
    let node = lan.hosts[0].run(|| builder(&endpoints).start()).unwrap();
    let _joined = node.join("g").unwrap();
    wait_until("it follows the changes", || is_reached(&node));
    let endpoint = node.status().registry.and_then(|registry| registry.endpoint);
    let used = endpoints.iter().position(|other| Some(other) == endpoint.as_ref()).unwrap();

    // The node still reaches that server, which hears of no change any more.
    for at in [(used + 1) % 3, (used + 2) % 3] {
        cut(hosts[used], ips[at]);
        cut(hosts[at], ips[used]);
    }
    let next = &endpoints[(used + 1) % 3..][..1];
    let other = lan.hosts[1].run(|| builder(next).start()).unwrap();
    let _other_joined = other.join("g").unwrap();
    assert!(node.wait_for_members("g", 1, LONG), "{:#?}", node.status());
}

#[test]
fn changes_that_etcd_has_forgotten_are_read_from_a_new_list() {
    let what = "an etcd that forgets changes";
    let Some(lan) = Lan::build(what, 3) else { return };
    let Some(server) = EtcdServer::start(what, &lan.hosts[2], "10.9.0.3") else { return };
    let proxy = Proxy::start(&lan.hosts[2], "10.9.0.3", "10.9.0.3:2379".parse().unwrap());
    let late = lan.hosts[0].run(|| builder(&[proxy.endpoint()]).start()).unwrap();
    wait_until("it has the list, and asks for the changes", || proxy.watches() == 1);
    assert!(!is_reached(&late));

    // Changes happen that the node does not see, and are forgotten.
    let before = server.revision();
    let other = lan.hosts[1].run(|| builder(&[server.endpoint()]).start()).unwrap();
    let _joined = other.join("g").unwrap();
    wait_until("the other one is registered with its group", || server.revision() >= before + 2);
    server.post("/v3/kv/compaction", &format!(r#"{{"revision":"{}"}}"#, server.revision()));
    proxy.open();
    assert!(late.wait_for_members("g", 1, LONG), "{:#?}", late.status());
    let registry = late.status().registry.unwrap();
    assert!(registry.lists >= 2 && registry.lost == 0, "{registry:?}");
    wait_until("it follows the changes from the new list on", || proxy.watches() >= 2);
}
