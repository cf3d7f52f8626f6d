//! One far gateway: the session with it, and both directions of its traffic.

mod address;
mod arriving;
mod groups;
mod handover;
mod hello;
mod keys;
mod listed;
pub(crate) mod order;
mod part;
pub(crate) mod paths;
mod renewal;
mod reports;
mod requests;
mod sealed;
mod shares;
mod start;
mod tunnel;
mod widths;

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::arrivals::names_beside;
use crate::channel::{Channel, Trouble};
use crate::class::Care;
use crate::config::{Config, IngressConfig, PeerConfig};
use crate::counters::Unprotected;
use crate::egress::Egress;
use crate::exchange::{Agreement, EphemeralKey, Public};
use crate::greeting::{Answers, Seen};
use crate::identity::Identity;
use crate::ingress::Ingress;
use crate::key::{PeerKey, Secret, Token};
use crate::keys::{FarKeys, HelloKeys, Keys, Openers};
use crate::ledger::TICK_US;
use crate::multicast::FarWants;
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::paths::{Early, Paths};
use crate::prefixes::{LocalNetworks, PrefixTable};
use crate::record::Record;
use crate::sender::Outlet;
use crate::session::Sealer;
use crate::share::Share;
use crate::sharing::Sharing;
use address::Roaming;
use handover::Leaving;
use listed::Listed;
use order::InOrder;
use part::Part;
use renewal::Renewal;
use widths::Widths;

/// Interval between Hellos to a live peer.
const HELLO_US: u64 = 1_000_000;
/// Interval between Hellos, and between reports, to a peer that is not up.
const CALL_US: u64 = 200_000;
/// Silence after which a session is given up for a new one.
const GIVE_UP_US: u64 = 10_000_000;
/// Time after which a source that the peer would not watch is forgotten.
const UNWATCHED_US: u64 = 300_000_000;
/// Maximum number of tokens of a peer that are remembered. At half of it, the session is renewed, and a new
/// token of our own makes them void.
const PAST_MAX: usize = 32;

/// A session. Its peer has proved that it knows the key and our token.
struct Session {
    begun_us: u64,
    far_token: Token,
    /// The public half of the ephemeral key that the peer has drawn with this token.
    far_public: Public,
    /// The secret of our ephemeral key and this one.
    agreement: Agreement,
    /// Keys that the peer accepts.
    far_keys: FarKeys,
    sealer: Sealer,
    /// The key of the sealer.
    key: PeerKey,
    openers: Openers,
    /// Opens datagrams of the session before a renewal that are still in flight.
    earlier: Openers,
    /// Our networks as the far gateway lists them: sources that it watches, and destinations that it
    /// protects.
    listed: Listed,
}

/// One far gateway.
pub(crate) struct Peer {
    pub(crate) config: PeerConfig,
    pub(crate) egress: Egress,
    pub(crate) ingress: Ingress,
    ingress_config: IngressConfig,
    identity: Identity,
    /// Networks from which packets arrive that the peer may protect.
    networks: PrefixTable<()>,
    local: LocalNetworks,
    /// IP groups that the peer's site wants.
    pub(crate) groups: FarWants,
    listen: SocketAddr,
    index: usize,
    hello_keys: HelloKeys,
    own_token: Token,
    /// Key that was drawn with this token, and is wiped with it. A peer that restarts or renews the session
    /// agrees on secrets with it.
    ephemeral: EphemeralKey,
    /// Time since which keys of sessions follow from it.
    ephemeral_since_us: Option<u64>,
    /// Keys that we accept with this token.
    own_keys: Keys,
    /// Networks that we list with this token.
    own_listed: Vec<IpNet>,
    part: Part,
    session: Option<Session>,
    /// Secret of the names of packets, from the beginning of the session to its end.
    names: Option<Secret>,
    renewal: Option<Renewal>,
    /// Whether this side renews the session when its time has come: the side whose token is older. The other
    /// side does so a minute later.
    renews_first: bool,
    leaving: Option<Leaving>,
    /// Earlier tokens of the peer while our own token has been in use. A session with one of them
    /// would reuse its key from counter 0.
    past: Vec<Token>,
    channel: Channel,
    widths: Widths,
    pub(crate) paths: Paths,
    pub(crate) early: Early,
    /// Buffer of the early repair in use.
    early_body: Vec<u8>,
    /// Puts packets in order, if that is wanted.
    pub(crate) order: Option<InOrder>,
    roaming: Roaming,
    is_up: bool,
    /// Time since which the far gateway watches for the packets that this one protects.
    watched_since_us: u64,
    /// Time until which the tap has shown what arrived; `None` while it shows all.
    shown_us: Option<u64>,
    next_hello_us: u64,
    answers: Answers,
    seen: Seen,
    next_report_us: u64,
    /// Whether the peer does not know our plan.
    is_plan_news: bool,
    next_tick_us: u64,
    /// Number of sessions begun.
    pub(crate) sessions: u64,
    /// Number of renewals of a session.
    pub(crate) renewals: u64,
    /// Number of multiplications on the curve.
    pub(crate) multiplications: u64,
    /// Source of the latest packet that the peer would not watch, and the time of the packet.
    unwatched_source: Option<(IpAddr, u64)>,
    pub(crate) sharing: Sharing,
}

impl Peer {
    /// Creates peer number `index` of a gateway, with the token and the ephemeral key that are ours.
    ///
    /// # Panics
    /// If the configuration is not valid: [`Config::check`] comes first.
    pub(crate) fn new(
        config: PeerConfig,
        gateway: &Config,
        index: usize,
        (token, ephemeral): (Token, EphemeralKey),
    ) -> Self {
        let outer = if config.address.is_ipv6() { 40 + 8 } else { 20 + 8 };
        let ingress_config = gateway.ingress();
        Self {
            egress: Egress::new(gateway, index, outer),
            ingress: Ingress::new(&ingress_config, config.road(), gateway.requests, gateway.on_congestion),
            order: InOrder::of(&config, &ingress_config),
            ingress_config,
            identity: Identity::new(&config.key).with_name_bits(gateway.name_bits),
            networks: PrefixTable::new(config.networks.iter().map(|&network| (network, ()))),
            local: LocalNetworks::toward(&config, gateway),
            groups: FarWants::default(),
            listen: gateway.listen,
            index,
            hello_keys: HelloKeys::new(&Keys::of(&config)),
            own_token: token,
            ephemeral,
            ephemeral_since_us: None,
            own_keys: Keys::of(&config),
            own_listed: config.networks.clone(),
            part: Part::default(),
            session: None,
            names: None,
            renewal: None,
            renews_first: false,
            leaving: None,
            past: Vec::new(),
            channel: Channel::new(),
            widths: Widths::new(gateway.wan_mtu, outer, 1 + config.paths.len()),
            paths: Paths::new(config.path_use, config.paths.len()),
            early: Early::default(),
            early_body: Vec::new(),
            roaming: Roaming::default(),
            is_up: false,
            watched_since_us: 0,
            shown_us: None,
            next_hello_us: 0,
            answers: Answers::default(),
            seen: Seen::default(),
            next_report_us: 0,
            is_plan_news: false,
            next_tick_us: 0,
            sessions: 0,
            renewals: 0,
            multiplications: 1,
            unwatched_source: None,
            sharing: if config.is_tunnel { Sharing::of_tunnel() } else { Sharing::new(Share::ALL) },
            config,
        }
    }

    /// Changes the share of flows that the gateway has time for, before there is a session.
    pub(crate) fn with_share(self, share: Share) -> Self {
        if self.config.is_tunnel { self } else { Self { sharing: Sharing::new(share), ..self } }
    }

    /// Continues the losses that were recorded of the same link with other settings.
    pub(crate) fn continue_record(&mut self, earlier: Self) {
        self.ingress.continue_record(earlier.ingress);
    }

    /// The losses that were recorded.
    pub(crate) fn into_record(self) -> Record {
        self.ingress.into_record()
    }

    /// Changes the gateway's configuration; the session stays.
    ///
    /// # Panics
    /// As [`Peer::new`].
    #[must_use]
    pub(crate) fn reconfigured(mut self, gateway: &Config, index: usize, wanted: &PeerConfig) -> Self {
        self.egress.reconfigure(gateway);
        self.ingress.set_requests(gateway.requests);
        self.ingress.set_on_congestion(gateway.on_congestion);
        self.local = LocalNetworks::toward(wanted, gateway);
        self.index = index;
        self.egress.renumber(index);
        if let Some(order) = &mut self.order {
            order.renumber(index);
        }
        self.config.whereabouts = wanted.whereabouts;
        self.set_tunnel(wanted.tunnel);
        // The address that the peer itself has shown stays.
        if wanted.address != self.config.address && (wanted.has_address() || !wanted.may_move()) {
            self.set_address(wanted.address);
        }
        self.with_keys_of(wanted)
    }

    /// Maximum number of packets by which the repairs of this peer may lag behind the tap.
    pub(crate) fn lag_max(&self) -> u64 {
        let history = self.ingress_config.history;
        // One history is left for the span of a repair, which takes a quarter of it with our own code.
        (names_beside(history) - history) as u64
    }

    /// Whether there is a session and the peer was heard recently.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether the present session, the one before it or the next one has this epoch.
    pub(crate) fn has_epoch(&self, epoch: u32) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_epoch(epoch))
            || self.renewal.as_ref().is_some_and(|renewal| renewal.has_epoch(epoch))
    }

    /// Takes a packet that left for this peer's site at `left_us`. `care`: what its class asks for.
    pub(crate) fn handle_outgoing(
        &mut self,
        now_us: u64,
        left_us: u64,
        packet: &Packet<'_>,
        care: Care,
        out: &mut Outbox,
    ) -> Result<(), Unprotected> {
        if self.config.addresses().any(|address| packet.is_udp_to(address)) {
            return Err(Unprotected::RepairChannel);
        }
        self.ingress.on_departure(now_us, packet, &self.identity);
        if !self.local.may_send(packet.source()) {
            return Err(Unprotected::NotLocal);
        }
        if !self.part.protects(packet.destination()) {
            return Err(Unprotected::OtherPart);
        }
        // A packet that left earlier may have arrived before the far gateway watched for it.
        let is_watched = self.is_up && left_us >= self.watched_since_us;
        let Some(session) = self.session.as_mut().filter(|_| is_watched) else {
            let is_heard = self.channel.trouble() == Some(Trouble::Unheard);
            return Err(if is_heard { Unprotected::Unheard } else { Unprotected::PeerDown });
        };
        if !session.listed.contains(packet.source()) {
            // The gateways themselves, and routers that report an error, need no network.
            let is_gateway = [self.listen.ip(), self.config.address.ip()].contains(&packet.source());
            if !is_gateway && !packet.is_icmp_error() {
                self.unwatched_source = Some((packet.source(), now_us));
            }
            return Err(Unprotected::ForeignSource);
        }
        // A router fragments or refuses it, so that it never arrives as it leaves.
        if self
            .widths
            .narrowest(self.paths.usable())
            .packet_max()
            .is_some_and(|max| packet.as_slice().len() > max)
        {
            return Err(Unprotected::TooLongForPath);
        }
        if !self.sharing.limit_of(left_us).contains(packet) {
            return Err(Unprotected::Overload);
        }
        self.egress.admit(packet, &self.identity)?;
        let (sealer, paths) = (&mut session.sealer, &mut self.paths);
        let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
        self.egress.handle_packet(now_us, left_us, packet, &self.identity, &mut outlet)?;
        self.egress.care(now_us, care, &mut outlet);
        Ok(())
    }

    /// Notes whether datagrams arrive in both directions. If so, the far gateway has begun this session too,
    /// and it watches all packets that we protect from here on.
    fn update_up(&mut self, now_us: u64) {
        let is_up = self.session.is_some() && self.channel.works(now_us);
        if self.is_up && !is_up {
            // Packets in the bins must not be mixed with packets of a later time.
            self.egress.empty_bins();
            self.next_hello_us = now_us;
            // The peer learns at once that we do not hear it.
            self.next_report_us = now_us;
        }
        if is_up && !self.is_up {
            self.watched_since_us = now_us;
        }
        self.is_up = is_up;
    }

    /// Time at which [`Peer::handle_timeout`] is due next.
    pub(crate) fn poll_timeout(&self) -> u64 {
        let own = self.next_hello_us.min(self.next_tick_us);
        let report = self.session.as_ref().map(|_| self.report_due_us());
        let share = self.session.as_ref().and_then(|_| self.sharing.next_us());
        let paths = self.paths_due_us();
        let order = self.order.as_ref().and_then(InOrder::due_us);
        let packets = self.session.as_ref().and_then(|_| self.egress.packets_due_us());
        let others = [self.egress.next_deadline_us(), self.ingress.next_due_us(), report, share, paths];
        others.into_iter().chain([order, packets]).flatten().fold(own, u64::min)
    }

    /// Runs all due timers. `entropy` generates tokens and nonces.
    pub(crate) fn handle_timeout(
        &mut self,
        now_us: u64,
        entropy: &mut impl FnMut(&mut [u8]),
        out: &mut Outbox,
    ) {
        if let Some(session) = &mut self.session {
            let (sealer, paths) = (&mut session.sealer, &mut self.paths);
            let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
            self.egress.fire_due(now_us, &mut outlet);
            self.egress.flush_due_packets(&mut outlet);
        }
        self.use_early(now_us, out);
        let (ingress, mut cx) = self.ingress_for_repairs(now_us, &mut out.recovered);
        ingress.use_due(&mut cx);
        self.put_in_order(now_us, out);
        self.ask_paths(now_us, out);
        self.send_requests(now_us, out);
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + TICK_US;
            self.ingress.on_tick(now_us);
            self.is_plan_news |= self.egress.on_tick(now_us);
            self.sharing.on_tick(now_us);
            self.on_paths_tick();
            self.update_thinning(now_us);
            self.unwatched_source.take_if(|(_, seen_us)| now_us >= *seen_us + UNWATCHED_US);
            self.check_liveness(now_us, entropy);
            self.probe_widths(now_us, out);
        }
        self.send_due_report(now_us, out);
        self.announce_shares(now_us, out);
        if now_us >= self.next_hello_us {
            self.next_hello_us = now_us + if self.is_up { HELLO_US } else { CALL_US };
            let echo = self.session.as_ref().map_or(Token::UNKNOWN, |session| session.far_token);
            if self.calls(now_us) {
                self.send_hello(now_us, echo, entropy, out);
            }
        }
    }

    fn check_liveness(&mut self, now_us: u64, entropy: &mut impl FnMut(&mut [u8])) {
        self.update_up(now_us);
        self.channel.on_tick(now_us, self.is_up);
        let is_spent = |session: &Session| {
            let heard_us =
                self.channel.heard_us().map_or(session.begun_us, |heard_us| heard_us.max(session.begun_us));
            session.sealer.is_worn_out() || now_us > heard_us + GIVE_UP_US
        };
        if self.session.as_ref().is_some_and(is_spent) {
            self.renew(entropy);
        }
        self.try_elsewhere(now_us, entropy);
        self.keep_keys(now_us, entropy);
        self.keep_part(now_us, entropy);
        self.keep_fresh(now_us, entropy);
        self.keep_leaving(now_us, entropy);
    }

    /// Notes that the far gateway has renewed the session, and is therefore there.
    fn on_followed(&mut self, now_us: u64, restarts: bool) {
        self.channel.on_followed(now_us, restarts);
        if restarts {
            self.egress.on_far_restart();
        }
        self.update_up(now_us);
    }

    /// Notes that no datagram was heard because this gateway stood still.
    fn on_own_silence(&mut self, now_us: u64) {
        self.channel.on_own_silence(now_us);
    }
}
