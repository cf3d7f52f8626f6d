//! Measures the speed of the emulated link with TCP between two sites without gateways.
//!
//! `cargo run --release -p netlab --example link_speed [-- [--seconds N] [--congestion NAME] [CASE …]]`
//!
//! A case is one of these, each also with the suffix `-plain` (without offloads):
//! - a loss model, on a link of 1 Gbit/s with 50 ms one way;
//! - `fast`: no rate, no delay;
//! - `fast-both`: the same, both ways at once;
//! - `gigabit-both`: 1 Gbit/s, 5 ms, four flows each way at once;
//! - `delay`: the delay that the link adds to its 50 ms, for UDP at 10 Mbit/s.

use std::fs;
use std::time::Duration;

use netlab::Direction;
use netlab::EmulatorConfig;
use netlab::LabError;
use netlab::TwoSites;
use netlab::TwoSitesConfig;
use netlab::traffic::{self, Between, TcpTransfer, UdpStream, tcp_transfer, udp_stream, unwatched};
use simnet::LinkConfig;

const CASES: [&str; 7] =
    ["none", "uniform:0.0001", "uniform:0.001", "uniform:0.01", "fast", "gigabit-both", "delay"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut congestion, mut cases) = (15, "cubic".to_owned(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => seconds = arguments.next().and_then(|n| n.parse().ok()).expect("--seconds NUMBER"),
            "--congestion" => congestion = arguments.next().expect("--congestion NAME"),
            _ => cases.push(argument),
        }
    }
    if cases.is_empty() {
        cases = CASES.map(str::to_owned).to_vec();
    }
    println!("{congestion}, {seconds} s each, goodput in Mbit/s");
    println!(
        "{:<20} {:>8} {:>9} {:>8}  processors: all / link a→b / b→a",
        "case", "goodput", "2nd half", "retrans"
    );
    for case in &cases {
        let duration = Duration::from_secs(seconds);
        let done =
            if case == "delay" { measure_delay(duration) } else { measure(case, &congestion, duration) };
        if let Err(e) = done {
            eprintln!("{case}: {e}");
            std::process::exit(1);
        }
    }
}

fn measure_delay(duration: Duration) -> Result<(), LabError> {
    let link = LinkConfig { rate_bps: Some(1_000_000_000), delay_us: 50_000, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link))?;
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let report = udp_stream(between, &UdpStream { duration, ..UdpStream::default() }, &mut unwatched)?;
    let sorted = report.sorted_latencies_us();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    println!(
        "delay: {} packets, {} missing; one way p1 {} µs, p50 {} µs, p99 {} µs, max {} µs",
        sorted.len(),
        report.missing(),
        at(0.01),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

fn measure(case: &str, congestion: &str, duration: Duration) -> Result<(), LabError> {
    let (name, plain) = case.strip_suffix("-plain").map_or((case, false), |name| (name, true));
    let gigabit = |delay_us| LinkConfig { rate_bps: Some(1_000_000_000), delay_us, ..LinkConfig::default() };
    let (link, both) = match name {
        "fast" => (LinkConfig::default(), false),
        "fast-both" => (LinkConfig::default(), true),
        "gigabit-both" => (gigabit(5_000), true),
        model => {
            let loss = model.parse().map_err(|e| LabError::Invalid(format!("{e}")))?;
            (LinkConfig { loss, ..gigabit(50_000) }, false)
        }
    };
    let config = EmulatorConfig { offload: !plain, ..EmulatorConfig::symmetric(link) };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &config)?;
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = TcpTransfer {
        congestion: Some(congestion.to_owned()),
        duration,
        flows: if name == "gigabit-both" { 4 } else { 1 },
        direction: if both { traffic::Direction::Both } else { traffic::Direction::Forward },
        verify: false,
        ..TcpTransfer::default()
    };
    let busy_before = busy_ticks();
    let report = tcp_transfer(between, &plan, &mut unwatched)?;
    let busy = busy_ticks() - busy_before;
    let seconds = duration.as_secs_f64();
    let mbit = |bps: f64| format!("{:.1}", bps / 1e6);
    let (mut goodput, mut half) =
        (mbit(report.forward.goodput_bps()), mbit(report.forward.second_half_bps()));
    if both {
        goodput = format!("{goodput}+{}", mbit(report.backward.goodput_bps()));
        half = format!("{half}+{}", mbit(report.backward.second_half_bps()));
    }
    let [forward, back] = Direction::BOTH.map(|direction| sites.link.counters(direction));
    println!(
        "{case:<20} {goodput:>8} {half:>9} {:>8}  {:.2} / {:.2} / {:.2}",
        report.retransmits,
        busy as f64 / 100.0 / seconds,
        forward.cpu_us as f64 / 1e6 / seconds,
        back.cpu_us as f64 / 1e6 / seconds,
    );
    for (direction, counters) in Direction::BOTH.into_iter().zip([forward, back]) {
        println!("    {:<6} {counters:?}", direction.name());
    }
    Ok(())
}

/// Returns the ticks (1/100 s) during which processors were not idle.
fn busy_ticks() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let values: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    let idle: u64 = values.iter().skip(3).take(2).sum();
    values.iter().take(8).sum::<u64>() - idle
}
