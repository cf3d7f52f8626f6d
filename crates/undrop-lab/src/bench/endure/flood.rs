//! A flood of first packets (SYN) from a host of the near site, and what other connections notice of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use maelstrom::status::Status;
use netlab::Namespace;
use socket2::{Domain, Socket, Type};
use stage::gateways::WayStage;
use undrop::output;

use super::crowd::{SHORT, listen};
use super::{Plan, cpu_s, statuses};
use crate::bench::{rig, stop};

/// Length of the flood.
const LENGTH: Duration = Duration::from_secs(15);
/// Interval between the packets that are sent together.
const BEAT: Duration = Duration::from_millis(1);
/// Interval between connections of another program.
const EVERY: Duration = Duration::from_millis(100);
/// Longest time of such a connection, and longest wait for split mode afterwards.
const PATIENCE: Duration = Duration::from_secs(20);
/// Port that is not split.
const UNSPLIT: u16 = 9_000;
/// IPPROTO_RAW: the packet has its header.
const RAW: i32 = 255;

/// Outcome of a run.
struct Seen {
    sent: u64,
    seconds: f64,
    /// Times of connections to a port that is not split, in microseconds, and the number of those that
    /// failed.
    times_us: Vec<u64>,
    failed: usize,
    /// Memory of each gateway in bytes before, at most meanwhile, and afterwards.
    memory: [[u64; 2]; 3],
    cores: f64,
    /// Connections held when the flood was over, and the time until connections were split again.
    held: u64,
    again: Duration,
}

pub(super) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "| SYN/s for {} s | connections past the flood, failed | ms: median, 99 % | cores | MiB of each gateway before, meanwhile, after | held after | split again after, s |",
        LENGTH.as_secs()
    );
    println!("|--:|--:|--:|--:|---|--:|--:|");
    let mut seen = plan.measured(|| measure(program, plan))?;
    seen.times_us.sort_unstable();
    let ms = |share: f64| rig::quantile(&seen.times_us, share) as f64 / 1e3;
    output::line(&format!(
        "| {:.0} | {}, {} | {:.0}, {:.0} | {:.2} | {:?} | {} | {:.1} |",
        seen.sent as f64 / seen.seconds,
        seen.times_us.len() + seen.failed,
        seen.failed,
        ms(0.5),
        ms(0.99),
        seen.cores,
        seen.memory.map(|both| both.map(|bytes| bytes >> 20)),
        seen.held,
        seen.again.as_secs_f64()
    ))
}

fn measure(program: &Path, plan: &Plan) -> anyhow::Result<Seen> {
    let stage = plan.stage(program)?;
    let resident = || -> anyhow::Result<[u64; 2]> {
        let [near, far] = statuses(&stage)?;
        Ok([rig::resident_bytes(near.gateway.pid)?, rig::resident_bytes(far.gateway.pid)?])
    };
    let from = &stage.sites().a.hosts[0];
    let split = stage.server();
    let unsplit = SocketAddr::new(split.ip(), UNSPLIT);
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = resident()?;
    let before_s = cpu_s(&stage)?;
    let mut seen = thread::scope(|scope| -> anyhow::Result<Seen> {
        let _stop = Stop(&is_over);
        for to in [split, unsplit] {
            let listener = stage.sites().b.hosts[0].run(|| listen(to))?;
            let is_over = &is_over;
            scope.spawn(move || serve(&listener, is_over));
        }
        let begun = Instant::now();
        let flooding = scope.spawn(|| flood(from, split, plan.flood, &sent, &is_over));
        let (mut times_us, mut failed, mut most) = (Vec::new(), 0, before);
        while begun.elapsed() < LENGTH {
            match from.run(|| fetch(unsplit)) {
                Ok(time) => times_us.push(time.as_micros() as u64),
                Err(_) => failed += 1,
            }
            let now = resident()?;
            most = [0, 1].map(|side| most[side].max(now[side]));
            stop::pause(EVERY)?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let cores = (cpu_s(&stage)? - before_s) / seconds;
        is_over.store(true, Ordering::Relaxed);
        flooding.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
        let memory = [before, most, before];
        let sent = sent.load(Ordering::Relaxed);
        Ok(Seen { sent, seconds, times_us, failed, memory, cores, held: 0, again: Duration::ZERO })
    })?;
    let begun = Instant::now();
    seen.held = held(&stage)?;
    while !is_splitting(&stage)? {
        ensure!(begun.elapsed() < PATIENCE, "connections are not split again after {} s", PATIENCE.as_secs());
        stop::pause(EVERY)?;
    }
    seen.again = begun.elapsed();
    seen.memory[2] = resident()?;
    stage.close()?;
    Ok(seen)
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn near(stage: &WayStage) -> anyhow::Result<Status> {
    let [near, _] = statuses(stage)?;
    Ok(near)
}

fn held(stage: &WayStage) -> anyhow::Result<u64> {
    Ok(near(stage)?.split.context("expected split mode, saw none")?.connections)
}

fn is_splitting(stage: &WayStage) -> anyhow::Result<bool> {
    let split = near(stage)?.split.context("expected split mode, saw none")?;
    Ok(split.sites.iter().all(|site| site.is_splitting))
}

/// Sends first packets of connections from a made-up host of the site to `to`.
fn flood(
    from: &Namespace,
    to: SocketAddr,
    per_second: u64,
    sent: &AtomicU64,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let SocketAddr::V4(to) = to else { anyhow::bail!("expected a server with an IPv4 address, saw {to}") };
    let socket = from.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(RAW.into())))?;
    socket.set_nonblocking(true)?;
    let target = SocketAddr::from((*to.ip(), 0)).into();
    let begun = Instant::now();
    let mut number = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * per_second as f64) as u64;
        while number < due {
            number += 1;
            let packet = first_packet(Ipv4Addr::new(10, 81, 1, 99), *to.ip(), to.port(), number);
            // A full queue drops it.
            sent.fetch_add(u64::from(socket.send_to(&packet, &target).is_ok()), Ordering::Relaxed);
        }
        thread::sleep(BEAT);
    }
    Ok(())
}

/// A SYN with ports and a sequence number that follow from `number`.
fn first_packet(from: Ipv4Addr, to: Ipv4Addr, port: u16, number: u64) -> [u8; 40] {
    let mut packet = [0; 40];
    packet[..2].copy_from_slice(&[0x45, 0]);
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..22].copy_from_slice(&((1_024 + number % 60_000) as u16).to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..28].copy_from_slice(&(number as u32).wrapping_mul(0x9e37_79b1).to_be_bytes());
    packet[32..36].copy_from_slice(&[0x50, 2, 0xff, 0xff]);
    // The kernel fills the header's sum, and this is that of TCP (RFC 9293 §3.1).
    let words = packet[12..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>() + 6 + 20;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Answers each connection with [`SHORT`] bytes, one after the other.
fn serve(listener: &std::net::TcpListener, is_over: &AtomicBool) {
    let content = vec![0x5a; SHORT];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(BEAT);
            continue;
        };
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        // A client that has gone counts as failed at its end.
        let _ = stream.write_all(&content);
    }
}

fn fetch(from: SocketAddr) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&from, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut seen = Vec::new();
    stream.read_to_end(&mut seen)?;
    ensure!(seen.len() == SHORT, "expected {SHORT} bytes, saw {}", seen.len());
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_packets_have_the_sum_that_receivers_check() {
        let packet = first_packet(Ipv4Addr::new(10, 81, 1, 99), Ipv4Addr::new(10, 81, 2, 2), 8_080, 77);
        let words = packet[12..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum = words.sum::<u32>() + 26;
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
