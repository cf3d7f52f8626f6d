//! The rate of fire as a knob: Thesis Figure 4.9, Slingshot Figure 2.

use sim::Setting;

use super::setting::{base, job};
use crate::outcome::Panel;
use crate::plan::{Figure, PanelPlan, Plan, Sample, Scale, Verdict};

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure::new("4.9", |scale| plan(&base(scale), scale), judge),
        Figure::new("slingshot-2", |scale| plan(&one_group(scale), scale), judge_one_group),
    ]
}

fn one_group(scale: Scale) -> Setting {
    Setting { groups_per_node: 1, group_size: 64, seconds: scale.pick(1.0, 5.0), ..base(scale) }
}

fn plan(setting: &Setting, scale: Scale) -> Plan {
    let shares = ["recovered", "overhead"];
    let panels = vec![
        PanelPlan::new("c, repairs for each packet (r = 8)", "share (%)", shares),
        PanelPlan::new("c, repairs for each packet (r = 8)", "mean latency (ms)", ["recovery"]),
        PanelPlan::new("r, packets in a repair (c = r/2)", "share (%)", shares),
        PanelPlan::new("r, packets in a repair (c = r/2)", "mean latency (ms)", ["recovery"]),
    ];
    let of = |panel: usize, x: u8, r: u8, c: u8| {
        job(Setting { r, c, ..setting.clone() }, move |figures| {
            let sample = |panel, series, y| Sample { panel, series, x: f64::from(x), y };
            vec![
                sample(panel, 0, figures.recovered_percent),
                sample(panel, 1, figures.overhead_percent),
                sample(panel + 1, 0, figures.latency_ms.mean),
            ]
        })
    };
    let c = scale.pick(&[1, 3, 5, 7][..], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let r = scale.pick(&[4, 8, 16][..], &[4, 6, 8, 10, 12, 16, 20]);
    let jobs = c.iter().map(|&c| of(0, c, 8, c)).chain(r.iter().map(|&r| of(2, r, r, r / 2))).collect();
    Plan { panels, jobs }
}

fn judge(panels: &[Panel]) -> Verdict {
    let [c_shares, c_latency, r_shares, _] = panels else { unreachable!("four panels are planned") };
    let (recovered, overhead, latency) = (&c_shares.series[0], &c_shares.series[1], &c_latency.series[0]);
    let steady = &r_shares.series[1];
    // Near 100 % the rest is chance.
    let more = recovered.steps().all(|(before, after)| after > before - 0.3)
        && overhead.steps().all(|(before, after)| after > before);
    let grows =
        more && recovered.last() > recovered.first() + 5.0 && overhead.last() > overhead.first() + 20.0;
    let returns_diminish = recovered.at(3.0) - recovered.at(1.0) > recovered.at(7.0) - recovered.at(5.0);
    let sooner = latency.steps().all(|(before, after)| after < before);
    Verdict::new(grows && returns_diminish && sooner && steady.most() - steady.least() < 3.0)
}

/// Longest mean latency that is "a few milliseconds".
const FEW_MS: f64 = 10.0;

fn judge_one_group(panels: &[Panel]) -> Verdict {
    let within_few = [1, 3].iter().all(|&panel: &usize| panels[panel].series[0].most() < FEW_MS);
    Verdict::new(judge(panels).holds && within_few)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(recovered: [f64; 4], overhead: [f64; 4], latency: [f64; 4], steady: [f64; 3]) -> bool {
        let of_c = |y: [f64; 4]| [(1.0, y[0]), (3.0, y[1]), (5.0, y[2]), (7.0, y[3])];
        let of_r = |y: [f64; 3]| [(4.0, y[0]), (8.0, y[1]), (16.0, y[2])];
        let [recovered, overhead, latency] = [recovered, overhead, latency].map(of_c);
        let steady = of_r(steady);
        let c_shares: [(&str, &[_]); 2] = [("recovered", &recovered), ("overhead", &overhead)];
        let r_shares: [(&str, &[_]); 2] = [("recovered", &steady), ("overhead", &steady)];
        judge(&[
            Panel::drawn(&c_shares),
            Panel::drawn(&[("recovery", &latency)]),
            Panel::drawn(&r_shares),
            Panel::drawn(&[("recovery", &steady)]),
        ])
        .holds
    }

    #[test]
    fn a_verdict_fails_where_the_rate_of_fire_does_not_tune_all_three() {
        let (recovered, overhead, latency) =
            ([60.0, 96.0, 99.8, 100.0], [11.0, 27.0, 38.0, 46.0], [32.0, 14.0, 7.5, 4.0]);
        let steady = [33.0, 33.2, 32.0];
        assert!(holds(recovered, overhead, latency, steady));
        assert!(!holds([99.0, 99.2, 99.3, 99.3], overhead, latency, steady), "recovers as much with any c");
        assert!(!holds([60.0, 96.0, 90.0, 100.0], overhead, latency, steady), "falls on the way");
        assert!(!holds([60.0, 65.0, 80.0, 99.0], overhead, latency, steady), "returns grow");
        assert!(!holds(recovered, [30.0, 31.0, 33.0, 35.0], latency, steady), "overhead stays");
        assert!(!holds(recovered, overhead, [32.0, 14.0, 20.0, 4.0], steady), "later on the way");
        assert!(!holds(recovered, overhead, latency, [33.0, 38.0, 45.0]), "overhead of a fixed share grows");
    }

    #[test]
    fn in_one_group_recovery_takes_a_few_milliseconds() {
        let panels = |slowest: f64| {
            let of = |y: [f64; 4]| [(1.0, y[0]), (3.0, y[1]), (5.0, y[2]), (7.0, y[3])];
            let (recovered, overhead) = (of([60.0, 96.0, 98.0, 99.6]), of([11.0, 27.0, 38.0, 46.0]));
            let (latency, steady) = (of([slowest, 1.5, 1.1, 0.7]), [(4.0, 33.3), (16.0, 33.3)]);
            let c_shares: [(&str, &[_]); 2] = [("recovered", &recovered), ("overhead", &overhead)];
            let r_shares: [(&str, &[_]); 2] = [("recovered", &steady), ("overhead", &steady)];
            let r_latency = [(4.0, 1.0), (16.0, 1.3)];
            [
                Panel::drawn(&c_shares),
                Panel::drawn(&[("recovery", &latency)]),
                Panel::drawn(&r_shares),
                Panel::drawn(&[("recovery", &r_latency)]),
            ]
        };
        assert!(judge_one_group(&panels(2.9)).holds);
        assert!(!judge_one_group(&panels(12.0)).holds);
    }
}
