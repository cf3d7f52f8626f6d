//! Whether goodput has the claimed shape.

use super::cells::{PERCENTS, SENDERS};
use crate::outcome::{Panel, Series};
use crate::plan::Verdict;

/// Loss at which TCP alone is compared.
const JUDGED_PERCENT: f64 = 1.0;
/// Greatest loss that the source masks.
const MASKED_PERCENT: f64 = 2.0;
/// Least share of the due repairs of gateways that keep up.
const KEPT_UP_PERCENT: f64 = 95.0;

/// Least shares of the lossless line with gateways.
struct Margins {
    /// Up to [`MASKED_PERCENT`].
    loss: f64,
    /// At each latency.
    latency: f64,
}

impl Margins {
    /// A quick run shares its two cores with other work.
    const QUICK: Self = Self { loss: 0.3, latency: 0.3 };
    /// Repairs leave 0.71.
    const FULL: Self = Self { loss: 0.5, latency: 0.45 };
}

/// Least share of the lossless line that "tracks closely".
const CLOSE: f64 = 0.9;
/// Lead over TCP alone at [`JUDGED_PERCENT`] by which it has collapsed.
pub(crate) const LEAD: f64 = 4.0;
/// Lead from which on two orders of magnitude are nearer than one.
pub(crate) const TWO_ORDERS: f64 = 32.0;

/// The parts of the claim that a run shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    /// Loss is masked up to [`MASKED_PERCENT`].
    masks: bool,
    /// TCP alone collapses with loss.
    collapses: bool,
    /// Gateways keep their share of the lossless line at each latency, and TCP alone falls with latency.
    reaches: bool,
    /// Gateways are close to the lossless line wherever latency is not low.
    tracks: bool,
}

impl Shown {
    fn of(panels: &[Panel], lead: f64) -> Self {
        let [loss, latency @ .., _] = panels else { unreachable!("four panels are planned") };
        let [lossless, with, without, others @ ..] = &loss.series[..] else {
            unreachable!("at least three series")
        };
        let at = |series: &Series| series.at(JUDGED_PERCENT);
        let is_full = !others.is_empty();
        let (margins, lead) = if is_full { (Margins::FULL, lead) } else { (Margins::QUICK, LEAD) };
        // Of the other senders only cubic collapses too.
        let cubic_collapses = others.chunks_exact(2).take(1).all(|pair| LEAD * at(&pair[1]) < at(&pair[0]));
        // A quick run has only the last of the panels.
        let latency = if is_full { latency } else { &latency[latency.len() - 1..] };
        let reaches = latency.iter().all(|panel| {
            let [lossless, with, without, ..] = &panel.series[..] else { unreachable!("as above") };
            let falls = without.points.len() < 2 || without.last() < without.first();
            falls && with.last() > 3.0 * without.last() && keeps(with, lossless, margins.latency, |_| true)
        });
        let tracks = latency.iter().all(|panel| {
            let lowest = panel.series[0].points.first().map_or(0.0, |point| point.x);
            keeps(&panel.series[1], &panel.series[0], CLOSE, |delay_ms| delay_ms > lowest)
        });
        Self {
            masks: keeps(with, lossless, margins.loss, |percent| percent <= MASKED_PERCENT),
            collapses: lead * at(without) < at(with) && without.last() < without.first() && cubic_collapses,
            reaches,
            // A single latency shows no slope.
            tracks: tracks && latency.iter().all(|panel| panel.series[0].points.len() > 1),
        }
    }
}

/// The shape of 3.11 and 3.12 here: loss is masked and TCP alone collapses, but gateways lag at every
/// latency.
pub(crate) fn masks_and_lags_at_every_latency(panels: &[Panel], lead: f64) -> bool {
    Shown::of(panels, lead) == Shown { masks: true, collapses: true, reaches: true, tracks: false }
}

pub(super) fn judge(panels: &[Panel], lead: f64) -> Verdict {
    let Shown { masks, collapses, reaches, tracks } = Shown::of(panels, lead);
    let [loss, latency @ .., repairs] = panels else { unreachable!("four panels are planned") };
    let (with, without) = (&loss.series[1], &loss.series[2]);
    let shares = shares(&latency[latency.len() - 1]);
    let share =
        |pick: fn(f64, f64) -> f64| format!("{:.2}", shares.iter().copied().reduce(pick).unwrap_or(f64::NAN));
    let mut verdict = Verdict::new(masks && collapses && reaches && tracks)
        .with("times", times(with.at(JUDGED_PERCENT), without.at(JUDGED_PERCENT)))
        .with("shares", shares.iter().map(|share| format!("{share:.2}")).collect::<Vec<_>>().join(" / "))
        .with("share_least", share(f64::min))
        .with("share_most", share(f64::max));
    if loss.series.len() > BBR {
        let gains = bbr_gains(panels);
        let gained = gains.iter().filter(|(_, is_gain)| *is_gain).map(|(setting, _)| setting.as_str());
        verdict = verdict
            .with("bbr_gains", gained.clone().count())
            .with("bbr_cells", gains.len())
            .with("bbr_where", gained.collect::<Vec<_>>().join(", "));
    }
    let sent = repairs.series.iter().map(Series::least).fold(100.0, f64::min);
    if sent < KEPT_UP_PERCENT {
        verdict = verdict.number("repairs_least", sent, 0);
    }
    verdict
}

/// Returns the goodput with gateways in units of the lossless line, at each latency.
fn shares(latency: &Panel) -> Vec<f64> {
    let [lossless, with, ..] = &latency.series[..] else { unreachable!("at least three series") };
    with.points.iter().map(|point| point.median / lossless.at(point.x)).collect()
}

/// Series of bbr without gateways; that with gateways precedes it.
const BBR: usize = 2 * SENDERS.len();

/// Returns each setting of bbr, and whether gateways gain there.
fn bbr_gains(panels: &[Panel]) -> Vec<(String, bool)> {
    let pairs = |panel: &Panel| {
        let (with, alone) = (panel.series[BBR - 1].clone(), panel.series[BBR].clone());
        with.points.into_iter().map(move |point| (point.x, point.median > alone.at(point.x)))
    };
    let of_loss = pairs(&panels[0]).map(|(percent, gains)| (format!("{percent} % and 50 ms"), gains));
    let of_latency = PERCENTS.iter().zip(&panels[1..]).flat_map(|(percent, panel)| {
        pairs(panel).map(move |(delay_ms, gains)| (format!("{percent} % and {delay_ms} ms"), gains))
    });
    let mut all: Vec<_> = of_loss.collect();
    // The settings at 50 ms stand in both kinds of panel.
    for setting in of_latency {
        if all.iter().all(|(same, _)| *same != setting.0) {
            all.push(setting);
        }
    }
    all
}

/// Whether a series has at least this share of the lossless one, at the places that `asked` names.
fn keeps(series: &Series, lossless: &Series, share: f64, asked: impl Fn(f64) -> bool) -> bool {
    let mut points = series.points.iter().filter(|point| asked(point.x));
    points.all(|point| point.median >= share * lossless.at(point.x))
}

fn times(more: f64, less: f64) -> String {
    if less > 0.0 { format!("{:.0}", more / less) } else { "infinitely many".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Point;

    /// The medians of a figure by percent or latency: the lossless line, reno with gateways and alone, and
    /// cubic.
    #[derive(Clone)]
    struct Came {
        loss: Vec<[f64; 6]>,
        latency: [Vec<[f64; 6]>; 2],
        /// Share of the due repairs, in percent.
        repairs: f64,
    }

    impl Came {
        /// The expected values: place, no loss, with, alone, cubic with, cubic alone.
        fn full() -> Self {
            let row = |x, alone| [x, 96.0, 68.0, alone, 68.0, alone];
            let loss = [(0.01, 40.0), (0.1, 5.0), (1.0, 1.0), (2.0, 0.8), (5.0, 0.5), (10.0, 0.3)];
            let loss = loss.map(|(x, alone)| row(x, alone)).to_vec();
            let far = |near: f64| vec![row(0.0, 4.0 * near), row(50.0, near), row(250.0, near / 4.0)];
            Self { loss, latency: [far(5.0), far(1.0)], repairs: 100.0 }
        }

        fn quick() -> Self {
            let mut came = Self::full();
            came.loss.retain(|row| PERCENTS.contains(&row[0]));
            came.latency.iter_mut().for_each(|rows| rows.retain(|row| row[0] == 50.0));
            came
        }

        fn panels(&self, series: usize) -> [Panel; 4] {
            let panel = |rows: &[[f64; 6]]| Panel {
                x: String::new(),
                y: String::new(),
                x_log: true,
                y_log: true,
                series: (1..=series)
                    .map(|at| Series {
                        name: String::new(),
                        points: rows.iter().map(|row| Point::of(row[0], vec![row[at]])).collect(),
                    })
                    .collect(),
            };
            let repairs = [[1.0, self.repairs, 0.0, 0.0, 0.0, 0.0]];
            let mut repairs = panel(&repairs);
            repairs.series.truncate(1);
            [panel(&self.loss), panel(&self.latency[0]), panel(&self.latency[1]), repairs]
        }

        fn holds(&self, series: usize) -> bool {
            masks_and_lags_at_every_latency(&self.panels(series), LEAD)
        }

        fn full_without(change: impl Fn(&mut Self)) -> bool {
            let mut came = Self::full();
            change(&mut came);
            came.holds(5)
        }

        fn quick_without(change: impl Fn(&mut Self)) -> bool {
            let mut came = Self::quick();
            change(&mut came);
            came.holds(3)
        }
    }

    #[test]
    fn a_verdict_fails_where_loss_is_not_masked_or_tcp_alone_does_not_collapse() {
        assert!(Came::full_without(|_| {}));
        assert!(!Came::full_without(|came| came.loss[3][2] = 47.0), "2 % is not masked");
        assert!(Came::full_without(|came| came.loss[4][2] = 20.0), "5 % need not be");
        assert!(!Came::full_without(|came| came.loss[2][3] = 20.0), "TCP that needs little help");
        assert!(!Came::full_without(|came| came.loss[0][3] = 0.2), "goodput that does not fall with loss");
        assert!(!Came::full_without(|came| came.loss[2][5] = 20.0), "cubic that needs little help");
        for panel in [0, 1] {
            for at in 0..3 {
                assert!(
                    !Came::full_without(|came| came.latency[panel][at][2] = 42.0),
                    "one latency is not masked"
                );
            }
            assert!(!Came::full_without(|came| came.latency[panel][2][3] = 30.0), "TCP reaches far alone");
            assert!(
                !Came::full_without(|came| came.latency[panel][0][3] = 0.1),
                "TCP alone does not fall with latency"
            );
        }
    }

    #[test]
    fn a_verdict_of_a_quick_run_has_wider_margins() {
        assert!(Came::quick_without(|_| {}));
        assert!(Came::quick_without(|came| came.loss[1][2] = 32.0), "less than a full run may");
        assert!(!Came::quick_without(|came| came.loss[1][2] = 20.0), "gateways that do not mask");
        assert!(!Came::quick_without(|came| came.loss[1][3] = 20.0), "TCP that needs little help");
        assert!(!Came::quick_without(|came| came.loss[0][3] = 0.2), "goodput that does not fall with loss");
        assert!(!Came::quick_without(|came| came.latency[1][0][2] = 20.0), "a latency that is not masked");
        assert!(!Came::quick_without(|came| came.latency[1][0][3] = 30.0), "TCP reaches far alone");
    }

    #[test]
    fn the_claim_holds_where_gateways_track_the_lossless_line() {
        let mut came = Came::full();
        assert!(!judge(&came.panels(5), LEAD).holds, "they lag at every latency");
        let near = |row: &mut [f64; 6]| row[2] = if row[0] > 0.0 { 92.0 } else { 68.0 };
        came.latency.iter_mut().flatten().for_each(near);
        assert!(judge(&came.panels(5), LEAD).holds, "they lag at the lowest latency only");
        assert!(judge(&came.panels(5), TWO_ORDERS).holds);
        came.loss[2][3] = 3.0;
        assert!(
            judge(&came.panels(5), LEAD).holds && !judge(&came.panels(5), TWO_ORDERS).holds,
            "23 times as much"
        );
        came.latency[1][2][2] = 80.0;
        assert!(!judge(&came.panels(5), LEAD).holds, "they lag at 250 ms too");
    }

    #[test]
    fn the_values_of_the_text_are_those_of_the_panels() {
        let mut came = Came::full();
        let verdict = judge(&came.panels(5), LEAD);
        assert_eq!(verdict.value("shares"), Some("0.71 / 0.71 / 0.71"));
        assert_eq!((verdict.value("repairs_least"), verdict.value("bbr_gains")), (None, None));
        came.repairs = 60.0;
        came.loss.iter_mut().for_each(|row| row[3] = 0.0);
        let verdict = judge(&came.panels(5), LEAD);
        assert_eq!(verdict.value("repairs_least"), Some("60"));
        assert_eq!(verdict.value("times"), Some("infinitely many"));
    }

    #[test]
    fn settings_in_which_bbr_gains_are_counted_once() {
        let series = |points: &[(f64, f64)]| Series {
            name: String::new(),
            points: points.iter().map(|&(x, y)| Point::of(x, vec![y])).collect(),
        };
        let panel = |with: &[(f64, f64)], alone: &[(f64, f64)]| {
            let mut panel = Panel::drawn(&[("", &[][..]); 5]);
            panel.series.extend([series(with), series(alone)]);
            panel
        };
        let loss = panel(&[(0.1, 7.0), (1.0, 7.0)], &[(0.1, 9.0), (1.0, 5.0)]);
        let near = panel(&[(50.0, 7.0)], &[(50.0, 9.0)]);
        let far = panel(&[(50.0, 7.0), (250.0, 6.0)], &[(50.0, 5.0), (250.0, 7.0)]);
        let gains = bbr_gains(&[loss, near, far]);
        let expected = [("0.1 % and 50 ms", false), ("1 % and 50 ms", true), ("1 % and 250 ms", false)];
        assert_eq!(gains, expected.map(|(setting, gains)| (setting.to_owned(), gains)));
    }
}
