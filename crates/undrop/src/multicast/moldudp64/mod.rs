//! `undrop multicast moldudp64`: carries feeds in NASDAQ's MoldUDP64 over Ricochet, and hands out groups as
//! such feeds.
//!
//! | file | content |
//! |---|---|
//! | `packet.rs` | packets and requests, read and written |
//! | `reader.rs` | puts messages in order, and tells sessions apart |
//! | `sequence.rs` | the messages and gaps of one session |
//! | `frame.rs` | the place of a message in a feed, in the headers of a Ricochet message |
//! | `past.rs` | messages from the history of a group: how far a feed has come, and what handlers may request |
//! | `feed.rs` | a feed that is handed out: numbers, packets, and messages kept for requests |
//! | `hear.rs` | `in`: a feed becomes messages of a group |
//! | `hand_out.rs` | `out`: messages of a group become a feed |
//! | `server.rs` | answers requests for messages of that feed |
//! | `status.rs` | the reports of both |
//!
//! Loops are impossible: every `out` sends from one source port, and `in` carries nothing from that port.

mod feed;
mod frame;
#[cfg(test)]
mod fuzzed;
mod hand_out;
mod hear;
mod packet;
mod past;
mod reader;
mod sequence;
mod server;
mod status;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::packet::SessionId;

/// Interval between checks for a stop request.
const CHECK: Duration = Duration::from_millis(100);
/// Shortest wait of a loop.
const WAIT_MIN: Duration = Duration::from_micros(500);
/// Source port of feeds that are handed out.
const BRIDGE_PORT: u16 = 7913;

const EXAMPLES: &str = "\
Examples:
  undrop multicast moldudp64 in 233.54.12.111:26477 --local eth1 --group itch --interface eth0
  undrop multicast moldudp64 out 239.1.1.1:26477 --local lo --group itch --interface eth0 --seed 10.0.0.7:7900";

/// The two directions.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    In(hear::Args),
    Out(hand_out::Args),
}

/// Runs a direction.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::In(args) => hear::run(args),
        Command::Out(args) => hand_out::run(args),
    }
}

/// The time since the start, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "no core: packets come by the clock")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the time until `at_us`, within the bounds of a loop's wait.
    fn wait(self, at_us: Option<u64>) -> Duration {
        let wait = at_us.map(|at_us| Duration::from_micros(at_us.saturating_sub(self.now_us())));
        wait.map_or(CHECK, |wait| wait.clamp(WAIT_MIN, CHECK))
    }
}

/// Parses the name of a session, which is filled up with spaces.
fn session_id(text: &str) -> Result<SessionId, String> {
    let mut id = [b' '; 10];
    let is_name = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    match id.get_mut(..text.len()) {
        Some(front) if !text.trim().is_empty() && text.bytes().all(is_name) => {
            front.copy_from_slice(text.as_bytes());
            Ok(SessionId(id))
        }
        _ => Err(format!("expected a session, 1 to 10 letters and digits, saw {text:?}")),
    }
}

/// Returns a name of 10 random digits and letters, which no two sessions share, as good as certainly.
fn random_session() -> SessionId {
    // The standard library seeds each of these states from the kernel's random numbers.
    let mut number = RandomState::new().hash_one(0_u8);
    SessionId(std::array::from_fn(|_| {
        let digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(number % 36) as usize];
        number /= 36;
        digit
    }))
}

/// Returns a time in microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
