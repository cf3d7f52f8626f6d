//! `undrop gateway run`: the gateway itself.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use maelstrom::Passive;
use maelstrom::config::{self, Severity, knobs};

use crate::failure::Advice as _;

const EXAMPLES: &str = "\
Examples:
  undrop gateway run --config /etc/undrop/gateway.toml
  undrop gateway run --config gateway.toml --log debug
  kill -HUP PID    read the file again; with mistakes in it, the running configuration stays
  kill PID         stop; no route, device or setting stays behind";

/// Run the gateway until SIGTERM or SIGINT.
///
/// Traffic flows by the kernel alone: the gateway reads copies of it. When it stops, or is killed, traffic flows on
/// unprotected.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("The configuration file:\n\n{}\n{EXAMPLES}", knobs::describe()))]
pub struct Args {
    /// The gateway's configuration
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let loaded = match config::load(&args.config) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprintln!("{report}");
            let remedy =
                format!("mend it, then try `undrop gateway check --config {}`", args.config.display());
            return Err(anyhow::anyhow!("the configuration has mistakes")).advise(remedy);
        }
    };
    warn_of_the_machine(args);
    Passive::start(&args.config, loaded.config)?.run().context("the gateway broke down")?;
    Ok(ExitCode::SUCCESS)
}

/// What the check finds is logged, and the gateway tries all the same: what it cannot do without fails by itself, with
/// the kernel's own reason.
fn warn_of_the_machine(args: &Args) {
    for finding in config::check(&args.config).diagnostics() {
        let (code, message) = (finding.code, &finding.message);
        if finding.severity == Severity::Note {
            tracing::debug!(code, "{message}");
        } else {
            tracing::warn!(code, help = finding.help.join("; "), "{message}");
        }
    }
}
