//! The packets that an egress keeps to answer requests, counted by flow (Maelstrom §4.5).

use std::cmp::Reverse;
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
    /// The flows that were asked for; of more than [`Kept::FLOWS_MAX`], those with the most bytes.
    pub flows: BTreeMap<FlowEnds, KeptFlow>,
    /// Number of packets of further flows that were asked for.
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
    /// Maximum number of flows that are listed.
    pub const FLOWS_MAX: usize = 1_000;

    /// Counts a packet, and its flow if that `is_wanted`.
    pub(crate) fn add(&mut self, cached: &Cached<'_>, is_wanted: impl Fn(&FlowEnds) -> bool) {
        let Some(Ok(packet)) = cached.symbol.get(SYMBOL_HEADER..).map(Packet::new_whole) else { return };
        let len = packet.as_slice().len() as u64;
        self.packets += 1;
        self.bytes += len;
        let ends = FlowEnds::of(&packet);
        if !is_wanted(&ends) {
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

    /// Leaves the flows with the most bytes, when all packets are counted.
    pub(crate) fn finish(&mut self) {
        if self.flows.len() <= Self::FLOWS_MAX {
            return;
        }
        let mut by_size: Vec<_> =
            self.flows.iter().map(|(ends, flow)| (Reverse(flow.bytes), *ends)).collect();
        by_size.sort_unstable();
        for (_, ends) in &by_size[Self::FLOWS_MAX..] {
            self.others += self.flows.remove(ends).map_or(0, |flow| flow.packets);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::udp4;

    /// Counts a packet of a flow to this host, with a payload of this length.
    fn add(kept: &mut Kept, host: u16, len: usize, is_wanted: impl Fn(&FlowEnds) -> bool) {
        let [high, low] = host.to_be_bytes();
        let packet = udp4([10, 0, 1, 1], [10, 9, high, low], 1, &vec![0; len]);
        let symbol = [&[0; SYMBOL_HEADER][..], &packet].concat();
        kept.add(&Cached { symbol: &symbol, at_us: u64::from(host), answers: 0 }, is_wanted);
    }

    fn host(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        [10, 9, high, low].into()
    }

    #[test]
    fn of_more_flows_than_are_listed_the_largest_are() {
        let mut kept = Kept::default();
        // The last flow has the most bytes, and the first ones have the least.
        let last = Kept::FLOWS_MAX as u16 + 3;
        for number in 0..=last {
            (0..2).for_each(|_| add(&mut kept, number, 100 + usize::from(number), |_| true));
        }
        kept.finish();
        let listed: Vec<IpAddr> = kept.flows.keys().map(|ends| ends.destination).collect();
        assert_eq!(listed, (4..=last).map(host).collect::<Vec<_>>());
        assert_eq!((kept.packets, kept.others), (2 * (u64::from(last) + 1), 8));
    }

    #[test]
    fn a_flow_that_is_asked_for_is_found_whatever_others_there_are() {
        let mut kept = Kept::default();
        let is_wanted = |ends: &FlowEnds| ends.destination == host(5);
        for number in 0..3_000 {
            add(&mut kept, number, if number == 5 { 1 } else { 900 }, is_wanted);
        }
        kept.finish();
        assert_eq!((kept.flows.len(), kept.packets, kept.others), (1, 3_000, 0));
        assert!(kept.flows.keys().all(is_wanted));
    }
}
