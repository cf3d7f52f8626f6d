//! Clients that read nothing: what the gateways take for them, and what another connection notices.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use stage::gateways::WayStage;
use undrop::output;

use super::crowd::listen;
use super::{Plan, statuses};
use crate::bench::{rig, stop};

/// Length of each transfer beside them.
const TRANSFER: Duration = Duration::from_secs(15);
/// Time without a byte after which a sender counts as held up.
const QUIET: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);

/// Outcome of a run.
struct Seen {
    /// Bytes that each server could send.
    taken: Vec<u64>,
    /// Memory of each gateway in bytes before and after.
    memory: [[u64; 2]; 2],
    /// Goodput of another connection, alone and beside the others, in bit/s.
    goodput: [f64; 2],
}

pub(super) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "| clients that read nothing | MB taken from each server: mean (min–max) | MiB of each gateway before, after | another connection alone, beside them, Mbit/s |"
    );
    println!("|--:|--:|---|--:|");
    let seen = plan.measured(|| measure(program, plan))?;
    let taken: Vec<f64> = seen.taken.iter().map(|&bytes| bytes as f64 / 1e6).collect();
    let mean = taken.iter().sum::<f64>() / taken.len().max(1) as f64;
    let (_, least, most) = rig::spread(taken);
    let [alone, beside] = seen.goodput.map(|bps| bps / 1e6);
    output::line(&format!(
        "| {} | {mean:.1} ({least:.1}–{most:.1}) | {:?} | {alone:.0}, {beside:.0} |",
        seen.taken.len(),
        seen.memory.map(|both| both.map(|bytes| bytes >> 20))
    ))
}

fn measure(program: &Path, plan: &Plan) -> anyhow::Result<Seen> {
    let stage = plan.stage(program)?;
    let alone = stage.transfer(1, TRANSFER, &mut stop::watch)?.forward.second_half_bps();
    stop::check()?;
    let before = resident(&stage)?;
    let (clients, servers) = connect(&stage, plan.slow)?;
    let taken = fill(&servers)?;
    let beside = stage.transfer(1, TRANSFER, &mut stop::watch)?.forward.second_half_bps();
    stop::check()?;
    let memory = [before, resident(&stage)?];
    drop((clients, servers));
    stage.close()?;
    Ok(Seen { taken, memory, goodput: [alone, beside] })
}

fn resident(stage: &WayStage) -> anyhow::Result<[u64; 2]> {
    let [near, far] = statuses(stage)?;
    Ok([rig::resident_bytes(near.gateway.pid)?, rig::resident_bytes(far.gateway.pid)?])
}

fn connect(stage: &WayStage, count: usize) -> anyhow::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let to = stage.server();
    let listener = stage.sites().b.hosts[0].run(|| listen(to))?;
    listener.set_nonblocking(false)?;
    let mut pairs = (Vec::new(), Vec::new());
    for _ in 0..count {
        pairs.0.push(stage.sites().a.hosts[0].run(|| TcpStream::connect_timeout(&to, PATIENCE))?);
        pairs.1.push(listener.accept()?.0);
    }
    Ok(pairs)
}

/// Sends on all connections until none takes a byte any more; returns the bytes of each.
fn fill(servers: &[TcpStream]) -> anyhow::Result<Vec<u64>> {
    let content = vec![0x5a; 1 << 16];
    let mut taken = vec![0; servers.len()];
    let mut last = Instant::now();
    servers.iter().try_for_each(|server| server.set_nonblocking(true))?;
    while last.elapsed() < QUIET {
        for (mut server, taken) in servers.iter().zip(&mut taken) {
            match server.write(&content) {
                Ok(bytes) => {
                    *taken += bytes as u64;
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(taken)
}
