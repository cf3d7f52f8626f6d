//! Thread of one direction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netio::coalesce::Coalescer;
use netio::identification::Identifications;
use netio::poll::{Interest, Poller, precise_timeouts};
use netio::tun::{BUFFER_LEN, Tun};
use netio::{Offload, segment};

use super::control::{Control, DirectionCounters};
use crate::clock;
use crate::direction::Direction;
use crate::drop_log::{DropRecord, DropSink, packet_hash, payload_number};
use crate::middlebox::{Exits, MiddleBox};
use crate::process::become_urgent;
use simnet::link::Link;

/// Maximum number of packets or super-packets read before those due are written, so that a flood one way
/// cannot delay them.
const READS_MAX: usize = 32;
/// Delay behind the due time, in microseconds, from which on a packet counts as late.
const LATE_US: u64 = 2_000;
const TUN_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;

/// One direction: reads at one end and writes at the other.
pub(super) struct Worker {
    input: Input,
    link: Link,
    output: Output,
    control: Arc<Control>,
    poller: Poller,
    pace: Pace,
}

/// Limits how often the thread wakes: a few times without delay, in the long run once per interval. So a rare
/// packet passes without delay, and a stream of packets is handled in batches.
struct Pace {
    interval_us: u64,
    /// Time at which the budget covers all past wake-ups.
    paid_us: u64,
}

/// Near end: device, drop log and scratch space.
struct Input {
    tun: Arc<Tun>,
    direction: Direction,
    log: Option<DropSink>,
    buffer: Box<[u8]>,
    scratch: Box<[u8]>,
    ids: Identifications,
    uncut: u64,
    middle_box: Option<MiddleBox>,
}

/// Far end.
struct Output {
    tun: Arc<Tun>,
    coalescer: Option<Coalescer>,
    refused: u64,
    late: u64,
}

impl Worker {
    pub(super) fn new(
        direction: Direction,
        link: Link,
        [from, to]: [Arc<Tun>; 2],
        control: Arc<Control>,
        log: Option<DropSink>,
        granularity_us: u64,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&*from, TUN_TOKEN, Interest::Readable)?;
        poller.add(control.wake(), WAKE_TOKEN, Interest::Readable)?;
        let space = || vec![0; BUFFER_LEN].into_boxed_slice();
        // A link keeps the order of packets of all flows.
        let coalescer = to.takes_tcp_segments().then(|| Coalescer::new(to.takes_udp_segments()).in_order());
        Ok(Self {
            input: Input {
                tun: from,
                direction,
                log,
                buffer: space(),
                scratch: space(),
                ids: Identifications::new(),
                uncut: 0,
                middle_box: None,
            },
            link,
            output: Output { tun: to, coalescer, refused: 0, late: 0 },
            control,
            poller,
            pace: Pace { interval_us: granularity_us, paid_us: 0 },
        })
    }

    /// Runs until it is stopped, before all usual threads if it `is_urgent` and may.
    pub(super) fn run(mut self, is_urgent: bool) -> io::Result<()> {
        precise_timeouts()?;
        if is_urgent {
            // Without the right to it, packets may be late on a busy machine, which is counted.
            let _ = become_urgent();
        }
        loop {
            self.control.apply(&mut self.link, &mut self.input.middle_box);
            let read = self.input.read(&mut self.link)?;
            let delivered = self.output.write(&mut self.link)?;
            self.publish();
            if self.control.is_stopped() {
                return Ok(());
            }
            if read < READS_MAX {
                self.wait(read + delivered > 0)?;
            }
        }
    }

    /// Waits until a packet arrives, one is due, or another thread calls.
    fn wait(&mut self, was_busy: bool) -> io::Result<()> {
        let now_us = clock::now_us();
        if was_busy && let Some(pause) = self.pace.pause(now_us) {
            std::thread::sleep(pause);
            return Ok(());
        }
        let until_due = self.link.next_due_us().map(|due| Duration::from_micros(due.saturating_sub(now_us)));
        if until_due == Some(Duration::ZERO) {
            return Ok(());
        }
        let woken = self.poller.wait(until_due)?.any(|ready| ready.token == WAKE_TOKEN);
        if woken {
            // The read only clears the descriptor; an error means that it is clear already.
            let _ = self.control.wake().read();
        }
        Ok(())
    }

    fn publish(&self) {
        self.control.publish(&DirectionCounters {
            link: *self.link.counters(),
            uncut: self.input.uncut,
            refused: self.output.refused,
            late: self.output.late,
            device_drops: 0,
            cpu_us: clock::thread_cpu_us(),
        });
    }
}

impl Pace {
    /// Number of wake-ups that may follow each other without delay.
    const FREE: u64 = 4;

    /// Counts a busy turn and returns how long to sleep before the next, whatever arrives.
    fn pause(&mut self, now_us: u64) -> Option<Duration> {
        self.paid_us = self.paid_us.max(now_us) + self.interval_us;
        let pause_us = self.paid_us.saturating_sub(now_us + Self::FREE * self.interval_us);
        (pause_us > 0).then(|| Duration::from_micros(pause_us))
    }
}

impl Input {
    /// Reads packets from the kernel, up to a bound, and returns the number of reads.
    fn read(&mut self, link: &mut Link) -> io::Result<usize> {
        for count in 0..READS_MAX {
            let (mut offload, packet) = match self.tun.recv(&mut self.buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(count),
                // The device is down or gone; while it is down, nothing can be read.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => {
                    return Ok(count);
                }
                Err(error) => return Err(error),
            };
            self.ids.note(packet, &mut offload);
            let now_us = clock::now_us();
            let (direction, log, back) = (self.direction, &self.log, &*self.tun);
            let mut offer = |packet: &[u8]| {
                let fate = link.offer(now_us, packet);
                if let (true, Some(log)) = (fate.is_loss(), log) {
                    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
                    log.record(DropRecord {
                        time_us: now_us,
                        direction,
                        fate,
                        length,
                        hash: packet_hash(packet),
                        number: payload_number(packet),
                    });
                }
            };
            let middle_box = &mut self.middle_box;
            let cut = segment::cut(packet, &offload, &mut self.scratch, |packet| match middle_box {
                Some(handle) => handle(packet, &mut Exits { forward: &mut offer, back }),
                None => offer(packet),
            });
            self.uncut += u64::from(cut.is_err());
        }
        Ok(READS_MAX)
    }
}

impl Output {
    /// Writes the packets that are due and returns their number.
    fn write(&mut self, link: &mut Link) -> io::Result<usize> {
        let Some(due_us) = link.next_due_us() else { return Ok(0) };
        let Self { tun, coalescer, refused, late } = self;
        let mut failure = None;
        let mut put = |offload: &Offload, packet: &[u8]| {
            let written = if offload.is_super() {
                tun.send_super(offload, &[io::IoSlice::new(packet)])
            } else {
                tun.send(packet)
            };
            match written {
                Ok(true) => {}
                Ok(false) => *refused += 1,
                Err(error) if is_about_the_packet(&error) => *refused += 1,
                Err(error) => failure = Some(error),
            }
        };
        let now_us = clock::now_us();
        let count = match coalescer {
            Some(coalescer) => {
                let count = link.deliver(now_us, |arrival| coalescer.push(arrival.packet, &mut put));
                coalescer.flush(&mut put);
                count
            }
            None => link.deliver(now_us, |arrival| put(&Offload::default(), arrival.packet)),
        };
        if now_us > due_us + LATE_US {
            *late += count as u64;
        }
        failure.map_or(Ok(count), Err)
    }
}

/// Returns whether an error concerns one packet, or a device that may come up again; the link continues.
fn is_about_the_packet(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let codes = [Errno::EIO, Errno::EINVAL, Errno::ENOBUFS, Errno::ENOMEM, Errno::EMSGSIZE];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|&known| known as i32 == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_packets_pass_at_once_and_frequent_ones_once_per_interval() {
        let mut pace = Pace { interval_us: 100, paid_us: 0 };
        assert!((1..100).all(|turn| pace.pause(turn * 200).is_none()));
        let (mut now_us, mut turns) = (1_000_000, 0);
        while now_us < 2_000_000 {
            turns += 1;
            now_us += 5 + pace.pause(now_us).map_or(0, |pause| u64::try_from(pause.as_micros()).unwrap());
        }
        assert!((9_900..10_100).contains(&turns), "{turns}");
    }

    #[test]
    fn without_an_interval_there_is_no_pause() {
        let mut pace = Pace { interval_us: 0, paid_us: 0 };
        assert!((0..100).all(|_| pace.pause(7).is_none()));
    }
}
