//! Cost of changing the key of two gateways under traffic.
//!
//! `key_change PROGRAM [CHANGES]`, by default 3: two sites on a link of 50 Mbit/s, 20 ms one way, that loses
//! 1 % of the packets. One TCP connection (cubic) takes the bandwidth that it gets. Each change names the
//! next key at one end, then at the other, and then drops the old one at both. It prints how many packets
//! were not protected meanwhile, and fails if there is one, or if a session begins. It needs permission to
//! make namespaces, and an idle machine.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use keyfile::KeyText;
use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stage::gateways::{End, GatewayPair, Setting, between, sites};

/// Longest wait for a state of the keys.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between two changes.
const PAUSE: Duration = Duration::from_secs(2);
/// Reasons of `not_protected` that a change of keys could cause.
const REASONS: [&str; 2] = ["peer_down", "unheard"];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().context("expected a program: key_change target/release/undrop")?;
    let changes: u32 = arguments.next().map_or(Ok(3), |count| count.parse())?;
    if !netlab::privilege::available_or_skip("key_change") {
        return Ok(());
    }
    let program = Path::new(&program).canonicalize()?;
    let sites = sites(Some(50_000_000), 20_000, &"uniform:1%".parse()?, 1)?;
    let mut pair = GatewayPair::start(&program, &End::of(&sites), &Setting::default())?;
    let before = [counts(&pair, 0)?, counts(&pair, 1)?];
    let duration = (PAUSE + Duration::from_secs(3)) * changes + PAUSE;
    let tcp = TcpTransfer { congestion: Some("cubic".to_owned()), duration, ..TcpTransfer::default() };
    let (transfer, times) = thread::scope(|scope| {
        let transfer = scope.spawn(|| tcp_transfer(between(&sites), &tcp, &mut unwatched));
        let times = (0..changes)
            .map(|number| {
                thread::sleep(PAUSE);
                change(&mut pair, number)
            })
            .collect::<anyhow::Result<Vec<_>>>();
        anyhow::Ok((transfer.join().expect("a transfer does not panic")?, times?))
    })
    .inspect_err(|_| println!("{}", pair.logs()))?;
    let times: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    println!("{changes} changes of the key in {times:.1?} s");
    println!(
        "TCP: {:.1} Mbit/s, {} segments sent again",
        transfer.forward.goodput_bps() / 1e6,
        transfer.retransmits
    );
    for (side, before) in before.iter().enumerate() {
        let after = counts(&pair, side)?;
        let source = pair.status(side)?.peers[0].egress.source_packets;
        println!("side {side}: {} of {source} packets not protected", after.0 - before.0);
        ensure!(
            after == *before,
            "expected {before:?} as before the changes, saw {after:?}\n{}",
            pair.logs()
        );
    }
    pair.stop()
}

/// Returns the number of packets that were not protected, and that of sessions.
fn counts(pair: &GatewayPair, side: usize) -> anyhow::Result<(u64, u64)> {
    let status = pair.status(side)?;
    let not_protected = REASONS.iter().filter_map(|&reason| status.not_protected.get(reason)).sum();
    Ok((not_protected, status.peers[0].sessions))
}

/// Changes the key at both ends; returns the time that this took.
#[expect(clippy::disallowed_methods, reason = "no core: a stopwatch")]
fn change(pair: &mut GatewayPair, number: u32) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let name = |number: u32| if number == 0 { "peer.key".to_owned() } else { format!("peer-{number}.key") };
    KeyText::generate()?.write_new(&pair.config(0).with_file_name(name(number + 1)))?;
    let old = format!("key_file = \"{}\"\n", name(number));
    let both = format!("{old}next_key_file = \"{}\"\n", name(number + 1));
    let new = format!("key_file = \"{}\"\n", name(number + 1));
    reload(pair, 0, &old, &both)?;
    wait_for_keys(pair, ["waiting", "offered"])?;
    reload(pair, 1, &old, &both)?;
    wait_for_keys(pair, ["changed", "changed"])?;
    reload(pair, 1, &both, &new)?;
    wait_for_keys(pair, ["changed", "left_over"])?;
    reload(pair, 0, &both, &new)?;
    wait_for_keys(pair, ["single", "single"])?;
    Ok(start.elapsed())
}

fn reload(pair: &mut GatewayPair, side: usize, from: &str, to: &str) -> anyhow::Result<()> {
    let file = pair.config(side);
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(from), "expected {from:?} in {}, saw\n{text}", file.display());
    fs::write(&file, text.replace(from, to))?;
    let process = pair.child(side).context("expected a gateway that runs, saw none")?.id();
    Ok(kill(Pid::from_raw(i32::try_from(process)?), Signal::SIGHUP)?)
}

#[expect(clippy::disallowed_methods, reason = "no core: a wait")]
fn wait_for_keys(pair: &GatewayPair, states: [&str; 2]) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = [pair.status(0)?, pair.status(1)?].map(|status| status.peers[0].keys.state.clone());
        if seen.iter().zip(states).all(|(seen, state)| *seen == state) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "expected the keys {states:?}, saw {seen:?}\n{}", pair.logs());
        thread::sleep(Duration::from_millis(50));
    }
}
