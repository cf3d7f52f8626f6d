//! All outcomes as `docs/figures.md`: a table of verdicts, then a section for each figure.

use std::fmt::Write as _;

use crate::outcome::{Made, Outcome};
use crate::plan::{Figure, Scale};

const HEAD: &str = "\
# The papers' figures, run again

Generated from the data in `docs/figures/` and the texts in `crates/figures/src/prose.toml`; do not edit.

- *sim* figures are simulated in virtual time. They are the same on every machine for the same code and random
  seeds. *real* figures are measured on the kernel's TCP and UDP, through network namespaces and an emulated link,
  on one idle machine. Their values vary from run to run.
- *Ours* is a result here, *theirs* is one of the source. Quick runs (`--quick`) have fewer points and wider limits.
- A point is the median of its runs, with a bar from the least to the greatest value. A single run has no bar.
- A claim *holds* if every part of it has its shape here: which line is greater, and which way it slopes. The
  numbers may differ.
- (8; 1,20,40) is a layered code with its interleaves, (8,2) a Reed-Solomon code, and (8,5) a rate of fire of
  Ricochet; `docs/glossary.md` explains these terms.

";

/// The limits of the mark: see [`Figure::fingerprint`].
const OLDER: &str = "\
Rows marked *older* were made with another set-up, or by code that behaved differently in virtual time. For *real* figures the
mark covers nothing else: no change in the programs around the code, in the traffic, in the emulated link, or in the kernel.

";

/// Returns the page. Its links lead to `folder`, where the pictures and the data are.
pub fn page(outcomes: &[(&Figure, Outcome)], folder: &str) -> String {
    let mut text = HEAD.to_owned();
    if outcomes.iter().any(|(_, outcome)| outcome.quick) {
        text += "Rows marked *quick* come from quick runs: fewer points, shorter times, small packets.\n\n";
    }
    if outcomes.iter().any(|(figure, outcome)| is_older(figure, outcome)) {
        text += OLDER;
    }
    text += "| figure | made by | the source's claim | ours | holds |\n|---|---|---|---|---|\n";
    outcomes.iter().for_each(|(figure, outcome)| text += &row(figure, outcome));
    for (figure, outcome) in outcomes {
        text += &section(figure, outcome, folder);
    }
    text
}

fn row(figure: &Figure, outcome: &Outcome) -> String {
    let marks = [(outcome.quick, " *quick*"), (is_older(figure, outcome), " *older*")];
    let marks: String = marks.into_iter().filter(|(is_marked, _)| *is_marked).map(|(_, mark)| mark).collect();
    let holds = match &figure.prose.differs {
        _ if outcome.claim.holds => "yes".to_owned(),
        Some(part) => format!("**no**: {part}"),
        None => "**no**".to_owned(),
    };
    format!(
        "| [{id}](#{anchor}){marks} | {made} | {theirs} | {ours} | {holds} |\n",
        id = outcome.id,
        anchor = anchor(&heading(outcome)),
        made = made(figure, outcome),
        theirs = figure.prose.claim_brief,
        ours = if outcome.claim.ours_brief.is_empty() { "see below" } else { &outcome.claim.ours_brief },
    )
}

fn section(figure: &Figure, outcome: &Outcome, folder: &str) -> String {
    let (slug, claim) = (figure.slug(), &outcome.claim);
    let mut text = format!("\n## {}\n\n", heading(outcome));
    let made = made(figure, outcome);
    let _ = writeln!(text, "{}. Made by {made}; [data]({folder}/{slug}.json).\n", outcome.source);
    let parts = [
        ("Claim", &claim.theirs),
        ("Ours", &claim.ours),
        ("Set-up", &outcome.setup),
        ("Why they differ", &claim.why),
    ];
    for (name, part) in parts {
        let _ = writeln!(text, "**{name}.** {part}\n");
    }
    let _ = writeln!(text, "![{}]({folder}/{slug}.svg)", outcome.title);
    text
}

fn heading(outcome: &Outcome) -> String {
    format!("{}: {}", outcome.id, outcome.title)
}

/// The anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn scale(outcome: &Outcome) -> Scale {
    if outcome.quick { Scale::Quick } else { Scale::Full }
}

fn is_older(figure: &Figure, outcome: &Outcome) -> bool {
    outcome.fingerprint != figure.fingerprint(scale(outcome))
}

/// How it was made, with the runs of a point of each kind.
fn made(figure: &Figure, outcome: &Outcome) -> String {
    if outcome.runs.is_empty() {
        return figure.made(scale(outcome)).iter().map(Made::to_string).collect::<Vec<_>>().join(", ");
    }
    let kind = |runs: &crate::outcome::Runs| {
        let unit = if runs.most == 1 { "run" } else { "runs" };
        format!("{}, {runs} {unit}", runs.made)
    };
    outcome.runs.iter().map(kind).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Claim, Runs};
    use crate::plan::{Plan, Verdict};
    use crate::prose::Prose;

    fn figure() -> Figure {
        let prose = Prose {
            title: "A title".to_owned(),
            claim_brief: "a is greater".to_owned(),
            differs: Some("b is".to_owned()),
            ..Prose::default()
        };
        Figure {
            id: "0.0",
            prose: Box::leak(Box::new(prose)),
            plan: |_| Plan { panels: Vec::new(), jobs: Vec::new() },
            judge: |_| Verdict::new(true),
        }
    }

    fn outcome(figure: &Figure, runs: &[Runs], holds: bool) -> Outcome {
        let text = |text: &str| text.to_owned();
        Outcome {
            id: text("0.0"),
            title: text("A title"),
            source: text("A source"),
            setup: text("two nodes"),
            quick: false,
            runs: runs.to_vec(),
            fingerprint: figure.fingerprint(Scale::Full),
            panels: Vec::new(),
            claim: Claim {
                theirs: text("a is greater than b"),
                ours: text("a is 7"),
                ours_brief: text("7"),
                holds,
                why: text("chance"),
            },
        }
    }

    fn row_of(runs: &[Runs], holds: bool) -> String {
        let figure = figure();
        let page = page(&[(&figure, outcome(&figure, runs, holds))], "figures");
        page.lines().find(|line| line.starts_with("| [0.0]")).unwrap().to_owned()
    }

    #[test]
    fn a_row_has_the_number_of_runs_of_each_kind() {
        let sim = Runs { made: Made::Simulated, least: 5, most: 5 };
        let real = |least, most| Runs { made: Made::Real, least, most };
        let rows: [(&[Runs], &str); 5] = [
            (&[sim], "sim, 5 runs"),
            (&[real(1, 1)], "real, 1 run"),
            (&[real(1, 2)], "real, 1–2 runs"),
            (&[sim, real(1, 1)], "sim, 5 runs; real, 1 run"),
            (&[], ""),
        ];
        for (runs, text) in rows {
            assert!(row_of(runs, true).contains(&format!(" | {text} | ")), "{text}: {}", row_of(runs, true));
        }
    }

    #[test]
    fn a_row_names_the_part_of_the_claim_that_does_not_hold() {
        let row = row_of(&[], true);
        assert!(
            row.starts_with("| [0.0](#00-a-title) | ") && row.ends_with("| a is greater | 7 | yes |"),
            "{row}"
        );
        let row = row_of(&[], false);
        assert!(row.ends_with("| **no**: b is |"), "{row}");
    }

    #[test]
    fn a_section_has_claim_result_set_up_reason_and_picture() {
        let figure = figure();
        let page = page(&[(&figure, outcome(&figure, &[], true))], "figures");
        let section = page.split("\n## 0.0: A title\n").nth(1).unwrap();
        for part in [
            "A source.",
            "**Claim.** a is greater than b\n",
            "**Ours.** a is 7\n",
            "**Set-up.** two nodes\n",
            "**Why they differ.** chance\n",
            "![A title](figures/thesis-0.0.svg)",
        ] {
            assert!(section.contains(part), "{part}: {section}");
        }
    }
}
