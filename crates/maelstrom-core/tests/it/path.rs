//! Paths that are not as the configuration says: boxes that rewrite packets, detours, and real losses beside
//! them.

use std::net::Ipv4Addr;

use crate::pair::{A, B, Pair, coin, config, payload, trusting};
use maelstrom_core::counters::Withheld;
use maelstrom_core::packet::{MutableFields, restore};
use maelstrom_core::{Config, Finding, PeerConfig, Schedule, Trouble};
use testkit::packet::udp4;

pub(crate) fn pair() -> Pair {
    Pair::up([config(A), config(B)])
}

/// Packet `n` of a flow from A to B.
pub(crate) fn packet(flow: u16, n: u32) -> Vec<u8> {
    let (from, to) = (Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10));
    let mut content = payload(n);
    content.extend(n.to_be_bytes());
    let mut packet = udp4(from, to, 9_000, n as u16, &content);
    packet[20..22].copy_from_slice(&(1_000 + flow).to_be_bytes());
    packet
}

pub(crate) fn has(pair: &Pair, finding: Finding) -> bool {
    pair.status(B, |peer| peer.findings.contains(finding))
}

/// Sends packets of one flow that all arrive.
pub(crate) fn prove(pair: &mut Pair, count: u32) {
    prove_again(pair, count);
    assert!(pair.recovered[B].is_empty());
}

fn prove_again(pair: &mut Pair, count: u32) {
    for n in 0..count {
        pair.send(A, &packet(0, 1_000_000 + n), false);
        pair.advance(1_000);
    }
    pair.advance(100_000);
}

#[test]
fn packets_that_a_box_rewrites_are_found_out_and_never_injected() {
    for (every_us, proven) in [(50_000, false), (1_000, false), (1_000, true)] {
        let mut pair = pair();
        if proven {
            prove(&mut pair, 500);
        }
        let mut found_after = None;
        for n in 0..600 {
            pair.leave(A, &packet(7, n));
            let mut rewritten = packet(7, n);
            rewritten[20] ^= 0x40;
            pair.arrive(B, &rewritten);
            pair.advance(every_us);
            if has(&pair, Finding::Rewritten) {
                found_after.get_or_insert(n);
            }
        }
        assert!(found_after.is_some_and(|n| n <= 400), "{found_after:?}, one in {every_us} us");
        assert!(!pair.status(B, |peer| peer.is_recovering));
        assert!(pair.recovered[B].len() <= usize::from(proven), "{} injected", pair.recovered[B].len());
        let there = pair.status(A, |peer| peer.far.findings.contains(Finding::Rewritten));
        assert!(there, "the far gateway knows");
        let withheld: u64 = pair.status(B, |peer| peer.withheld.iter().map(|(_, count)| count).sum());
        assert!(withheld > 0);
        // The box goes away. After some time without doubt, losses are recovered again.
        for n in 600..6_000 {
            pair.send(A, &packet(7, n), n % 1_000 == 999);
            pair.advance(every_us);
        }
        assert!(pair.status(B, |peer| peer.findings.is_empty() && peer.is_recovering));
        assert!(pair.recovered[B].ends_with(&[packet(7, 5_999)]) || pair.recovered[B].len() >= 3);
    }
}

/// Of `share` in 256 flows none arrives. Returns the number of packets sent, and of those injected that took
/// the detour.
pub(crate) fn detour_of_flows(pair: &mut Pair, share: u16, count: u32, loss: f64) -> (usize, usize, usize) {
    let (mut lose, mut lost) = (coin(5, loss), 0);
    pair.lose_datagram = Box::new(coin(6, loss));
    for n in 0..count {
        let flow = (n.wrapping_mul(2_654_435_761) >> 13) as u16 % 256;
        let is_lost = lose();
        if flow < share {
            pair.leave(A, &packet(flow, n));
        } else {
            lost += usize::from(is_lost);
            pair.send(A, &packet(flow, n), is_lost);
        }
        pair.advance(300);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(3_000_000);
    let doubles = pair.recovered[B].iter().filter(|bytes| {
        let port = u16::from_be_bytes([bytes[20], bytes[21]]);
        port - 1_000 < share
    });
    (doubles.count(), pair.recovered[B].len(), lost)
}

#[test]
fn flows_on_a_detour_are_not_delivered_twice_whatever_their_share() {
    for share in [1, 3, 26, 128, 250, 256] {
        let mut pair = pair();
        let (doubles, _, _) = detour_of_flows(&mut pair, share, 20_000, 0.0);
        assert!(doubles <= 20, "{doubles} of 20,000 with {share} of 256 flows");
        let report = pair.status(B, |peer| peer.findings);
        assert!(!report.is_empty() || share <= 3, "share {share}: {report:?}");
    }
}

#[test]
fn losses_of_the_other_flows_are_recovered_beside_a_small_detour() {
    let mut pair = pair();
    let (doubles, injected, lost) = detour_of_flows(&mut pair, 2, 20_000, 0.01);
    assert!(doubles <= 20, "{doubles}");
    assert!(injected - doubles > lost * 8 / 10, "{injected} with {doubles} doubles, of {lost} lost");
    assert!(pair.status(B, |peer| peer.withheld.count(Withheld::UnseenFlow)) > 20);
}

#[test]
fn packets_sprayed_over_two_links_are_rarely_delivered_twice() {
    for share in [0.02, 0.1, 0.5, 0.9] {
        let mut pair = pair();
        let mut detour = coin(9, share);
        for n in 0..30_000u32 {
            pair.send(A, &packet((n % 8) as u16, n), detour());
            pair.advance(300);
        }
        pair.advance(3_000_000);
        let doubles = pair.recovered[B].len();
        assert!(doubles <= 30, "{doubles} of 30,000 with a share of {share}");
        let finding = if share > 0.89 { Finding::Elsewhere } else { Finding::PartlyElsewhere };
        assert!(has(&pair, finding) || share < 0.05, "share {share}");
    }
}

#[test]
fn a_flow_that_moves_to_another_link_is_noticed_after_a_few_packets() {
    let mut pair = pair();
    for n in 0..12_000u32 {
        let flow = (n % 6) as u16;
        pair.send(A, &packet(flow, n), flow < 2 && n >= 6_000);
        pair.advance(300);
    }
    pair.advance(3_000_000);
    assert!(pair.recovered[B].len() <= 12, "{}", pair.recovered[B].len());
}

/// Returns how many packets are lost, and how many of them recovered with and without proof.
fn losses(schedule: &Schedule, lose: impl Fn() -> Box<dyn FnMut(u32) -> bool>, loss: f64) -> [usize; 3] {
    let mut counts = [0; 3];
    for (at, config) in [config as fn(usize) -> Config, trusting].into_iter().enumerate() {
        let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
        prove(&mut pair, 100);
        let (mut lose, mut lose_repair) = (lose(), coin(8, loss));
        let (mut lost, is_dark) = (0, std::rc::Rc::new(std::cell::Cell::new(false)));
        let dark = std::rc::Rc::clone(&is_dark);
        pair.lose_datagram = Box::new(move || dark.get() || lose_repair());
        for n in 0..20_000u32 {
            let is_lost = lose(n);
            is_dark.set(is_lost && loss == 0.0);
            lost += usize::from(is_lost);
            pair.send(A, &packet((n % 5) as u16, n), is_lost);
            pair.advance(1_000);
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(3_000_000);
        assert!(!has(&pair, Finding::Rewritten) && !has(&pair, Finding::Elsewhere));
        counts[0] = lost;
        counts[1 + at] = pair.recovered[B].len();
    }
    counts
}

#[test]
fn real_losses_are_recovered_as_if_the_path_were_trusted() {
    let window = |rate: &str| Schedule::Sliding { rate: rate.parse().unwrap(), window: 256, density: 15 };
    for (schedule, loss) in [
        (Schedule::layered(), 0.001),
        (Schedule::layered(), 0.01),
        (window("1/8"), 0.01),
        (window("3/8"), 0.1),
        (window("1"), 0.3),
    ] {
        let lose = || {
            let mut lose = coin(7, loss);
            Box::new(move |_| lose()) as Box<dyn FnMut(u32) -> bool>
        };
        let [lost, checked, trusted] = losses(&schedule, lose, loss);
        assert!(
            lost > 10 && checked >= trusted * 97 / 100,
            "{schedule}, {loss}: {checked} of {trusted} of {lost}"
        );
    }
}

/// Each packet is a flow of its own, such as a DNS query.
#[test]
fn losses_of_flows_of_one_packet_are_recovered_unless_they_take_a_detour() {
    for (loss, share) in [(0.01, 0.0), (0.0, 0.1)] {
        let mut pair = pair();
        prove(&mut pair, 100);
        let (mut lose, mut detour, mut lost) = (coin(7, loss), coin(9, share), 0);
        pair.lose_datagram = Box::new(coin(8, loss));
        for n in 0..20_000u32 {
            let is_lost = lose();
            lost += usize::from(is_lost);
            pair.send(A, &packet((n % 60_000) as u16, n), is_lost || detour());
            pair.advance(1_000);
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(3_000_000);
        let injected = pair.recovered[B].len();
        if share == 0.0 {
            assert!(injected >= lost * 9 / 10, "{injected} of {lost} lost");
        } else {
            assert!(injected <= 24, "{injected} twice");
        }
    }
}

#[test]
fn outages_are_recovered_as_if_the_path_were_trusted() {
    let window = Schedule::Sliding { rate: "1".parse().unwrap(), window: 512, density: 15 };
    for (schedule, length) in [(Schedule::layered(), 15), (window, 200)] {
        let lose = || Box::new(move |n: u32| n % 4_000 >= 4_000 - length) as Box<dyn FnMut(u32) -> bool>;
        let [lost, checked, trusted] = losses(&schedule, lose, 0.0);
        assert!(
            trusted > lost / 2 && checked >= trusted * 95 / 100,
            "{schedule}: {checked} of {trusted} of {lost}"
        );
    }
}

/// The tap does not capture packets whose source is outside of the far site's networks.
#[test]
fn packets_with_an_address_of_another_network_are_recognised_by_their_content() {
    let mut pair = pair();
    prove(&mut pair, 100);
    for n in 0..3_000u32 {
        let bytes = packet(7, n);
        pair.leave(A, &bytes);
        let mut translated = bytes.clone();
        translated[12..16].copy_from_slice(&[203, 0, 113, 9]);
        pair.arrive(B, &translated);
        if pair.gateways[B].wants_strangers() {
            let now_us = pair.now_us;
            pair.gateways[B].handle_stranger(now_us, &translated);
        }
        pair.advance(10_000);
    }
    assert!(has(&pair, Finding::Rewritten) && !has(&pair, Finding::Elsewhere));
    assert!(pair.recovered[B].len() <= 1, "{}", pair.recovered[B].len());
    // A stranger with other content proves nothing.
    let mut pair = self::pair();
    for n in 0..3_000u32 {
        pair.leave(A, &packet(7, n));
        let mut other = packet(7, n + 10_000);
        other[12..16].copy_from_slice(&[203, 0, 113, 9]);
        let now_us = pair.now_us;
        pair.gateways[B].handle_stranger(now_us, &other);
        pair.advance(10_000);
    }
    assert!(has(&pair, Finding::Elsewhere) && !has(&pair, Finding::Rewritten));
}

#[test]
fn the_first_packet_of_a_flow_is_recovered_once_the_path_is_proven() {
    let mut pair = pair();
    pair.send(A, &packet(1, 1), true);
    pair.advance(100_000);
    assert!(pair.recovered[B].is_empty(), "nothing is known of the path");
    prove(&mut pair, 10);
    pair.send(A, &packet(2, 2), true);
    pair.advance(100_000);
    assert_eq!(pair.recovered[B], [packet(2, 2)]);
    // The second one of a flow of which nothing arrives is not.
    pair.send(A, &packet(2, 3), true);
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 1);
    pair.send(A, &packet(2, 4), false);
    pair.send(A, &packet(2, 5), true);
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 2);
}

#[test]
fn packets_that_come_late_by_a_slower_link_are_found_out() {
    let mut pair = pair();
    let mut road = std::collections::VecDeque::new();
    for n in 0..20_000u32 {
        let bytes = packet((n % 4) as u16, n);
        if n % 50 == 0 {
            pair.leave(A, &bytes);
            road.push_back((pair.now_us + 60_000, bytes));
        } else {
            pair.send(A, &bytes, false);
        }
        while road.front().is_some_and(|&(due_us, _)| due_us <= pair.now_us) {
            let (_, bytes) = road.pop_front().unwrap();
            pair.arrive(B, &bytes);
        }
        pair.advance(500);
    }
    assert!(pair.recovered[B].len() <= 30, "{}", pair.recovered[B].len());
    assert!(has(&pair, Finding::SlowPath) || has(&pair, Finding::PartlyElsewhere));
}

#[test]
fn a_packet_that_a_router_fragments_is_not_injected() {
    let mut pair = pair();
    prove(&mut pair, 10);
    for n in 0..8u32 {
        let whole =
            udp4(Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10), 1_000, n as u16, &[7; 900]);
        pair.leave(A, &whole);
        for (from, to, flags) in [(20, 420, 0x2000u16), (420, whole.len(), 50)] {
            let mut piece = [&whole[..20], &whole[from..to]].concat();
            let length = piece.len() as u16;
            piece[2..4].copy_from_slice(&length.to_be_bytes());
            piece[6..8].copy_from_slice(&flags.to_be_bytes());
            restore(&mut piece, MutableFields { ttl: whole[8], tos: whole[1] });
            pair.arrive(B, &piece);
        }
        pair.advance(100_000);
    }
    assert!(pair.recovered[B].is_empty());
    assert!(has(&pair, Finding::Fragmented));
    assert!(pair.status(B, |peer| peer.withheld.count(Withheld::Fragmented)) >= 4);
}

#[test]
fn a_syn_whose_mss_was_clamped_is_not_injected() {
    let mut pair = pair();
    prove(&mut pair, 10);
    let syn = |mss: u8| {
        let mut bytes = udp4(Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10), 80, 9, &[0; 16]);
        bytes[9] = 6;
        bytes[24..28].copy_from_slice(&[1, 2, 3, 4]);
        bytes[32..34].copy_from_slice(&[0x60, 2]);
        bytes[40..44].copy_from_slice(&[2, 4, 5, mss]);
        bytes
    };
    pair.leave(A, &syn(180));
    pair.arrive(B, &syn(100));
    pair.advance(200_000);
    assert!(pair.recovered[B].is_empty());
    assert!(has(&pair, Finding::OpeningRewritten));
}

#[test]
fn both_ends_know_within_three_seconds_that_one_of_them_is_not_heard() {
    let mut pair = pair();
    prove(&mut pair, 20);
    pair.mute[A] = true;
    pair.advance(3_000_000);
    assert!([A, B].iter().all(|&side| !pair.status(side, |peer| peer.is_up)));
    let trouble = |pair: &Pair, side| pair.status(side, |peer| peer.trouble);
    assert_eq!((trouble(&pair, A), trouble(&pair, B)), (Some(Trouble::Unheard), Some(Trouble::Silent)));
    let sent = pair.status(A, |peer| peer.egress.source_packets);
    pair.send(A, &packet(0, 1), false);
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), sent, "it is not protected");
    pair.mute[A] = false;
    pair.advance(2_000_000);
    assert!([A, B].iter().all(|&side| pair.status(side, |peer| peer.is_up && peer.trouble.is_none())));
}

#[test]
fn a_peer_that_was_never_heard_is_told_at_both_ends() {
    let mut pair = Pair::new([config(A), config(B)]);
    pair.mute[A] = true;
    pair.advance(3_000_000);
    let trouble = |side| pair.status(side, |peer| peer.trouble);
    assert_eq!((trouble(A), trouble(B)), (Some(Trouble::Unheard), Some(Trouble::Silent)));
}

#[test]
fn a_peer_of_another_version_is_told_apart_from_noise() {
    // The low four bits of the first byte are the kind, the others the version.
    for (first, is_version) in [(0xb1, false), (0x1f, false), (0x00, false), (0x11, true), (0xa2, true)] {
        let mut pair = Pair::new([config(A), config(B)]);
        pair.mute = [true; 2];
        for _ in 0..10 {
            pair.advance(200_000);
            pair.inject(B, &[first; 60]);
        }
        let expected = if is_version { Trouble::OtherVersion(first >> 4) } else { Trouble::Silent };
        assert_eq!(pair.status(B, |peer| peer.trouble), Some(expected), "first byte {first:#x}");
    }
}

#[test]
fn a_wrong_key_and_a_nat_of_the_repair_channel_are_told() {
    let key = maelstrom_core::PeerKey::new([6; 32]);
    let peer = PeerConfig { key, ..config(B).peers[0].clone() };
    let mut pair = Pair::new([config(A), Config { peers: vec![peer], ..config(B) }]);
    pair.advance(2_000_000);
    for side in [A, B] {
        assert_eq!(pair.status(side, |peer| peer.trouble), Some(Trouble::WrongKey));
        assert!(pair.status(side, |peer| peer.wrong_key) > 5);
    }
    let mut pair = Pair::new([config(A), config(B)]);
    let from = "203.0.113.9:61000".parse().unwrap();
    pair.mute = [true; 2];
    for _ in 0..20 {
        pair.advance(100_000);
        let mut out = pair.gateways[A].outbox();
        pair.now_us += 200_000;
        pair.gateways[A].handle_timeout(pair.now_us, &mut out);
        for (_, datagram) in out.datagrams.iter() {
            pair.gateways[B].handle_datagram(pair.now_us, from, &mut datagram.to_vec(), &mut pair.out[B]);
        }
    }
    assert_eq!(pair.status(B, |peer| peer.trouble), Some(Trouble::OtherAddress(from)));
}

/// The far gateway begins a new stream, which numbers packets again.
#[test]
fn a_flow_that_moves_after_a_new_session_is_noticed_as_soon() {
    let mut pair = pair();
    for n in 0..2_000 {
        pair.send(A, &packet((n % 2) as u16, n), false);
        pair.advance(1_000);
    }
    pair.gateways[A] = maelstrom_core::Gateway::new(config(A), [78; 32]).unwrap();
    pair.advance(2_000_000);
    prove(&mut pair, 20);
    for n in 0..60 {
        pair.leave(A, &packet(0, 5_000 + n));
        pair.send(A, &packet(1, 6_000 + n), false);
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    let twice = pair.recovered[B].len();
    assert!((1..=3).contains(&twice), "{twice}");
}

/// One packet of a flow that comes late may have had a reason of its own; such packets of three flows show a
/// slower path.
#[test]
fn slow_packets_of_three_flows_end_the_recovery_of_all() {
    let mut pair = pair();
    let mut n = 0;
    let mut flow_losing = |pair: &mut Pair, flow: u16, comes_late: bool| {
        for _ in 0..40 {
            n += 1;
            pair.send(A, &packet(flow, n), false);
            pair.advance(1_000);
        }
        let before = pair.recovered[B].len();
        let lost = packet(flow, 50_000 + n);
        pair.send(A, &lost, true);
        for _ in 0..60 {
            n += 1;
            pair.send(A, &packet(flow, n), false);
            pair.advance(1_000);
        }
        if comes_late {
            pair.arrive(B, &lost);
        }
        pair.advance(100_000);
        pair.recovered[B].len() > before
    };
    let recovered: Vec<_> = (0..3).map(|flow| flow_losing(&mut pair, flow, true)).collect();
    assert_eq!(recovered, [true; 3]);
    (3..12).for_each(|flow| _ = flow_losing(&mut pair, flow, true));
    assert!(!flow_losing(&mut pair, 20, false), "another flow");
    assert!(has(&pair, Finding::SlowPath) && !pair.status(B, |peer| peer.is_recovering));
    // However many they were, a few thousand others make them few.
    prove_again(&mut pair, 3_200);
    assert!(pair.status(B, |peer| peer.is_recovering));
    assert!(flow_losing(&mut pair, 21, false), "another flow");
}

/// The peer's file names a network that is not behind this gateway.
#[test]
fn nothing_is_injected_to_networks_that_are_not_local() {
    let net = |text: &str| text.parse::<ipnet::IpNet>().unwrap();
    let networks = vec![net("10.81.2.0/24"), net("10.81.77.0/24")];
    let far = PeerConfig { networks, ..trusting(A).peers[0].clone() };
    let near = Config { local_networks: vec![net("10.81.2.0/24")], ..trusting(B) };
    let mut pair = Pair::up([Config { peers: vec![far], ..config(A) }, near]);
    for (third, is_injected) in [(2, true), (77, false)] {
        let before = pair.recovered[B].len();
        for n in 0..16 {
            let to = Ipv4Addr::new(10, 81, third, 10);
            let bytes = udp4(Ipv4Addr::new(10, 81, 1, 10), to, 9_000, n, &payload(n.into()));
            pair.send(A, &bytes, n == 5);
            pair.advance(100);
        }
        pair.advance(200_000);
        assert_eq!(pair.recovered[B].len() > before, is_injected, "to 10.81.{third}.0/24");
    }
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), 32, "all were protected");
    assert_eq!(pair.status(B, |peer| peer.withheld.count(Withheld::NotLocal)), 1);
}
