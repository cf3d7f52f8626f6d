//! One large group and partial views: Slingshot Figures 4 and 5, with the bounds of its analysis (§3.4).

use sim::Setting;

use super::setting::{base, job, packets_kept};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};

/// Share of datagrams lost, and the rate of fire.
const LOSS: f64 = 0.01;
const R: i32 = 8;
const C: f64 = 5.0;

const SERIES: [&str; 3] = ["recovered", "upper bound (§3.4)", "lower bound (§3.4)"];

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("slingshot-4", group_sizes, judge), Figure::new("slingshot-5", views, judge)]
}

fn group_sizes(scale: Scale) -> Plan {
    let all: [usize; 9] = [10, 20, 40, 64, 100, 150, 200, 300, 400];
    let sizes = scale.pick_smallest(&[16, 64, 200][..], &[16, 64, 400], &all);
    let of = |&size: &usize| [one_group(scale, size, None), bounds(size, size)];
    Plan { panels: panels("members of the group"), jobs: sizes.iter().flat_map(of).collect() }
}

fn views(scale: Scale) -> Plan {
    let nodes = scale.pick_smallest(200, 400, 400);
    let all: [usize; 9] = [10, 20, 40, 80, 120, 160, 200, 300, 399];
    let views = scale.pick_smallest(&[20, 100, 199][..], &[20, 100, 399], &all);
    let of = |&view: &usize| [one_group(scale, nodes, Some(view)), bounds(nodes, view)];
    Plan { panels: panels("nodes that each node knows"), jobs: views.iter().flat_map(of).collect() }
}

fn panels(x: &'static str) -> Vec<PanelPlan> {
    vec![PanelPlan::new(x, "recovered by repairs (%)", SERIES)]
}

fn one_group(scale: Scale, nodes: usize, view: Option<usize>) -> Job {
    let setting = Setting {
        nodes,
        groups_per_node: 1,
        group_size: nodes,
        view,
        rate: scale.pick(100.0, 1_000.0),
        packets_kept: packets_kept(scale, nodes),
        // The same number of packets in all nodes together for every group.
        seconds: scale.pick_smallest(
            40.0_f64.min(1_600.0 / nodes as f64),
            2.0,
            5.0_f64.min(400.0 / nodes as f64),
        ),
        ..base(scale)
    };
    let x = view.unwrap_or(nodes) as f64;
    job(setting, move |figures| vec![Sample { panel: 0, series: 0, x, y: figures.recovered_percent }])
}

/// Returns the job of the analysis, which has no chance in it.
fn bounds(nodes: usize, view: usize) -> Job {
    let (lower, upper) = recovery_bounds(nodes as f64);
    let run = move |_| {
        let sample = |series, y| Sample { panel: 0, series, x: view as f64, y: 100.0 * y };
        Ok(vec![sample(1, upper), sample(2, lower)])
    };
    Job::simulated(format!("bounds: {nodes} nodes, loss {LOSS}, ({R},{C}), {lower}, {upper}"), run)
}

/// Returns the bounds of the probability that a lost packet is recovered, by Slingshot §3.4.
///
/// The three sums there are binomials of binomials, which is one binomial: each of the N members sends a
/// repair that holds the packet and arrives with probability q = p_v·p_c·(1 − p)². The product p_v·p_c = c /
/// (N − 1) does not depend on the view.
fn recovery_bounds(members: f64) -> (f64, f64) {
    let q = C / (members - 1.0) * (1.0 - LOSS).powi(2);
    // All other packets of a repair arrived.
    let whole = (1.0 - LOSS).powi(R - 1);
    let lower = (1.0 - (1.0 - q).powf(members)) * whole;
    let upper = 1.0 - (1.0 - q * whole).powf(members);
    (lower, upper)
}

fn judge(panels: &[Panel]) -> Verdict {
    let [recovered, _, lower] = &panels[0].series[..] else { unreachable!("three series are planned") };
    let flat = recovered.most() - recovered.least() < 2.0;
    Verdict::new(flat && recovered.least() > 97.5 && recovered.least() > lower.most())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of the paper.
    fn sums(members: i32, view: f64) -> (f64, f64) {
        let binomial = |n: i32, k: i32, p: f64| {
            let ways: f64 = (0..k).map(|at| f64::from(n - at) / f64::from(k - at)).product();
            ways * p.powi(k) * (1.0 - p).powi(n - k)
        };
        let p_v = (view - 1.0) / (f64::from(members) - 1.0);
        let p_c = C / (view - 1.0);
        let whole = (1.0 - LOSS).powi(R - 1);
        let (mut lower, mut upper) = (0.0, 0.0);
        for i in 0..=members {
            for j in 0..=i {
                for k in 1..=j {
                    let chance = binomial(members, i, p_v)
                        * binomial(i, j, p_c * (1.0 - LOSS))
                        * binomial(j, k, 1.0 - LOSS);
                    lower += chance * whole;
                    upper += chance * (1.0 - (1.0 - whole).powi(k));
                }
            }
        }
        (lower, upper)
    }

    #[test]
    fn the_short_form_of_the_bounds_is_the_papers_sums() {
        for view in [8.0, 20.0] {
            let (lower, upper) = sums(24, view);
            let short = recovery_bounds(24.0);
            assert!(
                (lower - short.0).abs() < 1e-9 && (upper - short.1).abs() < 1e-9,
                "{lower} {upper} {short:?}"
            );
        }
    }
}
