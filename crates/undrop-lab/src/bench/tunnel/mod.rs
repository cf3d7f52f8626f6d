//! Gateways in tunnel mode beside no tunnel and beside other tunnels.

mod fast;
mod goodput;
mod moved;
mod report;
mod sites;
mod system;
mod trouble;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use loss::LossModel;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use simnet::link::LinkConfig;
use simnet::units::parse_bit_rate;
use undrop::output;

use crate::bench::guard;
use report::Sheet;
use system::System;

/// Gateways in tunnel mode beside no tunnel and beside other tunnels: goodput of TCP, processor time, added
/// delay, and what happens when something fails.
///
/// Systems whose programs are missing are named and left out. bench/peers/tunnels/build.sh makes those that
/// Debian does not have.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The measurement.
    #[arg(long, value_enum, default_value_t = Case::Goodput)]
    case: Case,
    /// Tunnels: none, undrop, wireguard-go, boringtun, vxlan (the kernel's), udpspeeder, udpspeeder-simd,
    /// tinyfecvpn, kcp-stand-in (TCP alone).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,undrop,wireguard-go,boringtun,udpspeeder,udpspeeder-simd,tinyfecvpn,kcp-stand-in",
        value_parser = system::parse
    )]
    system: Vec<System>,
    /// Rate of the link.
    #[arg(long, default_value = "1gbit", value_parser = parse_bit_rate)]
    rate: u64,
    /// One-way delay of the link in milliseconds.
    #[arg(long, default_value_t = 50)]
    delay_ms: u64,
    /// Largest packet of the hosts in bytes. Packets of up to 1,409 bytes pass the gateways' tunnel whole.
    #[arg(long, default_value_t = 1_300, value_parser = clap::value_parser!(u32).range(576..=9_000))]
    lan_mtu: u32,
    /// Losses of the link.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "none,uniform:0.001,uniform:0.01,uniform:0.02,bursty:0.01:20"
    )]
    loss: Vec<LossModel>,
    /// Congestion controls of the hosts, by the kernel's names.
    #[arg(long, value_delimiter = ',', default_value = "cubic,reno,bbr")]
    congestion: Vec<String>,
    /// Length of each transfer and stream in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Number of runs of each figure, with other losses each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Directory of the other tunnels' programs.
    #[arg(long, default_value = "bench/peers/tunnels/build")]
    peers: PathBuf,
    /// Print a JSON document in place of tables.
    #[arg(long)]
    json: bool,
    /// Add a line for each run to this file, as comma-separated values.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Count runs during which the machine was disturbed, in place of repeating them.
    #[arg(long)]
    count_disturbed: bool,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Goodput of TCP by congestion control and loss, processor time, and added delay.
    Goodput,
    /// Datagrams and bytes of 20,000 packets of 60 bytes a second, with `aggregate_us` and without.
    Aggregation,
    /// Share of 50 packets of 200 bytes a second that come within 150 ms over 3 % losses in bursts, and the
    /// bytes spent, in both modes of gateways and without.
    Voice,
    /// Time until the other end says that one was killed, and packets that leave in the clear.
    Killed,
    /// Goodput of TCP on a link of 1 ms without a limit, in single packets and in super-packets.
    Fast,
    /// Processor time of a packet at 1,000 to 200,000 a second and at the most, in both modes of gateways.
    Cost,
    /// Longest pause when a NAT forgets its mapping, or the address of a gateway changes.
    Moved,
    /// Transfers between each two of three sites with links of 100 Mbit/s, and a group from one to the
    /// others.
    Sites,
}

impl Plan {
    /// Builds the sites on a link with these losses.
    fn sites(&self, loss: &LossModel, seed: u64) -> anyhow::Result<TwoSites> {
        let link = LinkConfig {
            rate_bps: Some(self.rate),
            delay_us: 1_000 * self.delay_ms,
            loss: loss.clone(),
            seed: 1 + seed,
            ..LinkConfig::default()
        };
        let config = TwoSitesConfig { lan_mtu: self.lan_mtu, ..TwoSitesConfig::default() };
        Ok(TwoSites::build(&config, &EmulatorConfig::symmetric(link).for_measurement())?)
    }

    fn measured<T>(&self, measure: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if self.count_disturbed { measure() } else { Ok(guard::undisturbed(measure)?.0) }
    }

    /// The systems that this machine can run. Tells which ones are left out, and why.
    fn systems(&self) -> Vec<System> {
        let is_there = |system: &System| {
            let missing = system.missing(&self.peers);
            if let Some(missing) = &missing {
                output::note(format_args!("{} is left out: {missing}", system.name()));
            }
            missing.is_none()
        };
        self.system.iter().copied().filter(is_there).collect()
    }
}

/// Runs the measurement and prints its tables.
pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let mut sheet = Sheet::open(plan.csv.as_deref())?;
    match plan.case {
        Case::Goodput => goodput::run(program, plan, &mut sheet)?,
        Case::Aggregation => trouble::aggregation(program, plan, &mut sheet)?,
        Case::Voice => trouble::voice(program, plan, &mut sheet)?,
        Case::Killed => trouble::killed(program, plan, &mut sheet)?,
        Case::Fast => fast::run(program, plan, &mut sheet)?,
        Case::Cost => fast::cost(program, plan, &mut sheet)?,
        Case::Moved => moved::run(program, plan, &mut sheet)?,
        Case::Sites => sites::run(program, plan, &mut sheet)?,
    }
    if plan.json { output::line(&serde_json::to_string_pretty(&sheet.document())?) } else { sheet.print() }
}
