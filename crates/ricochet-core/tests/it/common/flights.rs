//! Datagrams on their way between the nodes of a test.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time of arrival, serial number, receiver, and the datagram.
type Flight = (u64, u64, usize, Vec<u8>);

/// Datagrams in the order of their arrival; those that arrive at the same time, in the order of sending.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: BinaryHeap<Reverse<Flight>>,
    launched: u64,
}

impl Flights {
    /// Sends a datagram, which arrives at `at_us`.
    pub(crate) fn launch(&mut self, at_us: u64, to: usize, datagram: Vec<u8>) {
        self.launched += 1;
        self.flights.push(Reverse((at_us, self.launched, to, datagram)));
    }

    /// Returns the time of the next arrival.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.flights.peek().map(|Reverse(flight)| flight.0)
    }

    /// Returns the next datagram that has arrived, and its receiver.
    pub(crate) fn arrived(&mut self, now_us: u64) -> Option<(usize, Vec<u8>)> {
        self.next_us().filter(|&at_us| at_us <= now_us)?;
        self.flights.pop().map(|Reverse((_, _, to, datagram))| (to, datagram))
    }

    /// Loses all datagrams to a node.
    pub(crate) fn lose_to(&mut self, node: usize) {
        self.flights.retain(|Reverse((_, _, to, _))| *to != node);
    }
}
