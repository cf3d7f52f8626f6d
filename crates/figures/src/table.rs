//! All outcomes as `docs/figures.md`.

use std::fmt::Write as _;

use crate::outcome::Outcome;
use crate::plan::{Figure, Made, Scale};

const HEAD: &str = "\
# The papers' figures, run again

Written by `undrop figures --out docs/figures`; do not edit. A figure's data is the JSON file of its name, beside its
picture. *sim*: in virtual time, the same on every machine for the same code and seeds. *real*: measured on the kernel's TCP
and UDP through network namespaces and an emulated link on one machine, on which nothing else ran; it varies from run to
run. Each point is the median of several seeds; bars go from the least to the most. A claim *holds* if ours has its shape:
who wins, which way it slopes.

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
    text += "| figure | made | what | the source's claim | ours | holds | why they differ |\n|---|---|---|---|---|---|---|\n";
    for (figure, outcome) in outcomes {
        let slug = figure.slug();
        let claim = &outcome.claim;
        let _ = writeln!(
            text,
            "| [{id}]({folder}/{slug}.svg){quick}{older} | {made} | {title} | {theirs} | {ours} | {holds} | {why} |",
            id = outcome.id,
            quick = if outcome.quick { " *quick*" } else { "" },
            older = if is_older(figure, outcome) { " *older*" } else { "" },
            made = made(figure, outcome),
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
