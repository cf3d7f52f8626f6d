//! All outcomes as `docs/figures.md`.

use std::fmt::Write as _;

use crate::outcome::Outcome;
use crate::plan::{Figure, Made, Scale};

const HEAD: &str = "\
# The papers' figures, run again

Written by `undrop figures --out docs/figures`; do not edit. A figure's data is the JSON file of its name, beside its
picture. *sim*: in virtual time, the same on every machine for the same code and seeds. *real*: measured on the kernel's TCP
and UDP through network namespaces and an emulated link on one machine, on which nothing else ran; it varies from run to
run. *runs*: how often each point was made, with another seed each time where it is simulated; of several the point is their
median, and bars go from the least to the most; where it is one, the point is that one, and says nothing of how it scatters.
A claim *holds* if ours has its shape: who wins, which way it slopes.

";

/// The page; links to pictures are relative to it, `folder` being where they are.
#[must_use]
pub fn table(outcomes: &[(&Figure, Outcome)], folder: &str) -> String {
    let mut text = HEAD.to_owned();
    if outcomes.iter().any(|(_, outcome)| outcome.quick) {
        text += "**Rows marked *quick* are of quick runs** (`--quick`): fewer points, shorter, small packets.\n\n";
    }
    if outcomes.iter().any(|(figure, outcome)| is_older(figure, outcome)) {
        text += "**Rows marked *older* were made with another set-up, or with code that did otherwise.**\n\n";
    }
    text += "| figure | made | runs | what | the source's claim | ours | holds | why they differ |\n|---|---|---|---|---|---|---|---|\n";
    for (figure, outcome) in outcomes {
        let slug = figure.slug();
        let claim = &outcome.claim;
        let _ = writeln!(
            text,
            "| [{id}]({folder}/{slug}.svg){quick}{older} | {made} | {runs} | {title} | {theirs} | {ours} | {holds} | {why} |",
            id = outcome.id,
            quick = if outcome.quick { " *quick*" } else { "" },
            older = if is_older(figure, outcome) { " *older*" } else { "" },
            made = made(figure, outcome),
            runs = runs(outcome),
            title = outcome.title,
            theirs = claim.theirs,
            ours = claim.ours,
            holds = if claim.holds { "yes" } else { "**no**" },
            why = claim.why,
        );
    }
    text += "\n## How each was made\n";
    for (figure, outcome) in outcomes {
        let _ = write!(
            text,
            "\n**{}** {} ({}). {}\n\n![{}]({folder}/{}.svg)\n",
            outcome.id,
            outcome.title,
            outcome.source,
            outcome.setup,
            outcome.title,
            figure.slug()
        );
    }
    text
}

fn scale(outcome: &Outcome) -> Scale {
    if outcome.quick { Scale::Quick } else { Scale::Full }
}

fn is_older(figure: &Figure, outcome: &Outcome) -> bool {
    outcome.fingerprint != figure.fingerprint(scale(outcome))
}

fn made(figure: &Figure, outcome: &Outcome) -> String {
    figure.made(scale(outcome)).iter().map(Made::to_string).collect::<Vec<_>>().join(", ")
}

/// How often each point was made.
fn runs(outcome: &Outcome) -> String {
    match outcome.seeds_least {
        Some(least) => format!("{least}–{}", outcome.seeds),
        None => outcome.seeds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Claim;
    use crate::plan::{Plan, Verdict};

    #[test]
    fn a_row_tells_how_often_its_points_were_made() {
        let figure = Figure {
            id: "0.0",
            title: "a title",
            source: "a source",
            setup: "a set-up",
            claim: "a claim",
            why: "why",
            plan: |_| Plan { panels: Vec::new(), jobs: Vec::new() },
            judge: |_| Verdict { ours: String::new(), holds: true },
        };
        let row = |seeds, seeds_least| {
            let text = || "text".to_owned();
            let claim = Claim { theirs: text(), ours: text(), holds: true, why: text() };
            let outcome = Outcome {
                id: "0.0".to_owned(),
                title: text(),
                source: text(),
                setup: text(),
                quick: false,
                seeds,
                seeds_least,
                fingerprint: figure.fingerprint(Scale::Full),
                panels: Vec::new(),
                claim,
            };
            let page = table(&[(&figure, outcome)], "figures");
            page.lines().find(|line| line.starts_with("| [0.0]")).unwrap().to_owned()
        };
        assert!(row(1, None).contains(" | 1 | "), "{}", row(1, None));
        assert!(row(5, None).contains(" | 5 | "));
        assert!(row(5, Some(1)).contains(" | 1–5 | "));
    }
}
