//! Whether goodput has the shape that is claimed.

use std::fmt::Write as _;

use super::SENDERS;
use crate::outcome::{Panel, Point, Series};
use crate::plan::Verdict;

/// Where a verdict looks.
const JUDGED_PERCENT: f64 = 1.0;
/// Up to here all is masked, says the source.
const MASKED_PERCENT: f64 = 2.0;
/// Gateways that send a smaller share of the repairs that are due did not keep up.
const KEPT_UP_PERCENT: f64 = 95.0;

/// How much of the lossless line gateways have to leave.
struct Margins {
    /// Up to [`MASKED_PERCENT`].
    loss: f64,
    /// At each latency.
    latency: f64,
}

impl Margins {
    /// A quick run shares its two cores with whatever else runs.
    const QUICK: Self = Self { loss: 0.3, latency: 0.3 };
    /// 0.71 is all that repairs leave.
    const FULL: Self = Self { loss: 0.5, latency: 0.45 };
}

pub(super) fn judge(panels: &[Panel]) -> Verdict {
    let [loss, latency @ .., repairs] = panels else { unreachable!("four panels are planned") };
    let [lossless, with, without, beside @ ..] = &loss.series[..] else {
        unreachable!("three series at the least")
    };
    let at = |series: &Series| series.at(JUDGED_PERCENT);
    let mut ours = format!(
        "Mbit/s, reno: no loss {}; at {} % loss {} with gateways, {} alone: {} at 1 %",
        short(at(lossless)),
        list(with, |point| point.x.to_string()),
        list(with, |point| short(point.median)),
        list(without, |point| short(point.median)),
        times(at(with), at(without)),
    );
    let far = &latency[latency.len() - 1].series;
    let _ = write!(
        ours,
        "; at 1 % and {} ms {} with, {} alone, no loss {}",
        list(&far[1], |point| point.x.to_string()),
        list(&far[1], |point| short(point.median)),
        list(&far[2], |point| short(point.median)),
        list(&far[0], |point| short(point.median)),
    );
    for (name, pair) in SENDERS[1..].iter().zip(beside.chunks_exact(2)) {
        let (with, alone) = (short(at(&pair[0])), short(at(&pair[1])));
        let _ = write!(ours, "; {name} at 1 % {with} with, {alone} alone");
    }
    let sent = repairs.series.iter().map(Series::least).fold(100.0, f64::min);
    if sent < KEPT_UP_PERCENT {
        let _ =
            write!(ours, "; gateways did not keep up everywhere: {sent:.0} % of the repairs at the worst");
    }
    let is_full = !beside.is_empty();
    let margins = if is_full { Margins::FULL } else { Margins::QUICK };
    let masks = keeps(with, lossless, margins.loss, |percent| percent <= MASKED_PERCENT);
    let collapses = at(without) < 0.25 * at(with) && without.last() < without.first();
    // Of the others cubic alone is brought down by losses too.
    let others_collapse = beside.chunks_exact(2).take(1).all(|pair| at(&pair[1]) < 0.25 * at(&pair[0]));
    // A quick run has the last of the panels only.
    let latency = if is_full { latency } else { &latency[latency.len() - 1..] };
    let reaches = latency.iter().all(|panel| {
        let [lossless, with, without, ..] = &panel.series[..] else { unreachable!("as before") };
        let falls = without.points.len() < 2 || without.last() < without.first();
        falls && with.last() > 3.0 * without.last() && keeps(with, lossless, margins.latency, |_| true)
    });
    Verdict { ours, holds: masks && collapses && others_collapse && reaches }
}

/// Whether a series is no less than this share of the lossless one, wherever it is asked.
fn keeps(series: &Series, lossless: &Series, share: f64, asked: impl Fn(f64) -> bool) -> bool {
    let mut points = series.points.iter().filter(|point| asked(point.x));
    points.all(|point| point.median >= share * lossless.at(point.x))
}

fn list(series: &Series, text: impl Fn(&Point) -> String) -> String {
    series.points.iter().map(text).collect::<Vec<_>>().join(" / ")
}

fn times(more: f64, less: f64) -> String {
    if less > 0.0 {
        format!("{:.0} times as much", more / less)
    } else {
        "something instead of nothing".to_owned()
    }
}

/// As many digits as are of use.
fn short(mbps: f64) -> String {
    if mbps < 10.0 { format!("{mbps:.1}") } else { format!("{mbps:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::goodput::PERCENTS;

    /// What a figure came to: medians by percent or latency, of the lossless line, reno with gateways and alone, and
    /// cubic.
    #[derive(Clone)]
    struct Came {
        loss: Vec<[f64; 6]>,
        latency: [Vec<[f64; 6]>; 2],
        /// Of the repairs due, in percent.
        repairs: f64,
    }

    impl Came {
        /// As it should be: place, no loss, with, alone, cubic with, cubic alone.
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
            judge(&self.panels(series)).holds
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
    fn a_verdict_wants_losses_masked_and_tcp_alone_brought_down() {
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
    fn who_falls_behind_and_who_gets_nothing_is_told() {
        let mut came = Came::full();
        came.repairs = 60.0;
        came.loss.iter_mut().for_each(|row| row[3] = 0.0);
        let ours = judge(&came.panels(5)).ours;
        assert!(ours.contains("60 % of the repairs") && ours.contains("instead of nothing"), "{ours}");
        assert!(!judge(&Came::full().panels(5)).ours.contains("keep up"));
    }
}
