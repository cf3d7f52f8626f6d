//! The beginning of an epoch at a member: it compares what it has delivered with what is agreed, and forgets
//! what is settled.

use std::collections::BTreeMap;

use foundation::Seq;

use super::log::{Log, STARTS_MAX};
use super::report::Begin;
use super::total::{OrderNews, Total};
use crate::ids::NodeId;

/// How far the log of an epoch agrees with that of a member. The two numbers differ if the logs have no epoch
/// in common.
#[derive(Clone, Copy)]
struct Agreement {
    /// Number up to which they agree in any case.
    surely: u64,
    /// Number from which on they differ in any case.
    at_most: u64,
}

impl Total {
    /// Takes part in an epoch that is settled.
    pub(super) fn follow(&mut self, now_us: u64, begin: Begin) {
        let Begin { epoch, settled, prompt, council, mut log, .. } = begin;
        if !settled {
            log.begin(epoch);
        }
        let agreement = self.agreement(&log);
        self.keep_undelivered(&mut log, agreement);
        self.compare(&log, agreement);
        self.forget_settled(&log, agreement);
        self.log = log;
        self.council = Some(council.clone());
        self.prompt = prompt;
        if self.pending.as_ref().is_some_and(|pending| pending.epoch <= epoch) {
            self.pending = None;
        }
        self.promised = self.promised.max(Some(epoch));
        self.acks = BTreeMap::from([(self.config.me, self.held)]);
        self.acked = 0;
        self.stable = self.log.start;
        self.byes.retain(|&node, _| council.contains(node));
        // Members that have promised may have died since.
        self.suspects.retain(|&member| council.contains(member));
        self.denied.clear();
        // Members that hold up this epoch are found again.
        self.evicted.clear();
        (self.want, self.unheard, self.crowded_us) = (None, None, None);
        self.founding.is_out = false;
        self.founding.hellos.retain(|&node, _| !council.contains(node));
        self.forget_unknown();
        self.dirty = self.hold.senders().collect();
        self.counts.epochs += 1;
        self.campaign_us = None;
        if self.is_sequencer() && self.needs_reform(now_us) {
            self.reform_soon(now_us);
        }
    }

    /// Compares the log of this member with that of an epoch. A member that was away may know none of the
    /// epochs whose beginnings the others keep.
    fn agreement(&self, log: &Log) -> Agreement {
        if let Some(number) = self.log.agrees_until(log) {
            return Agreement { surely: number, at_most: number };
        }
        let Some(&(_, first)) = log.starts.first().filter(|_| log.starts.len() >= STARTS_MAX) else {
            return Agreement { surely: 0, at_most: 0 };
        };
        // Each later epoch contains the numbers before a settled one, and those that a majority has
        // acknowledged in it. A safe member has delivered no others.
        let begun = self.log.starts.last().map_or(0, |&(_, start)| start);
        let delivered = if self.config.safe { self.delivered } else { 0 };
        Agreement { surely: self.majority_holds().max(begun).max(delivered).min(first), at_most: first }
    }

    /// Adds to the log of an epoch what this member holds and has not delivered, if the others have
    /// forgotten it: in safe order, members forget what all hold before each of them knows it.
    fn keep_undelivered(&self, log: &mut Log, agreement: Agreement) {
        let agrees =
            agreement.surely >= log.start && self.log.amended_apart(log, self.begins, log.start).is_none();
        if self.council.is_some() && agrees && (self.delivered..=self.held).contains(&log.start) {
            log.reach_back(&self.log, self.delivered);
        }
    }

    /// Compares what this member has delivered with the log of an epoch, and sets where it continues.
    fn compare(&mut self, log: &Log, agreement: Agreement) {
        let begins = log.starts.last().map_or(log.start, |&(_, start)| start).max(log.start);
        let (delivered, news) = if self.council.is_none() && !self.has_delivered {
            let news = match self.void.take() {
                Some(delivered) => OrderNews::Broken { from: 0, delivered, continues: begins },
                None => OrderNews::Begins { number: begins },
            };
            self.begins = begins;
            (begins, Some(news))
        } else {
            let delivered = self.delivered;
            // Members that were not asked may have delivered what the others have declared lost, or have
            // declared lost what the others deliver.
            let amended = self.log.amended_apart(log, self.begins, delivered).unwrap_or(delivered);
            let from = agreement.surely.min(amended);
            // Nothing is delivered twice where no difference is certain.
            let continues = agreement.at_most.min(amended).max(log.start);
            let news = match from {
                _ if from < delivered => Some(OrderNews::Broken { from, delivered, continues }),
                _ if continues > delivered => Some(OrderNews::Missed { from, continues }),
                _ => None,
            };
            (continues, news)
        };
        self.counts.broken += u64::from(matches!(news, Some(OrderNews::Broken { .. })));
        self.news.extend(news);
        (self.delivered, self.held) = (delivered, delivered);
    }

    /// Forgets messages whose numbers are settled and precede those of the log of an epoch. That log may lack
    /// their senders, which then count as new.
    fn forget_settled(&mut self, log: &Log, agreement: Agreement) {
        let number = agreement.surely.min(log.start);
        if number > self.log.start {
            let Self { log: own, hold, .. } = self;
            own.forget_before(number, |run| hold.forget(run.sender, run.seq, run.seq.plus(run.count.into())));
        }
    }

    /// Forgets messages that were numbered before the numbers of the log.
    fn forget_unknown(&mut self) {
        let positions = self.log.positions.iter().map(|(&sender, position)| (sender, position.seq));
        let mut lowest: BTreeMap<NodeId, Seq> = positions.collect();
        for run in self.log.runs.values() {
            let seq = lowest.entry(run.sender).or_insert(run.seq);
            *seq = run.seq.min(*seq);
        }
        for (sender, seq) in lowest {
            self.hold.forget(sender, Seq(0), seq);
        }
    }
}
