//! A tunnel over two paths, of which one loses packets and the other dies for seconds.

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use loss::LossModel;
use netlab::Direction;
use netlab::emulator::Emulator;
use netlab::traffic::{Pace, TcpTransfer, UdpStream};
use simnet::link::LinkConfig;
use stage::gateways::TwoPaths;

use crate::bench::{guard, rig, stop};

/// UDP packets per second of the stream, and their length in bytes.
const STREAM: (f64, usize) = (500.0, 200);
/// Time after which a path that lives again is used, with a margin.
const BACK: Duration = Duration::from_secs(3);

/// Goodput of TCP and the longest silence of a UDP stream through a tunnel over two paths.
///
/// One path loses packets, the other loses none and dies after a third of the time. The tunnel uses one of
/// them, or both, of which that without losses is the first.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length of each transfer and of each stream in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Time in seconds for which the path is dead.
    #[arg(long, default_value_t = 5)]
    dead: u64,
    /// Loss model of the other path.
    #[arg(long, default_value = "uniform:0.05")]
    loss: LossModel,
    /// Rate of each path in bit/s.
    #[arg(long, default_value_t = 100_000_000)]
    rate: u64,
    /// Delay of each path one way, in milliseconds.
    #[arg(long, default_value_t = 20)]
    delay_ms: u64,
    /// Congestion control of the TCP sender.
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Number of runs of each case.
    #[arg(long, default_value_t = 3)]
    runs: u64,
}

/// Paths of a tunnel.
#[derive(Clone, Copy)]
enum Case {
    Losing,
    Dying,
    Both(&'static str),
}

impl Case {
    const ALL: [Self; 5] =
        [Self::Losing, Self::Dying, Self::Both("failover"), Self::Both("duplicate"), Self::Both("spread")];

    fn name(self) -> &'static str {
        match self {
            Self::Losing => "the path that loses packets alone",
            Self::Dying => "the path that dies alone",
            Self::Both(path_use) => path_use,
        }
    }
}

/// Figures of one run.
struct Figures {
    goodput: f64,
    /// Longest time in which TCP delivered nothing, in seconds.
    pause_s: f64,
    missing: f64,
    duplicates: u64,
    /// Longest time without an arrival of the stream, in milliseconds.
    silence_ms: f64,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "two paths of {} Mbit/s and {} ms one way, one with {}, one dead for {} s; {} s of {}, then of {} UDP packets \
         of {} bytes a second; median (min–max) of {} runs\n",
        plan.rate / 1_000_000,
        plan.delay_ms,
        plan.loss,
        plan.dead,
        plan.seconds,
        plan.congestion,
        STREAM.0,
        STREAM.1,
        plan.runs
    );
    println!(
        "| paths | TCP goodput, Mbit/s | longest pause of TCP, s | UDP packets missing | longest silence, ms |"
    );
    println!("|---|--:|--:|--:|--:|");
    for case in Case::ALL {
        let mut runs = Vec::new();
        for seed in 1..=plan.runs {
            let (figures, _) = guard::undisturbed(|| measure(program, plan, case, seed))?;
            anyhow::ensure!(figures.duplicates == 0, "{} UDP packets arrived twice", figures.duplicates);
            eprintln!(
                "{}: {:.1} Mbit/s, paused {:.1} s; {} missing, silent {:.0} ms",
                case.name(),
                figures.goodput,
                figures.pause_s,
                figures.missing,
                figures.silence_ms
            );
            runs.push(figures);
        }
        let of = |read: fn(&Figures) -> f64| {
            let (median, least, most) = rig::spread(runs.iter().map(read).collect());
            format!("{median:.1} ({least:.1}–{most:.1})")
        };
        println!(
            "| {} | {} | {} | {} | {} |",
            case.name(),
            of(|run| run.goodput),
            of(|run| run.pause_s),
            of(|run| run.missing),
            of(|run| run.silence_ms)
        );
    }
    Ok(())
}

fn measure(program: &Path, plan: &Plan, case: Case, seed: u64) -> anyhow::Result<Figures> {
    let link = |loss: LossModel| LinkConfig {
        rate_bps: Some(plan.rate),
        delay_us: 1_000 * plan.delay_ms,
        loss,
        seed,
        ..LinkConfig::default()
    };
    let (dying, losing) = (link(LossModel::None), link(plan.loss.clone()));
    let (paths, path_use) = match case {
        Case::Losing => (TwoPaths::build(losing, dying)?, None),
        Case::Dying => (TwoPaths::build(dying, losing)?, None),
        Case::Both(path_use) => (TwoPaths::build(dying, losing)?, Some(path_use)),
    };
    let mut pair = paths.prepare(program, path_use)?;
    paths.launch(&mut pair)?;
    let dying = (!matches!(case, Case::Losing)).then_some(&paths.sites.link);
    let duration = Duration::from_secs(plan.seconds);
    let transfer =
        TcpTransfer { congestion: Some(plan.congestion.clone()), duration, ..TcpTransfer::default() };
    stop::pause(BACK)?;
    let tcp = while_dead(plan, dying, || rig::transfer(&paths.sites, &transfer))?;
    anyhow::ensure!(tcp.mismatch.is_none(), "TCP delivered a byte that was not sent");
    stop::pause(BACK)?;
    let stream = UdpStream {
        pace: Pace::Packets(STREAM.0),
        payload_bytes: STREAM.1,
        duration,
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let udp = while_dead(plan, dying, || rig::stream(rig::between(&paths.sites), &stream))?;
    pair.stop()?;
    Ok(Figures {
        goodput: tcp.forward.goodput_bps() / 1e6,
        pause_s: rig::longest_pause_us(&tcp.forward.samples) as f64 / 1e6,
        missing: udp.missing() as f64,
        duplicates: udp.duplicates,
        silence_ms: rig::longest_silence_us(&udp) as f64 / 1e3,
    })
}

/// Runs some work, after a third of whose time a link dies for seconds.
fn while_dead<T: Send>(
    plan: &Plan,
    link: Option<&Emulator>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let running = scope.spawn(work);
        if let Some(link) = link {
            let lose = |loss: &LossModel| {
                Direction::BOTH.into_iter().for_each(|direction| link.set_loss(direction, loss));
            };
            stop::pause(Duration::from_secs(plan.seconds) / 3)?;
            lose(&LossModel::Uniform(1.0));
            stop::pause(Duration::from_secs(plan.dead))?;
            lose(&LossModel::None);
        }
        running.join().map_err(|_| anyhow::anyhow!("the work panicked"))?
    })
}
