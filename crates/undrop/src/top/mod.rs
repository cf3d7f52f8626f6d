//! `undrop top`: a running gateway or node at a glance, on 80 columns.
//!
//! The screen is plain text: `gateway.rs` and `node.rs` make it from the status alone, so that `--once`
//! prints the same for scripts, and tests need no terminal.

mod cells;
mod gateway;
mod node;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use daemon::signals::{Signal, Signals};
use maelstrom::config::CONTROL_DEFAULT as GATEWAY_DEFAULT;
use maelstrom::losses;
use maelstrom::status::{self, StatusError};
use netio::poll::{Interest, Poller};
use ricochet::Status as NodeStatus;

use crate::failure::Advice as _;
use crate::multicast::CONTROL_DEFAULT as NODE_DEFAULT;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop top                                  the gateway, the node, or both that run on this machine
  undrop top --control /run/undrop/prices.sock
  undrop top --once | mail -s undrop noc@example.org";

/// Interval between two screens.
const INTERVAL: Duration = Duration::from_secs(1);
/// Switches to a screen of its own without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Show a running gateway or node at a glance, once a second until Ctrl-C.
///
/// A gateway shows for each peer and direction what was lost, recovered and stayed lost in the last 10 s, the
/// delay and the overhead, and the losses of the last hour by minute. A node shows its groups.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Control socket of the gateway or node [default: those of /run/undrop that answer]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print one screen and end
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let first = screen(args.control.as_deref())?;
    if args.once || !io::stdout().is_terminal() {
        output::line(first.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let signals = Signals::new().context("cannot watch for signals")?;
    let mut poller = Poller::new()?;
    poller.add(&signals, 0, Interest::Readable)?;
    print!("{ENTER}");
    let watched = watch(args, &signals, &mut poller, first);
    print!("{LEAVE}");
    io::stdout().flush()?;
    watched.map(|()| ExitCode::SUCCESS)
}

/// Shows a new screen each second until a signal asks to stop.
fn watch(args: &Args, signals: &Signals, poller: &mut Poller, first: String) -> anyhow::Result<()> {
    let mut shown = first;
    loop {
        // Each line erases what it does not cover, so that the screen does not flicker.
        let lines: Vec<&str> = shown.lines().collect();
        print!("\x1b[H{}\x1b[K\n\x1b[J", lines.join("\x1b[K\n"));
        io::stdout().flush()?;
        let _ = poller.wait(Some(INTERVAL))?;
        while let Some(signal) = signals.next()? {
            if signal != Signal::HangUp {
                return Ok(());
            }
        }
        shown = screen(args.control.as_deref()).unwrap_or_else(|error| format!("{error:#}\n"));
    }
}

/// The screen of the gateway or node at a control socket, or of those at the usual sockets.
fn screen(control: Option<&Path>) -> anyhow::Result<String> {
    if let Some(control) = control {
        return one(control);
    }
    let usual = [GATEWAY_DEFAULT, NODE_DEFAULT].map(Path::new);
    let screens: Vec<String> = usual.iter().filter_map(|control| one(control).ok()).collect();
    if screens.is_empty() {
        let sockets = usual.map(|path| path.display().to_string()).join(" or ");
        let error: anyhow::Result<String> = Err(anyhow::anyhow!("nothing answers on {sockets}"));
        return error.advise(
            "start a gateway or a node, name its socket with `--control PATH`, and run this command as its user or \
             as root",
        );
    }
    Ok(screens.join("\n"))
}

fn one(control: &Path) -> anyhow::Result<String> {
    match status::read(control) {
        Ok(status) => Ok(gateway::render(&status, losses::read(control).ok().as_ref())),
        // It may be a node's.
        Err(StatusError::Foreign { .. }) => match NodeStatus::ask(control) {
            Ok(status) => Ok(node::render(&status)),
            Err(error) => {
                bail!("expected a gateway or a node on {}, saw neither: {error}", control.display())
            }
        },
        Err(error) => Err(error.into()),
    }
}
