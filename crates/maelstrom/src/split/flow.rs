//! A connection with a host of this site: its socket, and what the kernel has said about it.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use maelstrom_core::split::{Mux, Pool, Refusal};
use nix::libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, ECONNRESET, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPERM,
};

use super::spool::{Queue, Spool, Taken};
use crate::passive::clock_us;

/// Maximum number of writes of one turn.
const WRITES_MAX: usize = 16;

/// A connection with a host of this site.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) socket: TcpStream,
    /// Number of the far site.
    pub(super) site: usize,
    pub(super) carrier: usize,
    pub(super) stream: u32,
    /// Segments that were sent to the host again, as far as it was seen.
    pub(super) retransmits: u64,
    /// Time at which it began.
    pub(super) since_us: u64,
    /// Whether the connection to a server is not open yet.
    pub(super) is_connecting: bool,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// Whether the kernel has reported an error.
    pub(super) has_failed: bool,
    /// Whether the flow waits for its turn.
    pub(super) is_queued: bool,
    /// Whether the flow waits for room on its carrier.
    pub(super) awaits_room: bool,
    /// Bytes of the host that wait on disk.
    spooled: Queue,
    /// Whether our host has ended its direction.
    is_ended: bool,
    /// Whether the far gateway has been told so, after the last byte.
    is_read: bool,
    /// Whether our host knows that the far one has ended its direction.
    is_written: bool,
}

/// The state of a flow after its turn.
#[derive(Debug)]
pub(super) enum Served {
    /// It waits for the host, or for the far gateway.
    Waits,
    /// It may go on at once.
    Again,
    /// It waits for room on its carrier.
    NeedsRoom,
    /// Both directions have ended.
    Done,
    /// The host has reset it.
    Reset,
    /// The server cannot be reached.
    Refused(Refusal),
}

/// Bytes that moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) from_hosts: u64,
    pub(super) to_hosts: u64,
}

impl Flow {
    pub(super) fn new(
        socket: TcpStream,
        site: usize,
        (carrier, stream): (usize, u32),
        is_connecting: bool,
        now_us: u64,
    ) -> Self {
        Self {
            socket,
            site,
            carrier,
            stream,
            retransmits: 0,
            since_us: now_us,
            is_connecting,
            is_readable: false,
            is_writable: false,
            has_failed: false,
            is_queued: false,
            awaits_room: false,
            spooled: Queue::default(),
            is_ended: false,
            is_read: false,
            is_written: false,
        }
    }

    /// Moves what can be moved at present, at most one frame from the host.
    pub(super) fn serve(
        &mut self,
        mux: &mut Mux,
        pool: &mut Pool,
        spool: Option<&mut Spool>,
        moved: &mut Moved,
    ) -> Served {
        if self.is_connecting {
            match self.finish_connecting() {
                Ok(true) => mux.accept(self.stream, pool),
                Ok(false) => return Served::Waits,
                Err(error) => return Served::Refused(refusal(&error)),
            }
        }
        if self.has_failed && !matches!(self.socket.take_error(), Ok(None)) {
            return Served::Reset;
        }
        self.has_failed = false;
        let Ok(may_write_more) = self.write(mux, pool, moved) else { return Served::Reset };
        let Ok(read) = self.read(mux, spool, moved) else { return Served::Reset };
        match read {
            _ if self.is_read && self.is_written => Served::Done,
            _ if may_write_more => Served::Again,
            read => read,
        }
    }

    /// Whether the disk may have room for it by now.
    pub(super) fn awaits_disk(&self) -> bool {
        self.is_readable || self.spooled.has_rest()
    }

    /// Whether the connection to the server is open.
    fn finish_connecting(&mut self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        if !self.is_writable {
            return Ok(false);
        }
        match self.socket.peer_addr() {
            Ok(_) => self.is_connecting = false,
            Err(error) if error.kind() == ErrorKind::NotConnected => self.is_writable = false,
            Err(error) => return Err(error),
        }
        Ok(!self.is_connecting)
    }

    /// Hands the host what waits for it. Returns whether it may take more at once.
    fn write(&mut self, mux: &mut Mux, pool: &mut Pool, moved: &mut Moved) -> io::Result<bool> {
        for _ in 0..WRITES_MAX {
            let (first, second) = mux.inbound(self.stream);
            if !self.is_writable || first.is_empty() {
                break;
            }
            match (&self.socket).write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(bytes) => {
                    mux.on_written(self.stream, bytes, pool);
                    moved.to_hosts += bytes as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if mux.is_drained(self.stream) && !self.is_written {
            self.socket.shutdown(Shutdown::Write)?;
            self.is_written = true;
        }
        Ok(self.is_writable && !mux.inbound(self.stream).0.is_empty())
    }

    /// Takes bytes from the host: a frame if the far gateway takes them at present, otherwise to the disk, if
    /// there is room. Bytes on disk go first.
    fn read(
        &mut self,
        mux: &mut Mux,
        mut spool: Option<&mut Spool>,
        moved: &mut Moved,
    ) -> io::Result<Served> {
        if self.is_read {
            return Ok(Served::Waits);
        }
        if let Some(spool) = &mut spool {
            spool.retry(&mut self.spooled, clock_us());
        }
        let has_credit = mux.room(self.stream) > 0;
        let is_open = has_credit && mux.has_room();
        let waits = if has_credit && !is_open { Served::NeedsRoom } else { Served::Waits };
        let is_spooled = !self.spooled.is_empty();
        let sent = if is_open { self.forward(mux, moved)? } else { false };
        if self.is_ended {
            return Ok(self.finish(mux, sent, waits));
        }
        if is_open && !is_spooled {
            return Ok(if sent { Served::Again } else { Served::Waits });
        }
        let taken = match spool {
            Some(spool) if self.is_readable => spool.take(&mut self.spooled, &self.socket, clock_us())?,
            _ => Taken::Full,
        };
        match taken {
            Taken::Bytes => return Ok(Served::Again),
            Taken::End => self.is_ended = true,
            Taken::Nothing => self.is_readable = false,
            Taken::Full => {}
        }
        if self.is_ended {
            return Ok(self.finish(mux, sent, waits));
        }
        Ok(if sent { Served::Again } else { waits })
    }

    /// Sends a frame of bytes from disk, or from the host. Returns whether it has sent something.
    fn forward(&mut self, mux: &mut Mux, moved: &mut Moved) -> io::Result<bool> {
        if !self.spooled.is_empty() {
            let bytes = mux.send_data(self.stream, |room| self.spooled.read(room))?;
            moved.from_hosts += bytes as u64;
            return Ok(true);
        }
        if self.is_ended || !self.is_readable {
            return Ok(false);
        }
        match mux.send_data(self.stream, |room| (&self.socket).read(room)) {
            Ok(0) => {
                self.is_ended = true;
                Ok(false)
            }
            Ok(bytes) => {
                moved.from_hosts += bytes as u64;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Tells the far gateway that the host has ended its direction, if it has all its bytes.
    fn finish(&mut self, mux: &mut Mux, sent: bool, waits: Served) -> Served {
        if !self.spooled.is_empty() {
            return if sent { Served::Again } else { waits };
        }
        self.is_read = true;
        mux.finish(self.stream);
        Served::Waits
    }
}

/// Why a server cannot be reached, for the far gateway.
pub(super) fn refusal(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(ECONNREFUSED | ECONNRESET) => Refusal::Refused,
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) => Refusal::Full,
        // This gateway cannot have the client's address and port; the client's own packets may pass.
        Some(EADDRINUSE | EADDRNOTAVAIL | EACCES | EPERM) => Refusal::Foreign,
        _ => Refusal::Unreachable,
    }
}
