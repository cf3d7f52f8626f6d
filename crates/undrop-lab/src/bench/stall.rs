//! TCP while a gateway is stopped for seconds, beside a link without gateways that loses the same packets.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::code::CodeArgs;
use clap::Args;
use loss::LossModel;
use netlab::traffic::TcpTransfer;
use nix::sys::signal::Signal;

use crate::bench::{guard, rig, stop};

/// Goodput of TCP while the far gateway is stopped for seconds, and without gateways.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length of each transfer in seconds. The gateway is stopped after a third of it.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Number of runs of each measurement, each with losses of its own.
    #[arg(long, default_value_t = 5)]
    runs: u64,
    /// Times in seconds for which the gateway is stopped; 0 is not at all.
    #[arg(long, value_delimiter = ',', default_value = "0,2,5")]
    stopped: Vec<u64>,
    /// Loss model.
    #[arg(long, default_value = "uniform:0.005")]
    loss: LossModel,
    /// Rate of the link in bit/s.
    #[arg(long, default_value_t = 100_000_000)]
    rate: u64,
    #[command(flatten)]
    code: CodeArgs,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "cubic, {} Mbit/s, 20 ms one way, {}, {}, {} runs of {} s, Mbit/s of goodput, median (min–max)\n",
        plan.rate / 1_000_000,
        plan.loss,
        plan.code.setting()?.schedule,
        plan.runs,
        plan.seconds
    );
    println!("| gateway stopped for s | goodput | segments retransmitted |");
    println!("|---|---|---|");
    let mut repeated = 0;
    let cases = std::iter::once(None).chain(plan.stopped.iter().copied().map(Some));
    let mut figures: Vec<(Option<u64>, Vec<f64>, Vec<f64>)> =
        cases.map(|case| (case, Vec::new(), Vec::new())).collect();
    for seed in 1..=plan.runs {
        for (stopped, goodputs, retransmits) in &mut figures {
            let ((goodput, retransmitted), again) =
                guard::undisturbed(|| transfer(program, plan, seed, *stopped))?;
            repeated += again;
            eprintln!("{stopped:?}: {goodput:.1} Mbit/s, {retransmitted} segments sent again");
            goodputs.push(goodput);
            retransmits.push(retransmitted as f64);
        }
    }
    for (stopped, goodputs, retransmits) in figures {
        let case = stopped.map_or("no gateways".to_owned(), |seconds| seconds.to_string());
        let ((median, least, most), (again, ..)) = (rig::spread(goodputs), rig::spread(retransmits));
        println!("| {case} | {median:.1} ({least:.1}–{most:.1}) | {again:.0} |");
    }
    println!("\n{repeated} runs were repeated because the machine was disturbed");
    Ok(())
}

/// Runs one transfer, without gateways if `stopped` is `None`; returns goodput in Mbit/s and retransmitted
/// segments.
fn transfer(program: &Path, plan: &Plan, seed: u64, stopped: Option<u64>) -> anyhow::Result<(f64, u64)> {
    let sites = rig::sites(Some(plan.rate), 20_000, &plan.loss, seed)?;
    let mut pair = match stopped {
        Some(_) => Some(rig::gateways(program, &sites, &plan.code.setting()?)?),
        None => None,
    };
    let transfer = TcpTransfer {
        congestion: Some("cubic".into()),
        duration: Duration::from_secs(plan.seconds),
        ..TcpTransfer::default()
    };
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| rig::transfer(&sites, &transfer));
        if let (Some(child), Some(seconds @ 1..)) = (pair.as_mut().and_then(|pair| pair.child(1)), stopped) {
            stop::pause(Duration::from_secs(plan.seconds) / 3)?;
            child.signal(Signal::SIGSTOP)?;
            stop::pause(Duration::from_secs(seconds))?;
            child.signal(Signal::SIGCONT)?;
        }
        running.join().map_err(|_| anyhow::anyhow!("the transfer panicked"))?
    })?;
    anyhow::ensure!(report.mismatch.is_none(), "TCP delivered a byte that was not sent");
    if let Some(pair) = pair {
        pair.stop()?;
    }
    Ok((report.forward.goodput_bps() / 1e6, report.retransmits))
}
