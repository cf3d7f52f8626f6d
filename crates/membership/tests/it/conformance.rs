//! All providers pass the test of providers, and providers with faults do not.

use std::fmt::Write as _;
use std::net::SocketAddr;

use membership::conformance::{Cluster, PLACES, address, check};
use membership::{Gossip, GossipConfig, Me, Member, MemberFile, Output, Static, StaticConfig, View};
use ricochet_core::GroupId;

struct OfGossip;

impl Cluster for OfGossip {
    fn start(&mut self, _: u64, place: usize, me: Me, random_seed: u64) -> Box<dyn View> {
        let seeds = if place == 0 { Vec::new() } else { vec![address(0)] };
        Box::new(Gossip::new(GossipConfig::lan(), me, &seeds, random_seed).unwrap())
    }

    fn settles_us(&self) -> u64 {
        20_000_000
    }
}

struct OfFile;

fn file() -> MemberFile {
    let mut text = String::new();
    (0..PLACES).for_each(|place| writeln!(text, "[[member]]\naddress = \"{}\"", address(place)).unwrap());
    MemberFile::parse(&text).unwrap()
}

impl Cluster for OfFile {
    fn start(&mut self, _: u64, _: usize, me: Me, random_seed: u64) -> Box<dyn View> {
        Box::new(Static::new(StaticConfig::default(), me, &file(), random_seed).unwrap())
    }

    fn settles_us(&self) -> u64 {
        10_000_000
    }
}

#[test]
fn gossip_keeps_what_a_view_promises() {
    (0..10).for_each(|seed| check(&mut OfGossip, seed));
}

#[test]
fn a_file_keeps_what_a_view_promises() {
    (0..10).for_each(|seed| check(&mut OfFile, seed));
}

/// A fault of a provider.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KnowsItself,
    ForgetsNobody,
    RisesForNothing,
    RisesNever,
    HasNoOrder,
    IsDueAlways,
    SpeaksAfterItsEnd,
    LacksAGroup,
}

/// A provider with a fault.
struct Faulty {
    inner: Static,
    fault: Fault,
    me: Member,
    extra: u64,
    /// Everybody that was ever known.
    all: Vec<Member>,
    shown: Vec<Member>,
}

impl Faulty {
    fn known(&self) -> Vec<Member> {
        let mut members: Vec<Member> = View::members(&self.inner).cloned().collect();
        match self.fault {
            Fault::KnowsItself => members.push(self.me.clone()),
            Fault::ForgetsNobody => members.clone_from(&self.all),
            Fault::HasNoOrder => return members.into_iter().rev().collect(),
            Fault::LacksAGroup => {
                for member in &mut members {
                    member.groups = member.groups.iter().copied().skip(1).collect();
                }
            }
            _ => {}
        }
        members.sort_unstable_by_key(|member| member.id);
        members
    }

    fn note(&mut self) {
        for member in View::members(&self.inner) {
            self.all.retain(|other| other.id != member.id);
            self.all.push(member.clone());
        }
        self.shown = self.known();
    }
}

impl View for Faulty {
    fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &[u8], out: &mut dyn Output) {
        View::handle_datagram(&mut self.inner, now_us, from, datagram, out);
        self.note();
    }

    fn handle_timeout(&mut self, now_us: u64, out: &mut dyn Output) {
        View::handle_timeout(&mut self.inner, now_us, out);
        self.extra += u64::from(matches!(self.fault, Fault::RisesForNothing));
        if matches!(self.fault, Fault::SpeaksAfterItsEnd) {
            out.send(if self.me.address == address(0) { address(1) } else { address(0) }, b"hello");
        }
        self.note();
    }

    fn poll_timeout(&self) -> Option<u64> {
        if matches!(self.fault, Fault::IsDueAlways) { Some(0) } else { View::poll_timeout(&self.inner) }
    }

    fn set_groups(&mut self, now_us: u64, groups: &[GroupId], out: &mut dyn Output) {
        View::set_groups(&mut self.inner, now_us, groups, out);
    }

    fn leave(&mut self, now_us: u64, out: &mut dyn Output) {
        View::leave(&mut self.inner, now_us, out);
    }

    fn version(&self) -> u64 {
        if matches!(self.fault, Fault::RisesNever) { 1 } else { View::version(&self.inner) + self.extra }
    }

    fn members(&self) -> Box<dyn Iterator<Item = &Member> + '_> {
        Box::new(self.shown.iter())
    }
}

struct OfFault(Fault);

impl Cluster for OfFault {
    fn start(&mut self, _: u64, _: usize, me: Me, random_seed: u64) -> Box<dyn View> {
        let inner = Static::new(StaticConfig::default(), me, &file(), random_seed).unwrap();
        let own = Member { id: me.id, address: me.address, groups: [].into() };
        Box::new(Faulty { inner, fault: self.0, me: own, extra: 0, all: Vec::new(), shown: Vec::new() })
    }

    fn settles_us(&self) -> u64 {
        10_000_000
    }
}

#[test]
fn a_provider_with_a_fault_does_not_pass() {
    for (fault, said) in [
        (Fault::KnowsItself, "saw the node itself"),
        (Fault::ForgetsNobody, "a node that has left"),
        (Fault::RisesForNothing, "expected no change while nothing happens"),
        (Fault::RisesNever, "after a change of members"),
        (Fault::HasNoOrder, "expected each id once, in order"),
        (Fault::IsDueAlways, "expected a later time after handle_timeout"),
        (Fault::SpeaksAfterItsEnd, "expected silence"),
        (Fault::LacksAGroup, "groups that were joined"),
    ] {
        let checked = std::panic::catch_unwind(|| check(&mut OfFault(fault), 1));
        let text = checked.expect_err(&format!("{fault:?} passes"));
        let constant = text.downcast_ref::<&str>().copied();
        let text = text.downcast_ref::<String>().map(String::as_str).or(constant).unwrap_or_default();
        assert!(text.contains(said), "{fault:?}: {text}");
    }
}
