//! The rate of fire as a knob: Thesis Figure 4.9, Slingshot Figure 2.

use sim::Setting;

use super::{base, job};
use crate::outcome::Panel;
use crate::plan::{Figure, PanelPlan, Plan, Sample, Scale, Verdict};

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "4.9",
            title: "Tuning the rate of fire: recovery, overhead and latency",
            source: "Thesis Figure 4.9, Ricochet Figure 9",
            setup: "64 nodes, each in 128 groups of ten members on average, 1,000 packets of 1 KiB a second at each node, 1 % \
                    uniform loss of all datagrams, 50 µs from socket to socket, no requests; five seconds (theirs 30)",
            claim: "at r = 8 a greater c recovers more, sooner, for more overhead; with c/r fixed the overhead stays",
            why: "the figure's values are not in the text; overhead is repairs among all packets that arrive, \
                  c/(r + c) where all lands in bins",
            plan: |scale| plan(&base(scale), scale),
            judge,
        },
        Figure {
            id: "slingshot-2",
            title: "Tuning the rate of fire in one group of 64",
            source: "Slingshot Figure 2",
            setup: "64 nodes in one group, each sends a packet of 1 KiB each 64 ms, 1 % uniform loss, no requests",
            claim: "a greater c recovers more, sooner, with diminishing returns; with c = r/2 the overhead stays; \
                    (8,5): 97.5 % at 38 % overhead",
            why: "our decoder also solves repairs that miss two packets with the help of others",
            plan: |scale| plan(&Setting { groups_per_node: 1, group_size: 64, ..base(scale) }, scale),
            judge,
        },
    ]
}

fn plan(setting: &Setting, scale: Scale) -> Plan {
    let shares = ["recovered", "overhead"];
    let panels = vec![
        PanelPlan::new("c, repairs that a packet enters (r = 8)", "share (%)", shares),
        PanelPlan::new("c, repairs that a packet enters (r = 8)", "mean latency (ms)", ["recovery"]),
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
    let ours = format!(
        "r = 8, c = 1 → {}: {:.1} → {:.1} % recovered after {:.1} → {:.1} ms for {:.0} → {:.0} % overhead, (8,5): \
         {:.1} % for {:.0} %; c = r/2: overhead {:.1}–{:.1} %",
        recovered.points.last().map_or(0.0, |point| point.x),
        recovered.first(),
        recovered.last(),
        latency.first(),
        latency.last(),
        overhead.first(),
        overhead.last(),
        recovered.at(5.0),
        overhead.at(5.0),
        steady.least(),
        steady.most(),
    );
    // Near 100 % what is left is chance.
    let more = recovered.steps().all(|(before, after)| after > before - 0.3)
        && overhead.steps().all(|(before, after)| after > before);
    let grows =
        more && recovered.last() > recovered.first() + 5.0 && overhead.last() > overhead.first() + 20.0;
    let returns_diminish = recovered.at(3.0) - recovered.at(1.0) > recovered.at(7.0) - recovered.at(5.0);
    let sooner = latency.steps().all(|(before, after)| after < before);
    Verdict { ours, holds: grows && returns_diminish && sooner && steady.most() - steady.least() < 3.0 }
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
    fn a_knob_that_does_not_turn_all_three_is_told() {
        let (recovered, overhead, latency) =
            ([60.0, 96.0, 99.8, 100.0], [11.0, 27.0, 38.0, 46.0], [32.0, 14.0, 7.5, 4.0]);
        let steady = [33.0, 33.2, 32.0];
        assert!(holds(recovered, overhead, latency, steady));
        assert!(!holds([99.0, 99.2, 99.3, 99.3], overhead, latency, steady), "recovers as much whatever c");
        assert!(!holds([60.0, 96.0, 90.0, 100.0], overhead, latency, steady), "falls on the way");
        assert!(!holds([60.0, 65.0, 80.0, 99.0], overhead, latency, steady), "returns grow");
        assert!(!holds(recovered, [30.0, 31.0, 33.0, 35.0], latency, steady), "overhead stays");
        assert!(!holds(recovered, overhead, [32.0, 14.0, 20.0, 4.0], steady), "later on the way");
        assert!(!holds(recovered, overhead, latency, [33.0, 38.0, 45.0]), "overhead of a fixed share grows");
    }
}
