//! Processor time for each packet against groups: Thesis Figure 4.11 (top).

use stage::nodes::{CostPlan, cost};

use super::rig::{Program, behaviour};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

/// Runs of a measurement until the node keeps up: one that falls behind shows nothing of its cost.
const TRIES: usize = 3;
/// Most XORs: c, and 2 % for the random number of repairs that a packet enters.
const XORS_MOST: f64 = 5.0 * 1.02;
/// Most XORs of a quick run, which has a sixth of the packets: 4.8 to 5.13 were seen.
const XORS_MOST_QUICK: f64 = 5.0 * 1.05;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("4.11-real", plan, judge)]
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
        "expected a node in {} groups that keeps up with {} packets a second, saw {TRIES} runs in which its sockets and its \
         ring had no room for {} datagrams; run it on an idle machine",
        plan.groups_per_node,
        plan.per_second,
        missed.join(", ")
    )))
}

fn judge(panels: &[Panel]) -> Verdict {
    let [time, xors] = [&panels[0].series[0], &panels[1].series[0]];
    let largest = time.end();
    let slow =
        time.at(1_024.0) < 3.0 * time.at(2.0) && time.last() < 4.0 * time.first() && time.most() < 160.0;
    let grows = time.last() > time.first() && xors.last() > xors.first();
    let most = if largest > 1_024.0 { XORS_MOST } else { XORS_MOST_QUICK };
    let verdict = Verdict::new(slow && grows && xors.most() <= most);
    let verdict = verdict.number("times", time.at(1_024.0) / time.at(2.0), 2);
    if largest <= 1_024.0 {
        return verdict;
    }
    let verdict = verdict.with("largest", largest).number("largest_us", time.last(), 1);
    verdict.number("largest_xors", xors.last(), 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Point, Series};

    fn holds(times: [f64; 4], xors: [f64; 4]) -> bool {
        judged(times, xors, 4)
    }

    /// Judges the first `count` points; without the last they are of a quick run.
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
        assert!(judged(times, [1.0, 5.2, 4.9, 4.8], 3), "a quick run draws rarely");
        assert!(!judged(times, [1.0, 5.3, 4.9, 4.8], 3), "but not that rarely");
    }
}
