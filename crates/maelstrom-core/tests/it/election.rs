//! The holders of a rack's parts, in virtual time: members that die, return, stall, flap, or cannot hear
//! each other, and datagrams of others.

mod handover;

use std::collections::VecDeque;
use std::net::SocketAddr;

use maelstrom_core::PeerKey;
use maelstrom_core::counters::Unheeded;
use maelstrom_core::rack::{Member, Part, Rack, RackConfig, RackEvent, Standing, by_hand, by_hash};

/// One-way delay on the LAN.
const DELAY_US: u64 = 200;
/// Time that a far gateway takes to learn what a member holds.
const ROUND_TRIP_US: u64 = 83_000;
/// Step of virtual time.
const STEP_US: u64 = 5_000;
const SECOND_US: u64 = 1_000_000;

fn at(member: usize) -> SocketAddr {
    SocketAddr::from(([10, 81, 1, member as u8 + 1], 4702))
}

fn config(own: usize, members: usize, parts: fn(&[&str]) -> Vec<Part>) -> RackConfig {
    let name = |number: usize| ["east-1", "east-2", "east-3"][number].to_owned();
    let members: Vec<Member> =
        (0..members).map(|number| Member { name: name(number), address: at(number) }).collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let parts = parts(&names);
    RackConfig { own, members, parts, key: PeerKey::new([8; 32]) }
}

/// One part for each member.
fn one_each(names: &[&str]) -> Vec<Part> {
    let networks: Vec<_> =
        (0..names.len()).map(|part| vec![format!("10.82.{part}.0/24").parse().unwrap()]).collect();
    by_hand(names, &networks)
}

struct Process {
    rack: Rack,
    /// Since when it holds each part.
    since_us: Vec<Option<u64>>,
    /// Its clock is this far ahead.
    clock_us: u64,
}

struct Flight {
    due_us: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

struct Lan {
    now_us: u64,
    parts: fn(&[&str]) -> Vec<Part>,
    processes: Vec<Option<Process>>,
    starts: u8,
    /// Members that stand still.
    frozen: Vec<bool>,
    /// Members whose far gateway is up.
    wan: Vec<bool>,
    /// Whether datagrams of the first member reach the second.
    hears: Box<dyn Fn(u64, usize, usize) -> bool>,
    wire: VecDeque<Flight>,
    /// All heartbeats so far.
    sent: Vec<(usize, usize, Vec<u8>)>,
    events: Vec<(u64, usize, RackEvent)>,
}

impl Lan {
    fn new(members: usize, parts: fn(&[&str]) -> Vec<Part>) -> Self {
        let mut lan = Self {
            now_us: 7 * SECOND_US,
            parts,
            processes: (0..members).map(|_| None).collect(),
            starts: 0,
            frozen: vec![false; members],
            wan: vec![true; members],
            hears: Box::new(|_, _, _| true),
            wire: VecDeque::new(),
            sent: Vec::new(),
            events: Vec::new(),
        };
        (0..members).for_each(|member| lan.start(member));
        lan
    }

    /// Three members, each of which holds its own part.
    fn settled() -> Self {
        let mut lan = Self::new(3, one_each);
        lan.advance(2 * SECOND_US);
        for part in 0..3 {
            assert_eq!(lan.protectors(part), [part]);
        }
        lan
    }

    fn start(&mut self, member: usize) {
        self.starts += 1;
        let clock_us = 1_000_000_000 * member as u64 + 333 * u64::from(self.starts);
        let config = config(member, self.processes.len(), self.parts);
        let since_us = vec![None; config.parts.len()];
        let rack = Rack::new(self.now_us + clock_us, config, [self.starts; 32]);
        self.processes[member] = Some(Process { rack, since_us, clock_us });
    }

    fn kill(&mut self, member: usize) {
        self.processes[member] = None;
    }

    /// Another process takes a member's place. Its far gateway notices nothing.
    fn hand_over(&mut self, member: usize) {
        self.starts += 1;
        let Process { rack, since_us, clock_us } = self.processes[member].take().unwrap();
        let (config, left) = (rack.config().clone(), rack.hand_over());
        let rack = Rack::resume(self.now_us + clock_us, config, [self.starts; 32], &left);
        self.processes[member] = Some(Process { rack, since_us, clock_us });
    }

    fn rack(&self, member: usize) -> &Rack {
        &self.processes[member].as_ref().unwrap().rack
    }

    /// Members that hold a part, and whose far gateway knows it.
    fn protectors(&self, part: usize) -> Vec<usize> {
        let protects = |member: &usize| {
            let process = self.processes[*member].as_ref();
            process.is_some_and(|process| is_known(process.since_us[part], self.now_us)) && self.wan[*member]
        };
        (0..self.processes.len()).filter(protects).collect()
    }

    fn advance(&mut self, by_us: u64) {
        self.advance_with(by_us, |_| ());
    }

    /// Lets time pass, and looks after each step.
    fn advance_with(&mut self, by_us: u64, mut look: impl FnMut(&Self)) {
        let end_us = self.now_us + by_us;
        while self.now_us < end_us {
            self.now_us += STEP_US;
            self.step();
            look(self);
        }
    }

    fn step(&mut self) {
        for _ in 0..100 {
            (0..self.processes.len()).for_each(|member| self.turn(member));
            if !self.deliver() {
                return;
            }
        }
        panic!("the members exchange heartbeats without end");
    }

    fn turn(&mut self, member: usize) {
        let Some(process) = self.processes[member].as_mut().filter(|_| !self.frozen[member]) else { return };
        let (now_us, is_ready) = (self.now_us, self.wan[member]);
        let Process { rack, since_us, clock_us } = process;
        let parts = rack.config().parts.clone();
        let number = |part: &Part| parts.iter().position(|one| one.name == part.name).unwrap();
        rack.handle_timeout(now_us + *clock_us, |part| {
            let is_protected = is_ready && is_known(since_us[number(part)], now_us);
            Standing { is_ready, is_protected }
        });
        while let Some(event) = rack.poll_event() {
            match event {
                RackEvent::Taken(part) => since_us[part] = Some(now_us),
                RackEvent::Released(part) => since_us[part] = None,
                _ => {}
            }
            self.events.push((now_us, member, event));
        }
        while let Some((to, datagram)) = rack.poll_datagram() {
            let to = (0..self.frozen.len()).find(|&other| at(other) == to).unwrap();
            self.sent.push((member, to, datagram.to_vec()));
            if (self.hears)(now_us, member, to) {
                let due_us = now_us + DELAY_US;
                self.wire.push_back(Flight { due_us, from: member, to, bytes: datagram.to_vec() });
            }
        }
    }

    /// Delivers what is due; returns whether there was anything.
    fn deliver(&mut self) -> bool {
        let mut is_any = false;
        for _ in 0..self.wire.len() {
            let Some(flight) = self.wire.pop_front() else { break };
            // Datagrams for a member that stands still wait at its socket.
            if flight.due_us > self.now_us + STEP_US || self.frozen[flight.to] {
                self.wire.push_back(flight);
                continue;
            }
            is_any = true;
            self.inject(flight.from, flight.to, &flight.bytes);
        }
        is_any
    }

    /// Delivers a datagram from the address of a member.
    fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if let Some(process) = &mut self.processes[to] {
            let now_us = self.now_us + process.clock_us;
            process.rack.handle_datagram(now_us, at(from), &mut bytes.to_vec());
        }
    }

    fn count(&self, member: usize, wanted: fn(&RackEvent) -> bool) -> usize {
        self.events.iter().filter(|(_, one, event)| *one == member && wanted(event)).count()
    }
}

fn is_known(since_us: Option<u64>, now_us: u64) -> bool {
    since_us.is_some_and(|since_us| now_us >= since_us + ROUND_TRIP_US)
}

#[test]
fn a_part_of_a_dead_member_is_taken_by_the_next_within_a_second() {
    for dead in 0..3 {
        let mut lan = Lan::settled();
        let order = lan.rack(0).config().parts[dead].order.clone();
        assert_eq!(order[0], dead);
        lan.kill(dead);
        lan.advance(SECOND_US - ROUND_TRIP_US);
        lan.advance(ROUND_TRIP_US);
        assert_eq!(lan.protectors(dead), [order[1]]);
        // The third takes both parts when the second dies too.
        lan.kill(order[1]);
        lan.advance(SECOND_US);
        assert_eq!((0..3).map(|part| lan.protectors(part)).collect::<Vec<_>>(), vec![vec![order[2]]; 3]);
    }
}

#[test]
fn the_parts_of_a_member_that_stops_are_taken_at_once() {
    let mut lan = Lan::settled();
    lan.processes[1].as_mut().unwrap().rack.leave();
    while let Some((to, datagram)) = lan.processes[1].as_mut().unwrap().rack.poll_datagram() {
        let to = (0..3).find(|&other| at(other) == to).unwrap();
        lan.inject(1, to, &datagram);
    }
    lan.kill(1);
    lan.advance(ROUND_TRIP_US + 4 * STEP_US);
    assert_eq!(lan.protectors(1), [lan.rack(0).config().parts[1].order[1]]);
}

#[test]
fn a_member_that_returns_gets_its_part_back_without_a_gap() {
    let mut lan = Lan::settled();
    lan.kill(1);
    lan.advance(3 * SECOND_US);
    lan.start(1);
    let mut both = 0;
    lan.advance_with(3 * SECOND_US, |lan| {
        for part in 0..3 {
            assert!(!lan.protectors(part).is_empty(), "nobody protects part {part} at {}", lan.now_us);
        }
        both += usize::from(lan.protectors(1).len() == 2);
    });
    assert_eq!((0..3).map(|part| lan.protectors(part)).collect::<Vec<_>>(), [[0], [1], [2]]);
    assert!(both > 0, "the deputy lets go after the owner has begun");
}

#[test]
fn members_that_cannot_hear_each_other_protect_all_and_agree_again_later() {
    let mut lan = Lan::settled();
    lan.hears = Box::new(|_, from, to| (from == 2) == (to == 2));
    lan.advance(2 * SECOND_US);
    assert!(lan.protectors(2).contains(&2) && lan.protectors(2).len() == 2);
    assert!(lan.protectors(0).contains(&0) && lan.protectors(0).contains(&2));
    lan.hears = Box::new(|_, _, _| true);
    lan.advance_with(3 * SECOND_US, |lan| {
        assert!((0..3).all(|part| !lan.protectors(part).is_empty()), "a gap at {}", lan.now_us);
    });
    assert_eq!((0..3).map(|part| lan.protectors(part)).collect::<Vec<_>>(), [[0], [1], [2]]);
}

#[test]
fn a_member_that_is_heard_and_hears_nothing_leaves_no_part_alone() {
    let mut lan = Lan::settled();
    lan.hears = Box::new(|_, _, to| to != 0);
    lan.advance_with(5 * SECOND_US, |lan| {
        assert!((0..3).all(|part| !lan.protectors(part).is_empty()), "a gap at {}", lan.now_us);
    });
}

#[test]
fn a_member_that_stood_still_takes_nothing_and_gets_its_part_back() {
    let mut lan = Lan::settled();
    lan.frozen[0] = true;
    lan.advance(5 * SECOND_US);
    assert_eq!(lan.protectors(0).len(), 2, "the next has taken its part, and it does not know");
    lan.frozen[0] = false;
    lan.advance(SECOND_US);
    assert_eq!((0..3).map(|part| lan.protectors(part)).collect::<Vec<_>>(), [[0], [1], [2]]);
    assert_eq!(lan.count(0, |event| matches!(event, RackEvent::Gone(_))), 0, "the others were there");
}

#[test]
fn a_member_without_its_far_gateway_leaves_its_part_to_one_that_has_it() {
    let mut lan = Lan::settled();
    lan.wan[2] = false;
    lan.advance(SECOND_US);
    let next = lan.rack(0).config().parts[2].order[1];
    assert_eq!(lan.protectors(2), [next]);
    lan.wan[2] = true;
    lan.advance(SECOND_US);
    assert_eq!(lan.protectors(2), [2]);
    // If nobody has it, nobody moves.
    let before = lan.events.len();
    lan.wan = vec![false; 3];
    lan.advance(3 * SECOND_US);
    lan.wan = vec![true; 3];
    lan.advance(SECOND_US);
    assert_eq!(lan.events.len(), before, "{:?}", &lan.events[before..]);
}

#[test]
fn a_member_that_comes_and_goes_gets_its_part_back_later_each_time() {
    let mut lan = Lan::settled();
    // Its heartbeats come for 0.7 s of each 1.4 s.
    lan.hears = Box::new(|now_us, from, _| from != 0 || now_us / 700_000 % 2 == 0);
    lan.advance_with(60 * SECOND_US, |lan| assert!(!lan.protectors(0).is_empty()));
    let next = lan.rack(0).config().parts[0].order[1];
    let released = lan.count(next, |event| matches!(event, RackEvent::Released(0)));
    let gone = lan.count(next, |event| matches!(event, RackEvent::Gone(0)));
    assert!(gone > 30 && released <= 2, "{released} of {gone}");
    lan.hears = Box::new(|_, _, _| true);
    lan.advance(20 * SECOND_US);
    assert_eq!(lan.protectors(0), [0]);
}

#[test]
fn records_of_a_dead_member_do_not_keep_it_alive() {
    let mut lan = Lan::settled();
    lan.kill(0);
    let record: Vec<_> = lan.sent.iter().filter(|(from, ..)| *from == 0).cloned().collect();
    assert!(record.len() > 20);
    let heartbeats = lan.sent.len();
    for _ in 0..20 {
        for (from, to, bytes) in &record {
            lan.inject(*from, *to, bytes);
        }
        lan.advance(100_000);
    }
    let next = lan.rack(1).config().parts[0].order[1];
    assert_eq!(lan.protectors(0), [next]);
    assert!(lan.rack(1).unheeded().iter().any(|(reason, count)| reason == Unheeded::Replayed && count > 100));
    assert!(lan.sent.len() < heartbeats + 2_000, "a record is not multiplied");
    // The member starts again while its record goes on: it is heard all the same.
    lan.start(0);
    for _ in 0..30 {
        for (from, to, bytes) in &record {
            lan.inject(*from, *to, bytes);
        }
        lan.advance(100_000);
    }
    assert_eq!(lan.protectors(0), [0]);
    // And a record of its earlier start does not end it.
    let before = lan.events.len();
    record.iter().for_each(|(from, to, bytes)| lan.inject(*from, *to, bytes));
    lan.advance(SECOND_US);
    assert_eq!(lan.events.len(), before, "{:?}", &lan.events[before..]);
}

#[test]
fn a_member_that_starts_takes_no_record_for_a_living_one() {
    let mut lan = Lan::settled();
    let record: Vec<_> = lan.sent.iter().filter(|(from, ..)| *from == 0).cloned().collect();
    for member in 0..3 {
        lan.kill(member);
    }
    lan.start(1);
    for (from, to, bytes) in &record {
        lan.inject(*from, *to, bytes);
        lan.advance(50_000);
        assert!(!lan.rack(1).is_present(0), "it cannot know the token of this start");
    }
    assert_eq!((0..3).map(|part| lan.protectors(part)).collect::<Vec<_>>(), [[1], [1], [1]]);
}

#[test]
fn datagrams_of_others_change_nothing() {
    let mut lan = Lan::settled();
    let before = lan.events.len();
    // A member with another key, a member of another rack's file, mirrored and misdirected heartbeats.
    let mut stranger =
        Rack::new(0, RackConfig { key: PeerKey::new([9; 32]), ..config(0, 3, one_each) }, [90; 32]);
    let mut other =
        Rack::new(0, config(0, 3, |names| by_hash(names, &[&["10.82.0.0/16".parse().unwrap()]])), [91; 32]);
    for step in 0..40 {
        for rack in [&mut stranger, &mut other] {
            rack.handle_timeout(step * 100_000, |_| Standing { is_ready: true, is_protected: true });
            while let Some((_, datagram)) = rack.poll_datagram() {
                (1..3).for_each(|to| lan.inject(0, to, &datagram));
            }
        }
        let sent = lan.sent[lan.sent.len() - 4..].to_vec();
        for (from, to, bytes) in &sent {
            lan.inject(*to, *from, bytes);
            lan.inject(*from, *from, bytes);
            lan.inject((*to + 1) % 3, *to, bytes);
            lan.inject(*from, (*to + 1) % 3, bytes);
            for cut in [0, 1, 14, bytes.len() - 1] {
                lan.inject(*from, *to, &bytes[..cut]);
            }
        }
        lan.advance(50_000);
    }
    assert_eq!(lan.events.len(), before, "{:?}", &lan.events[before..]);
    let counts = lan.rack(1).unheeded();
    for wanted in [
        Unheeded::Forged,
        Unheeded::OtherRack,
        Unheeded::Misdirected,
        Unheeded::Stranger,
        Unheeded::Malformed,
    ] {
        assert!(counts.iter().any(|(reason, count)| reason == wanted && count > 0), "{wanted}: {counts:?}");
    }
}

#[test]
fn a_member_with_another_file_is_named_and_takes_nothing_from_others() {
    let mut lan = Lan::settled();
    lan.parts = |names| by_hash(names, &[&["10.82.0.0/22".parse().unwrap()]]);
    lan.kill(0);
    lan.start(0);
    lan.advance(3 * SECOND_US);
    for member in [1, 2] {
        assert!(lan.rack(member).differs(0) && !lan.rack(member).is_present(0));
        assert_eq!(lan.count(member, |event| *event == RackEvent::Differs(0)), 1);
    }
    assert!(lan.rack(0).differs(1) && lan.rack(0).differs(2));
    // It gets the same file, and a record of its heartbeats with the other one shows nothing.
    lan.parts = one_each;
    lan.kill(0);
    lan.start(0);
    lan.advance(3 * SECOND_US);
    assert!(!lan.rack(1).differs(0) && lan.rack(1).is_present(0));
    let before = lan.events.len();
    for (from, to, bytes) in lan.sent.clone() {
        if (from, to) == (0, 1) {
            lan.inject(0, 1, &bytes);
        }
    }
    lan.advance(SECOND_US);
    assert_eq!(lan.events.len(), before, "{:?}", &lan.events[before..]);
    assert!(!lan.rack(1).differs(0) && lan.rack(1).is_present(0));
}

#[test]
fn a_far_gateway_that_comes_and_goes_moves_a_part_ever_more_rarely() {
    let mut lan = Lan::settled();
    let taken = |lan: &Lan| lan.count(0, |event| *event == RackEvent::Taken(0));
    let before = taken(&lan);
    for _ in 0..12 {
        for is_up in [false, true] {
            lan.wan[0] = is_up;
            lan.advance(2 * SECOND_US);
        }
    }
    let moves = taken(&lan) - before;
    assert!((1..=4).contains(&moves), "{moves} of 12");
    lan.advance(40 * SECOND_US);
    assert_eq!(lan.protectors(0), [0]);
}

#[test]
fn pieces_of_networks_have_one_holder_each_whoever_dies() {
    let pieces = |names: &[&str]| by_hash(names, &[&["10.82.0.0/16".parse().unwrap()]]);
    let mut lan = Lan::new(3, pieces);
    lan.advance(2 * SECOND_US);
    let holders = |lan: &Lan| -> Vec<usize> {
        (0..16)
            .map(|part| if let [one] = lan.protectors(part)[..] { one } else { panic!("part {part}") })
            .collect()
    };
    let before = holders(&lan);
    lan.kill(2);
    lan.advance(SECOND_US);
    let after = holders(&lan);
    assert!(before.contains(&2) && !after.contains(&2));
    assert!(before.iter().zip(&after).all(|(before, after)| *before == 2 || before == after));
    lan.start(2);
    lan.advance(2 * SECOND_US);
    assert_eq!(holders(&lan), before);
}
