//! Measures how soon a node that joins late has the last 10,000 messages while 1,000 a second go on.
//!
//! ```sh
//! cargo run --release -p ricochet --example late_joiner
//! ```

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ricochet::{Event, HistoryNews, JoinOptions, Node, Start};

/// Number of messages of the past.
const PAST: u32 = 10_000;
/// Number of bytes of a message.
const LENGTH: usize = 64;
/// Time between two messages during the join.
const INTERVAL: Duration = Duration::from_millis(1);
/// Time for which later messages are awaited.
const PATIENCE: Duration = Duration::from_secs(5);

/// Messages that the late node got.
#[derive(Default)]
struct Seen {
    numbers: HashSet<u32>,
    past: u64,
    doubles: u64,
    lost: u64,
}

impl Seen {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Message(message) => {
                let number = message.payload().first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.past += u64::from(message.is_past());
                self.doubles += u64::from(!self.numbers.insert(number));
            }
            Event::Lost(report) => self.lost += report.packets(),
            Event::History(_) | Event::Member(_) | Event::Group(_) | Event::Order(_) | Event::Registry(_) => {
            }
        }
    }

    /// Returns the number of messages between the first one that came and the number `end` that did not.
    fn missing(&self, end: u32) -> usize {
        let first = self.numbers.iter().min().copied().unwrap_or(0);
        (end - first) as usize - self.numbers.len()
    }
}

fn payload(number: u32) -> [u8; LENGTH] {
    let mut payload = [0; LENGTH];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

#[expect(clippy::disallowed_methods, reason = "no core: the example measures real time")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = || Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    let member = here().start()?;
    let roomy = JoinOptions { queue: Some(1 << 20), ..JoinOptions::default() };
    let kept = member.join_with("g", &roomy)?;
    let sending = here().seed(member.address().to_string()).start()?;
    if !sending.wait_for_members("g", 1, PATIENCE) {
        return Err("expected a member of the group, saw none".into());
    }
    let sender = sending.sender("g")?;
    for number in 0..PAST {
        sender.send(&payload(number))?;
    }
    while kept.len() < PAST as usize {
        thread::sleep(INTERVAL);
    }
    let late = here().seed(member.address().to_string()).start()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let on = scope.spawn(|| {
            let mut number = PAST;
            while !done.load(Ordering::SeqCst) {
                if sender.send(&payload(number)).is_err() {
                    break;
                }
                number += 1;
                thread::sleep(INTERVAL);
            }
            number
        });
        let start = Instant::now();
        let options = JoinOptions { from: Start::Last(PAST.into()), ..roomy };
        let subscription = late.join_with("g", &options)?;
        let mut seen = Seen::default();
        let mut caught_up = None;
        while caught_up.is_none() {
            let event = subscription.recv_event_timeout(PATIENCE)?;
            if matches!(&event, Event::History(history) if history.news() == HistoryNews::Ends) {
                caught_up = Some(start.elapsed());
            }
            seen.note(&event);
        }
        thread::sleep(Duration::from_secs(1));
        done.store(true, Ordering::SeqCst);
        let sent = on.join().map_err(|_| "expected a thread that sends, saw it fail")?;
        while !seen.numbers.contains(&(sent - 1)) || seen.missing(sent) > 0 {
            match subscription.recv_event_timeout(PATIENCE) {
                Ok(event) => seen.note(&event),
                Err(_) => break,
            }
        }
        let seconds = caught_up.unwrap_or_default().as_secs_f64();
        println!("{} messages of the past in {seconds:.3} s, {} in all", seen.past, seen.numbers.len());
        println!("doubles {}, missing {}, lost {}", seen.doubles, seen.missing(sent), seen.lost);
        Ok(())
    })
}
