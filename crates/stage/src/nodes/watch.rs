//! Progress of a run.

/// Step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Building the network and starting the nodes.
    Building,
    /// Sending; the value is the share sent so far, from 0 to 1.
    Sending(f64),
    /// Waiting for the remaining packets.
    Waiting,
    /// The same as at the last report.
    Still,
}

/// Receives the step of a run many times per second. An error ends the run, which returns it.
pub type Watcher<'a> = &'a mut dyn FnMut(Step) -> anyhow::Result<()>;

/// A watcher that never ends the run.
///
/// # Errors
/// None.
pub fn unwatched(_: Step) -> anyhow::Result<()> {
    Ok(())
}
