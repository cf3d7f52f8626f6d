//! Parses and formats quantities: `1gbit`, `50ms`, `12MB`.

/// Reason why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, saw {seen:?}")]
pub struct UnitError {
    expected: &'static str,
    seen: String,
}

const BIT_RATE: &str = "a bit rate such as 900kbit, 100mbit, 1gbit";
const DURATION: &str = "a duration such as 250us, 50ms, 1.5s";
const SIZE: &str = "a size such as 1500, 64KB, 12MB, 1GB";

/// Parses a bit rate into bit/s: a number with `bit`, `kbit`, `mbit` or `gbit`, in any case; `bps` may stand
/// for `bit`.
///
/// ```
/// assert_eq!(simnet::units::parse_bit_rate("1.5gbit").unwrap(), 1_500_000_000);
/// ```
///
/// # Errors
/// If it is anything else, or zero.
pub fn parse_bit_rate(text: &str) -> Result<u64, UnitError> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let lower = text.to_ascii_lowercase().replace("bps", "bit");
    parse(&lower, &units, 1e12).filter(|&rate| rate > 0).ok_or_else(|| wrong(BIT_RATE, text))
}

/// Parses a duration into microseconds: a number with `us`, `ms` or `s`, or `0`.
///
/// # Errors
/// If it is anything else, or longer than a day.
pub fn parse_duration_us(text: &str) -> Result<u64, UnitError> {
    if text == "0" {
        return Ok(0);
    }
    let units = [("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6)];
    parse(text, &units, 86_400e6).ok_or_else(|| wrong(DURATION, text))
}

/// Parses a size in bytes: a number, alone or with `KB`, `MB`, `GB` (powers of 1,000) or `KiB`, `MiB`, `GiB`
/// (powers of 1,024).
///
/// # Errors
/// If it is anything else.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (k, m, g) = (1024.0, 1_048_576.0, 1_073_741_824.0);
    let units =
        [("kib", k), ("mib", m), ("gib", g), ("kb", 1e3), ("mb", 1e6), ("gb", 1e9), ("b", 1.0), ("", 1.0)];
    parse(&text.to_ascii_lowercase(), &units, 1e15).ok_or_else(|| wrong(SIZE, text))
}

fn wrong(expected: &'static str, seen: &str) -> UnitError {
    UnitError { expected, seen: seen.to_owned() }
}

/// Parses a number followed by the first unit that fits.
fn parse(text: &str, units: &[(&str, f64)], limit: f64) -> Option<u64> {
    units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.trim_end();
        if !number.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let value = number.parse::<f64>().ok()? * factor;
        (0.0..=limit).contains(&value).then(|| value.round() as u64)
    })
}

/// Formats a bit rate in the largest unit that leaves a short number.
pub fn format_bit_rate(bps: u64) -> String {
    match bps {
        1_000_000_000.. => format!("{}gbit", bps as f64 / 1e9),
        1_000_000.. => format!("{}mbit", bps as f64 / 1e6),
        1_000.. => format!("{}kbit", bps as f64 / 1e3),
        _ => format!("{bps}bit"),
    }
}

/// Formats a duration in the largest unit that leaves a short number.
pub fn format_duration_us(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1_000_000.. => format!("{}s", us as f64 / 1e6),
        1_000.. => format!("{}ms", us as f64 / 1e3),
        _ => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_their_units() {
        assert_eq!(parse_bit_rate("1gbit").unwrap(), 1_000_000_000);
        assert_eq!(parse_bit_rate("100 Mbps").unwrap(), 100_000_000);
        assert_eq!(parse_bit_rate("9600bit").unwrap(), 9600);
        assert_eq!(parse_duration_us("50ms").unwrap(), 50_000);
        assert_eq!(parse_duration_us("1.5s").unwrap(), 1_500_000);
        assert_eq!(parse_duration_us("250us").unwrap(), 250);
        assert_eq!(parse_duration_us("0").unwrap(), 0);
        assert_eq!(parse_size("12MB").unwrap(), 12_000_000);
        assert_eq!(parse_size("1500").unwrap(), 1500);
        assert_eq!(parse_size("64KiB").unwrap(), 65_536);
    }

    #[test]
    fn a_wrong_text_is_refused_with_an_example() {
        for text in ["", "1", "gbit", "-1gbit", "1tbit", "0gbit", "NaNgbit", "infgbit", "1e300gbit"] {
            assert!(parse_bit_rate(text).unwrap_err().to_string().contains("1gbit"), "{text:?}");
        }
        for text in ["", "5", "ms", "-5ms", "5min", "1e12s"] {
            assert!(parse_duration_us(text).unwrap_err().to_string().contains("50ms"), "{text:?}");
        }
        for text in ["", "MB", "-1", "1TB", "12 apples"] {
            assert!(parse_size(text).unwrap_err().to_string().contains("12MB"), "{text:?}");
        }
    }

    #[test]
    fn a_formatted_quantity_parses_to_itself() {
        for bps in [9600, 2_500_000, 1_000_000_000, 100_000_000] {
            assert_eq!(parse_bit_rate(&format_bit_rate(bps)).unwrap(), bps);
        }
        for us in [0, 250, 50_000, 1_500_000] {
            assert_eq!(parse_duration_us(&format_duration_us(us)).unwrap(), us);
        }
    }
}
