//! Many connections at once, each with a steady rate, while short ones begin and end.
//!
//! Both ends of all connections share the processors with the gateways, so that they must cost little: a long
//! connection is served at every fifth turn, and no call waits.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use undrop::output;

use super::{Costs, Plan, costs, cpu_s, statuses};
use crate::bench::{rig, stop};

/// Bytes of the answer to a short connection.
pub(super) const SHORT: usize = 10_000;
/// Time after which a short connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// Interval between turns of both ends.
const TURN: Duration = Duration::from_millis(20);
/// Number of turns in which each long connection has one of its own.
const SHARES: usize = 5;
/// Number of connections that may wait for the server to accept them.
const BACKLOG: i32 = 4_096;
/// First byte of a client that wants bytes until it ends, and of one that wants [`SHORT`] bytes.
const WANTS: [u8; 2] = [b'L', b'S'];

/// Fates of the connections.
#[derive(Default)]
struct Fates {
    /// Bytes of each long connection after all had begun.
    long: Vec<u64>,
    long_lost: usize,
    /// Times of short connections in microseconds.
    short_us: Vec<u64>,
    short_lost: usize,
    seconds: f64,
    /// Bytes by which the memory of each gateway has grown with the connections.
    grown: [u64; 2],
}

pub(super) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "| connections | lost | bytes/s of each: mean (min–max) | short ones | lost | ms: median, 99 % | cores | processor ms for each connection and second | MiB of each gateway | KiB for each connection | taken, opened, floods |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|");
    let (fates, costs) = plan.measured(|| measure(program, plan))?;
    let Costs { cores, resident_mib, split, .. } = costs;
    let rates: Vec<f64> = fates.long.iter().map(|&bytes| bytes as f64 / fates.seconds).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let (_, least, most) = rig::spread(rates);
    let times = fates.short_us;
    let ms = |share: f64| rig::quantile(&times, share) as f64 / 1e3;
    output::line(&format!(
        "| {} | {} | {mean:.0} ({least:.0}–{most:.0}) | {} | {} | {:.0}, {:.0} | {cores:.2} | {:.3} | {resident_mib:?} | {:.1?} | {}, {}, {} |",
        fates.long.len(),
        fates.long_lost,
        times.len() + fates.short_lost,
        fates.short_lost,
        ms(0.5),
        ms(0.99),
        cores * 1e3 / plan.connections as f64,
        fates.grown.map(|bytes| bytes as f64 / 1024.0 / plan.connections as f64),
        split.taken,
        split.opened,
        split.floods
    ))?;
    split.check((plan.connections + times.len()) as u64)
}

/// Runs the connections. The processor time is that of the time in which all of them are open, short ones
/// included; the memory that of the processes alone, without the kernel's buffers of sockets.
fn measure(program: &Path, plan: &Plan) -> anyhow::Result<(Fates, Costs)> {
    let stage = plan.stage(program)?;
    let to = stage.server();
    let listener = stage.sites().b.hosts[0].run(|| listen(to))?;
    let is_over = AtomicBool::new(false);
    let resident = || -> anyhow::Result<[u64; 2]> {
        let [near, far] = statuses(&stage)?;
        Ok([rig::resident_bytes(near.gateway.pid)?, rig::resident_bytes(far.gateway.pid)?])
    };
    let before = resident()?;
    let (mut fates, before_s) = thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&listener, plan.each, &is_over));
        let mut crowd = Crowd::new(to, plan);
        let fates = stage.sites().a.hosts[0].run(|| -> anyhow::Result<(Fates, f64)> {
            crowd.begin_long()?;
            let before_s = cpu_s(&stage)?;
            crowd.begin_short()?;
            // The long ones are still open.
            let after = resident()?;
            let mut fates = crowd.end();
            fates.grown = [0, 1].map(|side| after[side].saturating_sub(before[side]));
            Ok((fates, before_s))
        });
        is_over.store(true, Ordering::Relaxed);
        serving.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
        fates
    })?;
    let costs = costs(&stage, before_s, fates.seconds)?;
    fates.short_us.sort_unstable();
    stage.close()?;
    Ok((fates, costs))
}

pub(super) fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A connection at the server.
struct Served {
    stream: TcpStream,
    since: Instant,
    sent: u64,
    /// Bytes that it gets; `None` as long as it has not said what it wants.
    wants: Option<u64>,
}

/// Serves all connections on one thread until told to end.
fn serve(listener: &TcpListener, each: u64, is_over: &AtomicBool) -> anyhow::Result<()> {
    let content = vec![0x5a; 1 << 16];
    let mut served: Vec<Served> = Vec::new();
    let mut turns = 0;
    while !is_over.load(Ordering::Relaxed) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    served.push(Served { stream, since: Instant::now(), sent: 0, wants: None });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot accept connections"),
            }
        }
        turns += 1;
        served.retain_mut(|one| {
            let is_off = one.wants == Some(u64::MAX) && !is_turn(one.stream.as_raw_fd() as usize, turns);
            is_off || one.turn(each, &content)
        });
        thread::sleep(TURN);
    }
    Ok(())
}

/// Returns whether a long connection has a turn of its own.
fn is_turn(number: usize, turns: usize) -> bool {
    (number + turns).is_multiple_of(SHARES)
}

impl Served {
    /// Sends what is due; returns whether the connection goes on.
    fn turn(&mut self, each: u64, content: &[u8]) -> bool {
        let wants = match self.wants {
            Some(wants) => wants,
            None => {
                let mut wish = [0];
                match self.stream.read(&mut wish) {
                    Ok(0) => return false,
                    Ok(_) => self.since = Instant::now(),
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
                let wants = if wish[0] == WANTS[0] { u64::MAX } else { SHORT as u64 };
                *self.wants.insert(wants)
            }
        };
        let paced = (self.since.elapsed().as_secs_f64() * each as f64) as u64;
        let due = if wants == u64::MAX { paced } else { wants };
        while self.sent < due {
            let length = (due - self.sent).min(content.len() as u64) as usize;
            match self.stream.write(&content[..length]) {
                Ok(bytes) => self.sent += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        // Dropping it ends a short connection.
        self.sent < wants
    }
}

/// A connection at the client.
struct Client {
    stream: TcpStream,
    begun: Instant,
    /// Byte that the server must be told as soon as the connection is open.
    wish: Option<u8>,
    bytes: u64,
}

/// State of a connection after a turn.
enum State {
    Open,
    Ended,
    Lost,
}

impl Client {
    fn begin(to: SocketAddr, wish: u8) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => return Err(error),
            _ => {}
        }
        Ok(Self { stream: socket.into(), begun: Instant::now(), wish: Some(wish), bytes: 0 })
    }

    fn turn(&mut self, buffer: &mut [u8]) -> State {
        if let Some(wish) = self.wish {
            match self.stream.write(&[wish]) {
                Ok(_) => self.wish = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.begun.elapsed() < PATIENCE => {
                    return State::Open;
                }
                Err(_) => return State::Lost,
            }
        }
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return State::Ended,
                Ok(bytes) => {
                    self.bytes += bytes as u64;
                    if bytes < buffer.len() && self.bytes != SHORT as u64 {
                        return State::Open;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return State::Open,
                Err(_) => return State::Lost,
            }
        }
    }
}

/// All connections of the clients.
struct Crowd<'a> {
    to: SocketAddr,
    plan: &'a Plan,
    buffer: Vec<u8>,
    long: Vec<Option<Client>>,
    turns: usize,
    fates: Fates,
}

impl<'a> Crowd<'a> {
    fn new(to: SocketAddr, plan: &'a Plan) -> Self {
        Self { to, plan, buffer: vec![0; 1 << 16], long: Vec::new(), turns: 0, fates: Fates::default() }
    }

    /// Opens the long connections at the pace of short ones.
    fn begin_long(&mut self) -> anyhow::Result<()> {
        let per_turn = (self.plan.fresh as f64 * TURN.as_secs_f64()).ceil().max(1.0) as usize;
        while self.long.len() < self.plan.connections {
            stop::check()?;
            for _ in 0..per_turn.min(self.plan.connections - self.long.len()) {
                let client = Client::begin(self.to, WANTS[0]).context("cannot begin a connection")?;
                self.long.push(Some(client));
            }
            self.turn_long();
            thread::sleep(TURN);
        }
        while self.long.iter().flatten().any(|client| client.wish.is_some()) {
            stop::check()?;
            self.turn_long();
            thread::sleep(TURN);
        }
        self.long.iter_mut().flatten().for_each(|client| client.bytes = 0);
        Ok(())
    }

    /// Begins short connections for the time of the plan, and waits for their ends.
    fn begin_short(&mut self) -> anyhow::Result<()> {
        let Self { to, plan, .. } = *self;
        let (begun, mut started, mut short) = (Instant::now(), 0, Vec::new());
        while begun.elapsed().as_secs() < plan.seconds || !short.is_empty() {
            stop::check()?;
            let elapsed_s = begun.elapsed().as_secs_f64().min(plan.seconds as f64);
            while started < (elapsed_s * plan.fresh as f64) as u64 {
                started += 1;
                match Client::begin(to, WANTS[1]) {
                    Ok(client) => short.push(client),
                    Err(_) => self.fates.short_lost += 1,
                }
            }
            self.turn_long();
            let Self { buffer, fates, .. } = self;
            short.retain_mut(|client: &mut Client| match client.turn(buffer) {
                State::Open if client.begun.elapsed() < PATIENCE => true,
                State::Ended if client.bytes == SHORT as u64 => {
                    fates.short_us.push(client.begun.elapsed().as_micros() as u64);
                    false
                }
                _ => {
                    fates.short_lost += 1;
                    false
                }
            });
            thread::sleep(TURN);
        }
        self.fates.seconds = begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Ends the long connections.
    fn end(self) -> Fates {
        let long = self.long.into_iter().flatten().map(|client| client.bytes).collect();
        Fates { long, ..self.fates }
    }

    fn turn_long(&mut self) {
        self.turns += 1;
        for (number, place) in self.long.iter_mut().enumerate() {
            if let Some(client) = place
                && (client.wish.is_some() || is_turn(number, self.turns))
                && !matches!(client.turn(&mut self.buffer), State::Open)
            {
                *place = None;
                self.fates.long_lost += 1;
            }
        }
    }
}
