//! All findings about one configuration, and the report as text.

use std::fmt;

use crate::diagnostic::{Diagnostic, Severity};
use crate::source::Source;

/// Maximum number of findings that are kept; the rest is counted. Nobody reads more, and a file may hold a
/// million mistakes.
const DIAGNOSTICS_MAX: usize = 200;

/// Findings while they are collected.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    list: Vec<Diagnostic>,
    dropped: [usize; 3],
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, diagnostic: Diagnostic) {
        if self.list.len() < DIAGNOSTICS_MAX {
            self.list.push(diagnostic);
        } else {
            self.dropped[diagnostic.severity as usize] += 1;
        }
    }

    /// Number of errors.
    pub fn errors(&self) -> usize {
        count(&self.list, &self.dropped, Severity::Error)
    }

    /// Turns the findings into a report: those with a place first, from the top of the file to its end.
    pub fn into_report(mut self, source: Source) -> Report {
        self.list.sort_by_key(|finding| finding.span.as_ref().map_or(usize::MAX, |span| span.start));
        Report { source, diagnostics: self.list, dropped: self.dropped }
    }
}

fn count(list: &[Diagnostic], dropped: &[usize; 3], severity: Severity) -> usize {
    list.iter().filter(|finding| finding.severity == severity).count() + dropped[severity as usize]
}

/// All findings about one configuration.
///
/// `Display` renders them for people, with the source line and a caret, as a compiler does. Findings about
/// settings that come from no file are one line each.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) source: Source,
    diagnostics: Vec<Diagnostic>,
    dropped: [usize; 3],
}

impl Report {
    /// The findings, by place in the file; those without a place come last.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Leaves out the findings with this code, which are expected.
    #[must_use]
    pub fn without(mut self, code: &str) -> Self {
        self.diagnostics.retain(|finding| finding.code != code);
        self
    }

    /// Number of errors; without any, the program can run.
    pub fn errors(&self) -> usize {
        count(&self.diagnostics, &self.dropped, Severity::Error)
    }

    /// Number of warnings.
    pub fn warnings(&self) -> usize {
        count(&self.diagnostics, &self.dropped, Severity::Warning)
    }

    /// The place of a finding, as `file:line:column`; `None` if it has none.
    pub fn place(&self, finding: &Diagnostic) -> Option<String> {
        let place = self.source.place(finding.span.as_ref()?);
        Some(format!("{}:{}:{}", self.file(), place.line, place.column))
    }

    fn show(&self, finding: &Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}[{}]: {}", finding.severity.word(), finding.code, finding.message)?;
        let place = finding.span.as_ref().map(|span| self.source.place(span));
        let number = place.as_ref().map_or(String::new(), |place| place.line.to_string());
        let gutter = " ".repeat(number.len());
        if let Some(place) = &place {
            let (excerpt, column) = place.excerpt();
            let room = excerpt.chars().count().saturating_sub(column).max(1);
            writeln!(f, "{gutter}--> {}:{}:{}", self.file(), place.line, place.column)?;
            writeln!(f, "{gutter} |")?;
            writeln!(f, "{number} | {excerpt}")?;
            writeln!(f, "{gutter} | {}{}", " ".repeat(column), "^".repeat(place.length.min(room)))?;
        }
        self.show_facts(finding, &gutter, f)
    }

    fn show_facts(&self, finding: &Diagnostic, gutter: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts: Vec<(&str, String)> = Vec::new();
        facts.extend(finding.expected.iter().map(|text| ("expected", text.clone())));
        facts.extend(finding.seen.iter().map(|text| ("seen", text.clone())));
        if let Some((span, what)) = &finding.related {
            let place = self.source.place(span);
            facts.push(("note", format!("{what} (line {}, column {})", place.line, place.column)));
        }
        facts.extend(finding.notes.iter().map(|text| ("note", text.clone())));
        facts.extend(finding.help.iter().map(|text| ("help", text.clone())));
        for (label, text) in facts {
            let mut lines = text.lines();
            writeln!(f, "{gutter} = {label}: {}", lines.next().unwrap_or(""))?;
            for line in lines {
                writeln!(f, "{gutter}   {line}")?;
            }
        }
        Ok(())
    }

    fn file(&self) -> String {
        self.source.file().map_or_else(|| "settings".to_owned(), |file| file.display().to_string())
    }

    /// The verdict: "1 error, 2 warnings".
    fn verdict(&self) -> String {
        let mut verdict = match self.errors() {
            0 => "no errors".to_owned(),
            1 => "1 error".to_owned(),
            n => format!("{n} errors"),
        };
        match self.warnings() {
            0 => {}
            1 => verdict.push_str(", 1 warning"),
            n => verdict += &format!(", {n} warnings"),
        }
        verdict
    }

    /// One line for each finding: what a program's own settings need, which have no lines and columns.
    fn show_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.diagnostics.iter().map(|finding| {
            let mut line = finding.message.clone();
            let facts = [("expected", &finding.expected), ("seen", &finding.seen)];
            let mut mark = ':';
            for (label, text) in facts.into_iter().filter_map(|(label, text)| Some((label, text.as_ref()?))) {
                line += &format!("{mark} {label} {text}");
                mark = ',';
            }
            line
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.source.file().is_none() {
            return self.show_lines(f);
        }
        for finding in &self.diagnostics {
            self.show(finding, f)?;
            writeln!(f)?;
        }
        let dropped: usize = self.dropped.iter().sum();
        if dropped > 0 {
            writeln!(f, "... and {dropped} more\n")?;
        }
        write!(f, "{}: {}", self.file(), self.verdict())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use proptest::prelude::*;

    fn report(text: &str, finding: Diagnostic) -> Report {
        let mut findings = Findings::default();
        findings.add(finding);
        findings.into_report(Source::new(Path::new("a.toml"), text))
    }

    #[test]
    fn the_caret_stands_under_the_place_also_behind_tabs_and_wide_letters() {
        let text = "a = 1\n\tb = \"é\" # x\n";
        let at = text.find('#').unwrap();
        let shown = report(text, Diagnostic::error("c", "m").at(at..at + 1)).to_string();
        assert_eq!(
            shown,
            "error[c]: m\n --> a.toml:2:10\n  |\n2 |  b = \"é\" # x\n  |          ^\n\na.toml: 1 error"
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let text = format!("a = \"{}\" #", "x".repeat(5000));
        let shown = report(&text, Diagnostic::error("c", "m").at(text.len() - 1..text.len())).to_string();
        assert!(shown.lines().all(|line| line.chars().count() < 140), "{shown}");
        assert!(shown.contains(":5008\n"), "{shown}");
    }

    #[test]
    fn a_flood_of_mistakes_is_counted_but_not_kept() {
        let mut findings = Findings::default();
        for _ in 0..1000 {
            findings.add(Diagnostic::error("c", "m"));
        }
        assert_eq!(findings.errors(), 1000);
        let report = findings.into_report(Source::new(Path::new("a.toml"), ""));
        assert_eq!(report.errors(), 1000);
        assert_eq!(report.diagnostics().len(), DIAGNOSTICS_MAX);
        assert!(report.to_string().contains("... and 800 more"));
    }

    #[test]
    fn a_finding_without_a_file_is_one_line() {
        let mut findings = Findings::default();
        findings.add(Diagnostic::error("c", "`r` is out of range").expected("1 to 64").seen("65"));
        findings.add(Diagnostic::error("c", "`s` is missing"));
        let shown = findings.into_report(Source::none()).to_string();
        assert_eq!(shown, "`r` is out of range: expected 1 to 64, seen 65\n`s` is missing");
    }

    proptest! {
        #[test]
        fn any_span_in_any_text_can_be_shown(text: String, start in 0_usize..200, length in 0_usize..50) {
            let report = report(&text, Diagnostic::warning("c", "m").at(start..start + length));
            prop_assert!(report.to_string().contains("warning[c]: m"));
            serde_json::from_str::<serde_json::Value>(&report.to_json()).unwrap();
        }
    }
}
