//! Directed lies, one test each: what a few forged datagrams do to the views. The source addresses are forged
//! too.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::common::{Net, SECOND_US, address};
use membership::counters::Dropped;
use membership::wire::{
    DATAGRAM_MAX, Held, IdentityAnswer, IdentityQuestion, Presence, StepParts, StepsView, write_summary,
};
use membership::{MemberFile, Membership};
use ricochet_core::NodeId;

const NODES: usize = 6;
const DAY_US: u64 = 86_400_000_000;
const ALIVE: u8 = 0;
const SUSPECT: u8 = 1;
const DOWN: u8 = 2;

fn cluster() -> Net {
    let mut net = Net::new(3);
    for place in 0..NODES {
        net.start_gossip(place, &[0]);
        net.set_groups(place, 0..20 + place as u64);
    }
    net.run_until_right(5 * SECOND_US);
    net.run_us(SECOND_US);
    net
}

/// A node as a liar describes it.
#[derive(Clone, Copy)]
struct Claim {
    address: SocketAddr,
    id: NodeId,
    life: u64,
}

fn true_of(net: &Net, place: usize) -> Claim {
    Claim { address: address(place), id: net.id(place), life: net.life(place) }
}

fn put(claim: Claim, to: &mut Vec<u8>) {
    let SocketAddr::V4(at) = claim.address else { panic!("tests use IPv4") };
    to.push(4);
    to.extend(at.ip().octets());
    to.extend(at.port().to_be_bytes());
    to.extend(claim.id.0.to_be_bytes());
    to.extend(claim.life.to_be_bytes());
}

/// A gossip datagram: news of others, each with an incarnation and a state.
fn gossip(source: Claim, to: Claim, news: &[(Claim, u16, u8)]) -> Vec<u8> {
    let mut datagram = vec![0xb6, 1];
    put(source, &mut datagram);
    datagram.extend(0u16.to_be_bytes());
    put(to, &mut datagram);
    datagram.push(9);
    datagram.extend((news.len() as u16).to_be_bytes());
    for &(claim, incarnation, state) in news {
        put(claim, &mut datagram);
        datagram.extend(incarnation.to_be_bytes());
        datagram.push(state);
    }
    datagram
}

/// Lets lies arrive again and again. No view may be wrong at any time, and not even for a moment.
fn unmoved_by(net: &mut Net, mut lie: impl FnMut(&Net, usize) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)>) {
    let versions = |net: &Net| net.nodes().map(Membership::version).collect::<Vec<u64>>();
    let before = versions(net);
    for round in 0..60 {
        for (from, to, datagram) in lie(net, round) {
            net.inject(from, to, datagram);
        }
        for _ in 0..20 {
            net.run_us(10_000);
            assert_eq!(net.wrong(), [""; 0], "round {round}");
            assert_eq!(versions(net), before, "round {round}: a view changed for a moment");
        }
    }
}

#[test]
fn a_forged_life_shuts_no_member_out() {
    for life in [1 << 53, 1_700_000_000_000_000 + DAY_US / 2, 1_700_000_000_000_000 + 3_000_000] {
        for own_statement in [true, false] {
            for state in [ALIVE, SUSPECT, DOWN] {
                let mut net = cluster();
                unmoved_by(&mut net, |net, round| {
                    let victim = Claim { id: NodeId(round as u32), life, ..true_of(net, 5) };
                    let tell = |to: usize| {
                        let source = if own_statement { victim } else { true_of(net, 2) };
                        let news = [(victim, 0, state)];
                        (source.address, address(to), gossip(source, true_of(net, to), &news))
                    };
                    vec![tell(0), tell(1)]
                });
                let known = net.node(0).counts().dropped;
                let refused = known.count(Dropped::Future) + known.count(Dropped::Unproven);
                assert!(refused + known.count(Dropped::Hearsay) >= 60, "{known:?}");
            }
        }
    }
}

#[test]
fn forged_news_that_a_member_is_down_does_not_move_a_view() {
    let mut net = cluster();
    unmoved_by(&mut net, |net, round| {
        let victim = true_of(net, 5);
        let news = [(victim, round as u16, DOWN)];
        // From another member, and from the victim itself, as if it left.
        let tell =
            |source: Claim, to: usize| (source.address, address(to), gossip(source, true_of(net, to), &news));
        vec![tell(true_of(net, 2), 0), tell(true_of(net, 2), 1), tell(victim, 3), tell(true_of(net, 2), 5)]
    });
}

#[test]
fn a_member_that_has_gone_is_noticed_as_soon_as_news_of_it_come() {
    let mut net = cluster();
    net.crash(5);
    assert!(net.run_until_right(4 * SECOND_US) < 3 * SECOND_US);
    net.leave(4);
    assert!(net.run_until_right(4 * SECOND_US) < 2 * SECOND_US);
}

#[test]
fn made_up_members_are_in_no_view_and_draw_little_to_their_addresses() {
    let mut net = cluster();
    let mut told = 0;
    let strangers: Vec<SocketAddr> = (0..50).map(|host| SocketAddr::from(([192, 0, 2, host], 53))).collect();
    unmoved_by(&mut net, |net, round| {
        if round > 0 {
            return Vec::new();
        }
        let life = 1_700_000_000_000_000;
        let made_up = |(at, &address)| (Claim { address, id: NodeId(at as u32), life }, 0, ALIVE);
        let news: Vec<_> = strangers.iter().enumerate().map(made_up).collect();
        let source = true_of(net, 2);
        let datagram = gossip(source, true_of(net, 0), &news);
        told = datagram.len() as u64;
        vec![(source.address, address(0), datagram)]
    });
    let drawn: u64 = strangers.iter().filter_map(|stranger| net.bytes_to.get(stranger)).sum();
    assert!(drawn <= 3 * told, "{told} bytes drew {drawn}");
    assert!(drawn > 0, "each was asked whether it exists");
}

#[test]
fn a_stranger_draws_at_most_three_times_what_it_sent() {
    let mut net = cluster();
    let victim = SocketAddr::from(([192, 0, 2, 1], 53));
    let stranger = Claim { address: victim, id: NodeId(9), life: 1_700_000_000_000_000 };
    let mut announce = vec![0xb6, 1];
    put(stranger, &mut announce);
    announce.extend(0u16.to_be_bytes());
    put(true_of(&net, 0), &mut announce);
    announce.push(7);
    let question = IdentityQuestion { token: 1, id: NodeId(9), life: stranger.life }.to_wire().to_vec();
    for datagram in [announce, question] {
        net.bytes_to.remove(&victim);
        net.inject(victim, address(0), datagram.clone());
        net.run_us(5 * SECOND_US);
        let drawn = net.bytes_to[&victim];
        assert!(drawn <= 3 * datagram.len() as u64, "{} bytes drew {drawn}", datagram.len());
    }
    assert_eq!(net.wrong(), [""; 0]);
}

#[test]
fn an_answer_to_no_question_proves_nothing() {
    let mut net = cluster();
    unmoved_by(&mut net, |net, round| {
        let token = [0, 1, u64::MAX][round % 3];
        let life = net.life(5) + 1 + round as u64;
        let answer = IdentityAnswer { token, id: NodeId(7), life, version: 1, check: 0 };
        vec![(address(5), address(0), answer.to_wire().to_vec())]
    });
    assert_eq!(net.node(0).counts().dropped.count(Dropped::Unrequested), 60);
}

#[test]
fn an_answer_proves_nothing_without_the_token_of_the_question() {
    let mut net = cluster();
    let stranger = SocketAddr::from(([192, 0, 2, 1], 53));
    let life = 1_700_000_000_000_000;
    let question = IdentityQuestion { token: 1, id: NodeId(9), life }.to_wire().to_vec();
    net.inject(stranger, address(0), question);
    net.run_us(10_000);
    assert!(net.bytes_to.contains_key(&stranger), "node 0 asks back");
    for token in [0, 1, u64::MAX] {
        let answer = IdentityAnswer { token, id: NodeId(9), life, version: 1, check: 0 };
        net.inject(stranger, address(0), answer.to_wire().to_vec());
    }
    net.run_us(SECOND_US);
    assert_eq!(net.wrong(), [""; 0]);
    assert_eq!(net.node(0).counts().dropped.count(Dropped::Unrequested), 3);
}

#[test]
fn news_of_a_life_later_than_tomorrow_is_not_even_asked_about() {
    let unknown = SocketAddr::from(([192, 0, 2, 1], 53));
    for (life, is_asked) in [(1_700_000_000_000_000, true), (1 << 53, false)] {
        let mut net = cluster();
        let made_up = Claim { address: unknown, id: NodeId(9), life };
        let source = true_of(&net, 2);
        let news = gossip(source, true_of(&net, 0), &[(made_up, 0, ALIVE)]);
        net.inject(source.address, address(0), news);
        net.run_us(SECOND_US);
        assert_eq!(net.bytes_to.contains_key(&unknown), is_asked, "life {life}");
        let refused = net.node(0).counts().dropped.count(Dropped::Future);
        assert_eq!(refused > 0, !is_asked, "life {life}");
    }
}

#[test]
fn a_made_up_version_does_not_stop_the_list_of_a_member() {
    let mut net = cluster();
    for round in 0..20 {
        let entries: Vec<Held> =
            (0..NODES).map(|place| Held { id: net.id(place), version: u32::MAX }).collect();
        let mut datagram = vec![0; DATAGRAM_MAX];
        let length = write_summary(&entries, true, &mut datagram);
        for to in 0..5 {
            net.inject(address(5), address(to), datagram[..length].to_vec());
        }
        // More groups than fit a step, so the list must be requested.
        net.set_groups(3, round * 300..round * 300 + 300);
        net.run_until_right(5 * SECOND_US);
    }
}

#[test]
fn suspicions_with_any_incarnation_do_not_move_a_view() {
    for incarnation in [0, 1, 1_000, u16::MAX - 1, u16::MAX] {
        let mut net = cluster();
        unmoved_by(&mut net, |net, round| {
            if round % 10 > 0 {
                return Vec::new();
            }
            let (victim, source) = (true_of(net, 5), true_of(net, 2));
            let news = [(victim, incarnation, SUSPECT)];
            let tell = |to| (source.address, address(to), gossip(source, true_of(net, to), &news));
            vec![tell(0), tell(1), tell(5)]
        });
    }
}

#[test]
fn a_forged_list_of_groups_is_corrected_by_its_owner() {
    let mut net = cluster();
    for round in 0..5 {
        let groups = net.group_ids(5);
        let version = 2 + round;
        let check = membership::wire::list_check(&[]);
        let (id, added) = (net.id(5), Vec::new());
        let step = StepParts { id, version: version + 1, check, added: &added, removed: &groups };
        let mut datagram = StepsView::header(1).to_vec();
        let head = datagram.len();
        datagram.resize(head + step.wire_len(), 0);
        step.write(&mut datagram[head..]);
        for to in 0..5 {
            net.inject(address((to + 1) % 5), address(to), datagram.clone());
        }
        net.run_us(50_000);
        assert!(!net.wrong().is_empty(), "the lie is believed at first");
        net.run_until_right(4 * SECOND_US);
        net.set_groups(5, 0..30 + u64::from(round));
        net.run_until_right(4 * SECOND_US);
    }
}

fn listed() -> (Net, MemberFile) {
    let mut text = String::new();
    for place in 0..NODES {
        write!(text, "[[member]]\naddress = \"{}\"\n", address(place)).unwrap();
    }
    let (mut net, file) = (Net::new(4), MemberFile::parse(&text).unwrap());
    for place in 0..NODES {
        net.start_static(place, &file);
        net.set_groups(place, 0..20 + place as u64);
    }
    net.run_until_right(6 * SECOND_US);
    (net, file)
}

#[test]
fn forged_presence_datagrams_move_no_view_of_listed_nodes() {
    let (mut net, _) = listed();
    unmoved_by(&mut net, |net, round| {
        let (id, life) = (net.id(5), net.life(5));
        let truth = Presence { id, life, number: 0, version: 0, check: 0, leaving: false, answer: false };
        let lies = [
            Presence { id: NodeId(7), life: life + 1 + round as u64, number: 1, ..truth },
            Presence { id: NodeId(7), life: 1 << 53, number: 1, ..truth },
            Presence { number: u32::MAX, leaving: true, ..truth },
            Presence { number: u32::MAX, version: u32::MAX, ..truth },
            Presence { id: NodeId(7), life: life - 1, number: 1, ..truth },
        ];
        lies.iter().map(|lie| (address(5), address(0), lie.to_wire().to_vec())).collect()
    });
    net.set_groups(5, 0..1_000);
    net.run_until_right(6 * SECOND_US);
}
