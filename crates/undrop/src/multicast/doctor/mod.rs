//! `undrop multicast doctor`: limits of this machine that stop or hinder a node, with their remedies.

mod findings;
mod members;
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

/// Schema of the document.
const SCHEMA: &str = "undrop.multicast.doctor/1";

const EXAMPLES: &str = "\
Examples:
  undrop multicast doctor eth0
  undrop multicast doctor eth0 --ipv6
  undrop multicast doctor eth0 --seed 10.0.0.7:7900     also ask the members of a cluster what they hear
  undrop multicast doctor --config node.toml --json | jq '.findings[] | select(.severity == \"warning\")'

Sends one datagram to a multicast address of the cluster, through the interface. Changes nothing. With --seed or
--ask, joins the cluster as a node of its own for some seconds.
Exit code 1 if there is an error; warnings and notes leave it 0.";

/// Find the limits of this machine or network that would stop or hinder a multicast node, with their
/// remedies.
///
/// Checks the interface, memberships, memory for socket options, buffers, ports, the reverse-path filter,
/// Wi-Fi, and bridges that snoop without a querier. Then joins the groups as a node would, and tests whether
/// a datagram comes back. With --seed or --ask, also asks the other members, by unicast, which multicast of
/// this host they hear, and tests whether it hears theirs.
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
    /// Address of a live node of the cluster whose members are asked what they hear; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    seed: Vec<String>,
    /// Ask the members of the cluster of the configuration what they hear
    #[arg(long)]
    ask: bool,
    /// File with the cluster key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Findings about this machine and its network, judged for a multicast node.
#[derive(Debug, Serialize)]
struct Diagnosis {
    /// Name and version of this schema.
    schema: &'static str,
    /// The interface that the node uses.
    interface: String,
    /// Number of errors: with one, the node does not work.
    errors: usize,
    /// Number of warnings: the node works, but packets will be lost or misdirected.
    warnings: usize,
    /// The findings, the worst first.
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut settings = match &args.config {
        Some(file) => config::load(file)?,
        None => Config::default(),
    };
    settings.node.ipv6 |= args.ipv6;
    if !args.seed.is_empty() {
        settings.membership.seeds.clone_from(&args.seed);
    }
    if args.key.is_some() {
        settings.key.file.clone_from(&args.key);
    }
    let named = Some(settings.node.interface.clone()).filter(|name| !name.is_empty());
    let interface = args
        .interface
        .clone()
        .or(named)
        .ok_or_else(|| anyhow!("expected an interface, saw none"))
        .advise(
            "name one, such as `undrop multicast doctor eth0` (`ip link` shows all), or set `node.interface`",
        )
        .wrong_usage()?;
    let limits = Limits::read(&interface)?;
    let mut findings = findings::all(&limits, &settings);
    // The probe would only repeat an error.
    if !settings.node.unicast && findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.push(probe::echo(&interface, &settings));
    }
    let is_broken = findings.iter().any(|finding| finding.severity == Severity::Error);
    if (args.ask || !args.seed.is_empty()) && !is_broken {
        settings.node.interface.clone_from(&interface);
        findings.extend(members::ask(settings));
    }
    findings.sort_by_key(|finding| finding.severity);
    let diagnosis = Diagnosis {
        schema: SCHEMA,
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
