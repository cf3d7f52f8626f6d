//! News: who hears of a change for the first time tells it on to a few others, a few times.

use std::net::SocketAddr;

use ricochet_core::NodeId;

use super::Exchange;
use crate::Output;
use crate::wire::{
    DATAGRAM_MAX, DIGEST_ENTRIES_MAX, Known, STEPS_HEADER, STEPS_MAX, StepParts, StepsView, write_digest,
};

/// Datagrams of news in one round to one member; what has no room waits for the next.
const DATAGRAMS_MAX: usize = 4;
/// Steps of one list that are told together. Who lacks more asks.
const STEPS_TOLD_MAX: u32 = 4;

/// A list that has changed lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rumour {
    /// The steps behind this version are news.
    since: u32,
    /// Rounds in which it is still told.
    rounds: u8,
}

impl Exchange {
    /// The list of `id` has become `version` by a change that others may not have heard of.
    pub(super) fn spread(&mut self, now_us: u64, id: NodeId, version: u32, delay_us: u64) {
        if self.rumours.is_empty() {
            self.next_rumour_us = self.next_rumour_us.max(now_us + delay_us);
        }
        let rounds = self.config.rumour_rounds;
        let since = version.saturating_sub(1);
        let rumour = self.rumours.entry(id).or_insert(Rumour { since, rounds });
        rumour.rounds = rounds;
        rumour.since = rumour.since.max(version.saturating_sub(STEPS_TOLD_MAX));
    }

    pub(super) fn rumour_due_us(&self) -> Option<u64> {
        (!self.rumours.is_empty()).then_some(self.next_rumour_us)
    }

    /// Tells all news to some members drawn by chance.
    pub(super) fn rumour_round(&mut self, now_us: u64, out: &mut impl Output) {
        self.next_rumour_us = now_us + self.config.rumour_period_us;
        let targets = self.draw_members(self.config.rumour_fanout);
        if targets.is_empty() {
            self.rumours.clear();
            return;
        }
        let (datagrams, told) = self.write_rumours();
        for to in targets {
            for datagram in &datagrams {
                self.send(to, datagram, out);
            }
        }
        for id in told {
            let Some(rumour) = self.rumours.get_mut(&id) else { continue };
            rumour.rounds -= 1;
            if rumour.rounds == 0 {
                self.rumours.remove(&id);
            }
        }
    }

    /// The datagrams of a round, and whose news are in them. A change that is no step is told as a digest: there is
    /// a newer version.
    fn write_rumours(&self) -> (Vec<Vec<u8>>, Vec<NodeId>) {
        let (mut datagrams, mut told, mut without_steps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut steps, mut count) = (Vec::with_capacity(DATAGRAM_MAX), 0);
        for (&id, rumour) in &self.rumours {
            let list = match self.directory.get(id) {
                Some(entry) => &entry.list,
                None => &self.own,
            };
            let Some(news) = list.steps_since(id, rumour.since) else {
                if without_steps.len() < DIGEST_ENTRIES_MAX {
                    without_steps.push(Known { id, version: list.version });
                    told.push(id);
                }
                continue;
            };
            let news: Vec<_> = news.collect();
            let length: usize = news.iter().map(StepParts::wire_len).sum();
            if steps.len() + length > DATAGRAM_MAX - STEPS_HEADER || count + news.len() > STEPS_MAX {
                finish(&mut datagrams, &mut steps, &mut count);
                if datagrams.len() == DATAGRAMS_MAX {
                    break;
                }
            }
            if length > DATAGRAM_MAX - STEPS_HEADER {
                without_steps.push(Known { id, version: list.version });
                told.push(id);
                continue;
            }
            for step in news {
                let at = steps.len();
                steps.resize(at + step.wire_len(), 0);
                step.write(&mut steps[at..]);
                count += 1;
            }
            told.push(id);
        }
        finish(&mut datagrams, &mut steps, &mut count);
        without_steps.truncate(DIGEST_ENTRIES_MAX);
        if !without_steps.is_empty() {
            let mut digest = vec![0; DATAGRAM_MAX];
            let length = write_digest(&without_steps, false, &mut digest);
            digest.truncate(length);
            datagrams.push(digest);
        }
        (datagrams, told)
    }

    /// Addresses of up to `count` members, each at most once.
    fn draw_members(&mut self, count: usize) -> Vec<SocketAddr> {
        let members = self.directory.len();
        let mut places: Vec<usize> = Vec::with_capacity(count);
        // Floyd's way: each as likely as the others.
        for last in members.saturating_sub(count)..members {
            let candidate = self.draw(last as u64 + 1) as usize;
            places.push(if places.contains(&candidate) { last } else { candidate });
        }
        places.into_iter().map(|place| self.directory.at(place).peer.address).collect()
    }
}

fn finish(datagrams: &mut Vec<Vec<u8>>, steps: &mut Vec<u8>, count: &mut usize) {
    if *count > 0 {
        datagrams.push([&StepsView::header(*count as u8), steps.as_slice()].concat());
    }
    steps.clear();
    *count = 0;
}
