//! Several paths between two gateways: which of them live, and which datagrams take which.
//!
//! Each end asks on each path several times a second ([`Probe`]), and the other end answers at once on the
//! same path. A path lives while questions are answered ([`state`]). Probes also tell how many datagrams were
//! sent, so that each end knows the losses of each path. With a single path nothing of this takes place.

mod awaited;
mod delays;
mod divide;
mod early;
mod set;
mod state;

pub(crate) use early::Early;
pub use set::{Load, PATHS_MAX, PathConfig, PathSet, PathUse};
pub use state::{PathLoss, PathStatus, Traffic};

use crate::config::Source;
use crate::ledger::TICK_US;
use crate::wire::{Probe, SendTime};
use delays::{Delays, MARGIN_US, overtaken_us};
use divide::{Carried, Divider};
use state::PathState;

/// Ticks in a second.
const TICKS: f64 = 1e6 / TICK_US as f64;
/// Longest difference of the delays of packets and repairs that counts. No repair waits longer for packets on
/// a slower path.
const LEAD_MAX_US: i64 = 500_000;
/// Number of ticks from one division of packets among paths to the next.
const DIVIDE_TICKS: u64 = 2;
/// Largest difference of the round trips of paths that share packets, without queues: a queue of the first
/// path is the reason for which another one shares them. Half of it is the time by which packets overtake
/// others beside that.
const NEAR_US: u64 = 40_000;
/// Time for which a path counts as one that carries packets.
pub(crate) const RECENT_US: u64 = 200_000;

/// Consequence of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nothing,
    /// This answer is due.
    Answer(Probe),
    /// A question was answered, which was padded to a datagram of this length; 0 if it was not padded.
    Passed(usize),
}

/// The paths to one peer.
#[derive(Debug)]
pub(crate) struct Paths {
    used: PathUse,
    states: Vec<PathState>,
    /// Paths that live; of none, those that answer; of none, all.
    usable: PathSet,
    /// Those of them that are not in doubt.
    trusted: PathSet,
    /// Those that may share packets: the first that is trusted, and others that are hardly slower or faster.
    near: PathSet,
    divider: Divider,
    ticks: u64,
    /// The path by which packets came last, and that by which repairs did.
    carrier: usize,
    repairer: usize,
    /// Time by which packets may come later than others that left after them by another path.
    overtaken_us: u64,
    /// Difference of the clocks at the first datagram. Delays are measured from it.
    reference_us: Option<u64>,
}

impl Paths {
    /// `further`: number of paths beside the first.
    pub(crate) fn new(used: PathUse, further: usize) -> Self {
        let states = vec![PathState::default(); 1 + further];
        let usable = PathSet::all(states.len());
        Self {
            used,
            states,
            usable,
            trusted: usable,
            near: usable,
            divider: Divider::default(),
            ticks: 0,
            carrier: 0,
            repairer: 0,
            overtaken_us: 0,
            reference_us: None,
        }
    }

    /// Begins a session.
    pub(crate) fn restart(&mut self) {
        self.states.iter_mut().for_each(PathState::restart);
        (self.reference_us, self.overtaken_us) = (None, 0);
        self.usable = PathSet::all(self.states.len());
        (self.trusted, self.near) = (self.usable, self.usable);
    }

    /// The paths that datagrams may take.
    pub(crate) fn usable(&self) -> PathSet {
        self.usable
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.states.len() > 1
    }

    /// All of them.
    pub(crate) fn all(&self) -> PathSet {
        PathSet::all(self.states.len())
    }

    /// The paths that a datagram takes at present. While no path is known to work, it takes all of them.
    pub(crate) fn route(&self, load: Load) -> PathSet {
        match (self.used, load) {
            _ if !self.is_known() => self.usable,
            (PathUse::Duplicate, _) | (_, Load::Control) => self.usable,
            (PathUse::Failover, _) => self.usable.single(0),
            (PathUse::Spread, Load::Packets) => self.divider.carrying(self.near),
            (PathUse::Spread, Load::Repair) => self.trusted.single(1),
        }
    }

    /// Round trip of the path that packets take, without queues; of several that share them, the longest.
    /// `None` where the datagrams that arrive first show it, whatever their paths.
    pub(crate) fn rtt_us(&self) -> Option<u64> {
        if !self.is_known() || self.used == PathUse::Duplicate {
            return None;
        }
        self.route(Load::Packets).iter().filter_map(|path| self.states[path].shortest_rtt_us()).max()
    }

    /// Whether there are several paths, of which one is known to work.
    fn is_known(&self) -> bool {
        self.are_several() && self.states.iter().any(PathState::answers)
    }

    /// Counts a sealed datagram that takes these paths, or else those of [`Paths::on_sent`]; returns them.
    pub(crate) fn on_sent_by(&mut self, paths: Option<PathSet>, load: Load, bytes: usize) -> PathSet {
        let Some(paths) = paths else { return self.on_sent(load, bytes) };
        if (self.used, load) == (PathUse::Spread, Load::Packets) {
            paths.iter().for_each(|path| self.divider.take_by(self.near, path, bytes));
        }
        self.count_sent(paths, load, bytes);
        paths
    }

    /// Counts a sealed datagram of `bytes` bytes on the link, and returns the paths that it takes.
    pub(crate) fn on_sent(&mut self, load: Load, bytes: usize) -> PathSet {
        let route = match (self.used, load) {
            (PathUse::Spread, Load::Packets) if self.is_known() => {
                PathSet::one(self.divider.take(self.near, bytes))
            }
            (PathUse::Spread, Load::Repair) if self.is_known() => self.route_repair(bytes),
            _ => self.route(load),
        };
        self.count_sent(route, load, bytes);
        route
    }

    /// Repairs that the second path cannot carry take the first.
    fn route_repair(&mut self, bytes: usize) -> PathSet {
        let second = self.route(Load::Repair);
        let has_room = second.iter().all(|path| self.divider.takes_repair(path, bytes));
        if has_room { second } else { self.trusted.single(0) }
    }

    fn count_sent(&mut self, route: PathSet, load: Load, bytes: usize) {
        route.iter().for_each(|path| self.states[path].on_sent(load, bytes));
    }

    /// Notes a sealed datagram that arrived by a path at `arrived_us`; returns how long a repair may wait for
    /// packets of the path by which packets come, in microseconds.
    pub(crate) fn on_received(
        &mut self,
        arrived_us: u64,
        path: usize,
        load: Load,
        sent: SendTime,
        bytes: usize,
    ) -> u64 {
        self.states[path].on_received(load, bytes);
        if !self.are_several() {
            return 0;
        }
        let reference_us = *self.reference_us.get_or_insert(sent.until_us(arrived_us));
        let delay_us = SendTime::difference_us(sent.until_us(arrived_us), reference_us);
        let delays = &mut self.states[path].delays;
        *delays = Some(delays.map_or(Delays::new(delay_us), |delays| delays.then(delay_us)));
        let carries =
            |state: &PathState| state.packets_us.is_some_and(|at_us| arrived_us <= at_us + RECENT_US);
        match load {
            Load::Packets => {
                self.carrier = path;
                self.states[path].packets_us = Some(arrived_us);
                let carriers = self.states.iter().filter(|state| carries(state));
                self.overtaken_us = overtaken_us(&carriers.filter_map(|state| state.delays));
            }
            Load::Repair => self.repairer = path,
            Load::Control => {}
        }
        // Where several paths carry packets, the slowest counts.
        let others = self.states.iter().enumerate().filter(|&(other, _)| other != path);
        let carriers = others.filter(|&(other, state)| other == self.carrier || carries(state));
        let of_packets_us = carriers.filter_map(|(_, state)| Some(state.delays?.longest_us)).max();
        let lead_us = of_packets_us.map_or(0, |us| us - delay_us);
        if lead_us > 0 { (lead_us + MARGIN_US).min(LEAD_MAX_US) as u64 } else { 0 }
    }

    /// Time by which packets may come later than others that left after them, because several paths carry
    /// packets, in microseconds.
    pub(crate) fn overtaken_us(&self) -> u64 {
        self.overtaken_us
    }

    /// Time by which repairs come later than the packets sent with them, in microseconds.
    pub(crate) fn repair_lag_us(&self) -> u64 {
        let [packets, repairs] = [self.carrier, self.repairer].map(|path| self.states[path].delays);
        let lag_us =
            repairs.zip(packets).map_or(0, |(repairs, packets)| repairs.longest_us - packets.longest_us);
        lag_us.clamp(0, LEAD_MAX_US) as u64
    }

    /// Notes a datagram that has arrived before, by another path. Nothing shows that it is authentic.
    pub(crate) fn on_copy(&mut self, path: usize, bytes: usize) {
        self.states[path].on_copy(bytes);
    }

    /// Returns the question that is due, with its path. There may be another one at once.
    pub(crate) fn poll_question(&mut self, now_us: u64, bytes: usize) -> Option<(PathSet, Probe)> {
        let path = self.states.iter().position(|state| now_us >= state.next_ask_us())?;
        self.states[path].on_ask(now_us);
        Some((PathSet::one(path), self.probe(path, path as u8, None, bytes)))
    }

    /// Returns the question to another address of the peer on a path, from which its own question has come,
    /// if it is time for one.
    pub(crate) fn try_elsewhere(
        &mut self,
        now_us: u64,
        path: usize,
        source: Source,
        bytes: usize,
    ) -> Option<Probe> {
        let is_due = self.states.get_mut(path)?.try_elsewhere(now_us, source);
        is_due.then(|| self.probe(path, path as u8, None, bytes))
    }

    /// The paths that answer and may be asked by length now.
    pub(crate) fn ready_for_length(&self, now_us: u64) -> PathSet {
        let states = self.states.iter().enumerate();
        let ready = states.filter(|(_, state)| state.answers() && state.may_ask_by_length(now_us));
        ready.fold(PathSet::NONE, |set, (path, _)| set.with(path))
    }

    /// Returns a question for a datagram of `len` bytes, which is `bytes` long on the link. If it is
    /// answered, the path carries this length ([`Reply::Passed`]); if not, the path need not be dead.
    pub(crate) fn ask_by_length(&mut self, now_us: u64, path: usize, len: usize, bytes: usize) -> Probe {
        self.states[path].on_ask_by_length(now_us, len);
        self.probe(path, path as u8, None, bytes)
    }

    /// Whether a probe from `source` shows that the peer is there on a path.
    pub(crate) fn is_proof(&mut self, path: usize, source: Source, probe: &Probe) -> bool {
        let state = self.states.get_mut(path);
        probe.echo.zip(state).is_some_and(|(asked, state)| state.is_proof(source, asked))
    }

    /// Composes a probe on a path, and counts its datagram.
    fn probe(&mut self, path: usize, number: u8, echo: Option<SendTime>, bytes: usize) -> Probe {
        let (sent, expected, lost) = self.states[path].counts();
        self.count_sent(PathSet::one(path), Load::Control, bytes);
        Probe { path: number, echo, sent, expected, lost }
    }

    /// Takes a probe that arrived by a path and was sent at `sent`; returns its consequence. Before it,
    /// [`Paths::on_received`] has counted its datagram. `bytes`: length of the answer on the link.
    pub(crate) fn on_probe(
        &mut self,
        now_us: u64,
        path: usize,
        sent: SendTime,
        probe: &Probe,
        bytes: usize,
    ) -> Reply {
        // Something on the way may have led a question or its answer to another path.
        let is_astray = probe.echo.is_some() && usize::from(probe.path) != path;
        if !is_astray {
            // Its own datagram is not among those that it counts.
            self.states[path].on_peer_sent(probe.sent.saturating_add(1));
            self.states[path].on_peer_counts(probe.expected, probe.lost);
        }
        match probe.echo {
            None => Reply::Answer(self.probe(path, probe.path, Some(sent), bytes)),
            Some(asked) if !is_astray => {
                let rtt_us = asked.until_us(now_us);
                self.states[path].on_answer(now_us, rtt_us);
                let others = self.states.iter_mut().enumerate().filter(|&(other, _)| other != path);
                others.for_each(|(_, state)| state.on_answer_elsewhere(now_us.saturating_sub(rtt_us)));
                self.check(now_us);
                Reply::Passed(self.states[path].length_of(asked))
            }
            Some(_) => Reply::Nothing,
        }
    }

    /// Decides which paths live.
    pub(crate) fn check(&mut self, now_us: u64) {
        if !self.are_several() {
            return;
        }
        for (path, state) in self.states.iter_mut().enumerate() {
            let was_alive = state.is_alive();
            state.check(now_us);
            if state.is_alive() && !was_alive {
                self.divider.forget(path);
            }
        }
        let those = |is_so: fn(&PathState) -> bool| {
            let paths = self.states.iter().enumerate().filter(|(_, state)| is_so(state));
            paths.fold(PathSet::NONE, |set, (path, _)| set.with(path))
        };
        let sets = [those(PathState::is_alive), those(PathState::answers), self.all()];
        self.usable = sets.into_iter().find(|set| !set.is_empty()).unwrap_or_default();
        // Long before a path is dead, the others carry what it shares with them.
        let is_trusted = |path: &usize| !self.states[*path].is_doubted();
        self.trusted = self.usable.iter().filter(is_trusted).fold(PathSet::NONE, PathSet::with);
        if self.trusted.is_empty() {
            self.trusted = self.usable;
        }
        let rtt_us = |path: usize| self.states[path].shortest_rtt_us();
        let first_us = self.trusted.iter().next().and_then(rtt_us);
        let is_near = |path: &usize| {
            rtt_us(*path).zip(first_us).is_some_and(|(us, first_us)| us.abs_diff(first_us) <= NEAR_US)
        };
        self.near = self.trusted.iter().filter(is_near).fold(self.trusted.single(0), PathSet::with);
    }

    /// Time at which a question is due, or a path is found to live, to be in doubt or to be dead.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        let due = |state: &PathState| state.next_check_us().into_iter().fold(state.next_ask_us(), u64::min);
        self.states.iter().map(due).min().filter(|_| self.are_several())
    }

    /// Notes that this gateway stood still.
    pub(crate) fn on_stall(&mut self, now_us: u64) {
        self.states.iter_mut().for_each(|state| state.on_stall(now_us));
    }

    /// Must be called each tick.
    pub(crate) fn on_tick(&mut self) {
        let shares = self.used == PathUse::Spread;
        let is_busy = shares && self.states.iter().any(PathState::carries_many);
        self.states.iter_mut().for_each(|state| state.on_tick(is_busy));
        self.ticks += 1;
        if shares && self.ticks.is_multiple_of(DIVIDE_TICKS) {
            let mut carried = [Carried::default(); PATHS_MAX];
            carried.iter_mut().zip(&mut self.states).for_each(|(carried, state)| *carried = state.carried());
            self.divider.adapt(DIVIDE_TICKS * TICK_US, self.near, &carried);
        }
    }

    /// The state of each path, if there are several.
    pub(crate) fn status(&self) -> Vec<PathStatus> {
        let packets = self.route(Load::Packets);
        let status = |(path, state): (usize, &PathState)| PathStatus {
            is_used: packets.contains(path),
            ..state.status(TICKS)
        };
        if self.are_several() { self.states.iter().enumerate().map(status).collect() } else { Vec::new() }
    }
}
