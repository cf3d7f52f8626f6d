//! Output of a test program (libtest): the parts that a reader of the gate needs.

/// Maximum number of lines of a failed test that are printed again at the end of the gate.
const LINES_MAX: usize = 60;

/// Section of an output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Names and results of tests, and what programs that tests start wrote.
    Results,
    /// Output of tests that passed.
    Successes,
    /// Output of tests that failed, and their names.
    Failures,
}

impl Section {
    /// Returns the section to which a line belongs, if the line above it belongs to `self`.
    fn of(self, line: &str) -> Self {
        match line {
            "successes:" => Self::Successes,
            "failures:" => Self::Failures,
            _ if line.starts_with("test result: ") || line.starts_with("running ") => Self::Results,
            _ => self,
        }
    }
}

/// Returns the lines with their sections.
fn sections(output: &str) -> impl Iterator<Item = (Section, &str)> {
    output.lines().scan(Section::Results, |section, line| {
        *section = section.of(line);
        Some((*section, line))
    })
}

/// Returns an output without what the tests that passed printed.
pub(crate) fn without_successes(output: &str) -> String {
    let kept = sections(output).filter(|&(section, _)| section != Section::Successes);
    kept.flat_map(|(_, line)| [line, "\n"]).collect()
}

/// Returns what each failed test printed, with its name in the first line.
///
/// Of a long output, the beginning and the end are kept.
pub(crate) fn failures(output: &str) -> Vec<String> {
    let mut tests: Vec<Vec<&str>> = Vec::new();
    for (section, line) in sections(output) {
        if section != Section::Failures {
            continue;
        }
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            tests.push(vec![line]);
        } else if line == "failures:" {
            // The first of two lists has the outputs, the second only names.
            tests.push(Vec::new());
        } else if let Some(test) = tests.last_mut().filter(|test| !test.is_empty()) {
            test.push(line);
        }
    }
    tests.retain(|test| !test.is_empty());
    tests.iter().map(|test| shortened(test)).collect()
}

/// Returns the report about a program that names no failed test: how it ended, tests that took long and have
/// no result, and the last lines.
pub(crate) fn unfinished(name: &str, ending: &str, output: &str) -> String {
    let slow = output.lines().filter_map(|line| {
        let test = line.strip_prefix("test ")?.split_once(" has been running for over")?.0;
        let has_result = |line: &str| {
            line.strip_prefix("test ").is_some_and(|rest| rest.starts_with(&format!("{test} ... ")))
        };
        (!output.lines().any(has_result)).then(|| format!("without a result: {test}"))
    });
    let lines: Vec<&str> = output.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_MAX / 2)..].iter().map(|&line| line.to_owned());
    let head = format!("---- {name} ended without naming a failed test: {ending}");
    [head].into_iter().chain(slow).chain(last).collect::<Vec<_>>().join("\n")
}

fn shortened(lines: &[&str]) -> String {
    if lines.len() <= LINES_MAX {
        return lines.join("\n");
    }
    let (head, tail) = (&lines[..LINES_MAX / 2], &lines[lines.len() - LINES_MAX / 2..]);
    let left_out = format!("[{} lines are left out]", lines.len() - head.len() - tail.len());
    [head, &[&left_out], tail].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a ... ok
test b ... FAILED
test c ... FAILED

successes:

---- a stdout ----
much

successes:
    a

failures:

---- b stdout ----
expected 1, saw 2
at b.rs:7

---- c stdout ----
why

failures:
    b
    c

test result: FAILED. 1 passed; 2 failed; 0 ignored
";

    #[test]
    fn what_passing_tests_print_is_left_out_and_nothing_else() {
        let kept = without_successes(OUTPUT);
        assert!(!kept.contains("much") && !kept.contains("successes"), "{kept}");
        for line in ["test a ... ok", "expected 1, saw 2", "    c", "test result: FAILED."] {
            assert!(kept.contains(line), "{line}: {kept}");
        }
    }

    #[test]
    fn each_failed_test_is_found_with_its_output() {
        let found = failures(OUTPUT);
        let found: Vec<_> = found.iter().map(|test| test.trim_end()).collect();
        assert_eq!(found, ["---- b stdout ----\nexpected 1, saw 2\nat b.rs:7", "---- c stdout ----\nwhy"]);
        assert!(failures("successes:\n---- a stdout ----\nx\ntest result: ok. 1 passed\n").is_empty());
    }

    #[test]
    fn of_a_program_that_hangs_the_tests_without_a_result_are_named() {
        let output = "running 3 tests\ntest a has been running for over 60 seconds\ntest b has been running \
                      for over 60 seconds\ntest a ... ok\n";
        let report = unfinished("netio kernel", "killed after 1200 s", output);
        assert!(
            report.starts_with("---- netio kernel ended without naming a failed test: killed"),
            "{report}"
        );
        assert!(report.contains("without a result: b") && !report.contains("result: a"), "{report}");
        assert!(report.ends_with("test a ... ok"), "{report}");
    }

    #[test]
    fn of_a_long_output_the_beginning_and_the_end_are_kept() {
        let lines: Vec<_> = (0..500).map(|n| n.to_string()).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let text = shortened(&lines);
        assert!(text.starts_with("0\n1\n") && text.ends_with("\n499"), "{text}");
        assert_eq!(text.lines().count(), LINES_MAX + 1);
        assert!(text.contains("[440 lines are left out]"), "{text}");
    }
}
