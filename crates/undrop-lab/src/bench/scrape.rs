//! Processor time of metrics: what scrapes cost a gateway, and what it spends on itself while it is idle.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, ensure};
use clap::Args;
use loss::LossModel;
use netlab::Namespace;
use netlab::topology::TwoSites;
use netlab::traffic::{Pace, UdpStream};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use stage::gateways::{End, GatewayPair, Setting};

use crate::bench::{rig, stop};

/// Address of the gateway's metrics.
const ADDRESS: &str = "127.0.0.1:9469";
/// Interval between scrapes: more often than Prometheus asks, so that their cost stands out.
const INTERVAL: Duration = Duration::from_millis(50);

/// Processor time of a gateway with and without scrapes of its metrics, idle and with traffic.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Packets per second from each site; 0 is an idle gateway.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 5_000])]
    packets: Vec<u64>,
    /// Length of each run in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of runs of each measurement, with scrapes and without in turn.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// One run.
struct Cost {
    /// Processor time in milliseconds per second.
    ms_per_s: f64,
    scrapes: u64,
    bytes: usize,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "A gateway with one peer, {} runs of {} s in turn, a scrape each {} ms over HTTP, median (min–max)\n",
        plan.runs,
        plan.seconds,
        INTERVAL.as_millis()
    );
    println!(
        "| packets/s | without scrapes, ms of processor time a second | µs for each scrape | a scrape a second, % of a core | bytes |"
    );
    println!("|--:|--:|--:|--:|--:|");
    for &packets in &plan.packets {
        let sites = rig::sites(None, 1_000, &LossModel::Uniform(0.01), 4)?;
        let mut pair = GatewayPair::prepare(program, &End::of(&sites), &Setting::default())?;
        let text = fs::read_to_string(pair.config(0)).context("reading the gateway's file")?;
        fs::write(pair.config(0), text.replace("[gateway]", &format!("[gateway]\nmetrics = \"{ADDRESS}\"")))?;
        for (side, end) in End::of(&sites).iter().enumerate() {
            pair.launch(side, end.namespace)?;
        }
        pair.wait_until_up(Duration::from_secs(20))?;
        let (mut bare, mut each, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..plan.runs {
            let without = measure(plan, &sites, &pair, packets, false)?;
            let with = measure(plan, &sites, &pair, packets, true)?;
            ensure!(with.scrapes > 0, "expected scrapes, saw none");
            let more_ms = (with.ms_per_s - without.ms_per_s) * plan.seconds as f64;
            each.push(1_000.0 * more_ms / with.scrapes as f64);
            bare.push(without.ms_per_s);
            bytes = with.bytes;
        }
        let [bare, each] = [bare, each].map(rig::spread);
        println!(
            "| {packets} | {:.2} ({:.2}–{:.2}) | {:.0} ({:.0}–{:.0}) | {:.3} | {bytes} |",
            bare.0,
            bare.1,
            bare.2,
            each.0,
            each.1,
            each.2,
            each.0 / 1e4
        );
        pair.stop()?;
    }
    Ok(())
}

fn measure(
    plan: &Plan,
    sites: &TwoSites,
    pair: &GatewayPair,
    packets: u64,
    scrapes: bool,
) -> anyhow::Result<Cost> {
    let length = Duration::from_secs(plan.seconds);
    let pid = pair.status(0)?.gateway.pid;
    let before = processor_time(pid)?;
    let (scrapes, bytes) = thread::scope(|scope| -> anyhow::Result<(u64, usize)> {
        let stream = scope.spawn(|| match packets {
            0 => Ok(()),
            packets => traffic(sites, packets, length),
        });
        let (started, mut count, mut bytes) = (Instant::now(), 0, 0);
        while started.elapsed() < length {
            if scrapes {
                bytes = scrape(&sites.a.gateway)?;
                count += 1;
            }
            stop::pause(INTERVAL)?;
        }
        stream.join().map_err(|_| anyhow::anyhow!("the stream panicked"))??;
        Ok((count, bytes))
    })?;
    let used = processor_time(pid)? - before;
    Ok(Cost { ms_per_s: 1_000.0 * used / plan.seconds as f64, scrapes, bytes })
}

fn traffic(sites: &TwoSites, packets: u64, duration: Duration) -> anyhow::Result<()> {
    let plan = UdpStream {
        pace: Pace::Packets(packets as f64),
        payload_bytes: 1_000,
        duration,
        ..UdpStream::default()
    };
    rig::stream(rig::between(sites), &plan).map(drop)
}

/// Scrapes the metrics once; returns the length of the answer.
fn scrape(gateway: &Namespace) -> anyhow::Result<usize> {
    let answer = gateway.run(|| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    });
    let answer = answer.context("scraping the gateway")?;
    ensure!(answer.ends_with("# EOF\n"), "expected metrics, saw {} bytes of something else", answer.len());
    Ok(answer.len())
}

/// Processor time of a process with all its threads, also those that have ended, in seconds.
fn processor_time(pid: u32) -> anyhow::Result<f64> {
    let pid = Pid::from_raw(i32::try_from(pid).context("expected a process id")?);
    let clock = clock_getcpuclockid(pid).context("cannot read the processor time of the gateway")?;
    Ok(Duration::from(clock_gettime(clock)?).as_secs_f64())
}
