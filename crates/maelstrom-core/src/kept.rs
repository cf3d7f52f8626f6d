//! The packets that an egress keeps to answer requests, counted by flow (Maelstrom §4.5).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::cache::Cached;
use crate::packet::Packet;
use crate::symbol::SYMBOL_HEADER;

/// Protocols whose headers begin with two ports: TCP, UDP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 4] = [6, 17, 132, 136];

/// The ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowEnds {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol number; `None` for a later fragment.
    pub protocol: Option<u8>,
    /// Source and destination port, if the protocol has some.
    pub ports: Option<(u16, u16)>,
}

/// The packets of a flow that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFlow {
    /// Number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of times that they were sent again.
    pub answers: u64,
    /// Time at which the oldest left.
    pub oldest_us: u64,
    /// Time at which the newest left.
    pub newest_us: u64,
}

/// The packets for one peer's site that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The flows, at most [`Kept::FLOWS_MAX`].
    pub flows: BTreeMap<FlowEnds, KeptFlow>,
    /// Number of packets of further flows.
    pub others: u64,
    /// Number of all packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Maximum number of bytes.
    pub bytes_max: u64,
    /// Time for which packets are kept at most.
    pub keep_us: u64,
}

impl Kept {
    /// Maximum number of flows that are told apart.
    pub const FLOWS_MAX: usize = 1_000;

    /// Counts a packet.
    pub(crate) fn add(&mut self, cached: &Cached<'_>) {
        let Some(Ok(packet)) = cached.symbol.get(SYMBOL_HEADER..).map(Packet::new_whole) else { return };
        let len = packet.as_slice().len() as u64;
        self.packets += 1;
        self.bytes += len;
        let ends = FlowEnds::of(&packet);
        if self.flows.len() >= Self::FLOWS_MAX && !self.flows.contains_key(&ends) {
            self.others += 1;
            return;
        }
        let (at_us, answers) = (cached.at_us, u64::from(cached.answers));
        let new = KeptFlow { packets: 0, bytes: 0, answers: 0, oldest_us: at_us, newest_us: at_us };
        let flow = self.flows.entry(ends).or_insert(new);
        flow.packets += 1;
        flow.bytes += len;
        flow.answers += answers;
        flow.oldest_us = flow.oldest_us.min(at_us);
        flow.newest_us = flow.newest_us.max(at_us);
    }
}

impl FlowEnds {
    fn of(packet: &Packet<'_>) -> Self {
        let transport = packet.transport();
        let ports = transport.filter(|(protocol, _)| WITH_PORTS.contains(protocol)).and_then(|(_, at)| {
            let &[a, b, c, d] = packet.as_slice().get(at..)?.first_chunk::<4>()?;
            Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        });
        let (source, destination) = (packet.source(), packet.destination());
        Self { source, destination, protocol: transport.map(|(protocol, _)| protocol), ports }
    }
}
