//! All outcomes as `docs/figures.md`.

use std::fmt::Write as _;

use crate::outcome::Outcome;
use crate::plan::{Figure, Made, Scale};

const HEAD: &str = "\
# The papers' figures, run again

Written by `undrop figures --out docs/figures`; do not edit. A figure's data is the JSON file of its name, beside its
picture. *sim*: in virtual time, the same on every machine for the same code and seeds. *real*: measured on the kernel's TCP
and UDP through network namespaces and an emulated link, on one machine that had nothing else to do; it varies from run to run,
and with what else the machine's host does. *runs*: how often each point was made, with another seed each time where it is
simulated; of several the point is their median, and bars go from the least to the most; where it is one, the point is that one,
and says nothing of how it scatters; where simulated and measured points stand in one figure, the number is given for each kind.
A claim *holds* if ours has its shape: who wins, which way it slopes.

";

/// What the mark can tell: see [`Figure::fingerprint`].
const OLDER: &str = "\
**Rows marked *older* were made with another set-up, or by codes or nodes that behaved differently in virtual time.** Of a *real*
figure the mark sees no more than that: not what has changed since in the programs around code and nodes, in what makes traffic
and counts it, in the emulated link, or in the kernel.

";

/// The page; links to pictures are relative to it, `folder` being where they are.
#[must_use]
pub fn table(outcomes: &[(&Figure, Outcome)], folder: &str) -> String {
    let mut text = HEAD.to_owned();
    if outcomes.iter().any(|(_, outcome)| outcome.quick) {
        text += "**Rows marked *quick* are of quick runs** (`--quick`): fewer points, shorter, small packets.\n\n";
    }
    if outcomes.iter().any(|(figure, outcome)| is_older(figure, outcome)) {
        text += OLDER;
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

/// How often each point was made, of each kind.
fn runs(outcome: &Outcome) -> String {
    match &outcome.runs[..] {
        [] => "?".to_owned(),
        [runs] => runs.to_string(),
        kinds => kinds.iter().map(|runs| format!("{runs} {}", runs.made)).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Claim, Runs};
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
        let row = |runs: &[Runs]| {
            let text = || "text".to_owned();
            let claim = Claim { theirs: text(), ours: text(), holds: true, why: text() };
            let outcome = Outcome {
                id: "0.0".to_owned(),
                title: text(),
                source: text(),
                setup: text(),
                quick: false,
                runs: runs.to_vec(),
                fingerprint: figure.fingerprint(Scale::Full),
                panels: Vec::new(),
                claim,
            };
            let page = table(&[(&figure, outcome)], "figures");
            page.lines().find(|line| line.starts_with("| [0.0]")).unwrap().to_owned()
        };
        let sim = Runs { made: Made::Simulated, least: 5, most: 5 };
        let real = |least, most| Runs { made: Made::Real, least, most };
        let rows: [(&[Runs], &str); 5] = [
            (&[sim], "5"),
            (&[real(1, 1)], "1"),
            (&[real(1, 2)], "1–2"),
            (&[sim, real(1, 1)], "5 sim, 1 real"),
            (&[], "?"),
        ];
        for (runs, text) in rows {
            assert!(row(runs).contains(&format!(" | {text} | ")), "{text}: {}", row(runs));
        }
    }
}
