//! Arrivals that no repair names, over several windows: whether missing packets arrive in another form.
//!
//! The newest arrivals of a window are named in the next one, so that a single window tells little of a small
//! share. In the sum of several windows these arrivals count once. Some packets are never named, such as
//! those of classes without protection. Their usual number is learned while there is no doubt.

use super::window::Window;

/// Arrivals of a moment that repairs name later, as far as their number changes.
const UNSETTLED: i64 = 32;
/// Number of missing packets from which on older windows count half.
const MISSING_MAX: i64 = 4096;
/// Maximum number of windows after which it cannot be told.
const UNDECIDED_MAX: u32 = 2;
/// Unit of [`Nameless::usual`].
const PLACE: i64 = 1 << 20;
/// Number of windows over which usual numbers are averaged.
const LEARNED_MAX: i64 = 8;

/// Sums over the windows since the doubt began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nameless {
    /// Usual number of nameless arrivals for each place of the stream, in parts of [`PLACE`].
    usual: i64,
    /// The same of fragments.
    usual_fragments: i64,
    /// Number of windows from which both were learned, up to [`LEARNED_MAX`].
    learned: i64,
    /// Number of windows.
    windows: u32,
    nameless: i64,
    named: i64,
    missing: i64,
}

impl Nameless {
    /// Takes a window without doubt.
    pub(super) fn on_clean(&mut self, window: &Window) {
        // The first windows are averaged, so that a doubt that begins soon finds the whole number.
        let learned = LEARNED_MAX.min(self.learned + 1);
        let learn = |usual: i64, arrivals: i64, named: i64| {
            let share = PLACE * (arrivals - named).max(0) / window.places().max(1);
            usual + (share - usual) / learned
        };
        *self = Self {
            usual: learn(self.usual, window.arrivals, window.named),
            usual_fragments: learn(self.usual_fragments, window.fragments, window.named_fragments),
            learned,
            ..Self::default()
        };
    }

    /// Whether the missing packets of a window probably arrived in fragments: a router makes two or more of
    /// each of them, and a box that rewrites fragments makes one of one.
    pub(super) fn is_fragmented(&self, window: &Window) -> bool {
        let unsettled = UNSETTLED.min(window.named_fragments / 8);
        let usual = window.places() * self.usual_fragments / PLACE;
        let nameless = window.fragments - window.named_fragments - unsettled - usual;
        2 * nameless > 3 * window.missing
    }

    /// Takes a window in which `unexplained` packets are missing without explanation. Returns whether about
    /// as many arrived without a name; `None` while it cannot be told.
    pub(super) fn on_doubt(&mut self, window: &Window, unexplained: i64) -> Option<bool> {
        self.windows += 1;
        self.nameless += window.arrivals - window.named - window.places() * self.usual / PLACE;
        self.named += window.named;
        self.missing += unexplained;
        if self.missing > MISSING_MAX {
            for sum in [&mut self.nameless, &mut self.named, &mut self.missing] {
                *sum /= 2;
            }
        }
        // Where little is named, little is named later.
        let unsettled = UNSETTLED.min(self.named / 8);
        let has_other_form = |nameless: i64| 2 * nameless > self.missing;
        let [least, most] = [-unsettled, unsettled].map(|more| has_other_form(self.nameless + more));
        (least == most || self.windows > UNDECIDED_MAX).then_some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_rewritten_is_recognised_after_some_windows_and_a_detour_is_not() {
        for missing in [8, 16, 85, 128, 256] {
            for is_rewritten in [true, false] {
                let (mut nameless, mut told, mut unsettled) = (Nameless::default(), Vec::new(), 0);
                for n in 0..40 {
                    // The newest arrivals are named in the next window, more or less of them.
                    let before = std::mem::replace(&mut unsettled, [0, 20, 30, 5][n % 4].min(256 - missing));
                    let named = 256 - missing - unsettled + before;
                    let arrivals = if is_rewritten { 256 } else { 256 - missing };
                    let window = Window { arrivals, named, missing, ..Window::default() };
                    told.push(nameless.on_doubt(&window, missing));
                }
                assert!(told[20..].iter().all(|&told| told == Some(is_rewritten)), "{missing}: {told:?}");
                assert!(is_rewritten || !told.contains(&Some(true)), "{missing}: {told:?}");
                assert!(missing < 85 || !told.contains(&None), "{missing}: {told:?}");
            }
        }
    }

    #[test]
    fn packets_that_are_never_named_are_no_evidence() {
        let mut nameless = Nameless::default();
        let window =
            |arrivals, missing| Window { arrivals, named: 256 - missing, missing, ..Window::default() };
        (0..60).for_each(|_| nameless.on_clean(&window(512, 0)));
        assert!(
            (0..40).all(|_| nameless.on_doubt(&window(486, 26), 26) != Some(true)),
            "a tenth takes a detour"
        );
        nameless.on_clean(&window(512, 0));
        assert!(
            (0..40).any(|_| nameless.on_doubt(&window(512, 26), 26) == Some(true)),
            "a tenth is rewritten"
        );
    }

    #[test]
    fn fragments_explain_missing_packets_unless_as_many_are_usual() {
        let window = |fragments, missing| Window {
            arrivals: 256 + fragments,
            named: 256 - missing,
            missing,
            fragments,
            ..Window::default()
        };
        let mut nameless = Nameless::default();
        assert!(nameless.is_fragmented(&window(60, 30)));
        assert!(!nameless.is_fragmented(&window(30, 30)), "each was rewritten");
        (0..60).for_each(|_| nameless.on_clean(&window(60, 0)));
        assert!(!nameless.is_fragmented(&window(60, 30)));
        assert!(nameless.is_fragmented(&window(120, 30)));
    }
}
