//! `undrop multicast reply`: answers the requests to a group by a program.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ricochet::{Event, JoinOptions, Message, Node, RecvTimeoutError};

use super::node::{NodeArgs, seconds};
use crate::failure::usage;
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

/// Interval between checks for a stop request while no request comes.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Interval between checks whether a program has ended.
const END_CHECK: Duration = Duration::from_millis(5);

const EXAMPLES: &str = "\
Examples:
  undrop multicast reply hosts --interface eth0 -- uptime
  undrop multicast reply words --interface eth0 --seed 10.0.0.7:7900 -- wc -w
  undrop multicast reply health --interface eth0 --text ok";

/// Reply to the requests to a group with the output of a program, or with a fixed text.
///
/// The program gets the request on stdin. Requests are answered one after the other. A program that fails, or
/// does not end in time, gives no reply; this is reported on stderr. Programs that it leaves in the
/// background end with it. Messages that are no requests are ignored.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The group
    group: String,
    /// Reply with this text
    #[arg(long, conflicts_with = "command")]
    text: Option<String>,
    /// Longest run of the program, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    limit: Duration,
    /// Stop after this many requests
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Time to stay after the last reply, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    linger: Duration,
    #[command(flatten)]
    node: NodeArgs,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.text.is_none() && args.command.is_empty() {
        return Err(usage("expected a program after `--`, or `--text`, saw neither"));
    }
    let interrupt = Interrupt::listen()?;
    let node = args.node.start()?;
    let requests = node.join_with(&args.group, &JoinOptions::default())?;
    output::note(format_args!("node {} at {}, in group {}", node.id(), node.address(), args.group));
    let mut answered = 0;
    while args.count.is_none_or(|count| answered < count) {
        if interrupt.is_requested() {
            return Ok(args.count.map_or(ExitCode::SUCCESS, |_| ExitCode::from(EXIT_INTERRUPTED)));
        }
        match requests.recv_event_timeout(STOP_CHECK) {
            Ok(Event::Message(request)) if request.is_request() => {
                answered += 1;
                if let Err(error) = args.reply(&node, &request, &interrupt) {
                    output::note(format_args!("error: no reply to {}: {error:#}", request.sender()));
                }
            }
            Ok(Event::Lost(lost)) => {
                output::note(format_args!("warning: {} packets are lost: {}", lost.packets(), lost.reason()));
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(error) => return Err(error.into()),
        }
    }
    node.flush(args.linger);
    std::thread::sleep(args.linger);
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn reply(&self, node: &Node, request: &Message, interrupt: &Interrupt) -> anyhow::Result<()> {
        let payload = match &self.text {
            Some(text) => text.clone().into_bytes(),
            None => self.run_program(request.payload(), node.message_max(), interrupt)?,
        };
        node.reply(request, &payload)?;
        Ok(())
    }

    /// Runs the program on a request; returns its output without the last line end.
    fn run_program(
        &self,
        request: &[u8],
        output_max: usize,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<u8>> {
        let [program, arguments @ ..] = &self.command[..] else { bail!("expected a program, saw none") };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A group of its own, so that what it has started ends with it.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let (input, printed) = (child.stdin.take(), child.stdout.take());
        std::thread::scope(|scope| {
            // A program that does not read its input ends nothing.
            scope.spawn(|| input.map(|mut input| input.write_all(request)));
            let reading = scope.spawn(|| {
                let mut bytes = Vec::new();
                let read = printed.map(|pipe| pipe.take(output_max as u64 + 1).read_to_end(&mut bytes));
                read.transpose().map(|_| bytes)
            });
            let ended = self.wait(&mut child, interrupt);
            end(&mut child);
            let status = child.wait();
            let mut bytes = reading.join().map_err(|_| anyhow!("a thread panicked"))??;
            ended?;
            let status = status?;
            if !status.success() {
                bail!("expected exit code 0 of {program}, saw {status}");
            }
            if bytes.len() > output_max {
                bail!("expected at most {output_max} bytes from {program}, saw more");
            }
            bytes.pop_if(|last| *last == b'\n');
            Ok(bytes)
        })
    }

    /// Waits until the program has ended.
    fn wait(&self, child: &mut Child, interrupt: &Interrupt) -> anyhow::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "no core: a program has a time of the clock")]
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() >= self.limit {
                bail!("expected the program to end within {} s, saw it run on", self.limit.as_secs_f64());
            }
            if interrupt.is_requested() {
                bail!("this command is to stop before the program has ended");
            }
            std::thread::sleep(END_CHECK);
        }
        Ok(())
    }
}

/// Kills a program and all that it has started and left in its group, which would keep its output open.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().filter(|&group| group > 1) {
        let _ = kill(Pid::from_raw(-group), Signal::SIGKILL);
    }
    let _ = child.kill();
}
