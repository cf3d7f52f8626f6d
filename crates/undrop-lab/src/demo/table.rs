//! The outcome as text: a table and a summary.

use simnet::units::{format_bit_rate, format_duration_us};

use super::acts::Act;
use super::changes::Changes;
use super::outcome::{ActOutcome, Gateways, Outcome};

const NONE: &str = "-";
const COLUMNS: usize = 10;

/// Returns table, summary and verdict, ending in a line end.
pub(super) fn render(outcome: &Outcome) -> String {
    let setup = &outcome.setup;
    let mut text = format!(
        "TCP {} over {}, {} one way; gateways: {}\n\n",
        setup.congestion,
        format_bit_rate(setup.rate_bps),
        format_duration_us(setup.delay_us),
        setup.code,
    );
    let header = [
        ["", "goodput", "message", "latency", "(ms)", "lost on", "", "not", "extra", "queue"],
        ["act", "Mbit/s", "p50", "p99", "max", "the link", "recovered", "recovered", "traffic", "drops"],
    ];
    let mut lines: Vec<[String; COLUMNS]> = header.map(|line| line.map(str::to_owned)).to_vec();
    for (act, measured) in
        [(Act::Lossless, &outcome.lossless), (Act::Alone, &outcome.alone), (Act::Masked, &outcome.masked)]
    {
        lines.push(row(act.title(setup.loss_rate), measured));
    }
    text += &align(&lines);
    if lines[header.len()..].iter().any(|line| line[COLUMNS - 1] != "0") {
        text += "Queue drops: packets that found the queue before the link full, by which TCP learns the link's rate.\n";
    }
    text.push('\n');
    text += &wrap(&sentence(outcome), 100);
    text.push('\n');
    if let Some(changes) = &outcome.changes {
        text += &wrap(&changes_sentence(changes), 100);
        text.push('\n');
    }
    text += &verdict(outcome);
    text
}

fn row(title: String, act: &ActOutcome) -> [String; COLUMNS] {
    let millis = |value: f64| format!("{value:.1}");
    let of_gateways =
        |value: &dyn Fn(&Gateways) -> String| act.gateways.as_ref().map_or(NONE.to_owned(), value);
    let losses = act
        .gateways
        .map_or((act.link.lost, act.link.queue_drops), |counts| (counts.lost_on_link(), counts.queue_drops));
    [
        title,
        format!("{:.1}", act.bulk.goodput_mbps),
        millis(act.messages.p50_ms),
        millis(act.messages.p99_ms),
        millis(act.messages.max_ms),
        losses.0.to_string(),
        of_gateways(&|counts| (counts.lost_on_link() - counts.unmasked()).to_string()),
        of_gateways(&|counts| counts.unmasked().to_string()),
        of_gateways(&|counts| format!("{:.1} %", counts.overhead_percent)),
        losses.1.to_string(),
    ]
}

/// Aligns the first column to the left and numbers to the right.
fn align(lines: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let mut rendered = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            rendered += &format!("  {cell:>width$}");
        }
        text += rendered.trim_end();
        text.push('\n');
    }
    text
}

/// Returns the summary in sentences.
fn sentence(outcome: &Outcome) -> String {
    let [lossless, alone, masked] =
        [&outcome.lossless, &outcome.alone, &outcome.masked].map(|act| act.bulk.goodput_mbps);
    let gateways = outcome.masked.gateways.unwrap_or_default();
    format!(
        "The link loses {}. TCP carried {lossless:.0} Mbit/s without loss, {} Mbit/s with loss, and {masked:.0} Mbit/s with \
         gateways, which is {:.0} % of what their repairs leave to data. The gateways recovered {} lost packets before the \
         hosts noticed. 99 of 100 messages took at most {:.0} ms with gateways and {:.0} ms without.",
        share(outcome.setup.loss_rate),
        brief(alone),
        percent(masked, outcome.verdict.share_mbps),
        part(gateways.lost_on_link() - gateways.unmasked(), gateways.lost_on_link()),
        outcome.masked.messages.p99_ms,
        outcome.alone.messages.p99_ms,
    )
}

/// Returns the summary of the acts whose loss changes.
fn changes_sentence(changes: &Changes) -> String {
    format!(
        "While the loss changed ({}), TCP carried {} Mbit/s on average without gateways and {} Mbit/s with them. Their \
         repairs added {:.1} % to the bytes, between {:.1} % and {:.1} % in each half second.",
        changes.course,
        brief(changes.alone.goodput_mbps),
        brief(changes.masked.goodput_mbps),
        changes.masked.overhead_percent,
        changes.masked.overhead_ends().0,
        changes.masked.overhead_ends().1,
    )
}

fn verdict(outcome: &Outcome) -> String {
    if outcome.verdict.masked {
        return "Masked: yes.\n".to_owned();
    }
    let mut text = "Masked: NO.\n".to_owned();
    for failure in &outcome.verdict.failures {
        text += &format!("  {failure}\n");
    }
    text
}

/// `1 % of all packets`, `0.01 % of all packets`.
fn share(rate: f64) -> String {
    format!("{} of all packets", percent_text(rate))
}

/// Returns a share as a percentage without needless digits.
pub(super) fn percent_text(rate: f64) -> String {
    // Rounded to four digits first: 0.07 × 100 is 7.000000000000001.
    format!("{} %", (rate * 1e6).round() / 1e4)
}

/// One decimal below a hundred, none above.
fn brief(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

fn part(recovered: u64, lost: u64) -> String {
    if lost > 0 && recovered >= lost { format!("all {lost}") } else { format!("{recovered} of {lost}") }
}

/// Breaks a text at blanks into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            wrapped.push('\n');
            used = 0;
        } else if used > 0 {
            wrapped.push(' ');
            used += 1;
        }
        wrapped += word;
        used += length;
    }
    wrapped.push('\n');
    wrapped
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{act, gateways};
    use super::super::outcome::{LinkLosses, Setup, Verdict};
    use super::*;

    fn outcome(masked_mbps: f64) -> Outcome {
        let lossless = act(958.94, &[50.1, 50.2], None);
        let mut alone = act(4.61, &[50.2, 250.0], None);
        alone.link = LinkLosses { packets: 50_000, lost: 480, queue_drops: 9 };
        let masked = act(masked_mbps, &[50.3, 61.7], Some(gateways(10_312, 10_310)));
        let verdict = Verdict::of(&lossless, &alone, &masked);
        let setup = Setup {
            congestion: "cubic".to_owned(),
            loss: "uniform:0.01".to_owned(),
            loss_rate: 0.01,
            rate_bps: 1_000_000_000,
            delay_us: 50_000,
            bulk_s: 12.0,
            code: "layered (8; 1,11,19)".to_owned(),
            seed: 1,
        };
        Outcome { setup, lossless, alone, masked, changes: None, verdict }
    }

    #[test]
    fn the_table_reads_as_documented() {
        let expected = "\
TCP cubic over 1gbit, 50ms one way; gateways: layered (8; 1,11,19)

                         goodput  message  latency   (ms)   lost on                   not    extra  queue
act                       Mbit/s      p50      p99    max  the link  recovered  recovered  traffic  drops
no loss, no gateways       958.9     50.1     50.2   50.2         0          -          -        -      0
1 % loss, no gateways        4.6     50.2    250.0  250.0       480          -          -        -      9
1 % loss, with gateways    674.2     50.3     61.7   61.7     10312      10310          2   38.0 %      0
Queue drops: packets that found the queue before the link full, by which TCP learns the link's rate.

The link loses 1 % of all packets. TCP carried 959 Mbit/s without loss, 4.6 Mbit/s with loss, and
674 Mbit/s with gateways, which is 97 % of what their repairs leave to data. The gateways recovered
10310 of 10312 lost packets before the hosts noticed. 99 of 100 messages took at most 62 ms with
gateways and 250 ms without.

Masked: yes.
";
        assert_eq!(render(&outcome(674.2)), expected);
    }

    #[test]
    fn changes_of_the_loss_have_a_sentence() {
        use crate::demo::changes::tests::course;
        let changes = Changes {
            course: "0s none, 6s uniform:0.05".to_owned(),
            phases: Vec::new(),
            alone: course(&[(1.0, 4.0, 0.0)]),
            masked: course(&[(1.0, 900.0, 4.0), (2.0, 700.0, 20.0)]),
        };
        let text = render(&Outcome { changes: Some(changes), ..outcome(674.2) });
        let expected = "\
While the loss changed (0s none, 6s uniform:0.05), TCP carried 4.0 Mbit/s on average without
gateways and 800 Mbit/s with them. Their repairs added 12.0 % to the bytes, between 4.0 % and 20.0 %
in each half second.
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_failure_has_its_reason() {
        let text = render(&outcome(20.0));
        assert!(text.contains("Masked: NO.\n  TCP carried 20.0 Mbit/s with gateways"), "{text}");
    }

    #[test]
    fn percentages_are_written_without_needless_digits() {
        for (rate, text) in [(0.01, "1 %"), (0.07, "7 %"), (0.0001, "0.01 %"), (0.125, "12.5 %")] {
            assert_eq!(percent_text(rate), text);
        }
    }

    #[test]
    fn a_long_word_does_not_stop_the_wrapping() {
        assert_eq!(wrap("a incomprehensible b", 5), "a\nincomprehensible\nb\n");
        assert_eq!(wrap("ab cd", 5), "ab cd\n");
    }
}
