//! Windows of some hundred named packets, by which doubt about a path gets a name.

use super::account::{Account, ONE};
use super::suspicion::Suspicion;
use super::{EVIDENCE_US, Path};
use crate::findings::Finding;

/// Shortest and longest window of named packets.
const WINDOW_MIN: i64 = 64;
const WINDOW_MAX: i64 = 256;
/// Time after which a window of [`WINDOW_MIN`] packets ends, in microseconds.
const WINDOW_US: u64 = 2_000_000;
/// Shortest window in microseconds.
const WINDOW_MIN_US: u64 = 250_000;
/// Missing packets in a window that prove nothing.
const STRAY: i64 = 4;
/// Number of windows without doubt, one after the other, that end a finding, at first.
pub(super) const CLEAN_MIN: u32 = 2;
/// The largest such number: it doubles with every relapse.
const CLEAN_MAX: u32 = 32;
/// Number of windows without doubt after which a relapse counts half.
const CALM: u32 = 64;

/// Counts of a window of named packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) since_us: u64,
    /// Packets from the far site, named or not.
    pub(super) arrivals: i64,
    /// Packets that a repair named and that arrived.
    pub(super) named: i64,
    /// Packets that a repair named and that did not arrive.
    pub(super) missing: i64,
    /// Missing packets that the loss of repairs explains, in units of [`ONE`].
    pub(super) explained: i64,
    /// Fragments among the arrivals, and among those that a repair named.
    pub(super) fragments: i64,
    pub(super) named_fragments: i64,
}

impl Window {
    pub(super) fn on_arrival(&mut self, is_fragment: bool) {
        self.arrivals += 1;
        self.fragments += i64::from(is_fragment);
    }

    pub(super) fn on_named(&mut self, is_fragment: bool) {
        self.named += 1;
        self.named_fragments += i64::from(is_fragment);
    }

    /// Number of places that repairs named.
    pub(super) fn places(&self) -> i64 {
        self.named + self.missing
    }

    pub(super) fn restart(&mut self) {
        *self = Self { since_us: self.since_us, ..Self::default() };
    }

    /// Begins the next window and returns this one if it is over.
    pub(super) fn take_if_over(&mut self, now_us: u64) -> Option<Self> {
        let (places, age_us) = (self.places(), now_us.saturating_sub(self.since_us));
        if places == 0 {
            self.since_us = now_us;
        }
        let is_over =
            places >= WINDOW_MIN && (age_us >= WINDOW_US || places >= WINDOW_MAX && age_us >= WINDOW_MIN_US);
        let next = Self { since_us: now_us, ..Self::default() };
        is_over.then(|| std::mem::replace(self, next))
    }
}

impl Path {
    /// Judges a window that is over.
    pub(super) fn judge_window(&mut self, now_us: u64, window: &Window) {
        let explained = (window.explained + window.places()).div_euclid(ONE);
        let unexplained = window.missing - explained - STRAY;
        if unexplained > 0 && self.nameless.is_fragmented(window) {
            self.fragmented_until_us = now_us + EVIDENCE_US;
            self.suspicion.credit(unexplained * self.repairs.weight());
        } else if unexplained > 0 {
            return self.judge_doubt(now_us, window, unexplained);
        } else {
            self.nameless.on_clean(window);
        }
        self.on_clean_window();
    }

    /// Judges a window in which packets are missing that are not explained.
    fn judge_doubt(&mut self, now_us: u64, window: &Window, unexplained: i64) {
        let hardly_any = window.missing > 8 * window.named;
        let has_other_form = self.nameless.on_doubt(window, unexplained);
        let rewritten = has_other_form == Some(true) || now_us < self.translated_until_us;
        let partly = !rewritten && !hardly_any;
        let is_much = 4 * window.missing > window.places();
        // By chance, the link may lose a run of packets and no repair. Repairs that are lost later show it.
        let doubts = self.has_doubt();
        if (partly || !is_much) && self.suspicion.level() <= self.repairs.certain() {
            if doubts {
                self.on_clean_window();
            }
            return;
        }
        self.clean = 0;
        if partly && has_other_form.is_none() {
            return;
        }
        self.findings.set(Finding::Rewritten, rewritten);
        self.findings.set(Finding::Elsewhere, !rewritten && hardly_any);
        self.findings.set(Finding::PartlyElsewhere, partly);
        if !doubts {
            self.clean_needed = (2 * self.clean_needed).min(CLEAN_MAX);
        }
        if !partly {
            self.is_closed = true;
        }
    }

    fn on_clean_window(&mut self) {
        self.clean += 1;
        if !self.is_closed && !self.has_doubt() {
            if self.clean >= CALM {
                (self.clean, self.clean_needed) = (0, CLEAN_MIN.max(self.clean_needed / 2));
            }
            return;
        }
        if self.clean < self.clean_needed {
            return;
        }
        for finding in [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere] {
            self.findings.set(finding, false);
        }
        self.clean = 0;
        self.suspicion = Suspicion::default();
        if self.is_closed {
            self.is_closed = false;
            self.unexplained = Account::default();
            self.unseen = Account::default();
        }
    }
}
