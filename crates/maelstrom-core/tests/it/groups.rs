//! IP groups that cross tunnels.

use std::net::Ipv4Addr;

use maelstrom_core::counters::{Unforwarded, Unsent};
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::wire::BodyKind;
use maelstrom_core::{Config, MulticastConfig, MulticastCounts, Schedule, Wanted};

use crate::fuzz::Liar;
use crate::many::net::{Mode, Net, config};

fn section(groups: &str, bps_max: u64) -> MulticastConfig {
    let (groups, wanted) = (vec![groups.parse().unwrap()], Wanted::All);
    MulticastConfig { lan: "lan0".into(), groups, wanted, bps_max }
}

/// Sites that all have tunnels to each other; of these, the first `hearing` have a section of groups.
fn sites(count: usize, hearing: usize) -> Vec<Config> {
    let with = |site| {
        let multicast = if site < hearing { vec![section("239.1.0.0/16", 100_000_000)] } else { Vec::new() };
        Config { multicast, ..config(site, count, |_, _| Some(Mode::Tunnel)) }
    };
    (0..count).map(with).collect()
}

fn packet(from: [u8; 4], group: [u8; 4], ttl: u8, number: u16) -> Vec<u8> {
    let payload: Vec<u8> = (0..30 + number % 70).map(|at| (at + number) as u8).collect();
    let mut packet = testkit::packet::udp4(from.into(), Ipv4Addr::from(group), 5_000, number, &payload);
    with_ttl(&mut packet, ttl);
    packet
}

fn with_ttl(packet: &mut [u8], ttl: u8) {
    let fields = Packet::new_whole(packet).unwrap().mutable_fields();
    restore(packet, MutableFields { ttl, ..fields });
}

fn counts(net: &Net, site: usize) -> MulticastCounts {
    net.gateways[site].multicast().next().unwrap().1
}

const HOST: [u8; 4] = [10, 100, 0, 9];
const GROUP: [u8; 4] = [239, 1, 2, 3];

#[test]
fn each_site_that_wants_a_group_gets_its_packets_once_although_datagrams_are_lost() {
    let mut net = Net::up(sites(4, 3));
    net.advance(1_000_000);
    net.lose(4, 0.02);
    let sent: Vec<_> = (0..1_000).map(|number| packet(HOST, GROUP, 8, number)).collect();
    for packet in &sent {
        net.hear(0, 0, packet);
        net.advance(2_000);
    }
    net.lose = Box::new(|| false);
    net.advance(1_000_000);
    for site in [1, 2] {
        let wrong = sent.iter().filter(|packet| {
            let mut routed = packet.to_vec();
            with_ttl(&mut routed, 7);
            net.got[site].get(&routed) != Some(&1)
        });
        assert_eq!((wrong.count(), net.got[site].len()), (0, 1_000), "site {site}");
        assert_eq!(counts(&net, site).received, 1_000);
        assert!(net.status(site, 0, |peer| peer.ingress.recovered_packets) > 5);
    }
    assert!(net.got[3].is_empty() && net.got[0].is_empty());
    let counts = counts(&net, 0);
    assert_eq!((counts.forwarded, counts.sent, counts.received), (1_000, 2_000, 0));
    assert_eq!(net.status(0, 3, |peer| peer.egress.tunnel_packets), 0, "nobody there wants the group");
}

#[test]
fn what_must_not_cross_stays_and_is_counted_by_reason() {
    let mut configs = sites(2, 2);
    configs[0].multicast = vec![section("239.1.0.0/16", 80_000), section("224.0.0.0/16", 80_000)];
    let mut net = Net::up(configs);
    net.advance(1_000_000);
    let dropped = |net: &Net, reason| counts(net, 0).dropped.count(reason);
    net.hear(0, 0, &packet(HOST, GROUP, 1, 1));
    assert_eq!(dropped(&net, Unforwarded::Expiring), 1);
    // The far gateway has multicast it on a LAN that both reach, or another gateway of this site has.
    net.hear(0, 0, &packet([10, 100, 1, 9], GROUP, 8, 2));
    assert_eq!(dropped(&net, Unforwarded::OfFarSite), 1);
    net.hear(0, 0, &packet(HOST, [239, 2, 0, 1], 8, 3));
    net.hear(0, 1, &packet(HOST, [224, 0, 0, 251], 255, 4));
    let of_link = net.gateways[0].multicast().nth(1).unwrap().1.dropped;
    assert_eq!((dropped(&net, Unforwarded::NoGroup), of_link.count(Unforwarded::NoGroup)), (1, 1));
    net.hear(0, 0, &packet(HOST, GROUP, 8, 5)[..30]);
    let mut damaged = packet(HOST, GROUP, 8, 6);
    damaged[10] ^= 1;
    net.hear(0, 0, &damaged);
    assert_eq!(dropped(&net, Unforwarded::Malformed), 2);
    // The far site names 239.1.0.0/16 alone.
    net.hear(0, 1, &packet(HOST, [224, 0, 1, 9], 8, 7));
    let of_second = net.gateways[0].multicast().nth(1).unwrap().1.dropped;
    assert_eq!(of_second.count(Unforwarded::Unwanted), 1);
    assert!(net.got[1].is_empty());
    // A tenth of a second at ten times the rate.
    for number in 0..100 {
        net.hear(0, 0, &packet(HOST, GROUP, 8, 1_000 + number));
        net.advance(1_000);
    }
    let over = dropped(&net, Unforwarded::OverRate);
    assert!((50..90).contains(&over), "{over}");
    assert_eq!(net.gateways[0].refused().iter().map(|(_, count)| count).sum::<u64>(), 0);
}

#[test]
fn packets_of_a_source_that_no_site_takes_use_up_no_rate_of_others() {
    let mut configs = sites(3, 3);
    // Room for some 60 packets a second.
    configs.iter_mut().for_each(|config| config.multicast = vec![section("239.1.0.0/16", 40_000)]);
    // One of the far files names a second network of the first site.
    let second = "10.200.0.0/24".parse().unwrap();
    configs[2].peers[0].networks.push(second);
    let mut net = Net::up(configs);
    net.advance(1_000_000);
    let (strange, named) = ([10, 99, 0, 9], [10, 200, 0, 9]);
    for number in 0..500 {
        net.hear(0, 0, &packet(strange, GROUP, 8, number));
        net.advance(2_000);
    }
    let seen = counts(&net, 0);
    assert_eq!((seen.forwarded, seen.sent, seen.dropped.count(Unforwarded::ForeignSource)), (0, 0, 500));
    assert_eq!(net.status(0, 1, |peer| peer.unwatched_source), Some(strange.into()));
    for number in 0..20 {
        net.hear(0, 0, &packet(strange, GROUP, 8, 1_000 + number));
        net.hear(0, 0, &packet(HOST, GROUP, 8, 2_000 + number));
        net.hear(0, 0, &packet(named, GROUP, 8, 3_000 + number));
        net.advance(50_000);
    }
    let seen = counts(&net, 0);
    // A packet that one of two sites takes is sent to that one.
    assert_eq!((seen.forwarded, seen.sent), (40, 60));
    assert_eq!((net.got[1].len(), net.got[2].len()), (20, 40));
    assert_eq!(net.status(0, 1, |peer| peer.unwatched_source), Some(named.into()));
    // Nor does what this site's own file leaves out.
    let mut config = net.gateways[0].config().clone();
    config.local_networks = vec!["10.200.0.0/24".parse().unwrap()];
    net.gateways[0].reconfigure(config).unwrap();
    net.hear(0, 0, &packet(HOST, GROUP, 8, 4_000));
    assert_eq!(counts(&net, 0).dropped.count(Unforwarded::ForeignSource), 521);
}

#[test]
fn a_site_gets_no_more_of_its_groups_than_its_own_rate() {
    let mut configs = sites(2, 2);
    configs[1].multicast = vec![section("239.1.0.0/16", 80_000)];
    let mut net = Net::up(configs);
    net.advance(1_000_000);
    for number in 0..100 {
        net.hear(0, 0, &packet(HOST, GROUP, 8, number));
        net.advance(1_000);
    }
    net.advance(100_000);
    let seen = counts(&net, 1);
    assert!((50..90).contains(&seen.dropped.count(Unforwarded::OverRateHere)), "{seen:?}");
    assert_eq!(seen.received as usize, net.got[1].len());
}

#[test]
fn a_site_that_does_not_want_a_group_any_more_gets_nothing_after_a_while() {
    let mut net = Net::up(sites(2, 2));
    net.advance(1_000_000);
    let wanted = |net: &Net| net.gateways[0].groups_wanted_by(0).0.len();
    net.hear(0, 0, &packet(HOST, GROUP, 8, 1));
    net.advance(100_000);
    assert_eq!((wanted(&net), net.got[1].len()), (1, 1));
    let plain = sites(2, 0).remove(1);
    net.gateways[1].reconfigure(plain).unwrap();
    net.hear(0, 0, &packet(HOST, GROUP, 8, 2));
    net.advance(100_000);
    assert_eq!(net.got[1].len(), 1, "its file names no group");
    net.advance(46_000_000);
    net.hear(0, 0, &packet(HOST, GROUP, 8, 3));
    assert_eq!((wanted(&net), counts(&net, 0).dropped.count(Unforwarded::Unwanted)), (0, 1));
    // And one that wants it again gets it at once.
    net.gateways[1].reconfigure(sites(2, 2).remove(1)).unwrap();
    net.advance(500_000);
    net.hear(0, 0, &packet(HOST, GROUP, 8, 4));
    net.advance(100_000);
    assert_eq!((wanted(&net), net.got[1].len()), (1, 2));
}

#[test]
fn a_peer_that_lies_brings_no_packets_to_groups_that_the_file_does_not_name() {
    // The liar's gateway has no section. Whatever it hands on for a group fails the test.
    let mut liar = Liar::to(Schedule::Auto, true);
    for (seq, group) in [[239, 1, 2, 3], [224, 0, 0, 1], [239, 255, 0, 1]].into_iter().enumerate() {
        let packet = packet([10, 81, 2, 9], group, 8, seq as u16);
        let (first, len) = ((seq as u32).to_be_bytes(), (packet.len() as u16).to_be_bytes());
        liar.say(&[&[BodyKind::Packets.to_wire()][..], &first, &len, &packet].concat());
    }
    let counts = *liar.gateway().peers().next().unwrap().ingress;
    assert_eq!((counts.source_packets, counts.foreign_packets), (3, 3));
}

/// A report of a host of site 1 that it joins a group, or has left it (RFC 3376 §4.2).
fn report(kind: u8, group: [u8; 4]) -> Vec<u8> {
    let mut message = [&[0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0][..], &group].concat();
    let sum = testkit::packet::internet_checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet =
        testkit::packet::udp4([10, 100, 1, 9].into(), [224, 0, 0, 22].into(), 0, 1, &message[8..]);
    packet[20..].copy_from_slice(&message);
    packet[9] = 2;
    with_ttl(&mut packet, 1);
    packet
}

#[test]
fn a_site_gets_the_groups_that_its_hosts_are_in_and_no_others() {
    let mut configs = sites(2, 2);
    configs[1].multicast[0].wanted = Wanted::Members;
    let mut net = Net::up(configs);
    let other = [239, 1, 2, 4];
    let wanted = |net: &Net| net.gateways[0].groups_wanted_by(0).0;
    // Reports of groups that may not cross tell nothing.
    net.hear(1, 0, &report(4, [239, 2, 0, 1]));
    net.advance(1_000_000);
    assert!(wanted(&net).is_empty());
    net.hear(1, 0, &report(4, GROUP));
    net.advance(200_000);
    assert_eq!(wanted(&net), ["239.1.2.3/32".parse().unwrap()]);
    net.hear(0, 0, &packet(HOST, GROUP, 8, 1));
    net.hear(0, 0, &packet(HOST, other, 8, 2));
    net.advance(100_000);
    assert_eq!((net.got[1].len(), counts(&net, 0).dropped.count(Unforwarded::Unwanted)), (1, 1));
    // Announcements that are lost are said again, also those of an end.
    net.lose = Box::new(|| true);
    net.hear(1, 0, &report(4, other));
    net.hear(1, 0, &report(3, GROUP));
    // Nobody answers the question.
    net.gateways[1].set_lan_addresses(0, Some([10, 100, 1, 1].into()), None);
    while net.gateways[1].poll_group_message(net.now_us, 0).is_some() {}
    net.advance(250_000);
    net.lose = Box::new(|| false);
    net.advance(3_500_000);
    assert_eq!(wanted(&net), ["239.1.2.4/32".parse().unwrap()]);
    let (members, refused) = net.gateways[1].group_members(0);
    assert_eq!((members, refused), (vec![other.into()], 0));
    assert_eq!(counts(&net, 1).reports, 4);
    // Nobody answers any more.
    net.advance(300_000_000);
    assert!(wanted(&net).is_empty());
}

#[test]
fn a_section_with_another_rate_or_more_groups_goes_on_without_a_gap() {
    let of_members = |groups: &[&str], bps_max| MulticastConfig {
        lan: "lan0".into(),
        groups: groups.iter().map(|text| text.parse().unwrap()).collect(),
        wanted: Wanted::Members,
        bps_max,
    };
    let mut configs = sites(2, 1);
    configs[1].multicast = vec![of_members(&["239.1.0.0/16"], 80_000)];
    let mut net = Net::up(configs.clone());
    net.hear(1, 0, &report(4, GROUP));
    net.advance(1_000_000);
    let wanted = |net: &Net| net.gateways[1].group_members(0).0.len();
    assert_eq!(wanted(&net), 1);
    let mut number = 0;
    for section in
        [of_members(&["239.1.0.0/16"], 8_000_000), of_members(&["239.9.0.0/16", "239.1.0.0/16"], 8_000_000)]
    {
        let config = Config { multicast: vec![section], ..configs[1].clone() };
        net.gateways[1].reconfigure(config).unwrap();
        for _ in 0..40 {
            number += 1;
            net.hear(0, 0, &packet(HOST, GROUP, 8, number));
            net.advance(50_000);
        }
        assert_eq!((net.got[1].len(), wanted(&net)), (usize::from(number), 1));
    }
}

#[test]
fn a_section_on_another_lan_has_its_counts_and_asks_at_once_who_is_there() {
    let mut configs = sites(2, 2);
    configs[1].multicast[0].wanted = Wanted::Members;
    let mut net = Net::up(configs.clone());
    let own = Some([10, 100, 1, 1].into());
    net.gateways[1].set_lan_addresses(0, own, None);
    while net.gateways[1].poll_group_message(net.now_us, 0).is_some() {}
    net.hear(1, 0, &report(4, GROUP));
    net.advance(1_000_000);
    let wanted = |net: &Net| net.gateways[0].groups_wanted_by(0).0.len();
    net.hear(0, 0, &packet(HOST, GROUP, 8, 1));
    net.advance(100_000);
    assert_eq!((wanted(&net), counts(&net, 1).received), (1, 1));
    configs[1].multicast[0].lan = "lan1".into();
    net.gateways[1].reconfigure(configs.remove(1)).unwrap();
    net.gateways[1].set_lan_addresses(0, own, None);
    let mut messages = 0;
    while net.gateways[1].poll_group_message(net.now_us, 0).is_some() {
        messages += 1;
    }
    assert_eq!(messages, 2, "an advertisement and a question");
    net.advance(1_000_000);
    assert_eq!((wanted(&net), counts(&net, 1).received), (0, 1));
}

#[test]
fn each_of_64_sites_learns_all_of_many_groups_although_the_outbox_holds_few_announcements() {
    let star = |one: usize, _: usize| (one == 0).then_some(Mode::Tunnel);
    let mut net = Net::up((0..=64).map(|site| config(site, 65, star)).collect());
    net.advance(1_000_000);
    // Dozens of datagrams for each site.
    let groups: Vec<_> = (0..700).map(|number| format!("ff15::{number:x}/128").parse().unwrap()).collect();
    let section = section("239.1.0.0/16", 80_000);
    let multicast = vec![MulticastConfig { groups, ..section }];
    let wants = Config { multicast, ..net.gateways[0].config().clone() };
    net.gateways[0].reconfigure(wants).unwrap();
    net.advance(5_000_000);
    for site in 1..=64 {
        assert_eq!(net.gateways[site].groups_wanted_by(0).0.len(), 700, "site {site}");
        assert_eq!(net.status(0, site, |peer| peer.egress.unsent.count(Unsent::QueueFull)), 0);
    }
}

#[test]
fn a_site_that_wants_too_many_groups_is_not_announced_over_and_over() {
    let mut configs = sites(2, 1);
    configs[1].multicast = (0..6)
        .map(|of| MulticastConfig { wanted: Wanted::Members, ..section(&format!("239.{of}.0.0/16"), 80_000) })
        .collect();
    let mut net = Net::up(configs);
    for (of, number) in (0..6_u8).flat_map(|of| (0..1_000_u32).map(move |number| (of, number))) {
        let group = [239, of, (number >> 8) as u8, number as u8];
        net.hear(1, usize::from(of), &report(4, group));
    }
    net.advance(3_000_000);
    let members = (0..6).map(|section| net.gateways[1].group_members(section).0.len());
    assert_eq!(members.sum::<usize>(), 6_000, "more than an announcement has");
    let sent = |net: &Net| net.flights;
    let before = sent(&net);
    net.advance(5_000_000);
    // Reports and greetings alone: four a second and one, in both directions.
    assert!(sent(&net) - before < 100, "{}", sent(&net) - before);
}
