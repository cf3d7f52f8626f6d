//! `undrop gateway metrics`: the metrics of the running gateway, for Prometheus.

use std::process::ExitCode;

use maelstrom::{metrics, status};

use super::status::{Socket, remedy};
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway metrics
  undrop gateway metrics > /var/lib/prometheus/node-exporter/undrop.prom
  curl http://127.0.0.1:9469/metrics    if `metrics` in the configuration names this address";

/// Print the metrics of the running gateway in the OpenMetrics format, which Prometheus reads.
///
/// The gateway itself answers scrapes over HTTP if `metrics` in its configuration names an address.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = status::read(&args.socket.path()?).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    output::line(metrics::render(&status).trim_end())?;
    Ok(ExitCode::SUCCESS)
}
