//! Numbers and texts that fit into columns.

/// Width of a screen in columns.
pub(super) const WIDTH: usize = 80;

/// Steps of a bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Cuts a line to the width of the screen, with a mark where it was cut.
pub(super) fn fit(line: &str) -> String {
    cut(line, WIDTH)
}

/// Cuts a text to some columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// A bit rate in at most six columns.
pub(super) fn rate(bits_per_s: f64) -> String {
    match bits_per_s {
        1e9.. => format!("{:.1}G", bits_per_s / 1e9),
        1e6.. => format!("{:.1}M", bits_per_s / 1e6),
        1e3.. => format!("{:.0}k", bits_per_s / 1e3),
        _ => format!("{bits_per_s:.0}"),
    }
}

/// A count in at most six columns.
pub(super) fn count(count: u64) -> String {
    match count {
        0..100_000 => count.to_string(),
        100_000..100_000_000 => format!("{:.1}M", count as f64 / 1e6),
        _ => format!("{:.1}G", count as f64 / 1e9),
    }
}

/// A rate of events in at most six columns.
pub(super) fn per_second(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

/// A percentage in at most six columns, with more digits the smaller it is.
pub(super) fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0".to_owned(),
        10.0.. => format!("{percent:.1}"),
        0.1.. => format!("{percent:.2}"),
        _ => format!("{percent:.4}"),
    }
}

/// A length of time with its unit.
pub(super) fn time(us: u64) -> String {
    if us < 100_000 { format!("{:.1}ms", us as f64 / 1e3) } else { format!("{:.1}s", us as f64 / 1e6) }
}

/// A bar for each value, in proportion to the largest. Nothing known is a blank, and zero is a dot.
pub(super) fn bars(values: &[Option<f64>]) -> String {
    let largest = values.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: &Option<f64>| match value {
        None => ' ',
        Some(value) if *value <= 0.0 => '·',
        Some(value) => BARS[((value / largest * BARS.len() as f64) as usize).min(BARS.len() - 1)],
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_their_columns() {
        let rates = [0.0, 999.4, 5_300.0, 12_340_000.0, 9_990_000_000.0].map(rate);
        assert_eq!(rates, ["0", "999", "5k", "12.3M", "10.0G"]);
        assert_eq!(
            [0, 99_999, 100_000, 12_345_678, 2_000_000_000].map(count),
            ["0", "99999", "0.1M", "12.3M", "2.0G"]
        );
        assert_eq!([0.0, 0.3, 9.94, 9.96, 123_456.0].map(per_second), ["0", "0.3", "9.9", "10", "0.1M"]);
        assert_eq!([0.0, 0.001, 1.92, 100.0].map(percent), ["0", "0.0010", "1.92", "100.0"]);
        assert_eq!([2_540, 99_999, 1_500_000].map(time), ["2.5ms", "100.0ms", "1.5s"]);
    }

    #[test]
    fn bars_are_in_proportion_to_the_largest() {
        assert_eq!(bars(&[None, Some(0.0), Some(1.0), Some(4.0), Some(8.0)]), " ·▂▅█");
        assert_eq!(bars(&[Some(0.0)]), "·");
        assert_eq!(bars(&[]), "");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("tokyo", 5), "tokyo");
        assert_eq!(cut("tokyo-2", 5), "toky…");
        assert_eq!(fit(&"é".repeat(100)).chars().count(), WIDTH);
    }
}
