//! Charts of the report, as SVG in the page: lines over the last hour, and bars.

use std::fmt::Write as _;

use super::page::escaped;

/// Size of a chart, and of the parts beside its area, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;
/// Length of the axis of time in minutes.
const MINUTES: f64 = 60.0;
/// Number of lines across the area, without the lowest.
const LINES: u32 = 4;
/// Colours that people without red or green vision tell apart, and that differ in brightness when printed.
const COLOURS: [&str; 2] = ["#0b5fa5", "#e08214"];

/// Values over the last hour.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Text in the legend; empty for none.
    pub(super) name: String,
    /// Minutes before the report, and the value; `None` where there is none, which breaks the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// Returns a chart of lines over the last hour. `unit` follows the numbers of its axis.
pub(super) fn lines(title: &str, unit: &str, lines: &[Line]) -> String {
    let values = lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, value)| *value));
    let top = round_up(values.fold(0.0, f64::max));
    let mut svg = opening(title, lines.iter().map(|line| line.name.as_str()));
    axis(&mut svg, top, unit);
    for minute in (0..=60).step_by(10) {
        let at = x(f64::from(minute));
        let label = if minute == 0 { "now".to_owned() } else { format!("−{minute} min") };
        let _ = write!(svg, r#"<text class="x" x="{at:.1}" y="{:.1}">{label}</text>"#, HEIGHT - 10.0);
    }
    for (line, colour) in lines.iter().zip(COLOURS) {
        for part in line.points.split(|(_, value)| value.is_none()) {
            draw(&mut svg, part, top, colour);
        }
    }
    svg + "</svg>"
}

/// Draws a part of a line without gaps. A part of a single point is a dot.
fn draw(svg: &mut String, part: &[(f64, Option<f64>)], top: f64, colour: &str) {
    let places: Vec<(f64, f64)> =
        part.iter().filter_map(|&(minutes, value)| Some((x(minutes), y(value?, top)))).collect();
    match places[..] {
        [] => {}
        [(x, y)] => {
            let _ = write!(svg, r#"<circle class="value" cx="{x:.1}" cy="{y:.1}" r="2.5" fill="{colour}"/>"#);
        }
        _ => {
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let points = points.join(" ");
            let _ = write!(svg, r#"<polyline class="value" points="{points}" stroke="{colour}"/>"#);
        }
    }
}

/// Returns a chart of bars, each with its label.
pub(super) fn bars(title: &str, bars: &[(String, u64)]) -> String {
    let top = round_up(bars.iter().map(|(_, count)| *count).max().unwrap_or(0) as f64);
    let mut svg = opening(title, std::iter::empty());
    axis(&mut svg, top, "");
    let step = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (at, (label, count)) in bars.iter().enumerate() {
        let middle = LEFT + (at as f64 + 0.5) * step;
        let (width, above) = (step.min(90.0) * 0.7, y(*count as f64, top));
        let (left, height) = (middle - width / 2.0, HEIGHT - BOTTOM - above);
        let _ = write!(
            svg,
            r#"<rect class="value" x="{left:.1}" y="{above:.1}" width="{width:.1}" height="{height:.1}" fill="{}"/>"#,
            COLOURS[0]
        );
        let _ = write!(svg, r#"<text class="x" x="{middle:.1}" y="{:.1}">{label}</text>"#, HEIGHT - 10.0);
    }
    svg + "</svg>"
}

fn opening<'n>(title: &str, names: impl Iterator<Item = &'n str>) -> String {
    let mut text = format!("<h3>{}</h3>", escaped(title));
    let mut legend = String::new();
    for (name, colour) in names.zip(COLOURS).filter(|(name, _)| !name.is_empty()) {
        let _ = write!(legend, r#"<span style="color:{colour}">■</span> {} "#, escaped(name));
    }
    if !legend.is_empty() {
        let _ = write!(text, r#"<p class="legend">{}</p>"#, legend.trim_end());
    }
    let _ = write!(
        text,
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{}">"#,
        escaped(title)
    );
    text
}

/// Draws the lines across the area, with their values.
fn axis(svg: &mut String, top: f64, unit: &str) {
    for line in 0..=LINES {
        let value = top * f64::from(line) / f64::from(LINES);
        let at = y(value, top);
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/><text class="y" x="{:.1}" y="{:.1}">{}{unit}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
}

fn x(minutes_ago: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * (1.0 - (minutes_ago / MINUTES).clamp(0.0, 1.0))
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top).clamp(0.0, 1.0)
}

/// The end of an axis: the next of 1, 2, 4 or 8 times a power of ten. Without values it is 1.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 8.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|end| *end >= value).unwrap_or(10.0 * power)
}

/// A number with as many decimals as it needs, at most five.
fn number(value: f64) -> String {
    let text = format!("{value:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_axis_is_round_and_above_all_values() {
        for (value, end) in
            [(0.0, 1.0), (0.000_3, 0.000_4), (0.5, 0.8), (1.0, 1.0), (1.9, 2.0), (81.0, 100.0)]
        {
            assert!((round_up(value) - end).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }

    #[test]
    fn numbers_have_the_decimals_that_they_need() {
        assert_eq!([0.0, 2.0, 0.25, 0.000_1, 1_000.0].map(number), ["0", "2", "0.25", "0.0001", "1000"]);
    }

    #[test]
    fn a_line_is_drawn_within_the_area_and_breaks_where_there_is_no_value() {
        let points = vec![
            (59.0, Some(1.0)),
            (58.0, Some(2.0)),
            (57.0, None),
            (56.0, Some(0.0)),
            (3.0, None),
            (90.0, Some(1.0)),
            (0.0, Some(2.0)),
        ];
        let svg = lines("Loss", " %", &[Line { name: "<here>".to_owned(), points }]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 1));
        assert!(svg.contains("&lt;here&gt;") && !svg.contains("<here>"), "{svg}");
        // The latest value is at the right end and at the top, the earliest at the left end.
        assert!(svg.contains(r#"points="56.0,86.0 708.0,12.0""#), "{svg}");
    }

    #[test]
    fn bars_have_the_heights_of_their_counts() {
        let svg = bars("Bursts", &[("1".to_owned(), 40), ("2".to_owned(), 10), ("3–4".to_owned(), 0)]);
        for height in ["148.0", "37.0", "0.0"] {
            assert!(svg.contains(&format!(r#"height="{height}""#)), "{height}: {svg}");
        }
        assert!(bars("Bursts", &[]).contains("<svg"));
    }
}
