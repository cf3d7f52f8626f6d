//! `undrop gateway report`: a page about the last hour, to hand to a carrier.

mod chart;
mod page;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use maelstrom::status;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::losses;
use super::status::{Socket, remedy};
use crate::failure::Advice as _;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway report --html link.html
  undrop gateway report --html link.html --peer tokyo
  undrop gateway losses --json                the same figures, for programs";

/// Write a page about the last hour: losses, bursts, delay of recovered packets, repairs and events.
///
/// The page is one HTML file that loads nothing, so that it can be handed to a carrier as it is. It describes
/// the link by minute, in both directions. A gateway keeps its last 256 events; the page says so if the hour
/// had more.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// File of the page
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// Describe only the link to this peer, given by its name or its address
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let losses = losses::read(&args.socket, args.peer.as_deref())?;
    let status = status::read(&args.socket.path()?).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    let mut time = String::new();
    // A string takes whatever is written to it.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let time = time.split('.').next().unwrap_or_default().replace('T', " ");
    let page = page::page(&status, &losses, &format!("{time} UTC"));
    let file = args.html.display();
    fs::write(&args.html, page).with_context(|| format!("cannot write the page `{file}`"))?;
    output::line(&format!("the report is in {file}"))?;
    Ok(ExitCode::SUCCESS)
}
