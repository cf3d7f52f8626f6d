//! Bytes of hosts that wait on disk, because the link takes them more slowly than the LAN brings them (Thesis
//! §3.3.8, send-side buffering).
//!
//! Each connection has a queue of segments. A segment is a file without a name, so that nothing of it is left
//! however the process ends, and its room on disk is free again as soon as it has been read.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::O_TMPFILE;
use tracing::{info, warn};

/// Number of segments into which the room on disk is divided. Each is an open file.
pub(crate) const SEGMENTS: u64 = 64;
/// Bytes that are taken from a host at once.
const CHUNK: usize = 128 << 10;
/// Time for which nothing is written after the disk has refused something, in microseconds.
const PAUSE_US: u64 = 1_000_000;

/// The room on disk for all connections.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    /// Bytes of all segments, also those that have been read already.
    used: Arc<AtomicU64>,
    /// Bytes that the disk has refused, and that are kept in memory.
    refused: Arc<AtomicU64>,
    chunk: Box<[u8]>,
    paused_until_us: u64,
    is_failing: bool,
    /// Bytes that were written so far.
    pub(super) written: u64,
    /// Times that the disk has refused something.
    pub(super) failures: u64,
}

/// The bytes of one connection that wait on disk.
#[derive(Debug, Default)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    /// Bytes that the disk refused. They follow those of the segments.
    rest: Refused,
}

/// Bytes that the disk has refused.
#[derive(Debug, Default)]
struct Refused {
    bytes: Vec<u8>,
    /// The sum of all connections, of which these are a part.
    sum: Arc<AtomicU64>,
}

/// A file without a name, written and read from its beginning to its end.
#[derive(Debug)]
struct Segment {
    file: File,
    written: u64,
    read: u64,
    used: Arc<AtomicU64>,
}

/// Result of a look at a host's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Bytes, which are kept.
    Bytes,
    /// No bytes at present.
    Nothing,
    /// No further bytes for ever.
    End,
    /// The socket was left alone: there is no room.
    Full,
}

impl Spool {
    /// Uses a directory for at most `bytes_max` bytes.
    ///
    /// # Errors
    /// The directory takes no file without a name.
    pub(super) fn open(directory: &Path, bytes_max: u64) -> io::Result<Self> {
        open_unnamed(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            bytes_max,
            used: Arc::default(),
            refused: Arc::default(),
            chunk: vec![0; CHUNK].into(),
            paused_until_us: 0,
            is_failing: false,
            written: 0,
            failures: 0,
        })
    }

    /// Bytes that may be on disk.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes on disk.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes bytes from a host to the end of its queue.
    ///
    /// # Errors
    /// Those of the host's socket. Bytes that the disk refuses are kept in memory, and nothing more is taken
    /// from any host until the disk has them.
    pub(super) fn take(&mut self, queue: &mut Queue, mut host: impl Read, now_us: u64) -> io::Result<Taken> {
        if now_us < self.paused_until_us || !self.has_room(queue) || !self.store_rest(queue, now_us) {
            return Ok(Taken::Full);
        }
        if self.refused.load(Ordering::Relaxed) > 0 {
            return Ok(Taken::Full);
        }
        let bytes = match host.read(&mut self.chunk) {
            Ok(0) => return Ok(Taken::End),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Taken::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Taken::Bytes),
            Err(error) => return Err(error),
        };
        let chunk = std::mem::take(&mut self.chunk);
        if !self.store(queue, &chunk[..bytes], now_us) {
            queue.rest = Refused::new(chunk[..bytes].to_vec(), &self.refused);
        }
        self.chunk = chunk;
        Ok(Taken::Bytes)
    }

    /// Writes what the disk has refused before, if it may take it by now.
    pub(super) fn retry(&mut self, queue: &mut Queue, now_us: u64) {
        if queue.has_rest() && now_us >= self.paused_until_us {
            self.store_rest(queue, now_us);
        }
    }

    /// Whether a connection may take more: at most as much as is left for the others.
    fn has_room(&self, queue: &Queue) -> bool {
        let free = self.bytes_max.saturating_sub(self.used());
        free >= CHUNK as u64 && queue.on_disk() < free
    }

    /// Writes what the disk has refused before. Returns whether nothing of it is left.
    fn store_rest(&mut self, queue: &mut Queue, now_us: u64) -> bool {
        let rest = std::mem::take(&mut queue.rest);
        if rest.bytes.is_empty() || self.store(queue, &rest.bytes, now_us) {
            return true;
        }
        queue.rest = rest;
        false
    }

    /// Writes bytes to the end of a queue, all or none. Returns whether the disk has taken them.
    fn store(&mut self, queue: &mut Queue, bytes: &[u8], now_us: u64) -> bool {
        let stored = self.write(queue, bytes);
        let has_failed = stored.is_err();
        if let Err(error) = stored {
            self.failures += 1;
            self.paused_until_us = now_us.saturating_add(PAUSE_US);
            if !self.is_failing {
                let directory = self.directory.display();
                warn!("cannot keep bytes of split connections in {directory}, so that hosts wait: {error}");
            }
        } else if self.is_failing {
            info!("bytes of split connections are kept in {} again", self.directory.display());
        }
        self.is_failing = has_failed;
        !has_failed
    }

    fn write(&mut self, queue: &mut Queue, bytes: &[u8]) -> io::Result<()> {
        let segment_bytes = self.bytes_max / SEGMENTS;
        let segment = match queue.segments.back_mut() {
            Some(segment) if segment.written < segment_bytes => segment,
            _ => {
                let file = open_unnamed(&self.directory)?;
                let used = Arc::clone(&self.used);
                queue.segments.push_back(Segment { file, written: 0, read: 0, used });
                queue.segments.back_mut().expect("it was added")
            }
        };
        // A part that was written before an error is written over.
        segment.file.write_all_at(bytes, segment.written)?;
        segment.written += bytes.len() as u64;
        self.used.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.written += bytes.len() as u64;
        Ok(())
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.rest.bytes.is_empty() && self.segments.iter().all(Segment::is_read)
    }

    /// Whether the disk has refused bytes of it.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.bytes.is_empty()
    }

    /// Takes the first bytes.
    ///
    /// # Errors
    /// The disk does not give back what it has taken.
    pub(super) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.forget_read();
        let Some(segment) = self.segments.front_mut() else {
            return Ok(self.rest.read(room));
        };
        let bytes = (segment.written - segment.read).min(room.len() as u64) as usize;
        segment.file.read_exact_at(&mut room[..bytes], segment.read)?;
        segment.read += bytes as u64;
        self.forget_read();
        Ok(bytes)
    }

    /// Gives the room of segments back that have been read.
    fn forget_read(&mut self) {
        while self.segments.front().is_some_and(Segment::is_read) {
            self.segments.pop_front();
        }
    }

    fn on_disk(&self) -> u64 {
        self.segments.iter().map(|segment| segment.written).sum()
    }
}

impl Refused {
    fn new(bytes: Vec<u8>, sum: &Arc<AtomicU64>) -> Self {
        sum.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Self { bytes, sum: Arc::clone(sum) }
    }

    fn read(&mut self, room: &mut [u8]) -> usize {
        let length = self.bytes.len().min(room.len());
        room[..length].copy_from_slice(&self.bytes[..length]);
        self.bytes.drain(..length);
        self.sum.fetch_sub(length as u64, Ordering::Relaxed);
        length
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl Segment {
    fn is_read(&self) -> bool {
        self.read == self.written
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.used.fetch_sub(self.written, Ordering::Relaxed);
    }
}

/// Makes a file without a name.
pub(crate) fn open_unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(O_TMPFILE).open(directory)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;

    use super::*;

    /// A directory of a test, removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("undrop-spool-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const LIMIT: u64 = 64 << 20;

    /// Bytes that differ from place to place.
    fn pattern(length: usize) -> Vec<u8> {
        (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn read_all(queue: &mut Queue) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), [0; 9_999]);
        while !queue.is_empty() {
            let bytes = queue.read(&mut room).unwrap();
            assert!(bytes > 0);
            all.extend_from_slice(&room[..bytes]);
        }
        all
    }

    #[test]
    fn bytes_come_back_in_order_and_their_room_is_free_again() {
        let directory = Directory::new("order");
        let mut spool = Spool::open(&directory.0, LIMIT).unwrap();
        let (sent, mut queue) = (pattern(9 << 20), Queue::default());
        let (mut host, mut read) = (&sent[..], Vec::new());
        let mut room = [0; 60_000];
        loop {
            match spool.take(&mut queue, &mut host, 0).unwrap() {
                Taken::Bytes => {}
                end => break assert_eq!(end, Taken::End),
            }
            let bytes = queue.read(&mut room).unwrap();
            read.extend_from_slice(&room[..bytes]);
        }
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0, "files have no names");
        assert!(spool.used() < sent.len() as u64, "segments that were read are gone");
        read.extend(read_all(&mut queue));
        assert!(read == sent);
        assert_eq!((spool.used(), spool.written), (0, sent.len() as u64));
    }

    #[test]
    fn a_connection_takes_at_most_as_much_as_it_leaves_for_others() {
        let directory = Directory::new("share");
        let mut spool = Spool::open(&directory.0, LIMIT).unwrap();
        let fill = |spool: &mut Spool| {
            let mut queue = Queue::default();
            while spool.take(&mut queue, io::repeat(7), 0).unwrap() == Taken::Bytes {}
            queue
        };
        let first = fill(&mut spool);
        assert!((LIMIT / 2..=LIMIT / 2 + CHUNK as u64).contains(&first.on_disk()));
        let second = fill(&mut spool);
        assert!(second.on_disk() > LIMIT / 5 && spool.used() < LIMIT);
        drop(first);
        assert_eq!(spool.used(), second.on_disk(), "a connection that ends gives its room back");
    }

    #[test]
    fn what_the_disk_refuses_is_kept_and_nothing_more_is_taken_until_it_has_room() {
        let directory = Directory::new("full");
        let mut spool = Spool::open(&directory.0, LIMIT).unwrap();
        let (sent, mut queue) = (pattern(3 * CHUNK), Queue::default());
        let mut host = &sent[..];
        assert_eq!(spool.take(&mut queue, &mut host, 0).unwrap(), Taken::Bytes);
        let whole = File::options().read(true).write(true).open("/dev/full").unwrap();
        let whole = std::mem::replace(&mut queue.segments[0].file, whole);
        assert_eq!(spool.take(&mut queue, &mut host, 0).unwrap(), Taken::Bytes);
        assert_eq!((spool.failures, host.len()), (1, CHUNK));
        for now_us in [1, PAUSE_US, PAUSE_US + 1] {
            assert_eq!(spool.take(&mut queue, &mut host, now_us).unwrap(), Taken::Full);
        }
        assert_eq!((spool.failures, host.len()), (2, CHUNK), "tried again after a pause");
        queue.segments[0].file = whole;
        assert_eq!(spool.take(&mut queue, &mut host, 3 * PAUSE_US).unwrap(), Taken::Bytes);
        assert!(read_all(&mut queue) == sent);
    }

    #[test]
    fn a_directory_that_is_none_is_refused() {
        let error = Spool::open(Path::new("/nonexistent/spool"), LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
