//! The gateway: one state machine over all its peers, driven by packets, datagrams and time.

use std::net::SocketAddr;

use fec::{Code, RepairRate};
use hdrhistogram::Histogram;
use ipnet::IpNet;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::counters::{Rejected, RejectedCounts, Unprotected, UnprotectedCounts};
use crate::egress::{Egress, EgressCounts};
use crate::ingress::{IngressConfig, IngressCounts};
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::peer::Peer;
use crate::prefixes::PrefixTable;
use crate::schedule::Schedule;
use crate::session::{PeerKey, Token};
use crate::shelf::NAMES;
use crate::symbol::SYMBOL_HEADER;
use crate::wire::{LossReport, NETWORKS_MAX, Outer, TERMS_MAX, WINDOW_MAX};

/// 60 ms of a full gigabit link: so much later than its packets may a repair come.
const WINDOW_MIN: usize = 4096;
const EQUATIONS: usize = 256;

/// One far gateway as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerConfig {
    /// Where its repairs come from and ours go to.
    pub address: SocketAddr,
    /// The far site's networks, at most [`NETWORKS_MAX`], disjoint from every other peer's.
    pub networks: Vec<IpNet>,
    /// The key shared with it.
    pub key: PeerKey,
}

/// What a gateway is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Our end of the repair channel.
    pub listen: SocketAddr,
    /// MTU toward the WAN in bytes: no datagram of ours is longer, no packet on the link either.
    pub wan_mtu: usize,
    /// Which packets share a repair.
    pub schedule: Schedule,
    /// Whether repairs of what is interleaved wait for later packets, so that one burst cannot take them with theirs: those of
    /// a full bin for its next packet (Maelstrom §4.3.1), those of full blocks for the next blocks.
    pub delayed: bool,
    /// How long a part-filled bin of the smallest interleave waits, or part-filled blocks, in microseconds.
    pub max_delay_us: u64,
    /// Bits of a packet's short name; 32, less only in tests that want names to collide.
    pub name_bits: u32,
    /// The far gateways.
    pub peers: Vec<PeerConfig>,
}

impl Config {
    /// The code of the egress.
    pub fn code(&self) -> Code {
        self.schedule.code(self.delayed, self.max_delay_us, self.symbol_max())
    }

    /// Longest packet that can be protected in bytes: all that the WAN carries.
    pub fn packet_max(&self) -> usize {
        self.wan_mtu
    }

    /// Longest symbol in bytes.
    pub(crate) fn symbol_max(&self) -> usize {
        self.packet_max() + SYMBOL_HEADER
    }

    /// Sizes of the ingress: a window of four times what one repair spans, if the far end codes as we do.
    pub fn ingress(&self) -> IngressConfig {
        IngressConfig {
            window: (4 * self.code().span()).max(WINDOW_MIN).next_power_of_two(),
            packet_max: self.packet_max(),
            equations: EQUATIONS,
            give_up_us: 1_000_000 + 2 * self.schedule.slowest_us(self.max_delay_us),
        }
    }
}

/// Why a configuration cannot be run. Drivers check more, and sooner; this is what the core itself insists on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The code.
    #[error(transparent)]
    Code(#[from] fec::ConfigError),
    /// More packets in a repair than a recipe can name.
    #[error("r: expected at most {TERMS_MAX}, saw {0}")]
    Terms(usize),
    /// A window of more packets than a far ingress takes.
    #[error("window: expected 1 to {WINDOW_MAX}, saw {0}")]
    Window(u16),
    /// A window that does not reach from one repair to the next.
    #[error(
        "window: expected at least {window_min}, as many packets as come between two repairs at the rate {rate}, saw {window}: \
         raise `window` or `rate`, or packets go without a repair"
    )]
    WindowShort {
        /// The window.
        window: u16,
        /// The least for this rate.
        window_min: usize,
        /// The rate.
        rate: RepairRate,
    },
    /// More packets between two repairs than a recipe can name.
    #[error("rate: expected at least 1/{TERMS_MAX}, saw {0}")]
    Rate(RepairRate),
    /// The WAN MTU.
    #[error("wan_mtu: expected 576 to 65535, saw {0}")]
    WanMtu(usize),
    /// Too many networks.
    #[error("networks: expected at most {NETWORKS_MAX} for one peer, saw {0}")]
    Networks(usize),
}

/// What is known of one peer at a moment.
pub struct PeerStatus<'a> {
    /// As configured.
    pub config: &'a PeerConfig,
    /// Whether a session stands and the peer was heard lately.
    pub is_up: bool,
    /// When it was last heard.
    pub last_heard_us: Option<u64>,
    /// Sessions begun.
    pub sessions: u64,
    /// Our egress towards it.
    pub egress: &'a EgressCounts,
    /// Our ingress from it.
    pub ingress: &'a IngressCounts,
    /// What our ingress found lost.
    pub report: &'a LossReport,
    /// What its ingress found lost of our packets.
    pub far_report: &'a LossReport,
    /// How long a repair waits at present for packets that it misses, in microseconds.
    pub wait_us: u64,
    /// How much later than its neighbours a recovered packet came, in microseconds.
    pub delays_us: &'a Histogram<u64>,
}

/// A gateway without I/O or clock: packets, datagrams and the time go in, [`Outbox`] holds what comes out.
///
/// Times are microseconds of one monotonic clock. The driver calls [`Gateway::handle_timeout`] no earlier than
/// [`Gateway::poll_timeout`] says, and hands over what a tap captured before the datagrams that came after it,
/// which may be no later than [`Gateway::lag_max`] says.
pub struct Gateway {
    config: Config,
    peers: Vec<Peer>,
    /// All peers' networks.
    sites: PrefixTable<usize>,
    unprotected: UnprotectedCounts,
    rejected: RejectedCounts,
    entropy: ChaCha12Rng,
}

impl Gateway {
    /// A gateway that has not heard of anybody yet. `seed` makes tokens and nonces: secret, random, never used twice.
    ///
    /// # Errors
    /// What [`ConfigError`] lists.
    pub fn new(config: Config, seed: [u8; 32]) -> Result<Self, ConfigError> {
        let mut gateway = Self {
            peers: Vec::new(),
            sites: PrefixTable::default(),
            unprotected: UnprotectedCounts::default(),
            rejected: RejectedCounts::default(),
            entropy: ChaCha12Rng::from_seed(seed),
            config: Config { peers: Vec::new(), ..config.clone() },
        };
        gateway.reconfigure(config)?;
        Ok(gateway)
    }

    /// Takes over another configuration. Peers with unchanged address, key and networks keep their session; on an
    /// error everything stays as it was.
    ///
    /// # Errors
    /// What [`ConfigError`] lists.
    pub fn reconfigure(&mut self, config: Config) -> Result<(), ConfigError> {
        if !(576..=65_535).contains(&config.wan_mtu) {
            return Err(ConfigError::WanMtu(config.wan_mtu));
        }
        if let Schedule::Sliding { rate, window, .. } = config.schedule {
            if window > WINDOW_MAX {
                return Err(ConfigError::Window(window));
            }
            if rate.repairs() as usize * TERMS_MAX < rate.sources() as usize {
                return Err(ConfigError::Rate(rate));
            }
            let window_min = config.schedule.window_min();
            // A window of none is no code at all, and said to be none below.
            if window > 0 && usize::from(window) < window_min {
                return Err(ConfigError::WindowShort { window, window_min, rate });
            }
        }
        if config.schedule.names() > TERMS_MAX {
            return Err(ConfigError::Terms(config.schedule.names()));
        }
        // All that can fail comes before anything changes.
        Egress::new(&config, 0, 48)?;
        if let Some(peer) = config.peers.iter().find(|peer| peer.networks.len() > NETWORKS_MAX) {
            return Err(ConfigError::Networks(peer.networks.len()));
        }
        let same_sizes = config.ingress() == self.config.ingress()
            && config.wan_mtu == self.config.wan_mtu
            && config.listen == self.config.listen;
        let mut old = std::mem::take(&mut self.peers);
        for (index, wanted) in config.peers.iter().enumerate() {
            let peer = match old.iter().position(|peer| same_sizes && peer.config == *wanted) {
                Some(at) => old.swap_remove(at).reconfigured(&config, index)?,
                None => Peer::new(wanted.clone(), &config, index, self.new_token())?,
            };
            self.peers.push(peer);
        }
        let sites = config.peers.iter().enumerate();
        self.sites = PrefixTable::new(
            sites.flat_map(|(index, peer)| peer.networks.iter().map(move |&net| (net, index))),
        );
        self.config = config;
        Ok(())
    }

    fn new_token(&mut self) -> Token {
        let mut token = Token::UNKNOWN;
        while token == Token::UNKNOWN {
            self.entropy.fill_bytes(&mut token.0);
        }
        token
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// An outbox of the size this gateway needs.
    pub fn outbox(&self) -> Outbox {
        let bins = self.config.schedule.volley(self.config.delayed);
        Outbox::new(self.config.symbol_max(), bins, EQUATIONS)
    }

    /// A packet left this site over the WAN, as it is on the wire from its IP header on.
    pub fn handle_outgoing(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) {
        if let Err(reason) = self.protect(now_us, packet, out) {
            self.unprotected.add(reason);
        }
    }

    fn protect(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) -> Result<(), Unprotected> {
        let packet = Packet::new_checked(packet)?;
        let index = self.sites.find(packet.destination()).ok_or(Unprotected::NoPeer)?;
        self.peers[index].outgoing(now_us, &packet, out)
    }

    /// A packet arrived over the WAN, as it is on the wire from its IP header on.
    pub fn handle_incoming(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) {
        let Ok(packet) = Packet::new_checked(packet) else { return };
        if let Some(index) = self.sites.find(packet.source()) {
            self.peers[index].incoming(now_us, &packet, out);
        }
    }

    /// The tap has missed packets, or is too far behind to wait for. What arrived unseen must not be taken for lost: from
    /// now on repairs bring nothing back, until [`Gateway::handle_caught_up`].
    pub fn handle_gap(&mut self) {
        for peer in &mut self.peers {
            peer.ingress.gap();
        }
    }

    /// So many packets may have arrived since those that a repair names. Beyond them names are forgotten, and packets that
    /// arrived would be taken for lost: a driver that lags by more says so by [`Gateway::handle_gap`] before it hands the
    /// repair over.
    pub fn lag_max(&self) -> u64 {
        // One window is left for what one repair spans: a quarter of it by our own code.
        ((NAMES - 1) * self.config.ingress().window) as u64
    }

    /// The tap has been drained since the last gap, and so has the repair channel: recovery goes on with what is sent from
    /// now on. Without a gap this does nothing.
    pub fn handle_caught_up(&mut self, now_us: u64) {
        for peer in &mut self.peers {
            peer.ingress.caught_up(now_us);
        }
    }

    /// A datagram arrived on the repair channel; it is decrypted in place.
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &mut [u8], out: &mut Outbox) {
        if let Err(reason) = self.receive(now_us, from, datagram, out) {
            self.rejected.add(reason);
        }
    }

    fn receive(
        &mut self,
        now_us: u64,
        from: SocketAddr,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        match Outer::read(datagram)? {
            Outer::Sealed(header) => {
                let peer = self.peers.iter_mut().find(|peer| peer.speaks_epoch(header.epoch));
                peer.ok_or(Rejected::UnknownEpoch)?.sealed(now_us, &header, datagram, out)
            }
            Outer::Hello => {
                let peer = self.peers.iter_mut().find(|peer| same_address(peer.config.address, from));
                let entropy = &mut |bytes: &mut [u8]| self.entropy.fill_bytes(bytes);
                peer.ok_or(Rejected::UnknownSender)?.hello(now_us, datagram, entropy, out)
            }
        }
    }

    /// When [`Gateway::handle_timeout`] next has something to do, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.peers.iter().map(Peer::next_timeout_us).min()
    }

    /// Does what is due: bins that waited long enough, repairs that waited for packets, Hellos, reports, packets given
    /// up. Where the outbox gets nearly full the rest stays due until it has been emptied.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut Outbox) {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill_bytes(bytes);
        for peer in &mut self.peers {
            if out.is_nearly_full() {
                return;
            }
            if now_us >= peer.next_timeout_us() {
                peer.timeout(now_us, entropy, out);
            }
        }
    }

    /// What is known of each peer, in the order of the configuration.
    pub fn peers(&self) -> impl Iterator<Item = PeerStatus<'_>> {
        self.peers.iter().map(|peer| PeerStatus {
            config: &peer.config,
            is_up: peer.is_up(),
            last_heard_us: peer.last_heard_us(),
            sessions: peer.sessions,
            egress: peer.egress.counts(),
            ingress: peer.ingress.counts(),
            report: peer.ingress.report(),
            far_report: peer.far_report(),
            wait_us: peer.ingress.wait_us(),
            delays_us: peer.ingress.delays_us(),
        })
    }

    /// Outgoing packets that got no repair, by reason.
    pub fn unprotected(&self) -> &UnprotectedCounts {
        &self.unprotected
    }

    /// Datagrams refused on the repair channel, by reason.
    pub fn rejected(&self) -> &RejectedCounts {
        &self.rejected
    }

    /// Bytes of memory held for packets and repairs, the outbox excluded.
    pub fn memory_bytes(&self) -> usize {
        self.peers.iter().map(|peer| peer.egress.memory_bytes() + peer.ingress.memory_bytes()).sum()
    }
}

/// A dual-stack socket reports IPv4 senders in their mapped form.
fn same_address(configured: SocketAddr, seen: SocketAddr) -> bool {
    configured.port() == seen.port() && configured.ip() == seen.ip().to_canonical()
}
