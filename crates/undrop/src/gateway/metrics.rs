//! `undrop gateway metrics`: the metrics of the running gateway, for Prometheus.

use std::process::ExitCode;

use maelstrom::{metrics, status};

use super::status::{Socket, remedy};
use crate::exposition::Format;
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway metrics
  undrop gateway metrics --format prometheus > new && mv new undrop.prom || rm -f undrop.prom
  curl http://127.0.0.1:9469/metrics    if `metrics` in the configuration names this address";

/// Print the metrics of the running gateway in the OpenMetrics format, which Prometheus reads.
///
/// The gateway itself answers scrapes over HTTP if `metrics` in its configuration names an address. With
/// `--format prometheus`, a timer can write them for the textfile collector of node_exporter: into another
/// file of its directory first, because it must not read half of them. Remove the last file if the command
/// fails, or its figures stay after the gateway has ended. The alert `UndropGatewayGone` needs scrapes of the
/// gateway itself.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Form of the metrics
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = status::read(&args.socket.path()?).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    output::line(args.format.of(&metrics::render(&status)).trim_end())?;
    Ok(ExitCode::SUCCESS)
}
