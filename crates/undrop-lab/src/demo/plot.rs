//! The latency of every message in the three acts, as an SVG picture (Maelstrom Fig. 12).

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 540);
/// Title and legend.
const HEAD_HEIGHT: u32 = 72;
/// An entry of the legend.
const LEGEND_WIDTH: usize = 270;
const Y_LABELS_WIDTH: u32 = 72;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// A largest latency so many times the smallest asks for a logarithmic axis.
const LINEAR_RATIO_MAX: f64 = 40.0;

/// One curve.
pub(super) struct Curve<'a> {
    /// Its name in the legend.
    pub(super) title: String,
    /// Latency of each message in milliseconds, in order; none: it did not arrive.
    pub(super) latencies_ms: &'a [Option<f64>],
    /// Red, green, blue.
    pub(super) color: (u8, u8, u8),
}

/// The picture as the text of an SVG file; later curves are drawn over earlier ones.
pub(super) fn render(title: &str, curves: &[Curve<'_>]) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let (low, high) = extent(curves);
        let drawn = if high > low * LINEAR_RATIO_MAX {
            draw(&area, title, curves, (low / 1.5..high * 1.5).log_scale())
        } else {
            draw(&area, title, curves, 0.0..high * 1.08)
        };
        drawn.map_err(|error| anyhow!("drawing the plot: {error}"))?;
    }
    Ok(svg)
}

/// The smallest and the largest latency, in milliseconds; never empty, never zero.
fn extent(curves: &[Curve<'_>]) -> (f64, f64) {
    let all = || curves.iter().flat_map(|curve| curve.latencies_ms.iter().flatten().copied());
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    if high > 0.0 { (low.max(0.01), high.max(0.01)) } else { (1.0, 1.0) }
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw<Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    curves: &[Curve<'_>],
    latencies: impl AsRangedCoord<Value = f64, CoordDescType = Y>,
) -> Drawn
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD_HEIGHT);
    draw_head(&head, title, curves)?;
    let count = curves.iter().map(|curve| curve.latencies_ms.len()).max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(&body)
        .margin(16)
        .x_label_area_size(52)
        .y_label_area_size(Y_LABELS_WIDTH)
        .build_cartesian_2d(0..count, latencies)?;
    chart
        .configure_mesh()
        .x_desc("message number")
        .y_desc("delivery latency (ms)")
        .label_style((FONT, 15).into_font().color(&INK))
        .axis_desc_style((FONT, 17).into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for curve in curves {
        for run in unbroken(curve.latencies_ms) {
            let points = run.filter_map(|index| Some((index + 1, curve.latencies_ms[index]?)));
            chart.draw_series(LineSeries::new(points, curve.style()))?;
        }
    }
    area.present()
}

/// Title and legend, above the axes so that no curve runs behind them.
fn draw_head(head: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, curves: &[Curve<'_>]) -> Drawn {
    let left = Y_LABELS_WIDTH.cast_signed() + 16;
    head.draw(&Text::new(title, (left, 16), (FONT, 22).into_font().color(&INK)))?;
    for (curve, x) in curves.iter().zip((left..).step_by(LEGEND_WIDTH)) {
        head.draw(&PathElement::new([(x, 60), (x + 24, 60)], curve.style().stroke_width(4)))?;
        let label = (FONT, 16).into_font().color(&INK);
        head.draw(&Text::new(curve.title.clone(), (x + 32, 52), label))?;
    }
    Ok(())
}

impl Curve<'_> {
    fn style(&self) -> ShapeStyle {
        let (red, green, blue) = self.color;
        RGBColor(red, green, blue).stroke_width(2)
    }
}

/// Stretches of messages that arrived: a curve is broken where one did not.
fn unbroken(latencies_ms: &[Option<f64>]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next + latencies_ms[next..].iter().position(Option::is_some)?;
        let length = latencies_ms[start..].iter().take_while(|latency| latency.is_some()).count();
        next = start + length;
        Some(start..next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(latencies_ms: &[Option<f64>]) -> String {
        let curve = Curve { title: "1 % loss, no gateways".to_owned(), latencies_ms, color: (213, 94, 0) };
        render("Latency of every message", &[curve]).unwrap()
    }

    #[test]
    fn axes_units_title_and_legend_are_in_the_picture() {
        let svg = picture(&[Some(50.0), Some(310.0), Some(50.0)]);
        for text in
            ["Latency of every message", "message number", "delivery latency (ms)", "1 % loss, no gateways"]
        {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("#D55E00"), "{svg}");
    }

    /// What stands beside the vertical axis.
    fn latency_labels(svg: &str) -> Vec<&str> {
        let ends = svg.split("<text ").filter(|text| text.contains("text-anchor=\"end\""));
        ends.filter_map(|text| text.lines().nth(1)).collect()
    }

    #[test]
    fn a_wide_range_gets_a_logarithmic_axis() {
        let narrow = picture(&[Some(50.0), Some(400.0)]);
        assert!(latency_labels(&narrow).starts_with(&["0", "50", "100"]), "{:?}", latency_labels(&narrow));
        let wide = picture(&[Some(50.0), Some(80.0), Some(8000.0)]);
        assert_eq!(latency_labels(&wide), ["100", "1000", "10000"]);
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        for latencies in [&[][..], &[None, None], &[Some(0.0)]] {
            assert!(picture(latencies).contains("</svg>"));
        }
    }

    #[test]
    fn a_curve_breaks_where_a_message_is_missing() {
        let latencies = [None, Some(1.0), Some(2.0), None, None, Some(3.0)];
        assert_eq!(unbroken(&latencies).collect::<Vec<_>>(), [1..3, 5..6]);
        assert_eq!(unbroken(&[]).count(), 0);
    }
}
