//! Cost of upgrades of a gateway under traffic.
//!
//! `upgrade PROGRAM [UPGRADES]`, by default 10: two sites on a link of 50 Mbit/s, 20 ms one way, which loses
//! 1 % of the packets. One TCP connection (cubic) takes the bandwidth that it gets, a second one carries a
//! message each 10 ms, and UDP has 500 packets a second in each direction. Both gateways run the program, and
//! hand over to it in turn. It needs permission to make namespaces, and an idle machine.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use maelstrom::status::PeerStatus;
use netlab::traffic::{
    Between, MessageStream, Pace, TcpTransfer, UdpStream, message_stream, tcp_transfer, udp_stream, unwatched,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stage::gateways::{End, GatewayPair, Setting, between, sites};

/// Time between two upgrades.
const PAUSE: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().context("expected a program: upgrade target/release/undrop")?;
    let upgrades: u32 = arguments.next().map_or(Ok(10), |count| count.parse())?;
    if !netlab::privilege::available_or_skip("upgrade") {
        return Ok(());
    }
    let program = Path::new(&program).canonicalize()?;
    let sites = sites(Some(50_000_000), 20_000, &"uniform:1%".parse()?, 1)?;
    let mut pair = GatewayPair::start(&program, &End::of(&sites), &Setting::default())?;
    let before = [peer(&pair, 0)?.sessions, peer(&pair, 1)?.sessions];
    let there = between(&sites);
    let back = Between { from: there.to, to: there.from, address: sites.a.host_v4(0) };
    let duration = PAUSE * (upgrades + 2);
    let tcp = TcpTransfer { congestion: Some("cubic".to_owned()), duration, ..TcpTransfer::default() };
    let messages = MessageStream { duration, ..MessageStream::default() };
    let udp = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 200,
        duration,
        patience: Duration::from_secs(2),
        ..UdpStream::default()
    };
    let mut processes = Vec::new();
    let (transfer, delivered, streams, gaps_ms) = thread::scope(|scope| {
        let transfer = scope.spawn(|| tcp_transfer(there, &tcp, &mut unwatched));
        let delivered = scope.spawn(|| message_stream(there, &messages, &mut unwatched));
        let udp = &udp;
        let streams =
            [there, back].map(|between| scope.spawn(move || udp_stream(between, udp, &mut unwatched)));
        let mut gaps_ms = Vec::new();
        for number in 0..upgrades {
            thread::sleep(PAUSE);
            let (process, gap_ms) = upgrade(&program, &pair.config(number as usize % 2))?;
            processes.push(process);
            gaps_ms.push(gap_ms);
        }
        let ended = "a stream does not panic";
        let streams = streams.map(|stream| stream.join().expect(ended));
        anyhow::Ok((transfer.join().expect(ended)?, delivered.join().expect(ended)?, streams, gaps_ms))
    })
    .inspect_err(|_| println!("{}", pair.logs()))?;
    for side in [0, 1] {
        let peer = peer(&pair, side)?;
        ensure!(peer.sessions == before[side], "expected no further session, saw {}", peer.sessions);
    }
    let mut sorted = gaps_ms.clone();
    sorted.sort_by(f64::total_cmp);
    println!("time between the processes in ms: {gaps_ms:.1?}; longest {:.1}", sorted.last().unwrap_or(&0.0));
    println!(
        "TCP: {:.1} Mbit/s, {} segments sent again; messages: {} sent, {} missing, slowest {:.0} ms",
        transfer.forward.goodput_bps() / 1e6,
        transfer.retransmits,
        delivered.messages.len(),
        delivered.missing(),
        delivered.sorted_latencies_us().last().map_or(0.0, |&us| us as f64 / 1e3),
    );
    for stream in streams {
        let stream = stream?;
        let (sent, missing, twice) = (stream.sent_us.len(), stream.missing(), stream.duplicates);
        println!("UDP: {sent} packets sent, {missing} missing, {twice} arrived twice");
    }
    for process in processes {
        // All but the last of each side have ended.
        let _ = kill(process, Signal::SIGTERM);
    }
    for side in [0, 1] {
        drop(pair.kill(side));
    }
    Ok(())
}

fn peer(pair: &GatewayPair, side: usize) -> anyhow::Result<PeerStatus> {
    Ok(pair.status(side)?.peers.remove(0))
}

/// Returns the number of the new process, and the time in milliseconds that nobody protected.
fn upgrade(program: &Path, config: &Path) -> anyhow::Result<(Pid, f64)> {
    let output = Command::new(program).args(["gateway", "upgrade", "--config"]).arg(config).output()?;
    let said = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        bail!("no upgrade: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut words = said.split(' ');
    let process = words.nth(1).context("no process")?.parse()?;
    let gap_ms = words.nth(1).context("no time")?.parse()?;
    Ok((Pid::from_raw(process), gap_ms))
}
