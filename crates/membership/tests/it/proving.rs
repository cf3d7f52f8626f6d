//! Nodes with a provider that sends nothing still prove which life they are.

use std::net::SocketAddr;

use membership::conformance::{Cluster, address, check};
use membership::counters::Dropped;
use membership::wire::IdentityAnswer;
use membership::{Gossip, GossipConfig, Me, News, Output, Proving, Registered, Registration, View};
use ricochet_core::NodeId;

#[derive(Default)]
struct Sent(Vec<(SocketAddr, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        self.0.push((to, datagram.to_vec()));
    }
}

fn me(place: usize) -> Me {
    Me { id: NodeId(place as u32 + 1), address: address(place), life: 100 }
}

fn node(place: usize) -> Proving {
    let mut view = Registered::new(me(place), 0).unwrap();
    let other = Registration { address: address(1), id: NodeId(2), life: 100, groups: [].into() };
    view.handle_news(0, [News::All(vec![other])]);
    Proving::new(me(place), Box::new(view), place as u64).unwrap()
}

/// Returns the datagrams that are due.
fn due(node: &mut Proving, now_us: u64) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut sent = Sent::default();
    node.handle_timeout(now_us, &mut sent);
    sent.0
}

#[test]
fn a_node_that_is_asked_proves_its_life() {
    let (mut asking, mut asked) = (node(0), node(1));
    assert!(asking.members().map(|member| member.id).eq([NodeId(2)]));
    assert_eq!(asking.poll_timeout(), None);
    asking.ask(5, address(1));
    assert_eq!(asking.poll_timeout(), Some(5));
    let questions = due(&mut asking, 5);
    assert_eq!(questions.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [address(1)]);
    let mut answers = Sent::default();
    asked.handle_datagram(6, address(0), &questions[0].1, &mut answers);
    assert_eq!((answers.0.len(), answers.0[0].0), (1, address(0)));
    assert_eq!(asked.take_proven(), None, "a question proves nothing");
    asking.handle_datagram(7, address(1), &answers.0[0].1, &mut Sent::default());
    assert_eq!((asking.take_proven(), asking.take_proven()), (Some(address(1)), None));
    assert!(due(&mut asking, 1_000_000).is_empty(), "it has answered");
    // A later life at the same address is asked again.
    asking.ask(2_000_000, address(1));
    assert_eq!(due(&mut asking, 2_000_000).len(), 1);
}

#[test]
fn an_answer_to_no_question_proves_nothing() {
    let mut node = node(0);
    node.ask(0, address(1));
    due(&mut node, 0);
    let answer = |token| IdentityAnswer { token, id: NodeId(2), life: 100, version: 0, check: 0 }.to_wire();
    node.handle_datagram(1, address(1), &answer(7), &mut Sent::default());
    node.handle_datagram(1, address(2), &answer(7), &mut Sent::default());
    node.handle_datagram(1, address(0), &answer(7), &mut Sent::default());
    assert_eq!(node.take_proven(), None);
    let dropped = node.counts().dropped;
    assert_eq!((dropped.count(Dropped::Unrequested), dropped.count(Dropped::Own)), (2, 1));
}

#[test]
fn an_address_that_does_not_answer_is_asked_three_times() {
    let mut node = node(0);
    node.ask(0, address(4));
    let asked: usize = (0..1_000).map(|step| due(&mut node, step * 1_000).len()).sum();
    assert_eq!((asked, node.poll_timeout()), (3, None));
}

#[test]
fn a_node_that_has_left_is_silent() {
    let (mut asking, mut left) = (node(0), node(1));
    asking.ask(0, address(1));
    let (_, question) = due(&mut asking, 0).remove(0);
    let mut sent = Sent::default();
    left.leave(1, &mut sent);
    left.ask(1, address(0));
    left.handle_datagram(1, address(0), &question, &mut sent);
    left.handle_timeout(2, &mut sent);
    assert_eq!((sent.0.len(), left.poll_timeout()), (0, None));
}

struct OfGossip;

impl Cluster for OfGossip {
    fn start(&mut self, _: u64, place: usize, me: Me, random_seed: u64) -> Box<dyn View> {
        let seeds = if place == 0 { Vec::new() } else { vec![address(0)] };
        let gossip = Gossip::new(GossipConfig::lan(), me, &seeds, random_seed).unwrap();
        Box::new(Proving::new(me, Box::new(gossip), random_seed).unwrap())
    }

    fn settles_us(&self) -> u64 {
        20_000_000
    }
}

#[test]
fn a_provider_that_proves_lives_itself_does_what_it_did() {
    (0..3).for_each(|seed| check(&mut OfGossip, seed));
}
