//! The thread of one direction.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netio::coalesce::Coalescer;
use netio::poll::{Interest, Poller, precise_timeouts};
use netio::tun::{BUFFER_LEN, Tun};
use netio::{Offload, segment};

use super::Direction;
use super::control::{Control, DirectionCounters};
use crate::clock;
use crate::drop_log::{DropRecord, DropSink, packet_hash};
use crate::link::Link;

/// Packets or super-packets read before those that are due are written: a flood one way must not keep them waiting.
const READS_MAX: usize = 32;
const TUN_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;

/// One direction: reads at one end, writes at the other.
pub(super) struct Worker {
    input: Input,
    link: Link,
    output: Output,
    control: Arc<Control>,
    poller: Poller,
    granularity: Duration,
}

/// The near end: device, drop log and the space to cut in.
struct Input {
    tun: Arc<Tun>,
    direction: Direction,
    log: Option<DropSink>,
    buffer: Box<[u8]>,
    scratch: Box<[u8]>,
    uncut: u64,
}

/// The far end.
struct Output {
    tun: Arc<Tun>,
    coalescer: Option<Coalescer>,
    refused: u64,
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
        let coalescer = to.takes_tcp_segments().then(|| Coalescer::new(to.takes_udp_segments()));
        Ok(Self {
            input: Input { tun: from, direction, log, buffer: space(), scratch: space(), uncut: 0 },
            link,
            output: Output { tun: to, coalescer, refused: 0 },
            control,
            poller,
            granularity: Duration::from_micros(granularity_us),
        })
    }

    /// Works until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<()> {
        precise_timeouts()?;
        loop {
            self.control.apply(&mut self.link);
            let read = self.input.read(&mut self.link)?;
            let delivered = self.output.write(&mut self.link)?;
            self.publish();
            if self.control.is_stopped() {
                return Ok(());
            }
            if read == READS_MAX {
                continue;
            }
            if read + delivered > 0 && !self.granularity.is_zero() {
                // Whatever comes meanwhile is dealt with together; waking for each packet would cost more than it.
                std::thread::sleep(self.granularity);
            } else {
                self.wait()?;
            }
        }
    }

    /// Until a packet comes, one is due, or somebody wants something.
    fn wait(&mut self) -> io::Result<()> {
        let now_us = clock::now_us();
        let until_due = self.link.next_due_us().map(|due| Duration::from_micros(due.saturating_sub(now_us)));
        if until_due == Some(Duration::ZERO) {
            return Ok(());
        }
        let woken = self.poller.wait(until_due)?.any(|ready| ready.token == WAKE_TOKEN);
        if woken {
            // Only its being readable counts; an error means that it is not any more.
            let _ = self.control.wake().read();
        }
        Ok(())
    }

    fn publish(&self) {
        self.control.publish(&DirectionCounters {
            link: *self.link.counters(),
            uncut: self.input.uncut,
            refused: self.output.refused,
            device_drops: 0,
            cpu_us: clock::thread_cpu_us(),
        });
    }
}

impl Input {
    /// Takes in what the kernel has sent, up to a bound; returns how many reads there were.
    fn read(&mut self, link: &mut Link) -> io::Result<usize> {
        for count in 0..READS_MAX {
            let (offload, packet) = match self.tun.recv(&mut self.buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(count),
                // The device was taken down or away; while it is down nothing can be read.
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => {
                    return Ok(count);
                }
                Err(error) => return Err(error),
            };
            let now_us = clock::now_us();
            let (direction, log) = (self.direction, &self.log);
            let cut = segment::cut(packet, &offload, &mut self.scratch, |packet| {
                let fate = link.offer(now_us, packet);
                if let (true, Some(log)) = (fate.is_loss(), log) {
                    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
                    log.record(DropRecord {
                        time_us: now_us,
                        direction,
                        fate,
                        length,
                        hash: packet_hash(packet),
                    });
                }
            });
            self.uncut += u64::from(cut.is_err());
        }
        Ok(READS_MAX)
    }
}

impl Output {
    /// Writes what is due; returns how many packets were.
    fn write(&mut self, link: &mut Link) -> io::Result<usize> {
        if link.next_due_us().is_none() {
            return Ok(0);
        }
        let Self { tun, coalescer, refused } = self;
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
        failure.map_or(Ok(count), Err)
    }
}

/// Errors that concern one packet, or a device that may come up again; the link goes on.
fn is_about_the_packet(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let codes = [Errno::EIO, Errno::EINVAL, Errno::ENOBUFS, Errno::ENOMEM, Errno::EMSGSIZE];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|&known| known as i32 == code))
}
