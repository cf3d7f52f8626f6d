//! How it scales: Thesis Figures 4.10, 4.11 and 4.15, and §4.6.6.

use ricochet_lab::Setting;

use super::{SETUP, base, job, recovery_and_latency};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "4.10",
            title: "Scalability in groups: recovery and latency",
            source: "Thesis Figure 4.10, Ricochet Figure 10",
            setup: SETUP,
            claim: "from 2 to 1,024 groups a node almost no effect on recovery; latency grows by the logarithm",
            why: "bins of many regions fill one after the other; their growth at the right end was processor time",
            plan: groups,
            judge: judge_groups,
        },
        Figure {
            id: "4.11",
            title: "Scalability in groups: XORs for each data packet",
            source: "Thesis Figure 4.11 (bottom), Ricochet Figure 11",
            setup: SETUP,
            claim: "XORs for each packet stay under 5, the c of (8,5)",
            why: "the processor time of the figure's upper half is measured on the real machine: docs/bench.md",
            plan: xors,
            judge: judge_xors,
        },
        Figure {
            id: "4.15",
            title: "Group size in a cluster of 64",
            source: "Thesis Figure 4.15, Ricochet Figure 15",
            setup: SETUP,
            claim: "16 to 48 members of 64: recovery above 99 %, latency more than doubles",
            why: "ours slopes the other way, the cause not yet looked into; their nodes (1.3 GHz, Java) also paid processor \
                  time for each repair and region, which is not simulated",
            plan: group_sizes,
            judge: judge_group_sizes,
        },
        Figure {
            id: "4.6.6",
            title: "System size",
            source: "Thesis §4.6.6, Ricochet §5.6",
            setup: SETUP,
            claim: "256 nodes in 128 groups each: 98 % recovered, after nearly 200 ms (four nodes on each machine): \
                    system size does not matter",
            why: "no contention for network and processors in the simulation",
            plan: nodes,
            judge: judge_nodes,
        },
    ]
}

fn recovery_panels(x: &'static str, log: bool) -> Vec<PanelPlan> {
    let panels = [
        PanelPlan::new(x, "recovered by repairs (%)", ["(8,5)"]),
        PanelPlan::new(x, "mean recovery latency (ms)", ["(8,5)"]),
    ];
    panels.into_iter().map(|panel| if log { panel.log_x() } else { panel }).collect()
}

fn group_counts(scale: Scale) -> &'static [usize] {
    scale.pick(&[2, 16, 128, 1_024], &[2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096])
}

fn groups(scale: Scale) -> Plan {
    let of = |&d: &usize| -> Job {
        job(Setting { groups_per_node: d, ..base(scale) }, recovery_and_latency(0, d as f64))
    };
    let panels = recovery_panels("groups that each node is in", true);
    Plan { panels, jobs: group_counts(scale).iter().map(of).collect() }
}

fn judge_groups(panels: &[Panel]) -> Verdict {
    let (recovered, latency) = (&panels[0].series[0], &panels[1].series[0]);
    let ours = format!(
        "{:.1} % with 2 groups, {:.1} % with 1,024; latency {:.1} → {:.1} ms, {:.1} times for 512 times the groups",
        recovered.at(2.0),
        recovered.at(1_024.0),
        latency.at(2.0),
        latency.at(1_024.0),
        latency.at(1_024.0) / latency.at(2.0),
    );
    let flat = recovered.most() - recovered.least() < 3.0 && recovered.least() > 95.0;
    let slow = latency.at(1_024.0) > latency.at(2.0) && latency.at(1_024.0) < 12.0 * latency.at(2.0);
    Verdict { ours, holds: flat && slow }
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
    let ours = format!(
        "{:.2} with 2 groups, {:.2} with 128, {:.2} with 1,024",
        xors.at(2.0),
        xors.at(128.0),
        xors.at(1_024.0)
    );
    Verdict { ours, holds: xors.most() <= 5.0 && xors.last() > xors.first() }
}

fn group_sizes(scale: Scale) -> Plan {
    let of = |&s: &usize| job(Setting { group_size: s, ..base(scale) }, recovery_and_latency(0, s as f64));
    let sizes = scale.pick(&[16, 32, 48][..], &[16, 20, 24, 28, 32, 36, 40, 44, 48]);
    Plan { panels: recovery_panels("members of a group", false), jobs: sizes.iter().map(of).collect() }
}

fn judge_group_sizes(panels: &[Panel]) -> Verdict {
    let (recovered, latency) = (&panels[0].series[0], &panels[1].series[0]);
    let ours = format!(
        "at least {:.1} % recovered; latency {:.1} ms with 16 members, {:.1} ms with 48",
        recovered.least(),
        latency.first(),
        latency.last()
    );
    Verdict { ours, holds: recovered.least() > 98.5 && latency.last() > 1.5 * latency.first() }
}

fn nodes(scale: Scale) -> Plan {
    let of = |&n: &usize| job(Setting { nodes: n, ..base(scale) }, recovery_and_latency(0, n as f64));
    let counts = scale.pick(&[32, 64, 256][..], &[16, 32, 64, 128, 256, 512, 1_000]);
    Plan { panels: recovery_panels("nodes", true), jobs: counts.iter().map(of).collect() }
}

fn judge_nodes(panels: &[Panel]) -> Verdict {
    let (recovered, latency) = (&panels[0].series[0], &panels[1].series[0]);
    let largest = recovered.points.last().map_or(0.0, |point| point.x);
    let ours = format!(
        "256 nodes: {:.1} % after {:.1} ms; {largest} nodes: {:.1} % after {:.1} ms",
        recovered.at(256.0),
        latency.at(256.0),
        recovered.last(),
        latency.last()
    );
    Verdict { ours, holds: recovered.last() > 97.0 }
}
