//! The papers' figures, run again: in virtual time, or on the real kernel.
//!
//! A [`Figure`] knows its source and set-up, plans the [jobs](Job) whose samples make it, and holds what came of them
//! against what the source claims. A simulated figure is the same on every machine and any number of threads, of the same code
//! and seeds. A real one is measured: kernels' TCP and UDP through namespaces, one job at a time.
//!
//! | file | what |
//! |---|---|
//! | `plan.rs` | what a figure is made of: jobs, panels, samples |
//! | `fingerprint.rs` | what identifies a set-up: its values, not its names |
//! | `run.rs` | simulations on all threads, measurements one by one; samples of several seeds become points |
//! | `memory.rs` | how many simulations the machine's memory holds at once |
//! | `kept.rs` | the finished runs of a figure that is not whole yet |
//! | `outcome.rs` | points, claims, JSON |
//! | `known.rs` | figures known not to have their source's shape, and the shape that they have |
//! | `store.rs` | a folder of outcomes: what is there already is not run again |
//! | `picture.rs`, `ticks.rs` | an outcome as SVG, and where its axes have labels |
//! | `table.rs` | all outcomes as `docs/figures.md` |
//! | `maelstrom.rs` | the figures of Maelstrom's code |
//! | `ricochet.rs`, `ricochet/*.rs` | the figures of Ricochet and Slingshot |
//! | `real.rs`, `real/*.rs` | figures of the real kernel |
#![forbid(unsafe_code)]

mod fingerprint;
mod kept;
mod known;
mod maelstrom;
mod memory;
mod outcome;
mod picture;
mod plan;
mod real;
mod ricochet;
mod run;
mod store;
mod table;
mod ticks;

pub use kept::Kept;
pub use memory::memory_to_use;
pub use outcome::{Claim, Outcome, Panel, Point, Runs, Series};
pub use picture::{PictureError, picture};
pub use plan::{Figure, Job, Lab, Made, PanelPlan, Plan, RunError, Sample, Samples, Scale, Verdict};
pub use run::{Runner, run};
pub use store::{Store, StoreError};
pub use table::table;

/// All figures: the thesis', then Slingshot's, each by their numbers.
#[must_use]
pub fn all() -> Vec<Figure> {
    let mut all: Vec<Figure> =
        [maelstrom::figures(), real::figures(), ricochet::figures()].into_iter().flatten().collect();
    all.sort_by_key(|figure| (figure.source.starts_with("Slingshot"), numbers(figure.id)));
    all
}

/// The numbers in an identifier: 4, 6, 6 of `4.6.6`.
fn numbers(id: &str) -> Vec<u32> {
    id.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_in_the_order_of_their_sources() {
        let all = all();
        let at = |id: &str| all.iter().position(|figure| figure.id == id).unwrap();
        let order = ["3.10", "3.16", "4.2", "4.6.6", "4.8", "4.10", "slingshot-2", "slingshot-5"].map(at);
        assert!(order.is_sorted(), "{order:?}");
    }
}
