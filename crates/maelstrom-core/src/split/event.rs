//! The ends of a carrier, and what happens on it.

use super::frame::{Ends, Refusal};

/// End of a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It dialed, and opens streams.
    Dialer,
    /// It was dialed, and opens connections to servers.
    Acceptor,
}

/// An event on a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The far end asks for a connection: to be answered by [`Mux::accept`](super::Mux::accept) or
    /// [`Mux::refuse`](super::Mux::refuse).
    Open {
        /// The new stream.
        stream: u32,
        /// The ends of the connection.
        ends: Ends,
    },
    /// The far end has opened the connection.
    Opened(u32),
    /// Bytes wait for the host, or the far host has ended its direction.
    Arrived(u32),
    /// The stream has credit again.
    Writable(u32),
    /// The far end cannot open the connection; the stream is gone.
    Refused(u32, Refusal),
    /// The far host has reset the connection; the stream is gone.
    Reset(u32),
    /// The far end opens no more connections.
    Leaving,
}
