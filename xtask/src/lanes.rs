//! Two lanes of test programs that run at the same time.
//!
//! | lane | programs | tests at once | priority |
//! |---|---|---|---|
//! | waiting | those on the real kernel, which wait for packets and timers | several for each core | raised |
//! | computing | all others, the examples in the documentation, the Python module and the C library | one for each core | lowered |
//!
//! The computing lane uses the time that the waiting lane leaves, and takes none from it: a gateway that gets
//! the processor late loses packets, as on a machine that is too slow. The output of a program is printed
//! when the program has ended, so that the outputs of the lanes do not mix. The gate leaves out what passing
//! tests print, and prints again at its end what failing tests print.

use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::programs::Program;
use crate::tally::{self, Collected, Tally};
use crate::transcript;

/// Number of tests on the kernel that run at once for each core. With twice as many, gateways fall behind
/// their taps while the other lane computes.
const WAITING_EACH: usize = 2;
/// Maximum number of tests on the kernel that run at once.
const WAITING_MAX: usize = 24;
/// Priority (`nice`) of tests on the kernel, if this process may raise it.
const RAISED: &str = "-10";
/// Priority of the other tests.
const LOWERED: &str = "5";

/// Maximum duration of a program. One that hangs is killed, and its output names the tests that ran.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The name of a command that runs tests, and the command.
pub(crate) type Job = (String, Command);

/// Runs all programs, and the other jobs of the computing lane; returns whether all succeeded.
pub(crate) fn run(programs: &[Program], others: Vec<Job>, tally: &mut Tally) -> anyhow::Result<bool> {
    let (waiting, computing): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.uses_kernel);
    let (raises, at_once) = (may_raise(), tests_at_once());
    println!("{at_once} tests on the kernel run at once, beside the others");
    let waiting = waiting.into_iter().map(|program| {
        let mut command = program.command();
        command.arg(format!("--test-threads={at_once}"));
        (program.name.clone(), if raises { niced(&command, RAISED) } else { command })
    });
    let computing = computing.into_iter().map(|program| (program.name.clone(), program.command()));
    let computing = computing.chain(others);
    let computing = computing.map(|(name, command)| (name, niced(&command, LOWERED)));

    let report = Mutex::new((true, Tally::default()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lane(waiting, &report));
        let computed = lane(computing, &report);
        computed.and(waiting.join().expect("a lane does not panic"))
    })?;
    let (success, counted) = report.into_inner().expect("no lane panicked");
    tally.add(counted);
    Ok(success)
}

/// Runs jobs one after the other.
fn lane(jobs: impl Iterator<Item = Job>, report: &Mutex<(bool, Tally)>) -> anyhow::Result<()> {
    for (name, mut command) in jobs {
        #[expect(clippy::disallowed_methods, reason = "not a core: reports the time of each program")]
        let start = Instant::now();
        let Collected { success, ending, mut tally, output } = tally::collect(&mut command, LIMIT)?;
        tally.failures = transcript::failures(&output);
        if !success && tally.failures.is_empty() {
            tally.failures.push(transcript::unfinished(&name, &ending, &output));
        }
        let seconds = start.elapsed().as_secs_f64();
        // The lock is held until all of the output is printed.
        let mut report = report.lock().expect("no lane panicked");
        println!("\n-- {name}: {seconds:.0} s{}", if success { "" } else { ", FAILED" });
        print!("{}", transcript::without_successes(&output));
        report.0 &= success;
        report.1.add(tally);
    }
    Ok(())
}

fn tests_at_once() -> usize {
    (WAITING_EACH * thread::available_parallelism().map_or(1, NonZero::get)).min(WAITING_MAX)
}

/// Returns whether this process may raise the priority of a program.
fn may_raise() -> bool {
    let shown = Command::new("nice").args(["-n", RAISED, "nice"]).stderr(Stdio::null()).output();
    shown.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == RAISED)
}

/// Returns the command with a priority.
fn niced(command: &Command, priority: &str) -> Command {
    let mut niced = Command::new("nice");
    niced.args(["-n", priority]).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        niced.current_dir(directory);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => niced.env(key, value),
            None => niced.env_remove(key),
        };
    }
    niced
}
