//! An outcome as SVG: panels below each other, with axes, units, error bars and legends.

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, LogCoord, WithKeyPoints};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use thiserror::Error;

use crate::outcome::{Outcome, Panel, Point, Runs, Series};
use crate::ticks;

const WIDTH: u32 = 960;
/// Title and source; then lines of the set-up, and some room.
const TITLE_HEIGHT: u32 = 68;
const LINE_HEIGHT: u32 = 17;
const HEAD_ROOM: u32 = 10;
/// Letters that a line of the set-up has room for, also in a wide font.
const LINE_LETTERS: usize = 140;
const PANEL_HEIGHT: u32 = 330;
/// Labels that an axis has at the most.
const X_LABELS: usize = 12;
const Y_LABELS: usize = 8;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(51, 51, 51);
const GREY: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Told apart also by who sees colours differently (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

/// The figure cannot be drawn.
#[derive(Debug, Error)]
#[error("drawing the figure: {0}")]
pub struct PictureError(String);

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The picture as the text of an SVG file.
///
/// # Errors
/// [`PictureError`] if the plotter refuses it.
pub fn picture(outcome: &Outcome) -> Result<String, PictureError> {
    let mut svg = String::new();
    let setup = lines(&outcome.setup, LINE_LETTERS);
    let height = head_height(&setup) + PANEL_HEIGHT * outcome.panels.len() as u32;
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(&area, outcome, &setup).map_err(|error| PictureError(error.to_string()))?;
    drop(area);
    Ok(svg)
}

fn head_height(setup: &[String]) -> u32 {
    TITLE_HEIGHT + LINE_HEIGHT * setup.len() as u32 + HEAD_ROOM
}

/// A text in lines of at most so many letters; a longer word has a line of its own.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw(area: &DrawingArea<SVGBackend<'_>, Shift>, outcome: &Outcome, setup: &[String]) -> Drawn {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(head_height(setup));
    // A long title is written smaller, so that all of it is there.
    let size = if outcome.title.chars().count() > 88 { 18 } else { 22 };
    head.draw(&Text::new(outcome.title.clone(), (24, 14), (FONT, size).into_font().color(&INK)))?;
    let quick = if outcome.quick { "  QUICK RUN" } else { "" };
    let line = format!("{}; {}.{quick}", outcome.source, runs(&outcome.runs));
    head.draw(&Text::new(line, (24, 44), (FONT, 15).into_font().color(&INK)))?;
    let small = (FONT, 13).into_font().color(&GREY);
    for (line, y) in setup.iter().zip((TITLE_HEIGHT..).step_by(LINE_HEIGHT as usize)) {
        head.draw(&Text::new(line.clone(), (24, y.cast_signed()), small.clone()))?;
    }
    for (panel, area) in outcome.panels.iter().zip(body.split_evenly((outcome.panels.len().max(1), 1))) {
        draw_panel(&area, panel)?;
    }
    area.present()
}

/// How often points were made, in words.
fn runs(all: &[Runs]) -> String {
    let text = |runs: &Runs| {
        let kind = if all.len() > 1 { format!("{}: ", runs.made) } else { String::new() };
        let many = if runs.most == 1 { "one run".to_owned() } else { format!("median of {runs} runs") };
        kind + &many
    };
    let each: Vec<String> = all.iter().map(text).collect();
    let bars = if all.iter().any(|runs| runs.most > 1) { ", bars from least to most" } else { "" };
    each.join(", ") + bars
}

/// The least and the greatest of some values that are finite, and above 0 where the axis is logarithmic.
fn ends(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (0.1, 1.0) }
}

fn draw_panel(area: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel) -> Drawn {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let x = ends(points().map(|point| point.x), panel.x_log);
    let y = ends(points().flat_map(|point| [point.least, point.median, point.most]), panel.y_log);
    // What is counted goes by doublings.
    let doubles = points().all(|point| point.x >= 2.0 && point.x.fract() == 0.0);
    let x_base = if doubles { 2.0 } else { 10.0 };
    match (panel.x_log, panel.y_log) {
        (false, false) => draw_axes(area, panel, linear_x(x), linear_y(y)),
        (false, true) => draw_axes(area, panel, linear_x(x), log_y(y)),
        (true, false) => draw_axes(area, panel, log_x(x, x_base), linear_y(y)),
        (true, true) => draw_axes(area, panel, log_x(x, x_base), log_y(y)),
    }
}

fn log_x(ends: (f64, f64), base: f64) -> WithKeyPoints<LogCoord<f64>> {
    let range = around(ends);
    let ticks = ticks::logarithmic(&range, base, X_LABELS);
    range.log_scale().base(base).with_key_points(ticks)
}

fn log_y(ends: (f64, f64)) -> WithKeyPoints<LogCoord<f64>> {
    let range = around(ends);
    let ticks = ticks::logarithmic(&range, 10.0, Y_LABELS);
    range.log_scale().with_key_points(ticks)
}

fn linear_x((low, high): (f64, f64)) -> std::ops::Range<f64> {
    let room = ((high - low) * 0.04).max(high.abs() * 0.01).max(1e-9);
    low - room..high + room
}

/// From 0, unless all is close together far above: then a slope would not be seen.
fn linear_y((low, high): (f64, f64)) -> std::ops::Range<f64> {
    if low > 0.8 * high {
        let room = ((high - low) * 0.2).max(high * 0.005);
        low - room..high + room
    } else {
        low.min(0.0)..high * 1.08 + 1e-9
    }
}

fn around((low, high): (f64, f64)) -> std::ops::Range<f64> {
    low / 1.15..high * 1.15
}

fn draw_axes<X, Y>(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    panel: &Panel,
    x: impl AsRangedCoord<Value = f64, CoordDescType = X>,
    y: impl AsRangedCoord<Value = f64, CoordDescType = Y>,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .margin_right(230)
        .x_label_area_size(46)
        .y_label_area_size(76)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(panel.x.as_str())
        .y_desc(panel.y.as_str())
        .x_labels(X_LABELS)
        .y_labels(Y_LABELS)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_desc_style((FONT, if panel.y.chars().count() > 40 { 14 } else { 16 }).into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .draw()?;
    let floor = chart.y_range().start;
    for (at, series) in panel.series.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        // A logarithmic axis has no place for nothing: there the line is broken.
        let is_drawn = |point: &Point| !panel.y_log || point.median > 0.0;
        for piece in series.points.split(|point| !is_drawn(point)) {
            let line = piece.iter().map(|point| (point.x, point.median));
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        }
        // Of a curve of many points bars would hide all else.
        if series.points.len() <= 40 {
            let points = || series.points.iter().filter(|point| is_drawn(point));
            chart.draw_series(points().map(|p| Circle::new((p.x, p.median), 3, color.filled())))?;
            chart.draw_series(points().filter(|p| p.least < p.most).map(|p| {
                ErrorBar::new_vertical(p.x, p.least.max(floor), p.median, p.most, color.stroke_width(1), 8)
            }))?;
        }
    }
    draw_legend(area, &panel.series)
}

/// Right of the axes, so that no curve runs behind it.
fn draw_legend(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[Series]) -> Drawn {
    let left = WIDTH.cast_signed() - 230;
    for ((at, series), y) in series.iter().enumerate().zip((24..).step_by(24)) {
        let style = COLORS[at % COLORS.len()].stroke_width(4);
        area.draw(&PathElement::new([(left, y), (left + 22, y)], style))?;
        let label = (FONT, 14).into_font().color(&INK);
        area.draw(&Text::new(series.name.clone(), (left + 30, y - 8), label))?;
    }
    Ok(())
}

/// As many decimals as a label needs, that neighbours differ: all that three digits hold.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if !(1e-12..1_000.0).contains(&size) => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size => 2 + size.log10().floor().abs() as usize,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Claim;
    use crate::plan::Made;

    fn outcome(panels: Vec<Panel>) -> Outcome {
        let text = String::new;
        Outcome {
            id: text(),
            title: "A figure".to_owned(),
            source: "Thesis 4.10".to_owned(),
            setup: "64 nodes <and> ".to_owned() + &"many words of the set-up ".repeat(20),
            quick: true,
            runs: vec![Runs { made: Made::Simulated, least: 5, most: 5 }],
            fingerprint: text(),
            panels,
            claim: Claim { theirs: text(), ours: text(), holds: true, why: text() },
        }
    }

    fn panel(log: bool, points: Vec<Point>) -> Panel {
        let series = vec![Series { name: "markov".to_owned(), points }];
        Panel { x: "groups".to_owned(), y: "recovered (%)".to_owned(), x_log: log, y_log: log, series }
    }

    #[test]
    fn axes_units_legend_and_the_scale_of_the_run_are_in_the_picture() {
        let point = |x: f64| Point { x, least: 1.0, median: 2.0, most: 3.0 };
        let svg = picture(&outcome(vec![panel(true, vec![point(2.0), point(64.0)])])).unwrap();
        for text in ["A figure", "Thesis 4.10", "groups", "recovered (%)", "markov", "QUICK RUN", "5 runs"] {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_picture_tells_how_often_its_points_were_made_of_either_kind() {
        let sim = Runs { made: Made::Simulated, least: 5, most: 5 };
        let real = |least, most| Runs { made: Made::Real, least, most };
        assert_eq!(runs(&[sim]), "median of 5 runs, bars from least to most");
        assert_eq!(runs(&[real(1, 1)]), "one run");
        assert_eq!(runs(&[real(1, 2)]), "median of 1–2 runs, bars from least to most");
        assert_eq!(runs(&[sim, real(1, 1)]), "sim: median of 5 runs, real: one run, bars from least to most");
    }

    #[test]
    fn the_set_up_is_in_the_picture_in_lines_that_fit() {
        let svg = picture(&outcome(Vec::new())).unwrap();
        assert!(svg.contains("64 nodes") && svg.contains("of the set-up"), "{svg}");
        let setup = outcome(Vec::new()).setup;
        let lines = lines(&setup, LINE_LETTERS);
        assert!(lines.len() > 3 && lines.iter().all(|line| line.len() <= LINE_LETTERS), "{lines:?}");
        assert_eq!(lines.join(" "), setup.trim());
        assert_eq!(self::lines("a letterless b", 4), ["a", "letterless", "b"]);
    }

    #[test]
    fn nothing_and_zeros_are_still_a_picture() {
        let zero = Point { x: 0.0, least: 0.0, median: 0.0, most: 0.0 };
        for log in [false, true] {
            for points in [vec![], vec![zero]] {
                assert!(picture(&outcome(vec![panel(log, points)])).unwrap().contains("</svg>"));
            }
        }
    }

    #[test]
    fn labels_have_no_idle_decimals() {
        for (value, text) in [
            (0.0, "0"),
            (100.0, "100"),
            (2.5, "2.5"),
            (2.0, "2"),
            (0.01, "0.01"),
            (0.05, "0.05"),
            (0.105, "0.105"),
            (0.0125, "0.0125"),
            (0.000_02, "0.00002"),
            (97.5, "97.5"),
            (1_024.0, "1024"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
