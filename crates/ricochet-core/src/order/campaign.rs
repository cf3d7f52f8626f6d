//! The beginning of epochs: promises, the proposal, and the agreement to it.

use std::collections::{BTreeMap, BTreeSet};

use super::epoch::{COUNCIL_MAX, Council, Epoch};
use super::log::Log;
use super::report::{Begin, Report};
use super::total::Total;
use super::wire::Body;
use crate::ids::NodeId;

/// Number by which the count of an epoch may exceed all that were heard of.
const COUNT_STEP_MAX: u32 = 1 << 20;
/// Longest interval between two attempts, in microseconds.
const PAUSE_US_MAX: u64 = 1_000_000;

/// An attempt of this node to become the sequencer.
#[derive(Debug)]
pub(super) struct Candidacy {
    epoch: Epoch,
    since_us: u64,
    resend_us: u64,
    pause_us: u64,
    /// Reports that came with the promises of members.
    reports: BTreeMap<NodeId, Report>,
    /// The proposal, once a majority has promised.
    begin: Option<Box<Begin>>,
    accepts: BTreeSet<NodeId>,
    /// Members that are put out, whether they answer or not.
    evicted: BTreeSet<NodeId>,
}

/// Basis of the next epoch, as the promises determine it.
struct Basis {
    /// The last epoch to which a majority has agreed, and its members.
    settled: Option<(Epoch, Council)>,
    /// A later epoch to which a majority may have agreed.
    pending: Option<Box<Begin>>,
    log: Log,
}

impl Basis {
    /// Determines the basis from what members know, present and left.
    fn of<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> Self {
        let own = reports.clone().filter_map(|report| Some((report.log.epoch()?, &report.council)));
        let pendings = reports.clone().filter_map(|report| report.pending.as_deref());
        let before = pendings
            .clone()
            .filter_map(|begin| begin.before.as_ref().map(|(epoch, council)| (*epoch, council)));
        let settled = own.chain(before).max_by_key(|(epoch, _)| *epoch);
        let settled = settled.map(|(epoch, council)| (epoch, council.clone()));
        let after = |begin: &&Begin| settled.as_ref().is_none_or(|(epoch, _)| begin.epoch > *epoch);
        let pending = pendings.clone().filter(after).max_by_key(|begin| begin.epoch);
        // An epoch that may not be settled has no numbers of its own, so its log counts as one of the epoch
        // before it.
        let logs = reports.map(|report| &report.log).chain(pendings.map(|begin| &begin.log));
        let best = logs.clone().max_by_key(|log| (log.epoch(), log.next));
        let mut log = best.cloned().unwrap_or_default();
        let epoch = log.epoch();
        for other in logs.filter(|other| other.epoch() == epoch) {
            other.amended.iter().for_each(|(&first, &end)| log.amend(first, end));
        }
        Self { pending: pending.cloned().map(Box::new), settled, log }
    }
}

impl Total {
    /// Schedules an epoch with other members.
    pub(super) fn reform_soon(&mut self, now_us: u64) {
        self.reform_us.get_or_insert(now_us.saturating_add(self.config.gather_us));
    }

    /// Schedules an attempt to become the sequencer, after those of members before this one.
    pub(super) fn campaign_soon(&mut self, now_us: u64) {
        if let Some(rank) = self.rank() {
            let wait_us = rank as u64 * (self.config.silence_us / 2);
            self.campaign_us.get_or_insert(now_us.saturating_add(wait_us));
        }
    }

    /// Returns the number of members that should try to become the sequencer before this one. `None` if this
    /// node cannot.
    pub(super) fn rank(&self) -> Option<usize> {
        if self.founding.is_out {
            return None;
        }
        let pending = self.pending.as_ref().map(|begin| &begin.council);
        let council = self.council.as_ref().filter(|council| council.contains(self.config.me)).or(pending)?;
        let sequencer = self.pending.as_ref().map(|begin| begin.epoch).or(self.log.epoch());
        let is_able = |&&member: &&NodeId| {
            member == self.config.me
                || (self.view.contains(&member)
                    && !self.byes.contains_key(&member)
                    && sequencer.is_none_or(|epoch| epoch.sequencer != member))
        };
        let mut able: Vec<NodeId> = council.members.iter().filter(is_able).copied().collect();
        able.sort_unstable();
        able.iter().position(|&member| member == self.config.me)
    }

    /// Begins an attempt to become the sequencer.
    pub(super) fn start_candidacy(&mut self, now_us: u64) {
        let known = [self.promised, self.log.epoch()].into_iter().flatten().map(|epoch| epoch.count);
        let count = known.fold(self.count_seen, u32::max).saturating_add(1);
        let epoch = Epoch { count, sequencer: self.config.me };
        self.count_seen = count;
        self.promised = Some(epoch);
        self.campaign_us = None;
        self.counts.campaigns += 1;
        self.candidacy = Some(Candidacy {
            epoch,
            since_us: now_us,
            resend_us: now_us,
            pause_us: self.config.retry_us,
            reports: BTreeMap::from([(self.config.me, self.report())]),
            begin: None,
            accepts: BTreeSet::new(),
            evicted: std::mem::take(&mut self.evicted),
        });
    }

    /// Notes the count of an epoch that a node has promised to.
    pub(super) fn note_count(&mut self, count: u32) {
        if count <= self.count_seen.saturating_add(COUNT_STEP_MAX) {
            self.count_seen = self.count_seen.max(count);
        }
    }

    /// Returns whether an epoch may be real, and notes its count.
    fn is_plausible(&mut self, from: NodeId, epoch: Epoch) -> bool {
        let is_near = epoch.count <= self.count_seen.saturating_add(COUNT_STEP_MAX);
        if epoch.sequencer != from || !is_near {
            self.counts.unauthorized += 1;
            return false;
        }
        self.count_seen = self.count_seen.max(epoch.count);
        true
    }

    /// Promises to another member to take part in no epoch before `epoch`. Takes back an own attempt.
    fn promise(&mut self, epoch: Epoch) {
        (self.promised, self.granted) = (Some(epoch), Some(epoch));
        if self.candidacy.as_ref().is_some_and(|candidacy| candidacy.epoch < epoch) {
            self.candidacy = None;
        }
    }

    /// Answers a member that wants to be the sequencer.
    pub(super) fn on_prepare(&mut self, now_us: u64, from: NodeId, epoch: Epoch) {
        if !self.is_plausible(from, epoch) {
            return;
        }
        let councils = [self.council.as_ref(), self.pending.as_ref().map(|begin| &begin.council)];
        if !councils.into_iter().flatten().any(|council| council.contains(from)) {
            // The others went on without it, or this node is no member and has nothing to promise.
            return self.answer(now_us);
        }
        if Some(epoch) < self.promised {
            return;
        }
        self.promise(epoch);
        let report = self.report();
        self.send(&Body::Promise { epoch, report });
    }

    /// Takes a promise of a member of a council that this node knows, from its own report or those of others.
    pub(super) fn on_promise(&mut self, from: NodeId, epoch: Epoch, report: Report) {
        let is_open = |candidacy: &&mut Candidacy| candidacy.epoch == epoch && candidacy.begin.is_none();
        let Some(candidacy) = self.candidacy.as_mut().filter(is_open) else { return };
        let mut reports = candidacy.reports.values().chain(self.byes.values());
        if !reports.any(|report| report.has_member(from)) {
            return;
        }
        if report.agreed() >= Some(epoch) {
            // A member that has agreed to a later epoch promises no earlier one.
            return self.counts.unauthorized += 1;
        }
        candidacy.reports.insert(from, report);
        // It has answered after the membership lost it.
        self.suspects.remove(&from);
    }

    /// Takes the beginning of an epoch, which is proposed or settled.
    pub(super) fn on_begin(&mut self, now_us: u64, from: NodeId, begin: Begin) {
        if !self.is_plausible(from, begin.epoch) || !begin.council.contains(from) {
            return;
        }
        let present = self.council.as_ref().and(self.log.epoch());
        if begin.settled && present < Some(begin.epoch) && !begin.council.contains(self.config.me) {
            // The others went on without this member.
            self.founding.is_out = true;
            self.candidacy = None;
            return;
        }
        if Some(begin.epoch) < self.promised {
            return;
        }
        if begin.settled {
            return self.on_settled_begin(now_us, begin, present);
        }
        let was_member = begin.before.as_ref().is_some_and(|(_, council)| council.contains(self.config.me));
        let is_concerned = was_member || begin.council.contains(self.config.me);
        if present >= Some(begin.epoch) || !is_concerned {
            return;
        }
        let epoch = begin.epoch;
        self.promise(epoch);
        self.pending = Some(Box::new(begin));
        self.send(&Body::Accept { epoch });
    }

    fn on_settled_begin(&mut self, now_us: u64, begin: Begin, present: Option<Epoch>) {
        if present == Some(begin.epoch) {
            begin.log.runs.iter().for_each(|(&number, &run)| self.log.insert(number, run));
            return begin.log.amended.iter().for_each(|(&first, &end)| self.log.amend(first, end));
        }
        if present > Some(begin.epoch) {
            return;
        }
        if begin.council.contains(self.config.me) {
            self.promise(begin.epoch);
            self.follow(now_us, begin);
        }
    }

    /// Takes an agreement.
    pub(super) fn on_accept(&mut self, from: NodeId, epoch: Epoch) {
        if let Some(candidacy) = &mut self.candidacy
            && candidacy.epoch == epoch
        {
            candidacy.accepts.insert(from);
        }
    }

    /// Takes the news that a member has left.
    pub(super) fn on_bye(&mut self, now_us: u64, from: NodeId, report: Report) {
        self.founding.hellos.remove(&from);
        let (agreed, present) = (report.agreed(), self.log.epoch());
        let is_member = self.council.as_ref().is_some_and(|council| council.contains(from));
        if !is_member || agreed < present {
            // It has left an earlier epoch, and may have come back.
            return;
        }
        let count = agreed.map_or(0, |epoch| epoch.count);
        self.note_count(count);
        if count > self.count_seen {
            return self.counts.unauthorized += 1;
        }
        self.byes.insert(from, report);
        if agreed > present {
            self.doubt_epoch(agreed);
        }
        if self.is_sequencer() {
            self.reform_soon(now_us);
        } else if self.log.epoch().is_some_and(|epoch| epoch.sequencer == from) {
            self.campaign_soon(now_us);
        }
    }

    /// Returns whether a member has left and counts no more among those that decide on `epoch`. One that has
    /// agreed to a later epoch still counts: it may belong to the majority that has begun that one.
    pub(super) fn has_left(&self, member: NodeId, epoch: Epoch) -> bool {
        self.byes.get(&member).is_some_and(|report| report.agreed() <= Some(epoch))
    }

    /// Asks for the epoch that follows, because a member that left has agreed to one. Gives up an attempt to
    /// begin an earlier one, for which that member may be needed.
    fn doubt_epoch(&mut self, agreed: Option<Epoch>) {
        self.candidacy.take_if(|candidacy| Some(candidacy.epoch) < agreed);
        if self.candidacy.is_none() {
            let epoch = self.log.epoch();
            self.send(&Body::Pull { epoch, promised: self.promised, next: self.log.next });
        }
    }

    /// Advances an attempt to become the sequencer, or begins one that is due.
    pub(super) fn campaign(&mut self, now_us: u64) {
        if !self.is_blocked() {
            self.begin_campaign(now_us);
        }
        if self.candidacy.as_ref().is_some_and(|candidacy| candidacy.begin.is_none())
            && let Some(begin) = self.proposal(now_us)
            && let Some(candidacy) = &mut self.candidacy
        {
            let begin = Box::new(begin);
            self.pending = Some(begin.clone());
            candidacy.begin = Some(begin);
            candidacy.accepts.insert(self.config.me);
            candidacy.resend_us = now_us;
            candidacy.pause_us = self.config.retry_us;
        }
        if self.is_agreed()
            && let Some(Candidacy { begin: Some(begin), .. }) = self.candidacy.take()
        {
            self.follow(now_us, *begin);
            // Members that agreed learn by the numbers that it is settled; others ask for it.
            self.announces = true;
        }
        self.resend(now_us);
    }

    /// Begins an attempt that is due. A member that hears no promises would only stop the others.
    fn begin_campaign(&mut self, now_us: u64) {
        if self.campaign_us.take_if(|due_us| *due_us <= now_us).is_some()
            && self.candidacy.is_none()
            && self.rank().is_some()
        {
            self.start_candidacy(now_us);
        }
        if self.reform_us.take_if(|due_us| *due_us <= now_us).is_some()
            && self.is_sequencer()
            && self.is_open()
            && self.candidacy.is_none()
            && self.needs_reform(now_us)
        {
            self.start_candidacy(now_us);
        }
    }

    fn resend(&mut self, now_us: u64) {
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.resend_us <= now_us)
        else {
            return;
        };
        candidacy.resend_us = now_us.saturating_add(candidacy.pause_us);
        candidacy.pause_us = (2 * candidacy.pause_us).min(PAUSE_US_MAX);
        let body = match &candidacy.begin {
            Some(begin) => Body::Begin((**begin).clone()),
            None => Body::Prepare { epoch: candidacy.epoch },
        };
        self.send(&body);
    }

    pub(super) fn candidacy_due_us(&self) -> Option<u64> {
        let candidacy = self.candidacy.as_ref()?;
        let wait_us = candidacy.since_us.saturating_add(self.config.promise_us);
        // A proposal that the wait held up is made with the first flush after it.
        let waits = candidacy.begin.is_none() && candidacy.resend_us > wait_us;
        Some(if waits && self.waits_for_promises { wait_us } else { candidacy.resend_us })
    }

    /// Returns whether the members have changed.
    pub(super) fn needs_reform(&self, now_us: u64) -> bool {
        let Some(council) = &self.council else { return false };
        self.founding.fresh(now_us).any(|node| !council.contains(node))
            || council.members.iter().any(|member| self.byes.contains_key(member))
            || !self.evicted.is_empty()
            || council.members.iter().any(|member| self.suspects.contains(member))
    }

    /// Returns the beginning of the epoch, if enough members have promised.
    fn proposal(&mut self, now_us: u64) -> Option<Begin> {
        self.waits_for_promises = false;
        let candidacy = self.candidacy.as_ref()?;
        let Basis { settled, pending, log } = Basis::of(candidacy.reports.values().chain(self.byes.values()));
        let has = |node: NodeId| candidacy.reports.contains_key(&node);
        let left = |node: NodeId| self.has_left(node, candidacy.epoch);
        let councils = || {
            let settled = settled.as_ref().map(|(_, council)| council);
            settled.into_iter().chain(pending.as_ref().map(|begin| &begin.council))
        };
        if !councils().all(|council| council.is_majority(has, left)) {
            return None;
        }
        let is_awaited = |&&member: &&NodeId| self.view.contains(&member) && !has(member) && !left(member);
        let awaits = councils().any(|council| council.members.iter().filter(is_awaited).count() > 0);
        let until_us = candidacy.since_us.saturating_add(self.config.promise_us);
        if awaits && now_us < until_us {
            self.waits_for_promises = true;
            return None;
        }
        let (epoch, before) = (candidacy.epoch, settled);
        let council = match &pending {
            // It may have been agreed to, and must not be replaced by another one.
            Some(begin) => begin.council.clone(),
            None => self.next_council(now_us, before.as_ref().map(|(_, council)| council)),
        };
        if !council.contains(self.config.me) {
            return None;
        }
        let safe = self.founding.hellos.values().any(|&(_, safe)| safe);
        let prompt = self.prompt || self.config.safe || safe || pending.is_some_and(|begin| begin.prompt);
        Some(Begin { epoch, settled: false, prompt, council, before, log })
    }

    /// Returns the members of the next epoch, this node first: members that answer or count as alive, and
    /// nodes that want to be members.
    fn next_council(&self, now_us: u64, before: Option<&Council>) -> Council {
        let Some(candidacy) = &self.candidacy else { return Council::default() };
        let is_alive = |node: &NodeId| {
            candidacy.reports.contains_key(node)
                || (self.view.contains(node) && !self.suspects.contains(node))
        };
        let old = before.into_iter().flat_map(|council| council.members.iter().copied());
        let old = old.filter(|member| is_alive(member));
        let mut members = vec![self.config.me];
        for node in old.chain(self.founding.fresh(now_us)) {
            let is_out = self.byes.contains_key(&node) || candidacy.evicted.contains(&node);
            if !is_out && !members.contains(&node) && members.len() < COUNCIL_MAX {
                members.push(node);
            }
        }
        Council { members }
    }

    /// Returns whether enough members have agreed to the proposal.
    fn is_agreed(&self) -> bool {
        let Some(candidacy) = &self.candidacy else { return false };
        let Some(begin) = &candidacy.begin else { return false };
        let has = |node: NodeId| candidacy.accepts.contains(&node);
        let left = |node: NodeId| self.has_left(node, candidacy.epoch);
        let before = begin.before.as_ref().map(|(_, council)| council);
        before.into_iter().chain([&begin.council]).all(|council| council.is_majority(has, left))
    }
}
