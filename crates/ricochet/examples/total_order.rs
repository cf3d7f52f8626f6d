//! Measures total order: latency beside FIFO's, messages per second, and the time until others go on.
//!
//! ```sh
//! cargo run --release -p ricochet --example total_order [safe]
//! ```
//!
//! Four nodes on this machine keep a group in total order. A fifth one sends. At last the sequencer leaves,
//! and the others go on without it.

use std::thread;
use std::time::{Duration, Instant};

use ricochet::{JoinOptions, Node, Order, Subscription};

/// Number of members.
const MEMBERS: usize = 4;
/// Messages whose latency is measured, one every millisecond.
const PACED: u32 = 2_000;
/// Messages that are sent without a pause.
const FAST: u32 = 100_000;
/// Time for which a message is awaited.
const PATIENCE: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns the latencies of messages to a group, sorted, of the last member that got each.
#[expect(clippy::disallowed_methods, reason = "no core: the example measures real time")]
fn latencies(sender: &Node, group: &str, members: &[Subscription]) -> Result<Vec<Duration>, Failure> {
    let mut all = Vec::new();
    for _ in 0..PACED {
        let start = Instant::now();
        sender.send(group, b"a message of 32 bytes, as it were")?;
        for member in members {
            member.recv_timeout(PATIENCE)?;
        }
        all.push(start.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    all.sort_unstable();
    Ok(all)
}

fn print(what: &str, latencies: &[Duration]) {
    let at = |share: usize| latencies[(latencies.len() - 1) * share / 1_000].as_secs_f64() * 1e6;
    println!("{what}: p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs", at(500), at(990), at(999));
}

#[expect(clippy::disallowed_methods, reason = "no core: the example measures real time")]
fn main() -> Result<(), Failure> {
    let order = if std::env::args().any(|arg| arg == "safe") { Order::TotalSafe } else { Order::Total };
    let here = || Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    let mut nodes: Vec<Node> = Vec::new();
    let (mut ordered, mut fifo) = (Vec::new(), Vec::new());
    for _ in 0..MEMBERS {
        let node = match nodes.first() {
            Some(first) => here().seed(first.address().to_string()).start()?,
            None => here().start()?,
        };
        let options = |order| JoinOptions { order, queue: Some(1 << 20), ..JoinOptions::default() };
        ordered.push(node.join_with("ordered", &options(order))?);
        fifo.push(node.join_with("fifo", &options(Order::Fifo))?);
        nodes.push(node);
        // The first one begins the order.
        thread::sleep(Duration::from_secs(1));
    }
    let sender = here().seed(nodes[1].address().to_string()).start()?;
    if !sender.wait_for_members("ordered", MEMBERS, PATIENCE) {
        return Err("expected the members to find each other, saw fewer".into());
    }
    print("fifo", &latencies(&sender, "fifo", &fifo)?);
    print("total", &latencies(&sender, "ordered", &ordered)?);
    let start = Instant::now();
    thread::scope(|scope| {
        let readers: Vec<_> = ordered
            .iter()
            .map(|member| scope.spawn(|| (0..FAST).try_for_each(|_| member.recv_timeout(PATIENCE).map(drop))))
            .collect();
        (0..FAST).try_for_each(|_| sender.send("ordered", &[7; 64]).map(drop))?;
        for reader in readers {
            reader.join().map_err(|_| "expected a thread that receives, saw it fail")??;
        }
        Ok::<(), Failure>(())
    })?;
    println!("{:.0} messages per second", f64::from(FAST) / start.elapsed().as_secs_f64());
    let start = Instant::now();
    drop((ordered.remove(0), nodes.remove(0)));
    sender.send("ordered", b"the first one after it")?;
    for member in &ordered {
        member.recv_timeout(PATIENCE)?;
    }
    println!(
        "others went on {:.1} ms after the sequencer began to leave",
        start.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
