//! A gateway that is short of time: it reads its tap in turns, which do not always empty it.

use std::collections::VecDeque;

use maelstrom_core::Inbound;

use super::{Flight, Pair};

/// The packets and datagrams that have arrived at a gateway and were not read, in order of arrival.
#[derive(Default)]
pub struct SlowTap {
    packets: VecDeque<Flight>,
    /// Datagrams that the kernel holds.
    channel: VecDeque<Flight>,
    /// Datagrams that were read, with the times of it.
    inbox: VecDeque<(u64, Flight)>,
}

impl SlowTap {
    pub(super) fn push(&mut self, flight: Flight) {
        let queue = if flight.path.is_some() { &mut self.channel } else { &mut self.packets };
        queue.push_back(flight);
    }

    /// Number of packets that wait.
    pub fn waiting(&self) -> usize {
        self.packets.len()
    }
}

impl Pair {
    /// The gateway of a side turns once, as the driver does: it reads its datagrams, shows at most `packets`
    /// packets to its core, and decodes the datagrams whose packets have been shown.
    pub fn turn(&mut self, side: usize, packets: usize) {
        let mut tap = self.taps[side].take().unwrap();
        tap.inbox.extend(tap.channel.drain(..).map(|flight| (self.now_us, flight)));
        let mut latest_us = None;
        for _ in 0..packets {
            let Some(flight) = tap.packets.pop_front() else { break };
            latest_us = Some(flight.arrived_us);
            self.gateways[side].handle_incoming(flight.arrived_us, &flight.bytes, &mut self.out[side]);
        }
        let shown_us = latest_us.filter(|_| !tap.packets.is_empty());
        self.gateways[side].handle_shown(shown_us);
        let until_us = shown_us.unwrap_or(u64::MAX);
        while let Some((_, flight)) = tap.inbox.pop_front_if(|(read_us, _)| *read_us < until_us) {
            let (path, ecn) = flight.path.unwrap();
            let from = Inbound { source: self.source_by(path, side), ecn, arrived_us: flight.arrived_us };
            self.inject_marked(from, side, &flight.bytes);
            tap = self.send_output(side, tap);
        }
        self.gateways[side].handle_timeout(self.now_us, &mut self.out[side]);
        let tap = self.send_output(side, tap);
        self.taps[side] = Some(tap);
    }

    /// Empties the outbox. Packets that arrive meanwhile wait in the tap.
    fn send_output(&mut self, side: usize, tap: SlowTap) -> SlowTap {
        self.taps[side] = Some(tap);
        self.exchange();
        self.taps[side].take().unwrap()
    }
}
