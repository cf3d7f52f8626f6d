//! `undrop top`: a running gateway or node at a glance, on 80 columns.
//!
//! The screen is plain text: `gateway.rs` and `node.rs` make it from the status alone, so that `--once`
//! prints the same for scripts, and tests need no terminal. Rates of a node come from two of its statuses.

mod cells;
mod gateway;
mod node;

use std::collections::HashMap;
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
/// delay and the overhead, and the losses of the last hour by minute. A node shows its groups, the busiest
/// first: messages per second, packets missing per second, and since its start what was recovered and lost,
/// with the 99th percentile of the time that a recovery takes.
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
    let usual = vec![GATEWAY_DEFAULT.into(), NODE_DEFAULT.into()];
    show(args.control.clone().map_or(Sockets::Usual(usual), Sockets::One), args.once)
}

/// Shows the node at a control socket.
pub(crate) fn run_node(control: PathBuf, once: bool) -> anyhow::Result<ExitCode> {
    show(Sockets::One(control), once)
}

/// The sockets that are asked.
enum Sockets {
    /// This one, which must answer.
    One(PathBuf),
    /// Those of these that answer.
    Usual(Vec<PathBuf>),
}

fn show(sockets: Sockets, once: bool) -> anyhow::Result<ExitCode> {
    let mut screens = Screens { sockets, before: HashMap::new() };
    let first = screens.next()?;
    let signals = Signals::new().context("cannot watch for signals")?;
    let mut poller = Poller::new()?;
    poller.add(&signals, 0, Interest::Readable)?;
    if once || !io::stdout().is_terminal() {
        // A node's rates are those between two looks.
        let shown = if screens.before.is_empty() {
            first
        } else {
            let _ = poller.wait(Some(INTERVAL))?;
            screens.next()?
        };
        output::line(shown.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    print!("{ENTER}");
    let watched = watch(&mut screens, &signals, &mut poller, first);
    print!("{LEAVE}");
    io::stdout().flush()?;
    watched.map(|()| ExitCode::SUCCESS)
}

/// Shows a new screen each second until a signal asks to stop.
fn watch(screens: &mut Screens, signals: &Signals, poller: &mut Poller, first: String) -> anyhow::Result<()> {
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
        shown = screens.next().unwrap_or_else(|error| format!("{error:#}\n"));
    }
}

/// Makes one screen after the other.
struct Screens {
    sockets: Sockets,
    /// The last status of each node, by its socket.
    before: HashMap<PathBuf, NodeStatus>,
}

impl Screens {
    fn next(&mut self) -> anyhow::Result<String> {
        let Self { sockets, before } = self;
        let usual = match sockets {
            Sockets::One(control) => return one(control, before),
            Sockets::Usual(usual) => usual,
        };
        let screens: Vec<String> = usual.iter().filter_map(|control| one(control, before).ok()).collect();
        if screens.is_empty() {
            let sockets: Vec<String> = usual.iter().map(|path| path.display().to_string()).collect();
            let error: anyhow::Result<String> =
                Err(anyhow::anyhow!("nothing answers on {}", sockets.join(" or ")));
            return error.advise(
                "start a gateway or a node, name its socket with `--control PATH`, and run this command as its \
                 user or as root",
            );
        }
        Ok(screens.join("\n"))
    }
}

/// Returns the screen of the gateway or node at a control socket.
fn one(control: &Path, before: &mut HashMap<PathBuf, NodeStatus>) -> anyhow::Result<String> {
    match status::read(control) {
        Ok(status) => Ok(gateway::render(&status, losses::read(control).ok().as_ref())),
        // It may be a node's.
        Err(StatusError::Foreign { .. }) => match NodeStatus::ask(control) {
            Ok(status) => {
                let screen = node::render(&status, before.get(control));
                before.insert(control.to_owned(), status);
                Ok(screen)
            }
            Err(error) => {
                bail!("expected a gateway or a node on {}, saw neither: {error}", control.display())
            }
        },
        Err(error) => Err(error.into()),
    }
}
