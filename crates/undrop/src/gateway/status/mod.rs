//! `undrop gateway status`: the counters of the running gateway.

mod multicast;
mod paths;
mod rack;
mod split;
mod table;
mod watched;

pub(crate) use table::duration;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use maelstrom::config;
use maelstrom::status::{self, StatusError};

use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway status
  undrop gateway status /etc/undrop/gateway.toml
  undrop gateway status --json | jq '.peers[].ingress.loss.residual_percent'
  watch -n 1 undrop gateway status";

/// Show the state of the running gateway: losses, recoveries, overhead, drops by reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print the gateway's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let control = args.socket.path()?;
    let status = status::read(&control).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    output::line(&if args.json { serde_json::to_string_pretty(&status)? } else { table::render(&status) })?;
    Ok(ExitCode::SUCCESS)
}

/// The socket of a running gateway, as a command line states it.
#[derive(Debug, clap::Args)]
pub(super) struct Socket {
    /// The gateway's control socket [default: /run/undrop/gateway.sock]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "file"])]
    control: Option<PathBuf>,
    /// Take the control socket from this configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Take the control socket from this configuration, in place of the argument FILE
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl Socket {
    pub(super) fn path(&self) -> anyhow::Result<PathBuf> {
        match (&self.control, self.config.as_ref().or(self.file.as_ref())) {
            (Some(control), _) => Ok(control.clone()),
            (None, None) => Ok(PathBuf::from(config::CONTROL_DEFAULT)),
            (None, Some(file)) => config::read(file).control().or_else(|report| {
                output::note(report);
                let shown = file.display();
                Err(anyhow!("cannot read the path of the control socket from `{shown}`"))
                    .advise("fix the file, or give `--control PATH`")
            }),
        }
    }
}

/// Returns the remedy for an answer that did not come.
pub(super) fn remedy(error: &StatusError) -> &'static str {
    match error {
        StatusError::Absent { .. } => {
            "start a gateway with `undrop gateway run FILE`, or name the socket of the running one \
             with `--control PATH` or `--config FILE`"
        }
        StatusError::Unreadable { .. } => "run this command as the user of the gateway, or as root",
        _ => "use an `undrop` of the gateway's version",
    }
}
