use super::*;
use crate::patterns::wire::NamesDatagram;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

/// Two members of one group, at address 5, and what the network drops.
struct Net {
    nodes: [Greetings; 2],
    now_us: u64,
    /// Whether multicast reaches the second.
    multicast_passes: bool,
    /// Addresses at which other datagrams come.
    /// `None`: the node has not looked.
    seen: Option<u64>,
    sent: usize,
}

fn address(at: usize) -> SocketAddr {
    ([10, 0, 0, at as u8 + 1], 7_900).into()
}

fn settings() -> Settings {
    Settings {
        unicast: false,
        group_port: 7_911,
        group_addresses: 64,
        groups_base: "239.255.79.0".parse().unwrap(),
        datagram_max: 1_452,
    }
}

impl Net {
    fn new(other: Settings) -> Self {
        let node = |at: usize, settings| {
            let mut node = Greetings::new(NodeId(at as u32), settings);
            let other = 1 - at;
            node.set_members(0, [(NodeId(other as u32), address(other), 1 << 5)].into_iter());
            node
        };
        let nodes = [node(0, settings()), node(1, other)];
        Self { nodes, now_us: 0, multicast_passes: true, seen: Some(0), sent: 0 }
    }

    fn run(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while self.now_us < end_us {
            self.now_us += 1_000;
            for at in 0..2 {
                let mut sent = Vec::new();
                self.nodes[at].handle_timeout(self.now_us, |to, bytes| sent.push((to, bytes.to_vec())));
                self.sent += sent.len();
                for (to, bytes) in sent {
                    let greeting = Greeting::read(&bytes).unwrap();
                    let passes = match to {
                        Destination::Multicast(number) => number == 5 && (at == 1 || self.multicast_passes),
                        Destination::Member(to) => to == address(1 - at),
                    };
                    if !passes {
                        continue;
                    }
                    if let Some(answer) =
                        self.nodes[1 - at].handle(self.now_us, address(at), &greeting, self.seen)
                    {
                        assert_eq!(self.nodes[at].handle(self.now_us, address(1 - at), &answer, None), None);
                    }
                }
            }
        }
    }

    fn finding(&self, at: usize) -> Finding {
        self.nodes[at].findings(false).next().map(|(_, finding)| finding).unwrap_or_default()
    }
}

#[test]
fn members_that_hear_each_other_are_rarely_asked() {
    let mut net = Net::new(settings());
    net.run(1_000_000);
    assert_eq!(net.sent, 0, "nobody has sent anything");
    net.nodes[0].set_sent_to(net.now_us, 1 << 5);
    assert!(!net.nodes[0].is_settled());
    net.run(20_000_000);
    assert!(net.nodes[0].is_settled());
    // A question, and another one with a call, since there was no message.
    assert_eq!((net.sent, net.finding(0), net.finding(1)), (3, Finding::default(), Finding::default()));
    assert!(net.nodes[0].take_news().is_empty() && net.nodes[1].take_news().is_empty());
}

#[test]
fn a_member_whose_multicast_is_filtered_is_found_and_returns() {
    let mut net = Net::new(settings());
    net.multicast_passes = false;
    net.nodes[0].set_sent_to(0, 1 << 5 | 1 << 9);
    net.run(1_000_000);
    assert!(net.nodes[0].is_settled());
    assert_eq!(net.nodes[0].take_deaf(), Some(vec![(address(1), NodeId(1), 1 << 5)]));
    assert_eq!(net.nodes[0].take_news(), [News::Deaf(address(1))]);
    assert_eq!(net.nodes[1].take_news(), [News::Unheard(address(0))]);
    assert!(net.finding(0).is_deaf && net.finding(1).is_unheard);
    net.run(20_000_000);
    assert_eq!((net.nodes[0].take_deaf(), net.nodes[0].take_news()), (None, vec![]), "told once");
    net.multicast_passes = true;
    net.run(5_000_000);
    assert_eq!(net.nodes[0].take_deaf(), Some(vec![]));
    assert_eq!(net.nodes[0].take_news(), [News::Hears(address(1))]);
    // The other one learns that there are no copies any more.
    assert_eq!(net.nodes[1].take_news(), [News::Heard(address(0))]);
    assert_eq!((net.finding(0), net.finding(1)), (Finding::default(), Finding::default()));
    // A filter that comes later is found too.
    net.multicast_passes = false;
    net.run(CHECK_US + 1_000_000);
    assert_eq!(net.nodes[0].take_news(), [News::Deaf(address(1))]);
}

#[test]
fn a_member_that_loses_calls_and_hears_other_packets_is_not_deaf() {
    let mut net = Net::new(settings());
    net.nodes[0].set_sent_to(0, 1 << 5);
    (net.multicast_passes, net.seen) = (false, Some(1 << 5));
    net.run(100_000_000);
    assert!(net.nodes[0].is_settled() && net.nodes[0].take_news().is_empty());
    assert!(net.sent < 20, "{}", net.sent);
    // Calls of long ago, and packets at another address, show nothing.
    net.seen = Some(1 << 6);
    net.run(CHECK_US + 1_000_000);
    assert_eq!(net.nodes[0].take_news(), [News::Deaf(address(1))]);
    net.seen = Some(1 << 5);
    net.run(5_000_000);
    assert_eq!(net.nodes[0].take_news(), [News::Hears(address(1))]);
}

#[test]
fn a_member_that_reads_nothing_for_a_while_is_not_deaf_and_its_filter_is_found_afterwards() {
    let mut net = Net::new(settings());
    net.nodes[0].set_sent_to(0, 1 << 5);
    (net.multicast_passes, net.seen) = (false, None);
    net.run(20_000_000);
    assert!(net.nodes[0].is_settled(), "nobody waits for it");
    assert_eq!((net.nodes[0].take_news(), net.finding(1)), (vec![], Finding::default()));
    net.seen = Some(0);
    net.run(40_000_000);
    assert_eq!(net.nodes[0].take_news(), [News::Deaf(address(1))]);
}

/// A node that sends to 64 addresses for the first time, one after the other, and a member that hears all of
/// it; returns the numbers of questions and calls. `by_messages`: whether messages show it.
fn beginning(by_messages: bool) -> (usize, usize) {
    let mut nodes = [0, 1].map(|at| {
        let mut node = Greetings::new(NodeId(at), settings());
        let other = 1 - at;
        node.set_members(0, [(NodeId(other), address(other as usize), u64::MAX)].into_iter());
        node
    });
    let (mut questions, mut calls) = (0, 0);
    for step in 0..4_000_u64 {
        let now_us = step * 1_000;
        let sent_to = u64::MAX >> (63 - (step / 10).min(63));
        nodes[0].set_sent_to(now_us, sent_to);
        let mut sent = Vec::new();
        nodes[0].handle_timeout(now_us, |to, bytes| sent.push((to, Greeting::read(bytes).unwrap())));
        for (to, greeting) in sent {
            let is_call = matches!(to, Destination::Multicast(_));
            (questions, calls) = (questions + usize::from(!is_call), calls + usize::from(is_call));
            let seen = Some(if by_messages { sent_to } else { 0 });
            if let Some(answer) = nodes[1].handle(now_us, address(0), &greeting, seen) {
                nodes[0].handle(now_us, address(1), &answer, None);
            }
        }
    }
    assert!(nodes[0].is_settled() && nodes[0].take_news().is_empty());
    assert_eq!(nodes[0].findings(true).next().unwrap().1.hears, Some(true));
    (questions, calls)
}

#[test]
fn a_node_that_begins_to_send_to_many_addresses_calls_at_each_once_at_most() {
    let (questions, calls) = beginning(true);
    assert!(questions <= 4 && calls == 0, "{questions} {calls}");
    let (questions, calls) = beginning(false);
    assert!(questions <= 10 && calls == 64, "{questions} {calls}");
}

#[test]
fn a_filter_is_found_also_by_a_node_that_goes_on_to_further_addresses_and_by_late_answers() {
    for late in [false, true] {
        let mut node = Greetings::new(NodeId(0), settings());
        node.set_members(0, [(NodeId(1), address(1), u64::MAX)].into_iter());
        let (mut found_us, mut answers) = (None, Vec::new());
        for step in 0..6_000_u64 {
            let now_us = step * 1_000;
            node.set_sent_to(now_us, u64::MAX >> (63 - (step / 300).min(63)));
            let mut rounds = Vec::new();
            node.handle_timeout(now_us, |_, bytes| {
                if let Greeting::Question(body) = Greeting::read(bytes).unwrap() {
                    rounds.push(body.round);
                }
            });
            let delay_us = if late { 300_000 } else { 1_000 };
            answers.extend(rounds.into_iter().map(|round| (now_us + delay_us, round)));
            answers.retain(|&(due_us, round)| {
                let is_due = due_us <= now_us;
                if is_due {
                    let body = Body { from: NodeId(1), round, heard: 0, copies: false, settings: settings() };
                    node.handle(now_us, address(1), &Greeting::Answer(body), None);
                }
                !is_due
            });
            if node.take_news().contains(&News::Deaf(address(1))) {
                found_us.get_or_insert(now_us);
            }
        }
        assert!(found_us.is_some_and(|us| us < 2_000_000), "late {late}: {found_us:?}");
        assert_eq!(node.finding(node.peers.values().next().unwrap()).hears, Some(false));
    }
}

#[test]
fn settings_that_differ_are_named_by_both() {
    let other = Settings { group_port: 7_912, datagram_max: 1_400, unicast: true, ..settings() };
    let mut net = Net::new(other);
    net.nodes[0].set_sent_to(0, 1 << 5);
    net.multicast_passes = false;
    net.run(1_000_000);
    for (at, expected) in [
        (0, "node.group_port is 7911 here and 7912 there"),
        (1, "buffers.datagram_max is 1400 here and 1452 there"),
    ] {
        let finding = net.finding(at);
        assert!(finding.differs.iter().any(|difference| difference == expected), "{finding:?}");
        assert_eq!(finding.differs.len(), 3);
        let news = net.nodes[at].take_news();
        assert!(matches!(&news[0], News::Differs(_, text) if text.contains(expected)), "{news:?}");
    }
    // A node that sends by unicast reaches all, and asks for the settings alone.
    let mut net = Net::new(other);
    net.nodes[1].set_sent_to(0, 1 << 5);
    net.run(5_000_000);
    assert!(net.nodes[1].is_settled() && !net.finding(1).is_deaf);
    assert_eq!((net.finding(1).differs.len(), net.sent), (3, 1));
}

#[test]
fn a_member_that_does_not_answer_is_not_deaf_and_strangers_change_nothing() {
    let mut net = Net::new(settings());
    net.nodes[1].set_members(0, std::iter::empty());
    net.nodes[0].set_sent_to(0, 1 << 5);
    net.run(60_000_000);
    assert!(!net.finding(0).is_deaf && net.nodes[0].take_news().is_empty());
    assert!(net.nodes[0].is_settled(), "nobody waits for it");
    assert!(net.sent < 80, "{} greetings to a member that does not answer", net.sent);
    let question =
        Greeting::Question(Body { from: NodeId(1), round: 1, heard: 0, copies: true, settings: settings() });
    let stranger = ([10, 0, 0, 9], 7_900).into();
    assert_eq!(net.nodes[0].handle(net.now_us, stranger, &question, Some(0)), None);
    assert_eq!(net.finding(0), Finding::default());
}

#[test]
fn greetings_and_names_survive_the_corpus() {
    replay::replay("ricochet_greetings", 6, 3_000, |data| {
        if let Ok(greeting) = Greeting::read(data) {
            let mut written = [0; GREETING_MAX];
            let length = greeting.write(&mut written);
            assert_eq!(written[..length], *data);
        }
        if let Ok(NamesDatagram::Answer(answer)) = NamesDatagram::read(data) {
            assert!(answer.names().count() <= data.len());
        }
    });
}
