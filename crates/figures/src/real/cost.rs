//! Processor time for each packet against groups: Thesis Figure 4.11 (top).

use ricochet_stage::{CostPlan, cost};

use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

/// A node that falls behind tells nothing of its cost; on a machine that does other things it is tried again.
const TRIES: usize = 3;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure {
        id: "4.11-real",
        title: "Scalability in groups, on real sockets: processor time and XORs for each packet",
        source: "Thesis Figure 4.11, Ricochet Figure 11",
        setup: "one node in a network namespace of its own, 63 neighbours made beforehand at the other end of a virtual wire, \
                groups of ten on average, (8,5), 1,024-byte packets, 20,000 a second, 1 % of them lost; processor time of \
                the node's threads, system calls included, for each data packet that was delivered",
        claim: "160 µs for each packet with 2 groups, 300 with 1,024: it grows by the logarithm; XORs stay under 5",
        why: "theirs is Java on 1.3 GHz; ours keeps bins of occupied regions only, and most of its time is the kernel's",
        plan,
        judge,
    }]
}

fn plan(scale: Scale) -> Plan {
    let x = "groups that each node is in";
    let panels = vec![
        PanelPlan::new(x, "processor time for each packet (µs)", ["(8,5)"]).log_x(),
        PanelPlan::new(x, "XORs for each data packet", ["(8,5)"]).log_x(),
    ];
    let ds: &[usize] = scale.pick(&[2, 128, 1_024], &[2, 8, 32, 128, 512, 1_024]);
    let (packets, runs) = scale.pick((10_000, 1), (60_000, 5));
    let of = |&groups_per_node: &usize| {
        let plan = CostPlan { groups_per_node, packets, per_second: 20_000, papers: true };
        Job::real(format!("real {plan:?}"), runs, move |_, lab| measure(&plan, lab))
    };
    Plan { panels, jobs: ds.iter().map(of).collect() }
}

fn measure(plan: &CostPlan, lab: &Lab<'_>) -> Result<Vec<Sample>, RunError> {
    for _ in 0..TRIES {
        lab.go_on()?;
        let cost = cost(plan).map_err(|error| RunError::Failed(format!("{error:#}")))?;
        if !cost.fell_behind() {
            let sample = |panel, y| Sample { panel, series: 0, x: plan.groups_per_node as f64, y };
            return Ok(vec![sample(0, cost.us_per_packet), sample(1, cost.xors)]);
        }
    }
    Err(RunError::Failed(format!(
        "the node fell behind {} packets a second in {TRIES} runs: give it a machine that does nothing else",
        plan.per_second
    )))
}

fn judge(panels: &[Panel]) -> Verdict {
    let [time, xors] = [&panels[0].series[0], &panels[1].series[0]];
    let ours = format!(
        "{:.1} µs with 2 groups, {:.1} with 128, {:.1} with 1,024: {:.2} times; XORs {:.2}, {:.2}, {:.2}",
        time.at(2.0),
        time.at(128.0),
        time.at(1_024.0),
        time.at(1_024.0) / time.at(2.0),
        xors.at(2.0),
        xors.at(128.0),
        xors.at(1_024.0)
    );
    let slow = time.at(1_024.0) < 3.0 * time.at(2.0) && time.most() < 160.0;
    Verdict { ours, holds: slow && xors.most() < 5.3 && xors.last() > xors.first() }
}
