//! `undrop top`: a running gateway or node at a glance, on 80 columns.
//!
//! The screen is plain text: `gateway.rs` and `node.rs` make it from the status and a number of rows alone,
//! so that `--once` prints it whole for scripts, and tests need no terminal. Rates of a node come from two of
//! its statuses.

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
use maelstrom::losses::{self, Losses};
use maelstrom::status::{self, Status, StatusError};
use netio::poll::{Interest, Poller};
use netio::terminal;
use ricochet::Status as NodeStatus;

use self::cells::WIDTH;
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
/// with the 99th percentile of the time that a recovery takes. If a terminal has too few rows, peers without
/// fault and groups with little traffic are left out; `--once` prints all peers.
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
    let is_watched = !once && io::stdout().is_terminal();
    let size = || if is_watched { Size::of_terminal() } else { Size::UNLIMITED };
    let first = screens.next(size())?;
    let signals = Signals::new().context("cannot watch for signals")?;
    let mut poller = Poller::new()?;
    poller.add(&signals, 0, Interest::Readable)?;
    if !is_watched {
        // A node's rates are those between two looks.
        let shown = if screens.before.is_empty() {
            first
        } else {
            let _ = poller.wait(Some(INTERVAL))?;
            screens.next(size())?
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
        shown = screens.next(Size::of_terminal()).unwrap_or_else(|error| format!("{error:#}\n"));
    }
}

/// Rows and columns for a screen.
#[derive(Clone, Copy, Debug)]
struct Size {
    rows: usize,
    columns: usize,
}

impl Size {
    const UNLIMITED: Self = Self { rows: usize::MAX, columns: WIDTH };

    /// Returns the size of the terminal, which may change at any time. The last row is that of the cursor.
    fn of_terminal() -> Self {
        let stdout = io::stdout();
        Self {
            rows: terminal::rows(&stdout).map_or(usize::MAX, |rows| usize::from(rows).max(2) - 1),
            columns: terminal::columns(&stdout).map_or(WIDTH, usize::from),
        }
    }

    /// Cuts a screen, so that no line is broken and none scrolls away.
    fn fit(self, screen: &str) -> String {
        screen.lines().take(self.rows).map(|line| cells::cut(line, self.columns) + "\n").collect()
    }
}

/// Makes one screen after the other.
struct Screens {
    sockets: Sockets,
    /// The last status of each node, by its socket.
    before: HashMap<PathBuf, NodeStatus>,
}

impl Screens {
    fn next(&mut self, size: Size) -> anyhow::Result<String> {
        let Self { sockets, before } = self;
        let usual = match sockets {
            Sockets::One(control) => return Ok(size.fit(&stacked(&[ask(control, before)?], size.rows))),
            Sockets::Usual(usual) => usual,
        };
        let answers: Vec<Answer> = usual.iter().filter_map(|control| ask(control, before).ok()).collect();
        if answers.is_empty() {
            let sockets: Vec<String> = usual.iter().map(|path| path.display().to_string()).collect();
            let error: anyhow::Result<String> =
                Err(anyhow::anyhow!("nothing answers on {}", sockets.join(" or ")));
            return error.advise(
                "start a gateway or a node, name its socket with `--control PATH`, and run this command as its \
                 user or as root",
            );
        }
        Ok(size.fit(&stacked(&answers, size.rows)))
    }
}

/// The answer of a gateway or node.
enum Answer {
    /// The status, with the record of losses if it can be read.
    Gateway(Box<Status>, Option<Losses>),
    /// The status, with an earlier one of the same node.
    Node(Box<NodeStatus>, Option<Box<NodeStatus>>),
}

impl Answer {
    fn screen(&self, rows: usize) -> String {
        match self {
            Self::Gateway(status, losses) => gateway::render_in(rows, status, losses.as_ref()),
            Self::Node(status, before) => node::render(rows, status, before.as_deref()),
        }
    }
}

/// Returns the screens one below the other, with a blank line between. One that does not need its share of
/// the rows leaves them to the other.
fn stacked(answers: &[Answer], rows: usize) -> String {
    let mut room = rows.saturating_sub(answers.len().saturating_sub(1));
    let share = room / answers.len().max(1);
    let least = |answer: &Answer| answer.screen(usize::MAX).lines().count().min(share);
    let mut later: usize = answers.iter().map(least).sum();
    let mut screens = Vec::new();
    for answer in answers {
        later -= least(answer);
        let screen = answer.screen(room.saturating_sub(later));
        room = room.saturating_sub(screen.lines().count());
        screens.push(screen);
    }
    screens.join("\n")
}

/// Asks the gateway or node at a control socket.
fn ask(control: &Path, before: &mut HashMap<PathBuf, NodeStatus>) -> anyhow::Result<Answer> {
    match status::read(control) {
        Ok(status) => Ok(Answer::Gateway(Box::new(status), losses::read(control).ok())),
        // It may be a node's.
        Err(StatusError::Foreign { .. }) => match NodeStatus::ask(control) {
            Ok(status) => {
                let earlier = before.insert(control.to_owned(), status.clone());
                Ok(Answer::Node(Box::new(status), earlier.map(Box::new)))
            }
            Err(error) => {
                bail!("expected a gateway or a node on {}, saw neither: {error}", control.display())
            }
        },
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use ricochet::status::GroupStatus;

    use super::*;

    fn node(groups: usize) -> Answer {
        let groups = (0..groups).map(|n| GroupStatus { name: format!("g/{n}"), ..GroupStatus::default() });
        Answer::Node(Box::new(NodeStatus { groups: groups.collect(), ..NodeStatus::default() }), None)
    }

    #[test]
    fn two_screens_share_the_rows_of_a_terminal() {
        let rows = |answers: &[Answer], rows| {
            let shown = stacked(answers, rows);
            let (first, second) = shown.split_once("\n\nnode").unwrap();
            (first.lines().count(), second.lines().count())
        };
        // Three lines are the head of each.
        assert_eq!(rows(&[node(2), node(20)], 24), (5, 18), "one needs few");
        assert_eq!(rows(&[node(20), node(2)], 24), (18, 5), "one needs few");
        assert_eq!(rows(&[node(20), node(20)], 24), (12, 11));
        assert_eq!(rows(&[node(20), node(20)], usize::MAX), (23, 23));
    }

    #[test]
    fn a_screen_is_cut_to_the_terminal() {
        let size = Size { rows: 2, columns: 5 };
        assert_eq!(size.fit("tokyo\nosaka-2\nkyoto\n"), "tokyo\nosak…\n");
        let wide = "x".repeat(WIDTH);
        assert_eq!(Size::UNLIMITED.fit(&wide), wide + "\n");
    }
}
