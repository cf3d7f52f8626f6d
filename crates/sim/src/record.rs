//! The datagrams that nodes send, kept for captures.

/// A datagram, as a node sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Virtual time in microseconds.
    pub at_us: u64,
    /// Number of the node that sent it.
    pub from: usize,
    /// Its bytes.
    pub datagram: Vec<u8>,
}

/// The first datagrams since it was made, up to a number.
#[derive(Debug, Default)]
pub(crate) struct Record {
    wanted: usize,
    kept: Vec<Recorded>,
}

impl Record {
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, kept: Vec::new() }
    }

    pub(crate) fn note(&mut self, at_us: u64, from: usize, datagram: &[u8]) {
        if self.kept.len() < self.wanted {
            self.kept.push(Recorded { at_us, from, datagram: datagram.to_vec() });
        }
    }

    pub(crate) fn kept(&self) -> &[Recorded] {
        &self.kept
    }
}
