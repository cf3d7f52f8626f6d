//! Congestion: packets that a full queue drops, which their senders must learn of.
//!
//! A gateway that recovers them hides the queue from the hosts behind it, which then push aside their
//! neighbours on the link. Whether a packet was lost by the link or by the queue shows in its delay: a link
//! loses packets at any delay, a queue only when it is full.
//!
//! The path of a fact: each repair tells the delay of the queue at its place of the stream ([`QueueDelay`],
//! [`Recent`], [`Marks`]). The fate of each packet is counted at that delay, over seconds, minutes and hours
//! ([`Horizon`]). If losses are far more frequent from some delay on, they are congestion, except for the
//! share that the link loses with less queue. [`Congestion::judge`] recovers this share and leaves the rest.
//! A route that becomes longer and loses packets looks the same at first ([`Standing`]).

mod delay;
mod horizon;
mod marks;
mod recent;
mod rise;
mod standing;
mod state;

pub use state::{CongestionState, QueueLoss};

use foundation::Seq;

use crate::paths::{PATHS_MAX, RECENT_US};
use crate::wire::{Lag, SendTime};
use delay::QueueDelay;
use horizon::{BINS, Bin, CONTRAST, Edge, Horizon, LONG, bin_of, delay_of};
use marks::{Marks, Seen};
use recent::Recent;
use standing::Standing;

/// Share of packets that a link loses by itself, below which protection may rest while a queue stands full.
const CLEAN_MAX: f64 = 0.000_5;
/// Factor by which losses of a full queue are more than others if they explain nearly all.
const MOST: f64 = 10.0;
/// Times in seconds with traffic after which counts have faded to a third. The first shows the link at
/// present, the second the queue, the third the link in the long run.
const HORIZONS_S: [f64; 3] = [4.0, 60.0, 3_600.0];
/// Evidence from which a queue counts as known, and below which it no longer does.
const EVIDENCE: [f64; 2] = [12.0, 5.0];
/// Number of packets for which a longer horizon counts in the estimate of a shorter one.
const PRIOR: f64 = 200.0;
/// Number of runs of losses after which the counts are examined out of turn.
const RUNS_NEW: u32 = 16;
/// Maximum number of losses of the link that are recovered at once while the queue is full.
const CREDIT_MAX: f64 = 32.0;
/// Number of packets after one that could be marked in which others may be marked too.
const MARKABLE: u64 = 1_024;
/// Length of a moment in seconds with traffic. Losses of the same moment are compared.
const MOMENT_S: u32 = 2;
/// Interval between two fadings.
const SECOND_US: u64 = 1_000_000;

/// Treatment of packets that a full queue drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCongestion {
    /// They are left to their senders, or marked if these understand marks.
    #[default]
    Leave,
    /// They are recovered as others are.
    Mask,
}

/// Decision about a lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The link lost it, or that is not known.
    Recover,
    /// A full queue dropped it.
    Leave,
}

/// Learns how the losses of a path depend on its queue.
#[derive(Clone, Debug)]
pub struct Congestion {
    mode: OnCongestion,
    /// Delays on each path, each from its own shortest.
    delays: [QueueDelay; PATHS_MAX],
    /// Time of arrival and delay of the latest datagram on each path.
    latest: [Option<(u64, u64)>; PATHS_MAX],
    /// Delay of the latest datagram. Of several paths that carry packets, by which a missing one went is not
    /// known. The delay is that of the longest queue, so that drops there are no reason for repairs.
    latest_us: u64,
    /// That of the shortest queue. Only if that is full, packets are left to their senders: drops on one of
    /// several paths show that the packets must be divided otherwise.
    least_us: u64,
    /// Number of packets in the latest datagram of packets; 1 if packets travel beside datagrams.
    company: u8,
    recent: Recent,
    standing: Standing,
    marks: Marks,
    /// Counts by delay, of seconds, minutes and hours.
    horizons: [Horizon; 3],
    /// Counts of the present moments, which are in the horizons too. They begin by turns, so that a queue
    /// that fills does so within one of them.
    moments: [Moment; 2],
    run: Run,
    queue: Option<Queue>,
    /// Losses that the link itself has while the queue is full: of packets solved, of those forecast, and of
    /// those that are evidence of another path.
    credits: [f64; 3],
    /// Newest place when a packet came last that could be marked.
    markable: Option<Seq>,
    /// Whether the queue has become known since [`Congestion::take_news`].
    is_new: bool,
    /// Runs of losses that were not examined yet.
    runs_new: u32,
    /// Whether packets were counted since the counts last faded.
    is_busy: bool,
    next_fade_us: u64,
}

/// Counts of some seconds.
#[derive(Clone, Debug)]
struct Moment {
    bins: Box<[Bin]>,
    seconds: u32,
}

impl Moment {
    fn new(seconds: u32) -> Self {
        Self { bins: vec![Bin::default(); BINS].into_boxed_slice(), seconds }
    }
}

/// The present run of losses.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    len: u32,
    /// Delay at its first loss.
    bin: Option<usize>,
    is_long: bool,
}

/// A queue that drops packets.
#[derive(Clone, Copy, Debug)]
struct Queue {
    edge: Edge,
    /// Share of packets lost below the edge, and from it on.
    below: f64,
    above: f64,
    /// Number of losses of the link in a row that a forecast takes for its own while the queue is full.
    burst: f64,
    /// Whether nearly all losses of the last minute are those of the queue.
    explains: bool,
}

impl Queue {
    /// Returns the delays from which losses are those of the queue, for packets solved, for those forecast,
    /// and for those that are evidence. While the queue fills, some of its losses seem to lie below its edge.
    /// They are no reason for repairs.
    fn full_from(&self) -> [usize; 3] {
        let edge = self.edge.bin;
        [edge, bin_of(delay_of(edge) / 2), edge]
    }

    /// Whether the losses of a full queue are more than those of the link.
    fn is_cause(&self) -> bool {
        self.above > CONTRAST * self.below
    }
}

impl Congestion {
    /// Begins without knowledge: all losses are recovered.
    pub fn new(mode: OnCongestion) -> Self {
        Self {
            mode,
            delays: Default::default(),
            latest: Default::default(),
            latest_us: 0,
            least_us: 0,
            company: 1,
            recent: Recent::new(),
            standing: Standing::default(),
            marks: Marks::new(),
            horizons: HORIZONS_S.map(Horizon::new),
            moments: [0, MOMENT_S / 2].map(Moment::new),
            run: Run::default(),
            queue: None,
            credits: [0.0; 3],
            markable: None,
            is_new: false,
            runs_new: 0,
            is_busy: false,
            next_fade_us: 0,
        }
    }

    /// Changes the treatment. Knowledge of the link stays.
    pub fn set_mode(&mut self, mode: OnCongestion) {
        self.mode = mode;
    }

    /// Begins with the stream and the clocks of a new session. Knowledge of the link stays.
    pub fn restart(&mut self) {
        self.forget_delays();
        self.marks.clear();
        self.run = Run::default();
        self.markable = None;
    }

    /// Measures delays from those of the next datagrams.
    fn forget_delays(&mut self) {
        self.delays = Default::default();
        self.latest = Default::default();
        self.recent.clear();
        self.standing = Standing::default();
    }

    /// Takes a datagram of the peer that arrived by a path at this machine, with its time of sending.
    pub fn on_datagram(&mut self, arrived_us: u64, path: usize, sent: SendTime) {
        let is_standing = self.is_standing();
        let delay_us = self.delays[path].on_datagram(arrived_us, sent.until_us(arrived_us), is_standing);
        self.latest[path] = Some((arrived_us, delay_us));
        let is_recent = |(at_us, _): &&(u64, u64)| at_us.abs_diff(arrived_us) <= RECENT_US;
        let recent = self.latest.iter().flatten().filter(is_recent).map(|&(_, delay_us)| delay_us);
        self.latest_us = recent.clone().max().unwrap_or(delay_us);
        self.least_us = recent.min().unwrap_or(delay_us);
        self.recent.push(sent, self.latest_us);
        let full = self.queue.filter(Queue::is_cause).map(|queue| queue.edge.bin);
        self.standing.on_delay(arrived_us, self.least_us, full);
        if self.standing.is_longer_route() {
            self.forget_delays();
        }
    }

    /// Notes that the latest datagram is a repair, sent after the packet at `last`, which had left at most
    /// the lag before. Of a repair that has waited here it is not known when it was sent; one whose lag is
    /// not known says nothing of the newest packets.
    pub fn on_repair(&mut self, last: Seq, sent: Option<SendTime>, lag: Lag) {
        let Some(lag_us) = lag.bound_us() else { return };
        let delay_us = sent.map_or(self.latest_us, |sent| self.recent.longest_us(sent, lag_us));
        // Without several paths, both are the same.
        let least_us = if self.least_us < self.latest_us { self.least_us.min(delay_us) } else { delay_us };
        self.marks.push(last, [delay_us, least_us], self.company);
    }

    /// Notes how many packets of a tunnel the latest datagram has.
    pub fn on_packets(&mut self, count: usize) {
        self.company = count.clamp(1, 255) as u8;
    }

    /// Notes that the latest datagram has the packet at `last` of a tunnel.
    pub fn on_packet(&mut self, last: Seq) {
        self.marks.push(last, [self.latest_us, self.least_us], self.company);
    }

    /// Takes the fate of `count` packets that arrived, from a place on. Fates come in order of the stream.
    pub fn on_arrived(&mut self, mut seq: Seq, mut count: u64) {
        self.run = Run::default();
        while let Some((seen, here)) = self.marks.seen_at(seq, count).filter(|_| count > 0) {
            if let Some(Seen { bin, company, .. }) = seen {
                let starts = here as f64 / f64::from(company);
                self.count(bin, &Bin { packets: here as f64, starts, ..Bin::default() });
            }
            (seq, count) = (seq.plus(here), count - here);
        }
    }

    /// Takes the fate of a packet that the path lost. Returns whether a forecast counts it, as
    /// [`Congestion::judge`].
    pub fn on_lost(&mut self, seq: Seq) -> Verdict {
        self.run.len = self.run.len.saturating_add(1);
        let Some(Seen { bin, company, .. }) = self.marks.seen(seq) else { return Verdict::Recover };
        let begins = self.run.bin.is_none();
        let begun = *self.run.bin.get_or_insert(bin);
        let runs = f64::from(begins);
        self.count(bin, &Bin { packets: 1.0, lost: 1.0, runs, starts: runs, ..Bin::default() });
        if self.run.len >= LONG * u32::from(company) && !self.run.is_long {
            self.run.is_long = true;
            self.count(begun, &Bin { long: 1.0, ..Bin::default() });
        }
        self.runs_new += u32::from(begins);
        if self.runs_new >= RUNS_NEW {
            self.examine();
        }
        self.judge_by(bin, 1)
    }

    fn count(&mut self, bin: usize, fates: &Bin) {
        self.is_busy = true;
        for horizon in &mut self.horizons {
            horizon.bins[bin].add(fates);
        }
        for moment in &mut self.moments {
            moment.bins[bin].add(fates);
        }
        if let Some(queue) = &self.queue {
            let most = [CREDIT_MAX, queue.burst, CREDIT_MAX];
            for ((credit, from), most) in self.credits.iter_mut().zip(queue.full_from()).zip(most) {
                if bin >= from {
                    *credit = (*credit + fates.packets * queue.below).min(most);
                }
            }
        }
    }

    /// Decides about a lost packet that was solved.
    pub fn judge(&mut self, seq: Seq) -> Verdict {
        match self.marks.seen(seq) {
            Some(seen) => self.judge_by(seen.least, 0),
            None => Verdict::Recover,
        }
    }

    /// Whether a lost packet would be left to its sender.
    pub fn would_leave(&self, seq: Seq) -> bool {
        let seen = self.marks.seen(seq);
        seen.is_some_and(|seen| self.is_full(seen.least, 0) && self.credits[0] < 1.0)
    }

    /// Notes that a packet came whose sender understands marks. `newest`: place of the newest one.
    pub fn on_markable(&mut self, newest: Seq) {
        self.markable = Some(newest);
    }

    /// Whether a lost packet stays lost: it would be left to its sender, and is not likely to be marked
    /// instead.
    pub fn would_drop(&self, seq: Seq, newest: Seq) -> bool {
        let is_markable = self.markable.is_some_and(|at| newest.0.saturating_sub(at.0) < MARKABLE);
        !is_markable && self.would_leave(seq)
    }

    /// Whether the queue has become known since the last call, so that earlier losses were those of the
    /// queue.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_new) && self.mode == OnCongestion::Leave
    }

    /// Whether a missing packet is evidence of another path: not if a full queue may have dropped it, which
    /// drops packets and repairs unequally, because packets come in bursts. As many count as the link loses.
    pub fn is_of_link(&mut self, seq: Seq) -> bool {
        match self.marks.seen(seq) {
            Some(seen) => self.judge_by(seen.bin, 2) == Verdict::Recover,
            None => true,
        }
    }

    /// Whether losses at this delay are those of a full queue for an account, and are not recovered.
    fn is_full(&self, bin: usize, account: usize) -> bool {
        let is_full = |queue: &Queue| queue.is_cause() && bin >= queue.full_from()[account];
        self.mode == OnCongestion::Leave && self.queue.as_ref().is_some_and(is_full)
    }

    /// Spends a credit. Each lost packet is judged once as solved and once as forecast.
    fn judge_by(&mut self, bin: usize, account: usize) -> Verdict {
        if !self.is_full(bin, account) {
            return Verdict::Recover;
        }
        let credit = &mut self.credits[account];
        if *credit < 1.0 {
            return Verdict::Leave;
        }
        *credit -= 1.0;
        Verdict::Recover
    }

    /// Must be called ten times a second.
    pub fn on_tick(&mut self, now_us: u64) {
        if now_us >= self.next_fade_us {
            self.next_fade_us = now_us + SECOND_US;
            if std::mem::take(&mut self.is_busy) {
                self.horizons.iter_mut().for_each(Horizon::fade);
                self.expect();
                for moment in &mut self.moments {
                    moment.seconds += 1;
                    if moment.seconds >= MOMENT_S {
                        moment.bins.fill(Bin::default());
                        moment.seconds = 0;
                    }
                }
                self.examine();
            }
        } else if self.runs_new > 0 {
            self.examine();
        }
    }

    /// Brings the expectations of the present moments up to date: their runs, divided among delays as the
    /// packets that might have begun one, and their long runs, divided as runs are. Each moment counts half.
    fn expect(&mut self) {
        for Moment { bins, .. } in &mut self.moments {
            let mut sum = Bin::default();
            bins.iter().for_each(|bin| sum.add(bin));
            if sum.runs == 0.0 {
                continue;
            }
            for (index, bin) in bins.iter_mut().enumerate().filter(|(_, bin)| bin.packets > 0.0) {
                let expected = sum.runs * bin.starts / sum.starts / 2.0;
                let expected_long = sum.long * bin.runs / sum.runs / 2.0;
                let more = [expected - bin.expected, expected_long - bin.expected_long];
                (bin.expected, bin.expected_long) = (expected, expected_long);
                for Horizon { bins, .. } in &mut self.horizons {
                    let bin = &mut bins[index];
                    bin.expected = (bin.expected + more[0]).max(0.0);
                    bin.expected_long = (bin.expected_long + more[1]).max(0.0);
                }
            }
        }
    }

    /// Finds the queue in the counts of the last minute, or else of the last hour.
    fn examine(&mut self) {
        self.runs_new = 0;
        self.expect();
        let was_unknown = self.queue.is_none();
        let needed = EVIDENCE[usize::from(!was_unknown)];
        let [_, minute, hour] = &self.horizons;
        self.queue = [minute, hour].into_iter().find_map(|horizon| {
            let edge = horizon.edge().filter(|edge| edge.evidence >= needed)?;
            let above = horizon.sum(edge.bin..);
            let explains = minute.sum(edge.bin..).lost > MOST * minute.sum(..edge.bin).lost;
            let link = horizon.sum(..bin_of(delay_of(edge.bin) / 2));
            Some(Queue {
                edge,
                below: self.link_loss(edge.bin),
                above: above.lost / above.packets.max(1.0),
                burst: (2.0 * link.lost / link.runs.max(1.0)).clamp(2.0, CREDIT_MAX),
                explains,
            })
        });
        self.is_new |= was_unknown && self.queue.is_some();
        if self.queue.is_none() {
            self.credits = [0.0; 3];
        }
    }

    /// Estimates the share of packets that the link loses while the queue is below a bin. A longer horizon
    /// counts as much as a few packets of a shorter one.
    fn link_loss(&self, bin: usize) -> f64 {
        self.horizons.iter().rev().fold(0.0, |prior, horizon| {
            let below = horizon.sum(..bin);
            (below.lost + PRIOR * prior) / (below.packets + PRIOR)
        })
    }

    /// Whether packets that a full queue drops are left to their senders.
    pub fn is_leaving(&self) -> bool {
        self.mode == OnCongestion::Leave && self.queue.as_ref().is_some_and(Queue::is_cause)
    }

    /// Whether nearly all losses of the last minute are those of a full queue, and are left.
    pub fn explains_losses(&self) -> bool {
        self.mode == OnCongestion::Leave
            && self.queue.as_ref().is_some_and(|queue| queue.explains && queue.is_cause())
    }

    /// Whether the queue has been full for some time without a break, explains nearly all losses, these are
    /// left, and the link loses next to nothing by itself.
    pub fn is_standing(&self) -> bool {
        let is_clean = self.queue.as_ref().is_some_and(|queue| queue.below < CLEAN_MAX);
        self.standing.is_standing() && is_clean && self.explains_losses()
    }

    /// Present knowledge, for an operator.
    pub fn state(&self) -> CongestionState {
        let losses = self.horizons[2].sum(..).runs;
        CongestionState {
            is_leaving: self.is_leaving(),
            is_masking: self.mode == OnCongestion::Mask,
            queue_us: self.latest_us,
            queue: self.queue.map(|queue| QueueLoss {
                full_us: delay_of(queue.edge.bin),
                below: queue.below,
                above: queue.above,
            }),
            has_losses: losses >= 1.0,
        }
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.marks.memory_bytes()
            + self.recent.memory_bytes()
            + self.horizons.iter().map(Horizon::memory_bytes).sum::<usize>()
    }
}
