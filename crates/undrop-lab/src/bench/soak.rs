//! Memory use and recovery over minutes.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::code::CodeArgs;
use clap::Args;
use loss::LossModel;
use netlab::traffic::TcpTransfer;

use crate::bench::{rig, stop};

/// Resident memory of both gateways during a TCP transfer over a lossy link.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length of the transfer in seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Loss model.
    #[arg(long, default_value = "uniform:0.01")]
    loss: LossModel,
    #[command(flatten)]
    code: CodeArgs,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let sites = rig::sites(Some(1_000_000_000), 50_000, &plan.loss, 9)?;
    let setting = plan.code.setting()?;
    let pair = rig::gateways(program, &sites, &setting)?;
    let pids = rig::statuses(&pair)?.map(|status| status.gateway.pid);
    let transfer = TcpTransfer {
        congestion: Some("cubic".into()),
        duration: Duration::from_secs(plan.seconds),
        ..TcpTransfer::default()
    };
    println!(
        "cubic over {} for {} s, {}\n\n| at s | resident MiB, gateway A | gateway B | lost | residual |\n|---|---|---|---|---|",
        plan.loss, plan.seconds, setting.schedule
    );
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| rig::transfer(&sites, &transfer));
        for tenth in 0..=10 {
            let [a, b] = [rig::resident_bytes(pids[0])?, rig::resident_bytes(pids[1])?]
                .map(|bytes| bytes as f64 / f64::from(1 << 20));
            let loss = &pair.status(1)?.peers[0].ingress.loss;
            println!(
                "| {} | {a:.1} | {b:.1} | {} | {} |",
                tenth * plan.seconds / 10,
                loss.lost,
                loss.residual
            );
            if tenth < 10 {
                stop::pause(Duration::from_secs_f64(plan.seconds as f64 / 10.0))?;
            }
        }
        running.join().map_err(|_| anyhow::anyhow!("the transfer panicked"))?
    })?;
    println!("\ngoodput {:.0} Mbit/s, every byte compared", report.forward.goodput_bps() / 1e6);
    anyhow::ensure!(
        report.mismatch.is_none(),
        "TCP delivered a byte that was not sent at {:?}",
        report.mismatch
    );
    pair.stop()
}
