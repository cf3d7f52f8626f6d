//! Compares the two kinds of tap, and no tap, in one run: delay from sending to capture, packets per second,
//! processor time per packet.
//!
//! `cargo run --release -p netio --example tap_bench [SECONDS_PER_ROUND] [ROUNDS]`, as root (namespaces).
//!
//! "each" is with `wake_us: 0`: every packet wakes the reader. Rounds of the kinds alternate, so that other
//! work of the machine affects all of them. Everything runs over a cable (veth) between two namespaces. The
//! tap is at the sender's end and cuts its captures into wire packets, like a gateway.

#![allow(clippy::disallowed_methods, reason = "measuring is reading the clock")]

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netio::poll::{Interest, Poller, precise_timeouts};
use netio::segment::cut;
use netio::tap::{Tap, TapConfig, TapKind, WAKE_US};
use netlab::Namespace;
use netlab::traffic::{Between, TcpTransfer, tcp_transfer, unwatched};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};

const PAYLOAD: usize = 1272;

/// A kind of tap and its waking period.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    kind: TapKind,
    wake_us: u32,
}

const VARIANTS: [Option<Variant>; 5] = [
    None,
    Some(Variant { name: "ebpf", kind: TapKind::Ebpf, wake_us: WAKE_US }),
    Some(Variant { name: "ebpf, each", kind: TapKind::Ebpf, wake_us: 0 }),
    Some(Variant { name: "packet", kind: TapKind::Packet, wake_us: WAKE_US }),
    Some(Variant { name: "packet, each", kind: TapKind::Packet, wake_us: 0 }),
];
/// Captured packets per drain, as in a gateway.
const BUDGET: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<f64>());
    let seconds = arguments.next().transpose()?.unwrap_or(1.0);
    let rounds = arguments.next().transpose()?.unwrap_or(5.0) as usize;
    let bench = Bench::build(Duration::from_secs_f64(seconds))?;
    println!(
        "{rounds} rounds of {seconds} s each; times in microseconds, processor time in nanoseconds a packet"
    );
    for variant in VARIANTS.into_iter().flatten().filter(|variant| variant.wake_us > 0) {
        let start = now_ns();
        let tap = bench.open(Some(variant))?;
        let opened = now_ns();
        drop(tap);
        let [open, close] = [opened - start, now_ns() - opened].map(|ns| ns as f64 / 1e6);
        println!("{}: opened in {open:.1} ms, closed in {close:.1} ms", variant.name);
    }
    for rate in [200.0, 1_000.0, 20_000.0, 80_000.0] {
        println!("\ndelay of {PAYLOAD}-byte UDP at {rate} packets/s");
        println!(
            "{:>12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "tap", "p50", "p90", "p99", "p99.9", "max", "cpu tap"
        );
        bench.all(
            rounds,
            |variant| variant.map(|variant| bench.udp(Some(variant), Some(rate))),
            Outcome::print_delay,
        )?;
    }
    println!("\nUDP at full speed, {PAYLOAD} bytes, one system call per packet");
    heading();
    bench.all(rounds, |variant| Some(bench.udp(variant, None)), Outcome::print_rate)?;
    println!("\nTCP at full speed, in super-packets; counted in wire packets of 1300 bytes");
    heading();
    bench.all(rounds, |variant| Some(bench.tcp(variant)), Outcome::print_rate)
}

fn heading() {
    println!(
        "{:>12} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10}",
        "tap", "sent/s", "captured/s", "lost", "cpu tap", "cpu sender", "cpu all"
    );
}

/// Sum of the rounds of one kind.
#[derive(Default)]
struct Outcome {
    delays_ns: Vec<u64>,
    seconds: f64,
    sent: u64,
    captured: u64,
    lost: u64,
    tap_cpu_ns: u64,
    sender_cpu_ns: u64,
    all_cpu_ns: u64,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.delays_ns.extend(other.delays_ns);
        self.seconds += other.seconds;
        for (sum, more) in [
            (&mut self.sent, other.sent),
            (&mut self.captured, other.captured),
            (&mut self.lost, other.lost),
            (&mut self.tap_cpu_ns, other.tap_cpu_ns),
            (&mut self.sender_cpu_ns, other.sender_cpu_ns),
            (&mut self.all_cpu_ns, other.all_cpu_ns),
        ] {
            *sum += more;
        }
    }

    fn print_delay(&mut self, name: &str) {
        self.delays_ns.sort_unstable();
        let Some(last) = self.delays_ns.len().checked_sub(1) else { return println!("{name:>12} nothing") };
        let at = |share: f64| self.delays_ns[(last as f64 * share) as usize] as f64 / 1e3;
        let cpu = self.tap_cpu_ns / self.captured.max(1);
        let [p50, p90, p99, p999, max] = [0.5, 0.9, 0.99, 0.999, 1.0].map(at);
        println!("{name:>12} {p50:>9.1} {p90:>9.1} {p99:>9.1} {p999:>9.1} {max:>9.1} {cpu:>9}");
    }

    fn print_rate(&mut self, name: &str) {
        let second = |count: u64| count as f64 / self.seconds;
        let each = |nanoseconds: u64, count: u64| nanoseconds / count.max(1);
        println!(
            "{name:>12} {:>12.0} {:>12.0} {:>10} {:>10} {:>10} {:>10}",
            second(self.sent),
            second(self.captured),
            self.lost,
            each(self.tap_cpu_ns, self.captured),
            each(self.sender_cpu_ns, self.sent),
            each(self.all_cpu_ns, self.sent),
        );
    }
}

type Result1<T> = Result<T, Box<dyn std::error::Error>>;

/// Two namespaces joined by a cable.
struct Bench {
    near: Namespace,
    far: Namespace,
    duration: Duration,
}

impl Bench {
    fn build(duration: Duration) -> Result1<Self> {
        let (near, far) = (Namespace::create("near")?, Namespace::create("far")?);
        near.add_veth("eth0", &far, "eth0", 1300)?;
        near.add_address("eth0", "10.9.0.1/24".parse()?)?;
        far.add_address("eth0", "10.9.0.2/24".parse()?)?;
        Ok(Self { near, far, duration })
    }

    fn all(
        &self,
        rounds: usize,
        measure: impl Fn(Option<Variant>) -> Option<Result1<Outcome>>,
        print: impl Fn(&mut Outcome, &str),
    ) -> Result1<()> {
        let mut outcomes = VARIANTS.map(|variant| (variant, None));
        for _ in 0..rounds {
            for (variant, sum) in &mut outcomes {
                if let Some(outcome) = measure(*variant) {
                    sum.get_or_insert_with(Outcome::default).add(outcome?);
                }
            }
        }
        for (variant, sum) in outcomes {
            if let Some(mut sum) = sum {
                print(&mut sum, variant.map_or("none", |variant| variant.name));
            }
        }
        Ok(())
    }

    fn open(&self, variant: Option<Variant>) -> Result1<Option<Tap>> {
        let Some(Variant { kind, wake_us, .. }) = variant else { return Ok(None) };
        let network = vec!["10.9.0.2/32".parse()?];
        let config = TapConfig {
            interface: "eth0".to_owned(),
            outgoing_to: network.clone(),
            incoming_from: network,
            kind,
            wake_us,
            ..TapConfig::default()
        };
        Ok(Some(self.near.run(|| Tap::open(&config))?))
    }

    /// Runs `traffic` beside a thread that drains the tap. `traffic` returns packets sent and its own
    /// processor time.
    fn beside(
        &self,
        variant: Option<Variant>,
        traffic: impl FnOnce() -> Result1<(u64, u64)>,
    ) -> Result1<Outcome> {
        let mut tap = self.open(variant)?;
        let stop = AtomicBool::new(false);
        let (start, all_before) = (now_ns(), cpu_ns(UsageWho::RUSAGE_SELF));
        let mut outcome = std::thread::scope(|scope| {
            let draining = scope.spawn(|| tap.as_mut().map_or(Outcome::default(), |tap| drain(tap, &stop)));
            let sent = traffic();
            stop.store(true, Ordering::Relaxed);
            let mut outcome = draining.join().expect("the draining thread does not panic");
            (outcome.sent, outcome.sender_cpu_ns) = sent?;
            Ok::<_, Box<dyn std::error::Error>>(outcome)
        })?;
        outcome.seconds = (now_ns() - start) as f64 / 1e9;
        outcome.all_cpu_ns = cpu_ns(UsageWho::RUSAGE_SELF) - all_before;
        outcome.lost = tap.map_or(0, |tap| tap.dropped());
        Ok(outcome)
    }

    fn udp(&self, variant: Option<Variant>, rate: Option<f64>) -> Result1<Outcome> {
        let sink = self.far.run(|| UdpSocket::bind("10.9.0.2:0"))?;
        let socket = self.near.run(|| UdpSocket::bind("10.9.0.1:0"))?;
        socket.connect(sink.local_addr()?)?;
        let end = self.duration.as_nanos() as u64;
        self.beside(variant, || {
            let before = cpu_ns(UsageWho::RUSAGE_THREAD);
            let mut payload = [0; PAYLOAD];
            let mut poller = Poller::new()?;
            precise_timeouts()?;
            let start = now_ns();
            let mut sent = 0;
            while now_ns() - start < end {
                if let Some(rate) = rate {
                    let due = start + (sent as f64 * 1e9 / rate) as u64;
                    while let wait @ 1.. = due.saturating_sub(now_ns()) {
                        poller.wait(Some(Duration::from_nanos(wait)))?.for_each(drop);
                    }
                }
                payload[..8].copy_from_slice(&now_ns().to_ne_bytes());
                socket.send(&payload)?;
                sent += 1;
            }
            Ok((sent, cpu_ns(UsageWho::RUSAGE_THREAD) - before))
        })
    }

    fn tcp(&self, variant: Option<Variant>) -> Result1<Outcome> {
        let address: IpAddr = "10.9.0.2".parse()?;
        let between = Between { from: &self.near, to: &self.far, address };
        let plan = TcpTransfer {
            congestion: Some("cubic".to_owned()),
            duration: self.duration,
            verify: false,
            ..TcpTransfer::default()
        };
        self.beside(variant, || {
            let report = tcp_transfer(between, &plan, &mut unwatched)?;
            Ok((report.forward.received_bytes() / 1248, 0))
        })
    }
}

/// Drains the tap and cuts its captures, with the waiting of a gateway, until `stop` is set.
fn drain(tap: &mut Tap, stop: &AtomicBool) -> Outcome {
    let mut outcome = Outcome::default();
    let mut scratch = vec![0; 65_536];
    let mut poller = Poller::new().expect("an epoll set");
    poller.add(tap, 1, Interest::Readable).expect("a descriptor to watch");
    let before = cpu_ns(UsageWho::RUSAGE_THREAD);
    loop {
        let ended = stop.load(Ordering::Relaxed);
        let wait = Duration::from_millis(if ended { 0 } else { 20 });
        poller.wait(Some(wait)).expect("to wait").for_each(drop);
        let mut now = 0;
        let drained = tap.drain(BUDGET, |captured| {
            let _ = cut(captured.packet, &captured.offload, &mut scratch, |packet| {
                outcome.captured += 1;
                // packets with our sender's time stamp are the only single ones of this size
                if packet.len() == PAYLOAD + 28 && packet[9] == 17 {
                    if now == 0 {
                        now = now_ns();
                    }
                    let stamp = u64::from_ne_bytes(*packet[28..].first_chunk().expect("a payload"));
                    outcome.delays_ns.push(now.saturating_sub(stamp));
                }
            });
        });
        if !drained.expect("to drain").more && ended {
            break;
        }
    }
    outcome.tap_cpu_ns = cpu_ns(UsageWho::RUSAGE_THREAD) - before;
    outcome
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    Duration::from(now).as_nanos() as u64
}

fn cpu_ns(who: UsageWho) -> u64 {
    let usage = getrusage(who).expect("Linux counts processor time");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    micros.unsigned_abs() * 1000
}
