//! `undrop multicast reply`: answers the requests to a group by a program.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ricochet::{Event, JoinOptions, Message, Node, RecvTimeoutError};

use super::node::{NodeArgs, seconds};
use crate::failure::usage;
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

/// Interval between checks for a stop request while no request comes.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Interval between checks whether a program has ended, in milliseconds.
const END_CHECK_MS: u8 = 5;

const EXAMPLES: &str = "\
Examples:
  undrop multicast reply hosts --interface eth0 -- uptime
  undrop multicast reply words --interface eth0 --seed 10.0.0.7:7900 -- wc -w
  undrop multicast reply health --interface eth0 --text ok";

/// Reply to the requests to a group with the output of a program, or with a fixed text.
///
/// The program gets the request on stdin. Requests are answered one after the other. A program that fails, or
/// does not end in time, gives no reply; this is reported on stderr. Programs that it leaves in the
/// background end with it, except those that have left its process group. Messages that are no requests are
/// ignored.
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
        let mut pipes = Pipes::of(&mut child, request, output_max);
        let ended = self.wait(&mut child, &mut pipes, interrupt);
        end(&mut child);
        let status = child.wait();
        ended?;
        let status = status?;
        if !status.success() {
            bail!("expected exit code 0 of {program}, saw {status}");
        }
        // Only bytes that are there already: programs that have left the group may keep the pipe open.
        pipes.pass()?;
        pipes.printed.pop_if(|last| *last == b'\n');
        Ok(pipes.printed)
    }

    /// Waits until the program has ended, and passes on what goes in and comes out meanwhile.
    fn wait(&self, child: &mut Child, pipes: &mut Pipes<'_>, interrupt: &Interrupt) -> anyhow::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "no core: a program has a time of the clock")]
        let start = Instant::now();
        pipes.prepare()?;
        loop {
            pipes.pass()?;
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            if start.elapsed() >= self.limit {
                bail!("expected the program to end within {} s, saw it run on", self.limit.as_secs_f64());
            }
            if interrupt.is_requested() {
                bail!("this command is to stop before the program has ended");
            }
            pipes.wait()?;
        }
    }
}

/// The pipes of a program. None of them makes this command wait: other programs may have them too.
struct Pipes<'a> {
    input: Option<ChildStdin>,
    /// Part of the request that the program has not taken yet.
    request: &'a [u8],
    output: Option<ChildStdout>,
    printed: Vec<u8>,
    printed_max: usize,
}

impl<'a> Pipes<'a> {
    fn of(child: &mut Child, request: &'a [u8], printed_max: usize) -> Self {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Self { input, request, output, printed: Vec::new(), printed_max }
    }

    fn prepare(&self) -> nix::Result<()> {
        let ends = [self.input.as_ref().map(AsFd::as_fd), self.output.as_ref().map(AsFd::as_fd)];
        let mut ends = ends.into_iter().flatten();
        ends.try_for_each(|end| fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(|_| ()))
    }

    /// Writes and reads as much as passes at once.
    fn pass(&mut self) -> anyhow::Result<()> {
        while let Some(input) = &mut self.input {
            match input.write(self.request) {
                Ok(count) if count < self.request.len() => self.request = &self.request[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A program that does not read its input ends nothing.
                Ok(_) | Err(_) => self.input = None,
            }
        }
        let mut buffer = [0; 1 << 16];
        while let Some(output) = &mut self.output {
            match output.read(&mut buffer) {
                Ok(0) => self.output = None,
                Ok(count) => self.printed.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read what the program prints"),
            }
            if self.printed.len() > self.printed_max {
                bail!("expected at most {} bytes from the program, saw more", self.printed_max);
            }
        }
        Ok(())
    }

    /// Waits until something may pass, at most until the next check whether the program has ended.
    fn wait(&self) -> nix::Result<()> {
        let input = self.input.as_ref().map(|input| PollFd::new(input.as_fd(), PollFlags::POLLOUT));
        let output = self.output.as_ref().map(|output| PollFd::new(output.as_fd(), PollFlags::POLLIN));
        let mut ends: Vec<PollFd<'_>> = input.into_iter().chain(output).collect();
        match poll(&mut ends, END_CHECK_MS) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Kills a program and all that it has started and left in its group.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().filter(|&group| group > 1) {
        let _ = kill(Pid::from_raw(-group), Signal::SIGKILL);
    }
    let _ = child.kill();
}
