//! `undrop gateway upgrade`: the running gateway hands over to the program that is installed at present.

use std::process::ExitCode;

use anyhow::anyhow;
use maelstrom::upgrade::{self, Outcome, RequestError};

use super::status::Socket;
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway upgrade                                  after the installation of another version
  undrop gateway upgrade /etc/undrop/gateway.toml";

/// Let the running gateway hand over to the program that is installed at present, while traffic flows.
///
/// The gateway starts the program by the path with which it was started itself, with the same arguments. It
/// works until that process is ready, hands its sessions over, and ends. If the new process does not start,
/// refuses the configuration, hangs or fails, the old one stays at work, and this command fails with the
/// reason. Only root and the user of the gateway may ask for it.
///
/// The number of the process changes. systemd follows it; other supervisors take it for the end of the
/// gateway, so that a restart is the way there. Gateways with split connections, with a tunnel over several
/// paths, or that carry IP groups must be restarted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = upgrade::request(&args.socket.path()?).or_else(|error| {
        let remedy = match error {
            RequestError::Absent { .. } => {
                "name the gateway with `--control PATH` or `--config FILE`; restart it if it is of a version \
                 without this command"
            }
            _ => "run this command as the user of the gateway, or as root",
        };
        Err(error).advise(remedy)
    })?;
    match outcome {
        Outcome::Upgraded { process, sessions, after_us } => {
            let after_ms = after_us as f64 / 1_000.0;
            output::line(&format!(
                "process {process} protects, {after_ms:.1} ms after the one before; sessions that go on: {sessions}"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Refused { reason } => Err(anyhow!("the gateway has not handed over: {reason}"))
            .advise("find more in the log of the gateway, which protects as before"),
    }
}
