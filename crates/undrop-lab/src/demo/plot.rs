//! Goodput over time and the latency of every message in the three acts, as an SVG picture (Maelstrom Figures
//! 9 and 12).

use figures::chart::{self, Axis, Chart, Dot, Line};

use super::outcome::ActOutcome;

/// Ratio of the greatest to the least value from which on an axis is logarithmic.
const LINEAR_RATIO_MAX: f64 = 40.0;

/// One act: its label, and its outcome.
pub(super) type Curve<'a> = (String, &'a ActOutcome);

/// Returns the picture as the text of an SVG file; acts stay visible under later ones.
pub(super) fn render(title: &str, curves: &[Curve<'_>]) -> anyhow::Result<String> {
    let goodput = |act: &ActOutcome| {
        let dots = act.bulk.course.iter().map(|&(at_s, mbps)| Some(Dot::new(at_s, mbps)));
        dots.collect()
    };
    let latency = |act: &ActOutcome| {
        let latencies = act.messages.latencies_ms.iter();
        latencies.enumerate().map(|(at, latency)| latency.map(|ms| Dot::new(at as f64 + 1.0, ms))).collect()
    };
    let charts = [
        panel("time (s)", "goodput of the bulk transfer (Mbit/s)", curves, goodput),
        panel("message number", "delivery latency of messages (ms)", curves, latency),
    ];
    let subtitle =
        "Above a bulk transfer, below a stream of 1 KB messages; thinner lines lie on thicker ones.";
    Ok(chart::svg(title, subtitle, &charts)?)
}

fn panel(x: &str, y: &str, curves: &[Curve<'_>], dots: impl Fn(&ActOutcome) -> Vec<Option<Dot>>) -> Chart {
    let line = |(name, act): &Curve<'_>| Line { name: name.clone(), dots: dots(act) };
    let lines: Vec<Line> = curves.iter().map(line).collect();
    let values =
        || lines.iter().flat_map(|line| line.dots.iter().flatten()).map(|dot| dot.y).filter(|y| *y > 0.0);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let y = if high > low * LINEAR_RATIO_MAX { Axis::log(y) } else { Axis::linear(y) };
    Chart { x: Axis::linear(x), y, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::outcome::{Bulk, Messages};

    fn picture(latencies_ms: &[Option<f64>], course: &[(f64, f64)]) -> String {
        let act = ActOutcome {
            bulk: Bulk { course: course.to_vec(), ..Bulk::default() },
            messages: Messages { latencies_ms: latencies_ms.to_vec(), ..Messages::default() },
            ..ActOutcome::default()
        };
        render("TCP cubic", &[("1 % loss, no gateways".to_owned(), &act)]).unwrap()
    }

    #[test]
    fn goodput_over_time_and_latencies_are_in_the_picture() {
        let svg = picture(&[Some(50.0), Some(310.0), Some(50.0)], &[(0.5, 20.0), (1.0, 40.0)]);
        for text in
            ["TCP cubic", "time (s)", "Mbit/s", "message number", "latency of messages (ms)", "1 % loss"]
        {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
    }

    /// The labels of the vertical axes.
    fn labels(svg: &str) -> Vec<&str> {
        let ends = svg.split("<text ").filter(|text| text.contains("text-anchor=\"end\""));
        ends.filter_map(|text| text.lines().nth(1)).collect()
    }

    #[test]
    fn a_wide_range_has_a_logarithmic_axis() {
        let narrow = picture(&[Some(50.0), Some(400.0)], &[]);
        assert!(
            labels(&narrow).contains(&"300") && !labels(&narrow).contains(&"50"),
            "{:?}",
            labels(&narrow)
        );
        let wide = picture(&[Some(50.0), Some(80.0), Some(8000.0)], &[]);
        assert!(["100", "1000"].iter().all(|label| labels(&wide).contains(label)), "{:?}", labels(&wide));
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        for latencies in [&[][..], &[None, None], &[Some(0.0)]] {
            assert!(picture(latencies, &[]).contains("</svg>"));
        }
    }
}
