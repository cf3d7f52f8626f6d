//! Charts as SVG: panels below each other, each with axes, lines and a label at the end of each line.
//!
//! Lines become thinner from the first to the last, so that a line on top of another does not hide it. The
//! background is white, also on a dark page. An axis of percent ends at 100.

mod ticks;

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, LogCoord, WithKeyPoints};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use thiserror::Error;

const WIDTH: u32 = 960;
const HEAD_HEIGHT: u32 = 72;
const PANEL_HEIGHT: u32 = 330;
const MARGIN: i32 = 14;
/// Room right of the axes, for the labels of lines.
const LABELS_WIDTH: i32 = 204;
/// Distance between the labels of two lines.
const LABEL_HEIGHT: i32 = 17;
/// Most labels of an axis.
const X_LABELS: usize = 12;
const Y_LABELS: usize = 8;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(51, 51, 51);
const GREY: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Background of a band at full strength.
const BAND: RGBColor = RGBColor(255, 205, 160);
/// Width of a character of a band's label, about.
const CHARACTER_WIDTH: i32 = 7;
/// Colours that people with impaired colour vision can distinguish (Okabe and Ito), dark enough for text.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 138, 100),
    RGBColor(184, 92, 144),
    RGBColor(180, 120, 0),
    RGBColor(50, 140, 190),
    RGBColor(90, 90, 90),
];
/// Width of the last line, the most that each line before it adds, and the most that all add.
const LINE_WIDTH: f64 = 2.0;
const LINE_STEP: f64 = 1.5;
const LINE_STEPS: f64 = 5.0;
/// Most points of a line that has dots and bars; with more they would hide the line.
const DOTS_MAX: usize = 40;

/// A chart cannot be drawn.
#[derive(Debug, Error)]
#[error("drawing the picture: {0}")]
pub struct PictureError(String);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Label with the unit.
    pub label: String,
    /// Whether it is logarithmic; values that are not above 0 are then left out.
    pub is_log: bool,
    /// Whether a linear axis contains 0 although all values are close together far above it.
    pub has_zero: bool,
}

impl Axis {
    /// Returns a linear axis.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), is_log: false, has_zero: false }
    }

    /// Returns a logarithmic axis.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), is_log: true, has_zero: false }
    }

    /// Returns the same axis with 0 on it.
    #[must_use]
    pub fn with_zero(self) -> Self {
        Self { has_zero: true, ..self }
    }

    fn has_place(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_log || value > 0.0)
    }
}

/// A value with the least and the greatest of its runs.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// Place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The least and the greatest value, which a bar connects.
    pub bar: (f64, f64),
}

impl Dot {
    /// Returns a value without a bar.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, bar: (y, y) }
    }
}

/// A line. Where a value is missing or has no place on the axis, the line is broken.
#[derive(Clone, Debug)]
pub struct Line {
    /// Label at its end.
    pub name: String,
    /// Its values in the order of the horizontal axis.
    pub dots: Vec<Option<Dot>>,
}

/// A part of the horizontal axis with a background of its own.
#[derive(Clone, Debug)]
pub struct Band {
    /// Label in the upper left corner; left out where the band is too narrow for it.
    pub label: String,
    /// Place on the horizontal axis.
    pub range: Range<f64>,
    /// Strength of the background, from 0 to 1.
    pub strength: f64,
}

/// A pair of axes with lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Backgrounds, behind the lines.
    pub bands: Vec<Band>,
    /// The lines; later ones are drawn on top, thinner.
    pub lines: Vec<Line>,
}

/// Returns charts below each other, under a title and a smaller line, as the text of an SVG file.
///
/// # Errors
/// [`PictureError`] if the plotter fails.
pub fn svg(title: &str, subtitle: &str, charts: &[Chart]) -> Result<String, PictureError> {
    let mut svg = String::new();
    let size = (WIDTH, HEAD_HEIGHT + PANEL_HEIGHT * charts.len() as u32);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&area, title, subtitle, charts).map_err(|error| PictureError(error.to_string()))?;
    drop(area);
    Ok(svg)
}

fn draw(area: &Area<'_>, title: &str, subtitle: &str, charts: &[Chart]) -> Drawn {
    area.fill(&WHITE)?;
    let (head, body) = area.split_vertically(HEAD_HEIGHT);
    // A long title is smaller, so that it fits.
    let size = if title.chars().count() > 80 { 17 } else { 22 };
    head.draw(&Text::new(title.to_owned(), (24, 14), (FONT, size).into_font().color(&INK)))?;
    head.draw(&Text::new(subtitle.to_owned(), (24, 44), (FONT, 15).into_font().color(&GREY)))?;
    for (chart, area) in charts.iter().zip(body.split_evenly((charts.len().max(1), 1))) {
        chart.draw(&area)?;
    }
    area.present()
}

impl Chart {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let dots = || self.lines.iter().flat_map(|line| line.dots.iter().flatten());
        let x = ends(dots().map(|dot| dot.x), &self.x);
        let y = ends(dots().flat_map(|dot| [dot.bar.0, dot.y, dot.bar.1]), &self.y);
        // Counts are labelled by doublings.
        let doubles = dots().all(|dot| dot.x >= 2.0 && dot.x.fract() == 0.0);
        let x_base = if doubles { 2.0 } else { 10.0 };
        match (self.x.is_log, self.y.is_log) {
            (false, false) => self.draw_axes(area, linear_x(x), self.linear_y(y)),
            (false, true) => self.draw_axes(area, linear_x(x), self.log_y(y)),
            (true, false) => self.draw_axes(area, log_x(x, x_base), self.linear_y(y)),
            (true, true) => self.draw_axes(area, log_x(x, x_base), self.log_y(y)),
        }
    }

    /// From 0, unless all values are close together far above it, where a slope would not be visible.
    fn linear_y(&self, (low, high): (f64, f64)) -> Range<f64> {
        if low > 0.8 * high && !self.y.has_zero {
            let room = ((high - low) * 0.2).max(high * 0.005);
            low - room..self.top(high, high + room)
        } else {
            // Labels of bands are above the lines.
            let room = if self.bands.is_empty() { 1.08 } else { 1.18 };
            low.min(0.0)..self.top(high, high * room + 1e-9)
        }
    }

    fn log_y(&self, (low, high): (f64, f64)) -> WithKeyPoints<LogCoord<f64>> {
        let range = low / 1.15..self.top(high, high * 1.15);
        let ticks = ticks::logarithmic(&range, 10.0, Y_LABELS);
        range.log_scale().with_key_points(ticks)
    }

    /// The upper end of the vertical axis: of percent it is 100, where that is near.
    fn top(&self, high: f64, with_room: f64) -> f64 {
        let is_percent = self.y.label.contains('%');
        if is_percent && high <= 100.0 && with_room > 90.0 { 100.0 } else { with_room }
    }

    fn line_width(&self, at: usize) -> f64 {
        let last = self.lines.len() - 1;
        let step = LINE_STEP.min(LINE_STEPS / last.max(1) as f64);
        LINE_WIDTH + step * (last - at) as f64
    }

    fn draw_axes<X, Y>(
        &self,
        area: &Area<'_>,
        x: impl AsRangedCoord<Value = f64, CoordDescType = X>,
        y: impl AsRangedCoord<Value = f64, CoordDescType = Y>,
    ) -> Drawn
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_right(LABELS_WIDTH)
            .x_label_area_size(46)
            .y_label_area_size(76)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.label.as_str())
            .y_desc(self.y.label.as_str())
            .x_labels(X_LABELS)
            .y_labels(Y_LABELS)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .label_style((FONT, 14).into_font().color(&INK))
            .axis_desc_style((FONT, 15).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .draw()?;
        let (x_range, y_range) = (chart.x_range(), chart.y_range());
        for band in &self.bands {
            let (from, to) = (band.range.start.max(x_range.start), band.range.end.min(x_range.end));
            if from >= to {
                continue;
            }
            let corners = [(from, y_range.end), (to, y_range.start)];
            let color = BAND.mix(band.strength.clamp(0.0, 1.0)).filled();
            chart.draw_series([Rectangle::new(corners, color)])?;
        }
        for band in &self.bands {
            let (from, to) = (band.range.start.max(x_range.start), band.range.end.min(x_range.end));
            let ((left, top), (right, _)) =
                (chart.backend_coord(&(from, y_range.end)), chart.backend_coord(&(to, y_range.end)));
            if right - left > CHARACTER_WIDTH * band.label.chars().count() as i32 + 8 {
                let (origin_x, origin_y) = area.get_pixel_range();
                let place = (left + 5 - origin_x.start, top + 4 - origin_y.start);
                area.draw(&Text::new(band.label.clone(), place, (FONT, 13).into_font().color(&GREY)))?;
            }
        }
        let floor = chart.y_range().start;
        let mut labels = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let color = COLORS[at % COLORS.len()];
            let width = self.line_width(at);
            let has_place = |dot: &Dot| self.x.has_place(dot.x) && self.y.has_place(dot.y);
            let dots: Vec<Option<Dot>> = line.dots.iter().map(|dot| dot.filter(has_place)).collect();
            for piece in dots.split(Option::is_none) {
                let piece = piece.iter().flatten().map(|dot| (dot.x, dot.y));
                chart.draw_series(LineSeries::new(piece, color.stroke_width(width.round() as u32)))?;
            }
            if dots.len() <= DOTS_MAX {
                let radius = (width / 2.0).round() as i32 + 2;
                let placed = || dots.iter().flatten();
                chart.draw_series(placed().map(|dot| Circle::new((dot.x, dot.y), radius, color.filled())))?;
                chart.draw_series(placed().filter(|dot| dot.bar.0 < dot.bar.1).map(|dot| {
                    let (low, high) = (dot.bar.0.max(floor), dot.bar.1);
                    ErrorBar::new_vertical(dot.x, low, dot.y, high, color.stroke_width(1), 8)
                }))?;
            }
            let end = dots.iter().flatten().last().map(|end| chart.backend_coord(&(end.x, end.y)));
            labels.push(Label { name: &line.name, color, end });
        }
        draw_labels(area, &labels)
    }
}

/// The name of a line, and the end of the line in the whole picture; none if the line has no values.
struct Label<'a> {
    name: &'a str,
    color: RGBColor,
    end: Option<(i32, i32)>,
}

/// Draws each name right of the axes, near the end of its line, with a thin line between them.
fn draw_labels(area: &Area<'_>, labels: &[Label<'_>]) -> Drawn {
    let (x_range, y_range) = area.get_pixel_range();
    let left = x_range.end - LABELS_WIDTH + 16;
    let (top, bottom) = (y_range.start + MARGIN, y_range.end - MARGIN);
    let height = |label: &Label<'_>| label.end.map_or(bottom, |(_, y)| y);
    let mut order: Vec<&Label<'_>> = labels.iter().collect();
    order.sort_by_key(|label| height(label));
    let wanted: Vec<i32> = order.iter().map(|label| height(label)).collect();
    for (label, y) in order.into_iter().zip(spread(&wanted, LABEL_HEIGHT, top..bottom)) {
        // Drawing in this area counts from its upper left corner.
        let place = |(x, y): (i32, i32)| (x - x_range.start, y - y_range.start);
        let mut text = label.name.to_owned();
        match label.end {
            Some(end) => {
                let path = [place(end), place((left - 4, y))];
                area.draw(&PathElement::new(path, label.color.mix(0.5).stroke_width(1)))?;
            }
            None => text += " (no values)",
        }
        let style = (FONT, 14).into_font().color(&label.color);
        area.draw(&Text::new(text, place((left, y - 8)), style))?;
    }
    Ok(())
}

/// Moves sorted places apart, so that neighbours have at least this distance and all are in the range if they
/// fit.
fn spread(wanted: &[i32], distance: i32, range: Range<i32>) -> Vec<i32> {
    let mut places = wanted.to_vec();
    for at in 1..places.len() {
        places[at] = places[at].max(places[at - 1] + distance);
    }
    let mut most = range.end;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - distance;
    }
    // Halfway back to the wanted places, where the group was pushed down only.
    let over = places.iter().zip(wanted).map(|(place, wanted)| place - wanted).max().unwrap_or(0) / 2;
    let free = places.first().map_or(0, |first| first - range.start).max(0);
    let is_group = places.windows(2).all(|pair| pair[1] - pair[0] <= 2 * distance);
    if is_group {
        places.iter_mut().for_each(|place| *place -= over.min(free));
    }
    places
}

/// The least and the greatest of the values that have a place on the axis.
fn ends(values: impl Iterator<Item = f64>, axis: &Axis) -> (f64, f64) {
    let values = values.filter(|value| axis.has_place(*value));
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (0.1, 1.0) }
}

fn log_x((low, high): (f64, f64), base: f64) -> WithKeyPoints<LogCoord<f64>> {
    let range = low / 1.15..high * 1.15;
    let ticks = ticks::logarithmic(&range, base, X_LABELS);
    range.log_scale().base(base).with_key_points(ticks)
}

fn linear_x((low, high): (f64, f64)) -> Range<f64> {
    let room = ((high - low) * 0.04).max(high.abs() * 0.01).max(1e-9);
    low - room..high + room
}

/// As many decimals as three digits need, so that neighbouring labels differ.
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

    fn chart(y: Axis, dots: Vec<Dot>) -> Chart {
        let lines = vec![Line { name: "markov".to_owned(), dots: dots.into_iter().map(Some).collect() }];
        Chart { x: Axis::linear("groups"), y, bands: Vec::new(), lines }
    }

    #[test]
    fn titles_axes_and_labels_are_in_the_picture_on_white() {
        let dots = vec![Dot { x: 2.0, y: 2.0, bar: (1.0, 3.0) }, Dot::new(64.0, 2.5)];
        let svg = svg("A figure", "Thesis 4.10", &[chart(Axis::linear("latency (ms)"), dots)]).unwrap();
        for text in ["A figure", "Thesis 4.10", "groups", "latency (ms)", "markov"] {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let first = svg.lines().nth(1).unwrap();
        assert!(first.starts_with("<rect") && first.contains("fill=\"#FFFFFF\""), "{first}");
    }

    #[test]
    fn an_axis_of_percent_ends_at_a_hundred() {
        let of = |y: Axis, low, high| {
            let chart = chart(y, Vec::new());
            chart.linear_y((low, high)).end
        };
        assert_eq!(of(Axis::linear("recovered (%)"), 20.0, 99.0), 100.0);
        assert_eq!(of(Axis::linear("recovered (%)"), 97.0, 100.0), 100.0);
        assert!(of(Axis::linear("recovered (%)"), 1.0, 30.0) < 40.0);
        assert!(of(Axis::linear("latency (ms)"), 20.0, 99.0) > 100.0);
    }

    #[test]
    fn labels_of_lines_with_near_ends_stand_apart_and_inside() {
        assert_eq!(spread(&[10, 100, 200], 17, 0..300), [10, 100, 200]);
        for wanted in [[5, 6, 7, 8], [100, 100, 100, 100], [290, 295, 298, 299], [0, 0, 299, 299]] {
            let places = spread(&wanted, 17, 0..300);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 17), "{places:?}");
            assert!(places.iter().all(|place| (0..=300).contains(place)), "{places:?}");
        }
    }

    #[test]
    fn nothing_and_zeros_are_still_a_picture() {
        for y in [Axis::linear("y"), Axis::log("y")] {
            for dots in [vec![], vec![Dot::new(0.0, 0.0)]] {
                assert!(svg("", "", &[chart(y.clone(), dots)]).unwrap().contains("</svg>"));
            }
        }
    }

    #[test]
    fn bands_lie_behind_the_lines_and_have_labels_where_there_is_room() {
        let band = |range: Range<f64>, label: &str| Band { label: label.to_owned(), range, strength: 0.5 };
        let dots = (0..50).map(|at| Dot::new(f64::from(at), 1.0)).collect();
        let bands = vec![
            band(0.0..30.0, "nothing lost"),
            band(30.0..30.5, "a narrow one"),
            band(30.5..99.0, "5 % lost"),
            band(200.0..300.0, "beyond the axis"),
        ];
        let chart = Chart { bands, ..chart(Axis::linear("y"), dots) };
        let svg = svg("", "", &[chart]).unwrap();
        let color = format!("#{:02X}{:02X}{:02X}", BAND.0, BAND.1, BAND.2);
        assert_eq!(svg.matches(color.as_str()).count(), 3, "{svg}");
        let (last_band, line) = (svg.rfind(color.as_str()).unwrap(), svg.find("stroke=\"#0072B2\"").unwrap());
        assert!(last_band < line);
        assert!(svg.contains("nothing lost") && svg.contains("5 % lost"), "{svg}");
        assert!(!svg.contains("a narrow one") && !svg.contains("beyond the axis"), "{svg}");
    }

    #[test]
    fn a_line_is_broken_where_a_value_is_missing() {
        let lines = |dots: Vec<Option<Dot>>| {
            let chart =
                Chart { lines: vec![Line { name: String::new(), dots }], ..chart(Axis::linear("y"), vec![]) };
            svg("", "", &[chart]).unwrap().matches("stroke=\"#0072B2\"").count()
        };
        let dot = |x| Some(Dot::new(x, 1.0));
        let whole = lines((0..50).map(|at| dot(f64::from(at))).collect());
        let broken = lines((0..50).map(|at| dot(f64::from(at)).filter(|_| at != 25)).collect());
        assert_eq!(broken, whole + 1);
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
