//! Gateways with many peers: meshes and stars.

pub(crate) mod net;

use maelstrom_core::Config;
use net::{Mode, Net, config, packet};

/// Maximum number of peers in a file of a gateway.
const PEERS: usize = 64;
/// Share of datagrams and packets that the network loses.
const LOSS: f64 = 0.01;

/// Sends packets between all sites that are peers; asserts that each arrives once, and that losses came back
/// on each of these ways.
fn exchange(net: &mut Net, pairs: &[(usize, usize)], rounds: u16, interval_us: u64) {
    net.lose(8, LOSS);
    for number in 0..rounds {
        for &(from, to) in pairs {
            net.send(from, to, packet(from, to, number));
        }
        net.advance(interval_us);
    }
    net.lose = Box::new(|| false);
    net.advance(2_000_000);
    for &(from, to) in pairs {
        let times = |number| net.got[to].get(&packet(from, to, number)).copied().unwrap_or(0);
        let wrong: Vec<_> =
            (0..rounds).map(|number| (number, times(number))).filter(|(_, n)| *n != 1).collect();
        assert!(wrong.is_empty(), "packets from {from} to {to} that did not come once: {wrong:?}");
    }
    let recovered =
        |&(from, to): &(usize, usize)| net.status(to, from, |peer| peer.ingress.recovered_packets);
    let all: u64 = pairs.iter().map(recovered).sum();
    let expected = (pairs.len() * usize::from(rounds)) as f64 * LOSS;
    assert!(all as f64 > expected / 2.0, "{all} recovered");
    for (site, got) in net.got.iter().enumerate() {
        let wanted = pairs.iter().filter(|&&(_, to)| to == site).count() * usize::from(rounds);
        assert_eq!(got.len(), wanted, "site {site} got packets that were not sent to it");
    }
}

/// Both directions between sites that are peers.
fn pairs(sites: usize, mode: impl Fn(usize, usize) -> Option<Mode>) -> Vec<(usize, usize)> {
    let all = (0..sites).flat_map(|from| (0..sites).map(move |to| (from, to)));
    all.filter(|&(from, to)| from != to && mode(from.min(to), from.max(to)).is_some()).collect()
}

fn configs(sites: usize, mode: impl Fn(usize, usize) -> Option<Mode> + Copy) -> Vec<Config> {
    (0..sites).map(|site| config(site, sites, mode)).collect()
}

#[test]
fn a_star_of_64_peers_recovers_losses_on_each_of_its_arms() {
    let mode = |one: usize, other: usize| {
        let mode = if other.is_multiple_of(2) { Mode::Tunnel } else { Mode::Passive };
        (one == 0).then_some(mode)
    };
    let sites = 1 + PEERS;
    let mut net = Net::up(configs(sites, mode));
    assert_eq!(net.gateways[0].peers().count(), PEERS);
    exchange(&mut net, &pairs(sites, mode), 150, 4_000);
}

#[test]
fn a_full_mesh_in_mixed_modes_recovers_losses_between_any_two_sites() {
    let mode = |one: usize, other: usize| {
        Some(if (one + other).is_multiple_of(3) { Mode::Passive } else { Mode::Tunnel })
    };
    let mut net = Net::up(configs(7, mode));
    exchange(&mut net, &pairs(7, mode), 300, 3_000);
}

#[test]
fn a_peer_that_falls_silent_leaves_the_others_of_a_star_alone() {
    let mode = |one: usize, _: usize| (one == 0).then_some(Mode::Tunnel);
    let mut net = Net::up(configs(5, mode));
    // All datagrams from and to the last site are lost.
    let silent = 4;
    net.cut_off(silent);
    net.advance(8_000_000);
    assert!(!net.status(0, silent, |peer| peer.is_up));
    let others: Vec<_> =
        pairs(5, mode).into_iter().filter(|&(one, other)| one.max(other) != silent).collect();
    exchange(&mut net, &others, 200, 3_000);
}

#[test]
fn the_centre_of_a_star_forwards_between_tunnels_also_if_it_states_its_own_networks() {
    let mode = |one: usize, other: usize| {
        let mode = if other == 3 { Mode::Passive } else { Mode::Tunnel };
        (one == 0).then_some(mode)
    };
    let mut configs = configs(4, mode);
    configs[0].local_networks = vec!["10.100.0.0/24".parse().unwrap()];
    for (site, config) in configs.iter_mut().enumerate().skip(1) {
        let others = (0..4).filter(|other| *other != site);
        config.peers[0].networks =
            others.map(|site| format!("10.100.{site}.0/24").parse().unwrap()).collect();
    }
    let mut net = Net::up(configs);
    // Into the tunnel, and where the centre has got it, on by the next one.
    let cross = |net: &mut Net, packet: Vec<u8>, to: usize| {
        net.send(1, 0, packet.clone());
        net.advance(100_000);
        if to > 0 && net.got[0].contains_key(&packet) {
            net.send(0, to, packet.clone());
            net.advance(100_000);
        }
        (net.got[0].contains_key(&packet), net.got[to].contains_key(&packet))
    };
    assert_eq!(cross(&mut net, packet(1, 2, 1), 2), (true, true));
    assert_eq!(cross(&mut net, packet(1, 0, 2), 0), (true, true));
    // No tunnel leads to the last site.
    assert_eq!(cross(&mut net, packet(1, 3, 3), 3), (false, false));
    assert_eq!(net.status(0, 1, |peer| peer.ingress.foreign_packets), 1);
    assert_eq!(net.gateways[0].refused().iter().map(|(_, count)| count).sum::<u64>(), 0);
    // A reload that ends one tunnel ends the way there.
    let mut fewer = net.gateways[0].config().clone();
    fewer.peers.remove(1);
    net.gateways[0].reconfigure(fewer).unwrap();
    assert_eq!(cross(&mut net, packet(1, 2, 4), 2), (false, false));
}
