//! What a gap in what the tap saw leaves in doubt. Packets that arrived unseen must not be taken for lost, and those that were
//! seen must not stand for later ones that equal them: theirs may have been lost.
//!
//! From the gap on repairs bring nothing back and bind nothing. When the tap has caught up the doubt *clears*: a first repair tells
//! how far the stream has come, and recovery begins where a whole repair lies so far behind that nothing before it arrived
//! unseen. A slow stream would take minutes; for it a time counts after which no repair names what came before.

use super::{Ingress, Surroundings};
use crate::wire::RecipeView;
use foundation::Seq;

/// After a gap in what the tap saw, so many packets more may have passed unseen without being named yet.
const GAP_MARGIN: u64 = 512;

/// Whether packets may be here that the tap has not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// None.
    Clear,
    /// Yes, and more may come.
    Blind,
    /// Yes, but no more come.
    Clearing(Clearing),
}

/// The time after the tap has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clearing {
    until_us: u64,
    /// Arrivals by the time when the tap had caught up.
    kept: u64,
    /// From this place on no packet had arrived when the first repair came after the gap, unseen or seen.
    beyond: Option<Seq>,
    /// Arrivals that were forgotten may lie before this place.
    doubtful: Seq,
}

/// So many places beyond the newest one named may packets have arrived, where names of `window` packets are kept.
pub(super) fn blind_margin(window: u64) -> u64 {
    window / 4 + GAP_MARGIN
}

impl Ingress {
    /// The tap has missed packets that arrived: what repairs miss may be here. They bring nothing back until
    /// [`Ingress::caught_up`].
    pub(crate) fn gap(&mut self) {
        self.sight = Sight::Blind;
        self.held.clear();
        self.skip_before(self.ledger.newest().plus(1));
    }

    /// The tap sees everything again, and every repair that had come by now has been looked at.
    pub(crate) fn caught_up(&mut self, now_us: u64) {
        if self.sight == Sight::Blind {
            let (until_us, kept) = (now_us + self.give_up_us, self.shelf.kept());
            self.sight = Sight::Clearing(Clearing { until_us, kept, beyond: None, doubtful: Seq(0) });
        }
    }

    /// Whether a repair may miss packets that are here, and so brings nothing back. The first one after a gap does in any case,
    /// however long it took to come: those before it may have been lost, with all that they named, and only when one has come
    /// is it known which places to give up.
    pub(super) fn is_blind(&mut self, around: &mut Surroundings<'_>, view: &RecipeView<'_>) -> bool {
        let behind_newest = self.ledger.newest().plus(1);
        let mut clearing = match self.sight {
            Sight::Clear => return false,
            Sight::Blind => {
                self.skip_before(behind_newest);
                return true;
            }
            Sight::Clearing(clearing) => clearing,
        };
        let beyond = clearing.beyond.unwrap_or(behind_newest.plus(self.blind_margin));
        let limit = beyond.max(clearing.doubtful);
        if view.first() >= limit {
            self.sight = Sight::Clear;
            self.skip_before(limit);
            return false;
        }
        if let Some(reach) = self.forget_passed(around.now_us, &clearing, view, limit) {
            clearing.doubtful = clearing.doubtful.max(behind_newest.plus(reach));
        }
        clearing.beyond = Some(beyond);
        self.skip_before(behind_newest.min(beyond.max(clearing.doubtful)));
        // What lies behind can be named already: later repairs will need it.
        let _ = self.bind(around, view);
        let is_over = around.now_us >= clearing.until_us && behind_newest >= clearing.doubtful;
        self.sight = if is_over { Sight::Clear } else { Sight::Clearing(clearing) };
        true
    }

    /// Forgets what arrived, and lies before the places that repairs may still bind: all that came before the tap had caught up,
    /// and of each name that the present repair gives up what came long enough before it. Of packets that equal each other and
    /// come faster than that nobody can tell which of them a repair names.
    ///
    /// Not all of that must lie where this repair reaches: one of a wide interleave names none of the newest packets. If anything
    /// was forgotten that no repair has named, this returns how far beyond it may lie: as far as there are arrivals without a name,
    /// and as many that were lost.
    fn forget_passed(
        &mut self,
        now_us: u64,
        clearing: &Clearing,
        view: &RecipeView<'_>,
        limit: Seq,
    ) -> Option<u64> {
        let reach = (2 * self.shelf.unbound()).min(self.blind_margin);
        let mut forgotten =
            if clearing.beyond.is_none() { self.shelf.forget_before(clearing.kept) } else { 0 };
        let given_up = self.ledger.oldest_open()..limit;
        let names = || view.entries().filter(|entry| given_up.contains(&entry.seq)).map(|entry| entry.name);
        names().for_each(|name| self.shelf.pass_over(now_us, name));
        names().for_each(|name| forgotten += self.shelf.forget_name(now_us, name));
        (forgotten > 0).then_some(reach)
    }
}
