//! The latency of recoveries as a picture: for each latency, the share of all losses that were recovered by
//! then.

use figures::chart::{self, Axis, Chart, Dot, Line};

use super::Run;

/// Most points of a curve.
const POINTS_MAX: usize = 2_000;

/// Runs of one kind, and their label.
pub(super) type Kind<'a> = (&'static str, &'a [Run]);

/// Returns the picture as the text of an SVG file, with a curve for each seed of each kind.
pub(super) fn render(title: &str, kinds: &[Kind<'_>]) -> anyhow::Result<String> {
    let curve = |(kind, runs): &Kind<'_>| {
        let label = |seed: u64| match (kinds.len() > 1, runs.len() > 1) {
            (true, true) => format!("{kind}, seed {seed}"),
            (true, false) => (*kind).to_owned(),
            (false, true) => format!("seed {seed}"),
            (false, false) => "recovered".to_owned(),
        };
        let line = |(seed, figures): &Run| {
            let points = points(&figures.latencies_us, figures.lost).into_iter();
            Line { name: label(*seed), dots: points.map(|(ms, share)| Some(Dot::new(ms, share))).collect() }
        };
        runs.iter().map(line).collect::<Vec<_>>()
    };
    let lines = kinds.iter().flat_map(curve).collect();
    let (x, y) = (Axis::log("recovery latency (ms)"), Axis::linear("share of all losses (%)"));
    Ok(chart::svg(
        title,
        "Share of the losses that were recovered by then.",
        &[Chart { x, y, bands: Vec::new(), lines }],
    )?)
}

/// A latency of zero has no place on a logarithmic axis.
fn ms(latency_us: u64) -> f64 {
    latency_us.max(1) as f64 / 1e3
}

/// Returns for latencies in order the time in milliseconds and the share of `lost`, in percent, recovered by
/// then.
fn points(latencies_us: &[u64], lost: u64) -> Vec<(f64, f64)> {
    let step = latencies_us.len().div_ceil(POINTS_MAX).max(1);
    let share = |at: usize| 100.0 * (at + 1) as f64 / lost.max(1) as f64;
    let mut points: Vec<_> =
        (0..latencies_us.len()).step_by(step).map(|at| (ms(latencies_us[at]), share(at))).collect();
    if let Some(last) = latencies_us.len().checked_sub(1) {
        points.push((ms(latencies_us[last]), share(last)));
    }
    points
}

#[cfg(test)]
mod tests {
    use sim::Figures;

    use super::*;

    #[test]
    fn a_curve_ends_at_the_share_recovered() {
        let latencies: Vec<u64> = (1..=9_000).collect();
        let points = points(&latencies, 10_000);
        assert!(points.len() <= POINTS_MAX + 1);
        assert_eq!(points.last(), Some(&(9.0, 90.0)));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    #[test]
    fn units_and_title_are_in_the_picture_even_if_nothing_was_lost() {
        for latencies_us in [vec![], vec![0, 500, 90_000]] {
            let figures = Figures { lost: 3, latencies_us, ..Figures::default() };
            let runs = [(1, figures)];
            let svg = render("64 nodes", &[("simulated", &runs)]).unwrap();
            for text in ["64 nodes", "recovery latency (ms)", "share of all losses (%)"] {
                assert!(svg.contains(text), "{text} is missing:\n{svg}");
            }
            assert!(!svg.contains("simulated"), "there is a single kind:\n{svg}");
            let svg = render("64 nodes", &[("simulated", &runs), ("real", &runs)]).unwrap();
            assert!(svg.contains("simulated") && svg.contains("real"), "{svg}");
        }
    }
}
