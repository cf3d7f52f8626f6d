//! The papers' figures, run again in virtual time.
//!
//! A [`Figure`] knows its source and set-up, plans the [jobs](Job) whose samples make it, and holds what came of them
//! against what the source claims. Same code, same seeds: same figure, on every machine and any number of threads.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | what a figure is made of: jobs, panels, samples |
//! | `run.rs` | jobs on all threads; samples of several seeds become points |
//! | `outcome.rs` | points, claims, JSON |
//! | `store.rs` | a folder of outcomes: what is there already is not run again |
//! | `picture.rs` | an outcome as SVG |
//! | `table.rs` | all outcomes as `docs/figures.md` |
//! | `maelstrom.rs` | the figures of Maelstrom's code |
//! | `ricochet.rs`, `ricochet/*.rs` | the figures of Ricochet and Slingshot |
#![forbid(unsafe_code)]

mod maelstrom;
mod outcome;
mod picture;
mod plan;
mod ricochet;
mod run;
mod store;
mod table;

pub use outcome::{Claim, Outcome, Panel, Point, Series};
pub use picture::{PictureError, picture};
pub use plan::{Figure, Job, PanelPlan, Plan, Sample, Samples, Scale, Verdict};
pub use run::run;
pub use store::{Store, StoreError};
pub use table::table;

/// All figures, in the order of their sources.
#[must_use]
pub fn all() -> Vec<Figure> {
    [maelstrom::figures(), ricochet::figures()].into_iter().flatten().collect()
}
