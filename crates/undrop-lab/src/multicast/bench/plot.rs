//! How long recoveries took, as a picture: for each latency, the share of all losses that were mended by then.

use anyhow::anyhow;
use plotters::prelude::*;

use super::Run;

const SIZE: (u32, u32) = (960, 540);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Colours that the colour-blind tell apart.
const COLORS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
/// A curve of so many points is as good as any other.
const POINTS_MAX: usize = 2_000;

/// Runs of one kind, and what they are called where there is another.
pub(super) type Kind<'a> = (&'static str, &'a [Run]);

/// The picture as the text of an SVG file; of each kind, of which there are two at most, a curve for each seed.
pub(super) fn render(title: &str, kinds: &[Kind<'_>]) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(&mut svg, title, kinds).map_err(|error| anyhow!("drawing the plot: {error}"))?;
    Ok(svg)
}

fn draw(
    svg: &mut String,
    title: &str,
    kinds: &[Kind<'_>],
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let runs = || kinds.iter().flat_map(|(_, runs)| runs.iter());
    let latencies = || runs().flat_map(|(_, figures)| &figures.latencies_us).map(|&us| ms(us));
    let (low, high) = (latencies().fold(f64::INFINITY, f64::min), latencies().fold(0.0, f64::max));
    let range = if high > 0.0 { low..(high * 1.2) } else { 0.1..100.0 };
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 20).into_font().color(&INK))
        .margin(16)
        .x_label_area_size(52)
        .y_label_area_size(72)
        .build_cartesian_2d(range.log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("recovered after (ms)")
        .y_desc("share of all losses (%)")
        .label_style((FONT, 15).into_font().color(&INK))
        .axis_desc_style((FONT, 17).into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .draw()?;
    for ((name, runs), color) in kinds.iter().zip(COLORS) {
        for (number, (_, figures)) in runs.iter().enumerate() {
            let line = LineSeries::new(points(&figures.latencies_us, figures.lost), color.stroke_width(2));
            let drawn = chart.draw_series(line)?;
            if number == 0 && kinds.len() > 1 {
                drawn
                    .label(*name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(2)));
            }
        }
    }
    if kinds.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 15).into_font().color(&INK))
            .background_style(WHITE.mix(0.8))
            .draw()?;
    }
    area.present()
}

/// A latency of nothing has no place on a logarithmic axis.
fn ms(latency_us: u64) -> f64 {
    latency_us.max(1) as f64 / 1e3
}

/// Of latencies in order: by when, in milliseconds, which share of `lost`, in percent, was mended.
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
    fn the_curve_ends_at_the_share_that_was_recovered() {
        let latencies: Vec<u64> = (1..=9_000).collect();
        let points = points(&latencies, 10_000);
        assert!(points.len() <= POINTS_MAX + 1);
        assert_eq!(points.last(), Some(&(9.0, 90.0)));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    }

    #[test]
    fn units_and_title_are_in_the_picture_also_when_nothing_was_lost() {
        for latencies_us in [vec![], vec![0, 500, 90_000]] {
            let figures = Figures { lost: 3, latencies_us, ..Figures::default() };
            let runs = [(1, figures)];
            let svg = render("64 nodes", &[("simulated", &runs)]).unwrap();
            for text in ["64 nodes", "recovered after (ms)", "share of all losses (%)"] {
                assert!(svg.contains(text), "{text} is missing:\n{svg}");
            }
            assert!(!svg.contains("simulated"), "there is nothing to tell apart:\n{svg}");
            let svg = render("64 nodes", &[("simulated", &runs), ("real", &runs)]).unwrap();
            assert!(svg.contains("simulated") && svg.contains("real"), "{svg}");
        }
    }
}
