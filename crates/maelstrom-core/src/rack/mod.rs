//! A rack: several gateways of one site that share its traffic, and take each other's part over.
//!
//! The traffic is divided into parts by far network (`parts.rs`, thesis §3.3.6). Every member knows all parts
//! and the order in which members take each. Members send each other heartbeats over the LAN (`beat.rs`), and
//! each decides for itself which parts it holds (`Rack::next`):
//!
//! 1. A member takes a part if it is ready for it and no member before it in the order is. Ready means that a
//!    session with a far gateway of the part is up.
//! 2. A member that holds a part keeps it until a member before it protects the part. That member takes it
//!    when the present holder yields, so that a part has a holder all the time as it goes back.
//! 3. Where members do not hear each other, both hold a part. That is safe: the far gateways show packets
//!    that are protected twice to both decoders, and repair each packet toward one gateway.
//!
//! A heartbeat counts if its sender echoes the token that this member has drawn at its start, and if its
//! number is higher than those before. No record of heartbeats therefore keeps a dead member alive.

mod beat;
mod handover;
mod member;
mod parts;

use std::collections::VecDeque;
use std::net::SocketAddr;

use ipnet::IpNet;

pub use beat::BEAT_LEN;
use beat::{Beat, Bits, Says};
pub use handover::{OtherHandover, RackHandover};
use member::{Heard, Other, SILENCE_US};
pub use parts::{PARTS_MAX, Part, by_hand, by_hash};

use crate::counters::{Unheeded, UnheededCounts};
use crate::entropy::Entropy;
use crate::key::{PeerKey, Token};
use crate::session::HelloKey;

/// Maximum number of members.
pub const MEMBERS_MAX: usize = 16;
/// Interval between heartbeats to each member.
const BEAT_US: u64 = 100_000;
/// Minimum interval between decisions, unless a heartbeat brings news.
const TURN_US: u64 = 20_000;
/// Time between two turns from which on this gateway stood still.
const STALL_US: u64 = SILENCE_US / 2;
/// Maximum number of events that wait.
const EVENTS_MAX: usize = 2 * PARTS_MAX;

/// A gateway of the rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its address on the LAN, where heartbeats arrive and from which they leave.
    pub address: SocketAddr,
}

/// Configuration of a rack, the same at all members but for `own`.
#[derive(Clone, Debug)]
pub struct RackConfig {
    /// Number of this gateway among the members.
    pub own: usize,
    /// The members, at most [`MEMBERS_MAX`].
    pub members: Vec<Member>,
    /// The parts, at most [`PARTS_MAX`].
    pub parts: Vec<Part>,
    /// The key that the members share.
    pub key: PeerKey,
}

/// Ability of this gateway to protect a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// A far gateway of the part is up.
    pub is_ready: bool,
    /// Packets to all its networks are protected.
    pub is_protected: bool,
}

/// Something that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RackEvent {
    /// A member is heard.
    Present(usize),
    /// A member is not heard any more.
    Gone(usize),
    /// A member has another rack in its file.
    Differs(usize),
    /// This gateway has taken a part.
    Taken(usize),
    /// This gateway has let a part go.
    Released(usize),
}

/// The rack from the point of view of one member, without I/O or clock. Times are microseconds of a monotonic
/// clock of its own.
pub struct Rack {
    config: RackConfig,
    key: HelloKey,
    /// Numbers of the members' names, and of the rack.
    ids: Vec<u64>,
    id: u64,
    entropy: Entropy,
    token: Token,
    number: u64,
    others: Vec<Other>,
    differs: Vec<bool>,
    holds: Bits,
    says: Says,
    /// Whether another process takes over, so that this one takes and leaves nothing.
    is_leaving: bool,
    /// Time since which this gateway is ready for each part.
    ready_since_us: Vec<Option<u64>>,
    started_us: u64,
    turned_us: Option<u64>,
    next_turn_us: u64,
    next_beat_us: u64,
    datagrams: VecDeque<(SocketAddr, [u8; BEAT_LEN])>,
    events: VecDeque<RackEvent>,
    unheeded: UnheededCounts,
}

impl Rack {
    /// Creates a member that holds nothing.
    ///
    /// # Panics
    /// If there are too many members or parts, or no member `own`.
    pub fn new(now_us: u64, config: RackConfig, entropy: impl Into<Entropy>) -> Self {
        assert!(config.own < config.members.len() && config.members.len() <= MEMBERS_MAX, "members");
        assert!(config.parts.len() <= PARTS_MAX, "parts");
        let mut rack = Self {
            key: HelloKey::of_rack(&config.key),
            ids: config.members.iter().map(|member| parts::number_of(&[&member.name])).collect(),
            id: id_of(&config),
            entropy: entropy.into(),
            token: Token::UNKNOWN,
            number: 0,
            others: config.members.iter().map(|_| Other::default()).collect(),
            differs: vec![false; config.members.len()],
            holds: Bits::default(),
            says: Says::default(),
            is_leaving: false,
            ready_since_us: vec![None; config.parts.len()],
            started_us: now_us,
            turned_us: None,
            next_turn_us: now_us,
            next_beat_us: now_us,
            datagrams: VecDeque::new(),
            events: VecDeque::new(),
            unheeded: UnheededCounts::default(),
            config,
        };
        rack.draw_token();
        rack
    }

    fn draw_token(&mut self) {
        self.token = Token::UNKNOWN;
        while self.token == Token::UNKNOWN {
            self.entropy.fill(&mut self.token.0);
        }
    }

    /// The configuration.
    pub fn config(&self) -> &RackConfig {
        &self.config
    }

    /// Takes a datagram that arrived on the LAN, and decrypts it in place.
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &mut [u8]) {
        if let Err(reason) = self.receive(now_us, from, datagram) {
            self.unheeded.add(reason);
        }
    }

    fn receive(&mut self, now_us: u64, from: SocketAddr, datagram: &mut [u8]) -> Result<(), Unheeded> {
        let is_from = |member: &Member| {
            member.address.port() == from.port() && member.address.ip() == from.ip().to_canonical()
        };
        let sender = self.config.members.iter().position(is_from).ok_or(Unheeded::Stranger)?;
        let beat = Beat::open(&self.key, datagram)?;
        if sender == self.config.own || beat.from != self.ids[sender] {
            return Err(Unheeded::Stranger);
        }
        if beat.to != self.ids[self.config.own] {
            return Err(Unheeded::Misdirected);
        }
        if beat.rack != self.id {
            // It learns from our next heartbeat that the files differ.
            let was_present = self.others[sender].is_present();
            if self.others[sender].accept(self.token, &beat)? && !self.differs[sender] {
                self.differs[sender] = true;
                self.note(RackEvent::Differs(sender));
            }
            if was_present && !self.others[sender].is_present() {
                self.note(RackEvent::Gone(sender));
                self.next_turn_us = 0;
            }
            return Err(Unheeded::OtherRack);
        }
        let heard = self.others[sender].hear(now_us, self.token, &beat)?;
        self.differs[sender] &= matches!(heard, Heard::Unproven { .. });
        match heard {
            Heard::Unproven { answers: true } => self.send_to(sender, beat.token),
            Heard::Unproven { answers: false } => {}
            Heard::Alive { is_news, returns } => {
                if returns {
                    self.note(RackEvent::Present(sender));
                }
                if is_news {
                    self.next_turn_us = 0;
                }
            }
        }
        if self.others[sender].is_full() {
            self.draw_token();
            self.others.iter_mut().for_each(Other::on_own_change);
        }
        Ok(())
    }

    /// Decides what this gateway holds, and sends heartbeats, if it is time. `standing`: what the gateway can
    /// do for a part. Datagrams that have arrived come first.
    pub fn handle_timeout(&mut self, now_us: u64, standing: impl Fn(&Part) -> Standing) {
        if now_us < self.poll_timeout() && now_us < self.next_turn_us {
            return;
        }
        self.next_turn_us = now_us + TURN_US;
        let stalled = self.turned_us.is_some_and(|turned_us| now_us > turned_us + STALL_US);
        self.turned_us = Some(now_us);
        for member in 0..self.others.len() {
            if stalled {
                self.others[member].excuse(now_us);
            }
            if self.others[member].misses(now_us) {
                self.note(RackEvent::Gone(member));
            }
        }
        let before = self.says;
        for part in 0..self.config.parts.len() {
            let standing = standing(&self.config.parts[part]);
            self.says.ready.set(part, standing.is_ready);
            let since_us = self.ready_since_us[part].unwrap_or(now_us);
            self.ready_since_us[part] = standing.is_ready.then_some(since_us);
            let held = self.holds.get(part);
            let stays = (held, self.says.yields.get(part));
            let (holds, yields) = if self.is_leaving { stays } else { self.next(now_us, part) };
            self.holds.set(part, holds);
            self.says.yields.set(part, yields);
            self.says.protects.set(part, holds && held && standing.is_protected);
            match (held, holds) {
                (false, true) => self.note(RackEvent::Taken(part)),
                (true, false) => self.note(RackEvent::Released(part)),
                _ => {}
            }
        }
        if self.says != before || now_us >= self.next_beat_us {
            self.next_beat_us = now_us + BEAT_US;
            self.send_to_all();
        }
    }

    /// Tells the others that this gateway can protect nothing any more, so that they take its parts at once.
    /// The datagrams follow from [`Rack::poll_datagram`].
    pub fn leave(&mut self) {
        (self.holds, self.says) = (Bits::default(), Says::default());
        self.send_to_all();
    }

    fn send_to_all(&mut self) {
        let own = self.config.own;
        for member in (0..self.others.len()).filter(|&member| member != own) {
            self.send_to(member, self.others[member].echo());
        }
    }

    /// Whether this gateway holds a part from here on, and whether it yields it.
    fn next(&self, now_us: u64, part: usize) -> (bool, bool) {
        let order = &self.config.parts[part].order;
        let place = order.iter().position(|&member| member == self.config.own).unwrap_or(order.len());
        let (earlier, later) = (&order[..place], &order[(place + 1).min(order.len())..]);
        let is_settled = |member: usize| self.others[member].is_settled(now_us);
        let says = |member: usize, of: fn(&Says) -> &Bits| {
            self.others[member].says().is_some_and(|says| of(says).get(part))
        };
        let is_ready = |member: &usize| says(*member, |says| &says.ready);
        let protects = |member: &usize| says(*member, |says| &says.protects);
        let yields = |member: &usize| says(*member, |says| &says.yields);
        let is_awaited = earlier.iter().any(is_ready);
        if !self.holds.get(part) {
            let is_kept = later.iter().any(|member| protects(member) && !yields(member));
            return (self.may_take(now_us, part, place) && !is_awaited && !is_kept, false);
        }
        if !self.says.ready.get(part) && earlier.iter().chain(later).any(protects) {
            return (false, false);
        }
        if earlier.iter().any(|member| protects(member) && is_settled(*member)) {
            return (false, false);
        }
        if self.says.yields.get(part) && !is_awaited {
            // The member that it was yielded to may have taken it before it went. Taken again, the part is
            // this gateway's at the far end too.
            return (false, false);
        }
        (true, earlier.iter().any(|member| is_ready(member) && is_settled(*member)))
    }

    /// Whether this gateway can take a part, and knows which members before it are alive and ready: far
    /// gateways come up for all of them within a moment.
    fn may_take(&self, now_us: u64, part: usize, place: usize) -> bool {
        let Some(ready_us) = self.ready_since_us[part] else { return false };
        let mut others = self.others.iter().enumerate().filter(|(member, _)| *member != self.config.own);
        let knows_all = others.all(|(_, other)| other.is_present());
        (knows_all || now_us >= self.started_us + SILENCE_US)
            && (place == 0 || now_us >= ready_us + SILENCE_US)
    }

    fn send_to(&mut self, member: usize, echo: Token) {
        // The driver takes them at once; a burst of forged datagrams adds none.
        if self.datagrams.len() >= 4 * MEMBERS_MAX {
            return;
        }
        self.number += 1;
        let (from, to) = (self.ids[self.config.own], self.ids[member]);
        let (rack, token, number, says) = (self.id, self.token, self.number, self.says);
        let mut nonce = [0; 12];
        self.entropy.fill(&mut nonce);
        let datagram = Beat { from, to, rack, token, echo, number, says }.seal(&self.key, nonce);
        self.datagrams.push_back((self.config.members[member].address, datagram));
    }

    fn note(&mut self, event: RackEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    /// Time at which [`Rack::handle_timeout`] is due next, unless the standing of a part changes.
    pub fn poll_timeout(&self) -> u64 {
        if self.next_turn_us == 0 { 0 } else { self.next_beat_us }
    }

    /// Returns the next datagram to send, with its destination.
    pub fn poll_datagram(&mut self) -> Option<(SocketAddr, [u8; BEAT_LEN])> {
        self.datagrams.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<RackEvent> {
        self.events.pop_front()
    }

    /// Whether this gateway holds a part, given by its number.
    pub fn holds(&self, part: usize) -> bool {
        self.holds.get(part)
    }

    /// Networks of all parts that this gateway holds.
    pub fn held(&self) -> Vec<IpNet> {
        let held = self.config.parts.iter().enumerate().filter(|(part, _)| self.holds.get(*part));
        held.flat_map(|(_, part)| part.networks.iter().copied()).collect()
    }

    /// The members that protect a part, as far as this gateway knows, in the order in which they take it.
    pub fn protectors(&self, part: usize) -> impl Iterator<Item = usize> {
        let protects = move |member: &usize| {
            let says =
                if *member == self.config.own { Some(&self.says) } else { self.others[*member].says() };
            says.is_some_and(|says| says.protects.get(part))
        };
        self.config.parts[part].order.iter().copied().filter(protects)
    }

    /// Whether a member is alive; this gateway is.
    pub fn is_present(&self, member: usize) -> bool {
        member == self.config.own || self.others[member].is_present()
    }

    /// Time since a member that is alive was heard.
    pub fn silence_us(&self, now_us: u64, member: usize) -> Option<u64> {
        self.others[member].silence_us(now_us)
    }

    /// Whether a member has another rack in its file. It counts as gone.
    pub fn differs(&self, member: usize) -> bool {
        self.differs[member]
    }

    /// Counts of datagrams on the LAN that counted for nothing, by reason.
    pub fn unheeded(&self) -> &UnheededCounts {
        &self.unheeded
    }
}

/// A number that members with the same rack in their files share.
fn id_of(config: &RackConfig) -> u64 {
    let mut texts: Vec<String> =
        config.members.iter().map(|member| format!("{} {}", member.name, member.address)).collect();
    texts.sort();
    for part in &config.parts {
        texts.push(part.name.clone());
        texts.extend(part.networks.iter().map(ToString::to_string));
        texts.extend(part.order.iter().map(|&member| config.members[member].name.clone()));
    }
    parts::number_of(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}
