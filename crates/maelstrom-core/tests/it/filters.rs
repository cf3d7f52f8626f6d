//! Packet filters and limiters between the gateways: packets that they drop are not recovered.

use std::net::Ipv4Addr;

use crate::fragments::{fragments, long};
use crate::pair::{A, B, Pair, coin, config, payload};
use crate::path::{packet, prove};
use maelstrom_core::counters::Withheld;
use testkit::packet::udp4;

const TCP: u8 = 6;
const SYN: u8 = 2;

fn host(side: usize, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 81, side as u8 + 1, number)
}

/// Packet `n` from port `from` of host 10 of `side` to port `to` of the other site's host 10.
fn udp(side: usize, from: u16, to: u16, n: u32) -> Vec<u8> {
    let content = [&payload(n)[..], &n.to_be_bytes()].concat();
    let mut bytes = udp4(host(side, 10), host(1 - side, 10), to, n as u16, &content);
    bytes[20..22].copy_from_slice(&from.to_be_bytes());
    bytes
}

/// A TCP packet that opens the connection with this number.
fn syn(from: u16, to: u16, number: u32, id: u16) -> Vec<u8> {
    let mut bytes = udp4(host(A, 10), host(B, 10), to, id, &[0; 16]);
    bytes[9] = TCP;
    bytes[20..22].copy_from_slice(&from.to_be_bytes());
    bytes[24..28].copy_from_slice(&number.to_be_bytes());
    bytes[32..34].copy_from_slice(&[0x60, SYN]);
    bytes
}

fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[22], bytes[23]])
}

/// A link with this loss, on which 400 packets a second of one flow to port 9000 arrive. `each` is called
/// between two of them.
fn lossy(loss: f64, count: u32, mut each: impl FnMut(&mut Pair, u32, bool)) -> Pair {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.delay_us = 2_000;
    prove(&mut pair, 100);
    let mut lose = coin(31, loss);
    pair.lose_datagram = Box::new(coin(32, loss));
    for n in 0..count {
        let is_lost = lose();
        pair.send(A, &packet(0, n), is_lost);
        each(&mut pair, n, lose());
        pair.advance(2_500);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(3_000_000);
    pair
}

fn recovered_to(pair: &Pair, to: u16) -> usize {
    pair.recovered[B].iter().filter(|bytes| port(bytes) == to).count()
}

#[test]
fn a_port_that_a_filter_shuts_stays_shut_for_new_flows() {
    for loss in [0.001, 0.01, 0.08] {
        let (mut lost, mut filtered) = (0, 0);
        let pair = lossy(loss, 8_000, |pair, n, is_lost| match n % 8 {
            0 => {
                filtered += 1;
                pair.leave(A, &udp(A, 10_000 + (n / 8) as u16, 9_001, n));
            }
            4 => {
                lost += usize::from(is_lost);
                pair.send(A, &udp(A, 20_000 + (n / 8) as u16, 9_002, n), is_lost);
            }
            _ => {}
        });
        assert_eq!(recovered_to(&pair, 9_001), 0, "of {filtered}, loss {loss}");
        assert!(pair.status(B, |peer| peer.withheld.count(Withheld::UnseenFlow)) > 500, "loss {loss}");
        // First packets to a service in use are recovered beside them, and losses of flows that arrive.
        let first = recovered_to(&pair, 9_002);
        assert!(lost < 5 || 10 * first >= 8 * lost, "{first} of {lost} lost, loss {loss}");
    }
}

/// The filter shuts a host out of a service that another host uses.
#[test]
fn a_filter_by_source_is_not_passed() {
    let (mut lost, mut filtered) = (0, 0);
    let from = |last: u8, n: u32| {
        let content = [&payload(n)[..], &n.to_be_bytes()].concat();
        let mut bytes = udp4(host(A, last), host(B, 10), 9_001, n as u16, &content);
        bytes[20..22].copy_from_slice(&(10_000 + (n / 8) as u16).to_be_bytes());
        bytes
    };
    let pair = lossy(0.01, 8_000, |pair, n, is_lost| match n % 8 {
        0 => {
            filtered += 1;
            pair.leave(A, &from(11, n));
        }
        4 => {
            lost += usize::from(is_lost);
            pair.send(A, &from(12, n), is_lost);
        }
        _ => {}
    });
    let of = |last: u8| pair.recovered[B].iter().filter(|bytes| bytes[15] == last).count();
    assert_eq!(of(11), 0, "of {filtered}");
    assert!(lost >= 5 && 10 * of(12) >= 8 * lost, "{} of {lost}", of(12));
}

/// Each of many services has earned a first packet. A firewall that loses its rules shuts all of them.
#[test]
fn services_that_are_shut_together_let_few_packets_pass_and_other_flows_are_recovered() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.delay_us = 2_000;
    prove(&mut pair, 100);
    let (mut passed, mut lost) = (0, 0);
    for n in 0..8_000u32 {
        let is_lost = n >= 4_000 && n % 500 == 250;
        lost += usize::from(is_lost);
        pair.send(A, &packet(0, n), is_lost);
        if n % 4 == 0 {
            let bytes = udp(A, 10_000 + (n / 4) as u16, 20_000 + (n / 4 % 200) as u16, n);
            pair.send(A, &bytes, n >= 4_000);
        }
        pair.advance(2_500);
        passed = pair.recovered[B].iter().filter(|bytes| port(bytes) >= 20_000).count();
        assert!(passed <= 20, "{passed} passed until packet {n}");
    }
    pair.advance(3_000_000);
    let others = recovered_to(&pair, 9_000);
    assert!(passed > 0 && others == lost, "{others} of {lost} of the other flow");
    // After some thousand arrivals, a few first packets are recovered again.
    for n in 8_000..12_000 {
        pair.send(A, &packet(0, n), false);
        pair.advance(2_500);
    }
    pair.send(A, &udp(A, 10_001, 30_000, 12_000), false);
    let first = udp(A, 10_002, 30_000, 12_001);
    pair.send(A, &first, true);
    (12_002..12_020).for_each(|n| pair.send(A, &packet(0, n), false));
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].last(), Some(&first));
}

/// A rule that drops new connections to one port. A recovered SYN would open a connection that then hangs.
#[test]
fn connections_that_a_stateful_filter_refuses_are_not_opened() {
    let pair = lossy(0.03, 8_000, |pair, n, is_lost| match n % 40 {
        0 => pair.leave(A, &syn(10_000 + (n / 40) as u16, 9_501, n, n as u16)),
        // Connections to the other port reuse a few ports of their host.
        20 => pair.send(A, &syn(20_000 + (n / 40 % 4) as u16, 9_502, n, n as u16), is_lost),
        _ => {}
    });
    assert_eq!(recovered_to(&pair, 9_501), 0);
    assert!(recovered_to(&pair, 9_502) >= 3, "{}", recovered_to(&pair, 9_502));
}

/// The filter begins to refuse connections to a port that had been open.
#[test]
fn a_port_that_is_shut_later_lets_few_connections_pass() {
    let pair = lossy(0.03, 12_000, |pair, n, is_lost| {
        if n % 20 == 0 {
            let (from, is_lost) = (20_000 + (n / 20 % 50) as u16, is_lost || n >= 4_000);
            pair.send(A, &syn(from, 9_501, n, n as u16), is_lost);
        }
    });
    let passed = pair.recovered[B].iter().filter(|bytes| port(bytes) == 9_501);
    let passed =
        passed.filter(|bytes| u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) >= 4_000);
    let passed = passed.count();
    assert!(passed <= 3, "{passed} of 400");
}

#[test]
fn a_limiter_of_new_flows_is_not_passed() {
    let (mut arrived, mut tokens, mut sent) = (0, 5.0_f64, 0);
    let pair = lossy(0.08, 4_000, |pair, n, is_lost| {
        tokens = (tokens + 20.0 * 0.0025).min(5.0);
        if n % 4 == 0 {
            sent += 1;
            let passes = tokens >= 1.0;
            tokens -= f64::from(u8::from(passes));
            arrived += usize::from(passes && !is_lost);
            pair.send(A, &udp(A, 10_000 + (n / 4) as u16, 9_001, n), is_lost || !passes);
        }
    });
    let recovered = recovered_to(&pair, 9_001);
    assert!(sent == 1_000 && arrived > 100, "{arrived} of {sent}");
    assert!(recovered * 20 <= arrived, "{recovered} beside {arrived}");
}

/// It drops a tenth of the new flows, and the link a hundredth of all packets.
#[test]
fn a_limiter_that_drops_few_new_flows_is_hardly_passed() {
    let mut dropped = 0;
    let pair = lossy(0.01, 12_000, |pair, n, is_lost| {
        if n % 4 == 0 {
            let is_dropped = n / 4 % 10 == 7;
            dropped += usize::from(is_dropped);
            pair.send(A, &udp(A, 10_000 + (n / 4) as u16, 9_001, n), is_lost || is_dropped);
        }
    });
    let passed = pair.recovered[B].iter().filter(|bytes| port(bytes) == 9_001);
    let passed = passed.filter(|bytes| u16::from_be_bytes([bytes[20], bytes[21]]) % 10 == 7).count();
    assert!(3 * passed <= dropped, "{passed} of {dropped}");
}

/// Routers drop only the first fragment of a packet to a port, because the others have no ports.
#[test]
fn first_fragments_to_a_port_that_is_shut_stay_out() {
    let pair = lossy(0.03, 4_000, |pair, n, _| {
        if n % 8 == 0 {
            let mut whole = long(n);
            whole[22..24].copy_from_slice(&9_001u16.to_be_bytes());
            for (at, piece) in fragments(&whole).into_iter().enumerate() {
                pair.send(A, &piece, at == 0);
            }
        }
    });
    assert_eq!(recovered_to(&pair, 9_001), 0);
}

/// Hosts of B ask a server of A, each time from another port.
#[test]
fn answers_are_recovered_if_the_server_answers_others() {
    for filtered in [false, true] {
        let mut lost = 0;
        let pair = lossy(0.03, 16_000, |pair, n, is_lost| {
            if n % 20 == 0 {
                let port = 20_000 + (n / 20) as u16;
                pair.send(B, &udp(B, port, 53, n), false);
                pair.advance(1_000);
                lost += usize::from(is_lost);
                pair.send(A, &udp(A, 53, port, n), is_lost || filtered);
            }
        });
        let answers = pair.recovered[B].iter().filter(|bytes| bytes[20..22] == 53u16.to_be_bytes()).count();
        if filtered {
            assert_eq!(answers, 0, "no answer of this server arrives");
        } else {
            assert!(lost > 10 && 10 * answers >= 8 * lost, "{answers} of {lost}");
        }
    }
}

/// A packet from the server's port is no answer if nothing left to it.
#[test]
fn packets_from_a_servers_port_to_a_filtered_one_are_no_answers() {
    let pair = lossy(0.03, 8_000, |pair, n, _| {
        let port = 20_000 + (n / 20) as u16;
        match n % 20 {
            0 => pair.send(B, &udp(B, port, 53, n), false),
            2 => pair.send(A, &udp(A, 53, port, n), false),
            10 => pair.leave(A, &udp(A, 53, 10_000 + (n / 20) as u16, n)),
            _ => {}
        }
    });
    let passed = pair.recovered[B].iter().filter(|bytes| (10_000..20_000).contains(&port(bytes)));
    assert_eq!(passed.filter(|bytes| port(bytes) != 9_000).count(), 0);
}

/// The service itself may be asked: flows of one packet arrive at it all the time.
#[test]
fn of_a_flow_that_a_filter_drops_one_packet_passes() {
    let pair = lossy(0.08, 4_000, |pair, n, is_lost| match n % 400 {
        202 | 206 | 210 => pair.leave(A, &udp(A, 30_000 + (n / 400) as u16, 9_001, n)),
        _ if n % 4 == 0 => pair.send(A, &udp(A, 10_000 + (n / 4) as u16, 9_001, n), is_lost),
        _ => {}
    });
    let from = |bytes: &[u8]| u16::from_be_bytes([bytes[20], bytes[21]]);
    let passed = |flow: u16| pair.recovered[B].iter().filter(|bytes| from(bytes) == 30_000 + flow).count();
    let passed: Vec<_> = (0..10).map(passed).collect();
    assert!(passed.iter().all(|&count| count <= 1), "{passed:?}");
    assert!(passed.iter().sum::<usize>() >= 5, "{passed:?}");
}
