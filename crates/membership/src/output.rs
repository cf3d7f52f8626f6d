//! The seam to the sockets.

use std::net::SocketAddr;

/// Destination of a membership's datagrams.
pub trait Output {
    /// Sends a datagram, of at most [`DATAGRAM_MAX`](crate::wire::DATAGRAM_MAX) bytes, to one node.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]);
}

impl<T: Output + ?Sized> Output for &mut T {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        (**self).send(to, datagram);
    }
}
