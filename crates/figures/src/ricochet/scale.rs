//! Scalability: Thesis Figures 4.10, 4.11 and 4.15, and §4.6.6.

use sim::Setting;

use super::rivals::{Rival, after_us, mean, rival_job, waits};
use super::setting::{base, job, packets_kept, recovery_and_latency};
use crate::outcome::{Panel, Point, Series};
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure::new("4.10", groups, judge_groups),
        Figure::new("4.11", xors, judge_xors),
        Figure::new("4.15", group_sizes, judge_group_sizes),
        Figure::new("4.6.6", nodes, judge_nodes),
    ]
}

pub(super) const ALGORITHM: &str = "by the algorithm alone";

/// Returns the expected mean latency in milliseconds. A node fills its bin for another with the packets that
/// both receive, s in n of all; the first of c such bins is full after one part in c + 1 of that time.
pub(super) fn expected_ms(setting: &Setting) -> f64 {
    expected_of_shared_ms(setting, setting.group_size as f64 / setting.nodes as f64)
}

/// Returns the same where both receive this share of their packets.
fn expected_of_shared_ms(setting: &Setting, shared: f64) -> f64 {
    1e3 * f64::from(setting.r) / (setting.rate * shared) / (f64::from(setting.c) + 1.0)
}

/// Returns the same for nodes in few groups: both receive all of the lost packet's group, and of their other
/// groups those that they happen to share.
fn expected_in_groups_ms(setting: &Setting) -> f64 {
    let of_group = 1.0 / setting.groups_per_node as f64;
    let of_others = (setting.group_size as f64 - 1.0) / (setting.nodes as f64 - 1.0);
    expected_of_shared_ms(setting, of_group + (1.0 - of_group) * of_others)
}

/// Returns the job of a setting beside its expected latency.
fn beside_expected(setting: Setting, x: f64) -> Job {
    let expected = Sample { panel: 1, series: 1, x, y: expected_ms(&setting) };
    let read = recovery_and_latency(0, x);
    job(setting, move |figures| read(figures).into_iter().chain([expected]).collect()).decided_by(expected)
}

fn recovery_panels(x: &'static str, latency: &[&str]) -> [PanelPlan; 2] {
    [
        PanelPlan::new(x, "recovered by repairs (%)", ["(8,5)"]),
        PanelPlan::new(x, "mean recovery latency (ms)", latency.iter().copied()),
    ]
}

/// Most groups of the comparison: with more, SRM takes many seconds.
const COMPARED_MAX: usize = 256;
const SRM: usize = 1;
const EXPECTED: usize = 2;

fn group_counts(scale: Scale) -> &'static [usize] {
    scale.pick(&[2, 16, 128, 1_024], &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096])
}

fn groups(scale: Scale) -> Plan {
    let setting = |d: usize| Setting { groups_per_node: d, ..base(scale) };
    let counts = group_counts(scale);
    let of = |&d: &usize| {
        let (x, setting) = (d as f64, setting(d));
        let expected = Sample { panel: 1, series: EXPECTED, x, y: expected_in_groups_ms(&setting) };
        let read = recovery_and_latency(0, x);
        let with_expected = move |figures: &_| read(figures).into_iter().chain([expected]).collect();
        job(setting, with_expected).decided_by(expected)
    };
    let mut jobs: Vec<Job> = counts.iter().map(of).collect();
    // Thesis §4.6.3 compares with Figure 4.2.
    let compared = counts.iter().filter(|&&d| d <= COMPARED_MAX);
    jobs.extend(compared.map(|&d| {
        rival_job(Rival::Srm, &setting(d), after_us(scale, d), move |run| {
            let found = waits(run, |fate| fate.found_us);
            vec![Sample { panel: 1, series: SRM, x: d as f64, y: mean(&found) }]
        })
    }));
    let [recovered, latency] =
        recovery_panels("groups that each node is in", &["(8,5)", "SRM, discovery", ALGORITHM])
            .map(PanelPlan::log_x);
    Plan { panels: vec![recovered, latency.log_y()], jobs }
}

fn judge_groups(panels: &[Panel]) -> Verdict {
    let (recovered, latency, srm) = (&panels[0].series[0], &panels[1].series[0], &panels[1].series[SRM]);
    let times = srm.at(128.0) / latency.at(128.0);
    let flat = recovered.most() - recovered.least() < 3.0 && recovered.least() > 95.0;
    let is_slow = latency.at(1_024.0) > latency.at(2.0) && steps_do_not_grow(latency);
    let verdict = Verdict::new(flat && is_slow && times > 100.0).number("times", times, 0);
    let largest = recovered.end();
    if largest <= 1_024.0 {
        return verdict;
    }
    let verdict = verdict.with("largest", largest).number("largest_recovered", recovered.last(), 1);
    verdict.number("largest_ms", latency.last(), 1)
}

/// Whether no doubling adds notably more than the first one: growth by the logarithm, or slower.
fn steps_do_not_grow(series: &Series) -> bool {
    let step = |pair: &[Point]| (pair[1].median - pair[0].median) / (pair[1].x / pair[0].x).log2();
    let mut steps = series.points.windows(2).map(step);
    steps.next().is_some_and(|first| first > 0.0 && steps.all(|step| step < 1.5 * first))
}

fn xors(scale: Scale) -> Plan {
    let of = |&d: &usize| {
        job(Setting { groups_per_node: d, ..base(scale) }, move |figures| {
            vec![Sample { panel: 0, series: 0, x: d as f64, y: figures.xors_per_packet }]
        })
    };
    let x = "groups that each node is in";
    let panels = vec![PanelPlan::new(x, "XORs for each data packet", ["(8,5)"]).log_x()];
    Plan { panels, jobs: group_counts(scale).iter().map(of).collect() }
}

fn judge_xors(panels: &[Panel]) -> Verdict {
    let xors = &panels[0].series[0];
    Verdict::new(xors.most() <= 5.0 && xors.first() > 0.0 && xors.last() > xors.first())
}

fn group_sizes(scale: Scale) -> Plan {
    let base = base(scale);
    let seconds = scale.pick_smallest(2.0, base.seconds, base.seconds);
    let of = |&s: &usize| beside_expected(Setting { group_size: s, seconds, ..base.clone() }, s as f64);
    let sizes = scale.pick(&[16, 32, 48][..], &[16, 20, 24, 28, 32, 36, 40, 44, 48]);
    let panels = recovery_panels("members of a group", &["(8,5)", ALGORITHM]).into();
    Plan { panels, jobs: sizes.iter().map(of).collect() }
}

fn judge_group_sizes(panels: &[Panel]) -> Verdict {
    let [recovered, latency, _] = recovery_latency_expected(panels);
    Verdict::new(recovered.least() > 98.5 && latency.last() > 1.5 * latency.first())
}

fn recovery_latency_expected(panels: &[Panel]) -> [&Series; 3] {
    [&panels[0].series[0], &panels[1].series[0], &panels[1].series[1]]
}

/// The shape of 4.15 here: latency falls with the group, near the time expected of the algorithm.
pub(crate) fn latency_falls_with_group_size(panels: &[Panel]) -> bool {
    let [recovered, latency, expected] = recovery_latency_expected(panels);
    let near = |x: f64| (0.5..1.5).contains(&(latency.at(x) / expected.at(x)));
    recovered.least() > 98.5 && latency.first() > 2.0 * latency.last() && near(16.0) && near(48.0)
}

/// Returns the setting of a system. Larger ones are measured for a shorter time, with the same number of
/// packets in all nodes together, and observed for longer after it, since bins fill more slowly.
fn system(scale: Scale, nodes: usize) -> Setting {
    let base = base(scale);
    let seconds = (base.seconds * (64.0 / nodes as f64).min(1.0)).max(scale.pick(0.2, 1.0));
    let after_us = base.after_us.max(nodes as u64 * 2_500);
    Setting { nodes, seconds, after_us, packets_kept: packets_kept(scale, nodes), ..base }
}

fn nodes(scale: Scale) -> Plan {
    let of = |&n: &usize| beside_expected(system(scale, n), n as f64);
    let counts = scale.pick(&[32, 64, 256][..], &[16, 32, 64, 128, 256, 512, 1_000]);
    let [recovered, latency] = recovery_panels("nodes", &["(8,5)", ALGORITHM]).map(PanelPlan::log_x);
    Plan { panels: vec![recovered, latency.log_y()], jobs: counts.iter().map(of).collect() }
}

fn judge_nodes(panels: &[Panel]) -> Verdict {
    let [recovered, latency, expected] = recovery_latency_expected(panels);
    let list =
        |of: &dyn Fn(f64) -> String| systems(recovered).into_iter().map(of).collect::<Vec<_>>().join(" / ");
    let is_steady = latency.at(256.0) < 2.0 * latency.at(32.0);
    Verdict::new(recovers_at_any_size(recovered) && is_steady)
        .with("sizes", list(&|n| n.to_string()))
        .with("recovered", list(&|n| format!("{:.1}", recovered.at(n))))
        .with("latency", list(&|n| format!("{:.1}", latency.at(n))))
        .with("expected", list(&|n| format!("{:.1}", expected.at(n))))
        .number("times", latency.at(256.0) / latency.at(32.0), 1)
}

/// Returns the sizes that the text lists.
fn systems(recovered: &Series) -> Vec<f64> {
    let mut places = vec![32.0, 64.0, 256.0, recovered.end()];
    places.dedup();
    places
}

fn recovers_at_any_size(recovered: &Series) -> bool {
    recovered.most() - recovered.least() < 3.0 && recovered.least() > 97.0
}

/// The shape of §4.6.6 here: systems of any size recover as much, larger ones later, and hardly later than
/// the algorithm alone.
pub(crate) fn latency_grows_with_system_size(panels: &[Panel]) -> bool {
    let [recovered, latency, expected] = recovery_latency_expected(panels);
    let near = |x: f64| (0.3..1.5).contains(&(latency.at(x) / expected.at(x)));
    recovers_at_any_size(recovered)
        && latency.steps().all(|(before, after)| after > before)
        && latency.at(256.0) > 2.0 * latency.at(32.0)
        && systems(recovered).into_iter().all(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUPS: [f64; 4] = [2.0, 16.0, 128.0, 1_024.0];

    fn points(x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
        x.iter().copied().zip(y.iter().copied()).collect()
    }

    fn of_groups(recovered: [f64; 4], latency: [f64; 4]) -> bool {
        let [recovered, latency] = [recovered, latency].map(|y| points(&GROUPS, &y));
        let srm = [(2.0, 20.0), (16.0, 160.0), (128.0, 1_260.0)];
        let expected = points(&GROUPS, &[2.3, 6.8, 8.9, 9.3]);
        let latency: [(&str, &[_]); 3] = [("(8,5)", &latency), ("SRM", &srm), (ALGORITHM, &expected)];
        judge_groups(&[Panel::drawn(&[("(8,5)", &recovered)]), Panel::drawn(&latency)]).holds
    }

    #[test]
    fn a_verdict_fails_where_latency_grows_faster_than_the_logarithm() {
        let flat = [99.5, 99.8, 99.8, 99.8];
        assert!(of_groups(flat, [2.0, 6.0, 7.9, 7.8]), "saturates");
        assert!(of_groups(flat, [2.0, 4.0, 6.0, 8.0]), "by the logarithm");
        assert!(!of_groups(flat, [2.0, 2.5, 4.0, 8.0]), "faster");
        assert!(!of_groups(flat, [8.0, 7.9, 7.8, 7.7]), "falls");
        assert!(!of_groups(flat, [12.0, 13.0, 14.0, 15.0]), "SRM is less than a hundred times as late");
        assert!(!of_groups([99.5, 99.0, 98.0, 96.0], [2.0, 6.0, 7.9, 7.8]), "recovery falls");
    }

    #[test]
    fn the_share_of_common_packets_falls_with_groups_to_a_bound() {
        let expected =
            |groups_per_node| expected_in_groups_ms(&Setting { groups_per_node, ..Setting::default() });
        // 571 and 144 of 1,000 packets a second.
        assert!((expected(2) - 8e3 / (500.0 + 500.0 / 7.0) / 6.0).abs() < 1e-9);
        assert!((9.2..9.34).contains(&expected(1_024)));
    }

    #[test]
    fn a_verdict_fails_where_there_are_more_xors_than_c() {
        let holds =
            |last| judge_xors(&[Panel::drawn(&[("(8,5)", &points(&GROUPS, &[1.4, 3.0, 4.9, last]))])]).holds;
        assert!(holds(4.9));
        assert!(!holds(5.1) && !holds(1.3));
    }

    #[test]
    fn a_verdict_tells_a_rising_from_a_falling_latency() {
        let of = |latency: [f64; 3]| {
            let [recovered, latency, expected] =
                [[99.5; 3], latency, [5.3, 2.7, 1.8]].map(|y| points(&[16.0, 32.0, 48.0], &y));
            [
                Panel::drawn(&[("(8,5)", &recovered)]),
                Panel::drawn(&[("(8,5)", &latency), (ALGORITHM, &expected)]),
            ]
        };
        let (falls, rises, far) = (of([4.4, 2.2, 1.6]), of([2.0, 3.0, 4.2]), of([12.0, 6.0, 4.0]));
        assert!(latency_falls_with_group_size(&falls) && !judge_group_sizes(&falls).holds);
        assert!(!latency_falls_with_group_size(&rises) && judge_group_sizes(&rises).holds);
        assert!(!latency_falls_with_group_size(&far) && !judge_group_sizes(&far).holds);
    }

    #[test]
    fn a_verdict_tells_the_effect_of_size_from_none_and_from_too_much() {
        // Whether it is as theirs, and whether it is as ours.
        let judged = |recovered: [f64; 3], latency: [f64; 3]| {
            let [recovered, latency, expected] =
                [recovered, latency, [4.3, 8.5, 34.1]].map(|y| points(&[32.0, 64.0, 256.0], &y));
            let latency: [(&str, &[_]); 2] = [("(8,5)", &latency), (ALGORITHM, &expected)];
            let panels = [Panel::drawn(&[("(8,5)", &recovered)]), Panel::drawn(&latency)];
            (judge_nodes(&panels).holds, latency_grows_with_system_size(&panels))
        };
        let recovered = [100.0, 99.8, 99.7];
        assert_eq!(judged(recovered, [4.3, 7.9, 25.5]), (false, true), "ours");
        assert_eq!(judged(recovered, [4.3, 4.5, 5.0]), (true, false), "insensitive");
        assert_eq!(judged([100.0, 99.0, 96.5], [4.3, 7.9, 25.5]), (false, false), "recovery falls");
        assert_eq!(judged([100.0, 99.0, 96.5], [4.3, 4.5, 5.0]), (false, false), "recovery falls");
        assert_eq!(judged(recovered, [4.3, 7.9, 80.0]), (false, false), "latency grows faster");
        assert_eq!(judged(recovered, [4.3, 3.0, 25.5]), (false, false), "falls on the way");
    }

    #[test]
    fn a_set_up_contains_the_values_of_the_algorithm_alone() {
        let has = |plan: Plan, y: &str| plan.jobs.iter().any(|job| job.setup.contains(&format!("y: {y}")));
        assert!(has(groups(Scale::Quick), "2.33"), "2 groups");
        assert!(has(group_sizes(Scale::Quick), "5.33"), "16 members");
        assert!(has(nodes(Scale::Quick), "34.13"), "256 nodes");
    }
}
