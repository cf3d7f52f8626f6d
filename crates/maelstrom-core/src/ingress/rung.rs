//! The request rung: asks the far egress for packets that the code does not bring back in time (Maelstrom
//! §4.5's cache, with requests).
//!
//! The decoder knows which unknowns no equation determines by the others. Their number is the *deficit* of a
//! batch of losses: with as many packets more, all of the batch is solved. So [`Rung::poll`] asks for these
//! alone, and only when
//! - the batch is older than half a window,
//! - the repairs that still cover it are fewer than its deficit, or
//! - the batch is older than an eighth of the round-trip time, and the code would take longer than an
//!   answer.
//!
//! A far end with [`Requests::Udp`] sends no copies of TCP's packets, and nothing tells which of the missing
//! ones these are. With that setting here too, the rung asks for every packet of a batch, so that those of
//! UDP come as copies: at once if packets of TCP arrive, and else with the second request.
//!
//! Each place is asked for at most twice. A batch with a deficit above [`DEFICIT_MAX`] is an overflow: a
//! queue dropped it, and its senders must learn of that.

use std::collections::VecDeque;

use fec::{Decoder, SymbolId};

use super::RequestCounts;
use crate::answers::is_tcp;
use crate::arrivals::{Arrivals, Place};
use crate::config::Requests;
use crate::congestion::Congestion;
use crate::packet::Packet;
use crate::wire::{DEFICIT_MAX, RecipeView, Request, Sum, WINDOW_MAX};
use foundation::Seq;

/// Maximum number of requests for one place.
const TIMES_MAX: u8 = 2;
/// Maximum number of places remembered that were asked for.
const ASKED_MAX: usize = 512;
/// Maximum number of missing places that the rung remembers besides those in the decoder.
const MISSING_MAX: usize = 1_024;
/// Maximum number of unknown places in one look.
const UNKNOWN_MAX: usize = 2_048;
/// Shortest and longest time between two looks at what is missing, in microseconds.
const LOOK_US: [u64; 2] = [250, 1_000];
/// Shortest time by which an answer may be later than a round trip, in microseconds.
const LATE_MIN_US: u64 = 10_000;
/// Number of packets after which all have been named, unless names were lost. At the lowest rates a repair
/// has no room for the names of all new packets, and the others come with the next datagram of names.
const NAMED_WITHIN: u64 = 192;
/// Longest time between two repairs that counts as their pace, in microseconds.
const PAUSE_MAX_US: u64 = 100_000;
/// Number of places for which one packet of TCP shows that others may be missing.
const TCP_WITHIN: u64 = 2_048;

/// The missing places, and those that were asked for.
pub(super) struct Rung {
    mode: Requests,
    rtt_us: Option<u64>,
    /// Time by which repairs come later than the packets that they contain, on a slower path.
    lag_us: u64,
    pace: Pace,
    asked: Vec<Asked>,
    missing: VecDeque<Seq>,
    unknown: Vec<Unknown>,
    /// Places before this one belong to an overflow, or to an earlier stream.
    overflown: Seq,
    /// Last packet that a datagram of names has named.
    named_apart: u64,
    /// Place up to which packets of TCP may be missing, as those that arrived show.
    tcp_until: Seq,
    /// Oldest place whose answer may be on the way.
    pending: Option<Seq>,
    next_look_us: Option<u64>,
}

/// A place that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    seq: Seq,
    /// Oldest unknown place of its batch.
    batch: Seq,
    times: u8,
    at_us: u64,
}

/// An unknown place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unknown {
    seq: Seq,
    /// Whether an equation determines it by the others.
    is_determined: bool,
    /// Whether a repair has named it. Else its packet may have arrived, and its name may follow.
    is_named: bool,
    /// Whether its name is still to come.
    is_awaited: bool,
}

/// The ingress at the time of a look.
pub(super) struct Scene<'a> {
    pub(super) arrivals: &'a Arrivals,
    pub(super) decoder: &'a Decoder,
    pub(super) newest: Seq,
    /// Oldest place that is not settled.
    pub(super) open: Seq,
    pub(super) congestion: &'a Congestion,
    pub(super) counts: &'a mut RequestCounts,
}

/// The rate at which repairs arrive, and the number of packets that they cover.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    at_us: u64,
    newest: Seq,
    /// Averages, times 16.
    us: u64,
    places: u64,
    /// Largest span of recent repairs, in packets, times 64.
    span: u64,
}

impl Pace {
    fn on_repair(&mut self, now_us: u64, newest: Seq, span: u64) {
        let us = now_us.saturating_sub(self.at_us).min(PAUSE_MAX_US);
        let places = newest.0.saturating_sub(self.newest.0).min(u64::from(WINDOW_MAX));
        self.us = self.us - self.us / 16 + us;
        self.places = self.places - self.places / 16 + places;
        self.span = (self.span - self.span / 64).max(64 * span);
        (self.at_us, self.newest) = (now_us, newest);
    }

    /// Time between two repairs at the pace of late, in microseconds.
    fn pause_us(&self) -> u64 {
        (self.us / 16).max(1)
    }

    /// Number of repairs that are likely to arrive in a time. They may have stopped.
    fn repairs_within(&self, now_us: u64, us: u64) -> usize {
        let silent_us = now_us.saturating_sub(self.at_us);
        usize::try_from(us / self.pause_us().max(silent_us)).unwrap_or(usize::MAX)
    }

    /// Number of packets that repairs cover. While they cover all of a short stream, the window still grows.
    fn window(&self, newest: Seq) -> u64 {
        let span = self.span.div_ceil(64);
        if span > newest.0 { u64::from(WINDOW_MAX) } else { span.max(1) }
    }

    /// Whether no repair has come for far longer than usual.
    fn is_silent(&self, now_us: u64, rtt_us: u64) -> bool {
        now_us.saturating_sub(self.at_us) > (2 * self.pause_us()).max(rtt_us / 8)
    }

    /// Number of packets that come within a time.
    fn places_within(&self, us: u64) -> u64 {
        us * self.places / self.us.max(1)
    }

    /// Number of repairs that come while the next `places` packets do.
    fn repairs_in(&self, places: u64) -> u64 {
        16 * places / self.places.max(1)
    }
}

impl Rung {
    pub(super) fn new(mode: Requests) -> Self {
        Self {
            mode,
            rtt_us: None,
            lag_us: 0,
            pace: Pace::default(),
            asked: Vec::with_capacity(ASKED_MAX),
            missing: VecDeque::with_capacity(MISSING_MAX),
            unknown: Vec::with_capacity(UNKNOWN_MAX),
            overflown: Seq(0),
            named_apart: 0,
            tcp_until: Seq(0),
            pending: None,
            next_look_us: None,
        }
    }

    /// Forgets the stream.
    pub(super) fn restart(&mut self) {
        *self = Self { rtt_us: self.rtt_us, lag_us: self.lag_us, ..Self::new(self.mode) };
    }

    pub(super) fn set_mode(&mut self, mode: Requests) {
        self.mode = mode;
    }

    pub(super) fn set_rtt(&mut self, rtt_us: Option<u64>) {
        self.rtt_us = rtt_us;
    }

    /// Takes the time by which repairs come later than their packets because of their path.
    pub(super) fn set_lag(&mut self, lag_us: u64) {
        self.lag_us = lag_us;
    }

    /// Notes a packet that arrived while `newest` was the newest place.
    pub(super) fn on_packet(&mut self, packet: &Packet<'_>, newest: Seq) {
        if self.mode == Requests::Udp && is_tcp(packet) {
            self.tcp_until = newest.plus(TCP_WITHIN);
        }
    }

    /// Notes an authentic repair.
    pub(super) fn on_repair(&mut self, now_us: u64, view: &RecipeView<'_>, newest: Seq) {
        if view.is_names_only() {
            self.named_apart = view.last().0;
        } else if copied(view).is_none() {
            self.pace.on_repair(now_us, newest, view.last().0 + 1 - view.first().0);
        }
    }

    /// Number of repairs that come while the next `places` packets do, at the pace of late.
    pub(super) fn repairs_in(&self, places: u64) -> u64 {
        self.pace.repairs_in(places)
    }

    /// Notes that a place counts as missing.
    pub(super) fn on_missing(&mut self, seq: Seq) {
        if self.missing.len() == MISSING_MAX {
            self.missing.pop_front();
        }
        self.missing.push_back(seq);
    }

    /// Notes that a repair has solved something.
    pub(super) fn on_solved(&self, view: &RecipeView<'_>, counts: &mut RequestCounts) {
        if self.awaits(view) {
            counts.answered += 1;
        }
    }

    /// Calls for a look at what is missing, if there is something.
    pub(super) fn wake(&mut self, now_us: u64, decoder: &Decoder) {
        if self.mode == Requests::Off || self.next_look_us.is_some() {
            return;
        }
        if let Some(rtt_us) = self.rtt_us
            && (!self.missing.is_empty() || decoder.pending() > 0)
        {
            self.next_look_us = Some(now_us + look_us(rtt_us));
        }
    }

    /// Time of the next look.
    pub(super) fn next_look_us(&self) -> Option<u64> {
        self.next_look_us
    }

    /// Oldest place whose answer may be on the way, so that it must not be settled.
    pub(super) fn pending(&self) -> Option<Seq> {
        self.pending
    }

    /// Whether a repair is the answer to a request.
    pub(super) fn awaits(&self, view: &RecipeView<'_>) -> bool {
        copied(view).is_some_and(|seq| self.find(seq).is_ok())
    }

    /// Asks for nothing until the next repair.
    pub(super) fn rest(&mut self) {
        (self.next_look_us, self.pending) = (None, None);
    }

    /// Returns the request that is due, if there is one. There may be another one at once. `behind_us`: time
    /// by which `now_us` is behind the clock, and the answer comes later.
    pub(super) fn poll(&mut self, now_us: u64, behind_us: u64, scene: &mut Scene<'_>) -> Option<Request> {
        self.next_look_us?;
        self.rest();
        // Answers are repairs, and take their path.
        let rtt_us = self.rtt_us.filter(|_| self.mode != Requests::Off)? + self.lag_us;
        let is_apart = scene.newest.0.saturating_sub(self.named_apart) < 2 * NAMED_WITHIN;
        self.look(scene, is_apart && !self.pace.is_silent(now_us, rtt_us));
        let late_us = rtt_us + (rtt_us / 4).max(LATE_MIN_US);
        self.asked.retain(|asked| asked.seq >= scene.open && !scene.arrivals.is_known(asked.seq));
        let is_pending = |asked: &Asked| now_us < asked.at_us + late_us;
        self.pending = self.asked.iter().filter(|asked| is_pending(asked)).map(|asked| asked.batch).min();
        // Repairs of later packets may be on the way.
        let newest = scene.newest.minus(self.pace.places_within(self.lag_us));
        let window = self.pace.window(newest);
        let unknown = std::mem::take(&mut self.unknown);
        let mut request = None;
        let mut waits = false;
        for batch in unknown.chunk_by(|a, b| b.seq.0 - a.seq.0 <= window) {
            if batch.iter().any(|place| scene.congestion.would_leave(place.seq)) {
                scene.counts.overflown += self.leave_alone(batch);
                continue;
            }
            let short = |also_awaited| self.wanted(now_us, rtt_us, window, newest, batch, also_awaited);
            let count = short(true);
            waits |= batch.iter().any(|place| self.may_ask(now_us, late_us, place.seq));
            if count > usize::from(DEFICIT_MAX) {
                if is_overflow(batch, newest.minus(window / 2)) {
                    scene.counts.overflown += self.leave_alone(batch);
                }
                continue;
            }
            // A name makes a request for its packet needless.
            request = self.request(now_us, now_us + behind_us, late_us, batch, short(false));
            if let Some(request) = &request {
                scene.counts.requests += 1;
                scene.counts.packets += u64::from(request.deficit);
                break;
            }
        }
        self.unknown = unknown;
        if request.is_some() || waits || self.pending.is_some() {
            self.next_look_us = Some(if request.is_some() { now_us } else { now_us + look_us(rtt_us) });
        }
        request
    }

    /// Lists the unknown places.
    fn look(&mut self, scene: &Scene<'_>, names_follow: bool) {
        let Self { unknown, missing, overflown, .. } = self;
        let first = scene.open.max(*overflown);
        let is_unknown = |seq: Seq| match scene.arrivals.place(seq) {
            // A router dropped it, and not the link.
            Place::Missing { fields, .. } => scene.arrivals.hops().arriving(fields.ttl).is_some(),
            Place::Unnamed => true,
            Place::Arrived { .. } | Place::Recovered { .. } => false,
        };
        let is_named = |seq: Seq| scene.arrivals.place(seq) != Place::Unnamed;
        let is_awaited = |seq: Seq| names_follow && scene.newest.0.saturating_sub(seq.0) < NAMED_WITHIN;
        missing.retain(|&seq| seq >= first && matches!(scene.arrivals.place(seq), Place::Missing { .. }));
        unknown.clear();
        let in_equations = scene.decoder.unknowns().map(|(id, is_determined)| (Seq(id.0), is_determined));
        let others = missing.iter().filter(|seq| !scene.decoder.waits_for(SymbolId(seq.0)));
        let all = in_equations.chain(others.map(|&seq| (seq, false)));
        unknown.extend(
            all.filter(|&(seq, _)| seq >= first && is_unknown(seq))
                .map(|(seq, is_determined)| {
                    let is_named = is_named(seq);
                    Unknown { seq, is_determined, is_named, is_awaited: !is_named && is_awaited(seq) }
                })
                .take(UNKNOWN_MAX),
        );
        unknown.sort_unstable();
        unknown.dedup_by_key(|place| place.seq);
    }

    /// Number of packets of a batch to ask for; 0 while the code may bring it back in time.
    fn wanted(
        &self,
        now_us: u64,
        rtt_us: u64,
        window: u64,
        newest: Seq,
        batch: &[Unknown],
        also_awaited: bool,
    ) -> usize {
        let free =
            || batch.iter().filter(|place| !place.is_determined && (also_awaited || !place.is_awaited));
        let deficit = free().count();
        let Some(oldest) = batch.first().filter(|_| deficit > 0) else { return 0 };
        let age = newest.0.saturating_sub(oldest.seq.0);
        let age_us =
            self.pace.repairs_in(age) * self.pace.pause_us() + now_us.saturating_sub(self.pace.at_us);
        if age > window / 2 {
            return deficit;
        }
        // Repairs of one round trip help too, before the answer is here.
        let slow = if age_us > rtt_us / 8 {
            deficit.saturating_sub(self.pace.repairs_within(now_us, rtt_us))
        } else {
            0
        };
        let reach =
            |seq: Seq| self.pace.repairs_in(window.saturating_sub(newest.0.saturating_sub(seq.0))) as usize;
        let short = free().enumerate().map(|(at, place)| (at + 1).saturating_sub(reach(place.seq))).max();
        match short.unwrap_or(0).max(slow) {
            0 => 0,
            // Some of the repairs to come are lost too.
            short => (short + short / 8 + 1).min(deficit),
        }
    }

    /// Leaves the batch of an overflow to its senders; returns its deficit.
    fn leave_alone(&mut self, batch: &[Unknown]) -> u64 {
        let Some(last) = batch.last() else { return 0 };
        self.overflown = self.overflown.max(last.seq.plus(1));
        batch.iter().filter(|place| !place.is_determined).count() as u64
    }

    /// Asks for `count` packets of a batch, less those that may be on the way, or for all of it. `asked_us`:
    /// the time by the clock, from which on the answer is awaited.
    fn request(
        &mut self,
        now_us: u64,
        asked_us: u64,
        late_us: u64,
        batch: &[Unknown],
        count: usize,
    ) -> Option<Request> {
        // TCP's packets are not answered for, and the others that no equation determines may be too few.
        let is_short =
            |seq: Seq| seq < self.tcp_until || self.find(seq).is_ok() && self.may_ask(now_us, late_us, seq);
        let every = self.mode == Requests::Udp && batch.iter().any(|place| is_short(place.seq));
        let may_help = |place: &&Unknown| (every || !place.is_determined) && !place.is_awaited;
        let wanted = || batch.iter().filter(may_help).map(|place| place.seq);
        let count = if every && count > 0 { wanted().count().min(usize::from(DEFICIT_MAX)) } else { count };
        // Whichever place a copy is of, it spares one equation.
        let coming = batch.iter().filter(|place| self.is_coming(now_us, late_us, place.seq)).count();
        let mut left = count.checked_sub(coming).filter(|&left| left > 0)?;
        let start = batch.first()?.seq;
        let oldest = wanted().find(|&seq| self.may_ask(now_us, late_us, seq))?;
        let mut request = Request::new(oldest);
        for seq in wanted() {
            if !self.may_ask(now_us, late_us, seq) {
                continue;
            }
            if !request.add(seq) {
                break;
            }
            if left > 0 {
                left -= 1;
                request.deficit += 1;
                self.note(asked_us, seq, start);
            }
        }
        self.pending = Some(self.pending.map_or(start, |pending| pending.min(start)));
        Some(request)
    }

    fn is_coming(&self, now_us: u64, late_us: u64, seq: Seq) -> bool {
        self.find(seq).is_ok_and(|at| now_us < self.asked[at].at_us + late_us)
    }

    fn may_ask(&self, now_us: u64, late_us: u64, seq: Seq) -> bool {
        let may_again = |asked: &Asked| asked.times < TIMES_MAX && now_us >= asked.at_us + late_us;
        match self.find(seq) {
            Ok(at) => may_again(&self.asked[at]),
            // One older than all that are remembered may have been asked for, and forgotten.
            Err(at) => at > 0 || self.asked.len() < ASKED_MAX,
        }
    }

    fn note(&mut self, now_us: u64, seq: Seq, batch: Seq) {
        match self.find(seq) {
            Ok(at) => {
                self.asked[at].times += 1;
                self.asked[at].at_us = now_us;
                self.asked[at].batch = batch;
            }
            Err(at) => {
                let mut at = at;
                if self.asked.len() == ASKED_MAX {
                    self.asked.remove(0);
                    at = at.saturating_sub(1);
                }
                self.asked.insert(at, Asked { seq, batch, times: 1, at_us: now_us });
            }
        }
    }

    /// Number of packets that repairs cover, as far as one has come.
    pub(super) fn window(&self, newest: Seq) -> u64 {
        if self.pace.span == 0 { u64::from(WINDOW_MAX) } else { self.pace.window(newest) }
    }

    fn find(&self, seq: Seq) -> Result<usize, usize> {
        self.asked.binary_search_by_key(&seq, |asked| asked.seq)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.asked.capacity() * size_of::<Asked>()
            + self.missing.capacity() * size_of::<Seq>()
            + self.unknown.capacity() * size_of::<Unknown>()
    }
}

/// Whether more packets are missing than one request may ask for. Names of places behind `named` may follow.
fn is_overflow(batch: &[Unknown], named: Seq) -> bool {
    let is_missing = |place: &&Unknown| !place.is_determined && (place.is_named || place.seq < named);
    batch.iter().filter(is_missing).count() > usize::from(DEFICIT_MAX)
}

/// The packet of a repair that is a copy, as answers are.
fn copied(view: &RecipeView<'_>) -> Option<Seq> {
    (view.sum() == Sum::Layer && view.first() == view.last()).then(|| view.first())
}

fn look_us(rtt_us: u64) -> u64 {
    (rtt_us / 16).clamp(LOOK_US[0], LOOK_US[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_forgotten_is_not_asked_for_again_without_end() {
        const LATER_US: u64 = 10_000_000;
        let mut rung = Rung::new(Requests::All);
        let places = || (0..ASKED_MAX as u64).map(|at| Seq(1_000 + 2 * at));
        places().for_each(|seq| rung.note(0, seq, seq));
        assert!(!rung.may_ask(LATER_US, 1_000, Seq(10)) && !rung.may_ask(LATER_US, 1_000, Seq(999)));
        assert!(rung.may_ask(LATER_US, 1_000, Seq(1_001)), "between those that are remembered");
        rung.note(LATER_US, Seq(5_000), Seq(5_000));
        assert_eq!(rung.asked.len(), ASKED_MAX);
        assert!(!rung.may_ask(LATER_US, 1_000, Seq(1_000)), "it has made room");
        assert!(rung.may_ask(LATER_US, 1_000, Seq(1_002)), "once more");
        rung.note(LATER_US, Seq(1_002), Seq(1_002));
        assert!(!rung.may_ask(2 * LATER_US, 1_000, Seq(1_002)));
        // Those that came, or are settled, make room for older ones.
        rung.asked.truncate(ASKED_MAX / 2);
        assert!(rung.may_ask(LATER_US, 1_000, Seq(10)));
    }

    /// Ten packets are missing, of which four would do. None of these comes.
    #[test]
    fn a_request_for_all_but_tcp_is_for_every_packet_where_tcp_is_or_the_first_one_fails() {
        let place = |at| Unknown { seq: Seq(at), is_determined: at < 16, is_named: true, is_awaited: false };
        let batch: Vec<_> = (10..20).map(place).collect();
        for (mode, again) in [(Requests::All, 16..20), (Requests::Udp, 10..20)] {
            let mut rung = Rung::new(mode);
            let mut request = |now_us| {
                let request = rung.request(now_us, now_us, 1_000, &batch, 4)?;
                Some((request.deficit, request.places().map(|seq| seq.0).collect::<Vec<_>>()))
            };
            assert_eq!(request(0), Some((4, (16..20).collect())), "{mode:?}");
            assert_eq!(request(999), None, "{mode:?}: the answer may be on the way");
            assert_eq!(request(1_000), Some((again.clone().count() as u8, again.collect())), "{mode:?}");
        }
        let packet = |protocol: u8| {
            let mut packet = crate::packet::tests::udp4([10, 0, 1, 1], [10, 0, 2, 1], 1, &[0; 40]);
            packet[9] = protocol;
            packet
        };
        for (mode, protocol, newest, asked) in [
            (Requests::Udp, 6, 5, 10),
            (Requests::Udp, 17, 5, 4),
            (Requests::All, 6, 5, 4),
            (Requests::Udp, 6, 0, 10),
        ] {
            let mut rung = Rung::new(mode);
            rung.on_packet(&Packet::new_checked(&packet(protocol)).unwrap(), Seq(newest));
            let request = rung.request(0, 0, 1_000, &batch, 4).expect("a request");
            assert_eq!(request.deficit, asked, "{mode:?}, {protocol}");
        }
        let mut rung = Rung::new(Requests::Udp);
        rung.on_packet(&Packet::new_checked(&packet(6)).unwrap(), Seq(5));
        let later: Vec<_> =
            batch.iter().map(|place| Unknown { seq: place.seq.plus(TCP_WITHIN), ..*place }).collect();
        assert_eq!(rung.request(0, 0, 1_000, &later, 4).expect("a request").deficit, 4, "long after TCP");
    }
}
