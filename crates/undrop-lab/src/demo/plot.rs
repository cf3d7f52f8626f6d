//! Goodput over time and the latency of every message in the three acts, as an SVG picture (Maelstrom Figures
//! 9 and 12).

use figures::chart::{self, Axis, Band, Chart, Dot, Line};

use super::changes::{ActOverTime, Changes, Phase, Point};
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
    Chart { x: Axis::linear(x), y, bands: Vec::new(), lines }
}

/// Returns the picture of the acts whose loss changes.
pub(super) fn render_changes(title: &str, changes: &Changes) -> anyhow::Result<String> {
    let most = changes.phases.iter().map(|phase| phase.loss_rate).fold(f64::MIN_POSITIVE, f64::max);
    let band = |phase: &Phase| Band {
        label: phase.label(),
        range: phase.from_s..phase.to_s,
        // Small losses are visible beside great ones.
        strength: (phase.loss_rate / most).sqrt() * 0.7,
    };
    let bands: Vec<Band> = changes.phases.iter().map(band).collect();
    let line = |name: &str, act: &ActOverTime, read: &dyn Fn(&Point) -> f64| Line {
        name: name.to_owned(),
        dots: act.points.iter().map(|point| Some(Dot::new(point.at_s, read(point)))).collect(),
    };
    let (alone, masked) = (&changes.alone, &changes.masked);
    let goodput = [("without gateways", alone), ("with gateways", masked)];
    let goodput = goodput.map(|(name, act)| line(name, act, &|point| point.goodput_mbps));
    let losses = [
        line("on the link", masked, &|point| point.link_loss_percent),
        line("for hosts, with gateways", masked, &|point| point.host_loss_percent),
    ];
    let mean = |_: &Point| masked.overhead_percent;
    let overhead =
        [line("on average", masked, &mean), line("with gateways", masked, &|point| point.overhead_percent)];
    let chart = |y: &str, lines: [Line; 2]| Chart {
        x: Axis::linear("time (s)"),
        y: Axis::linear(y).with_zero(),
        bands: bands.clone(),
        lines: lines.to_vec(),
    };
    let charts = [
        chart("goodput (Mbit/s)", goodput),
        chart("lost packets (percent)", losses),
        chart("bytes added by repairs (percent)", overhead),
    ];
    let subtitle =
        "The link's loss changes while TCP sends; darker backgrounds lose more. Each point is half a second.";
    Ok(chart::svg(title, subtitle, &charts)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::changes::tests::course;
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

    /// The places of the points of each line, in the order of drawing.
    fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let points = |line: &str| {
            let text = line.split("points=\"").nth(1)?.split('"').next()?.to_owned();
            let point = |pair: &str| {
                let (x, y) = pair.split_once(',')?;
                Some((x.parse().ok()?, y.parse().ok()?))
            };
            Some(text.split_whitespace().filter_map(point).collect::<Vec<(f64, f64)>>())
        };
        // Lines of data are wider than those of axes and labels.
        let wide =
            svg.lines().filter(|line| line.starts_with("<polyline") && !line.contains("stroke-width=\"1\""));
        wide.filter_map(points).filter(|points| points.len() > 2).collect()
    }

    fn changes(points: &[(f64, f64, f64)]) -> Changes {
        let phase = |from_s, to_s, loss_rate| Phase { from_s, to_s, loss_rate };
        let mut masked = course(points);
        masked.points.iter_mut().for_each(|point| point.link_loss_percent = 5.0);
        Changes {
            course: "0s none, 2s uniform:5%".to_owned(),
            phases: vec![phase(0.0, 2.0, 0.0), phase(2.0, 4.0, 0.05)],
            alone: course(&[(1.0, 800.0, 0.0), (2.0, 30.0, 0.0), (3.0, 10.0, 0.0), (4.0, 5.0, 0.0)]),
            masked,
        }
    }

    #[test]
    fn each_line_of_the_changes_is_drawn_where_its_data_is() {
        let points = [(1.0, 900.0, 3.0), (2.0, 850.0, 12.0), (3.0, 870.0, 16.0), (4.0, 900.0, 4.0)];
        let svg = render_changes("TCP cubic", &changes(&points)).unwrap();
        for text in ["no loss", "5 % lost", "without gateways", "with gateways", "on the link", "on average"]
        {
            assert!(svg.contains(text), "{text} is missing:\n{svg}");
        }
        let drawn = lines(&svg);
        assert_eq!(drawn.len(), 6, "three panels of two lines: {drawn:?}");
        let heights = |line: &[(f64, f64)]| line.iter().map(|point| point.1).collect::<Vec<f64>>();
        // Down is positive: the first line falls, the last one rises to its third point.
        assert!(heights(&drawn[0]).is_sorted(), "{drawn:?}");
        let overhead = heights(&drawn[5]);
        assert!(overhead[2] < overhead[1] && overhead[1] < overhead[3] && overhead[3] < overhead[0]);
        // Lines are as wide apart as their values: 900 of about 970 Mbit/s is above 30 by most of a panel.
        assert!(drawn[0][1].1 - drawn[1][1].1 > 150.0, "{drawn:?}");

        let mut other = points;
        other[2].2 = 8.0;
        let moved = lines(&render_changes("TCP cubic", &changes(&other)).unwrap());
        assert_eq!(drawn[..4], moved[..4], "other lines stay");
        let overhead = heights(&moved[5]);
        assert!(overhead[2] > overhead[1], "the point follows its value: {moved:?}");
    }

    #[test]
    fn changes_without_a_moment_are_still_a_picture() {
        let changes = Changes { alone: course(&[]), masked: course(&[]), ..changes(&[]) };
        assert!(render_changes("", &changes).unwrap().contains("</svg>"));
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        for latencies in [&[][..], &[None, None], &[Some(0.0)]] {
            assert!(picture(latencies, &[]).contains("</svg>"));
        }
    }
}
