//! `undrop-lab demo`: TCP over a long-haul link that loses packets, alone and with gateways, in three acts;
//! and two more in which the loss changes.
//!
//! | file | what |
//! |---|---|
//! | `acts.rs` | an act: two sites, a link, perhaps gateways; a bulk transfer, a message stream |
//! | `changes.rs` | an act whose loss changes while TCP sends; goodput, loss and overhead over time |
//! | `outcome.rs` | the measured values, and whether losses were masked |
//! | `table.rs` | the outcome as text |
//! | `plot.rs` | goodput over time and the latency of every message as a picture |
//! | `progress.rs` | progress on stderr |
//!
//! Nothing of the demo outlives it: descriptors hold the namespaces, gateways are child processes that end
//! with their parent, and the directory of their files is removed.

mod acts;
mod changes;
mod outcome;
mod plot;
mod progress;
mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::code::CodeArgs;
use crate::course::Course;
use anyhow::Context as _;
use loss::LossModel;
use netlab::privilege;
use simnet::units;

use self::acts::{Act, Plan};
use self::changes::Changes;
use self::outcome::{Outcome, Setup, Verdict};
use self::progress::Display;
use undrop::failure::{Advice as _, usage};
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt, Interrupted};
use undrop::output;

const PLOT_FILE: &str = "undrop-demo.svg";
const CHANGES_FILE: &str = "undrop-demo-changes.svg";

/// Settings of the demo.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// TCP congestion control of the hosts: cubic, reno, bbr or another that the kernel offers
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Loss of the link: uniform:P, bursty:P:LENGTH, markov:P:MEAN, gemodel:P:R:1-H:1-K
    /// (as of netem) or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "uniform:0.01")]
    loss: LossModel,
    /// Rate of the link
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = units::parse_bit_rate)]
    rate: u64,
    /// One-way delay of the link
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::parse_duration_us)]
    delay: u64,
    /// Loss in the last two acts, as it changes: `0s none, 6s uniform:5%, 12s none`, or `ramp 0% 5% 4s 20s`;
    /// `none` leaves these acts out [default: none, --loss, five times --loss, none]
    #[arg(long, value_name = "COURSE")]
    changes: Option<Course>,
    /// Length of the bulk transfer in each of the first three acts, and half of its length in the other two;
    /// messages run for two thirds of it, 8 seconds at most
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(3..=3600))]
    seconds: u64,
    #[command(flatten)]
    code: CodeArgs,
    /// Directory for the plot
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
    /// Random seed of the losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Performs the demo and prints its outcome; exit code 1 when losses were not masked.
///
/// Must be called while the process has one thread: without root it enters a user namespace.
pub(crate) fn run(args: &DemoArgs, program: PathBuf) -> anyhow::Result<ExitCode> {
    if args.loss.rate() == 0.0 {
        return Err(usage(format!(
            "--loss {}: expected a model that loses packets, saw one that loses none",
            args.loss
        )));
    }
    let gateways = args.code.setting()?;
    let plot_files = [prepare_plot_file(&args.out, PLOT_FILE)?, prepare_plot_file(&args.out, CHANGES_FILE)?];
    prepare_privilege()?;
    let interrupt = Interrupt::listen().context("listening for Ctrl-C")?;
    let plan = Plan {
        congestion: args.congestion.clone(),
        loss: args.loss.clone(),
        changes: changes::course(args.changes.as_ref(), &args.loss, args.seconds),
        rate_bps: args.rate,
        delay_us: args.delay,
        bulk_time: Duration::from_secs(args.seconds),
        seed: args.seed,
        gateways,
        program,
    };
    let outcome = match perform_all(&plan, &interrupt) {
        Err(error) if error.is::<Interrupted>() => return Ok(ExitCode::from(EXIT_INTERRUPTED)),
        other => other?,
    };
    let changed = outcome.changes.as_ref().map(|changes| plot::render_changes(&title(&outcome), changes));
    let mut written = Vec::new();
    for (file, picture) in plot_files.iter().zip([Some(picture(&outcome)), changed]) {
        if let Some(picture) = picture {
            fs::write(file, picture?).with_context(|| format!("writing {}", file.display()))?;
            written.push(file.display().to_string());
        }
    }
    publish(&outcome, &written.join(", "), args.json)?;
    Ok(ExitCode::from(u8::from(!outcome.verdict.masked)))
}

/// Returns the file of the plot, after a test that it can be written.
fn prepare_plot_file(directory: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let file = directory.join(name);
    let try_to_write = || match fs::File::create_new(&file) {
        // A demo that is interrupted leaves no file.
        Ok(_) => fs::remove_file(&file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::File::options().append(true).open(&file).map(drop)
        }
        Err(error) => Err(error),
    };
    fs::create_dir_all(directory)
        .and_then(|()| try_to_write())
        .with_context(|| format!("--out: cannot write {}", file.display()))?;
    Ok(file)
}

fn prepare_privilege() -> anyhow::Result<()> {
    privilege::enter_user_namespace()
        .and_then(|_| privilege::check())
        .context("the demo needs the right to build network namespaces")
        .advise("run it as root, or allow user namespaces")
}

fn perform_all(plan: &Plan, interrupt: &Interrupt) -> anyhow::Result<Outcome> {
    let loss_rate = plan.loss.rate();
    let count = if plan.changes.is_some() { Act::ALL.len() + 2 } else { Act::ALL.len() };
    let perform = |number: usize| {
        let act = Act::ALL[number];
        let mut display = Display::new(number + 1, count, &act.title(loss_rate));
        acts::perform(act, plan, &mut display, interrupt)
    };
    let (lossless, alone, masked) = (perform(0)?, perform(1)?, perform(2)?);
    let perform_changes = |course: &Course| -> anyhow::Result<Changes> {
        let act = |number: usize, is_masked: bool| {
            let title = if is_masked { "changing loss, with gateways" } else { "changing loss, no gateways" };
            let mut display = Display::new(number, count, title);
            changes::perform(is_masked, course, plan, &mut display, interrupt)
        };
        Ok(Changes::new(course, changes::length(plan), &act(4, false)?, &act(5, true)?))
    };
    let changes = plan.changes.as_ref().map(perform_changes).transpose()?;
    let verdict = Verdict::of(&lossless, &alone, &masked);
    let setup = Setup {
        congestion: plan.congestion.clone(),
        loss: plan.loss.to_string(),
        loss_rate,
        rate_bps: plan.rate_bps,
        delay_us: plan.delay_us,
        bulk_s: plan.bulk_time.as_secs_f64(),
        code: plan.gateways.schedule.to_string(),
        seed: plan.seed,
    };
    Ok(Outcome { setup, lossless, alone, masked, changes, verdict })
}

fn picture(outcome: &Outcome) -> anyhow::Result<String> {
    let acts =
        [(Act::Lossless, &outcome.lossless), (Act::Alone, &outcome.alone), (Act::Masked, &outcome.masked)];
    let curves = acts.map(|(act, measured)| (act.title(outcome.setup.loss_rate), measured));
    plot::render(&title(outcome), &curves)
}

fn title(outcome: &Outcome) -> String {
    let setup = &outcome.setup;
    format!(
        "TCP {} over a link of {} and {} one way",
        setup.congestion,
        units::format_bit_rate(setup.rate_bps),
        units::format_duration_us(setup.delay_us)
    )
}

fn publish(outcome: &Outcome, plots: &str, json: bool) -> anyhow::Result<()> {
    if json {
        eprintln!("Plots: {plots}");
        output::line(&serde_json::to_string_pretty(outcome)?)?;
    } else {
        output::line(&format!("\n{}Plots: {plots}", table::render(outcome)))?;
    }
    Ok(())
}
