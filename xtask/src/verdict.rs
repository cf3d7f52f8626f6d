//! Steps of a task, each of which may fail or be skipped, and the verdict at the end.

use std::time::Instant;

use crate::tally::Tally;

/// Outcome of all steps.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    failed: Vec<&'static str>,
    tally: Tally,
}

impl Verdict {
    /// Runs a step and prints its name and time.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Tally) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        println!("\n== {name}");
        #[expect(clippy::disallowed_methods, reason = "not a core: reports the time of each step")]
        let start = Instant::now();
        if !run(&mut self.tally)? {
            self.failed.push(name);
        }
        println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Returns whether no step failed.
    pub(crate) fn is_ok(&self) -> bool {
        self.failed.is_empty()
    }

    /// Prints what failed and what was skipped, and the counts of tests.
    pub(crate) fn print(&self) {
        let Tally { passed, failed, ignored, skipped, failures } = &self.tally;
        println!();
        for failure in failures {
            println!("{failure}\n");
        }
        for reason in skipped {
            println!("SKIPPED: {reason}");
        }
        for step in &self.failed {
            println!("FAILED: {step}");
        }
        let outcome = if self.failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "{outcome}: {passed} tests passed, {failed} failed, {ignored} ignored, {} skipped",
            skipped.len()
        );
    }
}
