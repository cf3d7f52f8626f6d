//! Processor time for each packet against groups: Thesis Figure 4.11 (top).

use stage::nodes::{CostPlan, cost};

use super::{Program, behaviour};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

/// A node that falls behind tells nothing of its cost; on a machine that does other things it is tried again.
const TRIES: usize = 3;
/// c, and what the draw of the repairs that a packet enters may add to it.
const XORS_MOST: f64 = 5.0 * 1.02;
/// Of a quick run, with a sixth of the packets and once: 4.8 to 5.13 were seen.
const XORS_MOST_QUICK: f64 = 5.0 * 1.05;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure {
        id: "4.11-real",
        title: "Scalability in groups, on real sockets: processor time and XORs for each packet",
        source: "Thesis Figure 4.11, Ricochet Figure 11",
        setup: "one node in a network namespace of its own, 63 neighbours made beforehand at the other end of a virtual wire, \
                groups of ten on average, (8,5), 1,024-byte packets, 20,000 a second, 1 % of them lost; processor time of \
                the node's threads, system calls included, for each data packet that was delivered. As many streams are known \
                as there may be: `buffers.streams` raised beyond 1,024 groups a node",
        claim: "160 µs for each packet with 2 groups, 300 with 1,024: it grows by the logarithm; XORs stay under 5",
        why: "theirs is Java on 1.3 GHz; ours keeps bins of occupied regions only, and most of its time is the kernel's. How many \
              repairs a packet enters is drawn, 5 on average, so that their bound is held to within 2 %: up to 5.1 (a \
                  quick run, of a sixth of the packets, to within 5 %)",
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
    let ds: &[usize] = scale.pick(&[2, 128, 1_024], &[2, 8, 32, 128, 512, 1_024, 2_048, 4_096]);
    let (packets, runs) = scale.pick((10_000, 1), (60_000, 5));
    let of = |&groups_per_node: &usize| {
        let plan = CostPlan { groups_per_node, packets, per_second: 20_000, papers: true };
        let setup = format!(
            "real {plan:?} {}, (8,5), 1,024 bytes, 1 % lost, groups of ten, streams for all, tried {TRIES} times",
            behaviour(Program::Nodes)
        );
        Job::real(setup, runs, move |_, lab| measure(&plan, lab))
    };
    Plan { panels, jobs: ds.iter().map(of).collect() }
}

fn measure(plan: &CostPlan, lab: &Lab<'_>) -> Result<Vec<Sample>, RunError> {
    let mut missed = Vec::new();
    for _ in 0..TRIES {
        lab.go_on()?;
        let cost = cost(plan).map_err(|error| RunError::Failed(format!("{error:#}")))?;
        if cost.no_room > 0 {
            return Err(RunError::Failed(format!(
                "expected a node that knows all streams, saw {} packets dropped for want of room: raise `buffers.streams`",
                cost.no_room
            )));
        }
        if !cost.fell_behind() {
            let sample = |panel, y| Sample { panel, series: 0, x: plan.groups_per_node as f64, y };
            return Ok(vec![sample(0, cost.us_per_packet), sample(1, cost.xors)]);
        }
        missed.push(format!("{} and {}", cost.overflowed, cost.dropped));
    }
    Err(RunError::Failed(format!(
        "in {} groups the node fell behind {} packets a second in {TRIES} runs: its sockets and its ring had no room for {} \
         datagrams; give it a machine that does nothing else",
        plan.groups_per_node,
        plan.per_second,
        missed.join(", ")
    )))
}

fn judge(panels: &[Panel]) -> Verdict {
    let [time, xors] = [&panels[0].series[0], &panels[1].series[0]];
    let mut ours = format!(
        "{:.1} µs with 2 groups, {:.1} with 128, {:.1} with 1,024: {:.2} times; XORs {:.2}, {:.2}, {:.2}",
        time.at(2.0),
        time.at(128.0),
        time.at(1_024.0),
        time.at(1_024.0) / time.at(2.0),
        xors.at(2.0),
        xors.at(128.0),
        xors.at(1_024.0)
    );
    let largest = time.end();
    if largest > 1_024.0 {
        ours += &format!("; with {largest} {:.1} µs and {:.2} XORs", time.last(), xors.last());
    }
    let slow =
        time.at(1_024.0) < 3.0 * time.at(2.0) && time.last() < 4.0 * time.first() && time.most() < 160.0;
    let grows = time.last() > time.first() && xors.last() > xors.first();
    let most = if largest > 1_024.0 { XORS_MOST } else { XORS_MOST_QUICK };
    Verdict { ours, holds: slow && grows && xors.most() <= most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Point, Series};

    fn holds(times: [f64; 4], xors: [f64; 4]) -> bool {
        judged(times, xors, 4)
    }

    /// The first so many points; without the last they are of a quick run.
    fn judged(times: [f64; 4], xors: [f64; 4], count: usize) -> bool {
        let panel = |values: [f64; 4]| {
            let points = [2.0, 128.0, 1_024.0, 4_096.0].into_iter().zip(values).take(count);
            let points = points.map(|(x, value)| Point::of(x, vec![value])).collect();
            let series = vec![Series { name: String::new(), points }];
            Panel { x: String::new(), y: String::new(), x_log: true, y_log: false, series }
        };
        judge(&[panel(times), panel(xors)]).holds
    }

    #[test]
    fn time_grows_slowly_and_xors_stay_under_five_but_for_the_draw() {
        let (times, xors) = ([6.0, 9.0, 10.0, 11.0], [1.0, 5.01, 4.9, 4.8]);
        assert!(holds(times, xors));
        assert!(!holds([11.0, 9.0, 8.0, 7.0], xors), "time falls");
        assert!(!holds([6.0, 9.0, 19.0, 20.0], xors), "time grows as the groups do");
        assert!(!holds(times, [1.0, 5.2, 4.9, 4.8]), "more XORs than the draw explains");
        assert!(judged(times, [1.0, 5.2, 4.9, 4.8], 3), "a quick run draws seldom");
        assert!(!judged(times, [1.0, 5.3, 4.9, 4.8], 3), "but not that seldom");
    }
}
