//! `undrop gateway health`: one word and an exit code, for monitoring and load balancers.

use std::process::ExitCode;

use maelstrom::status::{self, HealthStatus, ReasonStatus, Status};
use serde::Serialize;

use super::status::Socket;
use crate::{failure, output};

const EXAMPLES: &str = "\
Examples:
  undrop gateway health
  undrop gateway health /etc/undrop/gateway.toml
  undrop gateway health --json | jq -r '.reasons[].id'
  undrop gateway health --part east-1

Exit codes, as of monitoring plugins: 0 protected; 1 degraded (packets stay lost, a peer is down, recovery
pauses); 2 down (no peer is up, or no gateway answers); 3 unknown (wrong usage, or a file that cannot be read).
With `--part`: 0 if this gateway has taken the part of its rack; 2 if not; 3 if there is no such part.";

/// Schema of the document.
const SCHEMA: &str = "undrop.gateway.health/1";
/// Exit code of a gateway that protects a part.
const DEGRADED: u8 = 1;
/// Exit code of a gateway that protects nothing, or of none.
const DOWN: u8 = 2;
/// Exit code of wrong usage. Other commands have 2, which monitoring would take for a gateway that is down.
pub(crate) const UNKNOWN: u8 = 3;

/// Tell by the exit code whether the running gateway protects all its peers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print the verdict and its reasons as JSON
    #[arg(long)]
    json: bool,
    /// Tell instead whether this gateway has taken a part of its rack, for scripts that move routes
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    part: Option<String>,
}

/// The verdict about a gateway and its peers.
#[derive(Debug, Serialize)]
struct Health {
    /// Name and version of this schema.
    schema: &'static str,
    /// `protected`, `degraded` or `down`.
    state: String,
    /// The verdict on one line.
    text: String,
    /// Reasons why it is not `protected`.
    reasons: Vec<ReasonStatus>,
    /// The verdicts about the peers, in the order of the configuration.
    peers: Vec<PeerHealth>,
}

/// The verdict about a peer.
#[derive(Debug, Serialize)]
struct PeerHealth {
    /// Label of the peer.
    peer: String,
    #[serde(flatten)]
    health: HealthStatus,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let control = match args.socket.path() {
        Ok(control) => control,
        Err(error) => {
            let _ = failure::report(&error);
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    let status = status::read(&control).map_err(anyhow::Error::from);
    if let Some(part) = &args.part {
        return of_part(part, status);
    }
    // Whatever keeps the answer away, nobody knows of a gateway that protects.
    let health = status.map_or_else(|error| Health::unknown(&error), Health::of);
    output::line(&if args.json { serde_json::to_string_pretty(&health)? } else { health.to_text() })?;
    Ok(match health.state.as_str() {
        "protected" => ExitCode::SUCCESS,
        "degraded" => ExitCode::from(DEGRADED),
        _ => ExitCode::from(DOWN),
    })
}

/// Tells whether the gateway has taken a part.
fn of_part(name: &str, status: anyhow::Result<Status>) -> anyhow::Result<ExitCode> {
    let parts = match status {
        Ok(status) => status.rack.map(|rack| rack.parts).unwrap_or_default(),
        Err(error) => {
            output::line(&format!("down, {error:#}"))?;
            return Ok(ExitCode::from(DOWN));
        }
    };
    let Some(part) = parts.iter().find(|part| part.name == name) else {
        let known: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let known = if known.is_empty() { "none, in no rack".to_owned() } else { known.join(", ") };
        let _ = failure::report(&anyhow::anyhow!(
            "expected the name of a part of the gateway's rack ({known}), saw {name:?}"
        ));
        return Ok(ExitCode::from(UNKNOWN));
    };
    output::line(&format!("{name}: {}", if part.held { "taken here" } else { "not taken here" }))?;
    Ok(ExitCode::from(if part.held { 0 } else { DOWN }))
}

impl Health {
    fn of(status: Status) -> Self {
        let HealthStatus { state, reasons, text } = status.health;
        let peers = status.peers.into_iter();
        let peers = peers.map(|peer| PeerHealth { peer: peer.label(), health: peer.health }).collect();
        Self { schema: SCHEMA, state, text, reasons, peers }
    }

    /// There is no answer.
    fn unknown(error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let reason = ReasonStatus { id: "no_answer".to_owned(), peer: None, text: text.clone() };
        let (state, text) = ("down".to_owned(), format!("down, {text}"));
        Self { schema: SCHEMA, state, text, reasons: vec![reason], peers: Vec::new() }
    }

    fn to_text(&self) -> String {
        let mut lines = vec![self.text.clone()];
        let general = self.reasons.iter().filter(|reason| reason.peer.is_none() && reason.id != "no_answer");
        lines.extend(general.map(|reason| reason.text.clone()));
        for PeerHealth { peer, health } in &self.peers {
            let reasons: Vec<&str> = health.reasons.iter().map(|reason| reason.text.as_str()).collect();
            let reasons =
                if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
            lines.push(format!("{peer}: {}{reasons}", health.text));
        }
        lines.join("\n")
    }
}
