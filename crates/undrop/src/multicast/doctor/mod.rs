//! `undrop multicast doctor`: what of this machine stands in the way of a node, and what to do about it.

mod findings;
mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use netio::multicast::Limits;
use ricochet::Config;
use serde::Serialize;

use crate::failure::Advice as _;
use crate::output;
use findings::{Finding, Severity};

const EXAMPLES: &str = "\
Examples:
  undrop multicast doctor eth0
  undrop multicast doctor eth0 --ipv6
  undrop multicast doctor --config node.toml --json | jq '.findings[] | select(.severity == \"warning\")'

Sends one datagram to one of the cluster's multicast addresses, through the interface; changes nothing.
Exit code 1 if there is an error; warnings and notes leave it 0.";

/// Tell which limit of this machine or network would bite a multicast node, and its remedy.
///
/// Looks at the interface, memberships, memory for socket options, buffers, ports, the reverse-path filter, and a bridge
/// that snoops without a querier; then joins as a node would, and sees whether a datagram comes back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface that a node would use [default: that of the configuration]
    interface: Option<String>,
    /// The node's configuration
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Diagnosis {
    interface: String,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut config = match &args.config {
        Some(file) => Config::load(file)?,
        None => Config::default(),
    };
    config.node.ipv6 |= args.ipv6;
    let named = Some(config.node.interface.clone()).filter(|name| !name.is_empty());
    let interface =
        args.interface.clone().or(named).ok_or_else(|| anyhow!("expected an interface, saw none")).advise(
            "name one, as `undrop multicast doctor eth0` (`ip link` lists them), or set `node.interface`",
        )?;
    let limits = Limits::read(&interface)?;
    let mut findings = findings::of(&limits, &config);
    // What is broken already would only be found broken again.
    if !config.node.unicast && findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.push(probe::echo(&interface, &config));
    }
    findings.sort_by_key(|finding| finding.severity);
    let diagnosis = Diagnosis {
        interface,
        errors: count(&findings, Severity::Error),
        warnings: count(&findings, Severity::Warning),
        findings,
    };
    output::line(&if args.json { serde_json::to_string_pretty(&diagnosis)? } else { diagnosis.to_text() })?;
    Ok(if diagnosis.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

impl Diagnosis {
    fn to_text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text += &format!("{:<8}{}: {}\n", finding.severity.word(), finding.about, finding.seen);
            if let Some(remedy) = &finding.remedy {
                text += &format!("        remedy: {remedy}\n");
            }
        }
        text + &format!("{}: {} errors, {} warnings", self.interface, self.errors, self.warnings)
    }
}
