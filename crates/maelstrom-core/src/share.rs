//! The share of flows that is protected: all of them, unless a gateway has too little time.
//!
//! A gateway that cannot code all packets protects some flows whole and leaves the others, because half of
//! the packets of each flow would help none of them. [`Share`] bounds the flows by a hash that both gateways
//! and the tap's program in the kernel compute alike; [`Controller`] decides how large the share is.
//!
//! IPv4 fragments are hashed without ports, which only the first one has. All fragments of a packet are thus
//! protected, or none. Whole packets of the same ports may be treated otherwise.

use crate::packet::Packet;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// A share of all flows: those whose hash is no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u16);

impl Share {
    /// All flows.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether packets of this flow are in the share.
    pub fn contains(self, packet: &Packet<'_>) -> bool {
        self == Self::ALL || flow_hash(packet) <= self.0
    }

    /// Whether the tap shows a packet that arrives. Beside those in the share, it shows the first fragment of
    /// a packet in the share, because it tells that a router fragmented the packet.
    pub fn shows(self, packet: &Packet<'_>) -> bool {
        self.contains(packet) || is_first_fragment(packet) && hash(packet, true) <= self.0
    }

    /// The share as a part of 1.
    pub fn fraction(self) -> f64 {
        (f64::from(self.0) + 1.0) / 65_536.0
    }

    fn of_fraction(fraction: f64) -> Self {
        // The conversion saturates.
        Self((fraction * 65_536.0 - 1.0) as u16)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::ALL
    }
}

/// Hashes addresses, protocol and, in packets that are not fragments, ports. `netio/bpf/tap.c` computes the
/// same hash.
pub fn flow_hash(packet: &Packet<'_>) -> u16 {
    hash(packet, !is_fragment(packet))
}

fn is_fragment(packet: &Packet<'_>) -> bool {
    let bytes = packet.as_slice();
    bytes[0] >> 4 == 4 && u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff != 0
}

fn is_first_fragment(packet: &Packet<'_>) -> bool {
    let bytes = packet.as_slice();
    is_fragment(packet) && u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff == 0
}

fn hash(packet: &Packet<'_>, has_ports: bool) -> u16 {
    let bytes = packet.as_slice();
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.first_chunk());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    };
    let mut hash = 0;
    let (protocol, transport) = if bytes[0] >> 4 == 6 {
        (8..40).step_by(4).for_each(|at| hash = mix(hash, word(at)));
        (bytes[6], 40)
    } else {
        (12..20).step_by(4).for_each(|at| hash = mix(hash, word(at)));
        (bytes[9], usize::from(bytes[0] & 0x0f) * 4)
    };
    hash = mix(hash, u32::from(protocol));
    if has_ports && matches!(protocol, TCP | UDP | SCTP) {
        hash = mix(hash, word(transport));
    }
    (mix(hash, 0) >> 16) as u16
}

fn mix(hash: u32, word: u32) -> u32 {
    let mixed = (hash ^ word).wrapping_mul(0x9e37_79b1);
    mixed ^ (mixed >> 15)
}

/// The load of a gateway in the time since the last measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Whether packets or datagrams were dropped because the gateway was behind.
    pub is_behind: bool,
    /// Time that the gateway used, as a part of the time of all processors.
    pub own: f64,
    /// Time in which the machine's processors had nothing to do, as a part of it.
    pub idle: f64,
    /// Packets in a second of all flows, in the share or not.
    pub offered_per_s: f64,
}

/// Part of the machine's time that the gateway uses at most while no processor is idle: forwarding comes
/// first.
const OWN_MAX: f64 = 0.04;
/// Part of idle time below which the processors count as busy.
const IDLE_MIN: f64 = 0.04;
/// Rate of packets that is always coded. It takes little time, and a machine that is busy otherwise must not
/// end the protection of a slow link.
const FLOOR_PER_S: f64 = 10_000.0;
/// Smallest share, so that a change of the load is noticed.
const SHARE_MIN: f64 = 1.0 / 256.0;
/// Shortest time without overload after which the share rises.
const CALM_US: u64 = 1_000_000;
/// Longest such time. It doubles whenever a rise was followed by overload.
const CALM_MAX_US: u64 = 64_000_000;
/// Time after a rise in which overload is blamed on it.
const BLAME_US: u64 = 3_000_000;
/// Time for which a shortage must last before the first flows lose their protection. A machine that stood
/// still for a moment is behind once, and with fewer flows it would be as much; a slow start that fills the
/// link takes a second. Until then, captures that are missed cost single packets their protection; a flow
/// that is given up has none for seconds.
const LASTING_US: u64 = 2_000_000;
/// Longest time for which a measurement counts.
const MEASURED_MAX_US: u64 = 500_000;
/// Factor by which the share rises.
const RISE: f64 = 1.25;

/// Decides which share of flows a gateway protects.
///
/// Once a shortage has lasted, the share falls to what the gateway has time for, and it rises slowly. A rise
/// that had to be taken back makes the next attempt come later, so that flows do not gain and lose protection
/// all the time.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    share: f64,
    /// Time of the last overload, or of the last rise.
    since_us: u64,
    calm_us: u64,
    risen_us: Option<u64>,
    /// Time of the last measurement.
    measured_us: Option<u64>,
    /// Time of shortage, less the time without since then.
    short_us: u64,
}

impl Default for Controller {
    fn default() -> Self {
        Self { share: 1.0, since_us: 0, calm_us: CALM_US, risen_us: None, measured_us: None, short_us: 0 }
    }
}

impl Controller {
    /// Takes a measurement, which comes a few times a second, and returns the share from here on.
    pub fn update(&mut self, now_us: u64, load: &Load) -> Share {
        let factor = reduction(load);
        let lasts = self.lasts(now_us, factor < 1.0);
        let floor = (FLOOR_PER_S / load.offered_per_s.max(1.0)).clamp(SHARE_MIN, 1.0);
        self.share = self.share.max(floor);
        if factor < 1.0 && self.share > floor && (lasts || self.share < 1.0) {
            if self.risen_us.is_some_and(|risen_us| now_us < risen_us + BLAME_US) {
                self.calm_us = (2 * self.calm_us).min(CALM_MAX_US);
            }
            self.share = (self.share * factor).max(floor);
            (self.since_us, self.risen_us) = (now_us, None);
        } else if self.share < 1.0 && now_us >= self.since_us + self.calm_us && has_room(load) {
            self.share = (self.share * RISE).min(1.0);
            (self.since_us, self.risen_us) = (now_us, Some(now_us));
        } else if self.share == 1.0 && now_us >= self.since_us + BLAME_US {
            self.calm_us = CALM_US;
        }
        self.share()
    }

    /// Whether a shortage has lasted, of which there is one now or not.
    fn lasts(&mut self, now_us: u64, is_short: bool) -> bool {
        let since_us = self.measured_us.replace(now_us).map_or(0, |at_us| now_us.saturating_sub(at_us));
        let us = since_us.min(MEASURED_MAX_US);
        self.short_us =
            if is_short { (self.short_us + us).min(LASTING_US) } else { self.short_us.saturating_sub(us) };
        self.short_us == LASTING_US
    }

    /// The present share.
    pub fn share(&self) -> Share {
        Share::of_fraction(self.share)
    }
}

/// Factor by which the share falls; 1 if the gateway has enough time.
fn reduction(load: &Load) -> f64 {
    if load.is_behind {
        return 0.5;
    }
    if load.idle >= IDLE_MIN || load.own <= OWN_MAX {
        return 1.0;
    }
    // A part of the time does not depend on the share.
    (OWN_MAX / load.own).clamp(0.25, 0.9)
}

/// Whether the gateway has time for a larger share.
fn has_room(load: &Load) -> bool {
    !load.is_behind && (load.idle >= 2.0 * IDLE_MIN || load.own * RISE <= OWN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{udp4, udp6};

    fn hash(bytes: &[u8]) -> u16 {
        flow_hash(&Packet::new_checked(bytes).unwrap())
    }

    #[test]
    fn packets_of_a_flow_share_its_hash() {
        let packet = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello, far site");
        let mut later = udp4([10, 0, 0, 1], [10, 0, 1, 1], 78, b"something else");
        later[8] = 3;
        assert_eq!(hash(&packet), hash(&later));
        for at in [12, 15, 16, 19, 20, 23] {
            let mut other = packet.clone();
            other[at] ^= 0x11;
            assert_ne!(hash(&other), hash(&packet), "byte {at}");
        }
        // The pieces of a packet stay together, though only the first has ports.
        let (mut first, mut second) = (packet.clone(), packet.clone());
        (first[6], second[7]) = (0x20, 3);
        second[20..24].fill(0x77);
        assert_eq!(hash(&first), hash(&second));
        let v6 = |port| {
            let mut packet = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
            packet[41] = port;
            hash(&packet)
        };
        assert_ne!(v6(1), v6(2));
    }

    #[test]
    fn the_first_fragment_of_a_packet_in_the_share_is_shown() {
        let mut fewer = 0;
        for port in 0..100 {
            let mut whole = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello, far site");
            whole[21] = port;
            let (mut first, mut second) = (whole.clone(), whole.clone());
            (first[6], second[7]) = (0x20, 3);
            let shows = |share: u16, bytes: &[u8]| Share(share).shows(&Packet::new_checked(bytes).unwrap());
            let (whole_hash, piece_hash) = (hash(&whole), hash(&second));
            let least = whole_hash.min(piece_hash);
            assert!(shows(whole_hash, &whole) && !shows(whole_hash - 1, &whole));
            assert!(shows(least, &first) && !shows(least - 1, &first));
            assert!(shows(piece_hash, &second) && !shows(piece_hash - 1, &second));
            fewer += u32::from(whole_hash < piece_hash);
        }
        assert!((1..100).contains(&fewer), "both hashes decide");
    }

    /// The tap's program in the kernel computes the same (netio/tests/kernel/tap_shares.rs).
    #[test]
    fn known_flows_have_known_hashes() {
        let udp = |mut packet: Vec<u8>, header: usize, ports: [u16; 2]| {
            packet[header..header + 2].copy_from_slice(&ports[0].to_be_bytes());
            packet[header + 2..header + 4].copy_from_slice(&ports[1].to_be_bytes());
            hash(&packet)
        };
        let v4 = |from, to, ports| udp(udp4([10, 9, 0, from], [10, 9, 0, to], 5, b"there"), 20, ports);
        let host = |n: u16| std::net::Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, n);
        let v6 = |from, to, ports| udp(udp6(host(from), host(to), b"there"), 40, ports);
        assert_eq!([v4(1, 2, [7001, 7002]), v4(2, 1, [7002, 7001])], [45173, 16193]);
        assert_eq!([v6(1, 2, [7001, 7002]), v6(2, 1, [7002, 7001])], [53893, 45973]);
    }

    #[test]
    fn flows_spread_evenly() {
        let mut inside = 0;
        for n in 0..4_000_u16 {
            let mut packet = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello");
            packet[20..22].copy_from_slice(&(30_000 + n).to_be_bytes());
            inside += u32::from(Share::of_fraction(0.25).contains(&Packet::new_checked(&packet).unwrap()));
        }
        assert!((900..1_100).contains(&inside), "{inside} of 4000 flows in a quarter");
    }

    /// Runs a gateway whose time is proportional to its share, on a machine with a given idle time besides,
    /// and returns the shares that it chose, four each second.
    fn run(
        controller: &mut Controller,
        start_s: u64,
        seconds: u64,
        own_of_all: f64,
        idle: f64,
        rate: f64,
    ) -> Vec<f64> {
        let mut shares = Vec::new();
        for quarter in 4 * start_s..4 * (start_s + seconds) {
            let share = controller.share().fraction();
            let load = Load { is_behind: false, own: own_of_all * share, idle, offered_per_s: rate };
            shares.push(controller.update(250_000 * quarter, &load).fraction());
        }
        shares
    }

    #[test]
    fn the_share_falls_to_what_there_is_time_for_when_a_shortage_lasts_and_stays() {
        let mut controller = Controller::default();
        let shares = run(&mut controller, 10, 60, 0.4, 0.0, 350_000.0);
        assert!(shares[..8].iter().all(|&share| share == 1.0), "{shares:?}");
        assert!(shares[16] * 0.4 <= 1.2 * OWN_MAX, "after four seconds the share is {}", shares[16]);
        assert!(shares[40..].iter().all(|share| share * 0.4 > OWN_MAX / 2.0), "{shares:?}");
        let changes = shares[80..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 8, "flows gain and lose protection {changes} times in 40 seconds");
    }

    #[test]
    fn all_flows_are_protected_again_when_there_is_time() {
        let mut controller = Controller::default();
        run(&mut controller, 10, 5, 0.4, 0.0, 350_000.0);
        assert!(controller.share() < Share::ALL);
        run(&mut controller, 15, 20, 0.1, 0.5, 80_000.0);
        assert_eq!(controller.share(), Share::ALL);
    }

    #[test]
    fn a_slow_link_is_protected_however_busy_the_machine_is() {
        let mut controller = Controller::default();
        let shares = run(&mut controller, 10, 30, 0.3, 0.0, 9_000.0);
        assert!(shares.iter().all(|&share| share == 1.0), "{shares:?}");
        // A fast one keeps as many packets.
        let shares = run(&mut controller, 40, 30, 0.9, 0.0, 40_000.0);
        assert!(shares.iter().all(|&share| share * 40_000.0 >= 0.99 * FLOOR_PER_S), "{shares:?}");
    }

    #[test]
    fn all_flows_are_protected_as_soon_as_there_is_little_traffic() {
        let mut controller = Controller::default();
        run(&mut controller, 10, 20, 0.4, 0.0, 350_000.0);
        assert!(controller.share().fraction() < 0.2);
        let shares = run(&mut controller, 30, 1, 0.4, 0.0, 5_000.0);
        assert_eq!(shares, [1.0; 4]);
    }

    #[test]
    fn a_gateway_that_falls_behind_again_and_again_sheds_half_each_time() {
        let mut controller = Controller::default();
        let load = Load { is_behind: true, own: 0.2, idle: 0.5, offered_per_s: 1e6 };
        let shares: Vec<_> = (1..13).map(|n| controller.update(250_000 * n, &load).fraction()).collect();
        assert_eq!(shares[..8], [1.0; 8]);
        assert_eq!(shares[8..], [0.5, 0.25, 0.125, 0.0625]);
    }

    #[test]
    fn a_gateway_that_stood_still_for_a_moment_keeps_all_flows() {
        let mut controller = Controller::default();
        for quarter in 1..400 {
            // Behind every five seconds, and busy or idle otherwise.
            let is_behind = quarter % 20 == 0;
            let load = Load { is_behind, own: 0.2, idle: 0.5, offered_per_s: 1e5 };
            assert_eq!(controller.update(250_000 * quarter, &load), Share::ALL, "{quarter}");
        }
    }

    #[test]
    fn a_shortage_of_two_seconds_in_three_counts() {
        let mut controller = Controller::default();
        let busy = |n| Load {
            is_behind: false,
            own: 0.4,
            idle: [0.0, 0.0, 0.5][n as usize % 3],
            offered_per_s: 1e5,
        };
        let first = (1..100).find(|&n| controller.update(250_000 * n, &busy(n)) < Share::ALL);
        assert!(first.is_some_and(|n| (20..28).contains(&n)), "{first:?}");
        // Measurements far apart tell nothing of the time between.
        let mut controller = Controller::default();
        let shares: Vec<_> = (1..6).map(|n| controller.update(60_000_000 * n, &busy(0))).collect();
        assert_eq!(shares[..4], [Share::ALL; 4]);
        assert!(shares[4] < Share::ALL);
    }
}
