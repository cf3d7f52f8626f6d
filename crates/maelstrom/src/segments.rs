//! Limits on TCP segments, so that repairs fit into the path (`mtu = "manage"`, docs/adr/0018).
//!
//! A gateway limits the segments that hosts of its own site send to the peers' networks, because these are
//! the packets that it protects; the peers limit theirs. The limit follows from the MTU of the path and from
//! the overhead of a repair. The kernel keeps it ([`SegmentClamp`]), and it applies to connections that begin
//! from then on.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use maelstrom_core::observe::EventKind;
use netio::clamp::{Ownership, SegmentClamp, SegmentLimit};
use tracing::{debug, warn};

use crate::config::{GatewayConfig, MtuChoice, Peer};
use crate::errands::{Errand, Errands};
use crate::passive::Passive;

/// Interval between looks at the path and at the configuration.
const LOOK_US: u64 = 1_000_000;
/// Interval between checks that nobody has changed the table.
const CHECK_US: u64 = 5_000_000;
/// Interval between attempts after the kernel has refused the table.
const AGAIN_US: u64 = 30_000_000;
/// Time for which a path must carry longer packets before the limit rises. A new session knows nothing of
/// the path for a moment.
const RAISE_US: u64 = 30_000_000;

/// Length of IP and TCP headers without options: the difference between a packet and its segment.
pub(crate) const HEADERS_V4: u32 = 40;
/// The same over IPv6.
pub(crate) const HEADERS_V6: u32 = 60;
/// Smallest limit: every host sends such segments to hosts that state none (RFC 9293 §3.7.1).
const SEGMENT_MIN: u32 = 536;
/// Shortest packets to which TCP can be limited.
pub(crate) const PACKET_MIN: u32 = SEGMENT_MIN + HEADERS_V6;
/// Maximum number of peers in a line of the log.
const SHOWN_MAX: usize = 8;

/// Longest wait for the kernel as the gateway stops.
const SETTLE: Duration = Duration::from_secs(2);

/// The limits in force. The kernel's table changes on the thread of errands: the kernel waits while anybody
/// else loads rules.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// `None` while there is none, and while an errand has it.
    table: Option<Table>,
    errand: Errand<(Option<Table>, Outcome)>,
    /// The limits of the errand as a phrase.
    shown: String,
    /// Whether the table was there at the end of the latest errand.
    is_set: bool,
    /// Reason why the kernel has refused the table.
    fault: Option<String>,
    paths: Vec<Path>,
    next_look_us: u64,
    next_check_us: u64,
    next_attempt_us: u64,
}

/// The kernel's table.
#[derive(Debug)]
struct Table {
    name: String,
    limits: Vec<SegmentLimit>,
    clamp: SegmentClamp,
}

/// The result of an errand.
#[derive(Debug)]
enum Outcome {
    Kept,
    Set,
    /// The kernel refuses the table, for this reason.
    Refused(String),
}

/// Longest packet whose repairs cross the path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Path {
    peer: SocketAddr,
    packet_max: u32,
    /// Time since which the path carries longer ones.
    wider_since_us: Option<u64>,
}

impl Path {
    /// Takes what is known of the path at present: a lower limit at once, a higher one after a while.
    fn update(&mut self, now_us: u64, packet_max: u32) {
        if packet_max <= self.packet_max {
            (self.packet_max, self.wider_since_us) = (packet_max, None);
            return;
        }
        let since_us = *self.wider_since_us.get_or_insert(now_us);
        if now_us >= since_us + RAISE_US {
            (self.packet_max, self.wider_since_us) = (packet_max, None);
        }
    }
}

impl Segments {
    /// `managed`, `failed` or `checked`.
    pub(crate) fn state(&self, choice: MtuChoice) -> &'static str {
        match choice {
            _ if self.is_set => "managed",
            MtuChoice::Check => "checked",
            MtuChoice::Manage => "failed",
        }
    }

    /// Makes the next turn of the loop look, because the configuration has changed.
    pub(crate) fn expire(&mut self) {
        (self.next_look_us, self.next_attempt_us) = (0, 0);
    }

    /// The reason why the kernel has refused the table.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Takes the longest packets that fit the path to each peer at present.
    fn update_paths(&mut self, now_us: u64, present: impl Iterator<Item = (SocketAddr, u32)>) {
        let known = std::mem::take(&mut self.paths);
        self.paths = present
            .map(|(peer, packet_max)| {
                let known = known.iter().find(|path| path.peer == peer).copied();
                let mut path = known.unwrap_or(Path { peer, packet_max, wider_since_us: None });
                path.update(now_us, packet_max);
                path
            })
            .collect();
    }

    /// Whether the kernel's table may have to change, or to be checked.
    fn is_due(&self, now_us: u64, name: &str, limits: &[SegmentLimit]) -> bool {
        match &self.table {
            Some(table) if table.name == name && table.limits == limits => now_us >= self.next_check_us,
            Some(_) => true,
            None => now_us >= self.next_attempt_us,
        }
    }

    /// Sends for the kernel's table of these limits.
    fn send(&mut self, now_us: u64, errands: &Errands, name: String, limits: Vec<SegmentLimit>) {
        (self.next_check_us, self.next_attempt_us) = (now_us + CHECK_US, now_us + AGAIN_US);
        let table = self.table.take();
        self.errand = errands.begin(move || follow(table, name, limits));
    }

    /// Takes what an errand has done. Returns an event if the limits have changed, or cannot.
    fn on_answer(&mut self, (table, outcome): (Option<Table>, Outcome)) -> Option<EventKind> {
        self.is_set = table.is_some();
        self.table = table;
        match outcome {
            Outcome::Kept => None,
            Outcome::Set => {
                self.fault = None;
                Some(EventKind::SegmentsLimited { limits: std::mem::take(&mut self.shown) })
            }
            Outcome::Refused(reason) => {
                let is_new = self.fault.as_ref() != Some(&reason);
                self.fault = Some(reason.clone());
                is_new.then_some(EventKind::SegmentsUnlimited { reason })
            }
        }
    }

    /// Waits for an errand that has the table, so that it is removed as the gateway stops. If the kernel does
    /// not answer, the next start removes it.
    pub(crate) fn settle(&mut self, beat: impl FnMut()) {
        if let Some((table, _)) = self.errand.wait_with(SETTLE, beat) {
            self.table = table;
        }
    }
}

/// Makes the kernel's table the one of these limits.
fn follow(table: Option<Table>, name: String, limits: Vec<SegmentLimit>) -> (Option<Table>, Outcome) {
    if let Some(mut table) = table.filter(|table| table.name == name) {
        if table.limits == limits {
            // An error proves nothing.
            if table.clamp.is_present().unwrap_or(true) {
                return (Some(table), Outcome::Kept);
            }
            warn!("somebody has changed the table {name} of nftables: it is set again");
        } else {
            match table.clamp.replace(&limits) {
                Ok(()) => return (Some(Table { limits, ..table }), Outcome::Set),
                Err(error) => debug!(%error, "cannot change the table: it is made again"),
            }
        }
    }
    match SegmentClamp::install(&name, &limits, Ownership::Auto) {
        Ok(clamp) => (Some(Table { name, limits, clamp }), Outcome::Set),
        Err(error) => {
            let reason = format!("the kernel refuses the table {name} of nftables: {error}");
            (None, Outcome::Refused(reason))
        }
    }
}

impl Passive {
    /// Limits the segments of TCP connections with the peers' networks, as far as the configuration wants it.
    pub(crate) fn limit_segments(&mut self) {
        let now_us = self.engine.now_us;
        if self.upgrade.has_former() {
            // The table is that process's, and goes with it.
            return;
        }
        if let Some(answer) = self.segments.errand.take()
            && let Some(event) = self.segments.on_answer(answer)
        {
            self.watch.note(now_us, event, &self.config);
        }
        if now_us < self.segments.next_look_us || self.segments.errand.is_under_way() {
            return;
        }
        self.segments.next_look_us = now_us + LOOK_US;
        if self.config.gateway.mtu == MtuChoice::Check {
            if let Some(table) = std::mem::take(&mut self.segments).table {
                self.errands.run(move || drop(table));
            }
            self.segments.next_look_us = now_us + LOOK_US;
            return;
        }
        let (core, v6) = (self.engine.gateway.config(), self.config.gateway.listen.is_ipv6());
        let wan_mtu = core.wan_mtu;
        let fits = |mtu: usize, is_tunnel: bool| {
            mtu.saturating_sub(core.schedule.overhead_toward(is_tunnel, v6)) as u32
        };
        let peers = self.engine.gateway.peers();
        let present = peers.map(|peer| {
            let mtu = peer.narrower_mtu.unwrap_or(wan_mtu);
            (peer.config.address, fits(mtu, peer.config.is_tunnel))
        });
        self.segments.update_paths(now_us, present);
        let limits = limits(&self.config, &self.segments.paths);
        let name = table_of(&self.config.gateway.tun);
        if self.segments.is_due(now_us, &name, &limits) {
            self.segments.shown = shown(&self.config, &self.segments.paths);
            self.segments.send(now_us, &self.errands, name, limits);
        }
    }
}

/// The name of a gateway's table. Gateways on one machine have TUN devices with different names.
fn table_of(tun: &str) -> String {
    format!("undrop_mss_{tun}")
}

/// The limits for the networks of all peers. Peers and paths have the order of the configuration.
fn limits(config: &GatewayConfig, paths: &[Path]) -> Vec<SegmentLimit> {
    // A packet to the site of a rack may need repairs toward any of its gateways.
    let narrowest = |site: &Peer| {
        let is_of = |peer: &Peer| std::ptr::eq(peer, site) || peer.rack.is_some() && peer.rack == site.rack;
        let of_site = config.peers.iter().zip(paths).filter(|(peer, _)| is_of(peer));
        of_site.map(|(_, path)| path.packet_max).min()
    };
    let limits =
        config.sites().filter_map(|site| Some((site, narrowest(site)?))).flat_map(|(site, packet_max)| {
            let limit =
                move |&network: &IpNet| SegmentLimit { network, bytes: segment_max(packet_max, network) };
            site.networks.iter().map(limit)
        });
    limits.collect()
}

/// The longest segment of packets of this length with the hosts of a network.
fn segment_max(packet_max: u32, network: IpNet) -> u16 {
    let headers = if network.addr().is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let bytes = packet_max.saturating_sub(headers).max(SEGMENT_MIN);
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// The limits as a phrase.
fn shown(config: &GatewayConfig, paths: &[Path]) -> String {
    let peers = config.peers.iter().zip(paths).take(SHOWN_MAX);
    let phrases =
        peers.map(|(peer, path)| format!("{} bytes of packet to {}", path.packet_max, peer.label()));
    let more = if config.peers.len() > SHOWN_MAX { ", ..." } else { "" };
    phrases.collect::<Vec<_>>().join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 4700))
    }

    /// Takes the same packet for one peer once a second from `from_s` to `to_s`, and returns the limit then.
    fn after(segments: &mut Segments, from_s: u64, to_s: u64, packet_max: u32) -> u32 {
        for second in from_s..=to_s {
            segments.update_paths(second * SECOND, std::iter::once((peer(1), packet_max)));
        }
        segments.paths[0].packet_max
    }

    #[test]
    fn a_narrower_path_lowers_the_limit_at_once_and_a_wider_one_raises_it_after_a_while() {
        let mut segments = Segments::default();
        assert_eq!(after(&mut segments, 0, 0, 1_301), 1_301);
        assert_eq!(after(&mut segments, 1, 1, 1_201), 1_201);
        assert_eq!(after(&mut segments, 2, 31, 1_301), 1_201);
        assert_eq!(after(&mut segments, 32, 32, 1_301), 1_301);
        // A session that begins again and learns the same.
        assert_eq!(after(&mut segments, 40, 40, 1_101), 1_101);
        assert_eq!(after(&mut segments, 41, 60, 1_301), 1_101);
        assert_eq!(after(&mut segments, 61, 61, 1_101), 1_101);
        assert_eq!(after(&mut segments, 62, 91, 1_301), 1_101);
        assert_eq!(after(&mut segments, 92, 92, 1_301), 1_301);
    }

    #[test]
    fn each_peer_has_its_own_path_also_after_a_reload() {
        let mut segments = Segments::default();
        segments.update_paths(0, [(peer(1), 1_301), (peer(2), 1_001)].into_iter());
        segments.update_paths(SECOND, [(peer(2), 1_301), (peer(3), 1_201), (peer(1), 1_301)].into_iter());
        let kept: Vec<u32> = segments.paths.iter().map(|path| path.packet_max).collect();
        assert_eq!(kept, [1_001, 1_201, 1_301]);
    }

    #[test]
    fn a_segment_is_a_packet_without_its_headers_within_bounds() {
        let of = |packet, network: &str| segment_max(packet, network.parse().unwrap());
        assert_eq!([of(1_301, "10.0.0.0/8"), of(1_301, "fd00::/8")], [1_261, 1_241]);
        assert_eq!([of(100, "10.0.0.0/8"), of(100, "fd00::/8"), of(70_000, "fd00::/8")], [536, 536, 65_535]);
        assert_eq!(segment_max(PACKET_MIN, "fd00::/8".parse().unwrap()), 536);
    }
}
