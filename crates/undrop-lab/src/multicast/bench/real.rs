//! Real nodes, with progress on the display and stopped by Ctrl-C.

use anyhow::{Context as _, anyhow};
use netlab::{LabError, privilege};
use ricochet::ClusterKey;
use sim::Setting;
use stage::nodes::{Real, Step};

use super::display::Display;
use undrop::failure::Advice as _;
use undrop::interrupt::Interrupt;

/// Remedy without privilege.
const REMEDY: &str = "run it as root, or allow user namespaces, or leave --real out";
const NEEDS: &str = "--real needs the right to build network namespaces";

/// Fails if namespaces cannot be built. Must be called while the process has one thread: without root it
/// enters a user namespace.
pub(super) fn prepare() -> anyhow::Result<()> {
    privilege::enter_user_namespace().map(drop).context(NEEDS).advise(REMEDY)
}

/// Checks the limits of real nodes, which a simulation does not have.
pub(super) fn check(setting: &Setting) -> anyhow::Result<()> {
    stage::nodes::check(setting).map_err(|error| anyhow!("--real: {error}"))
}

/// Runs a setting once.
pub(super) fn run(
    setting: &Setting,
    has_key: bool,
    interrupt: &Interrupt,
    display: &mut Display,
    number: u64,
) -> anyhow::Result<Real> {
    let key = has_key.then(ClusterKey::generate).transpose()?;
    let run = stage::nodes::run_with_key(setting, key.as_ref(), &mut |step| {
        match step {
            Step::Building => display.say("building the network and starting nodes"),
            Step::Sending(share) => display.show(number, share),
            Step::Waiting => display.say("waiting for the last packets"),
            Step::Still => {}
        }
        interrupt.check()
    });
    match run {
        Err(error) if error.downcast_ref::<LabError>().is_some_and(LabError::is_permission) => {
            Err(error).context(NEEDS).advise(REMEDY)
        }
        other => other,
    }
}
