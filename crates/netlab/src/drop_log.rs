//! Record of a link's losses: every packet that did not arrive as it was sent, in a CSV file.
//!
//! From packet path to file: `DropSink::record` puts a record into a bounded channel and never waits; a
//! thread of its own writes. Records that do not fit the channel are counted.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use xxhash_rust::xxh3::xxh3_64;

use crate::direction::Direction;
use simnet::link::Fate;

/// Maximum number of records that wait for the writer (32 bytes each).
const RECORDS_MAX: usize = 1 << 16;
const HEADER: &str = "time_us,direction,reason,length,hash,number";

/// One packet that did not arrive as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropRecord {
    /// CLOCK_MONOTONIC in microseconds when the link accepted the packet.
    pub time_us: u64,
    /// Direction of the packet.
    pub direction: Direction,
    /// Fate of the packet.
    pub fate: Fate,
    /// Length in bytes, from the IP header on.
    pub length: u16,
    /// [`packet_hash`] of the packet.
    pub hash: u64,
    /// [`payload_number`] of the packet.
    pub number: u64,
}

/// Returns the identifier of a packet in the log: XXH3-64 (seed 0) of all its bytes from the IP header on,
/// none masked.
pub fn packet_hash(packet: &[u8]) -> u64 {
    xxh3_64(packet)
}

/// Returns the first number in the payload of a UDP packet over IPv4; packets of
/// [`crate::traffic::udp_stream`] carry their sequence number there. Returns 0 for other packets and short
/// payloads.
pub fn payload_number(packet: &[u8]) -> u64 {
    const UDP: u8 = 17;
    const UDP_HEADER: usize = 8;
    let number = || {
        let (&first, protocol) = (packet.first()?, *packet.get(9)?);
        let payload = usize::from(first & 0xf) * 4 + UDP_HEADER;
        (first >> 4 == 4 && protocol == UDP).then(|| packet.get(payload..)?.first_chunk())?
    };
    number().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Writer's side. When it is dropped, all records are in the file.
#[derive(Debug)]
pub(crate) struct DropLog {
    sink: Option<DropSink>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

/// Packet path's side; clones write to the same file.
#[derive(Clone, Debug)]
pub(crate) struct DropSink {
    records: SyncSender<DropRecord>,
    missed: Arc<AtomicU64>,
}

impl DropLog {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{HEADER}")?;
        let (records, inbox) = sync_channel(RECORDS_MAX);
        let writer =
            thread::Builder::new().name("drop-log".to_owned()).spawn(move || write_all(&inbox, out))?;
        Ok(Self { sink: Some(DropSink { records, missed: Arc::default() }), writer: Some(writer) })
    }

    pub(crate) fn sink(&self) -> Option<DropSink> {
        self.sink.clone()
    }

    /// Returns the number of records that the file lacks.
    pub(crate) fn missed(&self) -> u64 {
        self.sink.as_ref().map_or(0, |sink| sink.missed.load(Ordering::Relaxed))
    }

    /// Completes the file. It waits until every sink is dropped.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        drop(self.sink.take());
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for DropLog {
    fn drop(&mut self) {
        // `finish` reports errors of writing.
        let _ = self.end();
    }
}

impl DropSink {
    pub(crate) fn record(&self, record: DropRecord) {
        if self.records.try_send(record).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(inbox: &Receiver<DropRecord>, mut out: BufWriter<File>) -> io::Result<()> {
    loop {
        let record = match inbox.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => return out.flush(),
            Err(TryRecvError::Empty) => {
                // Readers of the file see everything that has happened, whenever the link is idle.
                out.flush()?;
                match inbox.recv() {
                    Ok(record) => record,
                    Err(_) => return Ok(()),
                }
            }
        };
        let DropRecord { time_us, direction, fate, length, hash, number } = record;
        writeln!(out, "{time_us},{},{},{length},{hash:016x},{number}", direction.name(), fate.name())?;
    }
}

/// Reads a file that a link has written.
///
/// # Errors
/// If the file cannot be read; `InvalidData` with the line if a line is not a record.
pub fn read_drop_log(path: impl AsRef<Path>) -> io::Result<Vec<DropRecord>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines().enumerate();
    let wrong = |number: usize, line: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {}: expected {HEADER}, saw {line:?}", number + 1),
        )
    };
    match lines.next() {
        Some((_, HEADER)) => {}
        other => return Err(wrong(0, other.map_or("", |(_, line)| line))),
    }
    lines.map(|(number, line)| parse(line).ok_or_else(|| wrong(number, line))).collect()
}

fn parse(line: &str) -> Option<DropRecord> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    let record = DropRecord {
        time_us: next()?.parse().ok()?,
        direction: Direction::named(next()?)?,
        fate: Fate::named(next()?)?,
        length: next()?.parse().ok()?,
        hash: u64::from_str_radix(next()?, 16).ok()?,
        number: next()?.parse().ok()?,
    };
    next().is_none().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("netlab-{name}-{}.csv", std::process::id()))
    }

    #[test]
    fn records_are_read_back() {
        let path = temporary("drop-log");
        let log = DropLog::create(&path).unwrap();
        let records: Vec<DropRecord> = (0..1_000_u16)
            .map(|n| DropRecord {
                time_us: u64::from(n) * 3,
                direction: if n % 2 == 0 { Direction::AToB } else { Direction::BToA },
                fate: [Fate::Lost, Fate::QueueFull, Fate::Overflow, Fate::Corrupted][usize::from(n % 4)],
                length: n,
                hash: packet_hash(&n.to_be_bytes()),
                number: u64::from(n) << 40,
            })
            .collect();
        let sink = log.sink().unwrap();
        records.iter().for_each(|&record| sink.record(record));
        assert_eq!(log.missed(), 0);
        drop(sink);
        log.finish().unwrap();
        assert_eq!(read_drop_log(&path).unwrap(), records);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_number_of_a_packet_follows_its_headers() {
        let mut packet = [0; 40];
        (packet[0], packet[9]) = (0x45, 17);
        packet[28..36].copy_from_slice(&77_u64.to_be_bytes());
        assert_eq!(payload_number(&packet), 77);
        assert_eq!(payload_number(&packet[..35]), 0);
        packet[9] = 6;
        assert_eq!((payload_number(&packet), payload_number(&[])), (0, 0));
    }

    #[test]
    fn a_full_buffer_never_blocks_and_is_counted() {
        let (records, inbox) = sync_channel(2);
        let sink = DropSink { records, missed: Arc::default() };
        let record = DropRecord {
            time_us: 1,
            direction: Direction::AToB,
            fate: Fate::Lost,
            length: 1,
            hash: 1,
            number: 1,
        };
        (0..5).for_each(|_| sink.record(record));
        assert_eq!(sink.missed.load(Ordering::Relaxed), 3);
        assert_eq!(inbox.try_iter().count(), 2);
    }

    #[test]
    fn another_kind_of_file_is_refused_with_its_line() {
        let path = temporary("no-drop-log");
        for (text, needle) in
            [("", "line 1"), ("a,b\n", "line 1"), (&format!("{HEADER}\n1,x,lost,1,0,0\n"), "line 2")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read_drop_log(&path).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
