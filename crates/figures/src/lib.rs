//! The papers' figures, run again: in virtual time, or on the real kernel.
//!
//! A [`Figure`] has its texts and a plan of [jobs](Job). The samples of the jobs make its panels, which its
//! verdict compares with the source's claim. A simulated figure is the same on every machine and with any
//! number of threads, for the same code and random seeds. A real one is measured: TCP and UDP of the kernel
//! through namespaces, one job at a time.
//!
//! | file | what |
//! |---|---|
//! | `outcome.rs` | points, panels, claims, JSON |
//! | `prose.rs`, `prose.toml` | the texts, with places for measured values |
//! | `plan.rs` | what a figure is made of: jobs, panels, samples, verdict |
//! | `fingerprint.rs` | what identifies a set-up: its values, not its names |
//! | `run.rs` | simulations on all threads, then measurements one by one; samples of several seeds become points |
//! | `memory.rs` | memory for simultaneous simulations |
//! | `kept.rs` | the finished runs of a figure that is not whole |
//! | `known.rs` | figures known not to have their source's shape, and the shape that they have |
//! | `store.rs`, `error.rs` | a folder of outcomes, which are not run again |
//! | `picture.rs`, `chart/` | an outcome as SVG |
//! | `page.rs` | all outcomes as `docs/figures.md` |
//! | `maelstrom.rs` | figures of Maelstrom's code |
//! | `ricochet/` | figures of Ricochet and Slingshot |
//! | `real/` | figures of the real kernel |
#![forbid(unsafe_code)]

pub mod chart;
mod error;
mod fingerprint;
mod kept;
mod known;
mod maelstrom;
mod memory;
mod outcome;
mod page;
mod picture;
mod plan;
mod prose;
mod real;
mod ricochet;
mod run;
mod store;

pub use error::StoreError;
pub use kept::Kept;
pub use memory::memory_to_use;
pub use outcome::{Claim, Made, Outcome, Panel, Point, Runs, Series};
pub use page::page;
pub use picture::{PictureError, picture};
pub use plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Samples, Scale, Verdict};
pub use prose::Prose;
pub use run::{Runner, run};
pub use store::Store;

/// Returns all figures: those of the thesis, then Slingshot's, each in the order of their numbers.
pub fn all() -> Vec<Figure> {
    let mut all: Vec<Figure> =
        [maelstrom::figures(), real::figures(), ricochet::figures()].into_iter().flatten().collect();
    all.sort_by_key(|figure| prose::order(figure.id));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_the_order_of_their_sources() {
        let all = all();
        let at = |id: &str| all.iter().position(|figure| figure.id == id).unwrap();
        let order = ["3.10", "3.16", "4.2", "4.6.6", "4.8", "4.10", "slingshot-2", "slingshot-5"].map(at);
        assert!(order.is_sorted(), "{order:?}");
    }
}
