//! Random bytes both ways on one connection, each of them compared, while the link fails for some seconds and
//! a gateway reloads its file.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use loss::LossModel;
use netlab::Direction;
use stage::gateways::WayStage;
use undrop::output;

use super::{Costs, Plan, costs, cpu_s};
use crate::bench::stop;

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are made and compared at a time.
const PIECE: usize = 1 << 16;
/// Interval between looks at the progress.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "| bytes each way, compared | s | Mbit/s each way | link failed for | carriers' connections reset | cores | MiB of each gateway |"
    );
    println!("|--:|--:|--:|--:|--:|--:|---|");
    let (seconds, costs) = plan.measured(|| {
        let mut stage = plan.stage(program)?;
        let before_s = cpu_s(&stage)?;
        let begun = Instant::now();
        exchange(&mut stage, plan)?;
        let seconds = begun.elapsed().as_secs_f64();
        let costs = costs(&stage, before_s, seconds)?;
        stage.close()?;
        Ok((seconds, costs))
    })?;
    let Costs { cores, resident_mib, reset, split } = costs;
    output::line(&format!(
        "| {} | {seconds:.1} | {:.0} | {} s | {reset} | {cores:.2} | {resident_mib:?} |\n",
        plan.bytes,
        plan.bytes as f64 * 8.0 / seconds / 1e6,
        plan.flap
    ))?;
    split.check(1)
}

fn exchange(stage: &mut WayStage, plan: &Plan) -> anyhow::Result<()> {
    let to = stage.server();
    let listener = stage.sites().b.hosts[0].run(|| TcpListener::bind(to))?;
    let client = stage.sites().a.hosts[0].run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    let arrived = [AtomicU64::new(0), AtomicU64::new(0)];
    thread::scope(|scope| {
        let mut ways: Vec<ScopedJoinHandle<'_, anyhow::Result<()>>> = Vec::new();
        for (way, (from, to)) in [(&client, &server), (&server, &client)].into_iter().enumerate() {
            let arrived = &arrived[way];
            ways.push(scope.spawn(move || send(from, way as u64, plan.bytes)));
            ways.push(scope.spawn(move || compare(to, way as u64, plan.bytes, arrived)));
        }
        let wait_for = |share: f64| {
            let wanted = (plan.bytes as f64 * share) as u64;
            while arrived.iter().any(|bytes| bytes.load(Ordering::Relaxed) < wanted)
                && !ways.iter().any(ScopedJoinHandle::is_finished)
            {
                if stop::is_requested() {
                    // Ends the reads and writes, whose errors end the threads.
                    let _ = client.shutdown(Shutdown::Both).and(server.shutdown(Shutdown::Both));
                    return;
                }
                thread::sleep(LOOK);
            }
        };
        wait_for(0.25);
        lose(stage, &LossModel::Uniform(1.0));
        // If a stop is requested, the next wait ends the exchange.
        let _ = stop::pause(Duration::from_secs(plan.flap));
        lose(stage, &plan.loss);
        wait_for(0.5);
        let reloaded = stage.reload(0);
        wait_for(1.0);
        for way in ways {
            way.join().map_err(|_| anyhow::anyhow!("a thread of the exchange panicked"))??;
        }
        reloaded
    })
}

fn lose(stage: &WayStage, loss: &LossModel) {
    for direction in Direction::BOTH {
        stage.sites().link.set_loss(direction, loss);
    }
}

fn send(mut stream: &TcpStream, seed: u64, bytes: u64) -> anyhow::Result<()> {
    let (mut content, mut piece, mut sent) = (Content::new(seed), vec![0; PIECE], 0);
    while sent < bytes {
        let length = (bytes - sent).min(PIECE as u64) as usize;
        content.fill(&mut piece);
        stream.write_all(&piece[..length]).with_context(|| format!("cannot send after {sent} bytes"))?;
        sent += length as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(())
}

fn compare(mut stream: &TcpStream, seed: u64, bytes: u64, arrived: &AtomicU64) -> anyhow::Result<()> {
    let (mut content, mut piece, mut seen) = (Content::new(seed), vec![0; PIECE], vec![0; PIECE]);
    let mut compared = 0;
    while compared < bytes {
        let length = (bytes - compared).min(PIECE as u64) as usize;
        content.fill(&mut piece);
        let read = stream.read_exact(&mut seen[..length]);
        read.with_context(|| format!("cannot receive after {compared} bytes"))?;
        ensure!(seen[..length] == piece[..length], "other bytes arrived than were sent, after {compared}");
        compared += length as u64;
        arrived.store(compared, Ordering::Relaxed);
    }
    ensure!(stream.read(&mut seen)? == 0, "expected the end after {bytes} bytes, saw more");
    Ok(())
}

/// Random bytes that follow from a seed (splitmix64).
struct Content(u64);

impl Content {
    fn new(seed: u64) -> Self {
        Self(seed << 32)
    }

    fn fill(&mut self, piece: &mut [u8]) {
        for word in piece.chunks_exact_mut(8) {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = self.0;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word.copy_from_slice(&(x ^ (x >> 31)).to_le_bytes());
        }
    }
}
