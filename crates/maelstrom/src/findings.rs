//! Findings of a configuration check in the log.

use diagnostics::{Report, Severity};

/// Logs the findings of a report: errors and warnings as warnings, because a gateway with a readable
/// configuration runs in spite of them, and notes for debugging.
pub fn log(report: &Report) {
    for finding in report.diagnostics() {
        let (code, message) = (finding.code, &finding.message);
        if finding.severity == Severity::Note {
            tracing::debug!(code, "{message}");
        } else {
            tracing::warn!(code, help = finding.help.join("; "), "{message}");
        }
    }
}
