//! An outcome as SVG.

use crate::chart::{self, Axis, Chart, Dot, Line};
use crate::outcome::{Outcome, Panel, Point, Runs};

pub use crate::chart::PictureError;

/// Returns the picture of an outcome as the text of an SVG file: a panel below another, under title and
/// source.
///
/// # Errors
/// [`PictureError`] if the plotter fails.
pub fn picture(outcome: &Outcome) -> Result<String, PictureError> {
    let quick = if outcome.quick { "  QUICK RUN" } else { "" };
    let subtitle = format!("{}; {}.{quick}", outcome.source, runs(&outcome.runs));
    let charts: Vec<Chart> = outcome.panels.iter().map(chart).collect();
    chart::svg(&format!("{}: {}", outcome.id, outcome.title), &subtitle, &charts)
}

fn chart(panel: &Panel) -> Chart {
    let axis = |label: &str, is_log| if is_log { Axis::log(label) } else { Axis::linear(label) };
    let dot = |point: &Point| Some(Dot { x: point.x, y: point.median, bar: (point.least, point.most) });
    let lines = panel
        .series
        .iter()
        .map(|series| Line { name: series.name.clone(), dots: series.points.iter().map(dot).collect() });
    Chart {
        x: axis(&panel.x, panel.x_log),
        y: axis(&panel.y, panel.y_log),
        bands: Vec::new(),
        lines: lines.collect(),
    }
}

/// The number of runs of a point, in words.
fn runs(all: &[Runs]) -> String {
    let text = |runs: &Runs| {
        let kind = if all.len() > 1 { format!("{}: ", runs.made) } else { String::new() };
        let many = if runs.most == 1 { "one run".to_owned() } else { format!("median of {runs} runs") };
        kind + &many
    };
    let each: Vec<String> = all.iter().map(text).collect();
    let bars = if all.iter().any(|runs| runs.most > 1) { ", bars from least to greatest" } else { "" };
    each.join(", ") + bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Claim, Made};

    #[test]
    fn a_picture_has_title_source_panels_and_the_scale_of_the_run() {
        let text = String::new;
        let outcome = Outcome {
            id: "4.10".to_owned(),
            title: "A figure".to_owned(),
            source: "Thesis Figure 4.10".to_owned(),
            setup: text(),
            quick: true,
            runs: vec![Runs { made: Made::Simulated, least: 5, most: 5 }],
            fingerprint: text(),
            panels: vec![Panel::drawn(&[("markov", &[(2.0, 1.0), (64.0, 3.0)])])],
            claim: Claim { theirs: text(), ours: text(), ours_brief: text(), holds: true, why: text() },
        };
        let svg = picture(&outcome).unwrap();
        for text in
            ["4.10: A figure", "Thesis Figure 4.10", "place", "value", "markov", "QUICK RUN", "5 runs"]
        {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
    }

    #[test]
    fn a_picture_has_the_number_of_runs_of_either_kind() {
        let sim = Runs { made: Made::Simulated, least: 5, most: 5 };
        let real = |least, most| Runs { made: Made::Real, least, most };
        assert_eq!(runs(&[sim]), "median of 5 runs, bars from least to greatest");
        assert_eq!(runs(&[real(1, 1)]), "one run");
        assert_eq!(runs(&[real(1, 2)]), "median of 1–2 runs, bars from least to greatest");
        assert_eq!(
            runs(&[sim, real(1, 1)]),
            "sim: median of 5 runs, real: one run, bars from least to greatest"
        );
    }
}
