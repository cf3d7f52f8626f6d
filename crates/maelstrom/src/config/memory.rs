//! The memory that a configuration needs. The gateway allocates the windows of packets for each peer when it
//! starts, whether they are used or not.

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};
use maelstrom_core::Schedule;

use super::draft::Draft;

/// Maximum memory for packets and repairs, in bytes: that of 64 peers with the default code. A gateway that
/// hits a memory limit of the machine is killed without a message, so that a configuration above this one
/// is refused.
pub const MEMORY_MAX: u64 = 1536 << 20;

/// Maximum memory for packets and repairs of one peer, in bytes.
const PEER_MAX: u64 = 512 << 20;

/// Maximum memory of one egress for the sums that become repairs, in bytes.
const SUMS_MAX: u64 = maelstrom_core::SUMS_BYTES_MAX as u64;

/// Largest packet of the path in bytes, where neither the file nor the machine says.
const WAN_MTU_ASSUMED: u16 = 1500;

/// Overhead of a packet in the window, in bytes: its names.
const BOOKS: u64 = 1000;
/// Memory for a place of the stream, in bytes.
const PLACE: u64 = 90;
/// Overhead of a packet in the cache from which requests are answered, in bytes.
const SLOT: u64 = 56;
/// Number of repairs that wait at a time, and of other buffers for one packet.
const BUFFERS: u64 = 560;
/// Overhead of a repair in bytes: its recipe and its coefficients.
const RECIPE: u64 = 1024;
/// Overhead of an unfinished sum in bytes.
const SUM: u64 = 64;
/// Overhead of each packet in an unfinished sum, in bytes.
const TERM: u64 = 16;
/// Memory for packets of a tunnel that are held for the sake of order, with their places, in bytes.
const HELD: u64 = maelstrom_core::RESEQUENCE_BYTES_MAX as u64 + (2 << 20);

/// The memory that a configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    peers: u64,
    window: u64,
    /// Window of the narrowest code.
    window_min: u64,
    packet_bytes: u64,
    peer_bytes: u64,
    /// Part of `peer_bytes`: the sums of one peer's egress.
    sum_bytes: u64,
    /// Memory for packets that are held, for all peers.
    held_bytes: u64,
    /// Part of all memory: packets from which requests are answered. It is touched as far as it is needed.
    cache_bytes: u64,
    schedule: Schedule,
}

/// A limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) what: &'static str,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
}

impl Memory {
    /// The memory of a gateway with `peers` peers; the peers in `core` do not count.
    pub(crate) fn of(core: &maelstrom_core::Config, peers: usize) -> Self {
        let ingress = core.ingress_of(peers);
        let (window, packet_bytes) = (ingress.history as u64, ingress.packet_max as u64);
        let sum = packet_bytes + SUM + TERM * core.schedule.names() as u64;
        let sum_bytes = core.schedule.sums(core.delayed) as u64 * sum;
        let repairs = ingress.equations as u64 + BUFFERS;
        let cache = core.cache_bytes(peers) as u64;
        let cache = cache + cache / 1024 * SLOT;
        let peer_bytes = window * (packet_bytes + BOOKS)
            + ingress.places as u64 * PLACE
            + repairs * (packet_bytes + RECIPE)
            + cache
            + sum_bytes;
        let schedule = core.schedule.clone();
        let narrowest = maelstrom_core::Config { schedule: Schedule::Auto, ..core.clone() };
        let window_min = narrowest.ingress_of(peers).history as u64;
        let peers = peers as u64;
        let (held_bytes, cache_bytes) = (0, peers * cache);
        Self {
            peers,
            window,
            window_min,
            packet_bytes,
            peer_bytes,
            sum_bytes,
            held_bytes,
            cache_bytes,
            schedule,
        }
    }

    /// The same with `peers` peers whose packets are put in order.
    pub(crate) fn with_order(self, peers: usize) -> Self {
        Self { held_bytes: peers as u64 * HELD, ..self }
    }

    /// The whole memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.peers * self.peer_bytes + self.held_bytes
    }

    /// The first limit that is exceeded.
    pub(crate) fn excess(&self) -> Option<Excess> {
        let one =
            Excess { what: "packets and repairs of one peer", bytes: self.peer_bytes, bytes_max: PEER_MAX };
        let all = Excess { what: "packets and repairs", bytes: self.bytes(), bytes_max: MEMORY_MAX };
        let sums = Excess { what: "the repairs to one peer", bytes: self.sum_bytes, bytes_max: SUMS_MAX };
        [one, all, sums].into_iter().find(|one| one.bytes > one.bytes_max)
    }

    /// The cause of the need, in words.
    pub(crate) fn origin(&self) -> String {
        let peers = if self.peers == 1 { "1 peer".to_owned() } else { format!("{} peers", self.peers) };
        format!("{peers}, each with a window of {} packets of up to {} bytes", self.window, self.packet_bytes)
    }

    /// Further facts about it for the operator.
    fn notes(&self, draft: &Draft) -> Vec<String> {
        let cache = (self.cache_bytes > 0).then(|| {
            format!(
                "up to {} of these keep packets for requests, for 2.5 round trips: a slow or short link needs less",
                mebibytes(self.cache_bytes)
            )
        });
        let tap = draft.gateway.tap_buffer.as_ref().map(|setting| {
            // The kernel's ring has a power of two.
            let bytes = setting.value.next_power_of_two();
            format!(
                "the tap of each WAN interface takes {} more (`tap_buffer`), and repairs that wait for taps up to {}",
                mebibytes(bytes),
                mebibytes(crate::inbox::BYTES_MIN as u64)
            )
        });
        cache.into_iter().chain(tap).collect()
    }

    /// Settings that lower it.
    pub(crate) fn remedies(&self) -> Vec<&'static str> {
        let mut remedies = Vec::new();
        if self.window > self.window_min {
            remedies.push(match self.schedule {
                Schedule::Layered { .. } => {
                    "lower `r`, or the largest of `interleaves`: the window is four times their product"
                }
                Schedule::ReedSolomon { .. } => {
                    "lower `r` or `interleave`: the window is four times their product"
                }
                Schedule::Auto | Schedule::Sliding { .. } => {
                    "set `scheme = \"sliding\"` with a lower `window`: either end keeps that many packets"
                }
            });
        }
        if self.sum_bytes > self.peer_bytes / 4 {
            remedies.push(match self.schedule {
                Schedule::Layered { .. } => {
                    "lower `interleaves`: each of them keeps as many unfinished sums as its value"
                }
                Schedule::ReedSolomon { .. } => {
                    "lower `c` or `interleave`: each block keeps c unfinished sums"
                }
                Schedule::Auto | Schedule::Sliding { .. } => {
                    "set `scheme = \"sliding\"` with a lower `window`: either end keeps that many packets"
                }
            });
        }
        if self.packet_bytes > u64::from(WAN_MTU_ASSUMED) {
            remedies.push("if no packet on the path is that large, set a smaller `wan_mtu`");
        }
        if self.held_bytes > self.bytes() / 4 {
            remedies.push("leave `resequence_ms` out for some of the peers");
        }
        if self.peers > 1 {
            remedies.push("run several gateways, each for some of the peers");
        }
        remedies
    }
}

/// Refuses a configuration that needs too much memory with its `wan_mtu`, or with the usual one.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    let Some(memory) = of_draft(draft, None) else { return };
    if let Some(excess) = memory.excess() {
        findings.add(refused(draft, &memory, &excess));
    }
}

/// The same check with the MTU of this machine's path; notes the figure if it is within the limit.
pub(super) fn check_with(draft: &Draft, wan_mtu: u32, findings: &mut Findings) {
    if of_draft(draft, None).is_some_and(|memory| memory.excess().is_some()) {
        return;
    }
    let Some(memory) = of_draft(draft, Some(wan_mtu)) else { return };
    findings.add(match memory.excess() {
        Some(excess) => refused(draft, &memory, &excess),
        None => {
            let message = format!("packets and repairs need up to {} of memory", mebibytes(memory.bytes()));
            let remark = Diagnostic::remark("memory", message).note(memory.origin());
            memory.notes(draft).into_iter().fold(remark, Diagnostic::note)
        }
    });
}

fn refused(draft: &Draft, memory: &Memory, excess: &Excess) -> Diagnostic {
    let message = format!("{} would need about {} of memory", excess.what, mebibytes(excess.bytes));
    let diagnostic = Diagnostic::error("memory", message)
        .at(draft.code.size_span())
        .expected(format!("at most {}", mebibytes(excess.bytes_max)))
        .seen(memory.origin());
    memory.remedies().into_iter().fold(diagnostic, Diagnostic::help)
}

fn of_draft(draft: &Draft, wan_mtu: Option<u32>) -> Option<Memory> {
    let stated = draft.gateway.wan_mtu.as_ref()?.value;
    let wan_mtu = wan_mtu.unwrap_or(u32::from(stated.unwrap_or(WAN_MTU_ASSUMED)));
    let core = maelstrom_core::Config {
        listen: draft.gateway.listen.as_ref()?.value,
        wan_mtu: wan_mtu as usize,
        schedule: draft.code.schedule()?,
        targets: maelstrom_core::controller::Targets::default(),
        delayed: draft.code.delayed.as_ref()?.value,
        max_delay_us: 0,
        requests: draft.code.requests.as_ref()?.value,
        repair_dscp: maelstrom_core::RepairDscp::default(),
        on_congestion: draft.code.congestion.as_ref()?.value,
        name_bits: 32,
        classes: Vec::new(),
        local_networks: Vec::new(),
        multicast: Vec::new(),
        peers: Vec::new(),
    };
    let is_ordered = |held: &Setting<u16>| held.value > 0;
    let ordered = draft.peers.iter().filter(|peer| peer.resequence_ms.as_ref().is_some_and(is_ordered));
    Some(Memory::of(&core, draft.peers.len()).with_order(ordered.count()))
}

/// The size in MiB, rounded up.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
pub(crate) mod tests {
    use maelstrom_core::{Config, Gateway, PeerConfig, PeerKey};

    use super::*;

    fn layered(r: u8, interleaves: &[u16]) -> Schedule {
        Schedule::Layered { r, interleaves: interleaves.to_vec() }
    }

    pub(crate) fn config(schedule: Schedule, delayed: bool, wan_mtu: usize) -> Config {
        let peer = PeerConfig {
            address: "10.81.9.2:4700".parse().unwrap(),
            whereabouts: Default::default(),
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            key: PeerKey::new([7; 32]),
            next_key: None,
            is_of_rack: false,
            trusts_path: false,
            is_tunnel: false,
            paths: Vec::new(),
            path_use: Default::default(),
            tunnel: Default::default(),
        };
        Config {
            listen: "10.81.9.1:4700".parse().unwrap(),
            wan_mtu,
            schedule,
            targets: maelstrom_core::controller::Targets::default(),
            delayed,
            max_delay_us: 20_000,
            requests: maelstrom_core::Requests::All,
            repair_dscp: maelstrom_core::RepairDscp::default(),
            on_congestion: maelstrom_core::congestion::OnCongestion::Leave,
            name_bits: 32,
            classes: Vec::new(),
            local_networks: Vec::new(),
            multicast: Vec::new(),
            peers: vec![peer],
        }
    }

    #[test]
    fn the_estimate_is_what_the_core_allocates() {
        let blocks = |r, c, interleave| Schedule::ReedSolomon { r, c, interleave };
        let window =
            |rate: &str, window| Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 };
        for (schedule, delayed, wan_mtu) in [
            (Schedule::Auto, false, 1500),
            (Schedule::layered(), false, 1500),
            (Schedule::layered(), false, 576),
            (Schedule::layered(), true, 9000),
            (layered(64, &[1, 512]), false, 1500),
            (layered(16, &[1024, 1023, 1021]), false, 1500),
            (layered(1, &[1]), false, 1500),
            (blocks(8, 3, 1), false, 1500),
            (blocks(8, 3, 20), true, 1500),
            (blocks(64, 32, 16), false, 9000),
            (blocks(8, 8, 512), true, 1500),
            (window("3/8", 160), false, 1500),
            (window("1/64", 512), false, 9000),
        ] {
            let case = format!("{schedule}, delayed {delayed}, {wan_mtu}");
            let config = config(schedule, delayed, wan_mtu);
            let estimate = Memory::of(&config, 1).bytes() as f64;
            let allocated = Gateway::new(config, [1; 32]).unwrap().memory_bytes() as f64;
            let ratio = estimate / allocated;
            assert!((0.9..1.25).contains(&ratio), "{case}: {allocated} x {ratio}");
        }
    }

    #[test]
    fn packets_that_are_held_count() {
        let mut config = config(Schedule::Auto, false, 1500);
        config.peers[0].is_tunnel = true;
        config.peers[0].tunnel.resequence_us = 20_000;
        let estimate = Memory::of(&config, 1).with_order(1);
        // Buffers are allocated as packets are held.
        let allocated = Gateway::new(config.clone(), [1; 32]).unwrap().memory_bytes() as u64
            + maelstrom_core::RESEQUENCE_BYTES_MAX as u64;
        let ratio = estimate.bytes() as f64 / allocated as f64;
        assert!((0.9..1.25).contains(&ratio), "{allocated} x {ratio}");
        assert!(Memory::of(&config, 1).with_order(9).remedies()[0].contains("resequence_ms"));
    }

    #[test]
    fn the_widest_code_is_too_much() {
        let excess = |config: &Config, peers| Memory::of(config, peers).excess();
        let widest = config(layered(64, &[1024]), false, 1500);
        assert_eq!(excess(&widest, 1).map(|excess| excess.bytes_max), Some(PEER_MAX));
        let wide = config(layered(64, &[256]), false, 1500);
        assert_eq!(excess(&wide, 1), None);
        assert_eq!(excess(&wide, 64).map(|excess| excess.bytes_max), Some(MEMORY_MAX));
    }

    #[test]
    fn a_gateway_may_have_as_many_peers_as_there_may_be() {
        for schedule in [Schedule::Auto, Schedule::layered()] {
            let usual = Memory::of(&config(schedule, false, 1500), super::super::keys::PEERS_MAX);
            assert_eq!(usual.excess(), None);
        }
    }

    #[test]
    fn repairs_that_the_core_would_refuse_are_too_much() {
        let many = |delayed| config(Schedule::ReedSolomon { r: 1, c: 32, interleave: 512 }, delayed, 9000);
        assert_eq!(Memory::of(&many(false), 1).excess(), None);
        assert!(Gateway::new(many(false), [1; 32]).is_ok());
        let excess = Memory::of(&many(true), 1).excess();
        assert_eq!(excess.map(|excess| excess.bytes_max), Some(SUMS_MAX), "{excess:?}");
        assert!(Gateway::new(many(true), [1; 32]).is_err());
        assert!(Memory::of(&many(true), 1).remedies()[0].contains("`c`"));
    }
}
