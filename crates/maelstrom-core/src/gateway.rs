//! The gateway: one state machine for all its peers, driven by packets, datagrams and time.

mod by_tunnel;
mod counts;
mod handover;
mod multicast;
mod racks;
mod receiving;

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::class::Classes;
use crate::config::{Config, ConfigError, PeerConfig};
use crate::controller::PRODUCTS;
use crate::counters::{RejectedCounts, Uninjected, Unprotected, UnprotectedCounts};
use crate::entropy::Entropy;
use crate::exchange::EphemeralKey;
use crate::greeting::Attempts;
use crate::key::Token;
use crate::multicast::Multicast;
use crate::outbox::{Origin, Outbox};
use crate::packet::Packet;
use crate::peer::Peer;
use crate::peer::order::InOrder;
use crate::peer_status::PeerStatus;
use crate::prefixes::PrefixTable;
use crate::record::Record;
use crate::share::Share;
use crate::tunnel;

/// A gateway without I/O or clock. Packets, datagrams and the time go in; an [`Outbox`] takes the output.
///
/// Times are microseconds of one monotonic clock. The driver calls [`Gateway::handle_timeout`] when
/// [`Gateway::poll_timeout`] is due. It passes in captured packets before the datagrams that arrived after
/// them, and its tap may lag no more than [`Gateway::lag_max`] packets.
pub struct Gateway {
    config: Config,
    peers: Vec<Peer>,
    /// Networks of all peers; of a rack, those of its first gateway.
    sites: PrefixTable<usize>,
    /// For each peer, the peers with the same networks: itself, or all gateways of its rack.
    racks: Vec<Vec<usize>>,
    /// Far networks that this gateway holds as a member of a rack.
    held: Option<Vec<IpNet>>,
    /// A recovered packet while other gateways of the rack are shown it.
    copy: Vec<u8>,
    /// Gateways of a rack that know each recovered packet of a call.
    known: Vec<u64>,
    classes: Classes,
    /// Groups that cross the tunnels.
    multicast: Multicast,
    unprotected: UnprotectedCounts,
    /// Packets for tunnels that were not sent.
    refused: UnprotectedCounts,
    rejected: RejectedCounts,
    entropy: Entropy,
    share: Share,
    products: u16,
    /// The peer whose timers were run last.
    latest_peer: usize,
    next_stray_us: u64,
    attempts: Attempts,
    moves: u64,
}

impl Gateway {
    /// Creates a gateway without sessions. `entropy` generates tokens, ephemeral keys and nonces. A seed in
    /// its place must be secret, random, and never used twice.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config, entropy: impl Into<Entropy>) -> Result<Self, ConfigError> {
        let mut gateway = Self {
            peers: Vec::new(),
            sites: PrefixTable::default(),
            racks: Vec::new(),
            held: None,
            copy: Vec::new(),
            known: Vec::new(),
            classes: Classes::default(),
            multicast: Multicast::default(),
            unprotected: UnprotectedCounts::default(),
            refused: UnprotectedCounts::default(),
            rejected: RejectedCounts::default(),
            entropy: entropy.into(),
            share: Share::ALL,
            products: PRODUCTS,
            latest_peer: 0,
            next_stray_us: 0,
            attempts: Attempts::default(),
            moves: 0,
            config: Config { peers: Vec::new(), ..config.clone() },
        };
        gateway.reconfigure(config)?;
        Ok(gateway)
    }

    /// Checks that the configuration can take the place of the present one.
    ///
    /// # Errors
    /// As [`Config::check`]; [`ConfigError::Unaccepted`] for keys that end the protection of a peer that is
    /// up, because it accepts none of them.
    pub fn check_change(&self, config: &Config) -> Result<(), ConfigError> {
        config.check()?;
        let ends = |wanted: &PeerConfig| {
            let peer = self.peers.iter().find(|peer| peer.config.is_same_site(wanted));
            peer.is_some_and(|peer| peer.is_up() && !peer.accepts_a_key_of(wanted))
        };
        match config.peers.iter().find(|peer| ends(peer)) {
            Some(peer) => Err(ConfigError::Unaccepted(peer.address)),
            None => Ok(()),
        }
    }

    /// Changes the configuration. Peers with unchanged networks keep their session, also if their keys or
    /// their address change. On an error nothing changes. Returns the losses recorded of the peers that no
    /// peer continues, each with its number in the former configuration.
    ///
    /// # Errors
    /// As [`Gateway::check_change`].
    pub fn reconfigure(&mut self, config: Config) -> Result<Vec<(usize, Record)>, ConfigError> {
        self.check_change(&config)?;
        let same_sizes = config.ingress_of(1) == self.config.ingress_of(1)
            && config.wan_mtu == self.config.wan_mtu
            && config.listen == self.config.listen;
        let mut old: Vec<_> = std::mem::take(&mut self.peers).into_iter().enumerate().collect();
        let is_kept = |peer: &Peer, wanted| same_sizes && peer.config.is_same_site(wanted);
        for (index, wanted) in config.peers.iter().enumerate() {
            let peer = if let Some(at) = old.iter().position(|(_, peer)| is_kept(peer, wanted)) {
                old.swap_remove(at).1.reconfigured(&config, index, wanted)
            } else {
                let mut peer = Peer::new(wanted.clone(), &config, index, self.draw())
                    .with_share(self.share)
                    .with_part(self.part_of(wanted));
                let is_left = |old: &Peer| !config.peers.iter().any(|other| is_kept(old, other));
                let is_before = |old: &Peer| old.config.is_same_link(wanted) && is_left(old);
                if let Some(at) = old.iter().position(|(_, old)| is_before(old)) {
                    peer.continue_record(old.swap_remove(at).1);
                }
                peer
            };
            self.peers.push(peer);
        }
        self.set_products(self.products);
        let sites = config.peers.iter().enumerate();
        self.sites = PrefixTable::new(
            sites.flat_map(|(index, peer)| peer.networks.iter().map(move |&net| (net, index))),
        );
        self.racks = racks::of(&config.peers);
        self.classes.reconfigure(&config.classes);
        self.multicast.reconfigure(&config.multicast);
        self.config = config;
        for (config, peer) in self.config.peers.iter_mut().zip(&self.peers) {
            config.address = peer.config.address;
            config.paths.clone_from(&peer.config.paths);
        }
        Ok(old.into_iter().map(|(number, peer)| (number, peer.into_record())).collect())
    }

    fn draw(&mut self) -> (Token, EphemeralKey) {
        let mut token = Token::UNKNOWN;
        while token == Token::UNKNOWN {
            self.entropy.fill(&mut token.0);
        }
        (token, EphemeralKey::draw(&mut |bytes: &mut [u8]| self.entropy.fill(bytes)))
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Creates an outbox of the size that this gateway needs.
    pub fn outbox(&self) -> Outbox {
        let bins = self.config.schedule.volley(self.config.delayed);
        Outbox::new(self.config.symbol_max(), bins, self.config.ingress().equations)
    }

    /// Takes a packet that leaves this site over the WAN, as on the wire, from its IP header on.
    pub fn handle_outgoing(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) {
        self.handle_departed(now_us, now_us, packet, out);
    }

    /// Takes a packet, as [`Gateway::handle_outgoing`] does, that left at `left_us`, because the tap lags.
    pub fn handle_departed(&mut self, now_us: u64, left_us: u64, packet: &[u8], out: &mut Outbox) {
        if let Err(reason) = self.protect(now_us, left_us.min(now_us), packet, out) {
            self.unprotected.add(reason);
        }
    }

    fn protect(
        &mut self,
        now_us: u64,
        left_us: u64,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Unprotected> {
        let packet = Packet::new_checked(packet)?;
        let index = self.peer_toward(&packet)?;
        if self.peers[index].config.is_tunnel {
            // It leaves by another way than the tunnel, where nobody watches for it.
            return Err(Unprotected::BesideTunnel);
        }
        if packet.mutable_fields().ttl <= 1 {
            return Err(Unprotected::Expiring);
        }
        // A tunnel through a peer's site may carry repairs, of which each would cause further ones.
        let is_ours = |to| self.peers.iter().any(|peer| peer.config.addresses().any(|address| address == to));
        if tunnel::udp_inside(&packet).is_some_and(is_ours) {
            return Err(Unprotected::RepairChannel);
        }
        let care = self.classes.judge(&packet)?;
        let peer = &mut self.peers[index];
        let repairs = peer.egress.counts().repairs;
        peer.handle_outgoing(now_us, left_us, &packet, care, out)?;
        self.classes.on_protected(&care);
        self.classes.on_repairs(care.class, peer.egress.counts().repairs - repairs);
        Ok(())
    }

    /// Counts the packets that the last call has recovered, behind the first `before` in the outbox.
    fn count_recovered(&mut self, before: usize, out: &mut Outbox) {
        for (origin, packet) in out.recovered.metas_behind(before) {
            if origin.is_recovered {
                origin.class = self.classes.on_recovered(packet);
            }
        }
    }

    /// Takes a packet that arrived over the WAN at `now_us`, as on the wire, from its IP header on. Packets
    /// that are not IP or come from no peer's network are ignored.
    pub fn handle_incoming(&mut self, now_us: u64, packet: &[u8], out: &mut Outbox) {
        let Ok(packet) = Packet::new_checked(packet) else { return };
        if let Some(first) = self.sites.find(packet.source()).filter(|&index| !self.is_tunnel(index)) {
            let before = out.recovered.len();
            self.show(now_us, first, &packet, out);
            self.share_recovered(now_us, before, out);
            self.count_recovered(before, out);
        }
    }

    /// Takes a super-packet that arrived and could not be cut into packets, from its IP header on. What
    /// repairs recover of its flow is not injected while they may name these packets.
    pub fn handle_unseen(&mut self, now_us: u64, packet: &[u8]) {
        let Ok(packet) = Packet::new_checked(packet) else { return };
        if let Some(first) = self.sites.find(packet.source()).filter(|&index| !self.is_tunnel(index)) {
            for &index in &self.racks[first] {
                self.peers[index].handle_unseen(now_us, &packet);
            }
        }
    }

    /// Whether packets that arrive from networks of no peer may explain why those of a peer do not arrive.
    pub fn wants_strangers(&self) -> bool {
        self.peers.iter().any(|peer| peer.ingress.wants_strangers())
    }

    /// Takes any packet that arrived over the WAN, as on the wire, while [`Gateway::wants_strangers`]. Those
    /// of peers are ignored.
    pub fn handle_stranger(&mut self, now_us: u64, packet: &[u8]) {
        let Ok(packet) = Packet::new_checked(packet) else { return };
        if self.sites.find(packet.source()).is_none() {
            self.peers.iter_mut().for_each(|peer| peer.handle_stranger(now_us, &packet));
        }
    }

    /// Takes the report that a tap is behind: packets that arrived after `shown_us` may wait in it. Held
    /// repairs and requests then go by that time, and the driver passes in no repair that arrived later.
    /// `None`: the taps show all that arrives.
    pub fn handle_shown(&mut self, shown_us: Option<u64>) {
        self.peers.iter_mut().for_each(|peer| peer.set_shown(shown_us));
    }

    /// Takes the report that the tap has missed packets, or is too far behind to wait for. Packets that
    /// arrived unseen must not count as lost, so repairs recover nothing until [`Gateway::handle_caught_up`].
    pub fn handle_gap(&mut self) {
        self.handle_gap_of(|_| true);
    }

    /// The same for a tap that shows the packets of some peers, given by their numbers.
    pub fn handle_gap_of(&mut self, is_shown: impl Fn(usize) -> bool) {
        for (_, peer) in self.peers.iter_mut().enumerate().filter(|(number, _)| is_shown(*number)) {
            // Nothing but datagrams tells what arrives in a tunnel.
            if !peer.config.is_tunnel {
                peer.ingress.on_gap();
            }
        }
    }

    /// Maximum number of packets that may have arrived since those that a repair names. Older names are
    /// forgotten, and packets that arrived would count as lost. A driver that lags further calls
    /// [`Gateway::handle_gap`] before it passes the repair in.
    pub fn lag_max(&self) -> u64 {
        // Peers that were there before others came have a longer history.
        self.peers.iter().map(Peer::lag_max).min().unwrap_or(u64::MAX)
    }

    /// Changes the share of flows that this gateway has time for, in both directions. Tunnels carry all.
    pub fn set_share(&mut self, now_us: u64, share: Share) {
        self.share = share;
        for peer in &mut self.peers {
            peer.sharing.set_own(now_us, share);
        }
    }

    /// Changes the number of products for each packet that this gateway's processor has time for
    /// ([`Affordable`](crate::afford::Affordable)). Windows that the gateway chooses follow it.
    pub fn set_products(&mut self, products: u16) {
        self.products = products;
        for peer in &mut self.peers {
            peer.egress.set_products(products);
        }
    }

    /// Flows that some peer's egress protects. Outgoing packets of others need not be passed in.
    pub fn outgoing_share(&self) -> Share {
        self.watched_peers().map(|peer| peer.sharing.limit()).max().unwrap_or(Share::ALL)
    }

    /// Flows that some peer may protect. Incoming packets of others need not be passed in. The driver applies
    /// a larger share before it calls [`Gateway::handle_timeout`], which tells the peer.
    pub fn incoming_share(&self) -> Share {
        self.watched_peers().map(|peer| peer.sharing.far_bound()).max().unwrap_or(Share::ALL)
    }

    /// The peers whose packets a tap shows.
    fn watched_peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| !peer.config.is_tunnel)
    }

    /// Takes the report that the driver stood still for `stalled_us`: the process was stopped, or the machine
    /// slept. Packets that waited are old: the driver discards them, and sees all from here on. Of the
    /// datagrams that waited it passes in those that [`Gateway::outlasts_stalls`] names, and no others.
    /// Sessions continue with new streams, and nothing of before is sent or recovered, but in tunnels.
    pub fn handle_stall(&mut self, now_us: u64, stalled_us: u64) {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        for peer in &mut self.peers {
            peer.on_stall(now_us, stalled_us, entropy);
        }
    }

    /// Takes the report that tap and repair channel have been drained since the last gap. Packets sent from
    /// here on can be recovered again. Without a gap this does nothing.
    pub fn handle_caught_up(&mut self, now_us: u64) {
        self.handle_caught_up_of(now_us, |_| true);
    }

    /// The same for a tap that shows the packets of some peers, given by their numbers.
    pub fn handle_caught_up_of(&mut self, now_us: u64, is_shown: impl Fn(usize) -> bool) {
        for (_, peer) in self.peers.iter_mut().enumerate().filter(|(number, _)| is_shown(*number)) {
            peer.ingress.on_caught_up(now_us);
        }
    }

    /// Number of times that the own datagrams of a peer have shown another address of it.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Takes the report that a recovered packet of the [`Outbox`] could not be injected. It then counts as
    /// lost. The driver makes the report before it reads counts, so that none of them falls.
    pub fn handle_uninjected(&mut self, origin: Origin, reason: Uninjected) {
        if let Some(class) = origin.class {
            self.classes.on_uninjected(class);
        }
        if let (Some(peer), Some(seq)) = (self.peers.get_mut(origin.peer), origin.seq) {
            peer.ingress.on_uninjected(seq, reason);
        }
    }

    /// Takes the present address of a peer on a path, given by their numbers in the configuration; the first
    /// path has number 0. The session continues if it is the same gateway that has moved.
    pub fn set_address(&mut self, (peer, path): (usize, usize), address: SocketAddr) {
        self.peers[peer].move_on_path(path, address);
        self.follow(peer);
    }

    /// Takes the kernel's MTU of the path to a peer, given by its number in the configuration.
    pub fn handle_path_mtu(&mut self, now_us: u64, (peer, path): (usize, usize), mtu: usize) {
        self.peers[peer].handle_path_mtu(now_us, path, mtu);
    }

    /// Time at which [`Gateway::handle_timeout`] is due next, unless other input changes it.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.peers.iter().map(Peer::poll_timeout).min()
    }

    /// Runs all due timers: part-filled bins, repairs that waited for packets, Hellos, reports, packets to
    /// give up. When the outbox is nearly full, the rest stays due until the driver has emptied it.
    pub fn handle_timeout(&mut self, now_us: u64, out: &mut Outbox) {
        let count = self.peers.len();
        let before = out.recovered.len();
        // Each call begins with the peer at which the last one ended, so that the output of one peer cannot
        // keep others waiting.
        for _ in 0..count {
            if out.is_nearly_full() {
                break;
            }
            self.latest_peer = (self.latest_peer + 1) % count;
            let (peer, known) = (&mut self.peers[self.latest_peer], out.recovered.len());
            if now_us >= peer.poll_timeout() {
                peer.handle_timeout(now_us, &mut |bytes: &mut [u8]| self.entropy.fill(bytes), out);
                let (class, repairs) = peer.egress.take_hurried();
                self.classes.on_repairs(class, repairs);
                // Before another gateway of a rack recovers the same packet.
                self.share_recovered(now_us, known, out);
            }
        }
        self.announce_groups(now_us, out);
        self.count_recovered(before, out);
    }

    /// Returns the state of each peer, in the order of the configuration.
    pub fn peers(&self) -> impl Iterator<Item = PeerStatus<'_>> {
        self.peers.iter().map(|peer| PeerStatus {
            config: &peer.config,
            is_up: peer.is_up(),
            path_mtu: peer.path_mtu().mtu(),
            narrower_mtu: peer.path_mtu().narrower(),
            packet_max: peer.egress.packet_max(),
            trouble: peer.trouble(),
            wrong_key: peer.channel().wrong_key,
            keys: peer.key_state(),
            findings: peer.ingress.findings(),
            is_recovering: peer.ingress.is_recovering(),
            withheld: peer.ingress.withheld(),
            congestion: peer.ingress.congestion(),
            last_heard_us: peer.channel().heard_us(),
            rtt_us: peer.rtt_us(),
            sessions: peer.sessions,
            renewals: peer.renewals,
            multiplications: peer.multiplications,
            moves: peer.moves(),
            paths: peer.paths.status(),
            resequence: peer.order.as_ref().map(InOrder::state),
            share: peer.sharing.limit(),
            code: peer.egress.code(),
            decision: peer.egress.decision(),
            egress: peer.egress.counts(),
            ingress: peer.ingress.counts(),
            report: peer.ingress.losses(),
            missed_us: peer.ingress.missed_us(),
            record: peer.ingress.record(),
            per_second: peer.ingress.per_second(),
            far: peer.far(),
            watched: peer.watched(),
            unwatched_source: peer.unwatched_source(),
            is_paused: peer.ingress.is_paused(),
            doubtful_flows: peer.ingress.doubtful_flows(),
            wait_us: peer.ingress.wait_us(),
            delays_us: peer.ingress.delays_us(),
        })
    }

    /// The losses that the ingress of a peer has recorded, given by its number in the configuration. The
    /// driver adds those from before the gateway's start.
    pub fn record_mut(&mut self, peer: usize) -> &mut Record {
        self.peers[peer].ingress.record_mut()
    }

    /// Bytes of memory held for packets and repairs, without the outbox.
    pub fn memory_bytes(&self) -> usize {
        let of = |peer: &Peer| {
            let order = peer.order.as_ref().map_or(0, InOrder::memory_bytes);
            peer.egress.memory_bytes() + peer.ingress.memory_bytes() + peer.early.memory_bytes() + order
        };
        self.peers.iter().map(of).sum()
    }
}
