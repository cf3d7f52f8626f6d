//! The ends of connections whose carrier has gone: all their bytes are here, and the host has not taken them
//! yet.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Write as _};
use std::net::{Shutdown, TcpStream};

use netio::transparent;
use tracing::debug;

use super::driver::{Driver, REST};
use super::flow::Flow;
use crate::passive::clock_us;

/// The last bytes for a host.
#[derive(Debug)]
pub(super) struct Rest {
    socket: TcpStream,
    bytes: VecDeque<u8>,
}

/// How many of its last bytes a host takes.
enum Taken {
    All,
    Some,
    /// It has reset the connection.
    Nothing,
}

impl Rest {
    fn hand_over(&mut self) -> Taken {
        loop {
            let (first, second) = self.bytes.as_slices();
            if first.is_empty() {
                return Taken::All;
            }
            match (&self.socket).write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(bytes) => drop(self.bytes.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Taken::Some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Taken::Nothing,
            }
        }
    }
}

impl Driver {
    /// Goes on to hand a host the last bytes of a connection whose carrier has ended. Returns whether there
    /// is room for them: as much as for all streams of carriers.
    pub(super) fn hand_over_rest(&mut self, flow: Flow, bytes: VecDeque<u8>) -> bool {
        let held: u64 = self.rests.iter().map(|(_, rest)| rest.bytes.len() as u64).sum();
        if held + bytes.len() as u64 > self.plan.buffer {
            return false;
        }
        let index = self.rests.insert(Rest { socket: flow.socket, bytes });
        let watched = self.rests.get(index).map(|rest| self.watch_again(&rest.socket, REST | index as u64));
        if let Some(Err(error)) = watched {
            debug!(%error, "cannot watch a connection");
            self.rests.remove(index);
            return false;
        }
        self.serve_rest(index);
        true
    }

    /// Hands a host more of its last bytes. One that has all of them gets the end of its connection.
    pub(super) fn serve_rest(&mut self, index: usize) {
        let Some(rest) = self.rests.get_mut(index) else { return };
        let taken = rest.hand_over();
        if matches!(taken, Taken::Some) {
            return;
        }
        let Some(Rest { socket, .. }) = self.rests.remove(index) else { return };
        if matches!(taken, Taken::All)
            && socket.shutdown(Shutdown::Write).and_then(|()| transparent::settle(&socket)).is_ok()
        {
            self.counts.finished += 1;
            self.part(socket, clock_us());
        }
    }
}
