//! Whether messages are as late as claimed.

use crate::outcome::{Panel, Point};
use crate::plan::Verdict;

/// One-way latency of the panels against loss.
pub(super) const DELAY_MS: u32 = 50;
/// Loss rate at which a verdict compares, and of the figure message by message.
pub(super) const JUDGED_PERCENT: f64 = 1.0;

/// Most messages of the slower kind in a quick run.
const QUICK_MESSAGES: usize = 300;
/// One-way latency past which TCP alone takes more than twice as long, by the source.
const FAR_MS: f64 = 100.0;

/// The parts of the claim that the averages show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    /// With gateways the mean is the link's latency up to [`JUDGED_PERCENT`], and at each latency.
    is_the_links: bool,
    /// TCP alone takes longer as loss goes up.
    grows: bool,
    /// TCP alone takes longer than with gateways.
    wins: bool,
    /// TCP alone takes more than twice as long past [`FAR_MS`].
    doubles: bool,
}

impl Shown {
    fn of(panels: &[Panel]) -> Self {
        let [mean, high, far, _] = panels else { unreachable!("four panels are planned") };
        // A quick run has no greater loss than that judged, shares its machine, and has too few losses of the
        // slower streams.
        let is_full = mean.series[0].end() > JUDGED_PERCENT;
        let (factor, more_ms) = if is_full { (1.1, 2.0) } else { (1.25, 5.0) };
        let is_near = |point: &Point, delay_ms: f64| point.median <= factor * delay_ms + more_ms;
        let near = [0, 2].into_iter().all(|with| {
            let mut low = mean.series[with].points.iter().filter(|point| point.x <= JUDGED_PERCENT);
            let mut far = far.series[with].points.iter();
            low.all(|point| is_near(point, f64::from(DELAY_MS))) && far.all(|point| is_near(point, point.x))
        });
        let at = |panel: &Panel, series: usize| panel.series[series].at(JUDGED_PERCENT);
        let grows = |alone: usize| mean.series[alone].last() > mean.series[alone].first();
        let is_late = |alone: usize| at(high, alone) > 1.5 * at(high, alone - 1);
        Self {
            is_the_links: near,
            grows: grows(3) && (!is_full || grows(1)),
            wins: at(mean, 3) > 1.1 * at(mean, 2) && is_late(3) && (!is_full || is_late(1)),
            // Only the thesis' stream is judged: the losses of the faster one in a run are chance.
            doubles: doubled(far, 1).all(|doubled| doubled),
        }
    }
}

/// Returns for each long link whether TCP alone takes more than twice as long as with gateways, the series
/// before its own.
fn doubled(far: &Panel, alone: usize) -> impl Iterator<Item = bool> {
    let pairs = far.series[alone].points.iter().zip(&far.series[alone - 1].points);
    let pairs = pairs.filter(|(alone, _)| alone.x > FAR_MS);
    pairs.map(|(alone, with)| alone.median > 2.0 * with.median)
}

/// The shape of 3.14 here: all parts of the claim except that TCP alone takes twice as long at 0.1 % loss.
pub(crate) fn all_but_twice_as_long(panels: &[Panel]) -> bool {
    Shown::of(panels) == Shown { is_the_links: true, grows: true, wins: true, doubles: false }
}

pub(super) fn judge_averages(panels: &[Panel]) -> Verdict {
    let [_, _, far, _] = panels else { unreachable!("four panels are planned") };
    let Shown { is_the_links, grows, wins, doubles } = Shown::of(panels);
    let count = |alone| doubled(far, alone).filter(|doubled| *doubled).count();
    Verdict::new(is_the_links && grows && wins && doubles)
        .with("doubled_slow", count(1))
        .with("doubled_fast", count(3))
        .with("far", doubled(far, 1).count())
}

pub(super) fn judge_one_by_one(panels: &[Panel]) -> Verdict {
    // A whole one-way latency late, which is more than any jitter of the machine.
    let late = |panel: &Panel, series: usize| {
        let points = &panel.series[series].points;
        points.iter().filter(|point| point.median > 2.0 * f64::from(DELAY_MS)).count()
    };
    let share = |panel: &Panel, series: usize| {
        100.0 * late(panel, series) as f64 / panel.series[series].points.len().max(1) as f64
    };
    let both = |series| late(&panels[0], series) + late(&panels[1], series);
    // The machine of a quick run may stall for longer than a one-way latency.
    let is_full = panels[0].series[0].points.len() > QUICK_MESSAGES;
    Verdict::new(both(1) >= if is_full { 10 } else { 4 } * both(0).max(1))
        .number("slow_with", share(&panels[0], 0), 1)
        .number("slow_alone", share(&panels[0], 1), 1)
        .number("fast_with", share(&panels[1], 0), 1)
        .number("fast_alone", share(&panels[1], 1), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Series;

    fn panel(series: &[&[(f64, f64)]]) -> Panel {
        let points = |points: &&[(f64, f64)]| points.iter().map(|&(x, y)| Point::of(x, vec![y])).collect();
        let series = series.iter().map(|values| Series { name: String::new(), points: points(values) });
        Panel { x: String::new(), y: String::new(), x_log: false, y_log: false, series: series.collect() }
    }

    /// With gateways, and without.
    type Pair = [Vec<(f64, f64)>; 2];

    /// Means of the two panels and 99th percentiles of the first, of one kind.
    struct Kind {
        mean: Pair,
        high: Pair,
        far: Pair,
    }

    impl Kind {
        fn full() -> Self {
            Self {
                mean: [
                    vec![(0.1, 50.0), (1.0, 51.0), (5.0, 70.0)],
                    vec![(0.1, 51.0), (1.0, 70.0), (5.0, 90.0)],
                ],
                high: [vec![(1.0, 60.0)], vec![(1.0, 170.0)]],
                far: [
                    vec![(50.0, 50.0), (100.0, 100.0), (175.0, 175.0), (250.0, 250.0)],
                    vec![(50.0, 51.0), (100.0, 110.0), (175.0, 360.0), (250.0, 510.0)],
                ],
            }
        }
    }

    fn panels(kinds: &[Kind; 2]) -> [Panel; 4] {
        let of = |part: fn(&Kind) -> &Pair| {
            let series: Vec<&[(f64, f64)]> =
                kinds.iter().flat_map(|kind| part(kind).iter().map(Vec::as_slice)).collect();
            panel(&series)
        };
        [of(|kind| &kind.mean), of(|kind| &kind.high), of(|kind| &kind.far), of(|kind| &kind.far)]
    }

    /// With one kind changed, 0 the slower.
    fn shown(kind: usize, is_quick: bool, change: impl Fn(&mut Kind)) -> Shown {
        let mut kinds = [Kind::full(), Kind::full()];
        if is_quick {
            kinds.iter_mut().flat_map(|kind| &mut kind.mean).for_each(|points| points.truncate(2));
        }
        change(&mut kinds[kind]);
        let panels = panels(&kinds);
        let shown = Shown::of(&panels);
        assert_eq!(judge_averages(&panels).holds, shown == ALL);
        assert_eq!(all_but_twice_as_long(&panels), shown == Shown { doubles: false, ..ALL });
        shown
    }

    const ALL: Shown = Shown { is_the_links: true, grows: true, wins: true, doubles: true };

    #[test]
    fn a_verdict_asks_for_latency_that_grows_with_loss_and_the_links_with_gateways() {
        for kind in [0, 1] {
            assert_eq!(shown(kind, false, |_| {}), ALL);
            let late = Shown { is_the_links: false, ..ALL };
            assert_eq!(shown(kind, false, |kind| kind.mean[0][1].1 = 58.0), late, "at 1 %");
            assert!(!shown(kind, false, |kind| kind.far[0][1].1 = 113.0).is_the_links, "at 100 ms");
            let flat = |kind: &mut Kind| kind.mean[1][2].1 = 50.5;
            assert_eq!(shown(kind, false, flat), Shown { grows: false, ..ALL });
            let early = |kind: &mut Kind| kind.high[1][0].1 = 60.0;
            assert_eq!(shown(kind, false, early), Shown { wins: false, ..ALL });
        }
        let hardly = |kind: &mut Kind| kind.mean[1][1].1 = 55.0;
        assert_eq!(shown(1, false, hardly), Shown { wins: false, ..ALL }, "the mean is hardly longer");
    }

    #[test]
    fn the_thesis_stream_must_take_twice_as_long_on_every_link_past_a_hundred_milliseconds() {
        for link in [2, 3] {
            let shorter = move |kind: &mut Kind| kind.far[1][link].1 = 1.9 * kind.far[0][link].1;
            assert_eq!(shown(0, false, shorter), Shown { doubles: false, ..ALL });
            assert_eq!(shown(1, false, shorter), ALL);
        }
    }

    #[test]
    fn a_quick_verdict_has_wider_margins_and_does_not_judge_the_slower_streams() {
        assert_eq!(shown(1, true, |kind| kind.mean[0][1].1 = 60.0), ALL);
        assert!(!shown(1, true, |kind| kind.mean[0][1].1 = 68.0).is_the_links);
        assert_eq!(shown(0, true, |kind| kind.high[1][0].1 = 60.0), ALL);
        assert_eq!(shown(1, true, |kind| kind.high[1][0].1 = 60.0), Shown { wins: false, ..ALL });
    }

    #[test]
    fn a_verdict_asks_for_spikes_that_gateways_remove() {
        let messages = |late: usize, of: usize| -> Vec<(f64, f64)> {
            (0..of).map(|at| (at as f64, if at < late { 180.0 } else { 50.0 })).collect()
        };
        let holds = |with: usize, alone: usize, of: usize| {
            let panel = || panel(&[&messages(with, of), &messages(alone, of)]);
            judge_one_by_one(&[panel(), panel()]).holds
        };
        assert!(holds(0, 20, 400));
        assert!(holds(2, 20, 400));
        assert!(!holds(3, 20, 400), "more than a tenth");
        assert!(holds(5, 20, 200), "a quick run may have a quarter");
        assert!(!holds(6, 20, 200));
        assert!(!holds(0, 0, 400), "no spikes");
        assert!(!holds(20, 20, 400));
    }
}
