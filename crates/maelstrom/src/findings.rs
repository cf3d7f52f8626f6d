//! Findings of a configuration check in the log.

use diagnostics::{Report, Severity};

/// Logs the findings of a report: errors and warnings as warnings, because a gateway with a readable
/// configuration runs in spite of them, and notes for debugging.
pub fn log(report: &Report) {
    log_as(report, false);
}

/// Logs the findings of a report because of which a configuration is refused, each as one record.
pub fn log_refusal(report: &Report) {
    log_as(report, true);
}

fn log_as(report: &Report, is_refused: bool) {
    for finding in report.diagnostics() {
        let (code, message) = (finding.code, &finding.message);
        let place = report.place(finding);
        let (expected, seen) = (finding.expected.as_deref(), finding.seen.as_deref());
        let help = (!finding.help.is_empty()).then(|| one_line(&finding.help));
        match finding.severity {
            Severity::Note => tracing::debug!(code, place, expected, seen, help, "{message}"),
            Severity::Error if is_refused => {
                tracing::error!(code, place, expected, seen, help, "{message}");
            }
            _ => tracing::warn!(code, place, expected, seen, help, "{message}"),
        }
    }
}

/// Remedies on one line: commands of one remedy are separated as a shell separates them.
fn one_line(remedies: &[String]) -> String {
    let lines = |remedy: &String| remedy.replace(":\n", ": ").replace('\n', "; ");
    remedies.iter().map(lines).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_of_several_lines_are_one_line_in_the_log() {
        let remedies = ["lower them:\nip route a\nip route b".to_owned(), "or not".to_owned()];
        assert_eq!(one_line(&remedies), "lower them: ip route a; ip route b; or not");
    }
}
