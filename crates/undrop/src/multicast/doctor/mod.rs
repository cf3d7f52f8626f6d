//! `undrop multicast doctor`: limits of this machine that stop or hinder a node, with their remedies.

mod findings;
mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use netio::multicast::Limits;
use ricochet::Config;
use serde::Serialize;

use super::config;
use crate::failure::Advice as _;
use crate::output;
use findings::{Finding, Severity};

const EXAMPLES: &str = "\
Examples:
  undrop multicast doctor eth0
  undrop multicast doctor eth0 --ipv6
  undrop multicast doctor --config node.toml --json | jq '.findings[] | select(.severity == \"warning\")'

Sends one datagram to a multicast address of the cluster, through the interface. Changes nothing.
Exit code 1 if there is an error; warnings and notes leave it 0.";

/// Find the limits of this machine or network that would stop or hinder a multicast node, with their
/// remedies.
///
/// Checks the interface, memberships, memory for socket options, buffers, ports, the reverse-path filter, and
/// bridges that snoop without a querier. Then joins the groups as a node would, and tests whether a datagram
/// comes back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The interface that the node uses [default: the interface of the configuration]
    interface: Option<String>,
    /// The node's configuration
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// All findings.
#[derive(Debug, Serialize)]
struct Diagnosis {
    interface: String,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut settings = match &args.config {
        Some(file) => config::load(file)?,
        None => Config::default(),
    };
    settings.node.ipv6 |= args.ipv6;
    let named = Some(settings.node.interface.clone()).filter(|name| !name.is_empty());
    let interface =
        args.interface.clone().or(named).ok_or_else(|| anyhow!("expected an interface, saw none")).advise(
            "name one, such as `undrop multicast doctor eth0` (`ip link` shows all), or set `node.interface`",
        )?;
    let limits = Limits::read(&interface)?;
    let mut findings = findings::all(&limits, &settings);
    // The probe would only repeat an error.
    if !settings.node.unicast && findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.push(probe::echo(&interface, &settings));
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
